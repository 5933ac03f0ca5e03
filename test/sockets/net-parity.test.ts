/**
 * The rows of `docs/net-parity.md`. Each is one script that runs over `node:net` and over `iwarp/sockets`:
 * the results are the same, or they differ as the row says, with a reason.
 */
import { ADDRCONFIG, type LookupOptions } from 'node:dns';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import sockets from '../../src/sockets/index.ts';
import { freePort } from '../../scripts/ports.ts';

type Lib = typeof net;
const OURS = sockets as unknown as Lib;
const HOST = '127.0.0.1';
const PAGE = new URL('../../docs/net-parity.md', import.meta.url);

interface Row {
  readonly area: string;
  readonly name: string;
  readonly run: (lib: Lib) => unknown;
  /** Why the results differ; without it they are the same. */
  readonly differs?: string;
}

const rows: Row[] = [];
let area = '';
const same = (name: string, run: Row['run']): void => void rows.push({ area, name, run });
const differs = (name: string, reason: string, run: Row['run']): void =>
  void rows.push({ area, name, run, differs: reason });

/** A listening server for the time of `use`. */
async function serving<T>(
  lib: Lib,
  options: net.ServerOpts,
  use: (server: net.Server, port: number) => Promise<T>,
  onConnection: (socket: net.Socket) => void = (socket) => void socket.on('error', () => undefined).resume(),
): Promise<T> {
  const server = lib.createServer(options, onConnection);
  const open = new Set<net.Socket>();
  server.on('connection', (socket) => open.add(socket));
  server.listen(0, HOST);
  await once(server, 'listening');
  try {
    return await use(server, (server.address() as net.AddressInfo).port);
  } finally {
    for (const socket of open) socket.destroy();
    const closed = once(server, 'close');
    server.close();
    await closed;
  }
}

/** A connected pair for the time of `use`. */
async function paired<T>(
  lib: Lib,
  use: (client: net.Socket, there: net.Socket, server: net.Server) => T | Promise<T>,
  options: net.ServerOpts = {},
  more: Partial<net.TcpNetConnectOpts> = {},
): Promise<T> {
  return await serving(
    lib,
    options,
    async (server, port) => {
      const accepted = once(server, 'connection') as Promise<[net.Socket]>;
      const client = lib.connect({ port, host: HOST, ...more });
      client.on('error', () => undefined);
      const [[there]] = await Promise.all([accepted, once(client, 'connect')]);
      there.on('error', () => undefined);
      try {
        return await use(client, there, server);
      } finally {
        client.destroy();
      }
    },
    () => undefined,
  );
}

const texts = (socket: net.Socket): string[] => {
  const seen: string[] = [];
  socket.on('data', (piece) => seen.push(String(piece)));
  return seen;
};

/** What an error shows, without the port that was free. */
const fieldsOf = ({
  code,
  errno,
  syscall,
  address,
  name,
}: NodeJS.ErrnoException & { address?: string }): unknown => ({
  code,
  errno,
  syscall,
  address,
  name,
});

const failure = async (emitter: NodeJS.EventEmitter): Promise<unknown> =>
  fieldsOf(((await once(emitter, 'error')) as [NodeJS.ErrnoException])[0]);

const codeOf = (call: () => unknown): unknown => {
  try {
    call();
    return 'nothing thrown';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code;
  }
};

