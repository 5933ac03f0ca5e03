/** Enhanced set-up in both roles against a scripted peer: RFC 6581 4.4, 5, 6, 8, 9 and 10. */
import { describe, expect, it } from 'vitest';
import type { ActiveConnection, ConnectionPolicy, RtrKind } from '../../src/cm/index.ts';
import type { NaiveEnhanced } from '../support/naive/types.ts';
import {
  encodeFpdus,
  encodeReadRequest,
  encodeStartup,
  taggedUlpdu,
  untaggedUlpdu,
} from '../support/naive/encoder.ts';
import { Pair } from '../support/pair.ts';
import {
  PEER_ENHANCED,
  rawInitiator,
  rawInitiatorUp,
  rawResponder,
  rawResponderUp,
  type RawBench,
  type RawOptions,
  type RawPeer,
} from '../support/raw-peer.ts';
import { count } from '../support/framing.ts';

const OPEN = 0x3fff;
const CLIENT_SERVER: NaiveEnhanced = { a: false, b: false, c: false, d: false, ird: 4, ord: 4 };
const send = (msn: number): Uint8Array => untaggedUlpdu({ opcode: 3, qn: 0, msn });
/** A Read Request; zero length unless `size` says more. */
const readRequest = (msn: number, size = 0, stag = 0): Uint8Array => {
  const payload = new Uint8Array(28);
  const view = new DataView(payload.buffer);
  view.setUint32(12, size);
  view.setUint32(16, stag);
  return untaggedUlpdu({ opcode: 1, qn: 1, msn }, payload);
};
/** Depths of 40 in the form of SMB Direct. */
const LEGACY_40: Uint8Array = Uint8Array.of(0, 0, 0, 40, 0, 0, 0, 40);
const RTR_ULPDU: Record<RtrKind, Uint8Array> = {
  write: taggedUlpdu({ opcode: 0, stag: 1, to: 0n }),
  read: readRequest(1),
  send: send(1),
};
const RTR_OPCODE: Record<RtrKind, number> = { write: 0, read: 1, send: 3 };
const RTR_BIT: Record<RtrKind, 'b' | 'c' | 'd'> = { send: 'b', write: 'c', read: 'd' };
const KINDS: readonly RtrKind[] = ['write', 'read', 'send'];
const bits = (kinds: readonly RtrKind[]): { b: boolean; c: boolean; d: boolean } => ({
  b: kinds.includes('send'),
  c: kinds.includes('write'),
  d: kinds.includes('read'),
});
const quiet = (policy: Partial<ConnectionPolicy> = {}): RawOptions => ({
  policy: { silentPeerNudge: 0, ...policy },
});

/** Our Reply to these enhanced octets. */
async function replyTo(
  enhanced: NaiveEnhanced,
  policy: Partial<ConnectionPolicy> = {},
  options: RawOptions = {},
): Promise<{ bench: RawBench; peer: RawPeer; reply: NaiveEnhanced }> {
  const { bench, peer } = await rawInitiatorUp({ ...options, policy }, { enhanced });
  const { frame, problems } = peer.startup();
  expect(problems).toEqual([]);
  expect(frame).toMatchObject({ kind: 'reply', revision: 2, enhancedData: true });
  return { bench, peer, reply: frame.enhanced! };
}

/**
 * The peer does not read, so that no response can be finished, and asks for `reads` at once: they are all
 * served, or it is an error.
 */
function servedAtOnce(bench: RawBench, peer: RawPeer, reads: number, served: boolean): void {
  const octets = 300_000;
  const mr = bench.side.register(octets);
  peer.pause();
  peer.sendFpdus(Array.from({ length: reads }, (_, i) => readRequest(i + 1, octets, mr.rkey)));
  bench.settle(500);
  expect(bench.side.event('terminate')?.terminate).toEqual(
    served ? undefined : expect.objectContaining({ layer: 1, type: 2, code: 3 }),
  );
  if (!served) return;
  peer.resume();
  bench.settle(20_000);
  expect(peer.segments().filter((segment) => segment.opcode === 2 && segment.last).length).toBe(reads);
  expect(peer.terminates()).toEqual([]);
}

