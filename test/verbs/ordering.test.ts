// Order: what waits for what on one queue pair, fences, memory operations. Verbs draft 8.2.2.
import { describe, expect, it } from 'vitest';
import { connectedPair } from '../support/pair.ts';
import { rawInitiatorUp, rawResponderUp } from '../support/raw-peer.ts';
import { taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import {
  codeOf,
  LOCAL_WRITE,
  outcomes,
  pattern,
  REMOTE_READ,
  secondConnection,
  terminateOf,
} from './support.ts';
import type { RawBench, RawPeer } from '../support/raw-peer.ts';
import type { QueuePair } from '../../src/verbs/index.ts';

/** Our stack connected to a scripted peer that answers nothing by itself. */
function scripted(ord = 4): {
  bench: RawBench;
  peer: RawPeer;
  qp: QueuePair;
  opcodes: () => number[];
  answer: () => void;
} {
  const { bench, peer } = rawResponderUp({ param: { initiatorDepth: ord } });
  let answered = 0;
  return {
    bench,
    peer,
    qp: bench.side.qp,
    opcodes: () => peer.segments().map((segment) => segment.opcode),
    /** Answer the oldest Read Request that has not been answered. */
    answer: () => {
      const request = peer.segments().filter((segment) => segment.readRequest !== undefined)[answered++]!
        .readRequest!;
      peer.sendFpdus([
        taggedUlpdu(
          { opcode: 2, stag: request.sinkStag, to: request.sinkTo },
          new Uint8Array(Number(request.size)).fill(answered),
        ),
      ]);
      bench.settle();
    },
  };
}

const OP = { write: 0, readRequest: 1, send: 3 } as const;

describe('one send queue', () => {
  it('work starts, goes out and completes in posting order, as receives do (VERBS-094/095)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(5000);
    const target = server.register(5000);
    server.qp.postRecv([10, 11, 12].map((wrId) => ({ wrId, sges: [{ mr: target }] })));
    client.qp.postSend([
      { wrId: 1, opcode: 'send', sges: [{ mr, length: 5000 }] },
      { wrId: 2, opcode: 'rdma-read', sges: [{ mr, length: 3000 }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 3, opcode: 'send', sges: [{ mr, length: 1 }] },
      { wrId: 4, opcode: 'rdma-write', sges: [{ mr, length: 10 }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 5, opcode: 'send' },
    ]);
    pair.run();
    expect(client.sent().map((wc) => wc.wrId)).toEqual([1, 2, 3, 4, 5]);
    expect(server.received().map((wc) => [wc.wrId, wc.byteLength])).toEqual([
      [10, 5000],
      [11, 1],
      [12, 0],
    ]);
  });

  it('a receive posted in Closing completes after the half-received message (VERBS-058/095)', () => {
    const { bench, peer, qp, answer } = scripted();
    const mr = bench.side.register(64);
    qp.postRecv({ wrId: 10, sges: [{ mr }] });
    // A Read without an answer keeps the close from going through.
    qp.postSend({ wrId: 1, opcode: 'rdma-read', sges: [{ mr, length: 8 }], rkey: 0x100, remoteAddr: 0 });
    bench.settle();
    peer.sendFpdus([untaggedUlpdu({ opcode: OP.send, qn: 0, msn: 1, last: false }, pattern(8))]);
    bench.settle();
    qp.modify({ state: 'closing' });
    qp.postRecv({ wrId: 11, sges: [{ mr }] });
    expect(bench.side.received()).toEqual([]);
    peer.sendFpdus([untaggedUlpdu({ opcode: OP.send, qn: 0, msn: 1, mo: 8 }, pattern(8))]);
    bench.settle();
    answer();
    expect(outcomes(bench.side.received())).toEqual(['10 success', '11 flushed']);
  });

  it('when a receive completes, all earlier Sends and Writes are in place (VERBS-096)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const target = server.register(40_000);
    const sink = server.register(40_000);
    const mr = client.register(pattern(40_000));
    server.qp.postRecv([{ sges: [{ mr: sink }] }, {}]);
    let seen: boolean[] = [];
    server.recvCq.setHandler((cq) => {
      seen = [Buffer.compare(target.bytes, mr.bytes) === 0, Buffer.compare(sink.bytes, mr.bytes) === 0];
      expect(cq.length).toBeGreaterThan(0);
    });
    server.recvCq.requestNotify('solicited');
    client.qp.postSend([
      { opcode: 'rdma-write', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 },
      { opcode: 'send', sges: [{ mr }] },
      { opcode: 'send', solicited: true },
    ]);
    pair.run();
    expect(seen).toEqual([true, true]);
  });

  it('a Read sees every Write in front of it, and comes after every Send (VERBS-097)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const target = server.register(8);
    server.qp.postRecv({ wrId: 7 });
    const sink = client.register(8);
    let received = 0;
    client.sendCq.setHandler(() => (received = server.recvCq.length));
    client.sendCq.requestNotify();
    client.qp.postSend([
      { opcode: 'rdma-write', inline: pattern(8), rkey: target.rkey, remoteAddr: 0, signaled: false },
      { opcode: 'send', signaled: false },
      { opcode: 'rdma-read', sges: [{ mr: sink }], rkey: target.rkey, remoteAddr: 0 },
    ]);
    pair.run();
    expect([sink.bytes, received]).toEqual([pattern(8), 1]);
  });

  it('at most ORD requests are out; the excess one waits, and all after it too (VERBS-071/072)', () => {
    const { qp, bench, opcodes, answer } = scripted(1);
    const mr = bench.side.register(16);
    const read = (wrId: number) =>
      ({
        wrId,
        opcode: 'rdma-read',
        sges: [{ mr, offset: wrId * 8, length: 8 }],
        rkey: 1,
        remoteAddr: 0,
      }) as const;
    qp.postSend([read(0), read(1), { wrId: 2, opcode: 'send' }]);
    bench.settle();
    expect(opcodes()).toEqual([OP.readRequest]);
    answer();
    expect(opcodes()).toEqual([OP.readRequest, OP.readRequest, OP.send]);
    expect(outcomes(bench.side.sent())).toEqual(['0 success']);
    answer();
    expect(outcomes(bench.side.sent())).toEqual(['1 success', '2 success']);
    expect([mr.bytes[0], mr.bytes[8]]).toEqual([1, 2]);
  });

  it('a Send after a Read goes out before the answer, unless it is fenced (VERBS-077, VERBS-098)', () => {
    const { qp, bench, opcodes, answer } = scripted();
    qp.postSend([
      { wrId: 1, opcode: 'rdma-read', rkey: 0, remoteAddr: 0 },
      { wrId: 2, opcode: 'send' },
      { wrId: 3, opcode: 'rdma-write', rkey: 0, remoteAddr: 0, fence: true },
      { wrId: 4, opcode: 'send' },
    ]);
    bench.settle();
    expect(opcodes()).toEqual([OP.readRequest, OP.send]);
    answer();
    expect(opcodes()).toEqual([OP.readRequest, OP.send, OP.write, OP.send]);
    expect(bench.side.sent().map((wc) => wc.wrId)).toEqual([1, 2, 3, 4]);
  });

  it('a Read with ORD 0 completes in error (VERBS-073, VERBS-111)', async () => {
    const pair = await connectedPair({
      client: { param: { initiatorDepth: 0 }, policy: { rtrOffered: ['write'] } },
    });
    const { client } = pair;
    client.qp.postSend([
      { wrId: 1, opcode: 'rdma-read', rkey: 0, remoteAddr: 0 },
      { wrId: 2, opcode: 'send' },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 zero-read-resources', '2 flushed']);
    expect(terminateOf(pair.server.qp)).toBe('0/0/00');
  });

  it('ORD may be lowered in Idle and in RTS, and others do not notice (VERBS-024, VERBS-076)', async () => {
    const pair = await connectedPair({ client: { param: { initiatorDepth: 4 } } });
    const { client } = pair;
    const other = secondConnection(pair, client.createQp(), pair.server.createQp());
    const mr = client.register(8);
    const target = pair.server.register(8);
    const reads = (n: number) =>
      Array.from(
        { length: n },
        (_, wrId) =>
          ({ wrId, opcode: 'rdma-read', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 }) as const,
      );
    other.client.postSend(reads(4));
    other.client.modify({ ord: 1 });
    pair.run();
    expect(other.client.query().ord).toBe(1);
    expect(client.sent().every((wc) => wc.status === 'success')).toBe(true);
    expect(codeOf(() => other.client.modify({ ord: 2 }))).toBe('ERR_INVALID_ARGUMENT');
    other.client.postSend(reads(3));
    pair.run();
    expect(client.sent()).toHaveLength(3);
    const fresh = client.createQp();
    fresh.modify({ ord: 2 });
    const third = secondConnection(pair, fresh);
    expect(third.client.query().ord).toBeLessThanOrEqual(2);
  });
});

describe('memory operations in the queue', () => {
  it('an invalidation with a local fence waits for all work in front (VERBS-099)', () => {
    const { qp, bench, answer } = scripted();
    const mr = bench.side.register(8);
    qp.postSend([
      { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 },
      { wrId: 2, opcode: 'local-invalidate', target: mr, fence: true },
    ]);
    bench.settle();
    expect(mr.valid).toBe(true);
    answer();
    expect(outcomes(bench.side.sent())).toEqual(['1 success', '2 success']);
    expect(mr.valid).toBe(false);
  });

  it('one that waits for a Send to leave is not sent itself (VERBS-099, VERBS-104)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(8);
    server.qp.postRecv({ wrId: 1, sges: [{ mr: server.register(8) }] });
    client.qp.postSend([
      { wrId: 1, opcode: 'send', sges: [{ mr }], signaled: false },
      { wrId: 2, opcode: 'local-invalidate', target: mr, fence: true },
      { wrId: 3, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['2 success', '3 success']);
    expect([mr.valid, server.qp.state]).toEqual([false, 'rts']);
  });

  it('several with fences in a row do not wait for each other for ever (VERBS-099)', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const regions = [1, 2, 3].map(() => client.register(8));
    client.qp.postSend([
      { wrId: 0, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 },
      ...regions.map(
        (target, i) => ({ wrId: i + 1, opcode: 'local-invalidate', target, fence: true }) as const,
      ),
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['0 success', '1 success', '2 success', '3 success']);
  });

  it('without a fence it may precede the response, which then has no sink (VERBS-099)', () => {
    const { qp, bench, answer } = scripted();
    const mr = bench.side.register(8);
    qp.postSend([
      { wrId: 1, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 },
      { wrId: 2, opcode: 'local-invalidate', target: mr },
    ]);
    bench.settle();
    expect(mr.valid).toBe(false);
    answer();
    bench.run();
    // In order: the Read, which failed, then the invalidation, which had been done when everything ended.
    expect(outcomes(bench.side.sent())[0]).toBe('1 local-protection-error');
  });

  it('a bind, registration or invalidation in front holds for everything after (VERBS-100)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(pattern(64), LOCAL_WRITE | 16);
    const mw = client.pd.allocateMw();
    const target = server.register(8);
    server.qp.postRecv({ wrId: 1, sges: [{ mr: target }] });
    const ticket = new Uint8Array(4);
    client.qp.postSend({ opcode: 'bind-mw', mw, mr, access: REMOTE_READ });
    new DataView(ticket.buffer).setUint32(0, mw.rkey);
    client.qp.postSend({ opcode: 'send', inline: ticket });
    const sink = server.register(64);
    server.recvCq.setHandler(() => {
      const rkey = new DataView(target.bytes.buffer).getUint32(0);
      server.qp.postSend({ wrId: 2, opcode: 'rdma-read', sges: [{ mr: sink }], rkey, remoteAddr: 0 });
    });
    server.recvCq.requestNotify();
    pair.run();
    expect(outcomes(server.sent())).toEqual(['2 success']);
    expect(sink.bytes).toEqual(pattern(64));
    client.qp.postSend([
      { opcode: 'local-invalidate', target: mw },
      { opcode: 'rdma-write', inline: ticket, rkey: target.rkey, remoteAddr: 4 },
    ]);
    pair.run();
    expect(target.bytes.subarray(4)).toEqual(ticket);
    server.qp.postSend({ wrId: 3, opcode: 'rdma-read', sges: [{ mr: sink }], rkey: mw.rkey, remoteAddr: 0 });
    pair.run();
    expect(outcomes(server.sent())).toEqual(['3 remote-access-error']);
  });

  it('a responder that must be silent works on its own memory, sends nothing (VERBS-104)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const mr = bench.side.register(8);
    bench.side.qp.postSend([
      { wrId: 1, opcode: 'local-invalidate', target: mr },
      { wrId: 2, opcode: 'send' },
    ]);
    bench.settle();
    expect(outcomes(bench.side.sent())).toEqual(['1 success']);
    expect([mr.valid, peer.fpdus()]).toEqual([false, []]);
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 0, to: 0n })]);
    bench.settle();
    expect(peer.segments().map((segment) => segment.opcode)).toEqual([OP.send]);
  });

  it('the first failure there is the last work, though no Terminate goes (VERBS-057/056/104)', async () => {
    const { bench, peer } = await rawInitiatorUp();
    const { side } = bench;
    const [first, second, third] = [side.register(8), side.register(8), side.register(8)];
    side.qp.postSend(
      [first, second, third].map((target, i) => ({
        wrId: i + 1,
        opcode: 'local-invalidate' as const,
        target,
      })),
    );
    first.deregister();
    second.deregister();
    bench.settle();
    expect([third.valid, peer.fpdus(), peer.ending]).toEqual([true, [], 'fin']);
    peer.sendFpdus([taggedUlpdu({ opcode: 0, stag: 0, to: 0n })]); // too late
    side.qp.postSend({ wrId: 4, opcode: 'local-invalidate', target: third });
    bench.settle();
    peer.end();
    bench.run();
    expect(outcomes(side.sent())).toEqual([
      '1 local-invalidate-error',
      '2 flushed',
      '3 flushed',
      '4 flushed',
    ]);
    expect([third.valid, side.qp.state, peer.fpdus()]).toEqual([true, 'error', []]);
  });
});

