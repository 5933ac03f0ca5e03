// The five states of a queue pair: Modify, what the network does, flushing, events. Verbs draft 6.2.
import { describe, expect, it } from 'vitest';
import { TRANSMIT_BUFFER_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { QP_INPUTS, QP_STATES, QP_TABLE } from '../../src/verbs/qp-states.ts';
import type { QpState, QueuePair } from '../../src/verbs/index.ts';
import { encodeStartup, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import { connectedPair, Pair } from '../support/pair.ts';
import { tableSteps } from '../support/table-steps.ts';
import { rawInitiatorUp, rawResponder, type RawBench, type RawPeer } from '../support/raw-peer.ts';
import { codeOf, eventTypes, outcomes, pattern } from './support.ts';

const nothing = { opcode: 'rdma-write', rkey: 0, remoteAddr: 0 } as const;

/** A queue pair in the state asked for, with the pair it belongs to. */
async function inState(state: QpState): Promise<{ pair: Pair; qp: QueuePair }> {
  if (state === 'idle') {
    const pair = new Pair();
    return { pair, qp: pair.client.qp };
  }
  const pair = await connectedPair();
  const { qp } = pair.client;
  if (state === 'error') {
    qp.modify({ state });
    pair.run();
  } else if (state !== 'rts') {
    qp.modify({ state });
  }
  expect(qp.state).toBe(state);
  return { pair, qp };
}

/** Our stack, connected to a scripted peer, with its direction open. */
async function operational(): Promise<{ bench: RawBench; peer: RawPeer; qp: QueuePair }> {
  const { bench, peer } = await rawInitiatorUp();
  peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 0, to: 0n })]);
  bench.settle();
  return { bench, peer, qp: bench.side.qp };
}

describe('Modify', () => {
  const LEGAL: Readonly<Record<QpState, readonly QpState[]>> = {
    idle: ['idle', 'error'],
    rts: ['rts', 'closing', 'terminate', 'error'],
    closing: [],
    terminate: [],
    error: ['idle'],
  };
  for (const from of QP_STATES) {
    it(`from ${from} just the draft's transitions, others change nothing (VERBS-022/021/020)`, async () => {
      for (const to of QP_STATES) {
        const { pair, qp } = await inState(from);
        const code = codeOf(() => qp.modify({ state: to }));
        expect(code, `${from} to ${to}`).toBe(LEGAL[from].includes(to) ? 'nothing' : 'ERR_INVALID_STATE');
        expect(qp.state).toBe(LEGAL[from].includes(to) ? to : from);
        pair.run();
      }
    });
  }

  it('of several changes none is made if one is wrong (VERBS-021)', async () => {
    const { qp } = await inState('rts');
    const before = qp.query();
    expect(codeOf(() => qp.modify({ maxSendWr: 3, rqLimit: 2, state: 'idle' }))).toBe('ERR_INVALID_STATE');
    expect(codeOf(() => qp.modify({ state: 'error', ord: -1 }))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => qp.modify({ state: 'elsewhere' as never }))).toBe('ERR_INVALID_ARGUMENT');
    expect(qp.query()).toEqual(before);
  });

  it('in Closing and Terminate every Modify fails, attributes alone too (VERBS-023)', async () => {
    for (const state of ['closing', 'terminate'] as const) {
      const { qp } = await inState(state);
      expect(codeOf(() => qp.modify({ ord: 0 }))).toBe('ERR_INVALID_STATE');
      expect(codeOf(() => qp.modify({ maxSendWr: 9 }))).toBe('ERR_INVALID_STATE');
    }
  });

  it('Idle to RTS needs a stream, so Modify alone cannot do it (VERBS-033)', async () => {
    const { qp } = await inState('idle');
    expect(codeOf(() => qp.modify({ state: 'rts' }))).toBe('ERR_INVALID_STATE');
  });

  it('to Terminate sends 0/0/00 without headers, closes, ends in Error (VERBS-047, VERBS-051)', async () => {
    const { bench, peer, qp } = await operational();
    qp.modify({ state: 'terminate' });
    expect(qp.state).toBe('terminate');
    bench.settle();
    expect(peer.terminates()).toEqual(['0/0/00']);
    expect(peer.segments().at(-1)!.terminate).toMatchObject({ m: false, d: false, r: false });
    expect(peer.ending).toBe('fin');
    peer.end();
    bench.run();
    expect(qp.state).toBe('error');
  });

  it('to Error resets without a Terminate (VERBS-054, VERBS-068)', async () => {
    const { bench, peer, qp } = await operational();
    qp.modify({ state: 'error' });
    expect(qp.state).toBe('error');
    bench.settle();
    expect([peer.ending, peer.terminates()]).toEqual(['reset', []]);
    expect(qp.counters()).toBeUndefined(); // VERBS-060
  });

  it('to Closing ends with FIN, no Terminate, flushes, then Idle (VERBS-041/042/060)', async () => {
    const { bench, peer, qp } = await operational();
    qp.postRecv({ wrId: 4 });
    qp.modify({ state: 'closing' });
    bench.settle();
    expect([peer.ending, peer.terminates(), qp.state]).toEqual(['fin', [], 'closing']);
    expect(outcomes(bench.side.received())).toEqual(['4 flushed']);
    peer.end();
    bench.run();
    expect(qp.state).toBe('idle');
    expect(eventTypes(bench.side.asyncEvents).at(-1)).toBe('llp-close-complete');
    expect(qp.counters()).toBeUndefined();
  });

  it('Error to Idle fails while the connection lives, works when all is flushed (VERBS-059)', async () => {
    const pair = await connectedPair();
    const { qp } = pair.client;
    qp.postRecv({ wrId: 1 });
    qp.modify({ state: 'error' });
    expect(codeOf(() => qp.modify({ state: 'idle' }))).toBe('ERR_INVALID_STATE');
    pair.run();
    qp.modify({ state: 'idle' });
    expect([qp.state, qp.query().terminate]).toEqual(['idle', undefined]);
    expect(outcomes(pair.client.received())).toEqual(['1 flushed']);
  });
});

