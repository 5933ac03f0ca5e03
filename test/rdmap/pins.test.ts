/**
 * Pinned memory: payloads that a write sends in place, without a copy, and the end of the registration in the
 * meantime. VERBS-151, VERBS-157, VERBS-167, SEC-007. The network in memory compares each octet of a write
 * with the program's memory until the write is done, and throws if that has changed.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { TRANSMIT_BUFFER_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { ZERO_COPY_FROM } from '../../src/rdmap/message-writer.ts';
import { PassingPort } from '../../src/transport/middleware.ts';
import type { Port, WriteDone } from '../../src/transport/port.ts';
import { ACCESS, type MemoryRegion } from '../../src/verbs/index.ts';
import { Pair, type PairOptions } from '../support/pair.ts';
import { codeOf, outcomes, secondConnection, terminateOf } from '../verbs/support.ts';

const EMSS = 65_483;
/** Two segments, which fit into one write. */
const OCTETS = 100_000;
/** More than two writes hold. */
const LONG = 6 * TRANSMIT_BUFFER_OCTETS;
const ALL: number = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.MW_BIND;

/** Counts the octets of writes that lie in memory of the program. */
class Watch {
  readonly memories = new Set<ArrayBufferLike>();
  inPlace = 0;
  octets = 0;

  see(chunks: readonly Uint8Array[], count: number): void {
    for (const chunk of chunks.slice(0, count)) {
      this.octets += chunk.length;
      if (this.memories.has(chunk.buffer)) this.inPlace += chunk.length;
    }
  }
}

class WatchedPort extends PassingPort {
  readonly #watch: Watch;

  constructor(inner: Port, watch: Watch) {
    super(inner);
    this.#watch = watch;
  }

  override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    this.#watch.see(chunks, count);
    return super.write(chunks, count, done);
  }
}

/** 8 octets a microsecond and a pipe of 8 KiB: a write of 100,000 octets takes some ten milliseconds. */
const SLOW = { verifyWrites: true, latency: 1, bandwidth: 10_000, buffer: 8192, readOctets: 2048 } as const;

async function slowPair(
  options: { readonly crc?: 'off' | 'required'; readonly markers?: boolean; readonly network?: object } = {},
): Promise<{ pair: Pair; watch: Watch }> {
  const watch = new Watch();
  const policy = {
    silentPeerNudge: 0,
    emss: EMSS,
    crc: options.crc ?? 'off',
    markers: options.markers ?? false,
  };
  const settings: PairOptions = {
    network: { ...SLOW, ...options.network },
    client: { policy, qp: { maxSendSge: 4 } },
    server: { policy },
    middleware: () => [(port) => new WatchedPort(port, watch)],
  };
  return { pair: await new Pair(settings).connect(), watch };
}

function source(pair: Pair, octets: number, fill = 7, access = ALL): MemoryRegion {
  return pair.server.register(new Uint8Array(octets).fill(fill), access, 0x1000);
}

const pinsOf = (mr: MemoryRegion): number => mr.entry.pins;

function read(pair: Pair, rkey: number, octets: number, wrId = 1): MemoryRegion {
  const mr = pair.client.register(octets);
  pair.client.qp.postSend({ wrId, opcode: 'rdma-read', sges: [{ mr }], rkey, remoteAddr: 0x1000 });
  return mr;
}

/** Follows what a deregistration has returned. */
function follow(returned: PromiseLike<void>): { settled: boolean } {
  const state = { settled: false };
  void Promise.resolve(returned).then(() => (state.settled = true));
  return state;
}

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Until the first octets of a response or Write have left, which is long before the last. */
const underWay = (pair: Pair): Pair => pair.advance(5);

