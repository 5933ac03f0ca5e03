// Shared receive queues, and the receive limit of a queue pair. Verbs draft 6.3.
import { describe, expect, it } from 'vitest';
import { Device, type QueuePair, type SharedReceiveQueue } from '../../src/verbs/index.ts';
import { connectedPair, type Pair } from '../support/pair.ts';
import { codeOf, eventTypes, LOCAL_WRITE, outcomes, secondConnection, terminateOf } from './support.ts';

/** Two connections whose server ends share a receive queue. */
async function sharedBench(options: { maxWr?: number; limit?: number; rqLimit?: number } = {}): Promise<{
  pair: Pair;
  srq: SharedReceiveQueue;
  links: { client: QueuePair; server: QueuePair }[];
}> {
  const pair = await connectedPair();
  const { client, server } = pair;
  const srq = server.pd.createSrq({ maxWr: options.maxWr ?? 16, limit: options.limit ?? 0 });
  const links = [0, 1].map(() =>
    secondConnection(pair, client.createQp(), server.createQp({ srq, rqLimit: options.rqLimit ?? 0 })),
  );
  return { pair, srq, links };
}

describe('shared receive queue', () => {
  it('a query shows support; posting to the RQ of an attached QP fails (VERBS-123/126/127)', async () => {
    const { srq, links, pair } = await sharedBench();
    expect(pair.server.device.query().capabilities.sharedReceiveQueues).toBe(true);
    const { server } = links[0]!;
    expect(server.srq).toBe(srq);
    expect(server.query().maxRecvWr).toBe(16);
    expect(codeOf(() => server.postRecv({}))).toBe('ERR_INVALID_STATE');
    expect(codeOf(() => server.modify({ maxRecvWr: 8 }))).toBe('ERR_INVALID_STATE');
    expect(srq.query()).toEqual({
      maxWr: 16,
      maxSge: 4,
      posted: 0,
      limit: 0,
      queuePairs: 2,
      pd: pair.server.pd.handle,
    });
  });

  it('one entry per message, in posting order, completed in message order (VERBS-128/129/130)', async () => {
    const { pair, srq, links } = await sharedBench({ maxWr: 6 });
    const mr = pair.server.register(60);
    srq.postRecv(
      Array.from({ length: 6 }, (_, i) => ({ wrId: i, sges: [{ mr, offset: i * 10, length: 10 }] })),
    );
    for (let i = 0; i < 6; i++) links[1]!.client.postSend({ opcode: 'send', inline: new Uint8Array(i + 1) });
    pair.run();
    const got = pair.server.received();
    expect(got.map((wc) => wc.byteLength)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(got.map((wc) => wc.wrId)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(got.every((wc) => wc.qpNumber === links[1]!.server.number)).toBe(true);
    expect(srq.posted).toBe(0);
  });

  it('an empty queue ends only the stream in need; a dying QP leaves entries (VERBS-131/132)', async () => {
    const { pair, srq, links } = await sharedBench();
    const mr = pair.server.register(10);
    links[0]!.client.postSend({ opcode: 'send' });
    pair.run();
    expect([terminateOf(links[0]!.server), terminateOf(links[0]!.client)]).toEqual(['1/2/02', '1/2/02']);
    srq.postRecv([
      { wrId: 1, sges: [{ mr }] },
      { wrId: 2, sges: [{ mr }] },
    ]);
    const third = secondConnection(pair, pair.client.createQp(), pair.server.createQp({ srq }));
    third.server.modify({ state: 'error' });
    pair.run();
    expect(srq.posted).toBe(2);
    expect(pair.server.received()).toEqual([]);
    links[1]!.client.postSend({ opcode: 'send', inline: Uint8Array.of(1) });
    pair.run();
    expect(outcomes(pair.server.received())).toEqual(['1 success']);
  });

  it("elements count by the queue's domain, invalidation by the pair's (VERBS-124/125)", async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const other = server.device.allocatePd();
    const srq = other.createSrq({ maxWr: 8 });
    const link = secondConnection(pair, client.createQp(), server.createQp({ srq }));
    const ofSrq = other.registerMemory(new Uint8Array(16), 31, { iova: 0 });
    const ofQp = server.register(16);
    expect(codeOf(() => srq.postRecv({ sges: [{ mr: ofQp }] }))).toBe('ERR_WRONG_PD');
    srq.postRecv([
      { wrId: 1, sges: [{ mr: ofSrq }] },
      { wrId: 2, sges: [{ mr: ofSrq }] },
    ]);
    link.client.postSend({ opcode: 'send', inline: Uint8Array.of(5), invalidate: ofQp.rkey });
    pair.run();
    expect(outcomes(server.received())).toEqual(['1 success']);
    expect([ofQp.valid, ofSrq.bytes[0]]).toEqual([false, 5]);
    link.client.postSend({ opcode: 'send', invalidate: ofSrq.rkey });
    pair.run();
    expect(outcomes(server.received())).toEqual(['2 remote-invalidate-error']);
    expect(terminateOf(link.server)).toBe('0/1/09');
    expect(ofSrq.valid).toBe(true);
  });

  it('the armed limit gives one event, then none until armed again (VERBS-133, SEC-027)', async () => {
    const { pair, srq, links } = await sharedBench({ limit: 3 });
    const { server } = pair;
    srq.postRecv(Array.from({ length: 6 }, () => ({})));
    const limits = (): number => eventTypes(server.asyncEvents).filter((type) => type === 'srq-limit').length;
    const send = (n: number): void => {
      for (let i = 0; i < n; i++) links[0]!.client.postSend({ opcode: 'send' });
      pair.run();
    };
    send(3);
    expect([limits(), srq.limit]).toEqual([0, 3]);
    send(1);
    expect([limits(), srq.limit]).toEqual([1, 0]);
    send(1);
    expect(limits()).toBe(1);
    srq.postRecv(Array.from({ length: 4 }, () => ({})));
    srq.setLimit(5);
    send(1);
    expect(limits()).toBe(2);
    expect(server.asyncEvents.find((event) => event.type === 'srq-limit')).toMatchObject({ srq });
  });

  it('a queue pair above its limit of receives is reported once (VERBS-134, SEC-027)', async () => {
    const { pair, srq, links } = await sharedBench({ rqLimit: 2 });
    const { server } = pair;
    srq.postRecv(Array.from({ length: 10 }, () => ({})));
    const send = (n: number): void => {
      for (let i = 0; i < n; i++) links[0]!.client.postSend({ opcode: 'send' });
      pair.run();
    };
    links[1]!.client.postSend({ opcode: 'send' });
    send(2);
    expect(eventTypes(server.asyncEvents)).not.toContain('rq-limit');
    send(2);
    expect(server.asyncEvents.filter((event) => event.type === 'rq-limit')).toMatchObject([
      { qp: links[0]!.server },
    ]);
    expect(links[0]!.server.query()).toMatchObject({ recvTaken: 4, recvInProgress: 4, rqLimit: 0 });
    expect(links[1]!.server.query()).toMatchObject({ recvTaken: 1, recvInProgress: 1, rqLimit: 2 });
    server.received();
    expect(links[0]!.server.query()).toMatchObject({ recvTaken: 4, recvInProgress: 0 });
    links[0]!.server.modify({ rqLimit: 1 });
    send(1);
    expect(server.asyncEvents.filter((event) => event.type === 'rq-limit')).toHaveLength(1);
    send(1);
    expect(server.asyncEvents.filter((event) => event.type === 'rq-limit')).toHaveLength(2);
  });

  it('a limit above the size is refused, at creation and later (VERBS-135)', () => {
    const pd = new Device().allocatePd();
    expect(codeOf(() => pd.createSrq({ maxWr: 4, limit: 5 }))).toBe('ERR_INVALID_ARGUMENT');
    const srq = pd.createSrq({ maxWr: 4, limit: 4 });
    expect(codeOf(() => srq.setLimit(5))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => srq.modify({ limit: 9, maxWr: 8 }))).toBe('ERR_INVALID_ARGUMENT');
    expect(srq.query()).toMatchObject({ maxWr: 4, limit: 4 });
    srq.modify({ limit: 7, maxWr: 8 });
    expect(srq.query()).toMatchObject({ maxWr: 8, limit: 7 });
  });

  it('resized with entries posted, nothing is lost; never below those in use (VERBS-030/025)', async () => {
    const { pair, srq, links } = await sharedBench({ maxWr: 5 });
    srq.postRecv([0, 1, 2, 3, 4].map((wrId) => ({ wrId })));
    for (let i = 0; i < 2; i++) links[0]!.client.postSend({ opcode: 'send' });
    pair.run();
    expect(codeOf(() => srq.modify({ maxWr: 4 }))).toBe('ERR_IN_USE');
    srq.modify({ maxWr: 9 });
    srq.postRecv([5, 6, 7, 8].map((wrId) => ({ wrId })));
    expect(codeOf(() => srq.postRecv({}))).toBe('ERR_QUEUE_FULL');
    expect(outcomes(pair.server.received())).toEqual(['0 success', '1 success']);
    srq.modify({ maxWr: 7 });
    for (let i = 0; i < 7; i++) links[1]!.client.postSend({ opcode: 'send' });
    pair.run();
    expect(pair.server.received().map((wc) => wc.wrId)).toEqual([2, 3, 4, 5, 6, 7, 8]);
  });

  it('destroyed only when no queue pair uses it, entries posted or not (VERBS-136)', () => {
    const device = new Device();
    const pd = device.allocatePd();
    const cq = device.createCq(4);
    const srq = pd.createSrq({ maxWr: 4 });
    const mr = pd.registerMemory(new Uint8Array(4), LOCAL_WRITE);
    srq.postRecv({ sges: [{ mr }] });
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, srq });
    expect(codeOf(() => srq.destroy())).toBe('ERR_IN_USE');
    qp.destroy();
    srq.destroy();
    srq.destroy();
    expect(codeOf(() => srq.postRecv({}))).toBe('ERR_DESTROYED');
    expect(codeOf(() => pd.createQp({ sendCq: cq, recvCq: cq, srq }))).toBe('ERR_DESTROYED');
  });

  it('after the queue has failed, each QP in need gets Terminate 0/2/07 (VERBS-137/177)', async () => {
    const { pair, srq, links } = await sharedBench();
    srq.postRecv([{}, {}]);
    srq.fail();
    pair.run();
    expect(links.map((link) => link.server.state)).toEqual(['rts', 'rts']);
    links[0]!.client.postSend({ opcode: 'send' });
    pair.run();
    expect([terminateOf(links[0]!.server), terminateOf(links[0]!.client)]).toEqual(['0/2/07', '0/2/07']);
    expect(links[1]!.server.state).toBe('rts');
    expect(pair.server.asyncEvents.find((event) => event.type === 'srq-catastrophic')).toMatchObject({ srq });
  });

  it('drainRecv of an attached queue pair waits for the end of the connection', async () => {
    const { pair, srq, links } = await sharedBench();
    srq.postRecv({});
    let drained = false;
    const waiting = links[0]!.server.drainRecv().then(() => (drained = true));
    links[0]!.client.postSend({ opcode: 'send' });
    pair.run();
    await Promise.resolve();
    expect(drained).toBe(false);
    links[0]!.client.modify({ state: 'closing' });
    pair.run();
    await waiting;
    expect(drained).toBe(true);
  });
});
