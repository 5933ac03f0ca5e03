/** TLS below byte streams: sessions, ALPN, and ends of which only one speaks it. */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { openRnic, type Rnic } from '../../src/api/environment.ts';
import {
  connect,
  connectSecure,
  createSecureServer,
  createServer,
  type RdmaServer,
  type RdmaSocket,
  type RdmaSocketOptions,
} from '../../src/sockets/index.ts';
import { identity, type Identity } from '../support/certificates.ts';

const HOST = '127.0.0.1';
let ours: Identity;
beforeAll(() => {
  ours = identity('localhost');
});

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

async function portOf(server: RdmaServer): Promise<number> {
  cleanup.push(() => server[Symbol.asyncDispose]());
  server.listen(0, HOST);
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function errorOf(socket: NodeJS.EventEmitter): Promise<NodeJS.ErrnoException> {
  return ((await once(socket, 'error')) as [NodeJS.ErrnoException])[0];
}

/** One exchange over a new connection: what each end knows of its TLS. */
async function asked(socket: RdmaSocket): Promise<RdmaSocket['tls']> {
  await once(socket, 'connect');
  const { tls: info } = socket;
  socket.end('over TLS');
  let text = '';
  for await (const part of socket) text += String(part);
  expect(text).toBe('over TLS');
  return info;
}

const RESET = 'MPA start-up failed: the connection was reset before an MPA Reply (does the port want TLS?)';

describe.each([
  ['thread', 'rsocket', {}],
  ['thread', 'sdp', {}],
  ['thread', 'sdp in front of MPA', { placement: 'streaming' }],
  ['worker', 'rsocket', {}],
  ['worker', 'sdp', {}],
] as const)('with the engine in a %s, %s', (engine, name, more) => {
  let rnic: Rnic;
  let options: RdmaSocketOptions;
  beforeAll(() => {
    rnic = openRnic({ engine });
    options = { rnic, protocol: name === 'rsocket' ? 'rsocket' : 'sdp', ...more };
  });
  afterAll(() => rnic.device.close());

  it('both ends know ALPN and certificate, and a second connection resumes the session', async () => {
    const seen: RdmaSocket['tls'][] = [];
    const take = (socket: RdmaSocket): void => {
      seen.push(socket.tls);
      socket.pipe(socket);
    };
    const port = await portOf(createServer({ ...options, allowHalfOpen: true, tls: ours }, take));
    const to = { ...options, host: HOST, port, tls: { ca: ours.cert } };
    const infos = [await asked(connect(to)), await asked(connect(to))];
    const common = { protocol: 'TLSv1.3', alpnProtocol: 'iwarp' };
    expect(infos).toMatchObject([
      { ...common, authorized: true, peerName: 'localhost', resumed: false },
      { ...common, authorized: true, peerName: undefined, resumed: true },
    ]);
    expect(seen).toMatchObject([
      { ...common, resumed: false },
      { ...common, resumed: true },
    ]);
  });

  it('another TLS program agrees that the server speaks iwarp, and resumes its session', async () => {
    const port = await portOf(createServer({ ...options, tls: ours }));
    const outcomes: unknown[] = [];
    let session: Buffer | undefined;
    for (let i = 0; i < 2; i++) {
      const socket = tls.connect({ host: HOST, port, ca: ours.cert, ALPNProtocols: ['iwarp'], session });
      socket.on('error', () => undefined).resume(); // a session comes behind the handshake
      const made = new Promise<Buffer>((resolve) => void socket.once('session', resolve));
      await once(socket, 'secureConnect');
      outcomes.push([socket.alpnProtocol, socket.isSessionReused()]);
      session ??= await made;
      socket.destroy();
    }
    expect(outcomes).toEqual([
      ['iwarp', false],
      ['iwarp', true],
    ]);
  });

  it('without TLS there is nothing to know', async () => {
    const port = await portOf(
      createServer({ ...options, allowHalfOpen: true }, (socket) => socket.pipe(socket)),
    );
    expect(await asked(connect({ ...options, host: HOST, port }))).toBeUndefined();
  });

  it('a plain client at a TLS port hears that the port may want it, and the port serves on', async () => {
    const port = await portOf(
      createServer({ ...options, allowHalfOpen: true, tls: ours }, (socket) => socket.pipe(socket)),
    );
    const error = await errorOf(connect({ ...options, host: HOST, port }));
    expect(error).toMatchObject({ cause: { code: 'ERR_STARTUP' }, syscall: 'connect' });
    if (name === 'sdp in front of MPA') expect((error.cause as Error).message).toMatch(/want TLS\?\)$/);
    else expect([error.code, (error.cause as Error).message]).toEqual(['ECONNRESET', RESET]);
    await asked(connect({ ...options, host: HOST, port, tls: { ca: ours.cert } }));
  });

  it('a TLS client at a plain port is asked whether the server speaks it', async () => {
    const port = await portOf(createServer(options));
    const error = await errorOf(connect({ ...options, host: HOST, port, tls: { ca: ours.cert } }));
    expect(error).toMatchObject({ cause: { code: 'ERR_CONNECT' } });
    expect((error.cause as Error).message).toMatch(
      /^the TLS handshake with 127.* failed .*: does the server speak TLS, and is its certificate trusted\?/,
    );
  });

  it('TLS above RDMA and TLS below it do not meet, and say so', async () => {
    const below = await portOf(createServer({ ...options, tls: ours }));
    const first = await errorOf(connectSecure({ ...options, host: HOST, port: below }, { ca: ours.cert }));
    expect((first.cause as Error).message).toMatch(/does the port want TLS\?/);
    const above = await portOf(createSecureServer({ ...ours, socket: options }));
    const second = await errorOf(connect({ ...options, host: HOST, port: above, tls: { ca: ours.cert } }));
    expect((second.cause as Error).message).toMatch(/does the server speak TLS/);
  });
});

it('a plain client of a server with TLS above RDMA is not told of TLS below it', async () => {
  const server = createSecureServer(ours);
  const failed = once(server, 'tlsClientError');
  const port = await portOf(server);
  const socket = connect(port, HOST);
  socket.on('error', () => undefined).write('GET / HTTP/1.0\r\n\r\n');
  expect((await failed)[0]).toMatchObject({ code: 'ERR_SSL_HTTP_REQUEST' });
  socket.destroy();
  const plain = createServer((each) => each.on('error', () => undefined).end('no TLS here'));
  const secure = connectSecure({ host: HOST, port: await portOf(plain) }, { ca: ours.cert });
  expect((await errorOf(secure)).code).toMatch(/^ERR_SSL_/);
});