describe('the format', () => {
  it('the default Request is revision 2, S=1, the four octets in front (ENH-001/002/003, MPA-010)', () => {
    const { peer } = rawResponder({ policy: { ird: 16, ord: 8 }, param: { privateData: count(3, 9) } });
    const { frame, problems } = peer.startup();
    expect(problems).toEqual([]);
    expect(frame).toMatchObject({
      revision: 2,
      enhancedData: true,
      reserved: 0,
      pdLength: 7,
      privateData: count(3, 9),
    });
    expect(frame.enhanced).toEqual({ a: true, b: false, c: true, d: true, ird: 16, ord: 8 });
    expect([...peer.received.slice(20, 24)]).toEqual([0x80, 0x10, 0xc0, 0x08]);
    expect(peer.received[16]! & 0x0f).toBe(0);
  });

  it('14-bit depths to their largest, big-endian (ENH-003)', () => {
    const side = { limits: { maxQpRdAtom: 0x3ffe, maxQpInitRdAtom: 0x3ffe } };
    const { peer } = rawResponder({
      side,
      policy: { ird: 0x3ffe, ord: 0x1234, maxIrd: 0x3ffe, peerToPeer: false },
    });
    expect([...peer.received.slice(20, 24)]).toEqual([0x3f, 0xfe, 0x12, 0x34]);
  });

  it('ULP data of 508 octets makes PD_Length 512; 509 are refused (ENH-004)', async () => {
    expect(rawResponder({ param: { privateData: count(508) } }).peer.startup().frame).toMatchObject({
      pdLength: 512,
      privateData: count(508),
    });
    expect(() => rawResponder({ param: { privateData: count(509) } })).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
    );
    const { peer } = await rawInitiatorUp(
      { param: { privateData: count(508) } },
      { enhanced: PEER_ENHANCED },
    );
    expect(peer.startup().frame).toMatchObject({ pdLength: 512, privateData: count(508) });
    const codes: unknown[] = [];
    await rawInitiatorUp(
      {
        onRequest: (connection, bench) => {
          try {
            connection.accept(bench.side.qp, { privateData: count(509) });
          } catch (error) {
            codes.push((error as { code: unknown }).code);
          }
        },
      },
      { enhanced: PEER_ENHANCED },
    );
    expect(codes).toEqual(['ERR_TOO_LARGE']);
  });

  it('the program gets its own octets only, in both roles (ENH-006)', async () => {
    const { bench } = await rawInitiatorUp({}, { enhanced: PEER_ENHANCED, privateData: count(6, 1) });
    expect(bench.incoming[0]!.connection.parameters!.privateData).toEqual(count(6, 1));
    const other = rawResponderUp({}, { enhanced: PEER_ENHANCED, privateData: count(6, 1) });
    expect(other.bench.side.event('established')!.parameters.privateData).toEqual(count(6, 1));
    const rejected = rawResponderUp({}, { reject: true, enhanced: PEER_ENHANCED, privateData: count(6, 1) });
    expect(rejected.bench.side.event('rejected')!.parameters.privateData).toEqual(count(6, 1));
  });

  it('where no enhanced feature is wanted the Request is a plain one (ENH-007, ENH-001)', () => {
    const { peer } = rawResponder({ policy: { mpaRevision: 2, peerToPeer: false, negotiateDepths: false } });
    expect(peer.startup().frame).toMatchObject({ revision: 1, enhancedData: false, pdLength: 0 });
    for (const policy of [
      { peerToPeer: true, negotiateDepths: false },
      { peerToPeer: false, negotiateDepths: true },
    ]) {
      expect(rawResponder({ policy }).peer.startup().frame).toMatchObject({
        revision: 2,
        enhancedData: true,
      });
    }
  });

  it('a Request of revision 1, or 2 with S=0, gets a plain Reply like it (ENH-008/010/002)', async () => {
    for (const revision of [1, 2]) {
      const { bench, peer } = await rawInitiatorUp(
        { param: { privateData: count(5) } },
        { revision, privateData: count(9) },
      );
      expect(peer.startup().frame).toMatchObject({
        reject: false,
        revision,
        enhancedData: false,
        pdLength: 5,
        privateData: count(5),
      });
      expect(bench.incoming[0]!.connection.parameters).toMatchObject({
        privateData: count(9),
        revision,
        responderResources: undefined,
      });
      expect(bench.side.event('established')!.negotiated).toMatchObject({ enhanced: false, rtr: null });
    }
  });

  it('an enhanced Request gets an enhanced Reply (ENH-009)', async () => {
    const { peer, reply } = await replyTo(CLIENT_SERVER, {}, { param: { privateData: count(5) } });
    expect(reply).toBeDefined();
    expect(peer.startup().frame.pdLength).toBe(9);
  });

  it('a responder set to revision 1 resets on an enhanced Request (ENH-011)', async () => {
    const { bench, peer } = await rawInitiator({ policy: { mpaRevision: 1 } });
    peer.request({ revision: 2, enhanced: PEER_ENHANCED });
    bench.settle();
    expect(peer.received.length).toBe(0);
    expect(peer.ending).toBe('reset');
    expect(bench.failures).toMatchObject([{ reason: 'unusable-revision' }]);
    const again = bench.dial();
    again.request({ revision: 1 });
    bench.settle();
    expect(again.startup().frame).toMatchObject({ revision: 1, reject: false });
  });

  it('a Reply of revision 1, or 2 with S=0, to an enhanced Request: as revision 1, no RTR (ENH-013)', () => {
    for (const revision of [1, 2]) {
      const { bench, peer } = rawResponderUp(quiet(), { revision, privateData: count(4) });
      bench.side.qp.postRecv({ wrId: 1, sges: [] });
      expect(bench.side.event('established')).toMatchObject({
        negotiated: { enhanced: false, rtr: null },
        parameters: { privateData: count(4), revision },
      });
      expect(peer.behind().length).toBe(0);
      peer.sendFpdus([send(1)]);
      bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [] });
      bench.settle();
      expect(bench.side.received()).toMatchObject([{ status: 'success' }]);
      expect(peer.segments()).toMatchObject([{ opcode: 3, msn: 1 }]);
    }
  });
});

