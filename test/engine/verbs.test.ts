// Verbs and the connection manager on a device whose streams run in a worker thread: the same objects, calls,
// completions and events.
import { describe, expect, it, vi } from 'vitest';
import { ACCESS, type MemoryRegion, type SharedReceiveQueue } from '../../src/verbs/index.ts';
import { End, enginesOf, EVERYTHING, join, memory, openWorkers, stop, twoWorkers, until } from './support.ts';

const { near, far, pair } = twoWorkers();

describe('work requests', () => {
  it('Sends of several elements and inline, in order, with their other fields', async () => {
    const { client, server } = await pair();
    const source = memory(client, 64);
    const sink = memory(server, 64);
    source.bytes.set([1, 2, 3, 4, 5, 6, 7, 8]);
    server.qp.postRecv(
      [0, 16, 32, 48].map((offset) => ({
        wrId: offset,
        sges: [
          { mr: sink, offset, length: 3 },
          { mr: sink, offset: offset + 8, length: 8 },
        ],
      })),
    );
    client.qp.postSend([
      {
        wrId: 1,
        opcode: 'send',
        sges: [
          { mr: source, offset: 4, length: 2 },
          { mr: source, offset: 0, length: 3 },
        ],
      },
      { wrId: 2, opcode: 'send', inline: Uint8Array.of(9, 10, 11, 12, 13), solicited: true },
      { wrId: 3, opcode: 'immediate', immediate: 0x0102_0304_0506_0708n },
      { wrId: 4n, opcode: 'send' },
    ]);
    expect(await server.completed(4)).toMatchObject([
      { wrId: 0, opcode: 'receive', status: 'success', byteLength: 5, solicited: false },
      { wrId: 16, byteLength: 5, solicited: true },
      { wrId: 32, opcode: 'receive-immediate', immediate: 0x0102_0304_0506_0708n },
      { wrId: 48, byteLength: 0 },
    ]);
    expect([...sink.bytes.subarray(0, 11)]).toEqual([5, 6, 1, 0, 0, 0, 0, 0, 2, 3, 0]);
    expect([...sink.bytes.subarray(16, 27)]).toEqual([9, 10, 11, 0, 0, 0, 0, 0, 12, 13, 0]);
    expect((await client.completed(4)).map(({ wrId }) => wrId)).toEqual([1, 2, 3, 4n]);
  });

  it('Writes, Reads, atomics; unsignaled ones silent, fenced ones after the Reads', async () => {
    const { client, server } = await pair({ signalAll: false });
    const here = memory(client, 4096);
    const there = memory(server, 4096);
    here.bytes.fill(7, 0, 1000);
    const remote = { rkey: there.rkey, remoteAddr: 0n };
    client.qp.postSend([
      { opcode: 'rdma-write', sges: [{ mr: here, length: 1000 }], ...remote },
      {
        wrId: 1,
        opcode: 'rdma-read',
        signaled: true,
        sges: [{ mr: here, offset: 2000, length: 1000 }],
        ...remote,
      },
      {
        wrId: 2,
        opcode: 'atomic-fetch-add',
        signaled: true,
        sges: [{ mr: here, offset: 4000, length: 8 }],
        rkey: there.rkey,
        remoteAddr: 2048n,
        add: 41n,
      },
      {
        wrId: 3,
        opcode: 'atomic-cmp-swap',
        signaled: true,
        sges: [{ mr: here, offset: 4008, length: 8 }],
        rkey: there.rkey,
        remoteAddr: 2048n,
        compare: 41n,
        swap: 5n,
      },
      {
        wrId: 4,
        opcode: 'rdma-write',
        signaled: true,
        fence: true,
        sges: [{ mr: here, offset: 2000, length: 10 }],
        rkey: there.rkey,
        remoteAddr: 3000n,
      },
    ]);
    expect(
      (await client.completed(4)).map(({ wrId, opcode, status, byteLength }) => [
        wrId,
        opcode,
        status,
        byteLength,
      ]),
    ).toEqual([
      [1, 'rdma-read', 'success', 1000],
      [2, 'atomic-fetch-add', 'success', 8],
      [3, 'atomic-cmp-swap', 'success', 8],
      [4, 'rdma-write', 'success', 10],
    ]);
    expect([...here.bytes.subarray(2998, 3002)]).toEqual([7, 7, 0, 0]);
    const words = new BigUint64Array(here.bytes.buffer);
    expect([words[500], words[501], new BigUint64Array(there.bytes.buffer)[256]]).toEqual([0n, 41n, 5n]);
    await until(() => there.bytes[3009] === 7);
    expect(client.qp.query()).toMatchObject({ state: 'rts', sendOutstanding: 0 });
  });

  it('thousands of requests at once: more than the rings hold, none lost, all in order', async () => {
    const DEPTH = 8192;
    const { client, server } = await pair({ maxSendWr: DEPTH, maxRecvWr: DEPTH });
    const source = memory(client, 64);
    const sink = memory(server, 4);
    server.qp.postRecv(Array.from({ length: DEPTH }, (_, wrId) => ({ wrId, sges: [{ mr: sink }] })));
    client.qp.postSend(
      Array.from({ length: DEPTH }, (_, wrId) => ({
        wrId,
        opcode: 'send' as const,
        sges: [
          { mr: source, length: 1 },
          { mr: source, offset: 1, length: 1 },
          { mr: source, offset: 2, length: 2 },
        ],
      })),
    );
    const seen: unknown[] = [];
    const sent: unknown[] = [];
    for (let i = 0; i < DEPTH; i += 1024) {
      for (const { wrId } of await server.completed(1024)) seen.push(wrId);
      for (const { wrId } of await client.completed(1024)) sent.push(wrId);
    }
    const all = Array.from({ length: DEPTH }, (_, i) => i);
    expect(seen).toEqual(all);
    expect(sent).toEqual(all);
  });

  it('receives wake no sleeping engine unless they overfill the ring; none is lost', async () => {
    const DEPTH = 16_384; // six words each
    const { client, server } = await pair({ maxSendWr: DEPTH, maxRecvWr: DEPTH });
    const sink = memory(server, 4);
    await new Promise((resolve) => setTimeout(resolve, 50));
    const bell = vi.spyOn(enginesOf(far)[0]!.host.outbox, 'ringBell');
    server.qp.postRecv({ wrId: 0, sges: [{ mr: sink }] });
    expect(bell).not.toHaveBeenCalled();
    server.qp.postRecv(Array.from({ length: DEPTH - 1 }, (_, i) => ({ wrId: i + 1, sges: [{ mr: sink }] })));
    expect(bell).toHaveBeenCalled();
    bell.mockRestore();
    client.qp.postSend(
      Array.from({ length: DEPTH }, () => ({
        opcode: 'send' as const,
        inline: Uint8Array.of(1),
        signaled: false,
      })),
    );
    expect((await server.completed(DEPTH)).map(({ wrId }) => wrId)).toEqual(
      Array.from({ length: DEPTH }, (_, i) => i),
    );
  });

  it("a full ring emptied before this thread's turn: waiting records go before the request", async () => {
    const { client, server } = await pair();
    server.qp.postRecv({ wrId: 1 });
    const [engine] = enginesOf(near);
    const { host } = engine!;
    const { ring } = host.outbox;
    const FENCE = 5;
    for (let at = ring.begin(FENCE, 2); at >= 0; at = ring.begin(FENCE, 2)) ring.words[at + 1] = 0;
    host.command({ type: 'drop', stag: 0 }); // finds no room
    expect(host.outbox.open).toBe(false);
    while (ring.waitForRoom(2 * ring.maxRecord)); // until the engine has read them all
    // A call that goes round for ever would take the test's own time limit with it.
    const stall = vi.spyOn(engine!, 'stall');
    const room = vi.spyOn(engine!, 'room').mockImplementation(() => {
      if (room.mock.calls.length > 100) return;
      Object.getPrototypeOf(engine).room.call(engine);
    });
    client.qp.postSend({ opcode: 'send' });
    await new Promise((resolve) => setImmediate(resolve));
    expect(room.mock.calls.length).toBeLessThan(10);
    expect(await client.statuses(1)).toEqual(['send success']);
    expect((await server.completed(1))[0]).toMatchObject({ wrId: 1, status: 'success' });
    expect([stall.mock.calls.length, host.outbox.open]).toEqual([1, true]);
    stall.mockRestore();
    room.mockRestore();
  });

  it('more completions than the ring holds, while the main thread does nothing', async () => {
    const DEPTH = 6000;
    const third = openWorkers();
    const servers = [new End(far, { maxRecvWr: DEPTH }), new End(far, { maxRecvWr: DEPTH })];
    const clients = [
      new End(near, { maxSendWr: DEPTH, signalAll: false }),
      new End(third, { maxSendWr: DEPTH, signalAll: false }),
    ];
    for (const i of [0, 1]) {
      await join(clients[i]!, servers[i]!);
      servers[i]!.qp.postRecv(Array.from({ length: DEPTH }, (_, wrId) => ({ wrId })));
    }
    for (const { qp } of clients)
      qp.postSend(Array.from({ length: DEPTH }, () => ({ opcode: 'immediate' as const, immediate: 1n })));
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500);
    for (const server of servers) {
      expect((await server.completed(DEPTH)).map(({ wrId }) => wrId)).toEqual(
        Array.from({ length: DEPTH }, (_, i) => i),
      );
    }
    await stop(third);
  });

  it('posts in Idle go out with the connection, first the receives', async () => {
    const client = new End(near);
    const server = new End(far);
    const sink = memory(server, 16);
    server.qp.postRecv({ wrId: 5, sges: [{ mr: sink }] });
    client.qp.postSend({ wrId: 6, opcode: 'send', inline: Uint8Array.of(1, 2) });
    await join(client, server);
    expect(await server.statuses(1)).toEqual(['receive success']);
    expect(await client.statuses(1)).toEqual(['send success']);
  });

  it('requests that are too long for the ring, between others, in order', async () => {
    const [INLINE, ELEMENTS] = [1 << 20, 30_000];
    const rnic = openWorkers({ limits: { maxInline: INLINE, maxSge: ELEMENTS } });
    const pd = rnic.device.allocatePd();
    const srq = pd.createSrq({ maxWr: 4, maxSge: ELEMENTS });
    const [client, server] = [
      new End(rnic, { maxInline: INLINE, maxSendSge: ELEMENTS }, pd),
      new End(rnic, { maxRecvSge: ELEMENTS }, pd),
    ];
    await join(client, server);
    const source = memory(client, 256);
    source.bytes.set(source.bytes.map((_, i) => i));
    const sink = memory(server, INLINE);
    const each = (mr: MemoryRegion, count: number) =>
      Array.from({ length: count }, (_, i) => ({ mr, offset: i % 256, length: 1 }));
    for (const octets of [65_000, 65_536, 70_000, INLINE, 3]) {
      server.qp.postRecv([{ wrId: octets, sges: [{ mr: sink }] }, { wrId: 4096 }]);
      client.qp.postSend([
        { opcode: 'send', inline: new Uint8Array(octets).fill(octets % 251) },
        { opcode: 'send' },
      ]);
      expect(
        (await server.completed(2)).map(({ wrId, status, byteLength }) => [wrId, status, byteLength]),
      ).toEqual([
        [octets, 'success', octets],
        [4096, 'success', 0],
      ]);
      expect([sink.bytes[0], sink.bytes[octets - 1]]).toEqual([octets % 251, octets % 251]);
      await client.completed(2);
    }
    for (const count of [4095, 4096, 4097, ELEMENTS]) {
      server.qp.postRecv({ sges: [{ mr: sink }] });
      client.qp.postSend({ opcode: 'send', sges: each(source, count) });
      expect((await server.completed(1))[0]).toMatchObject({ status: 'success', byteLength: count });
      expect(sink.bytes[count - 1]).toBe((count - 1) % 256);
      await client.completed(1);
    }
    sink.bytes.fill(0);
    const shared = new End(rnic, { srq }, pd);
    const other = new End(rnic, {}, pd);
    await join(other, shared);
    srq.postRecv([{ wrId: 1, sges: each(sink, ELEMENTS) }, { wrId: 2 }]);
    server.qp.postRecv([{ wrId: 3, sges: each(sink, ELEMENTS) }, { wrId: 4 }]);
    for (const end of [other, client]) {
      end.qp.postSend([{ opcode: 'send', sges: [{ mr: source }] }, { opcode: 'send' }]);
      expect(await end.statuses(2)).toEqual(['send success', 'send success']);
    }
    expect((await shared.completed(2)).map(({ wrId, byteLength }) => [wrId, byteLength])).toEqual([
      [1, 256],
      [2, 0],
    ]);
    expect((await server.completed(2)).map(({ wrId, byteLength }) => [wrId, byteLength])).toEqual([
      [3, 256],
      [4, 0],
    ]);
    expect(sink.bytes[255]).toBe(255);
    await stop(rnic);
  });

  it('depths may grow while the queue is in use', async () => {
    const { client, server } = await pair({ maxSendWr: 2, maxRecvWr: 2 });
    client.qp.modify({ maxSendWr: 64 });
    server.qp.modify({ maxRecvWr: 64 });
    server.qp.postRecv(Array.from({ length: 64 }, (_, wrId) => ({ wrId })));
    client.qp.postSend(Array.from({ length: 64 }, (_, wrId) => ({ wrId, opcode: 'send' as const })));
    expect((await server.completed(64)).map(({ wrId }) => wrId)).toEqual(
      Array.from({ length: 64 }, (_, i) => i),
    );
    await client.qp.drainSend();
  });

  it('depths may grow while the connect still waits, after receives that fill the ring', async () => {
    const [BEFORE, DEPTH] = [16_000, 24_000];
    const client = new End(near, { maxRecvWr: BEFORE });
    const server = new End(far, { maxSendWr: DEPTH, signalAll: false });
    const sink = memory(client, 4);
    client.qp.postRecv(Array.from({ length: BEFORE }, (_, wrId) => ({ wrId, sges: [{ mr: sink }] })));
    const listener = await far.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      server.watch(request);
      request.accept(server.qp);
    });
    client.watch(near.cm.connect(client.qp, { host: '127.0.0.1', port: listener.address.port }));
    client.qp.modify({ maxRecvWr: DEPTH });
    client.qp.postRecv(
      Array.from({ length: DEPTH - BEFORE }, (_, i) => ({ wrId: BEFORE + i, sges: [{ mr: sink }] })),
    );
    await until(() => server.event('established') !== undefined);
    listener.close();
    server.qp.postSend(
      Array.from({ length: DEPTH }, () => ({ opcode: 'send' as const, inline: Uint8Array.of(1) })),
    );
    expect((await client.completed(DEPTH)).map(({ wrId }) => wrId)).toEqual(
      Array.from({ length: DEPTH }, (_, i) => i),
    );
  });

  it("misuse throws at once, in the caller's thread", async () => {
    const { client } = await pair({ maxSendWr: 1 });
    const mr = memory(client, 8, ACCESS.REMOTE_READ);
    const codeOf = (call: () => unknown): unknown => {
      try {
        return call();
      } catch (error) {
        return (error as { code: string }).code;
      }
    };
    expect(codeOf(() => client.qp.postSend({ opcode: 'send', sges: [{ mr, length: 9 }] }))).toBe(
      'ERR_OUT_OF_RANGE',
    );
    expect(
      codeOf(() => client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr }], rkey: 1, remoteAddr: 0 })),
    ).toBe('ERR_ACCESS');
    expect(codeOf(() => client.qp.postSend([{ opcode: 'send' }, { opcode: 'send' }]))).toBe('ERR_QUEUE_FULL');
    expect(codeOf(() => client.pd.registerMemory(new Uint8Array(8), 0))).toBe('ERR_NOT_SHARED');
    expect(codeOf(() => mr.reregister({ memory: new Uint8Array(8) }))).toBe('ERR_NOT_SHARED');
    const fast = client.pd.allocateFastRegion(64);
    expect(
      codeOf(() => client.qp.postSend({ opcode: 'reg-mr', mr: fast, memory: new Uint8Array(8), access: 0 })),
    ).toMatch(/ERR_NOT_SHARED|ERR_QUEUE_FULL/);
    expect(mr.valid).toBe(true);
  });
});

