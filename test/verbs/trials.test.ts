// Faults that programs written as libibverbs users write them have found: each of them stays mended.
import { describe, expect, it } from 'vitest';
import { connectedPair, Pair } from '../support/pair.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { connectFailure } from '../../src/cm/connect-failure.ts';
import { PRESETS } from '../../src/mpa/presets.ts';
import { ACCESS, bindWindow, Device, swapRequest } from '../../src/verbs/index.ts';
import { codeOf } from './support.ts';

describe('closing', () => {
  it('receives posted again after a local close serve the messages that still come (VERBS-042)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const sink = client.register(1 << 20);
    const source = server.register(1 << 20);
    const small = client.register(64);
    for (let i = 0; i < 2; i++) client.qp.postRecv({ wrId: 50 + i, sges: [{ mr: small, length: 8 }] });
    for (let i = 0; i < 4; i++)
      client.qp.postSend({
        wrId: i,
        opcode: 'rdma-read',
        sges: [{ mr: sink }],
        rkey: source.rkey,
        remoteAddr: 0,
      });
    client.connection!.disconnect();
    client.qp.postRecv({ wrId: 60, sges: [{ mr: small, length: 8 }] });
    expect(client.received()).toEqual([]);
    for (let i = 0; i < 3; i++) server.qp.postSend({ opcode: 'send', inline: new Uint8Array(8) });
    pair.run();
    expect(client.received().map(({ wrId, status }) => [wrId, status])).toEqual([
      [50, 'success'],
      [51, 'success'],
      [60, 'success'],
    ]);
    expect(client.sent().map(({ status }) => status)).toEqual(Array(4).fill('success'));
    expect(client.event('terminate')).toBeUndefined();
  });

  it('a request posted before the end has been reported completes as flushed', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    client.device.setAsyncEventHandler((event) => {
      if (event.type === 'llp-closing') client.qp.postSend({ wrId: 7, opcode: 'send' });
    });
    server.connection!.disconnect();
    pair.run();
    expect(client.qp.state).toBe('idle');
    expect(client.qp.query().sendOutstanding).toBe(0);
    expect(client.sent().map(({ wrId }) => wrId)).toEqual([7]);
  });
});

describe('depths in events (rdma_get_cm_event)', () => {
  it.each([
    ['mirrored', true],
    ['left out', false],
  ])('an accept with the depths of the event %s keeps the ORD of the client', async (_name, mirror) => {
    const asked: unknown[] = [];
    const pair = await connectedPair({
      client: { param: { responderResources: 1, initiatorDepth: 16 } },
      onRequest: (request, { server }) => {
        const { responderResources, initiatorDepth } = request.parameters!;
        asked.push(responderResources, initiatorDepth);
        request.accept(server.qp, mirror ? { responderResources, initiatorDepth } : {});
      },
    });
    const { client, server } = pair;
    expect(asked).toEqual([16, 1]);
    expect(client.event('established')!.negotiated).toMatchObject({ ord: 16, ird: 1 });
    expect(server.event('established')!.negotiated).toMatchObject({ ord: 1 });
    expect(server.event('established')!.negotiated.ird).toBeGreaterThanOrEqual(16);
    expect(client.event('established')!.parameters).toMatchObject({ responderResources: 1 });
    expect(client.qp.query().ord).toBe(client.event('established')!.negotiated.ord);
  });
});

