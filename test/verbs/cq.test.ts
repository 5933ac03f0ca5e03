// Completion queues: polling, notification, overflow, resizing. Verbs draft 5.3, 8.2.4, 8.2.5, 9.3.2.
import { describe, expect, it } from 'vitest';
import {
  createWorkCompletion,
  Device,
  type CompletionQueue,
  type WorkCompletion,
} from '../../src/verbs/index.ts';
import { connectedPair, type Pair } from '../support/pair.ts';
import { codeOf, eventTypes, outcomes, secondConnection, terminateOf } from './support.ts';

describe('life of a completion queue', () => {
  it('size, users, handler are queried; one in use is not destroyed (VERBS-005/006/011/014)', () => {
    const device = new Device({ limits: { maxCqe: 100 } });
    const pd = device.allocatePd();
    const cq = device.createCq(10);
    expect(codeOf(() => device.createCq(101))).toBe('ERR_INVALID_ARGUMENT');
    const handler = (): void => undefined;
    cq.setHandler(handler);
    cq.requestNotify('solicited');
    expect(cq.query()).toEqual({
      handle: cq.handle,
      capacity: 10,
      length: 0,
      workQueues: 0,
      overflows: 0,
      armed: 'solicited',
      handler,
    });
    const other = device.createCq(10);
    const qps = [pd.createQp({ sendCq: cq, recvCq: cq }), pd.createQp({ sendCq: cq, recvCq: other })];
    expect([cq.query().workQueues, other.query().workQueues]).toEqual([3, 1]);
    expect(codeOf(() => cq.destroy())).toBe('ERR_IN_USE');
    for (const qp of qps) qp.destroy();
    cq.destroy();
    cq.destroy();
    expect(codeOf(() => cq.poll([]))).toBe('ERR_DESTROYED');
    expect(codeOf(() => cq.requestNotify())).toBe('ERR_DESTROYED');
    expect(codeOf(() => cq.resize(3))).toBe('ERR_DESTROYED');
  });

  it('a queue smaller than its work queues is not refused (VERBS-009)', () => {
    const device = new Device();
    const cq = device.createCq(1);
    expect(
      device.allocatePd().createQp({ sendCq: cq, recvCq: cq, maxSendWr: 500, maxRecvWr: 500 }).state,
    ).toBe('idle');
  });

  it('a destroyed queue gives nothing more, and ends iterations over it (VERBS-015)', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const seen: WorkCompletion[] = [];
    const iteration = (async () => {
      for await (const wc of client.sendCq) seen.push(wc);
    })();
    client.qp.postSend({ wrId: 1, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    pair.run();
    await Promise.resolve();
    client.qp.postSend({ wrId: 2, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    client.qp.destroy();
    client.sendCq.destroy();
    pair.run();
    await iteration;
    expect(outcomes(seen)).toEqual(['1 success']);
  });

  it('a loop that leaves loses nothing, and one with a signal gives up waiting', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    client.qp.postSend(
      [1, 2, 3].map((wrId) => ({ wrId, opcode: 'rdma-write' as const, rkey: 0, remoteAddr: 0 })),
    );
    pair.run();
    for await (const wc of client.sendCq) {
      expect(wc.wrId).toBe(1);
      break;
    }
    const stop = new AbortController();
    const seen: WorkCompletion[] = [];
    const loop = (async () => {
      for await (const wc of client.sendCq.completions({ signal: stop.signal })) seen.push(wc);
    })();
    while (seen.length < 2) await Promise.resolve();
    expect(outcomes(seen)).toEqual(['2 success', '3 success']);
    const given = expect(loop).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    stop.abort();
    await given;
    await expect(client.sendCq.completions({ signal: stop.signal }).next()).rejects.toMatchObject({
      code: 'ERR_ABORTED',
    });
  });

  it('completions wait for a poll, in every state, with all fields (VERBS-004/061/110)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(64);
    const victim = server.register(8);
    server.qp.postRecv([
      { wrId: 2n ** 64n - 1n, sges: [{ mr }] },
      { wrId: 6, sges: [{ mr }] },
    ]);
    client.qp.postSend({
      wrId: 5,
      opcode: 'send',
      inline: new Uint8Array(10),
      invalidate: victim.rkey,
      solicited: true,
    });
    pair.run();
    expect(server.recvCq.length).toBe(1);
    server.qp.modify({ state: 'error' });
    pair.run();
    expect(server.received()).toEqual([
      {
        wrId: 2n ** 64n - 1n,
        status: 'success',
        opcode: 'receive',
        byteLength: 10,
        qpNumber: server.qp.number,
        invalidatedStag: victim.rkey,
        immediate: undefined,
        solicited: true,
        vendorError: 0,
      },
      {
        ...createWorkCompletion(),
        wrId: 6,
        status: 'flushed',
        opcode: 'receive',
        qpNumber: server.qp.number,
      },
    ]);
    expect(client.sent()).toMatchObject([
      { wrId: 5, status: 'success', opcode: 'send', byteLength: 10, qpNumber: client.qp.number },
    ]);
  });

  it('one completion a receive, none twice; its buffer is then left alone (VERBS-107/108/109)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(40);
    server.qp.postRecv([0, 1, 2, 3].map((wrId) => ({ wrId, sges: [{ mr, offset: wrId * 10, length: 10 }] })));
    for (let i = 0; i < 3; i++)
      client.qp.postSend({ wrId: i, opcode: 'send', inline: new Uint8Array(10).fill(i + 1) });
    pair.run();
    const out: WorkCompletion[] = [];
    expect(server.recvCq.poll(out, 2)).toBe(2);
    mr.bytes.fill(99, 0, 20);
    pair.run();
    expect(server.recvCq.poll(out, 10)).toBe(1);
    expect(server.recvCq.poll(out, 10)).toBe(0);
    expect([...mr.bytes.subarray(0, 20)]).toEqual(Array.from({ length: 20 }, () => 99));
    expect([...mr.bytes.subarray(20, 30)]).toEqual(Array.from({ length: 10 }, () => 3));
    client.sent();
  });
});