describe('a Read Response', () => {
  it.each([
    ['without CRC and markers stands in the region', {}, 1],
    ['under CRC is copied', { crc: 'required' }, 0],
    ['with markers is copied', { markers: true }, 0],
  ] as const)('%s (RDMAP-030, MPA-057)', async (_, options, share) => {
    const { pair, watch } = await slowPair(options);
    const mr = source(pair, OCTETS);
    watch.memories.add(mr.bytes.buffer);
    const sink = read(pair, mr.rkey, OCTETS);
    underWay(pair);
    expect(pinsOf(mr)).toBe(share);
    pair.run();
    expect(outcomes(pair.client.sent())).toEqual(['1 success']);
    expect(sink.bytes).toEqual(mr.bytes);
    expect(watch.inPlace).toBe(share * OCTETS);
    expect(pinsOf(mr)).toBe(0);
  });

  it.each([ZERO_COPY_FROM - 1, ZERO_COPY_FROM])('of %i octets: the copy ends there', async (octets) => {
    const { pair, watch } = await slowPair();
    const mr = source(pair, octets);
    watch.memories.add(mr.bytes.buffer);
    const sink = read(pair, mr.rkey, octets);
    pair.run();
    expect(sink.bytes).toEqual(mr.bytes);
    expect(watch.inPlace).toBe(octets < ZERO_COPY_FROM ? 0 : octets);
  });

  it('ends the registration at once and gives the memory back with its last octet (VERBS-151)', async () => {
    const { pair } = await slowPair();
    const mr = source(pair, OCTETS);
    const { bytes } = mr;
    const sink = read(pair, mr.rkey, OCTETS);
    underWay(pair);
    const returned = follow(mr.deregister());
    expect([mr.deregistered, mr.valid]).toEqual([true, false]);
    expect(codeOf(() => pair.server.qp.postSend({ opcode: 'send', sges: [{ mr }] }))).toBe(
      'ERR_INVALID_REGION',
    );
    expect(codeOf(() => void mr.deregister())).toBe('ERR_INVALID_REGION');
    await tick();
    expect(returned.settled).toBe(false);
    while (!returned.settled && pair.time.step()) await tick();
    expect(returned.settled).toBe(true);
    bytes.fill(9); // the network would throw if a write still had it
    pair.run();
    // All of it was in segments before the end: the peer gets what stood there then.
    expect(outcomes(pair.client.sent())).toEqual(['1 success']);
    expect(sink.bytes.every((octet) => octet === 7)).toBe(true);
    read(pair, mr.rkey, 8, 2);
    pair.run();
    expect(terminateOf(pair.server.qp)).toBe('0/1/00');
  });

  it('longer than two writes breaks off with a Terminate, and then gives the memory back', async () => {
    const { pair } = await slowPair();
    const mr = source(pair, LONG);
    const { bytes } = mr;
    const sink = read(pair, mr.rkey, LONG);
    underWay(pair);
    const returned = follow(mr.deregister());
    while (!returned.settled && pair.time.step()) await tick();
    bytes.fill(9);
    pair.run();
    expect(terminateOf(pair.server.qp)).toBe('0/1/00');
    expect(outcomes(pair.client.sent())).toEqual(['1 remote-access-error']);
    expect(sink.bytes.includes(9)).toBe(false);
  });

  it('out of the table, changed and in another domain: reregister gives the old memory back', async () => {
    const { pair } = await slowPair();
    const mr = source(pair, OCTETS);
    const old = mr.bytes;
    const sink = read(pair, mr.rkey, OCTETS);
    underWay(pair);
    const returned = follow(mr.reregister({ memory: new Uint8Array(64) }));
    await tick();
    expect([returned.settled, mr.valid, mr.length]).toEqual([false, true, 64]);
    while (!returned.settled && pair.time.step()) await tick();
    old.fill(9);
    pair.run();
    expect(sink.bytes.every((octet) => octet === 7)).toBe(true);
  });

  it.each(['reset by the peer', 'aborted', 'closed with an error'])('%s unpins', async (how) => {
    const { pair } = await slowPair();
    const mr = source(pair, LONG);
    read(pair, mr.rkey, LONG);
    underWay(pair);
    const returned = follow(mr.deregister());
    if (how === 'reset by the peer') pair.client.connection!.abort();
    else if (how === 'aborted') pair.server.connection!.abort();
    else pair.server.qp.modify({ state: 'terminate' });
    pair.run();
    await tick();
    expect(returned.settled).toBe(true);
  });

  it('from memory that is transferred away meanwhile: written octets go, then a Terminate', async () => {
    const { pair } = await slowPair({ network: { verifyWrites: false } }); // it would compare the views
    const mr = source(pair, LONG);
    read(pair, mr.rkey, LONG);
    underWay(pair);
    structuredClone(null, { transfer: [mr.bytes.buffer as ArrayBuffer] });
    pair.run();
    expect(terminateOf(pair.server.qp)).toBe('0/1/01');
    const returned = follow(mr.deregister());
    await tick();
    expect(returned.settled).toBe(true);
  });
});