describe('what one operation sees of another', () => {
  it('Write, empty Read, fenced Write: the second Write follows the placed first (VERBS-105)', () => {
    const { qp, bench, opcodes, answer } = scripted();
    qp.postSend([
      { opcode: 'rdma-write', inline: pattern(4), rkey: 9, remoteAddr: 0 },
      { opcode: 'rdma-read', rkey: 0, remoteAddr: 0 },
      { opcode: 'rdma-write', inline: pattern(4), rkey: 9, remoteAddr: 4, fence: true },
    ]);
    bench.settle();
    expect(opcodes()).toEqual([OP.write, OP.readRequest]);
    answer();
    expect(opcodes()).toEqual([OP.write, OP.readRequest, OP.write]);
  });

  it('Reads and atomics are answered in the order asked (VERBS-097, EXT-043)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const target = server.register(64);
    const mr = client.register(64);
    const remote = { rkey: target.rkey, remoteAddr: 0 } as const;
    client.qp.postSend([
      { opcode: 'rdma-read', sges: [{ mr, offset: 0, length: 8 }], ...remote },
      { opcode: 'atomic-fetch-add', sges: [{ mr, offset: 8, length: 8 }], add: 5, ...remote },
      { opcode: 'rdma-read', sges: [{ mr, offset: 16, length: 8 }], ...remote },
      { opcode: 'atomic-cmp-swap', sges: [{ mr, offset: 24, length: 8 }], compare: 5, swap: 9, ...remote },
      { opcode: 'rdma-read', sges: [{ mr, offset: 32, length: 8 }], ...remote },
    ]);
    pair.run();
    expect(client.sent().every((wc) => wc.status === 'success')).toBe(true);
    const [first, add, second, swap, third] = new BigUint64Array(mr.bytes.buffer, 0, 5);
    // Atomics act when they arrive, in order. A Read in front of one may see what it did, one after it must.
    expect([add, swap, third]).toEqual([0n, 5n, 9n]);
    expect([0n, 5n, 9n]).toContain(first);
    expect([5n, 9n]).toContain(second);
  });
});
