/**
 * Wrong messages of SDP in great number: `npx tsx test/sdp/fuzz.ts [MESSAGES] [SEED]`, a million by default.
 * A peer brings connections, of which our socket is one end or the other, into every state by lawful
 * messages, and sends changed and unlawful ones there, in virtual time. Nothing may throw; a socket ends with
 * a typed error or in order, and everything that the program has asked for ends once; no octet is written
 * outside of posted places, nor in a place that is the program's again; the stack holds no more than it
 * announces.
 * A failure names the seed of its connection: `npx tsx test/sdp/fuzz.ts 1 SEED` runs that one again.
 */
import { pathToFileURL } from 'node:url';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { connect, createServer, type RdmaServer, type RdmaSocket } from '../../src/sockets/index.ts';
import { MemoryTransport, VirtualTime } from '../../src/testing.ts';
import { ACCESS } from '../../src/verbs/index.ts';
import { FuzzDevice, FuzzPeer, type FuzzCounts } from './fuzz-peer.ts';

const HOST = '10.0.0.2';
const BORDER = 32;
const CANARY = 0xa5;
/** Reads ahead of the program have as much room as the private buffers, but this at least. */
const LEAST_AHEAD = 65_536;
const MOST_STEPS = 400_000;
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** What a run has done. */
interface FuzzResult extends FuzzCounts {
  connections: number;
  /** Connections by how our socket ended. */
  readonly ends: Map<string, number>;
  /** Messages by where the connection stood. */
  readonly states: Map<string, number>;
}

const count = (map: Map<string, number>, key: string): void => void map.set(key, (map.get(key) ?? 0) + 1);

/** A place inside canaries, and its content once it was the program's again. */
interface GuardedPlace {
  readonly arena: Uint8Array;
  final: Uint8Array | null;
}

/** Two devices on one network. */
class Lab {
  readonly time = new VirtualTime();
  readonly rnic: Rnic;
  readonly peers: FuzzDevice;
  readonly secret = new Uint8Array(4096).fill(0x5e);

  constructor() {
    const transport = new MemoryTransport(this.time, { buffer: 1 << 20 });
    this.rnic = openRnic({ engine: 'thread', transport, scheduler: this.time });
    this.peers = new FuzzDevice(openRnic({ engine: 'thread', transport, scheduler: this.time }));
    // Memory that no peer has a right to.
    this.rnic.device.allocatePd().registerMemory(this.secret, ACCESS.LOCAL_WRITE);
  }

  get inUse(): string {
    return JSON.stringify(this.rnic.device.query().inUse);
  }

  async advance(ms: number): Promise<void> {
    this.time.advance(ms, MOST_STEPS);
    await turn();
  }
}

/** One connection, from its set-up until both ends are gone. */
class Connection {
  readonly #lab: Lab;
  readonly #draw: RandomU32;
  readonly #result: FuzzResult;
  readonly #peer: FuzzPeer;
  #socket: RdmaSocket | null = null;
  #server: RdmaServer | null = null;
  #end: string | null = null;
  #failure: unknown = null;
  readonly #places: GuardedPlace[] = [];
  readonly #stops: AbortController[] = [];
  #asked = 0;
  #settled = 0;
  #reads: 'flow' | 'places' | 'nothing' = 'flow';
  /** Octets of the private buffers. */
  #buffers = 0;
  readonly #before: number;

  constructor(lab: Lab, draw: RandomU32, result: FuzzResult) {
    this.#lab = lab;
    this.#draw = draw;
    this.#result = result;
    this.#before = result.messages;
    this.#peer = new FuzzPeer(lab.peers, draw, result);
  }

  #one<T>(...values: readonly T[]): T {
    return values[this.#draw() % values.length]!;
  }