describe('IRD and ORD as responder', () => {
  const rows: readonly (readonly [
    string,
    Partial<ConnectionPolicy>,
    { ird: number; ord: number },
    { ird: number; ord: number },
    { ird: number; ord: number },
  ])[] = [
    // title, our policy, their IRD and ORD, our Reply, what holds here afterwards
    [
      'our ORD comes down to their IRD (ENH-015, ENH-016)',
      { ird: 4, ord: 16 },
      { ird: 1, ord: 1 },
      { ird: 4, ord: 1 },
      { ird: 4, ord: 1 },
    ],
    [
      'IRD 0 leaves us no Read (ENH-015, ENH-016)',
      { ird: 4, ord: 16 },
      { ird: 0, ord: 1 },
      { ird: 4, ord: 0 },
      { ird: 4, ord: 0 },
    ],
    [
      'a smaller ORD of ours stays (ENH-016)',
      { ird: 4, ord: 2 },
      { ird: 64, ord: 1 },
      { ird: 4, ord: 2 },
      { ird: 4, ord: 2 },
    ],
    [
      'our IRD rises to their ORD (ENH-017)',
      { ird: 4, ord: 4 },
      { ird: 8, ord: 8 },
      { ird: 8, ord: 4 },
      { ird: 8, ord: 4 },
    ],
    [
      "but not above the policy's limit (ENH-017, ENH-014)",
      { ird: 4, ord: 4, maxIrd: 6 },
      { ird: 8, ord: 8 },
      { ird: 6, ord: 4 },
      { ird: 6, ord: 4 },
    ],
    [
      'depths of 0x3FFE are clipped (ENH-014)',
      { ird: 4, ord: 4 },
      { ird: 0x3ffe, ord: 0x3ffe },
      { ird: 128, ord: 4 },
      { ird: 128, ord: 4 },
    ],
    [
      'their ORD 0x3FFF leaves our IRD alone and is answered by 0x3FFF (ENH-024)',
      { ird: 5, ord: 4 },
      { ird: 8, ord: OPEN },
      { ird: OPEN, ord: 4 },
      { ird: 5, ord: 4 },
    ],
    [
      'their IRD 0x3FFF leaves our ORD alone and is answered by 0x3FFF (ENH-025)',
      { ird: 4, ord: 9 },
      { ird: OPEN, ord: 2 },
      { ird: 4, ord: OPEN },
      { ird: 4, ord: 9 },
    ],
    [
      'both (ENH-024, ENH-025)',
      { ird: 5, ord: 9 },
      { ird: OPEN, ord: OPEN },
      { ird: OPEN, ord: OPEN },
      { ird: 5, ord: 9 },
    ],
  ];
  it.each(rows)('%s', async (_, policy, theirs, ours, held) => {
    const { bench, reply } = await replyTo({ ...CLIENT_SERVER, ...theirs }, policy);
    expect(reply).toMatchObject(ours);
    expect(bench.side.event('established')!.negotiated).toMatchObject(held);
  });

  it('with their IRD 1 we never have two Reads outstanding (ENH-015)', async () => {
    const { bench, peer } = await replyTo({ ...PEER_ENHANCED, ird: 1 });
    peer.sendFpdus([RTR_ULPDU.write]);
    const mr = bench.side.register(64);
    for (const wrId of [1, 2])
      bench.side.qp.postSend({
        wrId,
        opcode: 'rdma-read',
        sges: [{ mr, length: 4 }],
        rkey: 7,
        remoteAddr: 0,
      });
    bench.settle();
    expect(peer.segments().map((s) => [s.opcode, s.tagged ? 0 : s.msn])).toEqual([[1, 1]]);
    peer.sendFpdus([taggedUlpdu({ opcode: 2, stag: mr.lkey, to: 0n }, count(4))]);
    bench.settle();
    expect(peer.segments().map((s) => [s.opcode, s.tagged ? 0 : s.msn])).toEqual([
      [1, 1],
      [1, 2],
    ]);
  });

  it('the IRD announced is the IRD served: one Read more is an error (ENH-017)', async () => {
    for (const reads of [6, 7]) {
      const { bench, peer, reply } = await replyTo(
        { ...CLIENT_SERVER, ord: 6 },
        { ird: 2, maxIrd: 8 },
        { network: { buffer: 600 } },
      );
      expect(reply.ird).toBe(6);
      servedAtOnce(bench, peer, reads, reads === 6);
    }
  });

  it('with ORD 0 and a Read RTR our IRD is raised to 1 (ENH-018)', async () => {
    const { bench, reply, peer } = await replyTo(
      { ...PEER_ENHANCED, ord: 0, c: false, d: true },
      { ird: 0, ord: 4 },
    );
    expect(reply).toMatchObject({ d: true, ird: 1 });
    peer.sendFpdus([RTR_ULPDU.read]);
    bench.settle();
    expect(peer.segments()).toMatchObject([{ opcode: 2, payload: new Uint8Array(0) }]);
  });

  it('a responder that can serve no Read at all chooses another RTR (ENH-018)', async () => {
    const { reply } = await replyTo({ ...PEER_ENHANCED, ord: 0 }, { ird: 0, maxIrd: 0 });
    expect(reply).toMatchObject({ a: true, b: false, c: true, d: false });
  });

  it('nor does a queue pair made for no Reads get one by policy (ENH-018, VERBS-018)', async () => {
    const { reply, bench } = await replyTo({ ...PEER_ENHANCED, ord: 4 }, {}, { side: { qp: { ird: 0 } } });
    expect(reply).toMatchObject({ a: true, b: false, c: true, d: false, ird: 0 });
    expect(bench.side.connection!.negotiated).toMatchObject({ ird: 0, rtr: 'write' });
  });

  it('a Request below the ORD we require is rejected with the number, no Terminate (ENH-019)', async () => {
    const { bench, peer, reply } = await replyTo({ ...PEER_ENHANCED, ird: 1 }, { requiredOrd: 4 });
    expect(peer.startup().frame.reject).toBe(true);
    expect(reply).toMatchObject({ a: true, ord: 4 });
    expect(peer.behind().length).toBe(0);
    expect(peer.ending).toBe('fin');
    peer.end();
    bench.run();
    expect(bench.side.events).toMatchObject([{ type: 'disconnected', cause: 'rejected' }]);
    expect(bench.side.qp.state).toBe('idle');
    const enough = await replyTo({ ...PEER_ENHANCED, ird: 4 }, { requiredOrd: 4 });
    expect(enough.peer.startup().frame.reject).toBe(false);
    const open = await replyTo({ ...PEER_ENHANCED, ird: OPEN }, { requiredOrd: 4 });
    expect(open.peer.startup().frame.reject).toBe(false);
  });

  it("the peer's depths are given to the program before it decides (ENH-023)", async () => {
    const { bench } = await rawInitiatorUp({}, { enhanced: { ...PEER_ENHANCED, ird: 11, ord: 22 } });
    expect(bench.incoming[0]!.connection.parameters).toMatchObject({
      responderResources: 22,
      initiatorDepth: 11,
    });
    const open = await rawInitiatorUp({}, { enhanced: { ...PEER_ENHANCED, ird: OPEN, ord: 22 } });
    expect(open.bench.incoming[0]!.connection.parameters).toMatchObject({
      responderResources: 22,
      initiatorDepth: undefined,
    });
  });
});

