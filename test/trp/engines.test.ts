/** Verbs, promises and byte streams over UDP of the system, with the engine in this thread and in workers. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { networkInterfaces } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { proxy } from '../../cli/proxy.ts';
import { retire } from '../../src/api/environment.ts';
import { connect, createServer, openRnic, type Rnic, type RnicOptions } from '../../src/index.ts';
import { connect as connectStream, createServer as createStreamServer } from '../../src/sockets/index.ts';
import { ACCESS } from '../../src/verbs/index.ts';
import { pattern } from '../verbs/support.ts';

const opened: Rnic[] = [];
const open = (options: RnicOptions): Rnic => {
  const rnic = openRnic({ wire: 'trp', ...options });
  opened.push(rnic);
  return rnic;
};
afterEach(() => {
  for (const rnic of opened.splice(0)) retire(rnic);
});

const PLACED = { reads: 'placed' } as const;
/** A busy machine may keep a thread waiting for longer than this profile's 60 ms. */
const URDMA = { profile: 'urdma', deadPeer: 5_000 } as const;
const KINDS: readonly [string, RnicOptions, string][] = [
  ['in this thread', { engine: 'thread' }, '127.0.0.1'],
  ['in this thread, IPv6', { engine: 'thread' }, '::1'],
  ['in this thread, ordered', { engine: 'thread', trp: { receiver: 'ordered' } }, '127.0.0.1'],
  ['in this thread, urdma', { engine: 'thread', trp: URDMA }, '127.0.0.1'],
  ['in a worker', { engine: 'worker' }, '127.0.0.1'],
  ['in a worker, IPv6', { engine: 'worker' }, '::1'],
  ['in a worker, Reads placed', { engine: 'worker', trp: { reads: 'placed' } }, '127.0.0.1'],
  ['in a worker, ordered', { engine: 'worker', trp: { receiver: 'ordered' } }, '127.0.0.1'],
  ['in a worker, urdma', { engine: 'worker', trp: URDMA }, '127.0.0.1'],
];

describe.each(KINDS)('%s', (_name, options, host) => {
  it('messages, Writes and Reads of the promise layer arrive as they are', { timeout: 50_000 }, async () => {
    const bytes = pattern(200_000);
    const server = createServer({ rnic: open(options) }, async (connection) => {
      const region = connection.allocate(bytes.length, 'read-write');
      await connection.send(connection.share(region).toBytes());
      const message = await connection.receive();
      message!.release();
      await connection.send(createHash('sha256').update(region.bytes).digest());
      for await (const more of connection) more.release();
    });
    await server.listen({ host, port: 0 });
    const connection = await connect({ rnic: open(options), host, port: server.address().port });
    const { RemoteBuffer } = await import('../../src/api/remote-buffer.ts');
    const first = await connection.receive();
    const ticket = RemoteBuffer.fromBytes(first!.data);
    first!.release();
    const source = connection.allocate(bytes.length, 'none');
    source.bytes.set(bytes);
    await connection.write(source, ticket);
    await connection.send('hash');
    const hash = await connection.receive();
    expect(Buffer.from(hash!.data)).toEqual(createHash('sha256').update(bytes).digest());
    hash!.release();
    const back = connection.allocate(bytes.length, 'none');
    await connection.read(ticket, back);
    expect(Buffer.compare(back.bytes, bytes)).toBe(0);
    await connection.close();
    await server.close();
  });

  it('a byte stream carries a megabyte each way and ends in order', { timeout: 50_000 }, async () => {
    const bytes = Buffer.from(pattern(1 << 20));
    const server = createStreamServer({ rnic: open(options) }, (socket) => socket.pipe(socket));
    server.listen({ host, port: 0 });
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const socket = connectStream({ rnic: open(options), host, port });
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(Buffer.from(chunk)));
    socket.end(bytes);
    await once(socket, 'end');
    expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
    await new Promise<void>((resolve) => server.close(() => resolve()));
  });
});

