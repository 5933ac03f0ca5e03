// The shared region over loopback, with both engines: the calls, their order, bounds, the end, wrong peers.
import { afterAll, describe, expect, it } from 'vitest';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import {
  connect,
  listen,
  rdma_accept,
  rdma_completion_poll,
  rdma_connect,
  rdma_init,
  rdma_listen,
  rdma_read,
  rdma_write,
  SharedRangeError,
  type RegionOptions,
  type SharedConnection,
  type SharedEvent,
  type SharedListener,
  type SharedSocket,
} from '../../src/shared/index.ts';
import { encodeTicket, decodeTicket } from '../../src/shared/ticket.ts';
import { ACCESS } from '../../src/verbs/index.ts';

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes.slice());
const put = (region: Uint8Array, at: number, words: string): number => {
  region.set(new TextEncoder().encode(words), at);
  return words.length;
};

interface Pair {
  readonly listener: SharedListener;
  readonly client: SharedConnection;
  readonly server: SharedConnection;
}

async function pair(rnic: Rnic, client: RegionOptions = {}, server: RegionOptions = {}): Promise<Pair> {
  const listener = await listen({ host: '127.0.0.1', rnic, octets: 65_536, ...server });
  const accepted = listener.accept();
  const connected = await connect({ port: listener.address.port }, { rnic, octets: 65_536, ...client });
  return { listener, client: connected, server: await accepted };
}

async function end({ listener, client, server }: Pair): Promise<void> {
  await client.socket.close();
  await server.socket.closed;
  await listener.close();
}

