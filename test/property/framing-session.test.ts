/**
 * Sessions of two stacks as properties: the naive decoder judges both directions with random sizes, MULPDUs,
 * markers, CRC and cuts; and no outcome, no memory and no octet sent depends on where the streams are cut.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { segmenting, type Segmentation } from '../../src/simnet/segmenting.ts';
import type { WorkCompletion } from '../../src/verbs/index.ts';
import { decodeCapture, type NaiveCapture } from '../support/naive/decoder.ts';
import { reassemble } from '../support/naive/messages.ts';
import { connectedPair, type Pair, type PairOptions, type Side } from '../support/pair.ts';
import { count } from '../support/framing.ts';

const segmentation: fc.Arbitrary<Segmentation> = fc.oneof(
  fc.record({ kind: fc.constant('every' as const), octets: fc.integer({ min: 1, max: 700 }) }),
  fc.record({
    kind: fc.constant('random' as const),
    seed: fc.integer({ min: 1, max: 2 ** 31 }),
    max: fc.integer({ min: 1, max: 3000 }),
  }),
  fc.constant({ kind: 'coalesce' as const }),
  fc.constant({ kind: 'asIs' as const }),
);

interface SidePlan {
  readonly markers: boolean;
  readonly crc: boolean;
  readonly emss: number;
  readonly sends: readonly number[];
}

const sidePlan: fc.Arbitrary<SidePlan> = fc.record({
  markers: fc.boolean(),
  crc: fc.boolean(),
  emss: fc.oneof(fc.integer({ min: 64, max: 1500 }), fc.integer({ min: 64, max: 20_000 })),
  sends: fc.array(fc.oneof(fc.integer({ min: 0, max: 600 }), fc.integer({ min: 0, max: 12_000 })), {
    maxLength: 6,
  }),
});

const message = (length: number): Uint8Array => count(length, length);

function exchange(from: Side, to: Side, plan: SidePlan): void {
  for (const [wrId, length] of plan.sends.entries()) {
    const mr = from.register(message(length));
    to.qp.postRecv({ wrId, sges: length === 0 ? [] : [{ mr: to.register(length), length }] });
    from.qp.postSend({ wrId, opcode: 'send', sges: length === 0 ? [] : [{ mr, length }] });
  }
}

/** A direction as the naive decoder reads it: lawful, and carrying these Sends. */
function judge(
  octets: Uint8Array,
  options: { markers: boolean; crc: boolean },
  plan: SidePlan,
  mulpduLimit: number,
): void {
  const capture = decodeCapture(octets, options) as NaiveCapture;
  expect(capture.startup.problems).toEqual([]);
  expect(capture.fpdus.flatMap((fpdu) => fpdu.problems)).toEqual([]);
  for (const fpdu of capture.fpdus) expect(fpdu.ulpduLength).toBeLessThanOrEqual(mulpduLimit);
  const { messages, problems } = reassemble(capture.fpdus);
  expect(problems).toEqual([]);
  const sends = messages.filter((one) => one.opcode === 3).map((one) => one.payload);
  expect(sends.map((payload) => payload.length)).toEqual(plan.sends);
  for (const payload of sends) expect(Buffer.compare(payload, message(payload.length))).toBe(0);
}

/** RFC 5044 4.5, written down a second time. */
function mulpdu(emss: number, markers: boolean): number {
  const wanted = markers ? emss - (6 + 4 * Math.ceil(emss / 512) + (emss % 4)) : emss - (6 + (emss % 4));
  return wanted < 128 ? 128 : wanted > 64_768 ? 64_768 : wanted;
}

const policyOf = (plan: SidePlan): object => ({
  markers: plan.markers,
  crc: plan.crc ? 'preferred' : 'off',
  emss: plan.emss,
  silentPeerNudge: 0,
});

describe('the naive decoder judges whole sessions', () => {
  it('any sizes, MULPDUs and cuts, both directions (MPA-054/059/060/062/078/079, MPA-095..099)', async () => {
    await fc.assert(
      fc.asyncProperty(sidePlan, sidePlan, segmentation, async (client, server, cut) => {
        const pair = await connectedPair({
          client: { policy: policyOf(client) },
          server: { policy: policyOf(server) },
          middleware: (time) => [segmenting(time, cut)],
        });
        exchange(pair.client, pair.server, client);
        exchange(pair.server, pair.client, server);
        pair.run();
        for (const [side, other] of [
          [pair.client, server],
          [pair.server, client],
        ] as const) {
          expect(side.received().map((wc) => [wc.status, wc.byteLength])).toEqual(
            other.sends.map((length) => ['success', length]),
          );
        }
        const crc = client.crc || server.crc;
        const { fromClient, fromServer } = pair.wire();
        judge(fromClient, { markers: server.markers, crc }, client, mulpdu(client.emss, server.markers));
        judge(fromServer, { markers: client.markers, crc }, server, mulpdu(server.emss, client.markers));
      }),
      { numRuns: 60 },
    );
  });
});

