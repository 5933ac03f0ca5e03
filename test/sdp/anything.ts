/**
 * Streams with anything drawn: `npx tsx test/sdp/anything.ts [STREAMS] [SEED] [MOST]`, 1000 by default. The
 * bytes of both directions (0 to MOST, 16 MiB by default) have to arrive, in order and whole, whatever modes,
 * sizes, cuts, buffers, advertisements on each side and timing are, and lent memory comes back and may be
 * changed then. In virtual time, so that a seed gives the same stream again: a failure names its seed.
 */
import { pathToFileURL } from 'node:url';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import { seededRandom, type RandomU32 } from '../../src/base/random.ts';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { MemoryTransport, segmenting, VirtualTime, wrapTransport } from '../../src/testing.ts';

const HOST = '10.0.0.2';
const PORT = 7471;
const MOST = 16 << 20;
/** Far above what a stream needs: one that gets here waits for something that never comes. */
const MOST_TURNS = 3_000_000;

/** Bytes whose period is a prime, so that a piece at a wrong place shows. */
const PERIOD = 65_521;
const PATTERNS = [37, 101].map((seed) => {
  const random = seededRandom(seed);
  const pattern = Buffer.alloc(2 * (1 << 20) + PERIOD);
  for (let i = 0; i < PERIOD; i++) pattern[i] = random() & 0xff;
  for (let at = PERIOD; at < pattern.length; at++) pattern[at] = pattern[at - PERIOD]!;
  return pattern;
});

const expected = (direction: number, at: number, octets: number): Buffer =>
  PATTERNS[direction]!.subarray(at % PERIOD, (at % PERIOD) + octets);

/** Separate memory with the bytes of the stream from `at` on. */
function piece(direction: number, at: number, octets: number): Uint8Array {
  const bytes = new Uint8Array(octets);
  for (let done = 0; done < octets; ) {
    const part = expected(direction, at + done, Math.min(octets - done, 1 << 20));
    bytes.set(part, done);
    done += part.length;
  }
  return bytes;
}

/** Compares the bytes that arrive with those that were sent. */
class Check {
  readonly #direction: number;
  at = 0;

  constructor(direction: number) {
    this.#direction = direction;
  }

