// Registrations on a device whose streams run in a worker thread: what the program does while the engine or
// the peer has already gone on.
import { describe, expect, it, vi } from 'vitest';
import { NO_BYTES } from '../../src/base/copy.ts';
import { stateOf, StagEntry, StagTable } from '../../src/ddp/stag-table.ts';
import { StagReplica } from '../../src/engine/worker/stag-replica.ts';
import { SgeList } from '../../src/queues/work.ts';
import { ACCESS, type MemoryRegion, type MemoryWindow } from '../../src/verbs/index.ts';
import type { Rnic } from '../../src/index.ts';
import { encodeReadRequest, untaggedUlpdu } from '../support/naive/encoder.ts';
import type { RawPeer } from '../support/raw-peer.ts';
import { dial, End, EVERYTHING, join, memory, openWorkers, stop, twoWorkers, until } from './support.ts';

const { LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE } = ACCESS;
const { near, far, pair } = twoWorkers();

/** Busy, hearing of nothing, until the engine has sent or received this number of Sends. */
function busyUntil(end: End, direction: 'messagesOut' | 'messagesIn', sends: number): void {
  while (end.connection!.counters()[direction].sends < sends);
}

describe('a window that the engine has bound and the program has not heard of', () => {
  async function bound(): Promise<{
    client: End;
    server: End;
    region: MemoryRegion;
    mw: MemoryWindow;
    read: () => Promise<string[]>;
  }> {
    const { client, server } = await pair();
    const region = memory(server, 64, EVERYTHING, 0x1000);
    const mw = server.pd.allocateMw();
    client.qp.postRecv({});
    server.qp.postSend([{ opcode: 'bind-mw', mw, mr: region, access: REMOTE_READ }, { opcode: 'send' }]);
    busyUntil(server, 'messagesOut', 1);
    const sink = memory(client, 64);
    return {
      client,
      server,
      region,
      mw,
      read: async () => {
        await client.completed(1); // the Send
        client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: sink }], rkey: mw.rkey, remoteAddr: mw.addr });
        return client.statuses(1);
      },
    };
  }

  it('keeps its region from being deregistered (VERBS-151)', async () => {
    const { server, region, mw, read } = await bound();
    expect(() => region.deregister()).toThrow(expect.objectContaining({ code: 'ERR_IN_USE' }));
    expect([mw.valid, server.cq.length]).toEqual([true, 2]);
    expect(await read()).toEqual(['rdma-read success']);
    mw.deallocate();
    region.deregister();
  });

  it('keeps its region from being registered anew (VERBS-149)', async () => {
    const { region, read } = await bound();
    const before = region.rkey;
    expect(() => region.reregister({ access: LOCAL_WRITE })).toThrow(
      expect.objectContaining({ code: 'ERR_IN_USE' }),
    );
    expect(region.rkey).toBe(before);
    expect(await read()).toEqual(['rdma-read success']);
  });

  it.each([
    ['deregistered', (mr: MemoryRegion) => mr.deregister()],
    ['registered anew', (mr: MemoryRegion) => mr.reregister({ access: EVERYTHING })],
  ])(
    'ends with its region where the bind comes between the question and this being %s (VERBS-151)',
    async (_how, end) => {
      const { server, region, mw, read } = await bound();
      const late = vi.spyOn(server.rnic.device.mirror!, 'settle').mockReturnValue();
      const { rkey } = mw;
      end(region);
      late.mockRestore();
      expect(await server.statuses(2)).toEqual(['bind-mw success', 'send success']);
      expect([mw.valid, mw.rkey, server.qp.query().boundWindows]).toEqual([false, rkey, 0]);
      expect(await read()).toEqual(['rdma-read remote-access-error']);
    },
  );
});

describe('a call that waits for the engine', () => {
  it('learns of a bind behind more completions than the ring holds (VERBS-151)', async () => {
    const DEPTH = 5000; // of each connection; seven words each
    const { client, server } = await pair({ maxRecvWr: DEPTH, maxSendWr: DEPTH });
    const [other, source] = [new End(far, { maxRecvWr: DEPTH }), new End(near, { maxSendWr: DEPTH })];
    await join(source, other);
    const region = memory(server, 64, EVERYTHING, 0x1000);
    const mw = server.pd.allocateMw();
    for (const { qp } of [server, other]) qp.postRecv(Array.from({ length: DEPTH }, () => ({})));
    for (const { qp } of [client, source])
      qp.postSend(Array.from({ length: DEPTH }, () => ({ opcode: 'send' as const, signaled: false })));
    for (const end of [server, other]) busyUntil(end, 'messagesIn', DEPTH);
    client.qp.postRecv({});
    server.qp.postSend([{ opcode: 'bind-mw', mw, mr: region, access: REMOTE_READ }, { opcode: 'send' }]);
    busyUntil(server, 'messagesOut', 1);
    expect(() => region.deregister()).toThrow(expect.objectContaining({ code: 'ERR_IN_USE' }));
    mw.deallocate();
    region.deregister();
  });
});

