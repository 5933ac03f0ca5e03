// SDP against a peer in another language (peer.py), which was written from the page of the protocol and
// judges each message: credits by the 3/2/1 rules, modes, advertisements, places, cancels, ends. Both roles,
// both engines, contents compared.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { seededRandom } from '../../src/base/random.ts';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { PythonPeer, type PeerEvent } from '../trp/python-peer.ts';
import { depth, FULL } from '../support/depth.ts';

const PEER = fileURLToPath(new URL('peer.py', import.meta.url));
/** A peer in Python takes a tenth of a second for a mebibyte, most of it for the CRC. */
const LARGE = depth(1 << 18, 1 << 20);
const SIZES = [0, 1, 2, 15, 16, 1023, 1024, 1025, 65_535, 65_536, 65_537, LARGE];
/** Six of these are more than the mebibyte that is read ahead of the program, and four behind it. */
const AHEAD = depth(400_000, 1 << 20);

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

/** The same bytes that peer.py makes. */
function content(seed: number, octets: number): Buffer {
  if (octets === 0) return Buffer.alloc(0);
  return createHash('shake128', { outputLength: octets }).update(`sdp ${seed}`).digest();
}

const sum = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');

interface Report extends PeerEvent {
  readonly in: Record<string, number>;
  readonly out: Record<string, number>;
  readonly modes: readonly string[];
  readonly written?: number;
  readonly fetched?: number;
  readonly read?: number;
  /** Sends with Invalidate, to the peer and from it. */
  readonly invalidated?: number;
  readonly invalidates?: number;
  readonly sendSize: number;
  readonly credits: number;
  readonly posted: number;
}

class Pair {
  readonly socket: RdmaSocket;
  readonly peer: PythonPeer;
  readonly hello: PeerEvent;
  #seed = 100;
  readonly #toUs: Buffer[] = [];
  readonly #toPeer: Buffer[] = [];

  constructor(socket: RdmaSocket, peer: PythonPeer, hello: PeerEvent) {
    this.socket = socket;
    this.peer = peer;
    this.hello = hello;
  }

  /** The peer writes; `how` as in peer.py. */
  peerWrites(octets: number, how: 'data' | 'place' | 'source' = 'data', word = 'write'): void {
    const seed = this.#seed++;
    this.peer.tell({ do: word, octets, seed, how });
    this.#toUs.push(content(seed, octets));
  }

