/**
 * Random posts on both sides with random disconnects, aborts, terminates, deregistrations and pauses in
 * between: every posted request ends exactly once and in order, whatever happens, and what succeeds has moved
 * the right octets (verbs draft 6.2, 8.2).
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { MemoryRegion, WorkCompletion } from '../../src/verbs/index.ts';
import { Pair, type Side } from '../support/pair.ts';

const GUARD = 0xe7;
const AREA = 4096;

interface Bench {
  readonly side: Side;
  readonly source: MemoryRegion;
  /** Guarded; Reads, receives and the peer's Writes go here. */
  readonly target: MemoryRegion;
  readonly memory: Uint8Array;
  readonly sends: number[];
  readonly receives: number[];
  readonly sent: WorkCompletion[];
  readonly received: WorkCompletion[];
}

interface Model {
  readonly pair: Pair;
  readonly benches: readonly [Bench, Bench];
  id: number;
}

type Command = (model: Model) => void;

function bench(side: Side): Bench {
  const memory = new Uint8Array(AREA + 64).fill(GUARD);
  const inner = memory.subarray(32, 32 + AREA).fill(0);
  const content = Uint8Array.from({ length: AREA }, (_, i) => (i * 5) & 0xff);
  return {
    side,
    source: side.register(content),
    target: side.register(inner),
    memory,
    sends: [],
    receives: [],
    sent: [],
    received: [],
  };
}

function poll(model: Model): void {
  for (const { side, sent, received } of model.benches) {
    sent.push(...side.sent());
    received.push(...side.received());
  }
}

const who = fc.constantFrom<0 | 1>(0, 1);
const length = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 40 }), fc.integer({ min: 100, max: 3000 }));

const postSend: fc.Arbitrary<Command> = fc
  .record({
    who,
    length,
    kind: fc.constantFrom('send', 'send-se', 'rdma-write', 'rdma-read', 'immediate', 'atomic'),
    fence: fc.boolean(),
  })
  .map(({ who: w, length: n, kind, fence }) => (model) => {
    const mine = model.benches[w];
    const theirs = model.benches[1 - w]!;
    const wrId = model.id++;
    const sges = [{ mr: mine.source, length: n }];
    const remote = { rkey: theirs.target.rkey, remoteAddr: 0 };
    const common = { wrId, fence };
    try {
      if (kind === 'send' || kind === 'send-se')
        mine.side.qp.postSend({ ...common, opcode: 'send', sges, solicited: kind === 'send-se' });
      else if (kind === 'rdma-write') mine.side.qp.postSend({ ...common, opcode: kind, sges, ...remote });
      else if (kind === 'rdma-read')
        mine.side.qp.postSend({ ...common, opcode: kind, sges: [{ mr: mine.target, length: n }], ...remote });
      else if (kind === 'immediate') mine.side.qp.postSend({ ...common, opcode: kind, immediate: wrId });
      else
        mine.side.qp.postSend({
          ...common,
          opcode: 'atomic-fetch-add',
          sges: [{ mr: mine.target, length: 8 }],
          ...remote,
          remoteAddr: 8,
          add: 1,
        });
      mine.sends.push(wrId);
    } catch (error) {
      // Refused at once, so it never was a request: the region is gone or the queue full.
      expect(['ERR_INVALID_REGION', 'ERR_QUEUE_FULL']).toContain((error as { code: string }).code);
    }
  });

const postRecv: fc.Arbitrary<Command> = fc
  .record({ who, length: fc.integer({ min: 0, max: 3000 }) })
  .map(({ who: w, length: n }) => (model) => {
    const mine = model.benches[w];
    const wrId = model.id++;
    try {
      mine.side.qp.postRecv({ wrId, sges: [{ mr: mine.target, length: n }] });
      mine.receives.push(wrId);
    } catch (error) {
      expect(['ERR_INVALID_REGION', 'ERR_QUEUE_FULL']).toContain((error as { code: string }).code);
    }
  });

const manyReceives: fc.Arbitrary<Command> = who.map((w) => (model) => {
  const mine = model.benches[w];
  for (let i = 0; i < 10 && mine.target.valid && mine.receives.length < 200; i++) {
    mine.side.qp.postRecv({ wrId: model.id, sges: [{ mr: mine.target, length: 3000 }] });
    mine.receives.push(model.id++);
  }
});