describe('memory', () => {
  it('from the return of deregister on the peer gets nothing (VERBS-151)', async () => {
    const { client, server } = await pair();
    const here = memory(client, 64);
    const there = memory(server, 64);
    const read = (): unknown =>
      client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: here }], rkey, remoteAddr: 0n });
    const { rkey } = there;
    read();
    expect(await client.statuses(1)).toEqual(['rdma-read success']);
    const { bytes } = there;
    there.deregister();
    bytes.fill(9);
    read();
    expect(await client.statuses(1)).toEqual(['rdma-read remote-access-error']);
    expect(here.bytes[0]).toBe(0);
    await until(() => server.event('disconnected') !== undefined);
    expect(server.event('terminate')!.terminate).toMatchObject({
      origin: 'local',
      layer: 0,
      type: 1,
      code: 0,
    });
  });

  it('after reregister the old STag means nothing, the new one the new memory (VERBS-149)', async () => {
    const { client, server } = await pair();
    const here = memory(client, 64);
    const there = memory(server, 64);
    const old = there.rkey;
    there.reregister({ access: ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ, iova: 4096n });
    there.bytes.fill(3);
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: here }], rkey: there.rkey, remoteAddr: 4096n });
    expect(await client.statuses(1)).toEqual(['rdma-read success']);
    expect(here.bytes[63]).toBe(3);
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: here }], rkey: old, remoteAddr: 0n });
    expect(await client.statuses(1)).toEqual(['rdma-read remote-access-error']);
  });

  it('fast registration, used at once, taken away by the peer, given anew (VERBS-148/159)', async () => {
    const { client, server } = await pair();
    const mr = server.pd.allocateFastRegion(64);
    const page = server.rnic.device.allocateMemory(64);
    const sink = memory(client, 64);
    for (let round = 1; round <= 3; round++) {
      page.fill(round);
      client.qp.postRecv({ sges: [{ mr: sink, length: 4 }] });
      server.qp.postRecv({ wrId: round });
      const before = mr.rkey;
      server.qp.postSend([
        { opcode: 'reg-mr', mr, memory: page, access: ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ },
        { opcode: 'send', sges: [{ mr, length: 4 }] },
      ]);
      expect(mr.rkey).not.toBe(before);
      expect(await server.statuses(2)).toEqual(['reg-mr success', 'send success']);
      expect(mr.valid).toBe(true);
      expect((await client.completed(1))[0]).toMatchObject({ status: 'success', byteLength: 4 });
      expect(sink.bytes[3]).toBe(round);
      client.qp.postSend([
        { opcode: 'rdma-read', sges: [{ mr: sink, offset: 8, length: 8 }], rkey: mr.rkey, remoteAddr: 0n },
        { opcode: 'send', invalidate: mr.rkey, fence: true },
      ]);
      expect(await client.statuses(2)).toEqual(['rdma-read success', 'send success']);
      expect(sink.bytes[15]).toBe(round);
      expect((await server.completed(1))[0]).toMatchObject({ invalidatedStag: mr.rkey });
      expect(mr.valid).toBe(false);
    }
  });

  it('windows bound, used, invalidated here and by the peer (VERBS-161, VERBS-166)', async () => {
    const { client, server } = await pair();
    const region = memory(server, 4096, EVERYTHING, 0x1000n);
    const mw = server.pd.allocateMw();
    const here = memory(client, 64);
    server.qp.postSend({
      opcode: 'bind-mw',
      mw,
      mr: region,
      offset: 1024,
      length: 64,
      access: ACCESS.REMOTE_READ,
    });
    expect(await server.statuses(1)).toEqual(['bind-mw success']);
    expect([mw.valid, mw.length, mw.query().region, server.qp.query().boundWindows]).toEqual([
      true,
      64,
      region.rkey,
      1,
    ]);
    region.bytes.fill(8, 1024, 1088);
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: here }], rkey: mw.rkey, remoteAddr: mw.addr });
    expect(await client.statuses(1)).toEqual(['rdma-read success']);
    expect(here.bytes[63]).toBe(8);
    server.qp.postSend({ opcode: 'local-invalidate', target: mw });
    expect(await server.statuses(1)).toEqual(['local-invalidate success']);
    expect([mw.valid, server.qp.query().boundWindows, region.query().windows]).toEqual([false, 0, 0]);
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: here }], rkey: mw.rkey, remoteAddr: mw.addr });
    expect(await client.statuses(1)).toEqual(['rdma-read remote-access-error']);
    mw.deallocate();
    region.deregister();
  });

  it('a bind that cannot be done completes in error and ends the stream (VERBS-169)', async () => {
    const { client, server } = await pair();
    const region = memory(server, 64, EVERYTHING, 0n);
    const mw = server.pd.allocateMw();
    const bind = { opcode: 'bind-mw', mw, mr: region, access: ACCESS.REMOTE_READ } as const;
    // The server is the responder: before the client's first FPDU it may not even send a Terminate (MPA-028,
    // ENH-046), so it waits with a Write.
    server.qp.postSend([{ opcode: 'rdma-write', rkey: 0, remoteAddr: 0n }, bind, bind]);
    expect(await server.statuses(3)).toEqual([
      'rdma-write success',
      'bind-mw success',
      'bind-mw mw-bind-error',
    ]);
    await until(() => client.event('disconnected') !== undefined);
    expect(client.event('terminate')!.terminate).toMatchObject({
      origin: 'remote',
      layer: 0,
      type: 0,
      code: 0,
    });
  });
});

