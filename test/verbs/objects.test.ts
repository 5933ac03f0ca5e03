// Devices, protection domains, creation, query and destruction of queues. Verbs draft 5, 6.1, 9.2.
import { describe, expect, it } from 'vitest';
import { Device, DEFAULT_LIMITS, type AsyncEvent } from '../../src/verbs/index.ts';
import { connectedPair, Pair } from '../support/pair.ts';
import { codeOf, eventTypes, LOCAL_WRITE, MW_BIND, REMOTE_READ, terminateOf } from './support.ts';

describe('device', () => {
  it('opens, answers queries, closes only when empty, and can make nothing afterwards (VERBS-030)', () => {
    const device = new Device({ name: 'rnic7' });
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const srq = pd.createSrq({ maxWr: 4 });
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const mr = pd.registerMemory(new Uint8Array(8), LOCAL_WRITE);
    const mw = pd.allocateMw();
    expect(device.query()).toMatchObject({
      name: 'rnic7',
      state: 'open',
      limits: DEFAULT_LIMITS,
      inUse: { pd: 1, cq: 1, qp: 1, srq: 1, mr: 1, mw: 1 },
      capabilities: {
        sharedReceiveQueues: true,
        memoryWindows: true,
        fastRegistration: true,
        immediateData: true,
      },
    });
    expect(codeOf(() => device.close())).toBe('ERR_IN_USE');
    qp.destroy();
    mr.deregister();
    mw.deallocate();
    srq.destroy();
    cq.destroy();
    pd.deallocate();
    expect(device.query().inUse).toEqual({ pd: 0, cq: 0, qp: 0, datagramQp: 0, srq: 0, mr: 0, mw: 0 });
    device.close();
    expect(device.state).toBe('closed');
    expect([codeOf(() => device.allocatePd()), codeOf(() => device.createCq(1))]).toEqual([
      'ERR_DESTROYED',
      'ERR_DESTROYED',
    ]);
  });

  it('each kind of object has its own limit, and a freed one can be had again (SEC-024/025)', () => {
    const limits = { maxPd: 1, maxCq: 1, maxQp: 1, maxSrq: 1, maxMr: 2 };
    const device = new Device({ limits });
    const pd = device.allocatePd();
    const cq = device.createCq(4);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const srq = pd.createSrq({ maxWr: 1 });
    const mr = pd.registerMemory(new Uint8Array(1), 0);
    pd.allocateMw();
    const again = [
      () => device.allocatePd(),
      () => device.createCq(4),
      () => pd.createQp({ sendCq: cq, recvCq: cq }),
      () => pd.createSrq({ maxWr: 1 }),
      () => pd.registerMemory(new Uint8Array(1), 0),
      () => pd.allocateMw(),
      () => pd.allocateFastRegion(1),
    ];
    expect(again.map(codeOf)).toEqual(again.map(() => 'ERR_LIMIT'));
    const users = pd.users;
    qp.destroy();
    srq.destroy();
    mr.deregister();
    expect(pd.users).toBe(users - 3);
    expect(pd.createQp({ sendCq: cq, recvCq: cq }).state).toBe('idle');
    expect(pd.createSrq({ maxWr: 1 }).maxWr).toBe(1);
    expect(pd.allocateFastRegion(1).valid).toBe(false);
  });

  it('the last registered handler gets the events, and without one they are lost (VERBS-120)', async () => {
    const pair = await connectedPair();
    const second: AsyncEvent[] = [];
    pair.server.device.setAsyncEventHandler((event) => second.push(event));
    pair.client.device.setAsyncEventHandler(null);
    pair.client.connection!.disconnect();
    pair.run();
    expect(eventTypes(second)).toEqual(['llp-closing', 'llp-close-complete']);
    expect(pair.server.asyncEvents).toEqual([]);
    expect(pair.client.asyncEvents).toEqual([]);
  });

  it('a failing device sends every peer 0/2/08 and takes nothing new (VERBS-177)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const first = [client.qp, server.qp] as const;
    const second = [client.createQp(), server.createQp()] as const;
    [client.qp, server.qp] = second;
    pair.connectClient();
    pair.run();
    server.device.fail();
    server.device.fail();
    pair.run();
    for (const [here, there] of [first, second]) {
      expect([terminateOf(here), terminateOf(there)]).toEqual(['0/2/08', '0/2/08']);
      expect(here.state).toBe('error');
    }
    expect(eventTypes(server.asyncEvents).filter((type) => type === 'device-fatal')).toEqual([
      'device-fatal',
    ]);
    expect(server.device.query().state).toBe('failed');
    expect(codeOf(() => server.device.allocatePd())).toBe('ERR_DESTROYED');
    expect(codeOf(() => server.createQp())).toBe('ERR_DESTROYED');
  });
});

