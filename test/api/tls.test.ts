/** TLS below MPA: both engines, certificates of both sides, resumption, and peers that do not speak it. */
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  upgrade,
  type Connection,
  type Server,
  type ServerFailure,
} from '../../src/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { identity, type Identity } from '../support/certificates.ts';
import { endTogether, tcpPath } from '../support/tcp-path.ts';

let ours: Identity;
let client: Identity;
let expired: Identity;
beforeAll(() => {
  ours = identity('localhost');
  client = identity('a client');
  expired = identity('localhost', { days: -1 });
});

const port = (server: Server): number => server.address().port;
const HERE = { host: '127.0.0.1' } as const;

/** The code and text of the error that a promise rejects with. */
async function failure(
  promise: Promise<unknown>,
): Promise<{ code: string; message: string; cause: unknown }> {
  try {
    await promise;
  } catch (error) {
    return error as { code: string; message: string; cause: unknown };
  }
  throw new Error('it did not reject');
}

describe.each(['thread', 'worker'] as const)('TLS with engine %s', (engine) => {
  const rnic = openRnic({ engine });
  const servers: Server[] = [];
  afterAll(async () => {
    for (const server of servers) await server.close();
    rnic.device.close();
  });
  const serve = async (
    options: Parameters<typeof createServer>[0] & object,
    handler: (connection: Connection) => Promise<void>,
  ): Promise<Server> => {
    const server = await createServer({ rnic, ...options } as never, handler).listen({ ...HERE });
    servers.push(server);
    return server;
  };
  const echo = async (connection: Connection): Promise<void> => {
    for await (const message of connection) {
      await connection.send(message.data);
      message.release();
    }
  };

  it('carries messages of any size and RDMA Writes', async () => {
    const memory = new Uint8Array(new SharedArrayBuffer(1 << 20));
    const server = await serve({ tls: ours, maxMessageSize: 100_000 }, async (connection) => {
      await connection.send(connection.share(connection.register(memory, 'read-write')).toBytes());
      await echo(connection);
    });
    const connection = await connect({
      rnic,
      ...HERE,
      port: port(server),
      tls: { ca: ours.cert },
      maxMessageSize: 100_000,
    });
    expect(connection.tls).toMatchObject({ protocol: 'TLSv1.3', alpnProtocol: 'iwarp', authorized: true });
    expect(connection.tls!.peerName).toBe('localhost');
    const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
    const source = new Uint8Array(new SharedArrayBuffer(1 << 20)).fill(9);
    await connection.write(source, remote);
    await connection.drain();
    const back = new Uint8Array(new SharedArrayBuffer(1 << 20));
    await connection.read(remote, back);
    expect([back[0], back.at(-1), Buffer.compare(back, memory)]).toEqual([9, 9, 0]);
    for (const length of [0, 1, 16_000, 100_000]) {
      const sent = Buffer.alloc(length, length % 251);
      await connection.send(sent);
      const message = (await connection.receive())!;
      expect(Buffer.compare(Buffer.from(message.data), sent)).toBe(0);
      message.release();
    }
    await connection.close();
  });

  it.each([
    ['without the right to write', 'read', 0, { layer: 1, type: 1, code: 2 }],
    ['out of bounds', 'write', 1, { layer: 1, type: 1, code: 1 }],
  ] as const)('places no byte of a Write %s', async (_name, rights, beyond, refusal) => {
    const memory = new Uint8Array(new SharedArrayBuffer(3 * 4096)).fill(5);
    let served: Connection | undefined;
    const server = await serve({ tls: ours }, async (connection) => {
      served = connection;
      // The middle of what the program has: the bytes behind it are there to be written.
      const region = connection.register(memory.subarray(4096, 8192), rights);
      await connection.send(connection.share(region).toBytes());
      await connection.closed;
    });
    const connection = await connect({ rnic, ...HERE, port: port(server), tls: { ca: ours.cert } });
    const ticket = RemoteBuffer.fromBytes((await connection.receive())!.data);
    const forged = new RemoteBuffer(ticket.rkey, ticket.address, ticket.length + beyond);
    const source = new Uint8Array(new SharedArrayBuffer(forged.length)).fill(9);
    await connection.write(source, forged).catch(() => undefined); // it may have left before the answer comes
    expect(await connection.closed).toMatchObject({
      cause: 'terminated',
      error: { code: 'ERR_TERMINATED' },
      terminate: { origin: 'remote', ...refusal },
    });
    expect((await served!.closed).terminate).toMatchObject({ origin: 'local', ...refusal });
    expect(memory.every((byte) => byte === 5)).toBe(true);
  });

  it('asks a client for its certificate, and onRequest sees it', async () => {
    const seen: unknown[] = [];
    const server = await serve(
      {
        tls: { ...ours, ca: client.cert, requestCert: true },
        onRequest: ({ tls: info }) => {
          seen.push([info?.authorized, info?.peerName, info?.peerCertificate instanceof Uint8Array]);
        },
      },
      echo,
    );
    const to = { rnic, ...HERE, port: port(server) };
    const connection = await connect({ ...to, tls: { ca: ours.cert, ...client } });
    await connection.close();
    expect(seen).toEqual([[true, 'a client', true]]);
    // Another certificate, and none at all.
    await failure(connect({ ...to, tls: { ca: ours.cert, ...expired } }));
    await failure(connect({ ...to, tls: { ca: ours.cert } }));
    expect(seen.length).toBe(1);
  });

  it('resumes the session of an earlier connection', async () => {
    const server = await serve({ tls: ours }, echo);
    const options = { rnic, ...HERE, port: port(server), tls: { ca: ours.cert } };
    const resumed: boolean[] = [];
    for (let i = 0; i < 2; i++) {
      const connection = await connect(options);
      await connection.send('x');
      (await connection.receive())!.release();
      resumed.push(connection.tls!.resumed);
      await connection.close();
    }
    expect(resumed).toEqual([false, true]);
  });

  it('refuses a server that is not trusted, has expired, or has another name', async () => {
    const server = await serve({ tls: ours }, echo);
    const late = await serve({ tls: expired }, echo);
    const to = (where: Server, options: object): Promise<Connection> =>
      connect({ rnic, ...HERE, port: port(where), tls: options });
    const untrusted = await failure(to(server, {}));
    expect(untrusted.code).toBe('ERR_CONNECT');
    expect(untrusted.message).toContain('DEPTH_ZERO_SELF_SIGNED_CERT');
    expect((await failure(to(late, { ca: expired.cert }))).message).toContain('CERT_HAS_EXPIRED');
    const other = await failure(to(server, { ca: ours.cert, servername: 'other.example' }));
    expect(other.message).toContain('ERR_TLS_CERT_ALTNAME_INVALID');
    // The server serves on.
    await (await to(server, { ca: ours.cert })).close();
  });

  it('says so when a plain peer comes to a TLS port, and the other way round', async () => {
    const failures: ServerFailure[] = [];
    const onFailure = (told: ServerFailure): void => void failures.push(told);
    const secure = await serve({ tls: ours, onFailure }, echo);
    const plain = await serve({ onFailure }, echo);
    const first = await failure(connect({ rnic, ...HERE, port: port(secure) }));
    expect(first.code).toBe('ERR_STARTUP');
    expect(first.message).toMatch(/reset before an MPA Reply \(does the port want TLS\?\)$/);
    const second = await failure(connect({ rnic, ...HERE, port: port(plain), tls: { ca: ours.cert } }));
    expect(second.code).toBe('ERR_CONNECT');
    expect(second.message).toMatch(/does the server speak TLS/);
    await expect.poll(() => failures.length).toBe(2);
    expect(failures.map(({ error }) => error.code)).toEqual(['ERR_STARTUP', 'ERR_STARTUP']);
    expect(failures[1]!.error.message).toMatch(/speaks TLS/);
  });

  it('ends with an error when the TLS stream is cut off', async () => {
    const server = await serve({ tls: ours }, echo);
    const at = await tcpPath(port(server), (near, far) => {
      let octets = 0;
      near.pipe(far);
      far.on('data', (chunk) => {
        octets += chunk.length;
        if (octets > 6000) near.destroy();
        else near.write(chunk);
      });
      far.on('end', () => near.end());
      endTogether(near, far);
    });
    const connection = await connect({ rnic, ...HERE, port: at, tls: { ca: ours.cert } });
    await connection.send(Buffer.alloc(10_000)).catch(() => undefined);
    expect((await connection.closed).cause).toBeDefined();
    expect(connection.state).toBe('closed');
  });

  it('takes records cut anywhere', async () => {
    const server = await serve({ tls: ours }, echo);
    const at = await tcpPath(port(server), (near, far) => {
      const slowly = (from: net.Socket, to: net.Socket): void => {
        from.on('data', (chunk) => {
          for (let i = 0; i < chunk.length; i += 7) to.write(chunk.subarray(i, i + 7));
        });
        from.on('end', () => to.end());
      };
      slowly(near, far);
      slowly(far, near);
      endTogether(near, far);
    });
    const connection = await connect({ rnic, ...HERE, port: at, tls: { ca: ours.cert } });
    await connection.send(Buffer.alloc(16_000, 7));
    const message = (await connection.receive())!;
    expect(message.data.every((byte) => byte === 7)).toBe(true);
    message.release();
    await connection.close();
  });

  it('counts peers that never finish a handshake', async () => {
    const server = await serve({ tls: ours, maxPending: 2 }, echo);
    const idle = await Promise.all(
      Array.from(
        { length: 4 },
        () =>
          new Promise<net.Socket>((resolve) => {
            const socket = net.connect(port(server), '127.0.0.1', () => resolve(socket));
            socket.on('error', () => resolve(socket));
          }),
      ),
    );
    const connection = await connect({ rnic, ...HERE, port: port(server), tls: { ca: ours.cert } });
    await connection.close();
    for (const socket of idle) socket.destroy();
  });

  it('lets another TLS program speak another protocol by ALPN no further than its handshake', async () => {
    const server = await serve({ tls: ours }, echo);
    const other = tls.connect({ ...HERE, port: port(server), ca: ours.cert, ALPNProtocols: ['http/1.1'] });
    const error = await new Promise<Error>((resolve) => other.once('error', resolve));
    expect((error as NodeJS.ErrnoException).code).toContain('ALERT_NO_APPLICATION_PROTOCOL');
  });
});

