// Every public call of the byte streams with every kind of wrong argument: each throws or rejects at once
// with its code and the argument's name, makes nothing, and the stream that it was made on lives on.
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { defaultRnic } from '../../src/api/environment.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { connect, createServer, type RdmaServer, type RdmaSocket } from '../../src/sockets/index.ts';

const server: RdmaServer = createServer({ iomapSize: 1 }, (socket) => socket.pipe(socket));
let socket: RdmaSocket;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  socket = connect((server.address() as { port: number }).port, '127.0.0.1');
  await once(socket, 'connect');
});
afterAll(async () => {
  socket.destroy();
  await server[Symbol.asyncDispose]();
});

const NOT_OBJECT = [null, 'text', true];
const NOT_STRING = [null, 7, {}, ''];
const NOT_FUNCTION = [1, 'f', {}];
const NOT_BYTES = [null, undefined, 7, {}, [1, 2], new ArrayBuffer(4)];
const NOT_U64 = [null, undefined, -1, -1n, 1.5, 2n ** 64n, '1', {}, Number.NaN];
const integer = (min: number, max: number): unknown[] => [
  null,
  '1',
  1.5,
  Number.NaN,
  {},
  true,
  1n,
  min - 1,
  max + 1,
];
/** Milliseconds. */
const NOT_TIME = [null, '1', Number.NaN, Number.POSITIVE_INFINITY, {}, true, 1n, -1, -0.5];
const PORT = { host: '127.0.0.1', port: 4711 };

interface Case {
  readonly wrong: string;
  readonly values: readonly unknown[];
  readonly make: (value: never) => unknown;
}

const cases: Case[] = [];
const add = (wrong: string, values: readonly unknown[], make: (value: never) => unknown): void =>
  void cases.push({ wrong, values, make });

const shared: Readonly<Record<string, readonly unknown[]>> = {
  receiveBuffer: integer(4096, 2 ** 30),
  sendBuffer: integer(4096, 2 ** 30),
  credits: integer(16, 32_767),
  iomapSize: integer(0, 32_512),
  timeout: NOT_TIME,
  highWaterMark: integer(0, Number.MAX_SAFE_INTEGER),
  signal: [null, 1, {}, new AbortController()],
  rnic: [null, 1, {}, { device: 1 }],
  policy: [null, 1, { crc: 'maybe' }],
};
for (const [name, values] of Object.entries(shared)) {
  add(name, values, (value) => connect({ ...PORT, [name]: value }));
  add(name, values, (value) => createServer({ [name]: value }));
}
const callback = (): boolean => true;
add(
  'onread',
  [null, 1, 'f', {}, { buffer: new Uint8Array(4) }, { buffer: new Uint8Array(4), callback: 1 }],
  (value) => connect({ ...PORT, onread: value }),
);
add('onread', [undefined, null, 7, [1], new ArrayBuffer(4), new Uint8Array(0)], (value) =>
  connect({ ...PORT, onread: { buffer: value, callback } }),
);
add('onread', NOT_FUNCTION, (value) => createServer({ onread: value }));
// A text is the path of a Unix socket, here and in `listen`.
add(
  'options',
  NOT_OBJECT.filter((value) => typeof value !== 'string'),
  (value) => connect(value),
);
add('options', NOT_OBJECT, (value) => createServer(value));
add('lookup', NOT_FUNCTION, (lookup) => connect({ ...PORT, lookup }));
add('path', [7, {}, 'a\0b'], (path) => connect({ path } as never));
add('host', [7, {}, ''], (host) => connect({ ...PORT, host }));
const NOT_PORT = integer(1, 65_535).filter((value) => value !== '1'); // as an environment variable has it
add('port', NOT_PORT, (port) => connect({ port }));
add('port', ['', '70000'], (value) => connect(value));
add('localAddress', NOT_STRING, (localAddress) => connect({ ...PORT, localAddress }));
add('localPort', integer(0, 65_535), (localPort) => connect({ ...PORT, localPort }));
add('family', [null, 5, '4', {}], (family) => connect({ ...PORT, family }));
add('listener', NOT_FUNCTION, (value) => connect(PORT, value));
add('onConnection', NOT_FUNCTION, (value) => createServer({}, value));
add('port', [true, '70000'], (value) => createServer().listen(value));
add('port', [1.5, -1, 65_536, Number.NaN], (value) => createServer().listen(value));
add('port', ['text', {}, true], (port) => createServer().listen({ port }));
add('signal', [null, 1, {}], (signal) => createServer().listen({ signal }));
add('callback', NOT_FUNCTION, (value) => createServer().close(value));
add('host', [{}, ''], (value) => createServer().listen(0, value));
const NOT_BACKLOG = integer(1, 65_535).filter((value) => value !== null && value !== 0 && value === value);
add('backlog', NOT_BACKLOG, (value) => createServer().listen(0, '127.0.0.1', value));
add('path', [7, {}, 'a\0b'], (path) => createServer().listen({ path } as never));
add('fd', [0], (fd) => createServer().listen({ fd } as never));
add('ms', NOT_TIME, (value) => socket.setTimeout(value));
add('callback', NOT_FUNCTION, (value) => socket.setTimeout(5, value));
add('memory', NOT_BYTES, (value) => socket.mapMemory(value, 0));
add('offset', NOT_U64, (value) => socket.mapMemory(defaultRnic().device.allocateMemory(8), value));
add('memory', NOT_BYTES, (value) => socket.unmapMemory(value));
add('data', NOT_BYTES, (value) => socket.writeMapped(value, 0));
add('offset', NOT_U64, (value) => socket.writeMapped(new Uint8Array(8), value));
add('options.signal', [null, 1, {}], (signal) => socket.writeMapped(new Uint8Array(8), 0, { signal }));

