/** What servers tell of connections that they do not get, and how waiting for the others is given up. */
import { getEventListeners } from 'node:events';
import { connect as tcpConnect, Server as NetServer } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  type Connection,
  type IwarpError,
  type Rnic,
  type Server,
  type ServerFailure,
  type ServerOptions,
} from '../../src/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { TcpTransport } from '../../src/transport/tcp.ts';
import { encodeStartup } from '../support/naive/encoder.ts';

const closing: { close(): unknown }[] = [];

afterEach(async () => {
  vi.restoreAllMocks();
  for (const each of closing.splice(0)) await each.close();
});

/** A listening server, and its failures as they come. */
async function serve(
  rnic: Rnic,
  options: ServerOptions = {},
): Promise<{ server: Server; next: () => Promise<ServerFailure>; failures: ServerFailure[] }> {
  const failures: ServerFailure[] = [];
  const waiting: (() => void)[] = [];
  let told = 0;
  const onFailure = (failure: ServerFailure): void => {
    failures.push(failure);
    for (const wake of waiting.splice(0)) wake();
  };
  const server = await createServer({ rnic, onFailure, ...options }).listen({ host: '127.0.0.1', port: 0 });
  closing.push(server);
  const next = async (): Promise<ServerFailure> => {
    while (failures.length <= told) await new Promise<void>((resolve) => waiting.push(resolve));
    return failures[told++]!;
  };
  return { server, next, failures };
}

const overTcp = (): Rnic => openRnic({ transport: new TcpTransport() });