describe('IRD and ORD as initiator', () => {
  const rows: readonly (readonly [
    string,
    Partial<ConnectionPolicy>,
    { ird: number; ord: number },
    { ird: number; ord: number },
  ])[] = [
    [
      'our ORD comes down to their IRD (ENH-020)',
      { ird: 4, ord: 16 },
      { ird: 1, ord: 1 },
      { ird: 4, ord: 1 },
    ],
    ['their IRD 0 leaves us no Read (ENH-020)', { ird: 4, ord: 16 }, { ird: 0, ord: 1 }, { ird: 4, ord: 0 }],
    [
      'a larger IRD of theirs does not raise our ORD (ENH-020)',
      { ird: 4, ord: 2 },
      { ird: 99, ord: 1 },
      { ird: 4, ord: 2 },
    ],
    ['our IRD rises to their ORD (ENH-021)', { ird: 4, ord: 4 }, { ird: 4, ord: 9 }, { ird: 9, ord: 4 }],
    [
      'their IRD 0x3FFF leaves our ORD alone (ENH-026)',
      { ird: 4, ord: 16 },
      { ird: OPEN, ord: 1 },
      { ird: 4, ord: 16 },
    ],
    [
      'their ORD 0x3FFF leaves our IRD alone (ENH-027)',
      { ird: 4, ord: 16 },
      { ird: 2, ord: OPEN },
      { ird: 4, ord: 2 },
    ],
    ['both (ENH-026, ENH-027)', { ird: 4, ord: 16 }, { ird: OPEN, ord: OPEN }, { ird: 4, ord: 16 }],
  ];
  it.each(rows)('%s', (_, policy, theirs, held) => {
    const { bench, peer } = rawResponderUp(quiet({ peerToPeer: false, ...policy }), {
      enhanced: { ...CLIENT_SERVER, ...theirs },
    });
    expect(bench.side.event('established')!.negotiated).toMatchObject(held);
    expect(peer.terminates()).toEqual([]);
  });

  it('with their IRD 1 one Read is outstanding at a time (ENH-020)', () => {
    const { bench, peer } = rawResponderUp(quiet({ peerToPeer: false }), {
      enhanced: { ...CLIENT_SERVER, ird: 1 },
    });
    const mr = bench.side.register(64);
    for (const wrId of [1, 2])
      bench.side.qp.postSend({
        wrId,
        opcode: 'rdma-read',
        sges: [{ mr, length: 4 }],
        rkey: 7,
        remoteAddr: 0,
      });
    bench.settle();
    expect(peer.segments().length).toBe(1);
  });

  it('four Reads are served at once after ORD 4, though our IRD was 1; a fifth is an error (ENH-021)', () => {
    for (const reads of [4, 5]) {
      const { bench, peer } = rawResponderUp(
        { ...quiet({ peerToPeer: false, ird: 1 }), network: { buffer: 600 } },
        { enhanced: { ...CLIENT_SERVER, ord: 4 } },
      );
      servedAtOnce(bench, peer, reads, reads === 4);
    }
  });

  it('an ORD that our IRD cannot reach is answered by Terminate 2/0/06 and the end (ENH-022)', () => {
    for (const [maxIrd, ord] of [
      [128, 0x3ffe],
      [8, 9],
      [8, 17],
    ] as const) {
      const { bench, peer } = rawResponderUp(quiet({ ird: 8, maxIrd }), {
        enhanced: { ...PEER_ENHANCED, d: false, ord },
      });
      bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
      bench.settle();
      expect(peer.terminates()).toEqual(['2/0/06']);
      expect(peer.fpdus().length).toBe(1); // no RTR message, no Send
      expect(peer.problems()).toEqual([]);
      expect(peer.ending).toBe('fin');
      peer.end();
      bench.run();
      expect(bench.side.events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'terminated' });
    }
    const fits = rawResponderUp(quiet({ ird: 8, maxIrd: 9 }), {
      enhanced: { ...PEER_ENHANCED, d: false, ord: 9 },
    });
    expect(fits.peer.terminates()).toEqual([]);
  });

  it('a Reply that calls for a Terminate does so with confirm too (ENH-022/040, MPA-035)', () => {
    for (const [code, theirs] of [
      ['2/0/06', { d: false, ord: 9 }],
      ['2/0/07', { c: false, d: false }],
      ['2/0/06', { c: false, d: false, ord: 9 }],
    ] as const) {
      const { bench, peer, connection } = rawResponder({
        ...quiet({ ird: 8, maxIrd: 8 }),
        connect: { confirm: true },
      });
      bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
      peer.reply({ revision: 2, enhanced: { ...PEER_ENHANCED, ...theirs } });
      bench.settle();
      expect(peer.terminates()).toEqual([code]);
      expect(peer.fpdus().length).toBe(1);
      expect(peer.problems()).toEqual([]);
      expect(peer.ending).toBe('fin');
      expect(() => (connection as ActiveConnection).establish()).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_STATE' }),
      );
      peer.end();
      bench.run();
      expect(bench.side.events.map((event) => event.type)).toEqual([
        'established',
        'terminate',
        'disconnected',
      ]);
      expect(bench.side.events.at(-1)).toMatchObject({ cause: 'terminated' });
      expect(bench.side.sent().map((wc) => wc.status)).toEqual(['flushed']);
      expect(bench.side.qp.state).toBe('error');
    }
  });

  it("an ORD above the queue pair's or the program's IRD is not met (ENH-022, VERBS-018)", () => {
    const made = [
      [{ side: { qp: { ird: 1 } } }, 1],
      [{ param: { responderResources: 2 } }, 2],
      [{ side: { qp: { ird: 40 } } }, 40],
    ] as const;
    for (const [options, limit] of made) {
      for (const ord of [limit, limit + 1]) {
        const { bench, peer } = rawResponderUp(
          { ...quiet(), ...options },
          { enhanced: { ...PEER_ENHANCED, d: false, ord } },
        );
        expect(peer.terminates()).toEqual(ord > limit ? ['2/0/06'] : []);
        if (ord <= limit) expect(bench.side.qp.query().ird).toBe(Math.max(ord, Math.min(limit, 16)));
      }
    }
  });

  const unsettled: readonly (readonly [
    string,
    Partial<ConnectionPolicy>,
    { revision: number; enhanced?: NaiveEnhanced },
  ])[] = [
    ['revision 1', { mpaRevision: 1 }, { revision: 1 }],
    ['a plain Reply to an enhanced Request', {}, { revision: 1 }],
    [
      'depths left open',
      { negotiateDepths: false },
      { revision: 2, enhanced: { ...PEER_ENHANCED, d: false, ird: OPEN, ord: OPEN } },
    ],
  ];
  it.each(unsettled)(
    'with %s the depths are those that the program gave (ENH-026, ENH-027, RDMAP-051, RDMAP-052, VERBS-018)',
    (_, policy, reply) => {
      const { bench, peer } = rawResponderUp(
        { ...quiet(policy), param: { initiatorDepth: 2, responderResources: 2 }, network: { buffer: 600 } },
        reply,
      );
      expect(bench.side.event('established')!.negotiated).toMatchObject({ ird: 2, ord: 2 });
      expect(bench.side.qp.query()).toMatchObject({ ird: 2, ord: 2 });
      const mr = bench.side.register(64);
      for (const wrId of [1, 2, 3, 4, 5])
        bench.side.qp.postSend({
          wrId,
          opcode: 'rdma-read',
          sges: [{ mr, length: 4 }],
          rkey: 7,
          remoteAddr: 0,
        });
      bench.settle();
      expect(peer.segments().filter((segment) => segment.opcode === 1).length).toBe(2);
      servedAtOnce(bench, peer, 3, false);
    },
  );

  it('with revision 1 the depths are those that the queue pair was made for (VERBS-018)', () => {
    const { bench } = rawResponderUp({ ...quiet({ mpaRevision: 1 }), side: { qp: { ird: 3, ord: 5 } } });
    expect(bench.side.qp.query()).toMatchObject({ ird: 3, ord: 5 });
  });

  it('a depth of the policy is cut to the limit of the device, in both roles (VERBS-018)', async () => {
    const side = { limits: { maxQpRdAtom: 8, maxQpInitRdAtom: 5 } };
    expect(rawResponder({ side }).peer.startup().frame.enhanced).toMatchObject({ ird: 8, ord: 5 });
    expect(rawResponder({ side, policy: { ird: 64, ord: 64 } }).peer.startup().frame.enhanced).toMatchObject({
      ird: 8,
      ord: 5,
    });
    const { bench } = rawResponderUp(
      { ...quiet({ peerToPeer: false }), side },
      { enhanced: { ...CLIENT_SERVER, ird: 32, ord: 8 } },
    );
    expect(bench.side.event('established')!.negotiated).toMatchObject({ ird: 8, ord: 5 });
    const { reply } = await replyTo({ ...CLIENT_SERVER, ird: 99, ord: 99 }, {}, { side });
    expect(reply).toMatchObject({ ird: 8, ord: 5 });
  });

  it('depths left open and no Read asked for: a Read RTR has its one Read all the same (ENH-044)', () => {
    const { bench, peer } = rawResponderUp(
      { ...quiet({ negotiateDepths: false, rtrOffered: ['read'] }), param: { initiatorDepth: 0 } },
      { enhanced: { ...PEER_ENHANCED, c: false, ird: OPEN, ord: OPEN } },
    );
    expect(peer.segments()).toMatchObject([{ opcode: 1, readRequest: { size: 0 } }]);
    expect(bench.side.event('established')!.negotiated.ord).toBe(1);
  });

  it("the responder's depths are given to the program, accepting or rejecting (ENH-023)", () => {
    const enhanced = { ...PEER_ENHANCED, d: false, ird: 11, ord: 12 };
    expect(rawResponderUp(quiet(), { enhanced }).bench.side.event('established')!.parameters).toMatchObject({
      responderResources: 12,
      initiatorDepth: 11,
    });
    expect(
      rawResponderUp(quiet(), { enhanced, reject: true }).bench.side.event('rejected')!.parameters,
    ).toMatchObject({ responderResources: 12, initiatorDepth: 11 });
    expect(
      rawResponderUp({ connect: { confirm: true } }, { enhanced }).bench.side.event('connect-response')!
        .parameters,
    ).toMatchObject({ responderResources: 12, initiatorDepth: 11 });
  });

  it('depths left open are sent as 0x3FFF (ENH-024, ENH-025)', () => {
    const { peer } = rawResponder({ policy: { negotiateDepths: false } });
    expect(peer.startup().frame.enhanced).toMatchObject({ ird: OPEN, ord: OPEN });
  });
});