describe('overflow', () => {
  it('ends only its queue pair: event, Terminate 0/2/07 (VERBS-007/008/010/177, SEC-012)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const small = server.device.createCq(2);
    const victim = secondConnection(pair, client.createQp(), server.createQp({ recvCq: small }));
    const bystander = secondConnection(pair);
    const mr = server.register(64);
    victim.server.postRecv(Array.from({ length: 4 }, (_, wrId) => ({ wrId, sges: [{ mr }] })));
    bystander.server.postRecv({ wrId: 9, sges: [{ mr }] });
    for (let i = 0; i < 3; i++) victim.client.postSend({ wrId: i, opcode: 'send', inline: Uint8Array.of(i) });
    pair.run();
    expect(server.asyncEvents.filter((event) => event.type === 'cq-overflow')).toMatchObject([
      { cq: small, qp: victim.server },
    ]);
    expect([terminateOf(victim.server), terminateOf(victim.client)]).toEqual(['0/2/07', '0/2/07']);
    expect(small.query().overflows).toBeGreaterThan(0);
    const out: WorkCompletion[] = [];
    expect(small.poll(out, 10)).toBe(2);
    expect(outcomes(out)).toEqual(['0 success', '1 success']);
    bystander.client.postSend({ wrId: 7, opcode: 'send', inline: Uint8Array.of(1) });
    pair.run();
    expect(outcomes(server.received())).toEqual(['9 success']);
    expect([bystander.server.state, client.qp.state]).toEqual(['rts', 'rts']);
  });

  it('so does one on the sending side; the queue pair is usable again (VERBS-010)', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const small = client.device.createCq(1);
    const { client: qp } = secondConnection(pair, client.createQp({ sendCq: small, maxSendWr: 4 }));
    qp.postSend(
      Array.from(
        { length: 4 },
        (_, wrId) => ({ wrId, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 }) as const,
      ),
    );
    pair.run();
    expect(terminateOf(qp)).toBe('0/2/07');
    expect(qp.state).toBe('error');
    expect(small.poll([], 5)).toBe(1);
    qp.modify({ state: 'idle' });
    small.resize(4);
    pair.client.qp = qp;
    pair.server.qp = pair.server.createQp();
    pair.connectClient();
    pair.run();
    expect(
      qp.postSend(
        Array.from(
          { length: 4 },
          (_, wrId) => ({ wrId, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 }) as const,
        ),
      ),
    ).toBe(4);
    pair.run();
    const out: WorkCompletion[] = [];
    expect(small.poll(out, 5)).toBe(4);
    expect(outcomes(out)).toEqual(['0 success', '1 success', '2 success', '3 success']);
  });

  it('sized for the sum of the work queues, a queue never overflows (SEC-031)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const cq = server.device.createCq(2 * (4 + 4));
    const mr = server.register(64);
    const links = [0, 1].map(() =>
      secondConnection(
        pair,
        client.createQp(),
        server.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 4, maxRecvWr: 4 }),
      ),
    );
    for (const link of links) {
      link.server.postRecv(Array.from({ length: 4 }, (_, wrId) => ({ wrId, sges: [{ mr }] })));
      link.server.postSend(
        Array.from(
          { length: 4 },
          (_, wrId) => ({ wrId: wrId + 4, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 }) as const,
        ),
      );
      for (let i = 0; i < 4; i++) link.client.postSend({ opcode: 'send', inline: Uint8Array.of(i) });
    }
    pair.run();
    // A fifth message finds no receive: that ends the connection, but overflows nothing.
    links[0]!.client.postSend({ opcode: 'send' });
    pair.run();
    expect(cq.length).toBe(16);
    expect(cq.query().overflows).toBe(0);
    expect(eventTypes(server.asyncEvents)).not.toContain('cq-overflow');
    expect(links[1]!.server.state).toBe('rts');
  });
});