describe('onFailure', () => {
  it('reports a peer of another protocol, one that leaves early, and one that is too slow', async () => {
    const { server, next } = await serve(overTcp(), { policy: { requestTimeout: 200 } });
    const { port } = server.address();
    const browser = tcpConnect(port, '127.0.0.1');
    browser.on('error', () => undefined).write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(await next()).toMatchObject({
      kind: 'startup-failed',
      error: {
        code: 'ERR_STARTUP',
        message: expect.stringMatching(
          /^MPA start-up from 127\.0\.0\.1:\d+ failed: what the peer sent is no MPA Request$/,
        ) as string,
      },
      remoteAddress: { address: '127.0.0.1' },
    });
    const brief = tcpConnect(port, '127.0.0.1', () => brief.end('MPA'));
    expect(await next()).toMatchObject({
      kind: 'startup-failed',
      error: {
        code: 'ERR_STARTUP',
        message: expect.stringMatching(
          /^MPA start-up from [\d.]+:\d+ failed: the peer closed the connection before it was established$/,
        ) as string,
      },
    });
    const silent = tcpConnect(port, '127.0.0.1');
    silent.on('error', () => undefined);
    expect(await next()).toMatchObject({ kind: 'startup-failed', error: { code: 'ERR_TIMEOUT' } });
    for (const socket of [browser, brief, silent]) socket.destroy();
  });

  it('reports a connection that is refused because maxPending others wait for an answer', async () => {
    const rnic = overTcp();
    let answer!: () => void;
    const asked = new Promise<void>((resolve) => (answer = resolve));
    let waiting!: () => void;
    const waits = new Promise<void>((resolve) => (waiting = resolve));
    const onRequest = (): Promise<void> => {
      waiting();
      return asked;
    };
    const { server, next } = await serve(rnic, { maxPending: 1, onRequest });
    const first = tcpConnect(server.address().port, '127.0.0.1');
    first.on('error', () => undefined);
    first.write(encodeStartup({ kind: 'request', revision: 1 }));
    await waits;
    const second = tcpConnect(server.address().port, '127.0.0.1');
    second.on('error', () => undefined);
    expect(await next()).toMatchObject({
      kind: 'refused',
      error: { code: 'ERR_LIMIT' },
      remoteAddress: { address: '127.0.0.1' },
    });
    expect(rnic.cm.counters().refused).toBe(1);
    first.destroy();
    second.destroy();
    answer();
  });

  it('reports the oldest half-open connection, which makes room for a newer one', async () => {
    const { server, next } = await serve(overTcp(), { maxPending: 1 });
    const first = tcpConnect(server.address().port, '127.0.0.1');
    first.on('error', () => undefined);
    await new Promise((resolve) => first.once('connect', resolve));
    const { localPort } = first;
    const second = tcpConnect(server.address().port, '127.0.0.1');
    expect(await next()).toMatchObject({
      kind: 'startup-failed',
      error: { code: 'ERR_STARTUP', message: expect.stringContaining('made room') },
      remoteAddress: { port: localPort },
    });
    first.destroy();
    second.destroy();
  });

  it('a device that is full rejects the peer, reports it, and throws nothing at the process', async () => {
    const transport = new MemoryTransport(realScheduler);
    const { server, next, failures } = await serve(openRnic({ transport, limits: { maxQp: 1 } }));
    const options = { rnic: openRnic({ transport }), host: '127.0.0.1', port: server.address().port };
    const [kept, one] = await Promise.all([connect(options), server.accept()]);
    closing.push(kept);
    await expect(connect(options)).rejects.toMatchObject({ code: 'ERR_REJECTED' });
    expect(await next()).toMatchObject({ kind: 'limit', error: { code: 'ERR_LIMIT' } });
    expect(one!.state).toBe('open');
    expect(failures).toHaveLength(1);
  });

  it('reports a peer that leaves while onRequest decides', async () => {
    let decide!: () => void;
    const decided = new Promise<void>((resolve) => (decide = resolve));
    const stop = new AbortController();
    const onRequest = (): Promise<void> => {
      stop.abort();
      return decided;
    };
    const { server, next } = await serve(overTcp(), { onRequest });
    const attempt = connect({ port: server.address().port, host: '127.0.0.1', signal: stop.signal });
    const aborted = expect(attempt).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    await aborted;
    expect(await next()).toMatchObject({ kind: 'startup-failed', error: { code: 'ERR_STARTUP' } });
    decide();
  });

  it('a rejection on purpose, and what closing the server breaks off, are no failures', async () => {
    const rnic = overTcp();
    const { server, failures } = await serve(rnic, {
      onRequest: () => Promise.reject(new (class extends Error {})()),
      onError: () => undefined,
    });
    await expect(connect({ host: '127.0.0.1', port: server.address().port })).rejects.toMatchObject({
      code: 'ERR_REJECTED',
    });
    const half = tcpConnect(server.address().port, '127.0.0.1');
    half.on('error', () => undefined);
    await new Promise((resolve) => half.once('connect', resolve));
    while (rnic.cm.connections.size === 0) await new Promise((resolve) => setImmediate(resolve));
    await server.close();
    await new Promise((resolve) => setImmediate(resolve));
    expect(failures).toEqual([]);
    half.destroy();
  });

  it('reports that the system cannot accept, and goes on; without a function nothing is thrown', async () => {
    const listen = vi.spyOn(NetServer.prototype, 'listen');
    const { server, next } = await serve(overTcp());
    const error = Object.assign(new Error('accept EMFILE'), { code: 'EMFILE' });
    const [inner] = listen.mock.contexts as [NetServer];
    inner.emit('error', error);
    inner.emit('error', error);
    for (const _ of [1, 2])
      expect(await next()).toMatchObject({
        kind: 'accept',
        error: { code: 'ERR_CONNECT' },
        remoteAddress: undefined,
      });
    const deaf = await createServer({ rnic: overTcp() }).listen({ host: '127.0.0.1', port: 0 });
    closing.push(deaf);
    expect(() => (listen.mock.contexts.at(-1) as NetServer).emit('error', error)).not.toThrow();
    for (const each of [server, deaf])
      closing.push(await connect({ host: '127.0.0.1', port: each.address().port }));
  });
});

