/**
 * Streams over RDMA behave as those of node:net do: echo, half close, back-pressure, pipelines, HTTP,
 * signals, time-outs, errors.
 */
import { createHash, randomBytes } from 'node:crypto';
import { getEventListeners, once } from 'node:events';
import http from 'node:http';
import { constants } from 'node:os';
import { createServer as createNetServer, type AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import type { WorkerEngine } from '../../src/engine/proxy/worker-engine.ts';
import {
  connect,
  createServer,
  type ConnectOptions,
  type RdmaServer,
  type RdmaSocket,
  type ServerOptions,
} from '../../src/sockets/index.ts';
import { VirtualNetwork } from './virtual.ts';

const servers: RdmaServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server[Symbol.asyncDispose]()));
});

async function listen(options: ServerOptions, onConnection: (socket: RdmaSocket) => void): Promise<number> {
  const server = createServer(options, onConnection).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return (server.address() as { port: number }).port;
}

const open = (port: number, more: Partial<ConnectOptions> = {}): RdmaSocket =>
  connect({ host: '127.0.0.1', port, ...more });

async function readAll(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

describe('RdmaSocket', () => {
  it('timeout of connect counts while the connection is being made, as with net.connect', async () => {
    const silent = createNetServer((socket) => void socket.on('error', () => undefined)).listen(
      0,
      '127.0.0.1',
    );
    await once(silent, 'listening');
    const socket = open((silent.address() as AddressInfo).port, { timeout: 20 });
    await once(socket, 'timeout');
    expect([socket.connecting, socket.destroyed]).toEqual([true, false]);
    socket.destroy();
    silent.close();
  });

  it('a write whose memory is transferred away while it waits fails, and the socket with it', async () => {
    const port = await listen({}, (socket) => socket.on('error', () => undefined).pause());
    const socket = open(port);
    await once(socket, 'connect');
    const data = new Uint8Array(16 << 20);
    const errors: unknown[] = [];
    const write = new Promise((resolve) => socket.write(data, resolve));
    socket.on('error', (error) => errors.push(error));
    structuredClone(data.buffer, { transfer: [data.buffer] });
    const gone = { code: 'ERR_INVALID_REGION', message: expect.stringContaining('chunk') as string };
    expect(await write).toMatchObject(gone);
    if (!socket.closed) await once(socket, 'close');
    expect(errors).toEqual([expect.objectContaining(gone)]);
  });

  it('emits nothing of a connection after its end, whenever destroyed while it connects', async () => {
    const port = await listen({}, (socket) => socket.on('error', () => undefined).resume());
    for (let round = 0; round < 20; round++) {
      const late: string[] = [];
      await Promise.all(
        Array.from({ length: 20 }, async (_, n) => {
          const socket = open(port).on('error', () => undefined);
          for (const event of ['connect', 'ready'])
            socket.on(event, () => void (socket.closed && late.push(event)));
          setTimeout(() => socket.destroy(), (n * 7) % 20);
          await once(socket, 'close');
        }),
      );
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(late).toEqual([]);
    }
  }, 60_000);

  it.each([
    ['default buffers', {}, {}],
    [
      'small buffers and few credits',
      { receiveBuffer: 8192, sendBuffer: 4096, credits: 16 },
      { receiveBuffer: 12_288, credits: 20 },
    ],
    ['no CRC', {}, { policy: { crc: 'off' } }],
    ['markers', {}, { policy: { markers: true } }],
    ['revision 1', {}, { policy: { mpaRevision: 1 } }],
    ['no RTR', {}, { policy: { peerToPeer: false } }],
    ['a strict responder', { policy: { responder: 'strict' } }, {}],
  ] as const)('echoes octets unchanged: %s', async (_what, serverOptions, clientOptions) => {
    const port = await listen(serverOptions as ServerOptions, (socket) => socket.pipe(socket));
    const data = randomBytes(700_001);
    const socket = open(port, clientOptions as Partial<ConnectOptions>);
    socket.end(data);
    expect(
      createHash('sha256')
        .update(await readAll(socket))
        .digest('hex'),
    ).toBe(createHash('sha256').update(data).digest('hex'));
    expect([socket.bytesWritten, socket.bytesRead]).toEqual([data.length, data.length]);
  });

  it('knows its addresses and states', async () => {
    const port = await listen({}, (socket) => socket.end('bye'));
    const socket = open(port);
    expect([socket.connecting, socket.readyState]).toEqual([true, 'opening']);
    await once(socket, 'connect');
    expect([socket.connecting, socket.remoteAddress, socket.remotePort, socket.remoteFamily]).toEqual([
      false,
      '127.0.0.1',
      port,
      'IPv4',
    ]);
    expect(socket.address()).toMatchObject({ address: '127.0.0.1', port: socket.localPort });
    expect((await readAll(socket)).toString()).toBe('bye');
    if (!socket.closed) await once(socket, 'close');
    expect(socket.readyState).toBe('closed');
  });

  it('bytes written before the connection are sent when it is there', async () => {
    const port = await listen({}, (socket) => socket.pipe(socket));
    const socket = open(port);
    socket.write('a');
    socket.write('b');
    socket.end('c');
    expect((await readAll(socket)).toString()).toBe('abc');
  });

  it('half closes: the other direction goes on', async () => {
    const port = await listen({ allowHalfOpen: true }, (socket) => {
      socket.on('data', () => undefined).on('end', () => socket.end('answer after your end'));
    });
    const socket = open(port, { allowHalfOpen: true });
    socket.end('question');
    await once(socket, 'finish');
    expect((await readAll(socket)).toString()).toBe('answer after your end');
  });

  it('without allowHalfOpen the end of the peer ends us too', async () => {
    let ended = false;
    const port = await listen({}, (socket) => socket.resume().on('close', () => (ended = true)));
    const socket = open(port);
    socket.resume();
    socket.end();
    await once(socket, 'close');
    for (const peer of servers[0]!.connections) await once(peer, 'close');
    expect(ended).toBe(true);
  });

  it('holds a fast writer back', async () => {
    let peer!: RdmaSocket;
    const port = await listen({ receiveBuffer: 16_384 }, (socket) => (peer = socket.pause()));
    const rnic = openRnic();
    const socket = open(port, { sendBuffer: 16_384, rnic });
    const data = randomBytes(1_000_000);
    await once(socket, 'connect');
    expect(socket.write(data)).toBe(false);
    let drained = false;
    socket.once('drain', () => (drained = true));
    const left = (): number => {
      const { octetsOut } = [...rnic.cm.connections][0]!.counters();
      return octetsOut;
    };
    while (left() < 16_384) await new Promise((resolve) => setImmediate(resolve));
    // Nobody reads: what both buffers and one read-ahead hold is all that can have left.
    expect(left()).toBeLessThan(200_000);
    expect(socket.bytesWritten).toBe(data.length); // as in node:net, with what waits here
    expect(drained).toBe(false);
    socket.end();
    expect((await readAll(peer)).equals(data)).toBe(true);
  });

  it.each([1000, 400_000])('%i octets that came before the close can be read after it', async (size) => {
    const data = randomBytes(size);
    const port = await listen({}, (socket) => {
      socket.write(data);
      socket.destroySoon();
    });
    const socket = open(port, { allowHalfOpen: true });
    await once(socket, 'connect');
    const [peer] = servers[0]!.connections;
    if (peer !== undefined && !peer.closed) await once(peer, 'close');
    expect((await readAll(socket)).equals(data)).toBe(true);
  });

  it('takes part in a pipeline, with errors', async () => {
    const port = await listen({}, (socket) => {
      const upper = new Transform({
        transform: (chunk, _encoding, done) => done(null, String(chunk).toUpperCase()),
      });
      pipeline(socket, upper, socket).catch(() => undefined);
    });
    const socket = open(port);
    const answer = readAll(socket);
    await pipeline(Readable.from(['one ', 'two ', 'three']), socket, { end: true });
    expect((await answer).toString()).toBe('ONE TWO THREE');
    const broken = open(port);
    broken.on('error', () => undefined);
    await expect(
      pipeline(
        Readable.from(
          (async function* () {
            yield 'x';
            throw new Error('source fails');
          })(),
        ),
        broken,
      ),
    ).rejects.toThrow('source fails');
    expect(broken.destroyed).toBe(true);
  });

  it('carries HTTP, keep-alive connections too', async () => {
    const application = http.createServer((request, response) => {
      let octets = 0;
      request
        .on('data', (chunk: Buffer) => (octets += chunk.length))
        .on('end', () => response.end(`${request.url} ${octets}`));
    });
    let connections = 0;
    const port = await listen({}, (socket) => {
      connections++;
      application.emit('connection', socket);
    });
    const agent = new http.Agent({ keepAlive: true });
    Object.assign(agent, { createConnection: () => open(port) as Duplex });
    for (const size of [0, 300_000, 5]) {
      const request = http.request({ agent, method: 'POST', path: `/${size}` });
      request.end(Buffer.alloc(size));
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      expect((await readAll(response)).toString()).toBe(`/${size} ${size}`);
    }
    expect(connections).toBe(1);
    agent.destroy();
  });

  it('many at once', async () => {
    const port = await listen({}, (socket) => socket.pipe(socket));
    await Promise.all(
      Array.from({ length: 30 }, async (_, i) => {
        const socket = open(port);
        socket.end(`connection ${i}`);
        expect((await readAll(socket)).toString()).toBe(`connection ${i}`);
      }),
    );
  });

  it('an AbortSignal ends a connection, and one that is being made', async () => {
    const port = await listen({}, (socket) => socket.resume().on('error', () => undefined));
    for (const early of [true, false]) {
      const abort = new AbortController();
      const socket = open(port, { signal: abort.signal });
      if (!early) await once(socket, 'connect');
      const error = once(socket, 'error') as Promise<Error[]>;
      abort.abort();
      expect((await error)[0]!.name).toBe('AbortError');
      expect(socket.destroyed).toBe(true);
    }
  });

  it('reports a connection that cannot be made', async () => {
    const port = await listen({}, () => undefined);
    await servers.pop()![Symbol.asyncDispose]();
    const socket = open(port);
    const [error] = (await once(socket, 'error')) as [Error & { code: string }];
    expect(error).toMatchObject({
      code: 'ECONNREFUSED',
      errno: -constants.errno.ECONNREFUSED,
      syscall: 'connect',
      address: '127.0.0.1',
      port,
      message: `connect ECONNREFUSED 127.0.0.1:${port}`,
      cause: { code: 'ERR_CONNECT' },
    });
    expect(socket.destroyed).toBe(true);
  });

  it('a reset before the MPA Reply has the code of the system, and says what happened', async () => {
    const peer = createNetServer((socket) => {
      socket.on('error', () => undefined).once('data', () => socket.resetAndDestroy());
    }).listen(0, '127.0.0.1');
    await once(peer, 'listening');
    const socket = open((peer.address() as AddressInfo).port);
    const [error] = (await once(socket, 'error')) as [Error];
    peer.close();
    expect(error).toMatchObject({
      code: 'ECONNRESET',
      errno: -constants.errno.ECONNRESET,
      syscall: 'connect',
      cause: {
        code: 'ERR_STARTUP',
        message:
          'MPA start-up failed: the connection was reset before an MPA Reply (does the port want TLS?)',
      },
    });
  });

  it('emits timeout when nothing crosses, and stays open', async () => {
    const port = await listen({}, (socket) => socket.pipe(socket));
    const socket = open(port);
    await once(socket, 'connect');
    socket.setTimeout(30);
    await once(socket, 'timeout');
    expect(socket.readyState).toBe('open');
    socket.setTimeout(0);
    socket.end('still');
    expect((await readAll(socket)).toString()).toBe('still');
  });

  it('keep-alive crosses as a zero-length Write at each interval, which the peer does not see', async () => {
    const network = new VirtualNetwork();
    const { session, socket, next } = await network.scripted();
    await network.running(next()); // the second half
    const before = session.qp.counters()!.fpdusIn;
    socket.setKeepAlive(true, 5000);
    network.time.advance(3 * 5000 + 100);
    expect(session.qp.counters()!.fpdusIn - before).toBe(3);
    socket.setKeepAlive(false);
    network.time.advance(60_000);
    expect(session.qp.counters()!.fpdusIn - before).toBe(3);
    socket.write('and data');
    expect(await network.running(next())).toBe(8);
    await network.close();
  });

  it('a peer that is reset is an error; writes to one that has left fail', async () => {
    let peer!: RdmaSocket;
    const port = await listen({}, (socket) => (peer = socket));
    const socket = open(port);
    await once(socket, 'connect');
    socket.resume();
    const error = once(socket, 'error') as Promise<(Error & { code: string })[]>;
    peer.on('error', () => undefined);
    peer.resetAndDestroy();
    expect((await error)[0]).toMatchObject({
      code: 'ECONNRESET',
      syscall: 'read',
      cause: { code: 'ERR_CONNECTION_RESET' },
    });
    expect(socket.write('x')).toBe(false);
  });

  it('a peer that closes both ways ends a half-open reader without an error', async () => {
    const port = await listen({}, (socket) => {
      socket.write('last words');
      socket.destroySoon();
    });
    const socket = open(port, { allowHalfOpen: true });
    let heard = '';
    socket.on('data', (chunk: Buffer) => (heard += chunk.toString()));
    await once(socket, 'end');
    expect(heard).toBe('last words');
    const failed = once(socket, 'error') as Promise<Error[]>;
    socket.write('too late');
    expect((await failed)[0]).toMatchObject({
      code: 'EPIPE',
      syscall: 'write',
      cause: { code: 'ERR_CONNECTION_CLOSED' },
    });
  });
});

describe('RdmaServer', () => {
  it('rejects what does not speak rsockets, and goes on', async () => {
    const { connect: plain } = await import('../../src/api/connect.ts');
    const port = await listen({}, (socket) => socket.pipe(socket));
    await expect(plain({ host: '127.0.0.1', port, credits: false })).rejects.toMatchObject({
      code: 'ERR_REJECTED',
    });
    const socket = open(port);
    socket.end('ok');
    expect((await readAll(socket)).toString()).toBe('ok');
  });

  it('rejects connections above its maximum', async () => {
    const port = await listen({}, (socket) => socket.pipe(socket));
    servers[0]!.maxConnections = 1;
    const first = open(port);
    await once(first, 'connect');
    const [error] = (await once(open(port), 'error')) as [Error & { code: string }];
    expect(error).toMatchObject({ code: 'ECONNREFUSED', cause: { code: 'ERR_REJECTED' } });
    first.end();
    await readAll(first);
  });

  it('closes when its last connection has ended', async () => {
    const port = await listen({}, (socket) => socket.pipe(socket));
    const server = servers.pop()!;
    const socket = open(port);
    await once(socket, 'connect');
    const closed = once(server, 'close');
    server.close();
    expect(server.listening).toBe(false);
    socket.end('x');
    await readAll(socket);
    await closed;
    expect(server.connections.size).toBe(0);
  });

  it('closes by its signal, and answers what net.Server answers', async () => {
    const abort = new AbortController();
    const port = await listen({ signal: abort.signal }, () => undefined);
    const server = servers.pop()!;
    expect((server.address() as AddressInfo).port).toBe(port);
    await new Promise<void>((resolve) =>
      server.getConnections((_error, count) => {
        expect(count).toBe(0);
        resolve();
      }),
    );
    const closed = once(server, 'close');
    abort.abort();
    await closed;
  });

  it('drops its signals when the bind fails, and takes its own again with the next listen', async () => {
    const port = await listen({}, () => undefined);
    const own = new AbortController();
    const attempt = new AbortController();
    const server = createServer({ signal: own.signal });
    server.listen({ host: '127.0.0.1', port, signal: attempt.signal });
    await once(server, 'error');
    expect([own, attempt].map(({ signal }) => getEventListeners(signal, 'abort').length)).toEqual([0, 0]);
    server.listen(0, '127.0.0.1');
    attempt.abort();
    await once(server, 'listening');
    const closed = once(server, 'close');
    own.abort();
    await closed;
  });
});

describe('a device at its limits', () => {
  it('rejects a connection that a server has no room for, and reports one too many', async () => {
    const rnic = openRnic({ engine: 'thread', limits: { maxQp: 1 } });
    const port = await listen({ rnic }, (socket) => socket.pipe(socket));
    const dropped = once(servers[0]!, 'drop');
    const first = open(port);
    await once(first, 'connect');
    const { inUse } = rnic.device.query();
    const [error] = (await once(open(port), 'error')) as [Error];
    expect(error).toMatchObject({ code: 'ECONNREFUSED', cause: { code: 'ERR_REJECTED' } });
    expect((await dropped)[0]).toMatchObject({ localPort: port, remoteAddress: '127.0.0.1' });
    expect(rnic.device.query().inUse).toEqual(inUse);
    first.end('still there');
    expect((await readAll(first)).toString()).toBe('still there');
  });

  it.each([
    ['queue pairs', { maxQp: 1 }, 2],
    ['regions', { maxMr: 2 }, 1],
  ] as const)('leaves nothing behind where %s are wanting', (_what, limits, sockets) => {
    const rnic = openRnic({ engine: 'thread', limits });
    const made = Array.from({ length: sockets - 1 }, () => open(1, { rnic }).on('error', () => undefined));
    const { inUse } = rnic.device.query();
    expect(() => open(1, { rnic })).toThrow(expect.objectContaining({ code: 'ERR_LIMIT' }));
    expect(rnic.device.query().inUse).toEqual(inUse);
    for (const socket of made) socket.destroy();
  });
});

describe('an engine that fails', () => {
  it('is an error of the server on it, which can be closed, and of its sockets', async () => {
    const rnic = openRnic({ engine: 'worker' });
    const errors: unknown[] = [];
    const port = await listen({ rnic }, (socket) => socket.on('error', (error) => errors.push(error)));
    const server = servers.pop()!;
    const failed = once(server, 'error');
    const connected = once(server, 'connection');
    const socket = open(port, { rnic: openRnic({ engine: 'thread' }) }).on('error', () => undefined);
    await connected;
    void (rnic.device.mirror as WorkerEngine).engines[0]!.host.worker.terminate();
    expect(await failed).toMatchObject([{ code: 'ERR_ENGINE_FAILED' }]);
    await new Promise((resolve) => server.close(resolve));
    expect(errors).toMatchObject([{ code: 'ERR_ENGINE_FAILED' }]);
    socket.destroy();
  });
});

describe('mapped buffers', () => {
  /** Of the kind that any engine takes. */
  const sharedMemory = (octets: number): Uint8Array => new Uint8Array(new SharedArrayBuffer(octets));

  it('must be shared memory with a worker engine, else they throw; the connection goes on', async () => {
    const rnic = openRnic({ engine: 'worker' });
    const port = await listen({ iomapSize: 1, rnic }, (socket) => socket.pipe(socket));
    const socket = open(port, { rnic });
    await once(socket, 'connect');
    expect(() => socket.mapMemory(new Uint8Array(10), 0)).toThrow(
      expect.objectContaining({ code: 'ERR_NOT_SHARED' }),
    );
    socket.mapMemory(sharedMemory(10), 0);
    socket.end('after');
    expect((await readAll(socket)).toString()).toBe('after');
  });

  it('are written directly, by offset', async () => {
    const memory = sharedMemory(100_000);
    const port = await listen({ iomapSize: 2 }, (socket) => {
      socket.once('data', () => {
        // The peer's mapping has come in front of its data.
        void socket.writeMapped(randomBytes(70_000).fill(7), 1000n).then(() => socket.end('done'));
      });
    });
    const socket = open(port);
    await once(socket, 'connect');
    socket.mapMemory(memory, 500);
    socket.write('mapped');
    expect((await readAll(socket)).toString()).toBe('done');
    // Offset 1000 of the map is octet 500 of the memory.
    expect([memory[499], memory[500], memory[70_499], memory[70_500]]).toEqual([0, 7, 7, 0]);
  });

  it('a signal ends the wait for room, and no more', async () => {
    const memory = sharedMemory(200_000);
    const port = await listen({ iomapSize: 1, sendBuffer: 4096 }, (socket) => {
      socket.once(
        'data',
        () =>
          void (async () => {
            const abort = new AbortController();
            const waiting = socket.writeMapped(new Uint8Array(150_000).fill(7), 0, { signal: abort.signal });
            abort.abort();
            const codes = [];
            for (const each of [
              waiting,
              socket.writeMapped(new Uint8Array(9).fill(9), 0, { signal: abort.signal }),
            ])
              codes.push(await each.catch((error: { code: string }) => error.code));
            await socket.writeMapped(new Uint8Array(10_000).fill(8), 180_000, {
              signal: new AbortController().signal,
            });
            socket.end(codes.join());
          })(),
      );
    });
    const socket = open(port);
    await once(socket, 'connect');
    socket.mapMemory(memory, 0);
    socket.write('mapped');
    expect((await readAll(socket)).toString()).toBe('ERR_ABORTED,ERR_ABORTED');
    // What had been taken came, what had not did not, and later writes did.
    expect([memory[0], memory[149_999], memory[179_999], memory[180_000], memory[189_999]]).toEqual([
      7, 0, 0, 8, 8,
    ]);
  });

  it('take nothing more from a destroyed socket, though its connection has not ended', async () => {
    let peer!: RdmaSocket;
    const port = await listen({}, (socket) => (peer = socket.resume()));
    const socket = open(port, { iomapSize: 1 });
    await once(socket, 'connect');
    const memory = sharedMemory(8);
    peer.mapMemory(memory, 0);
    peer.write('mapped');
    await once(socket, 'data');
    socket.on('error', () => undefined).destroy(new Error('enough'));
    await expect(socket.writeMapped(new Uint8Array(8).fill(1), 0)).rejects.toMatchObject({
      code: 'ERR_CONNECTION_CLOSED',
    });
    expect(memory).toEqual(new Uint8Array(8));
  });

  it('end with the connection: to unmap one after it does nothing, once', async () => {
    const port = await listen({ iomapSize: 1 }, (socket) => socket.once('data', () => socket.end()).resume());
    const socket = open(port);
    await once(socket, 'connect');
    const memory = sharedMemory(10);
    socket.mapMemory(memory, 0);
    socket.resume().write('mapped');
    await once(socket, 'close');
    socket.unmapMemory(memory);
    expect(() => socket.unmapMemory(memory)).toThrow('not mapped');
  });

  it('are octets, whatever view the program has of them', async () => {
    const memory = sharedMemory(24);
    const port = await listen({ iomapSize: 1 }, (socket) => {
      socket.once(
        'data',
        () =>
          void (async () => {
            await socket.writeMapped(Float64Array.of(1.5), 0);
            await socket.writeMapped(new DataView(Uint8Array.of(9, 8, 7, 6).buffer, 1, 2), 16);
            socket.end('written');
          })(),
      );
    });
    const socket = open(port);
    await once(socket, 'connect');
    const doubles = new Float64Array(memory.buffer as ArrayBuffer);
    socket.mapMemory(doubles, 0);
    socket.write('mapped');
    expect((await readAll(socket)).toString()).toBe('written');
    expect([doubles[0], [...memory.subarray(16)]]).toEqual([1.5, [8, 7, 0, 0, 0, 0, 0, 0]]);
    socket.unmapMemory(new DataView(memory.buffer));
    expect(() => socket.unmapMemory(doubles)).toThrow('not mapped');
  });

  it('take nothing more from memory that is transferred away while they wait', async () => {
    const memory = sharedMemory(200_000);
    const port = await listen({ iomapSize: 1, sendBuffer: 4096 }, (socket) => {
      socket.once(
        'data',
        () =>
          void (async () => {
            const data = new Uint8Array(150_000).fill(7);
            const waiting = socket.writeMapped(data, 0);
            structuredClone(data.buffer, { transfer: [data.buffer] });
            socket.end(
              await waiting.catch(
                (error: { code: string; message: string }) => `${error.code} ${error.message}`,
              ),
            );
          })(),
      );
    });
    const socket = open(port);
    await once(socket, 'connect');
    socket.mapMemory(memory, 0);
    socket.write('mapped');
    expect((await readAll(socket)).toString()).toMatch(
      /^ERR_INVALID_REGION data: the memory has been transferred/,
    );
  });

  it('need room at the peer, and a mapping at the offset', async () => {
    let peer!: RdmaSocket;
    const port = await listen({ iomapSize: 1 }, (socket) => (peer = socket.pipe(socket)));
    const socket = open(port);
    await once(socket, 'connect');
    const memory = sharedMemory(10);
    socket.mapMemory(memory, 0);
    expect(() => socket.mapMemory(sharedMemory(10), 10)).toThrow('room for 1 mapped buffers');
    socket.unmapMemory(memory);
    expect(() => socket.unmapMemory(memory)).toThrow('not mapped');
    await expect(socket.writeMapped(memory, 0)).rejects.toThrow('mapped no buffer');
    socket.end('x');
    await readAll(socket);
    expect(peer.destroyed).toBe(true);
  });
});