describe('registerShared', () => {
  it('leaves work under way alone (VERBS-150)', async () => {
    const { client, server } = await pair();
    const sink = memory(server, 64);
    server.qp.postRecv({ sges: [{ mr: sink }] });
    sink.registerShared(LOCAL_WRITE);
    client.qp.postSend({ opcode: 'send', inline: Uint8Array.of(7) });
    expect(await server.statuses(1)).toEqual(['receive success']);
    expect(sink.bytes[0]).toBe(7);
  });

  it('of a region that the peer just invalidated does not give it back to the peer (SEC-008)', async () => {
    const { client, server } = await pair();
    const region = memory(server, 64);
    const { rkey } = region;
    server.qp.postRecv({});
    client.qp.postSend({ opcode: 'send', invalidate: rkey });
    busyUntil(server, 'messagesIn', 1);
    region.registerShared(LOCAL_WRITE);
    expect((await server.completed(1))[0]).toMatchObject({ invalidatedStag: rkey });
    expect(region.valid).toBe(false);
    await client.completed(1);
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: memory(client, 64) }], rkey, remoteAddr: 0 });
    expect(await client.statuses(1)).toEqual(['rdma-read remote-access-error']);
  });

  it("of a region that the queue changed meanwhile: both threads have the queue's state", async () => {
    const { client, server } = await pair();
    const [gone, renewed] = [memory(server, 64), memory(server, 64)];
    const page = far.device.allocateMemory(64).fill(3);
    client.qp.postRecv({});
    server.qp.postSend([
      { opcode: 'local-invalidate', target: gone },
      { opcode: 'local-invalidate', target: renewed },
      { opcode: 'reg-mr', mr: renewed, memory: page, access: LOCAL_WRITE | REMOTE_READ },
      { opcode: 'send' },
    ]);
    busyUntil(server, 'messagesOut', 1);
    const { rkey } = renewed;
    for (const region of [gone, renewed]) region.registerShared(LOCAL_WRITE);
    await server.completed(4);
    expect([gone.valid, renewed.valid, renewed.rkey, renewed.bytes === page]).toEqual([
      false,
      true,
      rkey,
      true,
    ]);
    await client.completed(1);
    const sink = memory(client, 64);
    client.qp.postSend({ opcode: 'rdma-read', sges: [{ mr: sink }], rkey, remoteAddr: 0 });
    expect(await client.statuses(1)).toEqual(['rdma-read success']);
    expect(sink.bytes[63]).toBe(3);
  });
});

describe('fast registration', () => {
  it('that never runs leaves nothing behind: the STag may come to mean other memory', async () => {
    const { client, server } = await pair();
    const mr = server.pd.allocateFastRegion(64);
    const dead = new End(far, {}, server.pd);
    dead.qp.postSend({ opcode: 'reg-mr', mr, memory: far.device.allocateMemory(64), access: LOCAL_WRITE });
    const promised = mr.rkey;
    dead.watch(far.cm.connect(dead.qp, { host: '127.0.0.1', port: 1 }));
    await until(() => dead.connection!.finished);
    dead.qp.destroy();
    mr.reregister({ memory: far.device.allocateMemory(64).fill(5), access: LOCAL_WRITE });
    expect(mr.rkey).not.toBe(promised); // SEC-009: a fresh one each time
    const sink = memory(client, 64);
    client.qp.postRecv({ sges: [{ mr: sink }] });
    server.qp.postSend({ opcode: 'send', sges: [{ mr }] });
    expect([await server.statuses(1), await client.statuses(1)]).toEqual([
      ['send success'],
      ['receive success'],
    ]);
    expect(sink.bytes[63]).toBe(5);
  });

  it('flushed with its connection leaves nothing behind either', async () => {
    const { client, server } = await pair();
    const mr = server.pd.allocateFastRegion(64);
    // After a Read that the peer cannot answer: the connection is gone before.
    server.qp.postSend([
      { opcode: 'rdma-read', sges: [{ mr: memory(server, 8) }], rkey: memory(client, 8).rkey, remoteAddr: 0 },
      { opcode: 'reg-mr', mr, memory: far.device.allocateMemory(64), access: LOCAL_WRITE, fence: true },
    ]);
    server.connection!.abort();
    await until(() => server.event('disconnected') !== undefined);
    expect((await server.statuses(2))[1]).toBe('reg-mr flushed');
    mr.reregister({ memory: far.device.allocateMemory(64).fill(6), access: LOCAL_WRITE });
    const other = new End(far, {}, server.pd);
    const reader = new End(near);
    await join(reader, other);
    reader.qp.postRecv({ sges: [{ mr: memory(reader, 64) }] });
    other.qp.postSend({ opcode: 'send', sges: [{ mr }] });
    expect(await other.statuses(1)).toEqual(['send success']);
  });
});