describe('a zero-copy Write', () => {
  it('pins its source until its last octet has been taken (VERBS-151)', async () => {
    const { pair } = await slowPair();
    const mr = pair.client.register(new Uint8Array(OCTETS).fill(7));
    const { bytes } = mr;
    const sink = pair.server.register(OCTETS);
    pair.client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-write',
      sges: [{ mr }],
      rkey: sink.rkey,
      remoteAddr: 0,
    });
    underWay(pair);
    const returned = follow(mr.deregister());
    expect(codeOf(() => pair.client.qp.postSend({ opcode: 'send', sges: [{ mr }] }))).toBe(
      'ERR_INVALID_REGION',
    );
    while (!returned.settled && pair.time.step()) await tick();
    expect(outcomes(pair.client.sent())).toEqual(['1 success']);
    bytes.fill(9);
    pair.run();
    expect(sink.bytes.every((octet) => octet === 7)).toBe(true);
  });

  it('that is copied pins nothing: the end of the registration settles at once', async () => {
    const { pair } = await slowPair({ crc: 'required' });
    const mr = pair.client.register(new Uint8Array(OCTETS).fill(7));
    const sink = pair.server.register(OCTETS);
    pair.client.qp.postSend({
      wrId: 1,
      opcode: 'rdma-write',
      sges: [{ mr }],
      rkey: sink.rkey,
      remoteAddr: 0,
    });
    underWay(pair);
    const returned = follow(mr.deregister());
    await tick();
    expect(returned.settled).toBe(true);
  });
});

describe('an invalidation while a response reads the memory', () => {
  /** The client reads all of a window of the server; some of it has left. */
  async function windowRead(): Promise<{
    pair: Pair;
    mr: MemoryRegion;
    mw: ReturnType<Pair['server']['pd']['allocateMw']>;
    sink: MemoryRegion;
  }> {
    const { pair } = await slowPair();
    const mr = source(pair, OCTETS);
    const mw = pair.server.pd.allocateMw();
    pair.client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 }); // the responder may send
    pair.run();
    pair.server.qp.postSend({ opcode: 'bind-mw', mw, mr, access: ACCESS.REMOTE_READ });
    pair.run();
    pair.client.sent();
    pair.server.sent();
    const sink = read(pair, mw.rkey, OCTETS);
    underWay(pair);
    expect(pinsOf(mr)).toBeGreaterThan(0);
    return { pair, mr, mw, sink };
  }

  it("by the peer's Send completes, with later receives, when the memory is not read (SEC-007)", async () => {
    const { pair, mr, mw, sink } = await windowRead();
    pair.server.qp.postRecv([{ wrId: 7 }, { wrId: 8 }]);
    pair.client.qp.postSend([
      { wrId: 2, opcode: 'send', invalidate: mw.rkey },
      { wrId: 3, opcode: 'send' },
    ]);
    while (mw.valid) pair.time.step();
    pair.advance(3);
    expect(pair.server.received()).toEqual([]);
    expect(pinsOf(mr)).toBeGreaterThan(0);
    let received = pair.server.received();
    while (received.length === 0 && pair.time.step()) received = pair.server.received();
    expect(outcomes(received)).toEqual(['7 success', '8 success']);
    expect(received[0]!.invalidatedStag).toBe(mw.rkey);
    mr.bytes.fill(9);
    pair.run();
    expect(sink.bytes.every((octet) => octet === 7)).toBe(true);
    expect(outcomes(pair.client.sent())).toEqual(['1 success', '2 success', '3 success']);
  });

  it('by a Send, and the connection is lost: the receive completes, none is lost (VERBS-056)', async () => {
    const { pair, mw } = await windowRead();
    pair.server.qp.postRecv([{ wrId: 7 }, { wrId: 8 }]);
    pair.client.qp.postSend({ wrId: 2, opcode: 'send', invalidate: mw.rkey });
    while (mw.valid) pair.time.step();
    pair.client.connection!.abort();
    pair.run();
    expect(outcomes(pair.server.received())).toEqual(['7 success', '8 flushed']);
  });

  it('by a local-invalidate completes then, and fenced work behind it at once (VERBS-099/157)', async () => {
    const { pair, mr, mw, sink } = await windowRead();
    const fast = pair.server.pd.allocateFastRegion(64);
    pair.server.qp.postSend([
      { wrId: 4, opcode: 'local-invalidate', target: mw },
      { wrId: 5, opcode: 'reg-mr', mr: fast, memory: new Uint8Array(64), access: 0, fence: true },
    ]);
    while (!fast.valid && pair.time.step());
    expect([mw.valid, pair.server.sent()]).toEqual([false, []]);
    let done = pair.server.sent();
    while (done.length === 0 && pair.time.step()) done = pair.server.sent();
    expect(outcomes(done)).toEqual(['4 success', '5 success']);
    mr.bytes.fill(9);
    pair.run();
    expect(sink.bytes.every((octet) => octet === 7)).toBe(true);
  });

  it('by a local-invalidate, and the connection is lost: it completes once', async () => {
    const { pair, mw } = await windowRead();
    pair.server.qp.postSend({ wrId: 4, opcode: 'local-invalidate', target: mw });
    while (mw.valid) pair.time.step();
    pair.client.connection!.abort();
    pair.run();
    expect(outcomes(pair.server.sent())).toEqual(['4 flushed']);
  });

  it('of a region that the response of another connection reads waits for that one', async () => {
    const { pair } = await slowPair();
    const [first, second] = [pair.client.qp, pair.server.qp];
    const other = secondConnection(pair);
    const mr = source(pair, OCTETS, 7, ACCESS.REMOTE_READ);
    pair.client.qp = first;
    read(pair, mr.rkey, OCTETS);
    underWay(pair);
    other.server.postSend({ wrId: 4, opcode: 'local-invalidate', target: mr });
    while (mr.valid) pair.time.step();
    expect(pair.server.sent()).toEqual([]);
    let done = pair.server.sent();
    while (done.length === 0 && pair.time.step()) done = pair.server.sent();
    expect(outcomes(done)).toEqual(['4 success']);
    mr.bytes.fill(9);
    pair.run();
    expect(second.state).toBe('rts');
  });

  it('deallocate gives the memory back when the write through the window is over (VERBS-167)', async () => {
    const { pair, mr, mw } = await windowRead();
    const window = follow(mw.deallocate());
    const region = follow(mr.deregister());
    await tick();
    expect([window.settled, region.settled]).toEqual([false, false]);
    while (!region.settled && pair.time.step()) await tick();
    expect(window.settled).toBe(true);
  });
});