// ----------------------------------------------------------------------------------------------------
area = 'functions';
same('`createServer(listener)`', (lib) => lib.createServer(() => undefined).listenerCount('connection'));
same('`createServer(options, listener)`', (lib) =>
  lib.createServer({ allowHalfOpen: true }, () => undefined).listenerCount('connection'),
);
same('`new Server()`', (lib) => new lib.Server().listening);
same('`new Socket()`, then `connect(port, host)`: `connecting`, `pending`, `readyState`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const socket = new lib.Socket();
    const before = [socket.connecting, socket.pending, socket.readyState];
    const same = socket.connect(port, HOST) === socket;
    const during = [socket.connecting, socket.pending, socket.readyState];
    await once(socket, 'connect');
    const after = [socket.connecting, socket.pending, socket.readyState];
    socket.destroy();
    return [same, before, during, after, [socket.destroyed, socket.readyState]];
  }),
);
same('`connect(options, listener)`, `connect(port, host, listener)`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const called: string[] = [];
    const first = lib.connect({ port, host: HOST }, () => called.push('options'));
    await once(first, 'connect');
    const second = lib.connect(port, HOST, () => called.push('port, host'));
    await once(second, 'connect');
    first.destroy();
    second.destroy();
    return called;
  }),
);
same('`createConnection`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const socket = lib.createConnection({ port: String(port) as unknown as number, host: HOST });
    await once(socket, 'connect');
    socket.destroy();
    return 'connected';
  }),
);
same('`connect(path)`', (lib) => failure(lib.connect('/nothing/here.sock')));

area = 'server options';
for (const allowHalfOpen of [false, true])
  same(`\`allowHalfOpen: ${allowHalfOpen}\``, (lib) =>
    paired(
      lib,
      async (client, there) => {
        client.end('last');
        there.resume();
        await once(there, 'end');
        await pause(30);
        const writable = there.writable;
        there.end();
        return writable;
      },
      { allowHalfOpen },
    ),
  );
same('`pauseOnConnect`', (lib) =>
  paired(
    lib,
    async (client, there) => {
      const seen = texts(there);
      client.write('early');
      await pause(50);
      const before = seen.length;
      there.resume();
      await once(there, 'data');
      return [there.isPaused(), before, seen];
    },
    { pauseOnConnect: true },
  ),
);
same('`noDelay`, `keepAlive`, `keepAliveInitialDelay`', (lib) =>
  paired(lib, () => 'connected', { noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }),
);
same('event `connection` brings a `Socket`', (lib) =>
  paired(lib, (_client, there) => [there instanceof lib.Socket, there.connecting, there.pending]),
);
same('`highWaterMark`', (lib) =>
  paired(lib, (_client, there) => there.readableHighWaterMark, { highWaterMark: 5000 } as net.ServerOpts),
);