describe('memory beyond 4 GiB of its buffer', () => {
  it("is the same memory in the engine's thread, registered by a call and through a queue", async () => {
    const [PLACE, OCTETS] = [0x1_0000_1000, 4096];
    const { client, server } = await pair();
    const buffer = new SharedArrayBuffer(PLACE + 2 * OCTETS); // of which the system gives touched pages only
    const [first, second, low] = [PLACE, PLACE + OCTETS, PLACE % 2 ** 32].map(
      (at) => new Uint8Array(buffer, at, OCTETS),
    );
    const mr = server.pd.registerMemory(first!, LOCAL_WRITE | REMOTE_WRITE);
    const fast = server.pd.allocateFastRegion(OCTETS);
    server.qp.postSend({ opcode: 'reg-mr', mr: fast, memory: second!, access: LOCAL_WRITE | REMOTE_WRITE });
    expect(await server.statuses(1)).toEqual(['reg-mr success']);
    server.qp.postRecv({});
    const source = memory(client, OCTETS);
    source.bytes.fill(7);
    for (const { rkey } of [mr, fast])
      client.qp.postSend({ opcode: 'rdma-write', sges: [{ mr: source }], rkey, remoteAddr: 0 });
    client.qp.postSend({ opcode: 'send' });
    expect(await server.statuses(1)).toEqual(['receive success']);
    expect([first, second, low].map((bytes) => [bytes![0], bytes![OCTETS - 1]])).toEqual([
      [7, 7],
      [7, 7],
      [0, 0],
    ]);
  });
});

describe('no octets', () => {
  /** A view of none, over memory that has been transferred away. */
  function nothing(): Uint8Array {
    const buffer = new ArrayBuffer(64);
    const view = new Uint8Array(buffer);
    structuredClone(buffer, { transfer: [buffer] });
    return view;
  }

  it('can be registered wherever they were, by call and queue; the next request goes out', async () => {
    const { client, server } = await pair();
    expect(server.pd.registerMemory(nothing(), LOCAL_WRITE).length).toBe(0);
    const mr = server.pd.allocateFastRegion(64);
    client.qp.postRecv({});
    server.qp.postSend([
      { opcode: 'reg-mr', mr, memory: nothing(), access: LOCAL_WRITE },
      { opcode: 'send' },
    ]);
    expect(await server.statuses(2)).toEqual(['reg-mr success', 'send success']);
    expect([mr.valid, mr.length, far.device.state]).toEqual([true, 0, 'open']);
  });
});