describe('an automatic ORD', () => {
  const rows: readonly (readonly [
    string,
    Partial<ConnectionPolicy>,
    { revision: number; enhanced?: NaiveEnhanced; privateData?: Uint8Array },
    number,
  ])[] = [
    ['a peer that serves four (ENH-020)', {}, { revision: 2, enhanced: { ...CLIENT_SERVER, ird: 4 } }, 4],
    ['a peer that serves 32 (ENH-020)', {}, { revision: 2, enhanced: { ...CLIENT_SERVER, ird: 32 } }, 32],
    [
      'a peer that serves more than was asked for (ENH-020)',
      {},
      { revision: 2, enhanced: { ...CLIENT_SERVER, ird: 1000 } },
      128,
    ],
    [
      'a peer that leaves it open (ENH-026)',
      {},
      { revision: 2, enhanced: { ...CLIENT_SERVER, ird: OPEN } },
      16,
    ],
    ['a plain Reply (ENH-013)', {}, { revision: 1 }, 16],
    ['revision 1 (RDMAP-051)', { mpaRevision: 1 }, { revision: 1 }, 16],
    [
      'revision 1 with a header that names 40 (RDMAP-051)',
      { mpaRevision: 1, legacyDepths: true },
      { revision: 1, privateData: LEGACY_40 },
      40,
    ],
    [
      'revision 1 without the header that was looked for (RDMAP-051)',
      { mpaRevision: 1, legacyDepths: true },
      { revision: 1 },
      16,
    ],
  ];
  it.each(rows)('%s, as initiator', (_, policy, reply, ord) => {
    const { bench } = rawResponderUp(quiet({ peerToPeer: false, ...policy }), reply);
    expect(bench.side.event('established')!.negotiated).toMatchObject({ ord, autoOrd: true });
  });
  it.each(rows)('%s, as responder', async (_, policy, request, ord) => {
    const { bench } = await rawInitiatorUp({ policy }, request);
    expect(bench.side.event('established')!.negotiated).toMatchObject({ ord, autoOrd: true });
  });

  it('asks for 128 in both directions; a number of the policy, the program or the queue pair stands', () => {
    const cases: readonly (readonly [RawOptions, number])[] = [
      [{}, 128],
      [{ policy: { ord: 3 } }, 3],
      [{ param: { initiatorDepth: 9 } }, 9],
      [{ policy: { ord: 3 }, param: { initiatorDepth: 9 } }, 9],
      [{ side: { qp: { ord: 7 } } }, 7],
    ];
    for (const [options, ord] of cases) {
      expect(rawResponder(options).peer.startup().frame.enhanced).toMatchObject({ ird: 128, ord });
      const { bench } = rawResponderUp(
        { ...options, ...quiet({ peerToPeer: false, ...options.policy }) },
        { enhanced: { ...CLIENT_SERVER, ird: OPEN } },
      );
      expect(bench.side.event('established')!.negotiated).toMatchObject({
        ord: ord === 128 ? 16 : ord,
        autoOrd: ord === 128,
      });
    }
  });

  /** Posts a number of Reads of `size` octets to a peer that serves 64 and answers none; how many go out? */
  function outstanding(size: number, options: RawOptions = {}): number {
    const { bench, peer } = rawResponderUp(
      { ...quiet({ peerToPeer: false }), ...options },
      { enhanced: { ...CLIENT_SERVER, ird: 64 } },
    );
    const mr = bench.side.register(Math.max(size, 1));
    const reads = Array.from(
      { length: 100 },
      (_, wrId) =>
        ({ wrId, opcode: 'rdma-read', sges: size === 0 ? [] : [{ mr }], rkey: 7, remoteAddr: 0 }) as const,
    );
    bench.side.qp.postSend(reads);
    bench.settle();
    return peer.segments().length;
  }

  it('beyond 16, Reads outstanding ask for 512 KiB at most, unless the program set ORD (RDMAP-051)', () => {
    expect([0, 1, 8192, 8193, 16_384, 32_768, 65_536, 1_048_576].map((size) => outstanding(size))).toEqual([
      64, 64, 64, 63, 32, 16, 16, 16,
    ]);
    expect(
      [0, 8192, 65_536, 1_048_576].map((size) => outstanding(size, { param: { initiatorDepth: 64 } })),
    ).toEqual([64, 64, 64, 64]);
  });

  it('an answer makes room for what asks for no more (RDMAP-051)', () => {
    const { bench, peer } = rawResponderUp(quiet({ peerToPeer: false }), {
      enhanced: { ...CLIENT_SERVER, ird: 64 },
    });
    const mr = bench.side.register(262_144);
    const sizes = [262_144, ...Array.from({ length: 15 }, () => 1000), 262_144, 1000, 1000];
    sizes.forEach((length, wrId) =>
      bench.side.qp.postSend({ wrId, opcode: 'rdma-read', sges: [{ mr, length }], rkey: 7, remoteAddr: 0 }),
    );
    bench.settle();
    // the 17th would ask for more, and the small ones behind it keep their place
    expect(peer.segments().length).toBe(16);
    peer.sendFpdus([taggedUlpdu({ opcode: 2, stag: mr.rkey, to: 0n, last: false }, new Uint8Array(60_000))]);
    bench.settle();
    expect(peer.segments().length).toBe(16);
    for (let to = 60_000; to < 262_144; to += 60_000) {
      const last = to + 60_000 >= 262_144;
      peer.sendFpdus([
        taggedUlpdu(
          { opcode: 2, stag: mr.rkey, to: BigInt(to), last },
          new Uint8Array(last ? 262_144 - to : 60_000),
        ),
      ]);
      bench.settle(1000);
    }
    expect(bench.side.sent()).toMatchObject([{ wrId: 0, status: 'success' }]);
    expect(peer.segments().length).toBe(19);
  });
});

