// Posting: lists, limits, scatter/gather, signaling, the life of a queue entry. Verbs draft 8.1, 8.2.1,
// 9.3.1.
import { describe, expect, it } from 'vitest';
import { PostError, type SendWorkRequest, type WorkCompletion } from '../../src/verbs/index.ts';
import { connectedPair, Pair } from '../support/pair.ts';
import { codeOf, LOCAL_WRITE, outcomes, pattern, REMOTE_READ, REMOTE_WRITE, terminateOf } from './support.ts';

const nothing: SendWorkRequest = { opcode: 'rdma-write', rkey: 0, remoteAddr: 0 };

function postError(call: () => unknown): PostError {
  try {
    call();
  } catch (error) {
    if (error instanceof PostError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

describe('lists', () => {
  it('posted in order up to the first mistake; the error has the count (VERBS-090/122)', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const error = postError(() =>
      client.qp.postSend([
        { ...nothing, wrId: 1 },
        { ...nothing, wrId: 2 },
        { ...nothing, wrId: 3, rkey: -1 },
        { ...nothing, wrId: 4 },
      ]),
    );
    expect([error.code, error.posted, error.message.startsWith('requests[2].rkey')]).toEqual([
      'ERR_INVALID_ARGUMENT',
      2,
      true,
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 success', '2 success']);
    const receives = postError(() => client.qp.postRecv([{ wrId: 1 }, { wrId: -1 }]));
    expect([receives.code, receives.posted, client.qp.query().recvPosted]).toEqual([
      'ERR_INVALID_ARGUMENT',
      1,
      1,
    ]);
    const srq = client.pd.createSrq({ maxWr: 2 });
    expect(postError(() => srq.postRecv([{}, {}, {}]))).toMatchObject({ code: 'ERR_QUEUE_FULL', posted: 2 });
    expect(client.qp.postSend([])).toBe(0);
    expect(client.qp.postSend([nothing, nothing])).toBe(2);
    expect(client.qp.postRecv({})).toBe(1);
  });

  it('a full queue takes nothing; of a list as much as fits (VERBS-091)', () => {
    const { client } = new Pair({ client: { qp: { maxSendWr: 3, maxRecvWr: 2 } } });
    expect(postError(() => client.qp.postSend([nothing, nothing, nothing, nothing]))).toMatchObject({
      code: 'ERR_QUEUE_FULL',
      posted: 3,
    });
    expect(postError(() => client.qp.postSend(nothing))).toMatchObject({ code: 'ERR_QUEUE_FULL', posted: 0 });
    expect(postError(() => client.qp.postRecv([{}, {}, {}]))).toMatchObject({
      code: 'ERR_QUEUE_FULL',
      posted: 2,
    });
  });

  it('an entry is free once polled; an unsignaled one once a later one is (VERBS-092)', async () => {
    const pair = await connectedPair({ client: { qp: { maxSendWr: 4 } } });
    const { client } = pair;
    client.qp.postSend([nothing, nothing, nothing, nothing]);
    pair.run();
    expect(client.qp.query().sendOutstanding).toBe(0);
    expect(codeOf(() => client.qp.postSend(nothing))).toBe('ERR_QUEUE_FULL');
    expect(client.sendCq.poll([], 1)).toBe(1);
    client.qp.postSend({ ...nothing, signaled: false });
    expect(codeOf(() => client.qp.postSend(nothing))).toBe('ERR_QUEUE_FULL');
    client.sent();
    pair.run();
    // Three polled and the unsignaled one completed: all four are free.
    expect(client.qp.postSend([nothing, nothing, nothing, nothing])).toBe(4);
    expect(codeOf(() => client.qp.postSend(nothing))).toBe('ERR_QUEUE_FULL');
  });

  it('receives alike (VERBS-092)', async () => {
    const pair = await connectedPair({ server: { qp: { maxRecvWr: 2 } } });
    const { client, server } = pair;
    server.qp.postRecv([{}, {}]);
    client.qp.postSend({ opcode: 'send' });
    pair.run();
    expect(codeOf(() => server.qp.postRecv({}))).toBe('ERR_QUEUE_FULL');
    server.received();
    expect(server.qp.postRecv({})).toBe(1);
  });

  it('posting returns before anything has been sent (VERBS-093)', async () => {
    const pair = await connectedPair();
    const before = pair.wire().fromClient.length;
    pair.client.qp.postSend({ opcode: 'send', inline: pattern(100) });
    expect(pair.wire().fromClient.length).toBe(before);
    expect(pair.client.sendCq.length).toBe(0);
    pair.run();
    expect(pair.wire().fromClient.length).toBeGreaterThan(before);
  });

  it('depths can be changed with work in the queues, but not below those in use (VERBS-025)', async () => {
    const pair = await connectedPair({ client: { qp: { maxSendWr: 5, maxRecvWr: 5 } } });
    const { client, server } = pair;
    client.qp.postSend([0, 1, 2, 3].map((wrId) => ({ ...nothing, wrId })));
    client.qp.postRecv([0, 1, 2].map((wrId) => ({ wrId })));
    expect(codeOf(() => client.qp.modify({ maxSendWr: 3 }))).toBe('ERR_IN_USE');
    expect(codeOf(() => client.qp.modify({ maxSendWr: 9, maxRecvWr: 2 }))).toBe('ERR_IN_USE');
    expect(client.qp.query()).toMatchObject({ maxSendWr: 5, maxRecvWr: 5 });
    client.qp.modify({ maxSendWr: 7, maxRecvWr: 3 });
    expect(client.qp.postSend([4, 5, 6].map((wrId) => ({ ...nothing, wrId })))).toBe(3);
    expect(codeOf(() => client.qp.postSend(nothing))).toBe('ERR_QUEUE_FULL');
    pair.run();
    client.qp.modify({ maxSendWr: 20 });
    client.qp.postSend({ ...nothing, wrId: 7 });
    for (let i = 0; i < 3; i++) server.qp.postSend({ opcode: 'send' });
    pair.run();
    expect(client.sent().map((wc) => wc.wrId)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(client.received().map((wc) => wc.wrId)).toEqual([0, 1, 2]);
    client.qp.modify({ maxSendWr: 1, maxRecvWr: 1 });
    client.qp.postSend({ ...nothing, wrId: 8 });
    expect(codeOf(() => client.qp.postSend(nothing))).toBe('ERR_QUEUE_FULL');
    pair.run();
    expect(outcomes(client.sent())).toEqual(['8 success']);
  });
});

describe('kinds of work', () => {
  it('send kinds go to the send queue only, receives to receive queues only (VERBS-078)', async () => {
    const pair = await connectedPair();
    expect(codeOf(() => pair.client.qp.postSend({ opcode: 'receive' } as never))).toBe(
      'ERR_INVALID_ARGUMENT',
    );
    expect(codeOf(() => pair.client.qp.postSend({} as never))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => pair.client.qp.postRecv({ opcode: 'send' } as never))).toBe('ERR_INVALID_ARGUMENT');
    expect(
      codeOf(() => pair.client.pd.createSrq({ maxWr: 1 }).postRecv({ opcode: 'rdma-read' } as never)),
    ).toBe('ERR_INVALID_ARGUMENT');
  });

  it('every operation of the send queue completes under its own name (VERBS-079)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const target = server.register(64);
    const mr = client.register(64);
    const fast = client.pd.allocateFastRegion(8);
    const mw = client.pd.allocateMw();
    const victims = [server.register(8), server.register(8)] as const;
    server.qp.postRecv([0, 1, 2, 3].map((wrId) => ({ wrId, sges: [{ mr: target }] })));
    const remote = { rkey: target.rkey, remoteAddr: 0 } as const;
    const all: SendWorkRequest[] = [
      { opcode: 'send' },
      { opcode: 'send', solicited: true },
      { opcode: 'send', invalidate: victims[0].rkey },
      { opcode: 'send', invalidate: victims[1].rkey, solicited: true },
      { opcode: 'rdma-write', sges: [{ mr }], ...remote },
      { opcode: 'rdma-read', sges: [{ mr }], ...remote },
      { opcode: 'bind-mw', mw, mr, access: REMOTE_READ },
      { opcode: 'local-invalidate', target: mw },
      { opcode: 'reg-mr', mr: fast, memory: new Uint8Array(8), access: LOCAL_WRITE },
      { opcode: 'rdma-read', sges: [{ mr: fast }], ...remote, localInvalidate: true },
    ];
    client.qp.postSend(all);
    pair.run();
    const done = client.sent();
    expect(done.map((wc) => wc.opcode)).toEqual(all.map((request) => request.opcode));
    expect(done.every((wc) => wc.status === 'success')).toBe(true);
    expect(server.received().map((wc) => [wc.solicited, wc.invalidatedStag])).toEqual([
      [false, undefined],
      [true, undefined],
      [false, victims[0].rkey],
      [true, victims[1].rkey],
    ]);
  });

  it('Writes and Reads need no receive at the peer (VERBS-080)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const target = server.register(64);
    const mr = client.register(64);
    client.qp.postSend([
      { wrId: 1, opcode: 'rdma-write', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 },
      { wrId: 2, opcode: 'rdma-read', sges: [{ mr }], rkey: target.rkey, remoteAddr: 0 },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 success', '2 success']);
    expect(server.received()).toEqual([]);
  });

  it('a list too small for the message fails it, the others flush (VERBS-081/049/057/169)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(64);
    server.qp.postRecv([
      { wrId: 1, sges: [{ mr, length: 9 }] },
      { wrId: 2, sges: [{ mr }] },
    ]);
    client.qp.postSend({ wrId: 3, opcode: 'send', inline: pattern(10) });
    pair.run();
    expect(outcomes(server.received())).toEqual(['1 local-length-error', '2 flushed']);
    expect(terminateOf(server.qp)).toBe('1/2/05');
    expect(mr.bytes.every((octet) => octet === 0)).toBe(true);
  });

  it('the completion reports the octets received, over any list (VERBS-082)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(100);
    const lengths = [0, 1, 9, 10, 11, 60, 100];
    const sges = [
      { mr, offset: 90, length: 10 },
      { mr, offset: 0, length: 0 },
      { mr, offset: 0, length: 1 },
      { mr, offset: 1, length: 89 },
    ];
    for (const length of lengths) {
      server.qp.postRecv({ sges });
      client.qp.postSend({ opcode: 'send', sges: [{ mr: client.register(pattern(length)) }] });
      pair.run();
      expect(server.received()).toMatchObject([{ byteLength: length }]);
      const got = [...mr.bytes.subarray(90), ...mr.bytes.subarray(0, 90)].slice(0, length);
      expect(got).toEqual([...pattern(length)]);
    }
  });
});

describe('scatter and gather', () => {
  it('four or more elements for Send, Write and receive; one for a Read (VERBS-083)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(pattern(40));
    const target = server.register(40);
    const quarter = [30, 20, 10, 0].map((offset) => ({ mr, offset, length: 10 }));
    client.qp.postSend([{ opcode: 'rdma-write', sges: quarter, rkey: target.rkey, remoteAddr: 0 }]);
    pair.run();
    expect(target.bytes).toEqual(
      Uint8Array.from(quarter.flatMap(({ offset }) => [...pattern(40).subarray(offset, offset + 10)])),
    );
    const five = [...quarter, { mr, length: 0 }];
    expect(codeOf(() => client.qp.postSend({ opcode: 'send', sges: five }))).toBe('ERR_TOO_LARGE');
    expect(codeOf(() => client.qp.postRecv({ sges: five }))).toBe('ERR_TOO_LARGE');
    expect(
      codeOf(() =>
        client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }, { mr }], rkey: 0, remoteAddr: 0 }),
      ),
    ).toBe('ERR_TOO_LARGE');
    const wide = client.createQp({ maxSendSge: 16, maxRecvSge: 16 });
    expect(wide.postRecv({ sges: Array.from({ length: 16 }, () => ({ mr, length: 1 })) })).toBe(1);
  });

  it('a list may be empty or of zero octets, and has at most 2^32 - 1 (VERBS-084)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(8);
    server.qp.postRecv([{}, { sges: [{ mr: server.register(1), length: 0 }] }]);
    client.qp.postSend([
      { wrId: 1, opcode: 'send' },
      {
        wrId: 2,
        opcode: 'send',
        sges: [
          { mr, length: 0 },
          { mr, offset: 8, length: 0 },
        ],
      },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 success', '2 success']);
    expect(server.received().map((wc) => wc.byteLength)).toEqual([0, 0]);
    // Fresh memory costs nothing until it is touched, and this is never sent.
    const huge = client.register(new Uint8Array(2 ** 28));
    const wide = client.createQp({ maxSendSge: 16 });
    const sixteen = Array.from({ length: 16 }, () => ({ mr: huge }));
    expect(codeOf(() => wide.postSend({ opcode: 'send', sges: sixteen }))).toBe('ERR_TOO_LARGE');
    sixteen[15] = { mr: huge, length: 2 ** 28 - 1 } as never;
    expect(wide.postSend({ opcode: 'send', sges: sixteen })).toBe(1);
  });

  it('of a zero-length element only the domain of its region is checked (VERBS-085)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const gone = client.register(8);
    gone.deregister();
    const readOnly = server.register(8, REMOTE_READ);
    server.qp.postRecv({ sges: [{ mr: readOnly, offset: 99, length: 0 }] });
    client.qp.postSend({ wrId: 1, opcode: 'send', sges: [{ mr: gone, offset: 5, length: 0 }] });
    pair.run();
    expect(outcomes(client.sent())).toEqual(['1 success']);
    expect(server.received()).toMatchObject([{ status: 'success' }]);
  });

  it('a sink needs local write, a source none; remote rights count for neither (VERBS-086)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const noRight = client.register(pattern(8), 0);
    const remoteOnly = client.register(8, REMOTE_READ);
    const target = server.register(8, LOCAL_WRITE | REMOTE_WRITE);
    expect(codeOf(() => client.qp.postRecv({ sges: [{ mr: remoteOnly }] }))).toBe('ERR_ACCESS');
    expect(
      codeOf(() =>
        client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: remoteOnly }], rkey: 0, remoteAddr: 0 }),
      ),
    ).toBe('ERR_ACCESS');
    client.qp.postSend({ opcode: 'rdma-write', sges: [{ mr: noRight }], rkey: target.rkey, remoteAddr: 0 });
    pair.run();
    expect(target.bytes).toEqual(pattern(8));
    expect(client.qp.postRecv({ sges: [{ mr: client.register(8, LOCAL_WRITE) }] })).toBe(1);
  });

  it('a sink without STag when the message comes fails the receive (VERBS-086/169)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(8);
    server.qp.postRecv({ wrId: 1, sges: [{ mr }] });
    const { bytes } = mr;
    mr.deregister();
    client.qp.postSend({ opcode: 'send', inline: pattern(8) });
    pair.run();
    expect(outcomes(server.received())).toEqual(['1 local-protection-error']);
    expect(terminateOf(client.qp)).toBe('0/0/00');
    expect(bytes.every((octet) => octet === 0)).toBe(true);
  });

  it('if asked, a Read takes only a sink with remote write, judged at the response (VERBS-087)', async () => {
    for (const [access, outcome] of [
      [LOCAL_WRITE, 'local-protection-error'],
      [LOCAL_WRITE | REMOTE_WRITE, 'success'],
    ] as const) {
      const pair = await connectedPair({ client: { qp: { readSink: 'remote-write' } } });
      const { client, server } = pair;
      const sink = client.register(8, access);
      client.qp.postSend({
        wrId: 1,
        opcode: 'rdma-read',
        sges: [{ mr: sink }],
        rkey: server.register(pattern(8)).rkey,
        remoteAddr: 0,
      });
      pair.run();
      expect(outcomes(client.sent())).toEqual([`1 ${outcome}`]);
      expect(sink.bytes[0]).toBe(outcome === 'success' ? 3 : 0);
      expect(terminateOf(client.qp)).toBe(outcome === 'success' ? undefined : '1/1/02');
    }
  });

  it("every local element must be of the queue pair's domain (VERBS-089)", async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const mr = client.device.allocatePd().registerMemory(new Uint8Array(8), LOCAL_WRITE);
    expect(codeOf(() => client.qp.postSend({ opcode: 'send', sges: [{ mr }] }))).toBe('ERR_WRONG_PD');
    expect(codeOf(() => client.qp.postRecv({ sges: [{ mr }] }))).toBe('ERR_WRONG_PD');
    expect(
      codeOf(() => client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 0, remoteAddr: 0 })),
    ).toBe('ERR_WRONG_PD');
  });
});