area = 'server';
same('`listen(port, host, backlog, callback)`, event `listening`', async (lib) => {
  const server = lib.createServer();
  const order: string[] = [];
  server.on('listening', () => order.push('event'));
  const same = server.listen(0, HOST, 10, () => order.push('callback')) === server;
  await once(server, 'listening');
  server.close();
  await once(server, 'close');
  return [same, order];
});
same('`listen(options)`, `listen()`', async (lib) => {
  const found: unknown[] = [];
  for (const use of [(s: net.Server) => s.listen({ port: 0, host: HOST }), (s: net.Server) => s.listen()]) {
    const server = use(lib.createServer());
    await once(server, 'listening');
    const { port, ...rest } = server.address() as net.AddressInfo;
    found.push({ ...rest, port: port > 0 });
    server.close();
    await once(server, 'close');
  }
  return found;
});
same('`listen({ signal })`', async (lib) => {
  const stop = new AbortController();
  const server = lib.createServer().listen({ port: 0, host: HOST, signal: stop.signal });
  await once(server, 'listening');
  stop.abort();
  await once(server, 'close');
  return server.listening;
});
same('`listen({ ipv6Only, backlog })`: every address of IPv6, none of IPv4', async (lib) => {
  const server = lib.createServer((socket) => socket.on('error', () => undefined).end());
  server.listen({ port: 0, host: '::', ipv6Only: true, backlog: 5 });
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  const reached = async (host: string): Promise<unknown> => {
    const socket = lib.connect({ port, host });
    try {
      await once(socket, 'connect');
      return 'connected';
    } catch (error) {
      return (error as NodeJS.ErrnoException).code;
    } finally {
      socket.destroy();
    }
  };
  const found = [await reached('::1'), await reached(HOST)];
  server.close();
  await once(server, 'close');
  return found;
});
same('`listening`, `address()`', async (lib) => {
  const server = lib.createServer();
  const found: unknown[] = [[server.listening, server.address()]];
  server.listen(0, HOST);
  await once(server, 'listening');
  const { address, family } = server.address() as net.AddressInfo;
  found.push([server.listening, address, family]);
  server.close();
  found.push([server.listening, server.address()]);
  await once(server, 'close');
  return found;
});
same('`getConnections(callback)`', (lib) =>
  paired(
    lib,
    (_client, _there, server) => new Promise((resolve) => server.getConnections((...all) => resolve(all))),
  ),
);
same('`maxConnections`, event `drop`', (lib) =>
  paired(lib, async (client, _there, server) => {
    server.maxConnections = 1;
    const dropped = once(server, 'drop') as Promise<[net.DropArgument]>;
    const second = lib.connect(client.remotePort!, HOST).on('error', () => undefined);
    const [{ localPort, remotePort, ...rest }] = await dropped;
    if (!second.closed) await new Promise((resolve) => second.once('close', resolve));
    return [rest, localPort === client.remotePort, typeof remotePort];
  }),
);
same('`close(callback)` waits for the connections', (lib) =>
  paired(lib, async (client, _there, server) => {
    const order: string[] = [];
    client.on('close', () => order.push('client closed'));
    const closed = new Promise<void>((resolve) =>
      server.close((error) => {
        order.push(`callback ${String(error)}`);
        resolve();
      }),
    );
    await pause(20);
    order.push('waited');
    client.destroy();
    await closed;
    server.listen(0, HOST);
    await once(server, 'listening');
    return order.filter((step) => step !== 'client closed');
  }),
);
same('`close()` and at once `listen()` at the same port', async (lib) => {
  const server = lib.createServer();
  const events: string[] = [];
  server.on('close', () => events.push('close')).on('listening', () => events.push('listening'));
  server.listen(0, HOST);
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  server.close((error) => events.push(`callback ${String(error)}`));
  server.listen(port, HOST);
  await once(server, 'listening');
  const isSame = (server.address() as net.AddressInfo).port === port;
  await new Promise((resolve) => server.close(resolve));
  return [events, isSame];
});
same('`close()` and `listen()` while connections are open: one `close`, after the last', (lib) =>
  paired(lib, async (client, there, server) => {
    const events: string[] = [];
    server.on('close', () => events.push('close'));
    const closed = new Promise((resolve) => server.close(() => resolve(events.push('callback'))));
    server.listen(0, HOST);
    await once(server, 'listening');
    client.destroy();
    if (!there.destroyed) await once(there, 'close');
    events.push('listens');
    server.close();
    await closed;
    server.listen(0, HOST);
    await once(server, 'listening');
    return events;
  }),
);
same('a port in use: `close()` and `listen()` in the `error` listener', async (lib) => {
  const busy = lib.createServer().listen(0, HOST);
  await once(busy, 'listening');
  const { port } = busy.address() as net.AddressInfo;
  const events: string[] = [];
  const server = lib.createServer();
  server.on('error', (error) => {
    events.push((error as NodeJS.ErrnoException).code!);
    if (events.length === 2) busy.close();
    server.close();
    server.listen(port, HOST);
  });
  server.listen(port, HOST);
  await new Promise((resolve) => server.once('listening', () => resolve(undefined)));
  events.push(String((server.address() as net.AddressInfo).port === port));
  await new Promise((resolve) => server.close(resolve));
  return events;
});
same('`[Symbol.asyncDispose]()`', async (lib) => {
  const server = lib.createServer().listen(0, HOST);
  await once(server, 'listening');
  const closed = once(server, 'close');
  await server[Symbol.asyncDispose]();
  return [await closed, server.listening];
});
same('`ref()`, `unref()`', (lib) => {
  const server = lib.createServer();
  return [server.unref() === server, server.ref() === server];
});
same('event `error`: EADDRINUSE', async (lib) =>
  serving(lib, {}, async (_server, port) => await failure(lib.createServer().listen(port, HOST))),
);
differs('`listen` while it listens', "codes of a caller's mistake are those of this package", async (lib) =>
  serving(lib, {}, async (server) => codeOf(() => server.listen(0))),
);
differs(
  '`close(callback)` of a server that does not listen',
  "codes of a caller's mistake are those of this package",
  async (lib) =>
    await new Promise((resolve) =>
      lib.createServer().close((error) => resolve((error as NodeJS.ErrnoException).code)),
    ),
);
same('`listen({ path })`, `listen(path)`, `address()`', async (lib) => {
  const refused = await failure(lib.createServer().listen({ path: '/nothing/here/at.all' }));
  const folder = mkdtempSync(join(tmpdir(), 'net-parity-'));
  const path = join(folder, 'a');
  const server = lib.createServer((socket) => socket.end(String(socket.remoteAddress))).listen(path);
  await once(server, 'listening');
  const bound = server.address() === path;
  const client = lib.connect(path);
  const [data] = (await once(client, 'data')) as [Buffer];
  const seen = [client.remoteAddress, client.localPort, client.remoteFamily, client.address()];
  client.end();
  await once(client, 'close');
  server.close();
  await once(server, 'close');
  const left = existsSync(path);
  rmSync(folder, { recursive: true });
  return [refused, bound, String(data), seen, left];
});
same('`readableAll`, `writableAll` of a path', async (lib) => {
  const folder = mkdtempSync(join(tmpdir(), 'net-parity-'));
  const modes: number[] = [];
  for (const rights of [
    {},
    { readableAll: true },
    { writableAll: true },
    { readableAll: true, writableAll: true },
  ]) {
    const path = join(folder, 'a');
    const server = lib.createServer().listen({ path, ...rights });
    await once(server, 'listening');
    modes.push(statSync(path).mode & 0o777);
    server.close();
    await once(server, 'close');
  }
  rmSync(folder, { recursive: true });
  return modes;
});
differs('`listen({ fd })`', 'a descriptor is no connection of a device', async (lib) => {
  const server = lib.createServer();
  const code = codeOf(() => server.listen({ fd: 1_000_000 }).on('error', () => undefined));
  await pause(10);
  return code;
});