describe('a server that leaves in the start-up', () => {
  const open: (net.Server | tls.Server)[] = [];
  afterAll(() => open.forEach((server) => server.close()));

  /** Where a server listens that answers the first bytes so, and leaves. */
  async function leaving(server: net.Server | tls.Server, path?: string): Promise<number> {
    open.push(server);
    await new Promise<void>((resolve) => server.listen(path ?? { ...HERE, port: 0 }, resolve));
    return path === undefined ? (server.address() as net.AddressInfo).port : 0;
  }
  const answering = (answer: string): net.Server =>
    net.createServer(
      (socket) => void socket.on('error', () => undefined).once('data', () => socket.end(answer)),
    );
  const HINT = 'does the port want TLS?';

  it('without a byte may want TLS', async () => {
    const told = await failure(connect({ ...HERE, port: await leaving(answering('')) }));
    expect([told.code, told.message.endsWith(`closed the connection before an MPA Reply (${HINT})`)]).toEqual(
      ['ERR_STARTUP', true],
    );
  });

  it.each<[string, () => Promise<unknown>]>([
    [
      'behind the beginning of a Reply',
      async () => await connect({ ...HERE, port: await leaving(answering('MPA I')) }),
    ],
    [
      'at a Unix socket, which has no TLS here',
      async () => {
        const path = join(mkdtempSync(join(tmpdir(), 'iwarp-tls-')), 'sock');
        await leaving(answering(''), path);
        return await connect({ path }).finally(() => rmSync(dirname(path), { recursive: true }));
      },
    ],
    [
      'behind a TLS handshake',
      async () => {
        const server = tls.createServer({ ...ours, ALPNProtocols: ['iwarp'] }, (socket) =>
          socket.on('error', () => undefined).once('data', () => socket.end()),
        );
        return await connect({ ...HERE, port: await leaving(server), tls: { ca: ours.cert } });
      },
    ],
    [
      'on a socket that has spoken another protocol',
      async () => {
        const socket = net.connect({ ...HERE, port: await leaving(answering('')) });
        await new Promise((resolve) => socket.once('connect', resolve));
        return await upgrade(socket, { role: 'initiator' });
      },
    ],
  ])('%s has not asked for TLS', async (_name, attempt) => {
    const told = await failure(attempt());
    expect([told.code, told.message.includes('before an MPA Reply')]).toEqual(['ERR_STARTUP', true]);
    expect(told.message).not.toContain(HINT);
  });
});