describe('work in each state', () => {
  it('posted in Idle it waits, gives no completion, and is done once connected (VERBS-031)', async () => {
    const pair = new Pair();
    const { client, server } = pair;
    server.qp.postRecv({ wrId: 1 });
    client.qp.postSend({ wrId: 2, opcode: 'send' });
    pair.run();
    expect([client.sendCq.length, server.recvCq.length, pair.wire().fromClient.length]).toEqual([0, 0, 0]);
    await pair.connect();
    expect(outcomes(client.sent())).toEqual(['2 success']);
    expect(outcomes(server.received())).toEqual(['1 success']);
  });

  it('Idle to Error flushes everything posted (VERBS-037, VERBS-056)', () => {
    const { client } = new Pair();
    client.qp.postSend([
      { ...nothing, wrId: 1 },
      { ...nothing, wrId: 2, signaled: false },
    ]);
    client.qp.postRecv([{ wrId: 3 }, { wrId: 4 }]);
    client.qp.modify({ state: 'error' });
    expect(outcomes(client.sent())).toEqual(['1 flushed', '2 flushed']);
    expect(outcomes(client.received())).toEqual(['3 flushed', '4 flushed']);
  });

  for (const state of ['closing', 'terminate', 'error'] as const) {
    it(`posted in ${state} it is flushed, sends and receives alike (VERBS-058)`, async () => {
      const { pair, qp } = await inState(state);
      const before = pair.wire().fromClient.length;
      qp.postSend({ wrId: 1, opcode: 'send', inline: pattern(50) });
      qp.postRecv({ wrId: 2 });
      pair.run();
      expect(outcomes(pair.client.sent())).toEqual(['1 flushed']);
      expect(outcomes(pair.client.received())).toEqual(['2 flushed']);
      expect(pair.wire().fromClient.length - before).toBeLessThan(50);
    });
  }

  it('in RTS posted work goes out in order and incoming messages are taken (VERBS-038)', async () => {
    const { bench, peer, qp } = await operational();
    qp.postRecv({ wrId: 1 });
    qp.postSend([{ opcode: 'send' }, { ...nothing }]);
    peer.sendFpdus([untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 })]);
    bench.settle();
    expect(peer.segments().map((segment) => segment.opcode)).toEqual([3, 0]);
    expect(outcomes(bench.side.received())).toEqual(['1 success']);
  });

  it('the request at fault has its error, all others are flushed (VERBS-049/056/057)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(64);
    const target = server.register(64);
    client.qp.postRecv([{ wrId: 10 }, { wrId: 11 }]);
    client.qp.postSend([
      { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 2, opcode: 'rdma-read', sges: [{ mr }], rkey: target.rkey, remoteAddr: 1 },
      { wrId: 3, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 },
      { wrId: 4, opcode: 'send', fence: true },
    ]);
    pair.run();
    const statuses = [...client.sent(), ...client.received()].map((wc) => `${wc.wrId} ${wc.status}`);
    expect(statuses).toEqual([
      '1 success',
      '2 remote-access-error',
      '3 flushed',
      '4 flushed',
      '10 flushed',
      '11 flushed',
    ]);
  });
});