area = 'socket options';
same('`timeout`', (lib) =>
  paired(
    lib,
    async (client) => {
      await once(client, 'timeout');
      return [client.timeout, client.destroyed];
    },
    {},
    { timeout: 30 },
  ),
);
same('`family`, `lookup`, event `lookup`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const asked: unknown[] = [];
    const lookup = ((host: string, _options: unknown, done: (...all: unknown[]) => void) => {
      asked.push(host);
      setImmediate(() => done(null, HOST, 4));
    }) as unknown as net.LookupFunction;
    const socket = lib.connect({ port, host: 'somewhere.test', family: 4, lookup });
    const [error, address, family, host] = (await once(socket, 'lookup')) as unknown[];
    await once(socket, 'connect');
    socket.destroy();
    return [asked, error, address, family, host];
  }),
);
same('`onread`', (lib) =>
  paired(
    lib,
    async (client, there) => {
      there.write('into the buffer');
      for (let i = 0; i < 1_000 && read.length === 0; i++) await pause(5);
      return [client.bytesRead, read.splice(0).join('')];
    },
    {},
    {
      onread: {
        buffer: Buffer.alloc(64),
        callback: (count, bytes) => read.push(String(Buffer.from(bytes).subarray(0, count))) > 0,
      },
    },
  ),
);
const read: string[] = [];
same('`signal`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const stop = new AbortController();
    const socket = lib.connect({ port, host: HOST, signal: stop.signal } as net.NetConnectOpts);
    await once(socket, 'connect');
    stop.abort();
    const [error] = (await once(socket, 'error')) as [Error];
    return [error.name, socket.destroyed];
  }),
);
same('`localAddress`', (lib) => paired(lib, (client) => client.localAddress, {}, { localAddress: HOST }));
same('`localPort`', async (lib) => {
  const localPort = await freePort();
  const ports = (client: net.Socket, there: net.Socket): unknown =>
    [client.localPort, there.remotePort].map((port) => port === localPort);
  return await paired(lib, ports, {}, { localAddress: HOST, localPort });
});
same('`noDelay`, `keepAlive`, `keepAliveInitialDelay`', (lib) =>
  paired(lib, () => 'connected', {}, { noDelay: true, keepAlive: true, keepAliveInitialDelay: 1000 }),
);
same('`hints` for `lookup`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const asked: unknown[] = [];
    const lookup = ((_host: string, { hints }: LookupOptions, done: (...all: unknown[]) => void) => {
      asked.push(hints);
      setImmediate(() => done(null, HOST, 4));
    }) as unknown as net.LookupFunction;
    const socket = lib.connect({ port, host: 'somewhere.test', family: 4, hints: ADDRCONFIG, lookup });
    await once(socket, 'connect');
    socket.destroy();
    return asked;
  }),
);
same('`autoSelectFamily`, `autoSelectFamilyAttemptedAddresses`: the next address when one refuses', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const lookup = ((_host: string, _options: unknown, done: (...all: unknown[]) => void) =>
      setImmediate(() =>
        done(null, [
          { address: '::1', family: 6 },
          { address: HOST, family: 4 },
        ]),
      )) as unknown as net.LookupFunction;
    const socket = lib.connect({ port, host: 'two.test', autoSelectFamily: true, lookup });
    await once(socket, 'connect');
    const { remoteAddress, autoSelectFamilyAttemptedAddresses: tried } = socket;
    socket.destroy();
    return [remoteAddress, tried.map((each) => each.replace(`:${port}`, ''))];
  }),
);
same('`allowHalfOpen`', (lib) =>
  paired(
    lib,
    async (client, there) => {
      there.end();
      client.resume();
      await once(client, 'end');
      await pause(20);
      return client.writable;
    },
    {},
    { allowHalfOpen: true } as Partial<net.TcpNetConnectOpts>,
  ),
);

