/** Unix sockets: the promise layer, the connection manager and byte streams over a path, in both engines. */
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { createServer as createNetServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fork } from 'node:child_process';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  type EngineKind,
  type Rnic,
} from '../../src/index.ts';
import type { PassiveConnection } from '../../src/cm/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import * as sockets from '../../src/sockets/index.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';

const folder = mkdtempSync(join(tmpdir(), 'iwarp-unix-'));
chmodSync(folder, 0o755);
afterAll(() => rmSync(folder, { recursive: true, force: true }));
let count = 0;
const fresh = (): string => join(folder, `${++count}.sock`);

const undo: (() => unknown)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

/** Code of the error, and the system's below it. */
const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'worked',
    ({ code, cause }: NodeJS.ErrnoException) => {
      const below = cause as NodeJS.ErrnoException | undefined;
      return below === undefined ? code : `${code} ${below.syscall} ${below.code}`;
    },
  );

/** As a user without files here: the superuser could open everything. */
async function asNobody<T>(run: () => Promise<T>): Promise<T> {
  if (process.geteuid!() !== 0) return await run();
  process.seteuid!(65_534);
  try {
    return await run();
  } finally {
    process.seteuid!(0);
  }
}

const tooLong = join(folder, 'a'.repeat(200));

describe.each<EngineKind>(['thread', 'worker'])('Unix sockets, engine %s', (engine) => {
  let rnic: Rnic;
  beforeAll(async () => {
    rnic = openRnic({ engine });
    // The thread reads its program now: as nobody the process might not have the right to read it.
    const first = await createServer({ rnic }, () => undefined).listen({ path: fresh() });
    await first.close();
  });

  it('carry messages and Writes, have addresses, and leave no file behind', async () => {
    const path = fresh();
    const server = await createServer({ rnic }, async (connection) => {
      const memory = connection.allocate(1 << 20, 'write');
      await connection.send(connection.share(memory).toBytes());
      await connection.receive();
      await connection.send(memory.bytes.slice(-4));
      expect([connection.localAddress, connection.remoteAddress]).toEqual([
        { address: path, port: 0, family: 'Unix' },
        { address: '', port: 0, family: 'Unix' },
      ]);
    }).listen({ path });
    expect(server.address()).toEqual({ address: path, port: 0, family: 'Unix' });
    const connection = await connect({ path, rnic });
    expect(connection.remoteAddress).toEqual({ address: path, port: 0, family: 'Unix' });
    const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
    const bytes = rnic.device.allocateMemory(1 << 20).fill(7);
    await connection.write(bytes, remote);
    await connection.send('look');
    expect([...(await connection.receive())!.data]).toEqual([7, 7, 7, 7]);
    await connection.close();
    await server.close();
    expect(existsSync(path)).toBe(false);
  });

  it('take the path from a URL', async () => {
    const path = join(folder, `with space ${engine}.sock`);
    const server = await createServer({ rnic }, (connection) => connection.send('hello')).listen({ path });
    const connection = await connect(`iwarp+unix://${path.replaceAll(' ', '%20')}`, { rnic });
    expect((await connection.receive())!.text()).toBe('hello');
    await connection.close();
    await server.close();
  });

  it('are what the system says of a path that does not serve', async () => {
    const listen = (path: string): Promise<unknown> => {
      const server = createServer({ rnic });
      undo.push(() => server.close());
      return failure(server.listen({ path }));
    };
    const toPath = (path: string): Promise<unknown> => failure(connect({ path, rnic }));
    const file = fresh();
    writeFileSync(file, 'precious');
    expect(await listen(file)).toBe('ERR_CONNECT listen EADDRINUSE');
    expect(await toPath(file)).toBe('ERR_CONNECT connect ECONNREFUSED');
    expect(await listen(folder)).toBe('ERR_CONNECT listen EADDRINUSE');
    expect(await toPath(folder)).toBe('ERR_CONNECT connect ECONNREFUSED');
    expect(await listen(join(folder, 'not', 'there'))).toBe('ERR_CONNECT listen EACCES');
    expect(await toPath(fresh())).toBe('ERR_CONNECT connect ENOENT');
    expect(await listen(tooLong)).toBe('ERR_CONNECT listen EINVAL');
    expect(await toPath(tooLong)).toBe('ERR_CONNECT connect EINVAL');
    expect(statSync(file).size).toBe(8);
  });

  it('are closed to who has no rights, and open to all by writableAll', async () => {
    const [mine, open] = [fresh(), fresh()];
    const first = await createServer({ rnic }).listen({ path: mine });
    const second = await createServer({ rnic }).listen({
      path: open,
      readableAll: true,
      writableAll: true,
    });
    chmodSync(mine, 0o600);
    expect(statSync(open).mode & 0o666).toBe(0o666); // some Nodes add the right to execute
    const other = createServer({ rnic });
    const seen = await asNobody(async () => [
      await failure(connect({ path: mine, rnic })),
      await failure(connect({ path: open, rnic })),
      await failure(other.listen({ path: fresh() })),
    ]);
    expect(seen).toEqual(['ERR_CONNECT connect EACCES', 'worked', 'ERR_CONNECT listen EACCES']);
    await Promise.all([first, second, other].map((server) => server.close()));
  });

  it('of a killed program are in the way until somebody removes them', async () => {
    const path = fresh();
    const listen = `listen(${JSON.stringify(path)}, () => process.send('on'))`;
    const program = `require('node:net').createServer().${listen}`;
    const script = join(folder, `left-${engine}.cjs`);
    writeFileSync(script, program);
    const child = fork(script, { execArgv: [] });
    await once(child, 'message');
    child.kill('SIGKILL');
    await once(child, 'exit');
    expect(await failure(createServer({ rnic }).listen({ path }))).toBe('ERR_CONNECT listen EADDRINUSE');
    expect(await failure(connect({ path, rnic }))).toBe('ERR_CONNECT connect ECONNREFUSED');
    rmSync(path);
    const server = await createServer({ rnic }).listen({ path });
    await (await connect({ path, rnic })).close();
    await server.close();
  });

  it('tell of a peer that is gone, and of one that speaks something else', async () => {
    const path = fresh();
    const server = await createServer({ rnic }, (connection) => connection.destroy()).listen({ path });
    const connection = await connect({ path, rnic });
    expect((await connection.closed).error?.code).toMatch(/^ERR_CONNECTION_(RESET|CLOSED)$/);
    await server.close();
    const stranger = createNetServer((socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await once(stranger.listen(path), 'listening');
    expect(await failure(connect({ path, rnic }))).toBe('ERR_STARTUP');
    stranger.close();
  });

  it('count as one address for the limits of a listener', async () => {
    const path = fresh();
    const refused: unknown[] = [];
    const server = await createServer({
      rnic,
      maxConnectionsPerAddress: 2,
      onFailure: ({ kind, remoteAddress }) => refused.push([kind, remoteAddress?.family]),
    }).listen({ path });
    const two = [await connect({ path, rnic }), await connect({ path, rnic })];
    expect(await failure(connect({ path, rnic }))).toMatch(/^ERR_(CONNECTION_|STARTUP)/);
    expect(refused).toEqual([['refused', 'Unix']]);
    await Promise.all(two.map((connection) => connection.close()));
    await server.close();
  });

  it('work for the connection manager', async () => {
    const path = fresh();
    const { cm, device: made } = rnic;
    const pd = made.allocatePd();
    const cq = made.createCq(16);
    const request = new Promise<PassiveConnection>((resolve) => {
      void cm.listen({ path }, resolve).then((listener) => {
        undo.push(() => new Promise<void>((done) => listener.close(done)));
        const connection = cm.connect(pd.createQp({ sendCq: cq, recvCq: cq }), { path });
        undo.push(() => connection.abort());
        connection.setHandler(() => undefined);
      });
    });
    expect((await request).remoteAddress?.family).toBe('Unix');
    (await request).reject();
  });

  it.each([{}, { protocol: 'sdp' }, { protocol: 'sdp', placement: 'streaming' }] as const)(
    'are for byte streams as in node:net: %o',
    async (options) => {
      const path = fresh();
      const server = sockets.createServer({ ...options, rnic }, (socket) => {
        expect([socket.remoteAddress, socket.localPort, socket.address()]).toEqual([
          undefined,
          undefined,
          {},
        ]);
        socket.pipe(socket);
      });
      await once(server.listen(path), 'listening');
      expect(server.address()).toBe(path);
      const socket = sockets.connect({ ...options, rnic, path });
      socket.end('there and back');
      let text = '';
      for await (const chunk of socket) text += String(chunk);
      expect(text).toBe('there and back');
      server.close();
      await once(server, 'close');
      expect(existsSync(path)).toBe(false);
    },
  );
});

it('http runs over a path', async () => {
  const path = fresh();
  const web = http.createServer((request, response) => response.end(request.url));
  const server = sockets.createServer((socket) => web.emit('connection', socket));
  await once(server.listen({ path, writableAll: true }), 'listening');
  const text = await new Promise((resolve, reject) => {
    const createConnection = (): sockets.RdmaSocket => sockets.connect(path);
    http
      .get({ createConnection, path: '/asked' }, (response) => response.on('data', (d) => resolve(String(d))))
      .on('error', reject);
  });
  expect(text).toBe('/asked');
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

it('byte streams have the errors of node:net', async () => {
  const errorOf = (emitter: {
    on(name: 'error', listener: (error: Error) => void): unknown;
  }): Promise<Error> => new Promise((resolve) => emitter.on('error', resolve));
  const path = fresh();
  const refused = await errorOf(sockets.connect(path));
  expect(refused).toMatchObject({ code: 'ENOENT', syscall: 'connect', address: path });
  const taken = await errorOf(sockets.createServer().listen({ path: folder }));
  expect(taken).toMatchObject({ code: 'EADDRINUSE', syscall: 'listen', address: folder });
});

it('TCP options beside a path, and paths that are none, are refused', async () => {
  const path = fresh();
  const bad = expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }) as Error;
  for (const more of [
    { port: 1 },
    { host: 'localhost' },
    { localPort: 9 },
    { family: 4 },
    { tls: true },
  ] as const)
    await expect(connect({ path, ...more })).rejects.toThrow(bad);
  for (const none of ['', 'a\0b', 7 as unknown as string, null as unknown as string])
    await expect(connect({ path: none })).rejects.toThrow(bad);
  for (const more of [{ port: 1 }, { host: '::' }, { ipv6Only: true }, { reusePort: true }])
    await expect(createServer().listen({ path, ...more })).rejects.toThrow(bad);
  await expect(createServer().listen({ port: 0, writableAll: true })).rejects.toThrow(bad);
  for (const url of [
    'iwarp+unix://host/path',
    'iwarp+unix:///',
    'iwarp+unix:',
    'iwarp+unix:///a%00b',
    'iwarp+unix:///a%zz',
  ])
    await expect(connect(url)).rejects.toThrow(bad);
});

it('a network in memory has none', async () => {
  const rnic = openRnic({ engine: 'thread', transport: new MemoryTransport(realScheduler) });
  const none = expect.objectContaining({ code: 'ERR_NOT_SUPPORTED' }) as Error;
  await expect(connect({ path: fresh(), rnic })).rejects.toThrow(none);
  await expect(createServer({ rnic }).listen({ path: fresh() })).rejects.toThrow(none);
  const streaming = { rnic, protocol: 'sdp', placement: 'streaming' } as const;
  const server = sockets.createServer(streaming).listen(fresh());
  const [refused] = await new Promise<unknown[]>((resolve) => server.on('error', (...e) => resolve(e)));
  expect(refused).toMatchObject({ code: 'ERR_NOT_SUPPORTED' });
  const socket = sockets.connect({ ...streaming, path: fresh() });
  const [error] = await new Promise<unknown[]>((resolve) => socket.on('error', (...e) => resolve(e)));
  expect(error).toMatchObject({ code: 'EPROTO', cause: { code: 'ERR_NOT_SUPPORTED' } });
});