describe('inline, signaling, draining', () => {
  it('inline data is copied when posted, up to the stated limit, zero octets too', async () => {
    const pair = await connectedPair({ client: { qp: { maxInline: 16 } } });
    const { client, server } = pair;
    const mr = server.register(64);
    server.qp.postRecv([{ sges: [{ mr }] }, { sges: [{ mr, offset: 32 }] }]);
    const bytes = pattern(16);
    client.qp.postSend([
      { opcode: 'send', inline: bytes },
      { opcode: 'send', inline: new Uint8Array(0) },
    ]);
    bytes.fill(0);
    pair.run();
    expect(server.received().map((wc) => wc.byteLength)).toEqual([16, 0]);
    expect(mr.bytes.subarray(0, 16)).toEqual(pattern(16));
    expect(codeOf(() => client.qp.postSend({ opcode: 'send', inline: new Uint8Array(17) }))).toBe(
      'ERR_TOO_LARGE',
    );
    expect(client.qp.query().maxInline).toBe(16);
    expect(codeOf(() => client.qp.postSend({ opcode: 'send', inline: bytes, sges: [] }))).toBe(
      'ERR_INVALID_ARGUMENT',
    );
  });

  it('unsignaled successes are silent; a failure, and all after it, completes (VERBS-106)', async () => {
    const pair = await connectedPair({ client: { qp: { signalAll: false } } });
    const { client, server } = pair;
    const mr = client.register(8);
    client.qp.postSend([
      { ...nothing, wrId: 1 },
      { ...nothing, wrId: 2, signaled: true },
      { ...nothing, wrId: 3 },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['2 success']);
    client.qp.postSend([
      { ...nothing, wrId: 4 },
      { wrId: 5, opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 },
      { ...nothing, wrId: 6, fence: true },
    ]);
    pair.run();
    expect(outcomes(client.sent())).toEqual(['5 remote-access-error', '6 flushed']);
    expect(terminateOf(server.qp)).toBe('0/1/00');
  });

  it('drainSend and drainRecv give up with their signal, and go on for other waiters', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const stop = new AbortController();
    client.qp.postSend({ opcode: 'rdma-read', rkey: 0, remoteAddr: 0 });
    server.qp.postRecv({});
    const [sent, received, other] = [
      client.qp.drainSend({ signal: stop.signal }),
      server.qp.drainRecv({ signal: stop.signal }),
      client.qp.drainSend(),
    ];
    const given = Promise.all(
      [sent, received].map((wait) => expect(wait).rejects.toMatchObject({ code: 'ERR_ABORTED' })),
    );
    stop.abort();
    await given;
    await expect(client.qp.drainSend({ signal: stop.signal })).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    pair.run();
    await other;
  });

  it('drainSend and drainRecv settle when posted work has completed or been flushed', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const log: string[] = [];
    await client.qp.drainSend();
    client.qp.postSend([nothing, { opcode: 'rdma-read', rkey: 0, remoteAddr: 0 }]);
    server.qp.postRecv([{}, {}]);
    const waiting = [
      client.qp.drainSend().then(() => log.push('sent')),
      server.qp.drainRecv().then(() => log.push('received')),
    ];
    await Promise.resolve();
    expect(log).toEqual([]);
    pair.run();
    await waiting[0];
    expect(log).toEqual(['sent']);
    client.qp.postSend({ opcode: 'send' });
    client.qp.modify({ state: 'closing' });
    pair.run();
    await waiting[1];
    expect(outcomes(server.received())).toEqual(['0 success', '0 flushed']);
    const idle = server.qp.drainSend();
    server.qp.postSend(nothing);
    const destroyed = server.qp.drainSend();
    server.qp.destroy();
    await Promise.all([idle, destroyed]);
    const out: WorkCompletion[] = [];
    expect(server.sendCq.poll(out, 1)).toBe(0);
  });
});