area = 'socket properties';
same('`remoteAddress`, `remoteFamily`, `localAddress`, `localFamily`', (lib) =>
  paired(lib, (client, there) =>
    [client, there].map((s) => [s.remoteAddress, s.remoteFamily, s.localAddress, s.localFamily]),
  ),
);
same('`remotePort`, `localPort`', (lib) =>
  paired(lib, (client, there) => [
    client.remotePort === there.localPort,
    client.localPort === there.remotePort,
  ]),
);
same('`destroyed`, `closed`, `errored`, `readable`, `writable`', (lib) =>
  paired(lib, async (client) => {
    const look = (): unknown[] => [
      client.destroyed,
      client.closed,
      client.errored?.message ?? null,
      client.readable,
      client.writable,
    ];
    const before = look();
    client.destroy(new Error('enough'));
    await new Promise((resolve) => client.once('close', resolve));
    return [before, look()];
  }),
);
differs(
  '`autoSelectFamilyAttemptedAddresses` without `lookup`',
  'empty: the device resolves the name, and the error of each address that was tried is in `cause.errors`',
  (lib) => paired(lib, (client) => client.autoSelectFamilyAttemptedAddresses),
);
same('addresses after the end', (lib) =>
  paired(lib, async (client) => {
    client.destroy();
    await once(client, 'close');
    return [
      client.readyState,
      client.destroyed,
      client.remoteAddress === HOST || client.remoteAddress === undefined,
    ];
  }),
);
same('`bytesRead`, `bytesWritten`', (lib) =>
  paired(lib, async (client, there) => {
    client.write('12345');
    const during = client.bytesWritten;
    await once(there, 'data');
    return [during, client.bytesWritten, there.bytesRead, there.bytesWritten];
  }),
);
same('`readyState` after `end()`', (lib) =>
  paired(
    lib,
    async (client, there) => {
      client.end();
      there.resume();
      await once(there, 'end');
      return [client.readyState, there.readyState];
    },
    { allowHalfOpen: true },
  ),
);
same('`timeout`', (lib) =>
  paired(lib, (client) => {
    const before = client.timeout;
    client.setTimeout(5000);
    const set = client.timeout;
    client.setTimeout(0);
    return [before, set, client.timeout];
  }),
);
same('`writableLength`, `bufferSize`, `writableNeedDrain`', (lib) =>
  paired(lib, async (client, there) => {
    there.pause();
    client.cork();
    const { writableHighWaterMark: mark } = client;
    const taken = client.write(Buffer.alloc(mark));
    // eslint-disable-next-line @typescript-eslint/no-deprecated
    const lengths = [client.writableLength === mark, client.bufferSize === mark];
    const found = [taken, ...lengths, client.writableNeedDrain];
    client.uncork();
    return found;
  }),
);