describe('queue pairs', () => {
  it('the depths of a receive queue are ignored with a shared one, and may be 0 without (VERBS-127)', () => {
    const { pd, sendCq } = new Pair().client;
    const srq = pd.createSrq({ maxWr: 4 });
    const make =
      (options: object): (() => void) =>
      () =>
        pd.createQp({ sendCq, recvCq: sendCq, ...options }).destroy();
    for (const options of [
      { srq, maxRecvWr: 0, maxRecvSge: 0 },
      { srq, maxRecvWr: 10_000_000 },
      { maxRecvWr: 0 },
    ])
      expect(make(options)).not.toThrow();
    const qp = pd.createQp({ sendCq, recvCq: sendCq, maxRecvWr: 0 });
    expect(codeOf(() => qp.postRecv({}))).toBe('ERR_QUEUE_FULL');
  });

  it('a zero-length element may be of another domain (VERBS-085)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const other = client.device.allocatePd().registerMemory(new Uint8Array(8), 0);
    server.qp.postRecv({});
    client.qp.postSend({ opcode: 'send', sges: [{ mr: other, length: 0 }] });
    pair.run();
    expect(client.sent()).toMatchObject([{ status: 'success' }]);
  });
});

describe('re-registration', () => {
  it('gives an STag that cannot be worked out from the old one (SEC-009)', () => {
    const { client } = new Pair();
    const mr = client.register(8);
    const steps = new Set<number>();
    for (let i = 0; i < 50; i++) {
      const before = mr.rkey;
      mr.reregister({});
      expect(mr.rkey).not.toBe(before);
      steps.add(mr.rkey - before);
    }
    expect(steps.size).toBe(50);
  });
});

describe('events before there is a handler', () => {
  it('are kept for the first one, the latest 256; after null they are lost (VERBS-120)', () => {
    const { time, client } = new Pair();
    const device = new Device({ defer: (task) => time.defer(task) });
    const pd = device.allocatePd();
    const srq = pd.createSrq({ maxWr: 1 });
    const seen: string[] = [];
    for (let i = 0; i < 300; i++) srq.fail();
    device.setAsyncEventHandler((event) => seen.push(event.type));
    time.run();
    expect(seen).toEqual(Array(256).fill('srq-catastrophic'));
    device.setAsyncEventHandler(null);
    srq.fail();
    device.setAsyncEventHandler((event) => seen.push(event.type));
    time.run();
    expect(seen).toHaveLength(256);
    expect(client.asyncEvents).toEqual([]);
  });

  it('the last receive of a queue pair on a shared queue is reported when it has ended', async () => {
    const pair = new Pair();
    const { client, server } = pair;
    const srq = server.pd.createSrq({ maxWr: 4 });
    server.qp.destroy();
    server.qp = server.createQp({ srq });
    await pair.connect();
    client.connection!.abort();
    pair.run();
    expect(server.asyncEvents.filter(({ type }) => type === 'last-wqe-reached')).toEqual([
      { type: 'last-wqe-reached', qp: server.qp },
    ]);
    expect(client.asyncEvents.map(({ type }) => type)).not.toContain('last-wqe-reached');
  });
});

describe('private data', () => {
  it('is bounded by the policy: 256 bytes less the header with the preset for siw', async () => {
    const big = new Uint8Array(253);
    const pair = new Pair({ client: { policy: PRESETS.siw } });
    await pair.listen();
    const options = { host: '10.0.0.2', port: 4711, policy: PRESETS.siw };
    expect(codeOf(() => pair.client.cm.connect(pair.client.qp, { ...options, privateData: big }))).toBe(
      'ERR_TOO_LARGE',
    );
    expect(() =>
      pair.client.cm.connect(pair.client.qp, { ...options, privateData: big.subarray(1) }),
    ).not.toThrow();
    const codes: string[] = [];
    await connectedPair({
      server: { policy: PRESETS.siw },
      onRequest: (request, { server }) => {
        codes.push(
          codeOf(() => request.accept(server.qp, { privateData: big })),
          codeOf(() => request.reject(big)),
        );
        request.accept(server.qp, { privateData: big.subarray(1) });
      },
    });
    expect(codes).toEqual(['ERR_TOO_LARGE', 'ERR_TOO_LARGE']);
  });
});