/** Poll, between turns of the event loop, until `count` completions have come, for ten seconds at most. */
async function polled(socket: SharedSocket, count: number): Promise<SharedEvent[]> {
  const all: SharedEvent[] = [];
  // By time and not by turns: a worker thread may wait longer for a processor than thousands of turns take.
  const end = performance.now() + 10_000;
  while (all.length < count && performance.now() < end) {
    const events: SharedEvent[] = [];
    socket.poll(events, 7);
    all.push(...events);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return all;
}

const devices: Rnic[] = [];
afterAll(() => {
  for (const { device } of devices) device.close();
});

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  const rnic = openRnic({ engine });
  devices.push(rnic);

  it('write and read move bytes between the regions, in either direction', async () => {
    const ends = await pair(rnic);
    const { client, server } = ends;
    const n = put(client.region, 100, 'from the client');
    await client.socket.settled(client.socket.write(n, 100, 7));
    put(server.region, 3000, 'from the server');
    await client.socket.settled(client.socket.read(15, 200, 3000));
    expect(text(client.region.subarray(200, 215))).toBe('from the server');
    // A read behind a write sees the written bytes, so this one also waits for the write to be placed.
    expect(text(server.region.subarray(7, 7 + n))).toBe('from the client');
    await server.socket.settled(server.socket.read(n, 0, 100));
    expect(text(server.region.subarray(0, n))).toBe('from the client');
    await end(ends);
  });

  it('numbers grow from 1; completions come once each, in the order of the requests', async () => {
    const ends = await pair(rnic);
    const { socket } = ends.client;
    const ids = Array.from({ length: 200 }, (_, i) =>
      i % 3 === 0 ? socket.read(i, 0, i) : socket.write(i, i, 0),
    );
    expect(ids).toEqual(Array.from({ length: 200 }, (_, i) => i + 1));
    const events = await polled(socket, 200);
    expect(events.map(({ id }) => id)).toEqual(ids);
    expect(events.map(({ operation }) => operation)).toEqual(
      ids.map((_, i) => (i % 3 === 0 ? 'read' : 'write')),
    );
    expect(events.map(({ length }) => length)).toEqual(ids.map((_, i) => i));
    expect(events.every(({ status }) => status === 'success')).toBe(true);
    expect(socket.poll([], 10)).toBe(0);
    await end(ends);
  });

  it('a full queue answers -1 and takes nothing; polled completions make room', async () => {
    const ends = await pair(rnic, { depth: 4 });
    const { socket } = ends.client;
    expect([1, 2, 3, 4, 5].map(() => socket.write(8, 0, 0))).toEqual([1, 2, 3, 4, -1]);
    await expect(socket.settled(-1)).rejects.toMatchObject({ code: 'ERR_QUEUE_FULL' });
    expect((await polled(socket, 4)).map(({ id }) => id)).toEqual([1, 2, 3, 4]);
    expect(socket.write(8, 0, 0)).toBe(5);
    await socket.settled(5);
    await end(ends);
  });

  it('settled takes a completion from poll, at any time, for any number of callers', async () => {
    const ends = await pair(rnic, { depth: 8 });
    const { socket } = ends.client;
    const [a, b, c] = [socket.write(1, 0, 0), socket.read(1, 0, 0), socket.write(1, 0, 0)];
    await Promise.all([socket.settled(b), socket.settled(b)]);
    await socket.settled(c);
    await socket.settled(b);
    expect((await polled(socket, 1)).map(({ id }) => id)).toEqual([a]);
    expect(socket.poll([], 8)).toBe(0);
    await socket.settled(a); // reported already, and still known to have succeeded
    // Awaited operations hold no place.
    for (let i = 0; i < 50; i++) await socket.settled(socket.write(1, 0, 0));
    await end(ends);
  });

  it('the regions may have different lengths, and each side is bounded by both', async () => {
    const ends = await pair(rnic, { octets: 64 }, { octets: 4096 });
    const { socket, region } = ends.client;
    expect([socket.length, socket.remoteLength, region.length]).toEqual([64, 4096, 64]);
    expect([ends.server.socket.length, ends.server.socket.remoteLength]).toEqual([4096, 64]);
    await socket.settled(socket.write(64, 0, 4032));
    for (const wrong of [
      () => socket.write(65, 0, 0),
      () => socket.write(1, 64, 0),
      () => socket.read(1, 0, 4096),
      () => socket.read(2, 63, 0),
      () => socket.write(-1, 0, 0),
      () => socket.write(1, -1, 0),
      () => socket.read(1, 0, -1),
      () => socket.write(0.5, 0, 0),
      () => socket.write(Number.NaN, 0, 0),
      () => socket.write(1, 0, 2 ** 53),
    ]) {
      expect(wrong).toThrow(SharedRangeError);
      expect(wrong).toThrow(RangeError);
      expect(wrong).toThrow(expect.objectContaining({ code: 'ERR_OUT_OF_RANGE', errno: 'EINVAL' }));
    }
    await end(ends);
  });

  it('a closed connection fails later calls, on both sides; close may be called again', async () => {
    const ends = await pair(rnic);
    const { client, server, listener } = ends;
    const last = client.socket.write(10, 0, 0);
    await client.socket.close();
    await client.socket.settled(last);
    await server.socket.closed;
    expect([client.socket.state, server.socket.state]).toEqual(['closed', 'closed']);
    expect(() => client.socket.write(1, 0, 0)).toThrow(
      expect.objectContaining({ code: 'ERR_CONNECTION_CLOSED' }),
    );
    expect(() => server.socket.read(1, 0, 0)).toThrow(expect.objectContaining({ name: 'IwarpError' }));
    await client.socket.close();
    client.socket.destroy();
    await listener.close();
  });

  it('a dropped peer fails the operations under way, with the reason, and none is lost', async () => {
    const ends = await pair(rnic);
    const { client, server, listener } = ends;
    const ids = Array.from({ length: 40 }, () => client.socket.read(65_536, 0, 0));
    const outcomes = ids.slice(20).map((id) => client.socket.settled(id).then(Boolean, (e: Error) => e));
    server.socket.destroy();
    const reason = await client.socket.closed;
    expect(reason).toMatchObject({ name: 'IwarpError' });
    for (const outcome of await Promise.all(outcomes))
      if (outcome instanceof Error) expect(outcome).toMatchObject({ code: 'ERR_WORK_COMPLETION' });
    const events = await polled(client.socket, 20);
    expect(events.map(({ id }) => id)).toEqual(ids.slice(0, 20));
    await listener.close();
  });

  it('a listener shares given memory with every connection', async () => {
    const memory = new Uint8Array(new SharedArrayBuffer(128));
    const listener = await listen({ host: '127.0.0.1', rnic, memory });
    const clients = [];
    for (let i = 0; i < 3; i++)
      clients.push(await connect({ port: listener.address.port }, { rnic, octets: 128 }));
    for (const [i, { socket, region }] of clients.entries()) {
      put(region, 0, `board ${i}`);
      await socket.settled(socket.write(7, 0, 16 * i));
      await socket.settled(socket.read(128, 0, 0));
    }
    expect(text(clients[2]!.region).replaceAll('\0', '')).toBe('board 0board 1board 2');
    for (const { socket } of clients) await socket.close();
    await listener.close();
  });

  it('a Send on such a connection finds no receive: it ends, and the listener serves others', async () => {
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 64 });
    const { device, cm } = rnic;
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const privateData = encodeTicket({ to: 0n, stag: 0x1234_56, length: 8 });
    const terminate = await new Promise<unknown>((resolve) => {
      cm.connect(qp, { host: '127.0.0.1', port: listener.address.port, privateData }).setHandler((event) => {
        if (event.type === 'established') qp.postSend({ opcode: 'send', inline: new Uint8Array(4) });
        if (event.type === 'disconnected') resolve(event.terminate?.description);
      });
    });
    // DDP, untagged buffer error, invalid MSN: no buffer available (decision C8).
    expect(terminate).toMatch(/^1\/2\/02/);
    const { socket } = await connect({ port: listener.address.port }, { rnic, octets: 64 });
    await socket.close();
    await listener.close();
    qp.destroy();
    cq.destroy();
    pd.deallocate();
  });

  it.each([
    ['no private data', undefined],
    ['15 octets', new Uint8Array(15).fill(1)],
    ['17 octets', new Uint8Array(17).fill(1)],
    ['length 0', encodeTicket({ to: 0n, stag: 1, length: 0 })],
    ['an end above 2^64', encodeTicket({ to: 2n ** 64n - 4n, stag: 1, length: 5 })],
  ])('a request with %s is refused without private data', async (_name, privateData) => {
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 64 });
    const { device, cm } = rnic;
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const { port } = listener.address;
    const seen = await new Promise<string[]>((resolve) => {
      const all: string[] = [];
      const connection = cm.connect(qp, { host: '127.0.0.1', port, ...(privateData && { privateData }) });
      connection.setHandler((event) => {
        if (event.type === 'rejected') all.push(`rejected ${event.parameters.privateData.length}`);
        if (event.type === 'disconnected') resolve(all);
      });
    });
    expect(seen).toEqual(['rejected 0']);
    expect(listener.refused).toBe(1);
    await listener.close();
    qp.destroy();
    cq.destroy();
    pd.deallocate();
  });

  it('a listener whose ticket is wrong ends connect with ERR_PROTOCOL', async () => {
    const { device, cm } = rnic;
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const listener = await cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      request.setHandler(() => undefined);
      request.accept(qp, { privateData: encodeTicket({ to: 0n, stag: 1, length: 0 }) });
    });
    await expect(connect({ port: listener.address.port }, { rnic, octets: 64 })).rejects.toMatchObject({
      code: 'ERR_PROTOCOL',
    });
    await new Promise<void>((resolve) => listener.close(resolve));
    qp.destroy();
    cq.destroy();
    pd.deallocate();
  });

  it('a ticket with a wrong STag is the peer’s own loss: its access ends the connection', async () => {
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 64 });
    const accepted = listener.accept();
    const { device, cm } = rnic;
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const mr = pd.registerMemory(device.allocateMemory(64), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_WRITE);
    const privateData = encodeTicket({ to: mr.addr, stag: mr.rkey ^ 1, length: 64 });
    const connection = cm.connect(qp, { host: '127.0.0.1', port: listener.address.port, privateData });
    const gone = new Promise<void>((resolve) =>
      connection.setHandler((event) => {
        if (event.type === 'disconnected') resolve();
      }),
    );
    const { socket } = await accepted;
    const id = socket.write(8, 0, 0);
    await gone;
    expect(await socket.closed).toMatchObject({ code: 'ERR_TERMINATED' });
    await socket.settled(id).catch(() => undefined);
    await listener.close();
    mr.deregister();
    qp.destroy();
    cq.destroy();
    pd.deallocate();
  });

  it('accept waits, is refused by a closed listener, and iterates', async () => {
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 64 }, 2);
    const waiting = listener.accept();
    const refused = expect(waiting).rejects.toMatchObject({ code: 'ERR_DESTROYED' });
    await listener.close();
    await refused;
    await expect(listener.accept()).rejects.toMatchObject({ code: 'ERR_DESTROYED' });
    for await (const _ of listener) throw new Error('a closed listener has no connection');

    const other = await listen({ host: '127.0.0.1', rnic, octets: 64 }, 2);
    const { port } = other.address;
    const clients = [
      await connect({ port }, { rnic, octets: 64 }),
      await connect({ port }, { rnic, octets: 64 }),
    ];
    await expect(connect({ port }, { rnic, octets: 64 })).rejects.toMatchObject({ code: 'ERR_REJECTED' });
    let seen = 0;
    for await (const { socket } of other) {
      expect(socket.state).toBe('open');
      if (++seen === 2) await other.close();
    }
    for (const { socket } of clients) await socket.close();
  });
});