area = 'socket methods';
same('`write(data, encoding, callback)`, event `drain`', (lib) =>
  paired(lib, async (client, there) => {
    const called = new Promise((resolve) => client.write('68656c6c6f', 'hex', resolve));
    const [piece] = (await once(there, 'data')) as [Buffer];
    there.resume();
    const error = await called;
    const full = client.write(Buffer.alloc(32 << 20)); // more than TCP takes at once
    await once(client, 'drain');
    return [String(piece), error ?? null, full];
  }),
);
same('`end(data)`, event `end`, event `close` of both', (lib) =>
  paired(lib, async (client, there) => {
    const seen = texts(there);
    client.resume();
    const both = Promise.all([once(client, 'close'), once(there, 'close')]);
    client.end('the last');
    return [await both, seen];
  }),
);
same('`destroy(error)`, event `close` with its argument', (lib) =>
  paired(lib, async (client) => {
    const closed = new Promise((resolve) => client.once('close', resolve));
    client.destroy(new Error('enough'));
    return await closed;
  }),
);
same('`destroySoon()`', (lib) =>
  paired(lib, async (client, there) => {
    const seen = texts(there);
    client.write('before');
    client.destroySoon();
    await once(there, 'end');
    return [seen, client.destroyed];
  }),
);
same('`resetAndDestroy()`: the peer gets ECONNRESET', (lib) =>
  paired(lib, async (client, there) => {
    there.resume();
    const failed = new Promise<NodeJS.ErrnoException>((resolve) => there.once('error', resolve));
    const returned = client.resetAndDestroy() === client;
    const { code, syscall, errno } = await failed;
    return [returned, code, syscall, errno];
  }),
);
same('`pause()`, `resume()`, `isPaused()`', (lib) =>
  paired(lib, async (client, there) => {
    const seen = texts(there);
    there.pause();
    client.write('kept');
    await pause(40);
    const before = [seen.length, there.isPaused()];
    there.resume();
    if (seen.length === 0) await once(there, 'data');
    return [before, seen];
  }),
);
same('`read()` with `readable`', (lib) =>
  paired(lib, async (client, there) => {
    client.write('abcdef');
    await once(there, 'readable');
    return [String(there.read(2)), String(there.read())];
  }),
);
same('`setEncoding`', (lib) =>
  paired(lib, async (client, there) => {
    there.setEncoding('utf8');
    client.write('text');
    return await once(there, 'data');
  }),
);
same('`setTimeout(ms, callback)`, event `timeout`', (lib) =>
  paired(lib, async (client) => {
    const order: string[] = [];
    client.on('timeout', () => order.push('event'));
    const returned = client.setTimeout(20, () => order.push('callback')) === client;
    await once(client, 'timeout');
    return [returned, order, client.destroyed];
  }),
);
same('`setNoDelay()`, `setKeepAlive()`, `ref()`, `unref()` return the socket', (lib) =>
  paired(lib, (client) =>
    [client.setNoDelay(), client.setKeepAlive(true, 1000), client.unref(), client.ref()].map(
      (s) => s === client,
    ),
  ),
);
same('`address()`', (lib) =>
  paired(lib, (client) => {
    const { address, family, port } = client.address() as net.AddressInfo;
    return [address, family, port === client.localPort];
  }),
);
same('`for await`, `pipe`, `Symbol.asyncIterator`', (lib) =>
  paired(
    lib,
    async (client, there) => {
      there.pipe(there);
      client.end('echo');
      let all = '';
      for await (const piece of client) all += String(piece);
      return all;
    },
    { allowHalfOpen: true },
  ),
);