describe('wrong options', () => {
  it.each([
    ['a number', 1],
    ['a field that is not known', { cart: 'x' }],
  ])('%s', async (_name, given) => {
    expect((await failure(connect({ ...HERE, port: 1, tls: given as never }))).code).toBe(
      'ERR_INVALID_ARGUMENT',
    );
    expect(() => createServer({ tls: given as never })).toThrow(/tls/);
  });

  it('a server without a certificate', () => {
    expect(() => createServer({ tls: {} })).toThrow(/options.tls.key is missing/);
  });

  it('a function with a worker engine', async () => {
    const tls = { checkServerIdentity: () => undefined };
    const told = await failure(connect({ ...HERE, port: 1, engine: 'worker', tls }));
    expect([told.code, /thread/.test(told.message)]).toEqual(['ERR_NOT_SUPPORTED', true]);
  });

  it('a transport without TLS sends nothing in the clear', async () => {
    const rnic = openRnic({ engine: 'thread', transport: new MemoryTransport(realScheduler) });
    const told = await failure(connect({ rnic, ...HERE, port: 1, tls: true }));
    expect(told.message).toContain('does not speak TLS');
    await expect(createServer({ rnic, tls: ours }).listen()).rejects.toThrow('does not speak TLS');
  });

  it('iwarps: means TLS', async () => {
    const server = await createServer({ tls: ours, engine: 'thread' }, () => undefined).listen({ ...HERE });
    const told = await failure(connect(`iwarps://127.0.0.1:${port(server)}`, { engine: 'thread' }));
    expect(told.message).toContain('SELF_SIGNED');
    const url = `iwarps://127.0.0.1:${port(server)}`;
    const unset = await failure(connect(url, { engine: 'thread', tls: undefined }));
    expect(unset.message).toContain('SELF_SIGNED');
    expect((await failure(connect(url, { engine: 'thread', tls: false }))).code).toBe('ERR_INVALID_ARGUMENT');
    const connection = await connect(`iwarps://127.0.0.1:${port(server)}`, {
      engine: 'thread',
      tls: { ca: ours.cert },
    });
    expect(connection.tls!.authorized).toBe(true);
    await connection.close();
    await server.close();
  });
});