describe('growth', () => {
  /**
   * A queue of `capacity` entries: `post` posts a number of requests that complete into it, `take` polls and
   * sees that they come in their order.
   */
  async function filled(
    capacity: number,
    maxSendWr: number,
  ): Promise<{
    pair: Pair;
    cq: CompletionQueue;
    post: (count: number) => void;
    take: (count: number) => number;
  }> {
    const pair = await connectedPair();
    const { client } = pair;
    const cq = client.device.createCq(capacity);
    const { client: qp } = secondConnection(pair, client.createQp({ sendCq: cq, maxSendWr }));
    const out: WorkCompletion[] = [];
    let next = 0;
    let expected = 0;
    return {
      pair,
      cq,
      post: (count) => {
        for (let i = 0; i < count; i++)
          qp.postSend({ wrId: next++, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
        pair.run();
      },
      take: (count) => {
        const taken = cq.poll(out, count);
        for (let i = 0; i < taken; i++) expect(out[i]!.wrId).toBe(expected++);
        return taken;
      },
    };
  }

  it('a queue that grows keeps the order, up to its capacity and no further (VERBS-010)', async () => {
    const { pair, cq, post, take } = await filled(300, 500);
    expect(cq.capacity).toBe(300);
    // The ring has begun somewhere else each time that it is full and grows.
    for (const [posted, taken] of [
      [40, 30],
      [60, 35],
      [120, 70],
      [180, 20],
      [55, 60],
    ] as const) {
      post(posted);
      expect(take(taken)).toBe(taken);
    }
    post(60);
    expect([cq.length, cq.capacity, cq.overflows]).toEqual([300, 300, 0]);
    post(1);
    expect([cq.length, cq.overflows]).toEqual([300, 1]);
    expect(eventTypes(pair.client.asyncEvents)).toContain('cq-overflow');
    expect(take(300)).toBe(300);
  });

  it('a queue takes as many as it was made for, and no more (VERBS-011/110)', async () => {
    const { cq, post, take } = await filled(200, 256);
    // The ring grows while its oldest entry stands in the middle of it.
    for (const [more, less] of [
      [15, 14],
      [16, 5],
      [21, 13],
      [40, 30],
      [70, 1],
      [101, 0],
    ] as const) {
      post(more);
      expect(take(less)).toBe(less);
    }
    expect([cq.length, cq.capacity, cq.overflows]).toEqual([200, 200, 0]);
    post(1);
    expect([cq.length, cq.overflows]).toEqual([200, 1]);
    expect(take(256)).toBe(200); // all but the one that was lost
  });
});

describe('resize', () => {
  it('under load none is lost or reordered; shrinking below the contents fails (VERBS-012/013)', async () => {
    const pair = await connectedPair();
    const { client } = pair;
    const cq = client.device.createCq(7);
    const { client: qp } = secondConnection(pair, client.createQp({ sendCq: cq, maxSendWr: 64 }));
    let next = 0;
    let expected = 0;
    const out: WorkCompletion[] = [];
    const sizes = [9, 8, 40, 33, 64, 12, 7, 20];
    for (const [round, size] of sizes.entries()) {
      for (let i = 0; i < 5; i++) qp.postSend({ wrId: next++, opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
      if (round % 2 === 0) pair.run();
      cq.resize(Math.max(size, cq.length + 10));
      pair.run();
      const n = cq.poll(out, 3);
      for (let i = 0; i < n; i++) expect(out[i]!.wrId).toBe(expected++);
    }
    const { length, capacity } = cq;
    expect(length).toBeGreaterThan(3);
    expect(codeOf(() => cq.resize(length - 1))).toBe('ERR_IN_USE');
    expect(cq.capacity).toBe(capacity);
    cq.resize(length);
    while (cq.length > 0)
      for (let i = 0, n = cq.poll(out, 2); i < n; i++) expect(out[i]!.wrId).toBe(expected++);
    expect(expected).toBe(next);
    expect(cq.query().overflows).toBe(0);
  });
});

describe('notification', () => {
  /** Counts the notifications of the server's receive queue. */
  async function bench(): Promise<{
    send: (solicited: boolean) => void;
    told: CompletionQueue[];
    cq: CompletionQueue;
    flush: () => void;
  }> {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(8);
    server.qp.postRecv(Array.from({ length: 20 }, () => ({ sges: [{ mr }] })));
    const told: CompletionQueue[] = [];
    server.recvCq.setHandler((cq) => told.push(cq));
    return {
      told,
      cq: server.recvCq,
      send: (solicited) => {
        client.qp.postSend({ opcode: 'send', solicited });
        pair.run();
      },
      flush: () => {
        server.qp.modify({ state: 'error' });
        pair.run();
      },
    };
  }

  it('one-shot; the handler gets the queue, and nothing is polled for it (VERBS-113/116/119)', async () => {
    const { send, told, cq } = await bench();
    send(true);
    expect(told).toEqual([]);
    cq.requestNotify('next');
    send(false);
    send(true);
    expect(told).toEqual([cq]);
    expect(cq.length).toBe(3);
  });

  it('old entries do not trigger it, the next does; poll, arm, poll is safe (VERBS-114/118)', async () => {
    const { send, told, cq } = await bench();
    send(false);
    cq.requestNotify();
    expect(told).toEqual([]);
    send(false);
    expect(told).toHaveLength(1);
    // The race: a completion between the last empty poll and arming is found by the poll after it.
    expect(cq.poll([], 10)).toBe(2);
    send(false);
    cq.requestNotify();
    expect(cq.poll([], 10)).toBe(1);
    send(false);
    expect(told).toHaveLength(2);
  });

  it('solicited: a Send that asks, Immediate Data with SE, a failure (VERBS-115, EXT-016)', async () => {
    const { send, told, cq, flush } = await bench();
    cq.requestNotify('solicited');
    send(false);
    expect(told).toHaveLength(0);
    send(true);
    expect(told).toHaveLength(1);
    cq.requestNotify('solicited');
    send(false);
    flush();
    expect(told).toHaveLength(2);

    const pair = await connectedPair();
    let events = 0;
    pair.server.recvCq.setHandler(() => events++);
    pair.server.qp.postRecv([{}, {}]);
    pair.server.recvCq.requestNotify('solicited');
    pair.client.qp.postSend({ opcode: 'immediate', immediate: 1 });
    pair.run();
    expect(events).toBe(0);
    pair.client.qp.postSend({ opcode: 'immediate', immediate: 1, solicited: true });
    pair.run();
    expect(events).toBe(1);
  });

  it('a signaled send completion triggers `next`, a silent one has nothing to add (VERBS-116)', async () => {
    const pair = await connectedPair();
    let events = 0;
    pair.client.sendCq.setHandler(() => events++);
    pair.client.sendCq.requestNotify('next');
    pair.client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0, signaled: false });
    pair.run();
    expect(events).toBe(0);
    pair.client.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    pair.run();
    expect(events).toBe(1);
  });

  it('if both kinds were asked for, `next` wins, in one call (VERBS-117)', async () => {
    for (const order of [
      ['next', 'solicited'],
      ['solicited', 'next'],
    ] as const) {
      const { send, told, cq } = await bench();
      for (const kind of order) cq.requestNotify(kind);
      send(false);
      expect(told).toHaveLength(1);
      send(true);
      expect(told).toHaveLength(1);
    }
  });
});