describe('the copy of the table', () => {
  const PD = 1;
  const QP = 9;

  function table(): {
    replica: StagReplica;
    region: StagEntry;
    window: StagEntry;
    windowValid: () => boolean;
  } {
    let n = 0;
    const device = new StagTable(() => ++n, 16);
    const replica = new StagReplica(16, () => undefined);
    const region = device.allocate('region', PD);
    Object.assign(region, {
      bytes: new Uint8Array(new SharedArrayBuffer(64)),
      access: EVERYTHING,
      zeroBased: false,
    });
    const window = device.allocate('window', PD);
    Object.assign(window, { valid: false });
    for (const entry of [region, window]) replica.put(stateOf(entry));
    return { replica, region, window, windowValid: () => replica.table.withIndex(window.stag)!.valid };
  }

  const bind = (replica: StagReplica, region: StagEntry, window: StagEntry): string =>
    replica
      .work(
        {
          type: 'bind',
          index: window.stag,
          regionStag: region.stag,
          key: 1,
          offset: 0,
          length: 64,
          access: REMOTE_READ,
          baseHi: 0,
          baseLo: 0,
          qp: QP,
        },
        { boundWindows: 0 },
      )
      .run();

  it.each<[string, (replica: StagReplica, region: StagEntry) => void]>([
    ['dropped', (replica, { stag }) => replica.drop(stag)],
    ['changed', (replica, region) => replica.put({ ...stateOf(region), stag: region.stag + 1 })],
    ['invalidated', (replica, { stag }) => replica.invalidate(stag)],
  ])('windows on a region end when that is %s', (_how, end) => {
    const { replica, region, window, windowValid } = table();
    expect([bind(replica, region, window), windowValid()]).toEqual(['success', true]);
    end(replica, region);
    expect([windowValid(), replica.table.withIndex(window.stag)!.bytes.length]).toEqual([false, 0]);
  });

  it('a region that is shared from now on stays as it is otherwise', () => {
    const { replica, region } = table();
    const entry = replica.table.withIndex(region.stag)!;
    const { bytes } = entry;
    replica.invalidate(region.stag);
    replica.share(region.stag);
    expect([entry.shared, entry.valid, entry.bytes === bytes]).toEqual([true, false, true]);
  });

  it('an element after a fast registration finds the memory that it will give, until that is through', () => {
    const { replica, region } = table();
    const found = (stag: number): Uint8Array => {
      const list = new SgeList();
      replica.add(list, stag, 0, 8);
      return list.first.bytes;
    };
    const promise = (bytes: Uint8Array | null) =>
      replica.work(
        {
          type: 'register',
          index: region.stag,
          key: 0x55,
          memory: bytes,
          access: 0,
          baseHi: 0,
          baseLo: 0,
          zeroBased: true,
        },
        { boundWindows: 0 },
      );
    const stag = ((region.stag & 0xffff_ff00) | 0x55) >>> 0;
    const [first, second] = [new Uint8Array(8), new Uint8Array(8)];
    const [a, b] = [promise(first), promise(second)];
    expect(found(stag)).toBe(second);
    a.memory!.settled(); // of the same STag, but it is not the one that counts
    expect(found(stag)).toBe(second);
    b.memory!.settled();
    expect(found(stag)).toBe(replica.table.withIndex(stag)!.bytes);
    const empty = promise(null);
    expect(found(stag)).toBe(NO_BYTES);
    empty.memory!.settled();
    expect(found(0x1234_5600)).toBe(NO_BYTES); // no such region
  });
});

describe('memory that the engine still sends from, without a copy', () => {
  /** A raw peer has asked for more than the sockets hold, and reads none of it. */
  async function stalledRead(
    rnic: Rnic = far,
  ): Promise<{ server: End; region: MemoryRegion; peer: RawPeer }> {
    const server = new End(rnic);
    const region = memory(server, 24 << 20, REMOTE_READ);
    region.bytes.fill(7);
    const listener = await rnic.cm.listen(
      { host: '127.0.0.1', port: 0, policy: { crc: 'off' } },
      (request) => {
        server.watch(request);
        request.accept(server.qp);
      },
    );
    const peer = await dial(listener.address.port);
    peer.request({ revision: 1, crc: false });
    await until(() => peer.received.length >= 20 && server.event('established') !== undefined);
    listener.close();
    peer.pause();
    const body = encodeReadRequest({
      sinkStag: 1,
      sinkTo: 0n,
      size: 24 << 20,
      sourceStag: region.rkey,
      sourceTo: 0n,
    });
    peer.sendFpdus([untaggedUlpdu({ opcode: 1, qn: 1, msn: 1, mo: 0 }, body)]);
    // All that the sockets take has left, and the rest waits.
    for (let sent = -1, now = 0; sent !== now; ) {
      sent = now;
      await new Promise((resolve) => setTimeout(resolve, 100));
      now = server.connection!.counters().payloadOut;
    }
    expect(server.connection!.counters().payloadOut).toBeGreaterThan(0);
    return { server, region, peer };
  }

  it('is given back when the peer has taken it, or has gone (VERBS-151, SEC-007)', async () => {
    const { server, region, peer } = await stalledRead();
    let settled = false;
    const returned = Promise.resolve(region.deregister()).then(() => (settled = true));
    expect([region.deregistered, region.valid]).toEqual([true, false]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(settled).toBe(false);
    peer.reset();
    await returned;
    await until(() => server.event('disconnected') !== undefined);
  });

  it('is given back when the engine is gone', async () => {
    const rnic = openWorkers({ name: 'dies' });
    const { server, region } = await stalledRead(rnic);
    const returned = region.deregister();
    await stop(rnic);
    await returned;
    await until(() => server.event('disconnected') !== undefined);
  });

  it('that nobody reads is given back at once', async () => {
    const { server } = await pair();
    await memory(server, 64).deregister();
  });
});