describe('protection domain', () => {
  it('handles are unique, and one domain holds many of each kind (VERBS-001, VERBS-002)', () => {
    const device = new Device();
    const handles = Array.from({ length: 50 }, () => device.allocatePd().handle);
    expect(new Set(handles).size).toBe(50);
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    for (let i = 0; i < 3; i++) {
      const parts = [
        pd.createQp({ sendCq: cq, recvCq: cq }),
        pd.createSrq({ maxWr: 1 }),
        pd.registerMemory(new Uint8Array(1), 0),
        pd.allocateMw(),
      ];
      expect(parts.map((part) => part.pd)).toEqual([pd, pd, pd, pd]);
    }
    expect(pd.users).toBe(12);
  });

  it('a domain with a QP, SRQ, region or window is not deallocated; an empty one is (VERBS-003)', () => {
    const device = new Device();
    const cq = device.createCq(16);
    const makers = [
      (pd: ReturnType<Device['allocatePd']>) => {
        const qp = pd.createQp({ sendCq: cq, recvCq: cq });
        return () => qp.destroy();
      },
      (pd: ReturnType<Device['allocatePd']>) => {
        const srq = pd.createSrq({ maxWr: 1 });
        return () => srq.destroy();
      },
      (pd: ReturnType<Device['allocatePd']>) => {
        const mr = pd.registerMemory(new Uint8Array(1), 0);
        return () => mr.deregister();
      },
      (pd: ReturnType<Device['allocatePd']>) => {
        const mw = pd.allocateMw();
        return () => mw.deallocate();
      },
    ];
    for (const make of makers) {
      const pd = device.allocatePd();
      const giveBack = make(pd);
      expect(codeOf(() => pd.deallocate())).toBe('ERR_IN_USE');
      expect(pd.deallocated).toBe(false);
      giveBack();
      pd.deallocate();
      pd.deallocate();
      expect(codeOf(() => pd.registerMemory(new Uint8Array(1), 0))).toBe('ERR_DESTROYED');
      expect(codeOf(() => pd.createQp({ sendCq: cq, recvCq: cq }))).toBe('ERR_DESTROYED');
    }
    expect(device.query().inUse.pd).toBe(0);
  });
});