describe('depths in a header before the private data, revision 1 (SMB Direct)', () => {
  const policy: Partial<ConnectionPolicy> = { mpaRevision: 1, legacyDepths: true, silentPeerNudge: 0 };
  const header = (ird: number, ord: number, littleEndian = false): Uint8Array => {
    const bytes = new Uint8Array(12).fill(0x77, 8);
    new DataView(bytes.buffer).setUint32(0, ird, littleEndian);
    new DataView(bytes.buffer).setUint32(4, ord, littleEndian);
    return bytes;
  };
  const own = new Uint8Array(4).fill(0x77);

  it('the initiator names its depths; the Reply bounds them; the program sees its own octets', () => {
    for (const littleEndian of [false, true]) {
      const { bench, peer } = rawResponderUp(
        { policy: { ...policy, ird: 6, ord: 5 }, param: { privateData: own } },
        { revision: 1, privateData: header(2, 9, littleEndian) },
      );
      expect(peer.startup().frame).toMatchObject({ revision: 1, privateData: header(6, 5) });
      expect(bench.side.event('established')).toMatchObject({
        negotiated: { ird: 9, ord: 2, peerIrd: 2, peerOrd: 9 },
        parameters: { privateData: own, responderResources: 9, initiatorDepth: 2 },
      });
    }
  });

  it('the responder answers with what it grants', async () => {
    for (const littleEndian of [false, true]) {
      const { bench, peer } = await rawInitiatorUp(
        { policy: { ...policy, ird: 6, ord: 5 }, param: { privateData: own } },
        { revision: 1, privateData: header(2, 9, littleEndian) },
      );
      expect(peer.startup().frame).toMatchObject({ revision: 1, privateData: header(9, 2) });
      expect(bench.side.event('established')!.negotiated).toMatchObject({
        ird: 9,
        ord: 2,
        peerIrd: 2,
        peerOrd: 9,
      });
    }
  });

  it('octets that are no header are private data, and are answered without one', async () => {
    for (const privateData of [
      new Uint8Array(0),
      count(7),
      header(0, 4),
      header(4, 0),
      header(OPEN, 4),
      header(4, 0x1_0000),
    ]) {
      const { bench, peer } = await rawInitiatorUp(
        { policy: { ...policy, ird: 6, ord: 5 }, param: { privateData: own } },
        { revision: 1, privateData },
      );
      expect(peer.startup().frame.privateData).toEqual(own);
      expect(bench.side.event('established')!.negotiated).toMatchObject({
        ird: 6,
        ord: 5,
        peerIrd: undefined,
      });
      expect(bench.incoming[0]!.connection.parameters!.privateData).toEqual(privateData);
    }
  });

  it('a depth of 0 is sent as 1, so that the peer finds a header before its data (MPA-022)', async () => {
    const none = { responderResources: 0, initiatorDepth: 0, privateData: own };
    expect(rawResponder({ policy, param: none }).peer.startup().frame.privateData).toEqual(header(1, 1));
    const { bench, peer } = await rawInitiatorUp(
      { policy, param: none },
      { revision: 1, privateData: header(2, 9) },
    );
    expect(peer.startup().frame.privateData).toEqual(header(1, 1));
    expect(bench.side.event('established')!.negotiated).toMatchObject({ ird: 0, ord: 0 });
  });

  it('a rejection has a header if the Request had one: private data arrives whole (MPA-031)', async () => {
    const said = header(2, 9);
    const pair = await new Pair({
      client: { policy },
      server: { policy },
      onRequest: (connection) => connection.reject(said),
    }).connect();
    expect(pair.client.event('rejected')!.parameters.privateData).toEqual(said);
    const plain = await rawInitiatorUp(
      { policy, onRequest: (connection) => connection.reject(said) },
      { revision: 1 },
    );
    expect(plain.peer.startup().frame).toMatchObject({ reject: true, privateData: said });
  });

  it('takes room from the private data: 504 octets are left', () => {
    expect(rawResponder({ policy, param: { privateData: count(504) } }).peer.startup().frame.pdLength).toBe(
      512,
    );
    expect(() => rawResponder({ policy, param: { privateData: count(505) } })).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
    );
  });
});