// ------------------------------------------------------------------------------------------- re-segmentation

type Ending = 'close' | 'terminate' | 'mid-flight';

interface Outcome {
  readonly results: readonly WorkCompletion[];
  readonly statuses: readonly string[];
  readonly memory: readonly string[];
  readonly wire: readonly string[];
  readonly ends: readonly (readonly [string, readonly string[], string | undefined])[];
}

/** Runs a session with everything in it and returns its results. */
async function session(cut: Segmentation, ending: Ending, policy: object): Promise<Outcome> {
  const options: PairOptions = {
    client: { policy, param: { privateData: count(33) } },
    server: { policy, param: { privateData: count(77) } },
    middleware: (time) => [segmenting(time, cut)],
  };
  const pair = await connectedPair(options);
  const { client, server } = pair;
  const source = client.register(message(40_000));
  const sink = client.register(40_000);
  const target = server.register(40_000);
  const inbox = server.register(20_000);
  const outbox = client.register(5000);
  for (let i = 0; i < 4; i++)
    server.qp.postRecv({ wrId: 100 + i, sges: [{ mr: inbox, offset: i * 5000, length: 5000 }] });
  client.qp.postRecv({ wrId: 200, sges: [{ mr: outbox, length: 5000 }] });
  const results: WorkCompletion[] = [];
  const settle = (): void => {
    pair.run();
    results.push(...client.sent(), ...client.received(), ...server.sent(), ...server.received());
  };
  client.qp.postSend([
    { wrId: 1, opcode: 'send', sges: [{ mr: source, length: 4321 }] },
    {
      wrId: 2,
      opcode: 'rdma-write',
      sges: [{ mr: source, offset: 100, length: 30_000 }],
      rkey: target.rkey,
      remoteAddr: 1000,
    },
    { wrId: 3, opcode: 'send', sges: [] },
  ]);
  settle();
  client.qp.postSend(
    [1, 2, 3].map((i) => ({
      wrId: 10 + i,
      opcode: 'rdma-read' as const,
      sges: [{ mr: sink, offset: i * 9000, length: 8999 }],
      rkey: target.rkey,
      remoteAddr: i * 5000,
    })),
  );
  settle();
  server.qp.postSend({ wrId: 4, opcode: 'send', sges: [{ mr: target, offset: 1000, length: 3333 }] });
  settle();
  if (ending === 'terminate') {
    client.qp.postSend([
      {
        wrId: 20,
        opcode: 'rdma-write',
        sges: [{ mr: source, length: 5000 }],
        rkey: 0x1234_5678,
        remoteAddr: 0,
      },
      { wrId: 21, opcode: 'send', sges: [{ mr: source, length: 10 }] },
    ]);
  } else if (ending === 'mid-flight') {
    client.qp.postSend({ wrId: 30, opcode: 'send', sges: [{ mr: source, length: 5000 }] });
    client.connection!.disconnect();
  } else {
    client.connection!.disconnect();
  }
  settle();
  return {
    results,
    statuses: results.map((wc) => wc.status),
    memory: [sink, target, inbox, outbox].map((mr) => Buffer.from(mr.bytes).toString('base64')),
    wire: wireOf(pair),
    ends: [client, server].map(
      (side) =>
        [side.qp.state, side.events.map((event) => event.type), side.event('disconnected')?.cause] as const,
    ),
  };
}

function wireOf(pair: Pair): readonly string[] {
  const { fromClient, fromServer } = pair.wire();
  return [fromClient, fromServer].map((octets) => Buffer.from(octets).toString('base64'));
}

describe('no outcome depends on the cuts', () => {
  const policies = [
    {},
    { markers: true, emss: 700 },
    { crc: 'off', markers: true },
    { mpaRevision: 1, emss: 4000 },
  ];
  for (const ending of ['close', 'terminate', 'mid-flight'] as const) {
    it(`completions, memory and octets are the same, ending: ${ending} (MPA-023/041/086)`, async () => {
      for (const policy of policies) {
        const reference = await session({ kind: 'asIs' }, ending, policy);
        // The session is what it is meant to be, or the comparison would say little.
        expect(reference.statuses.slice(0, 10)).toEqual(new Array(10).fill('success'));
        expect(reference.ends.map(([, , cause]) => cause)).toEqual(
          new Array(2).fill(ending === 'terminate' ? 'terminated' : 'graceful'),
        );
        expect(await session({ kind: 'every', octets: 1 }, ending, policy)).toEqual(reference);
        await fc.assert(
          fc.asyncProperty(segmentation, async (cut) => {
            expect(await session(cut, ending, policy)).toEqual(reference);
          }),
          { numRuns: 8 },
        );
      }
    });
  }
});