const advance: fc.Arbitrary<Command> = fc.integer({ min: 0, max: 6 }).map((ms) => (model) => {
  model.pair.advance(ms);
  poll(model);
});

const rare: fc.Arbitrary<Command> = fc
  .record({ who, what: fc.constantFrom('disconnect', 'abort', 'terminate', 'error', 'deregister', 'stray') })
  .map(({ who: w, what }) => (model) => {
    const { side, target } = model.benches[w];
    if (what === 'disconnect') side.connection?.disconnect();
    else if (what === 'abort') side.connection?.abort();
    else if (what === 'terminate' && side.qp.state === 'rts') side.qp.modify({ state: 'terminate' });
    else if (what === 'error' && side.qp.state === 'rts') side.qp.modify({ state: 'error' });
    else if (what === 'deregister' && target.valid) target.deregister();
    else if (what === 'stray' && model.benches[w].source.valid) {
      side.qp.postSend({
        wrId: model.id,
        opcode: 'rdma-write',
        sges: [{ mr: model.benches[w].source, length: 4 }],
        rkey: 0x7777_7700,
        remoteAddr: 0,
      });
      model.benches[w].sends.push(model.id++);
    }
  });

const commands = fc.array(
  fc.oneof(
    { arbitrary: postSend, weight: 12 },
    { arbitrary: manyReceives, weight: 4 },
    { arbitrary: postRecv, weight: 3 },
    { arbitrary: advance, weight: 8 },
    { arbitrary: rare, weight: 1 },
  ),
  { minLength: 5, maxLength: 60 },
);

async function play(steps: readonly Command[], seed: number, emss: number, buffer: number): Promise<Model> {
  const policy = { emss, ird: 3, ord: 2, closeTimeout: 300 } as const;
  const side = { policy, crc32c: 'js' } as const;
  const pair = new Pair({ seed, network: { buffer }, client: side, server: side });
  const model: Model = { pair, benches: [bench(pair.client), bench(pair.server)], id: 1 };
  await pair.listen();
  pair.connectClient();
  for (const step of steps) step(model);
  pair.advance(2000);
  pair.client.connection?.disconnect();
  pair.time.run(200_000);
  for (const { side: s } of model.benches) if (s.qp.state === 'idle') s.qp.modify({ state: 'error' });
  pair.time.run(1000);
  poll(model);
  return model;
}

function judge(model: Model): void {
  expect(model.pair.time.pending).toBe(0);
  for (const b of model.benches) {
    expect(b.side.qp.state).toBe('error');
    expect(b.sent.map((wc) => wc.wrId)).toEqual(b.sends);
    expect(b.received.map((wc) => wc.wrId)).toEqual(b.receives);
    const all = [...b.sent, ...b.received];
    expect(all.filter((wc) => wc.status !== 'success' && wc.status !== 'flushed').length).toBeLessThanOrEqual(
      1,
    );
    expect(b.memory.subarray(0, 32).every((octet) => octet === GUARD)).toBe(true);
    expect(b.memory.subarray(32 + AREA).every((octet) => octet === GUARD)).toBe(true);
    expect(b.side.events.filter((event) => event.type === 'disconnected').length).toBe(
      b.side.connection === null ? 0 : 1,
    );
  }
  // A Send delivered is a Send that was posted: never more receives succeed than messages were sent.
  const [client, server] = model.benches;
  for (const [from, to] of [
    [client, server],
    [server, client],
  ] as const) {
    expect(to.received.filter((wc) => wc.status === 'success').length).toBeLessThanOrEqual(from.sends.length);
  }
}

describe('random work and random ends', () => {
  it('every request ends exactly once, in order (DDP-032, DDP-065, RDMAP-087, RDMAP-094)', async () => {
    await fc.assert(
      fc.asyncProperty(
        commands,
        fc.integer({ min: 1, max: 1 << 20 }),
        fc.constantFrom(128, 600, 1460),
        fc.constantFrom(500, 4000, 262_144),
        async (steps, seed, emss, buffer) => judge(await play(steps, seed, emss, buffer)),
      ),
      { numRuns: 400, endOnFailure: false },
    );
  });
});