area = 'socket events';
same('`connect`, then `ready`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const order: string[] = [];
    const socket = lib.connect(port, HOST);
    for (const name of ['lookup', 'connect', 'ready']) socket.on(name, () => order.push(name));
    await once(socket, 'ready');
    socket.destroy();
    return order.filter((name) => name !== 'lookup');
  }),
);
same('`data` brings a Buffer', (lib) =>
  paired(lib, async (client, there) => {
    client.write('x');
    return Buffer.isBuffer(((await once(there, 'data')) as [Buffer])[0]);
  }),
);
differs(
  '`connectionAttempt` and its relatives',
  'one address is tried after the other by TCP below; the events are those of the connection',
  (lib) =>
    serving(lib, {}, async (_server, port) => {
      const socket = lib.connect(port, HOST);
      let count = 0;
      socket.on('connectionAttempt', () => count++);
      await once(socket, 'connect');
      socket.destroy();
      return Number(process.versions.node.split('.')[0]) < 20 ? lib === net : count > 0;
    }),
);

area = 'errors';
same(
  'ECONNREFUSED: `code`, `errno`, `syscall`, `address`',
  async (lib) => await failure(lib.connect(await freePort(), HOST)),
);
same('EADDRNOTAVAIL: `listen` on an address of no interface', async (lib) =>
  failure(lib.createServer().listen(0, '203.0.113.1')),
);
same('EADDRINUSE of a `localPort`', (lib) =>
  serving(lib, {}, async (_server, port) => {
    const socket = lib.connect({ port: await freePort(), host: HOST, localAddress: HOST, localPort: port });
    const [{ code, errno, syscall }] = (await once(socket, 'error')) as [NodeJS.ErrnoException];
    return [code, errno, syscall];
  }),
);
same('a reset by the peer while data waits', (lib) =>
  paired(lib, async (client, there) => {
    const failed = new Promise<NodeJS.ErrnoException>((resolve) => client.once('error', resolve));
    client.write(Buffer.alloc(64 << 20));
    there.resetAndDestroy();
    return ['ECONNRESET', 'EPIPE'].includes((await failed).code!);
  }),
);
/** The peer has ended and is gone, and this side has read its end and no more to say but its own. */
const abandoned = <T>(lib: Lib, use: (there: net.Socket) => T | Promise<T>): Promise<T> =>
  paired(
    lib,
    async (client, there) => {
      client.end('all');
      const seen = texts(there);
      await once(there, 'end');
      client.resetAndDestroy();
      await pause(50);
      expect(seen).toEqual(['all']);
      return await use(there);
    },
    { allowHalfOpen: true },
  );