  async run(): Promise<void> {
    const port = 1 + (this.#draw() % 60_000);
    const options = {
      protocol: 'sdp',
      allowHalfOpen: true,
      rnic: this.#lab.rnic,
      mode: this.#one('auto', 'auto', 'source', 'sink', 'buffered'),
      zeroCopyFrom: this.#one(2, 400, 10_000),
      maxAdverts: this.#one(1, 3, 16),
      privateBuffers: { count: this.#one(4, 8, 16), size: this.#one(128, 4096, 16_384) },
    } as const;
    this.#buffers = options.privateBuffers.count * options.privateBuffers.size;
    this.#reads = this.#one('flow', 'places', 'nothing');
    const stop =
      this.#draw() % 2 === 0 ? await this.#weListen(options, port) : this.#weConnect(options, port);
    await this.#lab.advance(0);
    if (this.#socket !== null && this.#peer.qp.state === 'rts') await this.#talk();
    await this.#finish();
    stop();
    this.#server?.close();
    await this.#lab.advance(70_000);
    this.#peer.close();
  }

  async #weListen(options: object, port: number): Promise<() => void> {
    const server = createServer(options, (socket) => this.#use(socket)).listen(port, HOST);
    this.#server = server.on('error', (error) => (this.#failure ??= error));
    await this.#lab.advance(0);
    const { cm } = this.#peer.rnic;
    const connection = cm.connect(this.#peer.qp, { host: HOST, port, privateData: this.#peer.setup(0) });
    this.#peer.connection = connection;
    connection.setHandler((event) => {
      // The least that a socket of ours announces.
      if (event.type === 'established') this.#peer.limit = 4;
    });
    return () => connection.abort();
  }

  #weConnect(options: object, port: number): () => void {
    let close = (): void => undefined;
    void this.#peer.rnic.cm
      .listen({ host: HOST, port }, (request) => {
        this.#peer.connection = request as never;
        request.setHandler(() => undefined);
        this.#peer.limit = 4;
        request.accept(this.#peer.qp, { privateData: this.#peer.setup(1) });
      })
      .then((listener) => (close = () => listener.close()));
    this.#lab.time.advance(0);
    this.#use(connect({ ...options, host: HOST, port }));
    return () => close();
  }

  #use(socket: RdmaSocket): void {
    this.#socket = socket;
    socket.on('error', (error) => this.#ended(error));
    socket.on('close', () => this.#ended(null));
    if (this.#reads === 'flow') socket.resume();
  }

  #ended(error: Error | null): void {
    if (this.#end !== null) return;
    this.#end = error === null ? 'in order' : ((error as NodeJS.ErrnoException).code ?? 'no code');
    const known = error === null || (error.cause instanceof IwarpError && this.#end !== 'no code');
    if (!known) this.#failure ??= new Error(`an error without a type: ${String(error)}`);
  }

  async #talk(): Promise<void> {
    const lines = 4 + (this.#draw() % 60);
    for (let line = 0; line < lines && this.#peer.qp.state === 'rts'; line++) {
      const messages = 1 + (this.#draw() % 3);
      for (let i = 0; i < messages; i++) {
        count(this.#result.states, this.#peer.where);
        this.#peer.speak();
      }
      if (this.#draw() % 3 === 0) this.#act();
      const wait = this.#draw() % 8;
      // Mostly the network only: the program and its stream take their turn now and then.
      if (wait < 3) await this.#lab.advance(this.#one(0, 0, 0, 1, 600, 1100));
      else if (wait < 7) this.#lab.time.advance(0, MOST_STEPS);
      this.#peer.poll();
      this.#checkHeld();
    }
    await this.#lab.advance(0);
  }

  #expect(promise: Promise<unknown>): void {
    this.#asked++;
    const settled = (): void => void this.#settled++;
    promise.then(settled, settled);
  }

  /** The program does something. */
  #act(): void {
    const socket = this.#socket!;
    if (socket.destroyed || socket.connecting) return;
    const octets = this.#one(1, 300, 5000, 70_000);
    switch (this.#draw() % 10) {
      case 0:
      case 1:
        if (socket.writable)
          this.#expect(
            new Promise<void>((resolve) => void socket.write(Buffer.alloc(octets), () => resolve())),
          );
        break;
      case 2:
        if (socket.writable) this.#expect(socket.writeOwned(new ArrayBuffer(octets)));
        break;
      case 3:
        if (socket.writable) this.#expect(socket.lend(new Uint8Array(octets), { guard: true }).done);
        break;
      case 4:
        if (this.#draw() % 6 === 0) socket.end();
        break;
      case 5:
        if (this.#draw() % 12 === 0) socket.destroy();
        break;
      case 6:
        this.#stops.pop()?.abort();
        break;
      case 7:
        if (this.#reads === 'nothing') socket.read();
        break;
      default:
        if (this.#reads === 'places') this.#post(octets);
    }
  }

  #post(octets: number): void {
    const arena = new Uint8Array(octets + 2 * BORDER).fill(CANARY);
    const place: GuardedPlace = { arena, final: null };
    this.#places.push(place);
    const stop = new AbortController();
    this.#stops.push(stop);
    const settled = (): void => void (place.final = arena.slice());
    const got = this.#socket!.receiveInto(arena.subarray(BORDER, BORDER + octets), { signal: stop.signal });
    this.#expect(got);
    got.then(settled, settled);
  }

  /**
   * Octets that the stack has taken from the peer and not given to the program: what lies in private buffers,
   * and what Reads have brought.
   */
  #checkHeld(): void {
    const { connection } = this.#peer;
    if (connection === null || this.#socket!.destroyed || this.#reads === 'places') return;
    // The stack takes nothing that comes behind both ends, though the socket waits for its reader.
    if (this.#peer.theyEnded && this.#peer.disconnected) return;
    const held = connection.counters().payloadOut - this.#socket!.bytesRead;
    const headers = 64 * (this.#result.messages - this.#before);
    const most = this.#buffers + Math.max(this.#buffers, LEAST_AHEAD) + headers;
    if (held > most) throw new Error(`${held} octets are held where ${most} are the most`);
  }

  async #finish(): Promise<void> {
    this.#peer.poll();
    this.#peer.connection?.abort();
    const socket = this.#socket;
    // Everything that waits for time: advertisements, cancels, the peer's end.
    for (const ms of [0, 1200, 70_000]) await this.#lab.advance(ms);
    if (socket !== null) {
      if (!socket.destroyed && this.#end === null) socket.resume();
      for (let i = 0; i < 4 && !socket.closed; i++) await this.#lab.advance(1000);
      if (!socket.closed) {
        // A program that has read the end of a half-open stream ends its own half.
        socket.destroy();
        await this.#lab.advance(70_000);
      }
      if (!socket.closed) throw new Error('the socket does not close');
      await turn();
    }
    count(this.#result.ends, this.#end ?? 'never there');
    if (this.#failure !== null) throw this.#failure as Error;
    if (this.#settled !== this.#asked)
      throw new Error(`${this.#settled} of ${this.#asked} requests have ended`);
    this.#checkPlaces();
  }

  #checkPlaces(): void {
    for (const { arena, final } of this.#places) {
      if (final === null) throw new Error('a place that was never given back');
      if (Buffer.compare(arena, final) !== 0)
        throw new Error('a place was written when it was the program’s');
      const borders = [arena.subarray(0, BORDER), arena.subarray(arena.length - BORDER)];
      if (!borders.every((border) => border.every((octet) => octet === CANARY)))
        throw new Error('an octet outside of a posted place was written');
    }
    if (!this.#lab.secret.every((octet) => octet === 0x5e)) throw new Error('memory of nobody was written');
  }
}

/** Runs connections until the peer has sent that number of messages. */
export async function fuzzSdp(messages: number, seed: number): Promise<FuzzResult> {
  const result: FuzzResult = {
    ...{ messages: 0, changed: 0, unlawful: 0, connections: 0 },
    ends: new Map(),
    states: new Map(),
  };
  const uncaught: unknown[] = [];
  const note = (error: unknown): void => void uncaught.push(error);
  process.on('uncaughtException', note).on('unhandledRejection', note);
  let lab = new Lab();
  try {
    for (let at = seed; result.messages < messages; at++) {
      if (result.connections % 500 === 0) lab = new Lab();
      const before = lab.inUse;
      result.connections++;
      try {
        await new Connection(lab, seededRandom(at), result).run();
        if (uncaught.length > 0) throw uncaught[0] as Error;
        if (lab.inUse !== before) throw new Error(`objects are left: ${lab.inUse}, before ${before}`);
      } catch (error) {
        throw new Error(`seed ${at}: ${String(error)}`, { cause: error });
      }
    }
  } finally {
    process.off('uncaughtException', note).off('unhandledRejection', note);
  }
  return result;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [messages = '1000000', seed = '1'] = process.argv.slice(2);
  const began = performance.now();
  const { ends, states, ...counts } = await fuzzSdp(Number(messages), Number(seed));
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  const { rss } = process.memoryUsage();
  console.log(JSON.stringify({ ...counts, seconds, rss: `${rss >> 20} MiB` }));
  console.log(Object.fromEntries(ends), `${states.size} states`);
}