describe('any order of Reads, Writes and ends of registrations', () => {
  const action = fc.oneof(
    fc.record({
      type: fc.constant('read' as const),
      region: fc.nat(3),
      octets: fc.integer({ min: 1, max: 90_000 }),
    }),
    fc.record({
      type: fc.constant('write' as const),
      region: fc.nat(3),
      octets: fc.integer({ min: 1, max: 90_000 }),
    }),
    fc.record({ type: fc.constant('end' as const), region: fc.nat(3) }),
    fc.record({ type: fc.constant('wait' as const), steps: fc.nat(30) }),
    fc.record({ type: fc.constant('reset' as const) }),
  );

  it('no write reads memory that was given back, and each end settles (SEC-007, VERBS-151)', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(action, { minLength: 3, maxLength: 20 }),
        fc.nat(1000),
        async (actions, seed) => {
          const { pair } = await slowPair();
          const random = seededRandom(seed);
          const regions = Array.from({ length: 4 }, () => source(pair, 90_000, random() & 0xff));
          const sink = pair.client.register(90_000);
          const ours = pair.client.register(90_000);
          const ends: { settled: boolean }[] = [];
          const posts = pair.client.sent().length;
          let posted = posts;
          for (const one of actions) {
            if (one.type === 'read' || one.type === 'write') {
              if (pair.client.qp.state !== 'rts') continue;
              // Reads from two of them, Writes to the others: a Write into memory that a response reads may
              // show there.
              const { rkey } = regions[(one.region & 1) + (one.type === 'read' ? 0 : 2)]!;
              pair.client.qp.postSend({
                opcode: one.type === 'read' ? 'rdma-read' : 'rdma-write',
                sges: [{ mr: one.type === 'read' ? sink : ours, length: one.octets }],
                rkey,
                remoteAddr: 0x1000,
              });
              posted++;
            } else if (one.type === 'end') {
              const mr = regions[one.region]!;
              if (mr.deregistered) continue;
              const { bytes } = mr;
              const returned = mr.deregister();
              ends.push(follow(returned));
              void Promise.resolve(returned).then(() => bytes.fill(random() & 0xff));
            } else if (one.type === 'reset') pair.client.connection!.abort();
            else
              for (let i = 0; i < one.steps; i++) {
                pair.time.step();
                await tick();
              }
          }
          pair.run();
          await tick();
          expect(ends.every(({ settled }) => settled)).toBe(true);
          expect(pair.client.sent().length).toBe(posted);
          expect(regions.every((mr) => pinsOf(mr) === 0)).toBe(true);
        },
      ),
      { numRuns: 60 },
    );
  });
});
