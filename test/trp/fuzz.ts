/**
 * Wrong datagrams in great number: `npx tsx test/trp/fuzz.ts [count] [seed]`, a million by default. They come
 * in a peer's name: to a connection with traffic on it, to a listener, and to a client and a server of which
 * one has not heard the other yet. Nothing may throw, memory stays bounded, no octet is written outside of
 * what the peer may write, and every request ends exactly once.
 */
import { fileURLToPath } from 'node:url';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import type { PassiveConnection } from '../../src/cm/listener.ts';
import type { PortAddress } from '../../src/transport/port.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { TRP_OPCODE } from '../../src/trp/wire.ts';
import { ACCESS, type QueuePair } from '../../src/verbs/index.ts';
import { ACCEPT, DATA, FIN, REJECT, REQUEST, World } from './support.ts';

const { SACK, PIECE } = TRP_OPCODE;
const BATCH = 200;
const BATCHES = 20;
/** Memory of a hundred segments, and of the headers of four thousand. */
const MOST_HELD = 200_000;
const HOST = '127.0.0.1';
const LISTENS = 7000;
const AMPLIFICATION = 3;

/** What a run has done. */
interface FuzzResult {
  datagrams: number;
  /** Connections with traffic, listeners, and connections that are being set up. */
  readonly worlds: Record<'established' | 'listener' | 'set-up', number>;
  dropped: number;
  refused: number;
}

function at(port: number, address = HOST): PortAddress {
  return { address, port, family: 'IPv4' };
}

function trpOf(seed: number): TrpOptions {
  if (seed % 5 === 0) return { profile: 'urdma' };
  return {
    receiver: seed % 3 === 0 ? 'ordered' : 'placing',
    reads: seed % 2 === 0 ? 'placed' : 'ordered',
  };
}

/** Acknowledgements, segments and ends of a connection that was set up by these. */
function guesses(setup: readonly Uint8Array[]): Uint8Array[] {
  return [DATA, FIN, SACK, PIECE].flatMap((opcode) => {
    const guess = new Uint8Array(60);
    guess.set(setup.at(-1)!.subarray(0, 8));
    guess.set([opcode >> 8, 0, 0x41, 0x43], 8);
    return [guess, guess.subarray(0, 10)];
  });
}

abstract class Run {
  abstract readonly state: keyof FuzzResult['worlds'];
  readonly world: World;
  readonly trp: TrpOptions;
  protected readonly draw: RandomU32;

  constructor(seed: number, draw: RandomU32) {
    this.draw = draw;
    this.trp = trpOf(seed);
    this.world = new World({ network: { latency: 0.1, seed }, client: this.trp, server: this.trp });
  }

  /** A batch in the names of others; false if there is nothing left to send to. */
  abstract batch(): boolean;

  /** Every request has ended once, and nothing was written where nothing may be. */
  abstract end(): void;

  protected say(bytes: Uint8Array, from: PortAddress, to: PortAddress): void {
    this.world.memory.carry(bytes, from, to, () => undefined);
  }

  protected pick<T>(all: readonly T[]): T {
    return all[this.draw() % all.length]!;
  }

  /** Random octets, or a datagram that has passed with some of it changed. */
  protected datagram(real: readonly Uint8Array[]): Uint8Array {
    const { draw } = this;
    const kind = draw() % 8;
    if (kind === 0 || real.length === 0) return Uint8Array.from({ length: draw() % 64 }, () => draw());
    const bytes = new Uint8Array(this.pick(real));
    const changes = kind < 4 ? 1 : kind < 7 ? 3 : 0;
    for (let i = 0; i < changes && bytes.length > 0; i++) {
      // Mostly in the headers.
      const where = draw() % Math.min(bytes.length, draw() % 4 === 0 ? bytes.length : 32);
      bytes[where] = draw() % 3 === 0 ? bytes[where]! + 1 : draw();
    }
    return kind === 7 ? bytes.subarray(0, draw() % (bytes.length + 1)) : bytes;
  }
}