describe('what the network does', () => {
  it('a FIN with nothing outstanding is answered; event, receives flushed, Idle (VERBS-039)', async () => {
    const { bench, peer, qp } = await operational();
    qp.postRecv({ wrId: 1 });
    peer.end();
    bench.run();
    expect([peer.ending, peer.terminates(), qp.state]).toEqual(['closed', [], 'idle']);
    expect(eventTypes(bench.side.asyncEvents)).toEqual(['llp-closing', 'llp-close-complete']);
    expect(outcomes(bench.side.received())).toEqual(['1 flushed']);
  });

  it('a FIN with work left is a Bad LLP Close: Terminate 0/2/07, then Error (VERBS-040)', async () => {
    const { bench, peer, qp } = await operational();
    qp.postSend({ wrId: 1, opcode: 'rdma-read', rkey: 0, remoteAddr: 0 });
    bench.settle();
    peer.end();
    bench.run();
    expect(peer.terminates()).toEqual(['0/2/07']);
    expect([qp.state, outcomes(bench.side.sent())]).toEqual(['error', ['1 flushed']]);
    expect(eventTypes(bench.side.asyncEvents)).toContain('terminate-sent');
  });

  it('a segment that comes after our FIN leads to a reset, Bad Close, Error (VERBS-043)', async () => {
    const { bench, peer, qp } = await operational();
    qp.modify({ state: 'closing' });
    bench.settle();
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 0, to: 0n })]);
    bench.run();
    expect([peer.ending, qp.state]).toEqual(['reset', 'error']);
    expect(eventTypes(bench.side.asyncEvents)).toContain('bad-close');
  });

  it('a peer that never answers FIN is reset at the time-out: Error (VERBS-044/045)', async () => {
    const { bench, peer, qp } = await operational();
    const from = bench.time.now();
    qp.modify({ state: 'closing' });
    bench.run();
    expect([peer.ending, qp.state]).toEqual(['reset', 'error']);
    expect(eventTypes(bench.side.asyncEvents)).toContain('llp-connection-lost');
    expect(bench.time.now() - from).toBeLessThan(60_000);
  });

  it('a peer that answers FIN with a reset: connection lost, Error, not graceful (VERBS-044)', async () => {
    const { bench, peer, qp } = await operational();
    peer.pause();
    qp.postSend({ opcode: 'send', wrId: 1, sges: [{ mr: bench.side.register(8) }] });
    qp.modify({ state: 'closing' });
    bench.settle();
    expect(bench.side.sent()).toMatchObject([{ wrId: 1, status: 'success' }]);
    peer.reset();
    bench.run();
    expect(qp.state).toBe('error');
    expect(eventTypes(bench.side.asyncEvents)).toContain('llp-connection-lost');
    expect(bench.side.event('disconnected')).toMatchObject({
      cause: 'reset',
      error: { code: 'ERR_CONNECTION_RESET' },
    });
  });

  it('nor does Terminate last for ever (VERBS-045, VERBS-051)', async () => {
    const { bench, peer, qp } = await operational();
    qp.modify({ state: 'terminate' });
    bench.run();
    expect([peer.ending, peer.terminates(), qp.state]).toEqual(['reset', ['0/0/00'], 'error']);
  });

  it('a Terminate that comes while closing ends in Error, not in Idle (VERBS-046)', async () => {
    const pair = await connectedPair();
    pair.client.qp.modify({ state: 'closing' });
    pair.server.qp.modify({ state: 'terminate' });
    pair.run();
    expect([pair.client.qp.state, pair.server.qp.state]).toEqual(['error', 'error']);
  });

  it('an error makes RTS Terminate; the first counts, nothing after it (VERBS-048/053/065/066)', async () => {
    const { bench, peer, qp } = await operational();
    const mr = bench.side.register(8);
    qp.postRecv({ wrId: 1 });
    peer.sendFpdus([
      taggedUlpdu({ opcode: 0, stag: 7, to: 0n }, pattern(8)),
      taggedUlpdu({ opcode: 0, stag: mr.rkey, to: 0n }, pattern(8)),
      untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }),
      untaggedUlpdu({ opcode: 3, qn: 5, msn: 1 }),
    ]);
    bench.settle();
    expect(qp.state).toBe('terminate');
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: mr.rkey, to: 0n }, pattern(8))]);
    bench.settle();
    expect(peer.terminates()).toEqual(['1/1/00']);
    expect(mr.bytes.every((octet) => octet === 0)).toBe(true);
    peer.end();
    bench.run();
    expect([qp.state, outcomes(bench.side.received())]).toEqual(['error', ['1 flushed']]);
  });

  it('a Terminate received is reported, kept, never answered (VERBS-050/068/029/121)', async () => {
    const { bench, peer, qp } = await operational();
    peer.sendFpdus([untaggedUlpdu({ opcode: 7, qn: 2, msn: 1 }, Uint8Array.of(0x02, 0x07, 0, 0))]);
    bench.settle();
    expect(qp.state).toBe('terminate');
    expect([peer.ending, peer.terminates()]).toEqual(['fin', []]);
    expect(qp.query().terminate).toMatchObject({ origin: 'remote', layer: 0, type: 2, code: 7 });
    expect(bench.side.asyncEvents).toMatchObject([{ type: 'terminate-received', qp }]);
    peer.end();
    bench.run();
    expect([qp.state, qp.query().terminate?.origin]).toEqual(['error', 'remote']);
  });

  it('one that was sent is kept as well, with its origin (VERBS-029)', async () => {
    const { pair, qp } = await inState('terminate');
    pair.run();
    expect(qp.query().terminate).toMatchObject({ origin: 'local', layer: 0, type: 0, code: 0 });
  });

  it('a reset during Terminate ends in Error (VERBS-052)', async () => {
    const { bench, peer, qp } = await operational();
    qp.modify({ state: 'terminate' });
    bench.settle();
    peer.reset();
    bench.run();
    expect(qp.state).toBe('error');
  });

  it('a reset in RTS is Error with an event, and no Terminate is tried (VERBS-055/068/121)', async () => {
    const { bench, peer, qp } = await operational();
    qp.postRecv({ wrId: 1 });
    peer.reset();
    bench.run();
    expect(qp.state).toBe('error');
    expect(bench.side.asyncEvents).toMatchObject([{ type: 'llp-connection-reset', qp }]);
    expect([outcomes(bench.side.received()), peer.terminates()]).toEqual([['1 flushed'], []]);
  });

  it('used again, a queue pair starts from MSN 1 and marker position 0 (VERBS-034)', async () => {
    const pair = await connectedPair({
      client: { policy: { markers: true } },
      server: { policy: { markers: true } },
    });
    const { client, server } = pair;
    for (let round = 0; round < 3; round++) {
      const mr = server.register(3000);
      server.qp.postRecv([
        { wrId: 1, sges: [{ mr }] },
        { wrId: 2, sges: [{ mr }] },
      ]);
      client.qp.postSend([
        { opcode: 'send', sges: [{ mr: client.register(pattern(3000, round)) }] },
        { opcode: 'send' },
      ]);
      pair.run();
      expect(outcomes(server.received())).toEqual(['1 success', '2 success']);
      expect(mr.bytes).toEqual(pattern(3000, round));
      client.qp.modify({ state: 'closing' });
      pair.run();
      expect([client.qp.state, server.qp.state]).toEqual(['idle', 'idle']);
      client.sent();
      pair.connectClient();
      pair.run();
      expect([client.qp.state, server.qp.state]).toEqual(['rts', 'rts']);
    }
  });

  it('what the program gives for streaming mode goes first, then FPDUs (VERBS-035)', async () => {
    const { bench, peer } = await rawInitiatorUp({ param: { privateData: Uint8Array.of(1, 2, 3) } });
    bench.side.qp.postSend({ opcode: 'send' });
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 0, to: 0n })]);
    bench.settle();
    expect(peer.startup().frame.privateData).toEqual(Uint8Array.of(1, 2, 3));
    expect(peer.segments().map((segment) => segment.opcode)).toEqual([3]);
  });

  it('an FPDU that comes with the last start-up octets is not lost (VERBS-036)', async () => {
    const { bench, peer } = rawResponder();
    bench.side.qp.postRecv({ wrId: 1 });
    const reply = encodeStartup({ kind: 'reply', revision: 1 });
    peer.claim(reply);
    peer.sendRaw([...reply, ...peer.encode([untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 })])]);
    bench.settle();
    expect(outcomes(bench.side.received())).toEqual(['1 success']);
  });

  it('an error in a long Write: the Terminate replaces its next segment (VERBS-062/063/169)', async () => {
    const { bench, peer, qp } = await operational();
    const mr = bench.side.register(8 * TRANSMIT_BUFFER_OCTETS); // more than is on its way at a time
    qp.postSend({ wrId: 1, opcode: 'rdma-write', sges: [{ mr }], rkey: 9, remoteAddr: 0 });
    peer.pause();
    bench.settle(2);
    mr.deregister();
    peer.resume();
    bench.settle();
    const segments = peer.segments();
    expect(segments.slice(0, -1).every((segment) => segment.opcode === 0 && !segment.last)).toBe(true);
    expect([segments.length > 2, peer.terminates(), peer.problems()]).toEqual([true, ['0/0/00'], []]);
    peer.end();
    bench.run();
    expect(outcomes(bench.side.sent())).toEqual(['1 local-protection-error']);
  });

  it('the Terminate for an incoming segment returns its header and length (VERBS-067)', async () => {
    const { bench, peer } = await operational();
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 0xabcd, to: 77n }, pattern(5))]);
    bench.settle();
    expect(peer.segments().at(-1)!.terminate).toMatchObject({
      m: true,
      d: true,
      segmentLength: 19,
      ddpHeader: { tagged: true, stag: 0xabcd, to: 77n },
    });
  });

  it('the Read that a Terminate names gets its reason, other work is flushed (VERBS-112)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(8);
    const target = server.register(8);
    client.qp.postSend([
      { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 },
      { wrId: 2, opcode: 'rdma-read', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 remote-access-error', '2 flushed']);
  });
});

describe('the table', () => {
  it('every listed state leads to listed states only (VERBS-020)', () => {
    expect(QP_INPUTS).toEqual([
      'attach',
      'llp-close',
      'terminate',
      'fail',
      'llp-closed',
      'reset',
      'modify-error',
    ]);
    expect(tableSteps(QP_TABLE, QP_STATES, QP_INPUTS)).toEqual({
      idle: 'rts · · error · · error',
      rts: '· closing terminate error · · error',
      closing: '· · terminate error idle · ·',
      terminate: '· · · error · · ·',
      error: '· · · error · idle ·',
    });
  });
});