describe('a connect that fails is classified as rdma_cm does', () => {
  it.each([
    ['ECONNREFUSED', 'rejected'],
    ['ECONNRESET', 'rejected'],
    ['ETIMEDOUT', 'unreachable'],
    ['ENETUNREACH', 'connect-error'],
    ['EHOSTUNREACH', 'connect-error'],
    ['EADDRNOTAVAIL', 'address-error'],
    ['ENOTFOUND', 'address-error'],
    [undefined, 'connect-error'],
  ])('by the status %s of the system: %s', (status, type) => {
    const system = Object.assign(new Error('system'), status === undefined ? {} : { code: status });
    for (const error of [
      system,
      new IwarpError('ERR_CONNECT', 'no connection', { cause: system }),
      new IwarpError('ERR_CONNECT', 'none', { cause: new AggregateError([system, new Error('other')]) }),
    ])
      expect(connectFailure(error)).toMatchObject({ type, status, error });
  });
});

describe('notifications', () => {
  it('given before there is a handler are kept for the first one', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    server.recvCq.requestNotify();
    server.qp.postRecv({});
    client.qp.postSend({ opcode: 'send' });
    pair.run();
    let called = 0;
    server.recvCq.setHandler(() => called++);
    pair.run();
    expect(called).toBe(1);
    server.recvCq.setHandler(() => called++);
    pair.run();
    expect(called).toBe(1);
  });

  it('of several queues come out of one channel, each queue once', async () => {
    const pair = new Pair();
    const { server, client } = pair;
    const channel = server.device.createCompletionChannel();
    const [one, two] = [1, 2].map((context) => server.device.createCq(16, { channel, context }));
    server.qp.destroy();
    server.qp = server.pd.createQp({ sendCq: one!, recvCq: two!, context: 'mine' });
    await pair.connect();
    expect(server.qp.context).toBe('mine');
    const first = channel.nextEvent();
    for (const cq of [one!, two!]) cq.requestNotify();
    server.qp.postRecv({});
    server.qp.postSend({ opcode: 'rdma-write', rkey: 0, remoteAddr: 0 });
    client.qp.postSend({ opcode: 'send' });
    pair.run();
    const ready = [await first, channel.getEvent()];
    expect(ready.map((cq) => cq?.context).sort()).toEqual([1, 2]);
    expect(channel.getEvent()).toBeNull();
    expect(codeOf(() => channel.destroy())).toBe('ERR_IN_USE');
    const seen: unknown[] = [];
    channel.setHandler((cq) => seen.push(cq.context));
    two!.requestNotify();
    server.connection!.abort();
    server.qp.postRecv({});
    pair.run();
    expect(seen).toEqual([2]);
    server.qp.destroy();
    one!.destroy();
    two!.destroy();
    channel.destroy();
    await expect(channel.nextEvent()).rejects.toMatchObject({ code: 'ERR_DESTROYED' });
    expect(codeOf(() => server.device.createCq(1, { channel }))).toBe('ERR_DESTROYED');
    expect(codeOf(() => server.device.createCq(1, { chanel: 1 } as never))).toBe('ERR_INVALID_ARGUMENT');
  });
});

describe('helpers', () => {
  it('bindWindow and swapRequest post what libibverbs has calls for', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = server.register(16, undefined, 0);
    const mw = server.pd.allocateMw();
    const rkey = bindWindow(server.qp, mw, {
      mr,
      offset: 8,
      length: 8,
      access: ACCESS.REMOTE_WRITE,
      iova: 0,
    });
    pair.run();
    expect(rkey).toBe(mw.rkey);
    client.qp.postSend({ opcode: 'rdma-write', inline: new Uint8Array(8).fill(7), rkey, remoteAddr: 0 });
    const sink = client.register(8);
    client.qp.postSend(
      swapRequest({ sges: [{ mr: sink }], rkey: mr.rkey, remoteAddr: 8, swap: 0x0909_0909_0909_0909n }),
    );
    pair.run();
    expect(sink.bytes).toEqual(new Uint8Array(8).fill(7));
    expect(mr.bytes).toEqual(new Uint8Array([...Array(8).fill(0), ...Array(8).fill(9)]));
  });
});