describe('shared receive queues', () => {
  it('two connections take from one queue; the limit fires once (VERBS-133)', async () => {
    const pd = far.device.allocatePd();
    const srq = pd.createSrq({ maxWr: 64, limit: 8 });
    const events: string[] = [];
    const servers = [new End(far, { srq }, pd), new End(far, { srq }, pd)];
    far.device.setAsyncEventHandler((event) => events.push(event.type));
    const clients = [new End(near), new End(near)];
    srq.postRecv({ wrId: 0 });
    for (const i of [0, 1]) await join(clients[i]!, servers[i]!);
    srq.postRecv(Array.from({ length: 15 }, (_, i) => ({ wrId: i + 1 })));
    for (let i = 0; i < 5; i++) for (const { qp } of clients) qp.postSend({ opcode: 'send' });
    const taken = [...(await servers[0]!.completed(5)), ...(await servers[1]!.completed(5))].map(({ wrId }) =>
      Number(wrId),
    );
    expect(taken.toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(srq.query()).toMatchObject({ posted: 6, limit: 0 });
    // The event comes after the completion that caused it.
    await until(() => events.includes('srq-limit'));
    expect(events.filter((type) => type === 'srq-limit')).toHaveLength(1);
  });
});

describe('shared receive queues that are destroyed', () => {
  it('are given back by both threads, and no number is given twice', async () => {
    const pd = far.device.allocatePd();
    const [engine] = enginesOf(far);
    const used = async (): Promise<{ srq: SharedReceiveQueue; client: End; server: End }> => {
      const srq = pd.createSrq({ maxWr: 64 });
      const [client, server] = [new End(near), new End(far, { srq }, pd)];
      await join(client, server);
      return { srq, client, server };
    };
    const [first, second] = [await used(), await used()];
    first.server.connection!.abort();
    await until(() => first.server.event('disconnected') !== undefined);
    first.server.qp.destroy();
    expect(engine!.hasShared(first.srq.queue)).toBe(true);
    first.srq.destroy();
    expect([first, second].map(({ srq }) => engine!.hasShared(srq.queue))).toEqual([false, true]);
    const third = await used();
    for (const [i, { srq, client, server }] of [second, third].entries()) {
      srq.postRecv({ wrId: i });
      client.qp.postSend({ opcode: 'send' });
      expect((await server.completed(1))[0]).toMatchObject({ wrId: i, status: 'success' });
    }
    // Whatever names one that has gone is passed over.
    for (const type of ['drop-shared', 'fail-shared', 'resize-shared'] as const)
      engine!.host.command({ type, srq: 999, depth: 1 });
    engine!.host.fence();
    expect(far.device.state).toBe('open');
  });
});

describe('connections', () => {
  it('close in order: posted work goes out, the rest flushes, the queue pair reconnects', async () => {
    const { client, server } = await pair();
    server.qp.postRecv([{ wrId: 1 }, { wrId: 2 }]);
    client.qp.postSend({ opcode: 'send' });
    client.connection!.disconnect();
    expect(await server.statuses(2)).toEqual(['receive success', 'receive flushed']);
    await until(
      () => client.event('disconnected') !== undefined && server.event('disconnected') !== undefined,
    );
    expect([client.event('disconnected')!.cause, server.event('disconnected')!.cause]).toEqual([
      'graceful',
      'graceful',
    ]);
    expect([client.qp.state, server.qp.state]).toEqual(['idle', 'idle']);
    expect(client.connection!.counters()).toMatchObject({ messagesOut: { sends: 1 } });
    client.events.length = server.events.length = 0;
    server.qp.postRecv({ wrId: 3 });
    await join(client, server);
    client.qp.postSend({ opcode: 'send' });
    expect((await server.completed(1))[0]).toMatchObject({ wrId: 3, status: 'success' });
  });

  it('Modify to Error flushes posted work, and to Idle makes the queue pair usable again', async () => {
    const { client, server } = await pair();
    client.qp.postRecv([{}, {}]);
    client.qp.modify({ state: 'error' });
    expect(client.qp.state).toBe('error');
    expect(await client.statuses(2)).toEqual(['receive flushed', 'receive flushed']);
    await until(() => server.event('disconnected') !== undefined);
    expect(server.event('disconnected')!.cause).toBe('reset');
    client.qp.postSend({ opcode: 'send' });
    expect(await client.statuses(1)).toEqual(['send flushed']);
    client.qp.modify({ state: 'idle' });
    expect(client.qp.state).toBe('idle');
  });

  it('a Terminate reaches both ends decoded, with its async events', async () => {
    const { client, server } = await pair();
    client.qp.modify({ state: 'terminate' });
    await until(
      () => server.event('disconnected') !== undefined && client.event('disconnected') !== undefined,
    );
    expect(server.event('terminate')!.terminate).toMatchObject({
      origin: 'remote',
      layer: 0,
      type: 0,
      code: 0,
    });
    expect(server.asyncEvents.map(({ type }) => type)).toContain('terminate-received');
    expect([client.qp.state, server.qp.state]).toEqual(['error', 'error']);
  });

  it('a message without a receive ends the connection', async () => {
    const { client, server } = await pair();
    client.qp.postSend({ opcode: 'send' });
    await until(() => server.event('disconnected') !== undefined);
    expect(server.event('terminate')!.terminate).toMatchObject({
      origin: 'local',
      layer: 1,
      type: 2,
      code: 2,
    });
  });

  it('confirm holds the Reply; ord can be lowered; a refused connection is rejected (MPA-035)', async () => {
    const client = new End(near);
    const server = new End(far);
    const listener = await far.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      server.watch(request);
      request.accept(server.qp, { privateData: Uint8Array.of(1, 2, 3) });
    });
    const active = near.cm.connect(client.qp, {
      host: '127.0.0.1',
      port: listener.address.port,
      confirm: true,
    });
    client.watch(active);
    await until(() => client.event('connect-response') !== undefined);
    expect([...client.event('connect-response')!.parameters.privateData]).toEqual([1, 2, 3]);
    active.establish();
    await until(() => client.event('established') !== undefined);
    expect(active.ord).toBeGreaterThan(1);
    client.qp.modify({ ord: 1 });
    expect(client.qp.query().ord).toBe(1);
    const { port } = listener.address;
    await new Promise<void>((resolve) => listener.close(resolve));
    const lonely = new End(near);
    lonely.watch(near.cm.connect(lonely.qp, { host: '127.0.0.1', port }));
    await until(() => lonely.event('rejected') !== undefined);
    expect(lonely.event('rejected')).toMatchObject({
      status: 'ECONNREFUSED',
      error: { code: 'ERR_CONNECT' },
    });
    expect(lonely.qp.state).toBe('idle');
  });

  it.each(['reset', 'close'] as const)(
    'establish throws nothing if the peer has left meanwhile, by %s, and throws the second time (MPA-035)',
    async (how) => {
      const client = new End(near);
      const server = new End(far);
      const listener = await far.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
        server.watch(request);
        request.accept(server.qp);
      });
      const active = near.cm.connect(client.qp, {
        host: '127.0.0.1',
        port: listener.address.port,
        confirm: true,
      });
      expect(() => active.establish()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
      client.watch(active);
      await until(() => client.event('connect-response') !== undefined);
      // The program has heard of nothing yet in the turn in which the connection is gone.
      const told = active.event.bind(active);
      let crossed = false;
      const event = vi.spyOn(active, 'event').mockImplementation((said) => {
        told(said);
        if (said.type === 'closed') {
          active.establish();
          crossed = true;
        }
      });
      if (how === 'reset') server.connection!.abort();
      else server.qp.modify({ state: 'error' });
      await until(() => client.event('disconnected') !== undefined);
      event.mockRestore();
      expect(crossed).toBe(true);
      expect(() => active.establish()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
      expect(client.event('established')).toBe(undefined);
      listener.close();
    },
  );

  it('a listener with its limit in start-up turns others away, in its own thread (SEC-033)', async () => {
    const waiting: unknown[] = [];
    const listener = await far.cm.listen({ host: '127.0.0.1', port: 0, maxPending: 1 }, (request) =>
      waiting.push(request),
    );
    const ends = [new End(near), new End(near)];
    for (const end of ends) {
      end.watch(near.cm.connect(end.qp, { host: '127.0.0.1', port: listener.address.port }));
      await until(() => waiting.length > 0);
    }
    // reset after its TCP connection, or while that was being made
    await until(() => ends[1]!.connection!.finished);
    await until(() => listener.refused > 0); // the count comes from the other thread in its own time
    expect([listener.pending, listener.refused, waiting.length]).toEqual([1, 1, 1]);
    listener.close();
    await until(() => ends[0]!.event('disconnected') !== undefined);
  });
});