describe.each(['thread', 'worker'] as const)('Reads placed, engine %s', (engine) => {
  it('those behind a lost response complete before it', { timeout: 50_000 }, async () => {
    const [server, client] = [open({ engine, trp: PLACED }), open({ engine, trp: PLACED })];
    const COUNT = 6;
    const source = server.device.allocatePd();
    const shared = source.registerMemory(server.device.allocateMemory(COUNT * 100), ACCESS.REMOTE_READ);
    shared.bytes.set(pattern(COUNT * 100));
    const recvCq = server.device.createCq(16);
    const listener = await server.cm.listen({ host: '127.0.0.1', port: 0 }, (request) => {
      request.setHandler(() => undefined);
      request.accept(source.createQp({ sendCq: recvCq, recvCq }), {
        responderResources: COUNT,
        initiatorDepth: COUNT,
      });
    });
    const abort = new AbortController();
    const faults = ['--fault', 'drop,opcode=ReadResp,nth=1', '-q'];
    let said = '';
    let status: Promise<number> | undefined;
    const port = await new Promise<number>((listening) => {
      status = proxy(['0', String(listener.address.port), '--wire', 'trp', ...faults], {
        out: () => undefined,
        err: (text) => void (said += text),
        listening,
        signal: abort.signal,
      });
    });
    const pd = client.device.allocatePd();
    const cq = client.device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    const sink = pd.registerMemory(client.device.allocateMemory(COUNT * 100), ACCESS.LOCAL_WRITE);
    const connection = client.cm.connect(qp, {
      host: '127.0.0.1',
      port,
      responderResources: COUNT,
      initiatorDepth: COUNT,
    });
    await new Promise<void>((resolve, reject) => {
      connection.setHandler(({ type }) => (type === 'established' ? resolve() : reject(new Error(type))));
    });
    connection.setHandler(() => undefined);
    const { addr, rkey } = shared;
    qp.postSend(
      Array.from({ length: COUNT }, (_, i) => ({
        wrId: i,
        opcode: 'rdma-read' as const,
        sges: [{ mr: sink, offset: i * 100, length: 100 }],
        remoteAddr: addr + BigInt(i * 100),
        rkey,
      })),
    );
    const order: number[] = [];
    for await (const { wrId, status: result } of cq) {
      expect(result).toBe('success');
      order.push(Number(wrId));
      if (order.length === COUNT) break;
    }
    expect(order.toSorted()).toEqual([0, 1, 2, 3, 4, 5]);
    expect(order[0]).toBe(1);
    expect(order.indexOf(0)).toBeGreaterThan(1);
    expect(sink.bytes).toEqual(pattern(COUNT * 100));
    // A later Read completes as usual.
    qp.postSend({ wrId: 7, opcode: 'rdma-read', sges: [{ mr: sink, length: 100 }], remoteAddr: addr, rkey });
    for await (const { wrId } of cq) {
      expect(wrId).toBe(7);
      break;
    }
    connection.disconnect();
    await new Promise<void>((resolve) => listener.close(resolve));
    abort.abort();
    await status;
    expect(said).toContain('struck 1 time\n');
  });
});

describe('addresses', () => {
  // The system writes none of these as a source.
  it.each([
    ['0:0:0:0:0:0:0:1', '::1'],
    ['0.0.0.0', '127.0.0.1'],
    ['::ffff:7f00:1', '127.0.0.1'],
    ['localhost', undefined],
  ])('a client connects to %s', async (host, listens) => {
    const rnic = open({ engine: 'thread' });
    const server = createServer({ rnic }, async (connection) => {
      for await (const message of connection) await connection.send(message.data);
    });
    await server.listen({ port: 0, ...(listens !== undefined && { host: listens }) });
    const connection = await connect({ rnic, host, port: server.address().port });
    await connection.send('there and back');
    using message = await connection.receive();
    expect(message!.text()).toBe('there and back');
    await connection.close();
    await server.close();
  });

  it('a server at every address answers from each of them', async () => {
    const own = Object.values(networkInterfaces()).flatMap((list = []) =>
      list.filter(({ scopeid }) => !scopeid).map(({ address }) => address),
    );
    expect(own).toContain('127.0.0.1');
    const rnic = open({ engine: 'thread' });
    const server = createServer({ rnic }, async (connection) => {
      for await (const message of connection) await connection.send(message.data);
    });
    await server.listen({ port: 0 });
    for (const host of own) {
      const localAddress = host.includes(':') ? '::1' : '127.0.0.1';
      const connection = await connect({ rnic, host, port: server.address().port, localAddress });
      await connection.close();
    }
    await server.close();
  });
});

describe('devices', () => {
  it('refuse a shared receive queue, and options that do not fit', () => {
    const { device } = open({ engine: 'thread' });
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const srq = pd.createSrq({ maxWr: 4 });
    expect(() => pd.createQp({ sendCq: cq, recvCq: cq, srq })).toThrow(
      expect.objectContaining({ code: 'ERR_NOT_SUPPORTED' }),
    );
    for (const wrong of [
      { wire: 'iwarp', trp: {} },
      { wire: 'trp', trp: { window: 3 } },
      { wire: 'trp', trp: { profile: 'tcp' } },
      { wire: 'trp', trp: { profile: 'urdma', reads: 'placed' } },
      { wire: 'trp', trp: { colour: 1 } },
    ])
      expect(() => openRnic(wrong as never)).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
  });

  it('private data above what a request holds is refused', () => {
    const { device, cm } = open({ engine: 'thread', trp: { profile: 'urdma' } });
    const pd = device.allocatePd();
    const cq = device.createCq(16);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq });
    pd.registerMemory(new Uint8Array(8), ACCESS.LOCAL_WRITE);
    expect(() => cm.connect(qp, { host: '127.0.0.1', port: 1, privateData: new Uint8Array(256) })).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
    );
  });
});
