/** The same script over node:net and over RDMA: what a program sees is the same. */
import { execFile } from 'node:child_process';
import { getEventListeners, once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, createServer } from '../../src/sockets/index.ts';
import { overThreads } from './over-threads.ts';
import { plain } from '../support/plain.ts';

/** What both have. */
interface Sockets {
  connect(options: {
    port: number;
    host: string;
    timeout?: number;
    highWaterMark?: number;
  }): Duplex & { bytesWritten: number };
  createServer(onConnection: (socket: Duplex) => void): net.Server;
}

const WORLDS: readonly (readonly [string, Sockets])[] = [
  ['node:net', net as unknown as Sockets],
  ['RDMA', { connect, createServer } as unknown as Sockets],
  ['RDMA between threads', overThreads as unknown as Sockets],
];

const servers: net.Server[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => new Promise((resolve) => server.close(resolve))));
});

async function listen(world: Sockets, onConnection: (socket: Duplex) => void): Promise<number> {
  const server = world.createServer(onConnection).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  return (server.address() as net.AddressInfo).port;
}

/** All that comes until `close`, and whether there was an error. */
async function read(socket: Duplex): Promise<{ octets: number; failed: boolean; hadError: unknown }> {
  let octets = 0;
  let failed = false;
  socket.on('data', (piece: Buffer) => (octets += piece.length)).on('error', () => (failed = true));
  const [hadError] = (await once(socket, 'close').catch(() => [true])) as unknown[];
  return { octets, failed, hadError };
}

describe.each(WORLDS)('%s', (_name, world) => {
  it('bytes written before a destroy with an error arrive, and the end in order', async () => {
    const port = await listen(world, (socket) => {
      socket.on('error', () => undefined);
      socket.write(Buffer.alloc(200_000), () => setImmediate(() => socket.destroy(new Error('enough'))));
    });
    expect(await read(world.connect({ port, host: '127.0.0.1' }))).toEqual({
      octets: 200_000,
      failed: false,
      hadError: false,
    });
  });

  it('a reader that breaks off after its answer: the answer arrives', async () => {
    const port = await listen(world, (socket) => {
      void (async () => {
        for await (const _piece of socket) {
          socket.write('reply');
          break;
        }
      })().catch(() => undefined);
    });
    for (let i = 0; i < 5; i++) {
      const socket = world.connect({ port, host: '127.0.0.1' });
      socket.write('question');
      expect(await read(socket)).toEqual({ octets: 5, failed: false, hadError: false });
    }
  });

  it('close says whether there was an error', async () => {
    const port = await listen(world, (socket) => socket.resume());
    const good = world.connect({ port, host: '127.0.0.1' });
    await once(good, 'connect');
    good.resume().end();
    expect(await once(good, 'close')).toEqual([false]);
    const bad = world.connect({ port, host: '127.0.0.1' });
    await once(bad, 'connect');
    bad.on('error', () => undefined).destroy(new Error('wrong'));
    expect(await new Promise((resolve) => bad.once('close', resolve))).toBe(true);
    const cut = world.connect({ port, host: '127.0.0.1' });
    await once(cut, 'connect');
    cut.write(Buffer.alloc(64 << 20));
    cut.destroy();
    expect(await once(cut, 'close')).toEqual([false]);
  });

  it('corked writes arrive together; bytesWritten counts what still waits', async () => {
    const pieces: number[] = [];
    const port = await listen(world, (socket) =>
      socket.on('data', (piece: Buffer) => pieces.push(piece.length)),
    );
    const socket = world.connect({ port, host: '127.0.0.1' });
    await once(socket, 'connect');
    socket.cork();
    for (let i = 0; i < 10; i++) socket.write('12345');
    expect(socket.bytesWritten).toBe(50);
    socket.uncork();
    socket.end();
    await once(socket.resume(), 'close');
    expect([socket.bytesWritten, pieces]).toEqual([50, [50]]);
  });

  it('takes timeout and highWaterMark of connect', async () => {
    const port = await listen(world, (socket) => socket.resume());
    const socket = world.connect({ port, host: '127.0.0.1', timeout: 20, highWaterMark: 1000 });
    // The time counts from the call: on a slow machine it may be over before the connection is there.
    await Promise.all([once(socket, 'connect'), once(socket, 'timeout')]);
    expect([socket.destroyed, socket.writableHighWaterMark]).toEqual([false, 1000]);
    socket.destroy();
  });

  it('http hands on times with fractions, and those that no timer takes', async () => {
    const web = http.createServer((_request, response) => response.end('hello'));
    Object.assign(web, { keepAliveTimeout: 1000 / 3, timeout: 2 ** 31 });
    const port = await listen(world, (socket) => void web.emit('connection', socket));
    const agent = new http.Agent({ keepAlive: true, keepAliveMsecs: 1000 / 3 });
    Object.assign(agent, {
      createConnection: () => world.connect({ port, host: '127.0.0.1', timeout: 1000 / 3 }),
    });
    for (let i = 0; i < 2; i++) {
      const request = http.get({ agent, timeout: 1000 / 3 });
      const [response] = (await once(request, 'response')) as [http.IncomingMessage];
      expect(await text(response)).toBe('hello');
      await turn();
    }
    agent.destroy();
  });

  it('a time that no timer takes is a long one', async () => {
    const port = await listen(world, (socket) => socket.resume());
    const socket = world.connect({ port, host: '127.0.0.1' }) as net.Socket;
    socket.setTimeout(2 ** 40, () => expect.unreachable());
    socket.setKeepAlive(true, 2 ** 40);
    await once(socket, 'connect');
    await pause(20);
    expect(socket.destroyed).toBe(false);
    socket.destroy();
  });

  it('a port may be a string of digits, and a closed server may listen again', async () => {
    const server = world.createServer((socket) => socket.end('hello'));
    for (let round = 0; round < 2; round++) {
      server.listen('0');
      await once(server, 'listening');
      const { port } = server.address() as net.AddressInfo;
      expect((await read(world.connect({ port: String(port) as never, host: '127.0.0.1' }))).octets).toBe(5);
      expect(await new Promise((resolve) => server.close(resolve))).toBeUndefined();
    }
    expect(await new Promise((resolve) => server.close(resolve))).toBeInstanceOf(Error);
  });

  it('an aborted signal of listen closes the server', async () => {
    const server = world.createServer(() => undefined).listen({ port: 0, signal: AbortSignal.abort() });
    await once(server, 'close');
    expect(server.listening).toBe(false);
  });

  it('a server that is closed has let the signal of its listen go', async () => {
    const { signal } = new AbortController();
    const server = world.createServer(() => undefined);
    for (let round = 0; round < 2; round++) {
      server.listen({ port: 0, signal });
      await once(server, 'listening');
      expect(getEventListeners(signal, 'abort')).toHaveLength(1);
      await new Promise((resolve) => server.close(resolve));
      expect(getEventListeners(signal, 'abort')).toHaveLength(0);
    }
  });

  it('reports a connection above maxConnections', async () => {
    const port = await listen(world, (socket) => socket.resume());
    servers[0]!.maxConnections = 1;
    const dropped = once(servers[0]!, 'drop') as Promise<[net.DropArgument]>;
    const first = world.connect({ port, host: '127.0.0.1' });
    await once(first, 'connect');
    const second = world.connect({ port, host: '127.0.0.1' }).on('error', () => undefined);
    expect((await dropped)[0]).toMatchObject({
      localPort: port,
      remoteAddress: '127.0.0.1',
      remoteFamily: 'IPv4',
    });
    second.destroy();
    first.destroy();
  });
});