/** A connection with traffic on it. */
class Established extends Run {
  readonly state = 'established';
  readonly #secret: Uint8Array;
  #posted = 0;

  constructor(seed: number, draw: RandomU32) {
    super(seed, draw);
    this.world.listen().connect();
    // Memory that no peer has a right to.
    const { pd } = this.world.server;
    this.#secret = new Uint8Array(4096).fill(0x5e);
    pd.registerMemory(this.#secret, ACCESS.LOCAL_WRITE);
  }

  /** In the name of one side or the other; false if the connection has not outlived it. */
  batch(): boolean {
    const { world } = this;
    const { client, server } = world;
    const real = world.network.passed;
    if (client.qp.state === 'rts' && server.qp.state === 'rts') this.#traffic();
    world.run(2);
    const { remoteAddress, localAddress } = client.connection!;
    const ends = [at(remoteAddress!.port), at(localAddress!.port)] as const;
    const last = real.slice(-200).map(({ bytes }) => bytes);
    real.length = 0;
    for (let i = 0; i < BATCH; i++) {
      const which = this.draw() & 1;
      this.say(this.datagram(last), ends[which ^ 1]!, ends[which]!);
    }
    world.run(2);
    for (const end of [client, server])
      if (end.connection !== null && end.trp.heldOctets > MOST_HELD) throw new Error('too much is held');
    return client.qp.state === 'rts' && server.qp.state === 'rts';
  }

  #traffic(): void {
    const { client, server } = this.world;
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      to.qp.postRecv({ wrId: 0, sges: [{ mr: to.memory, length: 3000 }] });
      from.qp.postSend({ wrId: ++this.#posted, opcode: 'send', sges: [{ mr: from.memory, length: 2500 }] });
      from.qp.postSend({
        wrId: ++this.#posted,
        opcode: 'rdma-read',
        sges: [{ mr: from.memory, offset: 8192, length: 2500 }],
        remoteAddr: to.memory.addr,
        rkey: to.memory.rkey,
      });
    }
  }

  end(): void {
    const { world } = this;
    const { client, server } = world;
    client.connection!.abort();
    server.connection!.abort();
    world.run(60_000, () => client.qp.state === 'error' && server.qp.state === 'error');
    world.run(1_000);
    const ids = [...client.poll(), ...server.poll()].map(({ wrId }) => Number(wrId)).filter((id) => id > 0);
    if (new Set(ids).size !== ids.length) throw new Error('a request has ended twice');
    if (ids.length !== this.#posted) throw new Error(`${this.#posted} posted, ${ids.length} ended`);
    if (this.#secret.some((octet) => octet !== 0x5e)) throw new Error('memory without rights was written');
  }
}

/** A connection that a listener has offered, and its queue pair if it was accepted. */
class Offered {
  readonly request: PassiveConnection;
  readonly qp: QueuePair | null;
  #ends = 0;

  constructor(request: PassiveConnection, qp: QueuePair | null) {
    this.request = request;
    this.qp = qp;
    request.setHandler(({ type }) => {
      if (type === 'disconnected') this.#ends++;
    });
  }

  check(): void {
    if (this.#ends !== 1) throw new Error(`a connection has ended ${this.#ends} times`);
    checkState(this.qp);
  }
}

function checkState(qp: QueuePair | null): void {
  if (qp !== null && qp.state !== 'error' && qp.state !== 'idle')
    throw new Error(`a queue pair is in ${qp.state} after its end`);
}

/** A listener, its answers, and one honest client that was there before. */
class Listening extends Run {
  readonly state = 'listener';
  readonly #offered: Offered[] = [];
  /** Octets from and to each address and port, and whether it has ever spoken at its new port. */
  readonly #clients = new Map<string, { said: number; heard: number; known: boolean }>();
  /** Ports from which the listener's connections have answered, and where those answers went. */
  readonly #newPorts: { readonly from: number; readonly to: PortAddress }[] = [];
  readonly #real: Uint8Array[] = [];

  constructor(seed: number, draw: RandomU32) {
    super(seed, draw);
    const { world } = this;
    const { server, network } = world;
    void server.rnic.cm.listen({ port: LISTENS, host: HOST }, (request) => this.#answer(request));
    world.time.advance(0);
    world.connect(Uint8Array.of(1, 2, 3));
    server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: 100 }] });
    world.run(50);
    this.#real.push(...network.passed.splice(0).map(({ bytes }) => bytes));
    this.#real.push(...guesses(this.#real));
  }

  /** The first one is the honest client. */
  #answer(request: PassiveConnection): void {
    const { server } = this.world;
    if (server.connection === null) {
      server.watch(request);
      request.accept(server.qp);
      return;
    }
    const kind = this.draw() % 4;
    const qp = kind < 2 ? this.#queuePair() : null;
    this.#offered.push(new Offered(request, qp));
    if (qp !== null) request.accept(qp);
    else if (kind === 2) request.reject(Uint8Array.of(9));
    // Else the program never decides.
  }