const text = (value: unknown): string =>
  typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value) ?? String(value));

describe('misuse of the byte streams', () => {
  it.each(
    cases.flatMap(({ wrong, values, make }) =>
      values.map(
        (value) => [make.toString().replace(/^\(\w+\) => /, ''), wrong, text(value), make, value] as const,
      ),
    ),
  )('%s, wrong %s: %s', async (_call, wrong, _text, make, value) => {
    const before = defaultRnic().device.query().inUse.qp;
    const error: unknown = await new Promise((resolve) => resolve(make(value as never))).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(IwarpError);
    expect(error).toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    expect((error as Error).message).toContain(wrong);
    expect(defaultRnic().device.query().inUse.qp).toBe(before);
  });

  it('only mapped ranges are unmapped or written, and a server listens once', async () => {
    expect(() => socket.unmapMemory(new Uint8Array(8))).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_REGION' }),
    );
    await expect(socket.writeMapped(new Uint8Array(8), 0)).rejects.toMatchObject({
      code: 'ERR_OUT_OF_RANGE',
    });
    expect(() => server.listen(0)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
  });

  it('leaves the stream as it was', async () => {
    socket.write('still here');
    expect(String((await once(socket, 'data'))[0])).toBe('still here');
  });
});

describe('forms of the calls, as in node:net', () => {
  it.each<[string, (server: RdmaServer, ready: () => void) => unknown]>([
    ['listen(ready)', (s, ready) => s.listen(ready)],
    ['listen(port, ready)', (s, ready) => s.listen(0, ready)],
    ['listen(port, host, ready)', (s, ready) => s.listen(0, '127.0.0.1', ready)],
    ['listen(port, host, backlog, ready)', (s, ready) => s.listen(0, '127.0.0.1', 8, ready)],
    ['listen(options, ready)', (s, ready) => s.listen({ port: 0, host: '127.0.0.1' }, ready)],
    [
      'listen(options of node:net, ready)',
      (s, ready) => s.listen({ port: 0, host: '127.0.0.1', exclusive: true } as never, ready),
    ],
  ])('%s, then connect(port, host, listener) and connect(port, listener)', async (_form, listen) => {
    const own = createServer((peer) => peer.end('bye'));
    await new Promise<void>((resolve) => listen(own, resolve));
    const { port } = own.address() as { port: number };
    for (const open of [
      (done: () => void) => connect(port, '127.0.0.1', done),
      (done: () => void) => connect(port, done),
    ]) {
      const connected = new Promise<void>((resolve) => open(resolve).resume());
      await connected;
    }
    await own[Symbol.asyncDispose]();
  });

  it('the address of a server is there while it listens', async () => {
    const own = createServer();
    expect(own.address()).toBeNull();
    own.listen(0, '127.0.0.1');
    await once(own, 'listening');
    expect(own.address()).toMatchObject({ address: '127.0.0.1', family: 'IPv4' });
    own.close();
    expect(own.address()).toBeNull();
    await once(own, 'close');
    expect(own.address()).toBeNull();
  });

  it('a server whose address is taken may listen elsewhere; one closed meanwhile closes', async () => {
    const { port } = server.address() as { port: number };
    const second = createServer().listen(port, '127.0.0.1');
    expect((await once(second, 'error'))[0]).toMatchObject({
      code: 'EADDRINUSE',
      syscall: 'listen',
      cause: { code: 'ERR_CONNECT' },
    });
    second.listen(0, '127.0.0.1');
    await once(second, 'listening');
    await second[Symbol.asyncDispose]();

    const third = createServer().listen(port, '127.0.0.1');
    const heard: string[] = [];
    third.on('error', () => heard.push('error'));
    await new Promise<void>((resolve) => third.close(() => resolve()));
    expect([heard, third.listening]).toEqual([['error'], false]);
  });
});