describe('a process', () => {
  const MODULE = plain('src/sockets/index.ts');
  const run = (
    engine: string,
    world: string,
    script: string,
    served: boolean = true,
  ): Promise<{ stdout: string }> =>
    promisify(execFile)(
      process.execPath,
      [
        '--input-type=module',
        '-e',
        `
      const module = ${JSON.stringify(world === 'RDMA' ? MODULE : 'node:net')};
      const { connect, createServer } = await import(module);
      ${
        served
          ? `const server = createServer((socket) => socket.unref()).listen(0, '127.0.0.1', () => {
               const socket = connect(server.address().port, '127.0.0.1', () => { ${script} });
             });`
          : script
      }`,
      ],
      {
        cwd: fileURLToPath(new URL('../..', import.meta.url)),
        env: { ...process.env, IWARP_ENGINE: engine },
        timeout: 50_000,
      },
    );

  it.each([
    ['thread', 'node:net'],
    ['thread', 'RDMA'],
    ['worker', 'RDMA'],
  ])('ends with a connection and a listener that hold it no longer: engine %s, %s', async (engine, world) => {
    const { stdout } = await run(
      engine,
      world,
      `
      socket.unref(); socket.ref(); socket.unref(); server.unref();
      process.once('exit', () => console.log(socket.destroyed, server.listening));`,
    );
    expect(stdout).toBe('false true\n');
  });

  it.each([
    ['thread', 'node:net', ''],
    ['thread', 'RDMA', 'rsocket'],
    ['worker', 'RDMA', 'rsocket'],
    ['thread', 'RDMA', 'sdp'],
    ['worker', 'RDMA', 'sdp'],
  ] as const)(
    'connects, and sends what was written, although it is unref-ed: engine %s, %s, %s',
    async (engine, world, protocol) => {
      const got: Promise<string>[] = [];
      const attend = (socket: Duplex): void => void got.push(text(socket));
      const server =
        world === 'RDMA'
          ? createServer(protocol === 'sdp' ? { protocol } : {}, attend)
          : net.createServer(attend);
      servers.push(server as net.Server);
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as net.AddressInfo;
      const options = JSON.stringify({ port, host: '127.0.0.1', ...(protocol === 'sdp' && { protocol }) });
      // At once, with bytes that wait for the connection; and in the `connect` listener.
      const scripts = [
        `const s = connect(${options}, () => console.log('connected')).unref(); s.end('at once');`,
        `const s = connect(${options}, () => { console.log('connected'); s.unref(); s.end('then'); });`,
      ];
      for (const script of scripts)
        expect(await run(engine, world, script, false)).toMatchObject({ stdout: 'connected\n' });
      expect(await Promise.all(got)).toEqual(['at once', 'then']);
    },
  );
});