same('a reset behind the end of the peer is no error', (lib) =>
  abandoned(lib, async (there) => {
    const closed = once(there, 'close');
    there.end();
    return [await closed, there.errored];
  }),
);
same('a write behind it has an error', (lib) =>
  abandoned(lib, async (there) => {
    const written = new Promise<NodeJS.ErrnoException>((resolve) =>
      there.write('late', (error) => resolve(error as NodeJS.ErrnoException)),
    );
    const { code, syscall } = await written;
    return [code === 'EPIPE' || code === 'ECONNRESET', syscall];
  }),
);
same('ENOTFOUND of a `lookup`', async (lib) => {
  const lookup = ((_host: string, _options: unknown, done: (error: Error) => void) =>
    process.nextTick(() =>
      done(Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND', syscall: 'getaddrinfo' })),
    )) as unknown as net.LookupFunction;
  const socket = lib.connect({ port: 1, host: 'nowhere.test', lookup });
  return ((await once(socket, 'error')) as [NodeJS.ErrnoException])[0].code;
});
same('write after `end`', (lib) =>
  paired(lib, async (client) => {
    client.end();
    return await new Promise((resolve) =>
      client.write('late', (error) => resolve((error as NodeJS.ErrnoException).code)),
    );
  }),
);
same('write after `destroy`', (lib) =>
  paired(lib, async (client) => {
    client.destroy();
    return await new Promise((resolve) =>
      client.write('late', (error) => resolve((error as NodeJS.ErrnoException).code)),
    );
  }),
);
same('write of a number, of null', (lib) =>
  paired(lib, (client) => [
    codeOf(() => client.write(7 as unknown as string)),
    codeOf(() => client.write(null as unknown as string)),
  ]),
);
differs('a port out of range', "codes of a caller's mistake are those of this package", (lib) =>
  codeOf(() => lib.connect(70_000, HOST)),
);

// ----------------------------------------------------------------------------------------------------
/** The table as docs/net-parity.md has it. */
function table(): string {
  const lines = ['| area | what | result |', '|---|---|---|'];
  for (const { area: where, name, differs: why } of rows)
    lines.push(`| ${where} | ${name} | ${why === undefined ? 'the same' : `differs: ${why}`} |`);
  return lines.join('\n');
}

describe('over node:net and over iwarp/sockets', () => {
  it.each(rows.map((row) => [`${row.area}: ${row.name}`, row] as const))(
    '%s',
    async (_name, { run, differs: why }) => {
      const [theirs, ours] = [await run(net), await run(OURS)];
      if (why === undefined) expect(ours).toEqual(theirs);
      else expect(ours).not.toEqual(theirs);
    },
  );
});

/** `UPDATE_NET_PARITY=1` writes the table into the page. */
if (process.env['UPDATE_NET_PARITY'] === '1') {
  const page = readFileSync(PAGE, 'utf8');
  const at = page.indexOf('| area |');
  writeFileSync(PAGE, page.slice(0, at) + table() + page.slice(page.indexOf('\n\n', at)));
}

/** The options of `node:net`: the compiler asks for each of them, and for no other. */
const SERVER_OPTIONS: Record<keyof net.ServerOpts, true> = {
  allowHalfOpen: true,
  pauseOnConnect: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: true,
  highWaterMark: true,
};
const LISTEN_OPTIONS: Record<keyof net.ListenOptions, true> = {
  port: true,
  host: true,
  backlog: true,
  path: true,
  exclusive: true,
  readableAll: true,
  writableAll: true,
  ipv6Only: true,
  signal: true,
};
const CONNECT_OPTIONS: Record<keyof net.TcpNetConnectOpts | keyof net.IpcNetConnectOpts, true> = {
  allowHalfOpen: true,
  autoSelectFamily: true,
  autoSelectFamilyAttemptTimeout: true,
  family: true,
  fd: true,
  hints: true,
  host: true,
  keepAlive: true,
  keepAliveInitialDelay: true,
  localAddress: true,
  localPort: true,
  lookup: true,
  noDelay: true,
  onread: true,
  path: true,
  port: true,
  readable: true,
  signal: true,
  timeout: true,
  writable: true,
};

describe('docs/net-parity.md', () => {
  const page = readFileSync(PAGE, 'utf8');

  it('has exactly these rows', () => {
    expect(page.slice(page.indexOf('| area |'), page.indexOf('\n\n', page.indexOf('| area |')))).toBe(
      table(),
    );
  });

  it.each([net.Socket, net.Server])('names every public property and method of %o', (type) => {
    const names = Object.getOwnPropertyNames(type.prototype).filter((name) => !/^(_|constructor)/.test(name));
    expect(names.filter((name) => !page.includes(name))).toEqual([]);
  });

  it('names every option', () => {
    const missing = (names: object): string[] => Object.keys(names).filter((name) => !page.includes(name));
    expect([missing(SERVER_OPTIONS), missing(LISTEN_OPTIONS), missing(CONNECT_OPTIONS)]).toEqual([
      [],
      [],
      [],
    ]);
  });

  it('names every function of the module', () => {
    const names = Object.keys(net).filter((name) => !name.startsWith('_'));
    expect(names.filter((name) => !page.includes(name))).toEqual([]);
  });
});