it('the paper’s names are the same calls', async () => {
  rdma_init();
  const listener = await rdma_listen({ host: '127.0.0.1', port: 0 }, 4);
  const accepted = rdma_accept(listener);
  const client = await rdma_connect({ host: '127.0.0.1', port: listener.address.port });
  const server = await accepted;
  expect([client.mr_len, server.mr_len]).toEqual([16 * 2 ** 20, 16 * 2 ** 20]);
  expect(server.remote.address).toBe('127.0.0.1');
  put(client.mr_base, 0, 'six calls');
  expect(rdma_write(client.socket, 9, 0, 50)).toBe(1);
  expect(rdma_read(client.socket, 9, 20, 50)).toBe(2);
  const events: SharedEvent[] = [];
  const end = performance.now() + 10_000;
  for (let n = 0; n < 2 && performance.now() < end; ) {
    n += rdma_completion_poll(client.socket, events, 1);
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(text(client.mr_base.subarray(20, 29))).toBe('six calls');
  await client.socket.close();
  await listener.close();
});

it('nobody at the port is ERR_CONNECT; wrong options are named', async () => {
  const rnic = openRnic({ engine: 'thread' });
  await expect(connect({ port: 1 }, { rnic, octets: 64 })).rejects.toMatchObject({ code: 'ERR_CONNECT' });
  rnic.device.close(); // nothing is left on it
  await expect(connect({ port: 1 }, { octets: 0 })).rejects.toThrow(/options\.octets/);
  await expect(connect({ port: 1 }, { octets: 2 ** 32 })).rejects.toThrow(/options\.octets/);
  await expect(connect({ port: 1 }, { depth: 0 })).rejects.toThrow(/options\.depth/);
  await expect(connect({ port: 1 }, { memory: new Uint8Array(0) })).rejects.toThrow(/options\.memory/);
  await expect(connect({ port: 1 }, { octet: 5 } as RegionOptions)).rejects.toThrow(/options\.octet /);
  await expect(listen({ port: 70_000 })).rejects.toThrow(/options\.port/);
  await expect(listen({}, 0)).rejects.toThrow(/backlog/);
});

it('tickets keep every bit', () => {
  const ticket = { to: 0xfedc_ba98_7654_3210n, stag: 0x8765_4321, length: 0xffff };
  expect(Buffer.from(encodeTicket(ticket)).toString('hex')).toBe('fedcba9876543210876543210000ffff');
  expect(decodeTicket(encodeTicket(ticket))).toEqual(ticket);
  expect(decodeTicket(encodeTicket({ ...ticket, to: 2n ** 64n - 0xffffn }))).not.toBeNull();
});