  #queuePair(): QueuePair {
    const { pd, cq, memory } = this.world.server;
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 4, maxRecvWr: 4 });
    qp.postRecv({ wrId: 1_000 + this.#offered.length, sges: [{ mr: memory, length: 100 }] });
    return qp;
  }

  batch(): boolean {
    const { world, draw } = this;
    for (let i = 0; i < BATCH; i++) {
      const bytes = this.datagram(this.#real);
      if (this.#newPorts.length > 0 && draw() % 3 === 0) {
        const { from, to } = this.pick(this.#newPorts);
        this.#clients.get(`${to.address} ${to.port}`)!.known = true;
        this.say(bytes, to, at(from));
      } else {
        // A few clients, so that some send again and with other octets.
        const from = at(2_000 + (draw() % 50), `127.0.0.${2 + (draw() % 3)}`);
        const key = `${from.address} ${from.port}`;
        const client = this.#clients.get(key);
        if (client !== undefined) client.heard += bytes.length;
        else this.#clients.set(key, { said: 0, heard: bytes.length, known: false });
        this.say(bytes, from, at(LISTENS));
      }
    }
    // Mostly too short for time-outs.
    world.run(draw() % 4 === 0 ? 7_000 : 100);
    this.#checkAnswers();
    return true;
  }

  #checkAnswers(): void {
    const { passed } = this.world.network;
    for (const { bytes, opcode, fromPort, to } of passed.splice(0)) {
      const client = this.#clients.get(`${to.address} ${to.port}`);
      if (client !== undefined) client.said += bytes.length;
      if (opcode === ACCEPT) this.#newPorts.push({ from: fromPort, to: at(to.port, to.address) });
    }
    this.#newPorts.splice(0, this.#newPorts.length - 20);
    if (this.trp.profile === 'urdma') return;
    for (const [key, { said, heard, known }] of this.#clients)
      if (!known && said > AMPLIFICATION * heard)
        throw new Error(`${said} octets to ${key}, of which ${heard} came`);
  }

  end(): void {
    const { world } = this;
    const { client, server } = world;
    for (const { request } of this.#offered) request.abort();
    world.run(60_000);
    for (const offered of this.#offered) offered.check();
    client.qp.postSend({ wrId: 2, opcode: 'send', inline: Uint8Array.of(1) });
    world.run(1_000);
    const ids = server.poll().map(({ wrId }) => Number(wrId));
    if (new Set(ids).size !== ids.length) throw new Error('a receive has ended twice');
    if (!ids.includes(1)) throw new Error('the honest client has lost its connection');
    for (const { qp } of this.#offered) qp?.destroy();
  }
}

/** A client that gets no answer but forged ones, and the server's end that does not hear from it. */
class SettingUp extends Run {
  readonly state = 'set-up';
  readonly #client: PortAddress;
  readonly #server: PortAddress | null;
  readonly #real: Uint8Array[];
  /** Answers to this client's request are not among the forged ones, so that it goes on asking. */
  readonly #asking: boolean;
  readonly #offered: Offered[] = [];

  constructor(seed: number, draw: RandomU32) {
    super(seed, draw);
    this.#asking = draw() % 2 === 0;
    const { world } = this;
    const { client, server, network } = world;
    network.mayPass = ({ opcode }) => opcode !== ACCEPT && opcode !== REJECT;
    const accepts = draw() % 4 > 0;
    void server.rnic.cm.listen({ port: LISTENS, host: HOST }, (request) => {
      const first = accepts && this.#offered.length === 0;
      this.#offered.push(new Offered(request, first ? server.qp : null));
      if (first) request.accept(server.qp);
      else request.reject(Uint8Array.of(9));
    });
    world.time.advance(0);
    for (const end of [client, server]) end.qp.postRecv({ wrId: 1, sges: [{ mr: end.memory, length: 100 }] });
    client.watch(
      client.rnic.cm.connect(client.qp, { host: HOST, port: LISTENS, privateData: Uint8Array.of(1, 2) }),
    );
    world.run(5);
    const { passed } = network;
    this.#client = at(passed.find(({ opcode }) => opcode === REQUEST)!.fromPort);
    const accept = passed.find(({ opcode }) => opcode === ACCEPT);
    this.#server = accept === undefined ? null : at(accept.fromPort);
    this.#real = passed.map(({ bytes }) => bytes);
    this.#real.push(...guesses(this.#real));
  }

  batch(): boolean {
    const { world, draw } = this;
    for (let i = 0; i < BATCH; i++) {
      const bytes = this.datagram(this.#real);
      const kind = draw() % 4;
      if (kind === 0) this.say(bytes, this.#client, at(LISTENS));
      else if (kind === 1 && this.#server !== null) this.say(bytes, this.#client, this.#server);
      else if (!this.#asking || !this.#answers(bytes))
        this.say(
          bytes,
          this.pick([at(LISTENS), this.#server ?? at(9), at(1 + (draw() % 65_535))]),
          this.#client,
        );
    }
    world.run(100);
    return world.client.qp.state !== 'error' && !world.client.eventTypes.includes('disconnected');
  }

  #answers(bytes: Uint8Array): boolean {
    const opcode = bytes.length < 10 ? 0 : (bytes[8]! << 8) | bytes[9]!;
    return opcode === ACCEPT || opcode === REJECT;
  }

  end(): void {
    const { world } = this;
    const { client, server } = world;
    client.connection!.abort();
    for (const { request } of this.#offered) request.abort();
    world.run(60_000);
    for (const offered of this.#offered) offered.check();
    const ends = client.eventTypes.filter((type) => type === 'disconnected').length;
    if (ends !== 1) throw new Error(`the client's connection has ended ${ends} times`);
    for (const { completions, qp } of [client, server]) {
      checkState(qp);
      if (completions.length > 1 || (qp.state === 'error' && completions.length === 0))
        throw new Error(`a receive has ended ${completions.length} times`);
    }
  }
}

const RUNS = [Established, Established, Listening, SettingUp];

/** Feed `count` datagrams. Throws with the seed of the run that fails. */
export function fuzz(count: number, seed: number): FuzzResult {
  const worlds = { established: 0, listener: 0, 'set-up': 0 };
  const result: FuzzResult = { datagrams: 0, worlds, dropped: 0, refused: 0 };
  for (let one = seed; result.datagrams < count; one++) {
    try {
      const draw = seededRandom(one);
      const run = new RUNS[one % RUNS.length]!(one, draw);
      worlds[run.state]++;
      for (let i = 0; i < BATCHES && result.datagrams < count; i++) {
        const goesOn = run.batch();
        result.datagrams += BATCH;
        if (!goesOn) break;
      }
      const { connection } = run.world.server;
      if (connection !== null) {
        const { dropped, refused } = run.world.server.trp;
        result.dropped += dropped;
        result.refused += refused;
      }
      run.end();
    } catch (error) {
      throw new Error(`seed ${one}: ${(error as Error).message}`, { cause: error });
    }
  }
  return result;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [count = '1000000', seed = '1'] = process.argv.slice(2);
  console.log(fuzz(Number(count), Number(seed)));
}