describe('RTR as initiator', () => {
  it('it goes before the answers to an early peer, also if a Terminate follows (ENH-038/039)', () => {
    const { bench, peer } = rawResponder(quiet({ rtrOffered: ['write'] }));
    const { rkey } = bench.side.register(8);
    const read = (msn: number, sourceStag: number): Uint8Array =>
      untaggedUlpdu(
        { opcode: 1, qn: 1, msn },
        encodeReadRequest({ sinkStag: 1, sinkTo: 0n, size: 8, sourceStag, sourceTo: 0n }),
      );
    const reply = encodeStartup({ kind: 'reply', revision: 2, enhanced: PEER_ENHANCED });
    peer.claim(reply);
    peer.sendRaw([
      ...reply,
      ...encodeFpdus([read(1, rkey), read(2, rkey ^ 1)], { markers: false, crc: true, streamOffset: 0 }),
    ]);
    bench.settle();
    expect(peer.segments().map(({ opcode }) => opcode)).toEqual([0, 2, 7]);
  });

  it('A=1 with the bits of the offered kinds, per connection (ENH-028, ENH-049)', () => {
    for (let mask = 1; mask < 8; mask++) {
      const rtrOffered = KINDS.filter((_, i) => (mask & (1 << i)) !== 0);
      const { peer } = rawResponder({ policy: { rtrOffered } });
      expect(peer.startup().frame.enhanced).toMatchObject({ a: true, ...bits(rtrOffered) });
    }
  });

  it('A=0, and so B=C=D=0, for the client-server model (ENH-029, ENH-030, ENH-049)', () => {
    const { peer } = rawResponder({ policy: { peerToPeer: false, rtrOffered: KINDS } });
    expect(peer.startup().frame.enhanced).toMatchObject({ a: false, b: false, c: false, d: false });
    expect(peer.startup().problems).toEqual([]);
  });

  it.each(KINDS)(
    'an RTR of kind %s is the first FPDU, of zero length, and completes nothing (ENH-038/039/043/048)',
    (kind) => {
      const { bench, peer } = rawResponder(quiet({ rtrOffered: KINDS }));
      bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
      peer.reply({ revision: 2, enhanced: { ...PEER_ENHANCED, ...bits([kind]) } });
      bench.settle();
      expect(peer.segments().map((segment) => segment.opcode)).toEqual([RTR_OPCODE[kind], 3]);
      expect(peer.problems()).toEqual([]);
      const first = peer.segments()[0]!;
      expect(first.payload.length).toBe(0);
      if (kind === 'read') {
        expect(first).toMatchObject({ qn: 1, msn: 1, readRequest: { size: 0 } });
        peer.sendFpdus([taggedUlpdu({ opcode: 2, stag: 0, to: 0n })]);
        bench.settle();
      }
      if (kind === 'send') expect(peer.segments()).toMatchObject([{ msn: 1 }, { msn: 2 }]);
      expect(bench.side.sent().map((wc) => wc.wrId)).toEqual([1]);
      expect(bench.side.received()).toEqual([]);
      expect(bench.side.event('established')!.negotiated.rtr).toBe(kind);
    },
  );

  it('of several kinds in the Reply one we offered is taken (ENH-038)', () => {
    const { peer } = rawResponderUp(quiet({ rtrOffered: ['read'] }), {
      enhanced: { ...PEER_ENHANCED, b: true, c: true, d: true },
    });
    expect(peer.segments().map((segment) => segment.opcode)).toEqual([1]);
  });

  it('no kind we offered in the Reply: Terminate 2/0/07 as the first FPDU, then the end (ENH-040)', () => {
    for (const [offered, granted] of [
      [['write', 'read'], ['send']],
      [['read'], ['write']],
      [['write'], []],
    ] as [RtrKind[], RtrKind[]][]) {
      const { bench, peer } = rawResponder(quiet({ rtrOffered: offered }));
      bench.side.qp.postSend({ wrId: 1, opcode: 'send', sges: [] });
      peer.reply({ revision: 2, enhanced: { ...PEER_ENHANCED, ...bits(granted) } });
      bench.settle();
      expect(peer.terminates()).toEqual(['2/0/07']);
      expect(peer.fpdus().length).toBe(1);
      expect(peer.ending).toBe('fin');
      peer.end();
      bench.run();
      expect(bench.side.sent().map((wc) => wc.status)).toEqual(['flushed']);
    }
  });

  it('a Read RTR without a Read to spare (their IRD 0) counts as none (ENH-040, ENH-020)', () => {
    const { peer } = rawResponderUp(quiet({ rtrOffered: ['read'] }), {
      enhanced: { ...PEER_ENHANCED, c: false, d: true, ird: 0 },
    });
    expect(peer.terminates()).toEqual(['2/0/07']);
  });

  it('a Reply with A=0 to A=1 is the client-server model: no RTR, its bits B, C, D ignored (ENH-031)', () => {
    const { bench, peer } = rawResponderUp(quiet(), { enhanced: { ...CLIENT_SERVER, c: true, d: true } });
    expect(bench.side.event('established')!.negotiated.rtr).toBeNull();
    expect(peer.behind().length).toBe(0);
  });

  it('a Read RTR counts as outstanding: with ORD 1 the next Read waits and has MSN 2 (ENH-044/043)', () => {
    const { bench, peer } = rawResponderUp(quiet({ rtrOffered: ['read'], ord: 1 }), {
      enhanced: { ...PEER_ENHANCED, c: false, d: true },
    });
    const mr = bench.side.register(64);
    bench.side.qp.postSend({
      wrId: 1,
      opcode: 'rdma-read',
      sges: [{ mr, length: 4 }],
      rkey: 7,
      remoteAddr: 0,
    });
    bench.settle();
    expect(peer.segments()).toMatchObject([{ opcode: 1, msn: 1 }]);
    const { readRequest: rtr } = peer.segments()[0]!;
    peer.sendFpdus([taggedUlpdu({ opcode: 2, stag: rtr!.sinkStag, to: rtr!.sinkTo })]);
    bench.settle();
    expect(peer.segments()).toMatchObject([
      { opcode: 1, msn: 1 },
      { opcode: 1, msn: 2 },
    ]);
    expect(bench.side.sent()).toEqual([]);
    peer.sendFpdus([taggedUlpdu({ opcode: 2, stag: mr.lkey, to: 0n }, count(4, 1))]);
    bench.settle();
    expect(bench.side.sent()).toMatchObject([{ wrId: 1, status: 'success' }]);
    expect(mr.bytes.slice(0, 4)).toEqual(count(4, 1));
  });

  it('a Read RTR asks for an ORD of at least 1 (ENH-044)', () => {
    const { peer } = rawResponder({ policy: { ord: 0, rtrOffered: ['read'] } });
    expect(peer.startup().frame.enhanced).toMatchObject({ d: true, ord: 1 });
  });
});