  write(octets: number, how: 'write' | 'lend' = 'write'): void {
    const bytes = content(this.#seed++, octets);
    if (how === 'write') this.socket.write(bytes);
    else this.socket.lend(bytes);
    this.#toPeer.push(bytes);
  }

  async report(): Promise<Report> {
    return (await this.peer.ask({ do: 'report' }, 'report')) as Report;
  }

  /** Waits until a report shows it, for at most ten seconds. */
  async until(held: (report: Report) => boolean): Promise<Report> {
    let report = await this.report();
    const until = performance.now() + 10_000;
    for (; !held(report); report = await this.report()) {
      if (performance.now() > until) throw new Error(`the peer stands at ${JSON.stringify(report)}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    return report;
  }

  /** All that the peer writes, in pieces of `place` bytes received into posted places, or by 'data'. */
  async readAll(place = 0, posted = 3): Promise<void> {
    const seen: Buffer[] = [];
    if (place === 0)
      for await (const piece of this.socket.iterator({ destroyOnReturn: false })) seen.push(piece as Buffer);
    else {
      const post = (): { memory: Uint8Array; count: Promise<number> } => {
        const memory = new Uint8Array(new SharedArrayBuffer(place));
        return { memory, count: this.socket.receiveInto(memory) };
      };
      const waiting = Array.from({ length: posted }, post);
      for (;;) {
        const { memory, count } = waiting.shift()!;
        const octets = await count;
        if (octets === 0) break;
        seen.push(Buffer.from(memory.slice(0, octets)));
        waiting.push(post());
      }
    }
    const [got, wanted] = [Buffer.concat(seen), Buffer.concat(this.#toUs)];
    const same = got.equals(wanted) ? -1 : got.findIndex((octet, at) => octet !== wanted[at]);
    expect([got.length, same]).toEqual([wanted.length, -1]);
  }

  /** Our end, and the peer's account of all that it has received. */
  async endOurs(): Promise<void> {
    this.socket.end();
    const wanted = Buffer.concat(this.#toPeer);
    const ended = await this.peer.next('ended');
    expect([ended['octets'], ended['sha256']]).toEqual([wanted.length, sum(wanted)]);
  }

  /** Both sides have ended: the connection goes in order. Returns the last report. */
  async gone(): Promise<Report> {
    const closed = await this.peer.next('closed');
    expect(closed).toMatchObject({ why: 'in order' });
    if (!this.socket.closed) expect(await once(this.socket, 'close')).toEqual([false]);
    expect(this.socket.errored).toBe(null);
    return closed as Report;
  }

  /** Reads and ends everything that was written in both directions. */
  async finish(place = 0, posted = 3): Promise<Report> {
    this.peer.tell({ do: 'end' });
    const reading = this.readAll(place, posted);
    await this.endOurs();
    await reading;
    return await this.gone();
  }
}

/** Each engine and each role is there in the small run too. */
const SIDES = [
  ['thread', 'connects'],
  ['worker', 'listens'],
  ...(FULL
    ? ([
        ['thread', 'listens'],
        ['worker', 'connects'],
      ] as const)
    : []),
] as const;

describe.each(SIDES)('SDP with a Python peer, our engine in a %s, which %s', (engine, role) => {
  const rnic = openRnic({ engine });
  afterAll(() => rnic.device.close());

  async function pairOf(options: RdmaSocketOptions = {}, theirs: object = {}): Promise<Pair> {
    const all = { protocol: 'sdp', allowHalfOpen: true, rnic, ...options } as const;
    let socket: RdmaSocket;
    let peer: PythonPeer;
    if (role === 'connects') {
      peer = new PythonPeer(['listen', JSON.stringify(theirs)], PEER);
      cleanup.push(() => peer.stop());
      const { port } = (await peer.next('listening')) as unknown as { port: number };
      socket = connect({ ...all, host: '127.0.0.1', port });
      await once(socket, 'connect');
    } else {
      const server = createServer(all).listen(0, '127.0.0.1');
      cleanup.push(() => server[Symbol.asyncDispose]());
      await once(server, 'listening');
      const accepted = once(server, 'connection') as Promise<[RdmaSocket]>;
      peer = new PythonPeer(
        ['connect', '127.0.0.1', `${(server.address() as { port: number }).port}`, JSON.stringify(theirs)],
        PEER,
      );
      cleanup.push(() => peer.stop());
      [socket] = await accepted;
    }
    cleanup.push(() => socket.on('error', () => undefined).destroy());
    const hello = await peer.next('hello');
    await peer.next('up');
    return new Pair(socket, peer, hello);
  }

  it('says in its Hello what it takes', async () => {
    const pair = await pairOf({ maxAdverts: 7, privateBuffers: { count: 4, size: 1000 } });
    const { version, maxAdverts, bufs, size } = pair.hello;
    expect([version, maxAdverts, bufs, size]).toEqual([0x22, 7, 4, 1000]);
    await pair.finish();
  });

  it.each([
    ['64 bytes of Hello', { form: 'short' }],
    ['padded private data, as on InfiniBand', { form: 'padded' }],
    ['version 1.1', { version: 0x11 }],
    ['MPA revision 2', { revision: 2 }],
    ['four buffers of 64 bytes', { bufs: 4, size: 64 }],
    ['segments of 40 bytes', { segment: 40 }],
    [
      '300 buffers, 300 advertisements, and Send with Invalidate',
      { bufs: 300, maxAdverts: 300, invalidates: true },
    ],
  ])('moves bytes through private buffers with a peer that has %s', async (_name, theirs) => {
    // A client of ours announces 2.2 and refuses another major.
    if (role === 'connects' && 'version' in theirs) return;
    const pair = await pairOf({}, theirs);
    for (const octets of [0, 1, 47, 48, 49, 5000, depth(10_000, 40_000)]) {
      pair.write(octets);
      pair.peerWrites(octets);
    }
    const report = await pair.finish();
    expect(report.in['SrcAvail']).toBeUndefined();
  });

  it('moves bytes of all sizes through private buffers, in both directions at once', async () => {
    const pair = await pairOf({}, { bufs: 16, size: 8192 });
    for (const octets of SIZES) {
      pair.write(octets);
      pair.peerWrites(octets);
    }
    await pair.finish();
  });

  it.each(['read', 'parts', 'half', 'refuse'] as const)(
    'advertises large writes, which the peer answers by policy "%s"',
    async (policy) => {
      const pair = await pairOf({ mode: 'source', zeroCopyFrom: 1000 }, { bufs: 16 });
      const part = policy === 'parts' ? 20_000 : 1 << 30;
      pair.peer.tell({ do: 'policy', policy: policy === 'parts' ? 'read' : policy, part });
      for (const octets of SIZES) pair.write(octets);
      const report = await pair.finish();
      expect(report.in['SrcAvail']).toBeGreaterThan(2);
      if (policy === 'refuse') expect(report.fetched).toBeUndefined();
      else expect(report.fetched).toBeGreaterThan(10_000);
      if (policy === 'parts') expect(report.out['RdmaRdCompl']).toBeGreaterThan(LARGE / 20_000);
      if (policy === 'half' || policy === 'refuse') expect(report.out['SendSm']).toBeGreaterThan(2);
    },
  );

  it('invalidates advertisements that it has read, by the last RdmaRdCompl, as its peer does', async () => {
    const pair = await pairOf({ mode: 'source', zeroCopyFrom: 1000 }, { invalidates: true, bufs: 16 });
    pair.peer.tell({ do: 'policy', policy: 'read', part: 20_000 });
    for (let i = 0; i < 3; i++) {
      pair.write(50_000);
      pair.peerWrites(30_000, 'source'); // less than is read ahead of the program: none becomes Data
    }
    const report = await pair.finish();
    // The peer judges that each last one does, and no other message.
    expect(report.invalidated).toBeGreaterThan(0);
    expect(report.invalidates).toBe(3);
  });

  it.each([1, 2, 16])('has %i advertisements of a peer at a time', async (maxAdverts) => {
    const pair = await pairOf({ mode: 'source', zeroCopyFrom: 1000 }, { maxAdverts, bufs: 32 });
    // The first goes in combined mode; with several waiting the source asks for more.
    for (let i = 0; i < 4; i++) pair.write(5000, 'lend');
    await pair.until(({ octets }) => octets === 20_000);
    pair.peer.tell({ do: 'policy', policy: 'stall' });
    for (let i = 0; i < 20; i++) pair.write(50_000, 'lend');
    // The peer judges that there are not more.
    await pair.until(({ sources }) => sources === maxAdverts);
    pair.peer.tell({ do: 'policy', policy: 'read' });
    const report = await pair.finish();
    expect(report.modes.includes('receive pipelined')).toBe(maxAdverts > 1);
    expect(report.in['ModeChange'] ?? 0).toBe(maxAdverts > 1 ? 1 : 0);
  });

  it('Reads what the peer advertises, with inline bytes, one at a time', async () => {
    const pair = await pairOf();
    for (const octets of SIZES) pair.peerWrites(octets, 'source');
    const report = await pair.finish();
    expect(report.out['SrcAvail']).toBeGreaterThan(5);
    expect(report.read).toBeGreaterThan(LARGE / 2);
  });

  it('Reads many advertisements in pipelined mode, between smaller data', async () => {
    const pair = await pairOf({ maxAdverts: 5 });
    pair.peer.tell({ do: 'mode', mode: 'pipelined' });
    for (let i = 0; i < 12; i++) {
      pair.peerWrites(30_000 + i, 'source');
      if (i % 4 === 3) pair.peerWrites(700);
    }
    pair.peerWrites(LARGE, 'source');
    const report = await pair.finish();
    expect(report.out['SrcAvail']).toBe(13);
    expect(report.read).toBeGreaterThan(LARGE);
  });

  it.each([
    ['larger than', 100_000],
    ['as large as', 1024],
  ])('lets the peer write into posted places %s its messages', async (_name, place) => {
    const pair = await pairOf({ mode: 'sink', privateBuffers: { count: 8, size: 1040 } });
    for (const octets of [...SIZES, 300_000, 1, 300_000]) pair.peerWrites(octets, 'place');
    const report = await pair.finish(place, 4);
    expect(report.modes).toContain('send pipelined');
    expect(report.in['SinkAvail']).toBeGreaterThan(3);
    expect(report.out['RdmaWrCompl']).toBeGreaterThan(3);
  });

  it('goes on when data crosses its places, or discards them', async () => {
    const pair = await pairOf({ mode: 'sink', privateBuffers: { count: 8, size: 1040 } });
    for (let i = 0; i < 30; i++) pair.peerWrites(1 + ((i * 997) % 5000), i % 3 === 0 ? 'place' : 'data');
    const report = await pair.finish(3000, 4);
    expect(report.in['SinkAvail']).toBeGreaterThan(1);
  });

  it('goes on when SrcAvails cross its places', async () => {
    const pair = await pairOf({ mode: 'auto', privateBuffers: { count: 8, size: 1040 } });
    pair.peer.tell({ do: 'mode', mode: 'pipelined' });
    for (let i = 0; i < 40; i++) pair.peerWrites(1 + ((i * 7919) % 60_000), 'source');
    await pair.finish(40_000, 3);
  });

  it('withdraws a place that a signal takes back', async () => {
    const pair = await pairOf({ mode: 'sink', privateBuffers: { count: 8, size: 1040 } });
    const stop = new AbortController();
    const refused = expect(
      pair.socket.receiveInto(new Uint8Array(5000), { signal: stop.signal }),
    ).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    // In combined mode until data makes the peer think of it.
    pair.peer.tell({ do: 'mode', mode: 'pipelined' });
    await pair.until(({ peerPlaces }) => peerPlaces === 1);
    stop.abort();
    await refused;
    pair.peerWrites(9000, 'place');
    const report = await pair.finish();
    expect([report.in['SinkAvailCancel'], report.out['SinkCancelAck'], report.out['RdmaWrCompl']]).toEqual([
      1,
      1,
      undefined,
    ]);
  });

  it.each(['buffered', 'auto'] as const)('writes into places of the peer in mode %s', async (mode) => {
    const pair = await pairOf({ mode, zeroCopyFrom: 4096 }, { bufs: 16 });
    pair.peer.tell({ do: 'places', octets: 70_000, count: 4 });
    await pair.until((report) => report['mode'] === 'combined');
    for (const octets of [...SIZES, 300_000, 5, 300_000]) {
      pair.write(octets);
      await new Promise((resolve) => setImmediate(resolve));
    }
    // A slow thread may hear of the places when all that has been buffered.
    for (let more = 0; more < 20 && ((await pair.report()).written ?? 0) === 0; more++) pair.write(300_000);
    const report = await pair.finish();
    expect(report.modes).toContain('receive pipelined');
    // The rest went as data, where a write found no place at hand.
    expect(report.written).toBeGreaterThan(0);
    expect(report.in['RdmaWrCompl']).toBeGreaterThan(0);
  });

  it('drops places that the peer withdraws', async () => {
    const pair = await pairOf({}, { bufs: 16 });
    pair.peer.tell({ do: 'places', octets: 70_000, count: 2 });
    // Behind the byte, we know that it asks for pipelined mode.
    pair.peerWrites(1);
    await once(pair.socket, 'readable');
    pair.write(100);
    await pair.until(({ places }) => places === 2);
    pair.peer.tell({ do: 'withdraw' });
    await pair.peer.next('withdrawn');
    pair.write(90_000);
    const report = await pair.finish();
    expect(report.written ?? 0).toBe(0);
  });

  it('takes its advertisement back from a peer that never reads, and sends the bytes', async () => {
    const pair = await pairOf({ mode: 'source', maxAdverts: 4, zeroCopyFrom: 1000 }, { bufs: 16 });
    pair.peer.tell({ do: 'policy', policy: 'stall' });
    for (let i = 0; i < 5; i++) pair.write(80_000);
    pair.write(10);
    await pair.until((report) => (report.in['SrcAvailCancel'] ?? 0) > 0);
    pair.peer.tell({ do: 'policy', policy: 'read' });
    const report = await pair.finish();
    expect(report.out['SendSm']).toBe(1);
  });

  it('gives the advertisements back that the peer cancels', async () => {
    const pair = await pairOf({ maxAdverts: 4 });
    pair.peer.tell({ do: 'mode', mode: 'pipelined' });
    for (let i = 0; i < 6; i++) pair.peerWrites(AHEAD, 'source');
    // We read a mebibyte ahead of the program, then nothing.
    await pair.until(({ advertised, read }) => advertised === 4 && (read ?? 0) >= 1 << 19);
    pair.peer.tell({ do: 'cancel' });
    await pair.peer.next('cancelled');
    const report = await pair.finish();
    expect([report.out['SrcAvailCancel'], report.in['SendSm']! <= 2]).toEqual([1, true]);
  });

  it('asks for data when the program does not read, and goes on when it does', async () => {
    const pair = await pairOf({ maxAdverts: 4, privateBuffers: { count: 8, size: 4096 } });
    pair.peer.tell({ do: 'mode', mode: 'pipelined' });
    for (let i = 0; i < 6; i++) pair.peerWrites(AHEAD, 'source');
    await pair.until((report) => (report.in['SendSm'] ?? 0) > 0);
    await pair.finish();
  });

  it('follows the modes of the peer, there and back', async () => {
    const pair = await pairOf({ mode: 'auto' });
    for (const mode of ['pipelined', 'combined', 'pipelined', 'combined', 'buffered']) {
      pair.peer.tell({ do: 'mode', mode });
      for (let i = 0; i < 3; i++) pair.peerWrites(20_000, mode === 'buffered' ? 'data' : 'source');
    }
    const report = await pair.finish();
    expect(report.modes).toEqual(
      ['pipelined', 'combined', 'pipelined', 'combined', 'buffered'].map((mode) => `send ${mode}`),
    );
  });

  it.each(['we', 'the peer'])('half closes, %s first', async (first) => {
    const pair = await pairOf({ mode: 'source', zeroCopyFrom: 1000 }, { bufs: 16 });
    if (first === 'we') {
      pair.write(50_000);
      await pair.endOurs();
      pair.peerWrites(50_000, 'source');
      pair.peerWrites(500);
      pair.peer.tell({ do: 'end' });
      await pair.readAll();
    } else {
      pair.peerWrites(50_000, 'source');
      pair.peer.tell({ do: 'end' });
      await pair.readAll();
      pair.write(50_000);
      pair.write(500);
      await pair.endOurs();
    }
    await pair.gone();
  });

  it('ends with a reset when the peer aborts', async () => {
    const pair = await pairOf();
    pair.socket.resume();
    const failed = once(pair.socket, 'error');
    pair.peer.tell({ do: 'abort' });
    expect((await failed)[0]).toMatchObject({ code: 'ECONNRESET' });
  });

  it('ends with a reset when the peer goes without DisConn', async () => {
    const pair = await pairOf();
    pair.socket.resume();
    const failed = once(pair.socket, 'error');
    pair.peer.tell({ do: 'quit' });
    expect((await failed)[0]).toMatchObject({ code: 'ECONNRESET' });
  });

  it('says AbortConn when it resets the connection', async () => {
    const pair = await pairOf();
    pair.socket.on('error', () => undefined);
    pair.peerWrites(100);
    await once(pair.socket, 'readable');
    pair.socket.resetAndDestroy();
    expect(await pair.peer.next('closed')).toMatchObject({ why: 'aborted' });
  });

  it('enlarges its buffers when the peer asks, and uses larger ones of the peer', async () => {
    const octets = depth(40_000, 100_000);
    const pair = await pairOf(
      { privateBuffers: { count: 6, size: 40_000 } },
      { size: 1040, mostSize: 20_000 },
    );
    expect(pair.hello['size']).toBe(16_384);
    pair.peer.tell({ do: 'resize', size: 30_000 });
    for (let i = 0; i < 20; i++) pair.peerWrites(3000);
    const reading = pair.readAll();
    expect(await pair.peer.next('resized')).toMatchObject({ size: 30_000 });
    for (let i = 0; i < 20; i++) pair.peerWrites(octets);
    for (let i = 0; i < 20; i++) pair.write(octets);
    await pair.until((report) => (report.out['ChRcvBufAck'] ?? 0) === 1);
    for (let i = 0; i < 20; i++) pair.write(octets);
    pair.peer.tell({ do: 'end' });
    await pair.endOurs();
    await reading;
    const report = await pair.gone();
    expect(report.sendSize).toBe(30_000 - 16);
    // 40 writes: many fewer messages than at 1 KiB each.
    expect(report.in['Data']).toBeLessThan((40 * octets) / 1333);
  });

  it('takes urgent data as data', async () => {
    const pair = await pairOf();
    pair.peerWrites(1000);
    pair.peerWrites(50, 'data', 'urgent');
    pair.peerWrites(3000, 'data', 'urgent');
    pair.peerWrites(1000);
    await pair.finish();
  });

  it('stops without credits and goes on with them', async () => {
    const pair = await pairOf({}, { bufs: 4, size: 128 });
    pair.peer.tell({ do: 'pause' });
    for (let i = 0; i < 10; i++) pair.write(1000);
    // Two buffers of four are kept for control messages.
    await pair.until(({ posted }) => posted === 2);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect((await pair.report()).posted).toBe(2);
    pair.peer.tell({ do: 'resume' });
    await pair.finish();
  });

  it.each([1, 2, 3, 4])('keeps the rules in a storm of everything, seed %i', async (seed) => {
    const random = seededRandom(seed * 7919);
    const one = <T>(...values: T[]): T => values[random() % values.length]!;
    const size = one(256, 1040, 8192);
    const pair = await pairOf(
      {
        mode: one('auto', 'source', 'sink', 'buffered'),
        zeroCopyFrom: one(2, 500, 20_000),
        maxAdverts: one(1, 2, 16),
        privateBuffers: { count: one(4, 8), size: one(256, 1040, 16_384) },
      },
      { maxAdverts: one(1, 2, 9), bufs: one(4, 6, 20), size, segment: one(200, 1442, 9000) },
    );
    if (random() % 2 === 0) pair.peer.tell({ do: 'places', octets: one(size, 30_000, 100_000), count: 3 });
    const place = one(0, 0, 20_000, 70_000);
    const reading = pair.readAll(place);
    for (let i = 0; i < 40; i++) {
      const octets = random() % one(10, 3000, 90_000);
      pair.peerWrites(octets, one('data', 'place', 'source'));
      pair.write(random() % one(10, 3000, 90_000));
      if (random() % 6 === 0) pair.peer.tell({ do: 'cancel' });
      if (random() % 8 === 0)
        pair.peer.tell({ do: 'policy', policy: one('read', 'half', 'refuse'), part: one(999, 1 << 30) });
      if (random() % 10 === 0) {
        pair.peer.tell({ do: 'pause' });
        await new Promise((resolve) => setTimeout(resolve, 3));
        pair.peer.tell({ do: 'resume' });
      }
      if (random() % 3 === 0) await new Promise((resolve) => setTimeout(resolve, random() % 4));
    }
    pair.peer.tell({ do: 'policy', policy: 'read' });
    pair.peer.tell({ do: 'end' });
    await pair.endOurs();
    await reading;
    await pair.gone();
  });
});