describe('waiting for connections', () => {
  const memory = (): Rnic => openRnic({ transport: new MemoryTransport(realScheduler) });

  it('accept gives them in order, gives up with its signal, and null when the server is closed', async () => {
    const rnic = memory();
    const { server } = await serve(rnic);
    const stop = new AbortController();
    const none = expect(server.accept({ signal: stop.signal })).rejects.toMatchObject({
      code: 'ERR_ABORTED',
    });
    stop.abort();
    await none;
    await expect(server.accept({ signal: stop.signal })).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    const here: Connection[] = [];
    for (const privateData of [Uint8Array.of(1), Uint8Array.of(2)])
      here.push(await connect({ rnic, host: '127.0.0.1', port: server.address().port, privateData }));
    expect([(await server.accept())!.privateData[0], (await server.accept())!.privateData[0]]).toEqual([
      1, 2,
    ]);
    await Promise.all(here.map((each) => each.close()));
    const last = server.accept();
    await server.close();
    expect(await last).toBeNull();
    expect(await server.accept()).toBeNull();
  });

  it('a server with a handler gives connections to it alone: accept() rejects at once', async () => {
    const server = await createServer({ rnic: memory() }, () => undefined).listen({ port: 4711 });
    closing.push(server);
    const told = { code: 'ERR_INVALID_STATE', message: expect.stringContaining('function') as string };
    await expect(server.accept()).rejects.toMatchObject(told);
    await expect(server[Symbol.asyncIterator]().next()).rejects.toMatchObject(told);
  });

  it('connections not yet accepted close with the server, and accept gives none of them', async () => {
    const rnic = memory();
    const { server } = await serve(rnic);
    const target = { rnic, host: '127.0.0.1', port: server.address().port };
    const [one, two] = await Promise.all([connect(target), connect(target)]);
    while (server.connections.size < 2) await new Promise((resolve) => setImmediate(resolve));
    const closed = server.close();
    expect(await server.accept()).toBeNull();
    for await (const _ of server) expect.unreachable('a connection of a closed server');
    await closed;
    expect([(await one.closed).cause, (await two.closed).cause]).toEqual(['graceful', 'graceful']);
  });

  it('the signal of listen closes the server, before, while and after it binds', async () => {
    const before = createServer({ rnic: memory() }).listen({ port: 4711, signal: AbortSignal.abort() });
    await expect(before).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    const rnic = memory();
    const stop = new AbortController();
    const binding = expect(
      createServer({ rnic }).listen({ host: '127.0.0.1', port: 4711, signal: stop.signal }),
    ).rejects.toMatchObject({ code: 'ERR_ABORTED' });
    stop.abort();
    await binding;
    const later = new AbortController();
    const server = await createServer({ rnic }).listen({
      host: '127.0.0.1',
      port: 4711,
      signal: later.signal,
    }); // the address is free again
    const next = server.accept();
    const [client, passive] = await Promise.all([connect({ rnic, host: '127.0.0.1', port: 4711 }), next]);
    later.abort();
    expect((await client.closed).cause).toBe('graceful');
    expect((await passive!.closed).cause).toBe('graceful');
    await expect(connect({ rnic, host: '127.0.0.1', port: 4711 })).rejects.toMatchObject({
      code: 'ERR_CONNECT',
    });
  });

  it.each(['memory', 'TCP'])(
    'close while listen binds: the address is free then, and listen says so, over %s',
    async (network) => {
      const rnic = network === 'TCP' ? openRnic() : memory();
      const probe = await createServer({ rnic }).listen({
        host: '127.0.0.1',
        port: network === 'TCP' ? 0 : 4711,
      });
      const where = { host: '127.0.0.1', port: probe.address().port };
      await probe.close();
      const server = createServer({ rnic });
      const binding = expect(server.listen(where)).rejects.toMatchObject({
        code: 'ERR_INVALID_STATE',
        message: expect.stringContaining('closed while'),
      });
      await server.close();
      const next = await createServer({ rnic }).listen(where);
      await binding;
      await next.close();
    },
  );

  it('the signal of listen is let go with the server, and by a listen that has failed', async () => {
    const rnic = memory();
    const { signal } = new AbortController();
    const stop = new AbortController();
    const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 4711, signal });
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    const other = createServer({ rnic });
    await expect(other.listen({ host: '127.0.0.1', port: 4711, signal: stop.signal })).rejects.toMatchObject({
      code: 'ERR_CONNECT',
    });
    await other.listen({ host: '127.0.0.1', port: 4712 });
    stop.abort(); // of the attempt that failed
    const [client] = await Promise.all([connect({ rnic, host: '127.0.0.1', port: 4712 }), other.accept()]);
    await client.close();
    await Promise.all([server.close(), other.close()]);
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});

describe('the connection function', () => {
  it('may believe a forged ticket: the Read is refused, and nothing is thrown at the process', async () => {
    const rnic = openRnic({ transport: new MemoryTransport(realScheduler) });
    const ended: string[] = [];
    // No onError: whatever is reported would be an unhandled rejection, which fails the run.
    const server = await createServer({ rnic }, async (connection) => {
      try {
        await Promise.all([
          connection.read(new RemoteBuffer(0x1234_5678, 0n, 64)),
          connection.read(new RemoteBuffer(1, 0n, 64)),
        ]);
      } catch (error) {
        ended.push((error as IwarpError).code, connection.state);
        throw error;
      }
    }).listen({ host: '127.0.0.1', port: 0 });
    closing.push(server);
    const client = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
    expect((await client.closed).terminate).toMatchObject({ origin: 'local', layer: 0, type: 1, code: 0 });
    while (ended.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(ended[0]).toBe('ERR_WORK_COMPLETION');
    expect(ended[1]).not.toBe('open');
  });
});