  add(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) {
      const part = bytes.subarray(done, done + (1 << 20));
      if (Buffer.compare(part, expected(this.#direction, this.at, part.length)) !== 0)
        throw new Error(`direction ${this.#direction}: other bytes from ${this.at} on`);
      this.at += part.length;
      done += part.length;
    }
  }
}

/** How one side reads: nothing happens in `pause` of its turns. */
interface Reading {
  readonly how: 'data' | 'slowly' | 'places';
  readonly place: number;
  readonly posted: number;
}

interface Write {
  readonly octets: number;
  readonly how: 'write' | 'corked' | 'owned' | 'lend' | 'touched';
  /** Milliseconds before it; negative for none. */
  readonly after: number;
}

class Stream {
  readonly #draw: RandomU32;
  readonly #time = new VirtualTime();
  readonly #most: number;
  readonly drawn: object[] = [];
  bytes = 0;

  constructor(seed: number, most: number) {
    this.#draw = seededRandom(seed);
    this.#most = most;
  }

  #one<T>(...values: readonly T[]): T {
    return values[this.#draw() % values.length]!;
  }

  /** Evenly in the number of digits. */
  #size(most: number): number {
    if (most === 0) return 0;
    const bits = Math.ceil(Math.log2(most + 1));
    return this.#draw() % 2 ** (1 + (this.#draw() % bits));
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#time.at(this.#time.now() + ms, resolve));
  }

  async #running<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    let idle = 0;
    const note = (): void => void (settled = true);
    promise.then(note, note);
    for (let turn = 0; !settled; turn++) {
      if (turn === MOST_TURNS || (turn > 1000 && this.#time.pending === 0 && ++idle > 1000))
        throw new Error(`still waiting at ${this.#time.now()} ms: ${JSON.stringify(this.#progress())}`);
      await new Promise<void>((resolve) => void setImmediate(resolve));
      for (let i = 0; !settled && i < 8; i++) this.#time.step();
    }
    return await promise;
  }

  #devices(most: number): { client: Rnic; server: Rnic } {
    const link = {
      latency: this.#one(0, 0.05, 3),
      bandwidth: this.#one(undefined, undefined, 50_000, 1_000_000),
      buffer: this.#one(4096, 65_536, 1 << 20),
      readOctets: this.#one(1500, 65_536),
      verifyWrites: true,
    };
    const network = new MemoryTransport(this.#time, link);
    const cut = this.#one(most > 100_000 ? 3000 : 1, 200_000, 0);
    const transport =
      cut === 0
        ? network
        : wrapTransport(network, segmenting(this.#time, { kind: 'random', seed: this.#draw(), max: cut }));
    this.drawn.push({ link, cut });
    const open = (): Rnic => openRnic({ engine: 'thread', transport, scheduler: this.#time });
    return { client: open(), server: open() };
  }

  #side(rnic: Rnic): RdmaSocketOptions & { policy: { crc: 'off' | 'preferred' } } {
    const options = {
      mode: this.#one('buffered', 'source', 'sink', 'auto'),
      maxAdverts: this.#one(1, 1, 2, 3, 16, 64),
      zeroCopyFrom: this.#one(2, 100, 4096, 65_536, 1 << 20),
      privateBuffers: { count: this.#one(4, 5, 16, 64), size: this.#one(128, 1000, 16_384, 65_552, 1 << 20) },
      highWaterMark: this.#one(1, 16_384, 1 << 20),
    } as const;
    this.drawn.push(options);
    return {
      protocol: 'sdp',
      allowHalfOpen: true,
      rnic,
      policy: { crc: this.#one('off', 'preferred') },
      ...options,
    };
  }

  #writes(): Write[] {
    const list: Write[] = [];
    const most = this.#one(0, 300, 100_000, this.#most);
    const lines = this.#draw() % this.#one(2, 30);
    let total = 0;
    for (let i = 0; i < lines; i++) {
      const octets = Math.min(this.#size(most), this.#most - total);
      total += octets;
      const how = this.#one('write', 'write', 'corked', 'owned', 'lend', 'touched');
      list.push({ octets, how, after: this.#one(-1, -1, -1, 0, 1, 20, 700) });
    }
    this.bytes += total;
    this.drawn.push(list);
    return list;
  }

  #reading(): Reading {
    const reading: Reading = {
      how: this.#one('data', 'data', 'slowly', 'places', 'places'),
      place: this.#one(1, 5000, 70_000, 1 << 20),
      posted: this.#one(1, 2, 8),
    };
    // A byte at a time is for short streams.
    const place = this.bytes > 20_000 ? Math.max(reading.place, 3000) : reading.place;
    this.drawn.push({ ...reading, place });
    return { ...reading, place };
  }

  readonly #sockets: RdmaSocket[] = [];
  readonly #checks: Check[] = [];

  #progress(): object {
    const state = ({ readyState, bytesRead, bytesWritten }: RdmaSocket): object => ({
      ...{ readyState, bytesRead, bytesWritten },
    });
    return { sockets: this.#sockets.map(state), received: this.#checks.map(({ at }) => at) };
  }

  async run(): Promise<void> {
    const writes = [this.#writes(), this.#writes()] as const;
    const { client, server } = this.#devices(this.bytes);
    const listener = createServer(this.#side(server)).listen(PORT, HOST);
    const accepted = new Promise<RdmaSocket>((resolve) => void listener.once('connection', resolve));
    await this.#running(new Promise((resolve) => void listener.once('listening', () => resolve(null))));
    const socket = connect({ ...this.#side(client), host: HOST, port: PORT });
    const connected = new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve).once('error', reject);
    });
    const [peer] = await this.#running(Promise.all([accepted, connected]));
    this.#sockets.push(socket, peer);
    const ends = this.#sockets.map(
      (end) =>
        new Promise<void>((resolve, reject) => void end.once('error', reject).once('close', () => resolve())),
    );
    const readings = [this.#reading(), this.#reading()] as const;
    await this.#running(
      Promise.all([
        ...ends,
        this.#send(socket, 0, writes[0]),
        this.#send(peer, 1, writes[1]),
        this.#receive(peer, 0, writes[0], readings[0]),
        this.#receive(socket, 1, writes[1], readings[1]),
      ]),
    );
    listener.close();
    await this.#running(this.#sleep(0));
    for (const { device } of [client, server]) {
      const { pd, cq, qp, mr } = device.query().inUse;
      if (pd + cq + qp + mr > 0) throw new Error(`objects are left: ${JSON.stringify({ pd, cq, qp, mr })}`);
    }
  }

  async #send(socket: RdmaSocket, direction: number, list: readonly Write[]): Promise<void> {
    let at = 0;
    const waits: Promise<unknown>[] = [];
    for (const { octets, how, after } of list) {
      if (after >= 0) await this.#sleep(after);
      const bytes = piece(direction, at, octets);
      at += octets;
      if (how === 'write') waits.push(this.#written(socket, bytes));
      else if (how === 'corked') {
        socket.cork();
        const middle = this.#draw() % (octets + 1);
        waits.push(this.#written(socket, bytes.subarray(0, middle)));
        waits.push(this.#written(socket, bytes.subarray(middle)));
        socket.uncork();
      } else if (how === 'owned') waits.push(this.#owned(socket, bytes));
      else {
        const lease = socket.lend(bytes, { guard: true });
        const free = how === 'lend' ? lease.done : lease.touch(this.#one('block', 'copy'));
        waits.push(free.then(() => bytes.fill(0)));
        if (this.#draw() % 2 === 0) await free;
      }
    }
    socket.end();
    await Promise.all(waits);
  }

  /** Memory of a write is the program's again in the callback. */
  #written(socket: RdmaSocket, bytes: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      socket.write(bytes, (error) => {
        bytes.fill(0);
        if (error == null) resolve();
        else reject(error);
      });
    });
  }

  async #owned(socket: RdmaSocket, bytes: Uint8Array): Promise<void> {
    const { length } = bytes;
    const back = await socket.writeOwned(bytes);
    if (back.byteLength !== length) throw new Error(`a buffer of ${length} came back as ${back.byteLength}`);
    new Uint8Array(back).fill(0);
  }

  async #receive(
    socket: RdmaSocket,
    direction: number,
    list: readonly Write[],
    reading: Reading,
  ): Promise<void> {
    const check = new Check(direction);
    this.#checks[direction] = check;
    if (reading.how === 'places') await this.#fill(socket, check, reading);
    else
      for await (const bytes of socket.iterator({ destroyOnReturn: false })) {
        check.add(bytes as Buffer);
        if (reading.how === 'slowly' && this.#draw() % 16 === 0) await this.#sleep(this.#one(0, 5, 800));
      }
    const wanted = list.reduce((sum, { octets }) => sum + octets, 0);
    if (check.at !== wanted) throw new Error(`direction ${direction}: ${check.at} bytes of ${wanted}`);
  }

  async #fill(socket: RdmaSocket, check: Check, { place, posted }: Reading): Promise<void> {
    const post = (): { memory: Uint8Array; got: Promise<number> } => {
      const memory = new Uint8Array(place);
      return { memory, got: socket.receiveInto(memory) };
    };
    const waiting = Array.from({ length: posted }, post);
    for (;;) {
      const { memory, got } = waiting.shift()!;
      const octets = await got;
      if (octets === 0) break;
      check.add(memory.subarray(0, octets));
      if (this.#draw() % 32 === 0) await this.#sleep(this.#one(0, 5, 800));
      waiting.push(post());
    }
    await Promise.all(waiting.map(({ got }) => got));
  }
}

/** Runs streams with seeds from `seed` on; returns how many bytes they have moved. */
export async function anyStreams(streams: number, seed: number, most: number = MOST): Promise<number> {
  let bytes = 0;
  for (let at = seed; at < seed + streams; at++) {
    const stream = new Stream(at, most);
    try {
      await stream.run();
    } catch (error) {
      throw new Error(`seed ${at}, most ${most}: ${String(error)}: ${JSON.stringify(stream.drawn)}`, {
        cause: error,
      });
    }
    bytes += stream.bytes;
  }
  return bytes;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const [streams, seed, most] = process.argv.slice(2).map(Number);
  const began = performance.now();
  const bytes = await anyStreams(streams ?? 1000, seed ?? 1, most ?? MOST);
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  console.log(`${bytes >> 20} MiB in ${seconds} s, ${process.memoryUsage().rss >> 20} MiB resident`);
}