describe('RTR as responder', () => {
  it('A=0 gives A=0, whatever B, C, D say, and no RTR is waited for (ENH-031, ENH-032)', async () => {
    const { bench, reply } = await replyTo({ ...CLIENT_SERVER, b: true, c: true, d: true });
    expect(reply).toMatchObject({ a: false, b: false, c: false, d: false });
    expect(bench.side.event('established')!.negotiated.rtr).toBeNull();
  });

  for (let asked = 0; asked < 8; asked++) {
    for (let able = 1; able < 8; able++) {
      const kindsOf = (mask: number): RtrKind[] => KINDS.filter((_, i) => (mask & (1 << i)) !== 0);
      const kinds = `${kindsOf(asked).join('+') || 'nothing'}, able to ${kindsOf(able).join('+')}`;
      it(`asked ${kinds} (ENH-032/033/034/035/036/037)`, async () => {
        const { reply } = await replyTo(
          { ...PEER_ENHANCED, ...bits(kindsOf(asked)) },
          { rtrAccepted: kindsOf(able) },
        );
        expect(reply.a).toBe(true);
        const granted = KINDS.filter((kind) => reply[RTR_BIT[kind]]);
        expect(granted.length).toBe(1);
        expect(kindsOf(able)).toContain(granted[0]);
        const common = kindsOf(asked & able);
        if (common.length > 0) expect(common).toContain(granted[0]);
        if (granted[0] === 'read') expect(reply.ird).toBeGreaterThan(0); // protocol-notes 3.2
      });
    }
  }

  it.each(KINDS)(
    'an RTR of kind %s opens our direction and shows nowhere: no completion, no receive used (ENH-041/045)',
    async (kind) => {
      const { bench, peer, reply } = await replyTo({ ...PEER_ENHANCED, ...bits([kind]) });
      expect(reply).toMatchObject(bits([kind]));
      const memory = bench.side.register(16);
      bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: memory, length: 16 }] });
      bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [] });
      bench.settle(1000);
      expect(peer.behind().length).toBe(0);
      peer.sendFpdus([RTR_ULPDU[kind]]);
      bench.settle();
      expect(peer.segments().filter((segment) => segment.opcode === 3)).toMatchObject([{ msn: 1 }]);
      expect(bench.side.received()).toEqual([]);
      expect(bench.side.sent().map((wc) => wc.wrId)).toEqual([2]);
      peer.sendFpdus([untaggedUlpdu({ opcode: 3, qn: 0, msn: kind === 'send' ? 2 : 1 }, count(9))]);
      bench.settle();
      expect(bench.side.received()).toMatchObject([{ wrId: 1, status: 'success', byteLength: 9 }]);
    },
  );

  it('a Read RTR of any STags gets a zero-length Read Response to the same sink (ENH-042)', async () => {
    for (const stag of [0, 1, 0xffff_ffff]) {
      const { bench, peer } = await replyTo({ ...PEER_ENHANCED, ...bits(['read']) });
      const ulpdu = readRequest(1, 0, stag);
      new DataView(ulpdu.buffer).setUint32(18, stag);
      new DataView(ulpdu.buffer).setUint32(26, 77);
      peer.sendFpdus([ulpdu]);
      bench.settle();
      expect(peer.segments()).toMatchObject([
        { opcode: 2, tagged: true, stag, to: 77n, last: true, payload: new Uint8Array(0) },
      ]);
      expect(peer.problems()).toEqual([]);
    }
  });

  it("an initiator's other FPDU instead of the RTR opens the direction as well (ENH-045)", async () => {
    const { bench, peer } = await replyTo({ ...PEER_ENHANCED, ...bits(['send']) });
    bench.side.qp.postRecv({ wrId: 1, sges: [{ mr: bench.side.register(8), length: 8 }] });
    bench.side.qp.postSend({ wrId: 2, opcode: 'send', sges: [] });
    peer.sendFpdus([untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, count(3))]);
    bench.settle();
    expect(bench.side.received()).toMatchObject([{ wrId: 1, byteLength: 3 }]);
    expect(peer.segments()).toMatchObject([{ opcode: 3 }]);
  });

  const SEND = (msn: number): Uint8Array => untaggedUlpdu({ opcode: 3, qn: 0, msn }, new Uint8Array(0));
  const FIRST: readonly (readonly [string, Uint8Array, number])[] = [
    ['a Write', RTR_ULPDU.write, 1],
    ['a Read Request', RTR_ULPDU.read, 1],
    ['a Send with octets', untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, count(3)), 2],
  ];
  it.each(FIRST)(
    'after %s in place of the Send as RTR, an empty Send is an ordinary message (ENH-039/041/048)',
    async (_, first, msn) => {
      const { bench, peer } = await replyTo({ ...PEER_ENHANCED, ...bits(['send']) });
      const memory = bench.side.register(16);
      for (const wrId of [1, 2]) bench.side.qp.postRecv({ wrId, sges: [{ mr: memory, length: 8 }] });
      peer.sendFpdus([first, SEND(msn)]);
      bench.settle();
      expect(bench.side.received().at(-1)).toMatchObject({ wrId: msn, status: 'success', byteLength: 0 });
    },
  );

  it('after a Write in its place, a Read is no RTR and may be refused (ENH-039, VERBS-142)', async () => {
    const { bench, peer } = await replyTo(
      { ...PEER_ENHANCED, ...bits(['read']) },
      {},
      { side: { qp: { inboundRead: false } } },
    );
    peer.sendFpdus([RTR_ULPDU.write, RTR_ULPDU.read]);
    bench.settle();
    expect(peer.segments()).toMatchObject([{ opcode: 7 }]);
    expect(peer.segments()[0]!.terminate).toMatchObject({ layer: 1, etype: 2, code: 1 });
  });

  it('a responder that fails the set-up says so by the Reply, not by an FPDU (ENH-046)', async () => {
    const { peer } = await replyTo({ ...PEER_ENHANCED, ird: 0 }, { requiredOrd: 1 });
    expect(peer.startup().frame.reject).toBe(true);
    expect(peer.behind().length).toBe(0);
  });

  it('a Reply lost to a reset fails the connection here too (ENH-047)', async () => {
    const { bench, peer } = await rawInitiator({ network: { latency: 10 } });
    peer.request({ revision: 2, enhanced: PEER_ENHANCED });
    bench.settle(12); // the Reply is on its way
    expect(bench.incoming.length).toBe(1);
    peer.reset();
    bench.run();
    expect(peer.received.length).toBe(0);
    expect(bench.side.events.at(-1)).toMatchObject({ type: 'disconnected', cause: 'reset' });
    expect(bench.side.qp.state).toBe('error');
  });
});

describe('octet for octet', () => {
  it('our Request and the Reply of our responder to it fit each other (ENH-003)', async () => {
    const { peer } = rawResponder({ policy: { ird: 3, ord: 5 } });
    const request = peer.received;
    const { bench, peer: other } = await rawInitiator({ policy: { ird: 7, ord: 9 } });
    other.claim(request);
    other.sendRaw(request);
    bench.settle();
    expect(other.received).toEqual(
      encodeStartup({
        kind: 'reply',
        revision: 2,
        enhanced: { a: true, b: false, c: false, d: true, ird: 7, ord: 3 },
      }),
    );
  });
});