describe('queue pair creation and destruction', () => {
  it('an unused number, the queues asked for, state Idle, no stream (VERBS-016/017/019/020/032)', () => {
    const device = new Device();
    const pd = device.allocatePd();
    const [sendCq, recvCq] = [device.createCq(8), device.createCq(8)];
    const qps = Array.from({ length: 20 }, () =>
      pd.createQp({ sendCq, recvCq, maxSendWr: 3, maxRecvWr: 7, maxSendSge: 5, maxRecvSge: 6, maxInline: 0 }),
    );
    expect(new Set(qps.map((qp) => qp.number)).size).toBe(20);
    expect(qps[0]!.query()).toMatchObject({
      state: 'idle',
      maxSendWr: 3,
      maxRecvWr: 7,
      maxSendSge: 5,
      maxRecvSge: 6,
      maxInline: 0,
    });
    expect(qps[0]!.counters()).toBeUndefined();
    expect(codeOf(() => pd.createQp({ sendCq } as never))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => pd.createQp({ recvCq } as never))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => pd.createQp({ sendCq, recvCq, maxSendWr: DEFAULT_LIMITS.maxQpWr + 1 }))).toBe(
      'ERR_INVALID_ARGUMENT',
    );
  });

  it('depths given at creation bound the start-up, and 1 is always possible (VERBS-018/070)', async () => {
    const pair = await connectedPair({
      client: { qp: { ird: 1, ord: 1 }, param: { initiatorDepth: 16, responderResources: 16 } },
      server: { qp: { ird: 2, ord: 3 } },
    });
    expect(pair.client.qp.query()).toMatchObject({ ird: 1, ord: 1 });
    expect(pair.server.qp.query().ord).toBe(1);
    expect(pair.server.qp.query().ird).toBe(2);
    const { device } = pair.client;
    expect(codeOf(() => pair.client.createQp({ ord: device.limits.maxQpInitRdAtom + 1 }))).toBe(
      'ERR_INVALID_ARGUMENT',
    );
  });

  it('destroyed in RTS: the peer sees the end, no completion, free CQ (VERBS-026/027/028)', async () => {
    const pair = await connectedPair();
    const { client, server } = pair;
    const mr = client.register(64);
    client.qp.postRecv({ sges: [{ mr }] });
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 });
    client.qp.destroy();
    client.qp.destroy();
    pair.run();
    expect(client.sent()).toEqual([]);
    expect(client.received()).toEqual([]);
    expect(server.qp.state).toBe('error');
    expect(eventTypes(server.asyncEvents)).toContain('llp-connection-reset');
    client.sendCq.destroy();
    client.recvCq.destroy();
    expect(client.device.query().inUse.qp).toBe(0);
    expect(codeOf(() => client.qp.postSend({ opcode: 'send' }))).toBe('ERR_DESTROYED');
    expect(codeOf(() => client.qp.modify({ ord: 0 }))).toBe('ERR_DESTROYED');
  });

  it('works in every state, but not while a window is bound through the queue pair (VERBS-026)', async () => {
    for (const state of ['idle', 'closing', 'terminate', 'error'] as const) {
      const pair = state === 'idle' ? new Pair() : await connectedPair();
      const { qp } = pair.client;
      if (state !== 'idle') qp.modify({ state });
      qp.destroy();
      expect(qp.destroyed, state).toBe(true);
      pair.run();
    }
    const pair = await connectedPair();
    const { client } = pair;
    const mr = client.register(64);
    const mw = client.pd.allocateMw();
    client.qp.postSend({ opcode: 'bind-mw', mw, mr, access: REMOTE_READ });
    pair.run();
    expect(client.qp.query().boundWindows).toBe(1);
    expect(codeOf(() => client.qp.destroy())).toBe('ERR_IN_USE');
    expect(client.qp.state).toBe('rts');
    mw.deallocate();
    client.qp.destroy();
    expect((mr.access & MW_BIND) !== 0 && client.qp.destroyed).toBe(true);
  });

  it('a create call that fails leaves domain, device and queues as they were (VERBS-122)', () => {
    const device = new Device({ limits: { maxQp: 1 } });
    const pd = device.allocatePd();
    const cq = device.createCq(8);
    pd.createQp({ sendCq: cq, recvCq: cq });
    const before = [pd.users, cq.users, device.query().inUse];
    expect(codeOf(() => pd.createQp({ sendCq: cq, recvCq: cq }))).toBe('ERR_LIMIT');
    expect(codeOf(() => pd.createQp({ sendCq: cq, recvCq: cq, maxInline: -1 }))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => pd.createSrq({ maxWr: 4, limit: 5 }))).toBe('ERR_INVALID_ARGUMENT');
    expect(codeOf(() => pd.registerMemory(new Uint8Array(4), 64))).toBe('ERR_INVALID_ARGUMENT');
    expect([pd.users, cq.users, device.query().inUse]).toEqual(before);
  });
});
