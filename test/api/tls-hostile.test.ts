/** TLS that goes wrong: renegotiation, records cut off or changed anywhere, ends without a notice. */
import { once } from 'node:events';
import net from 'node:net';
import { setTimeout } from 'node:timers/promises';
import tls from 'node:tls';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  connect,
  createServer,
  IwarpError,
  openRnic,
  upgrade,
  type Connection,
  type Server,
  type ServerFailure,
} from '../../src/index.ts';
import * as sockets from '../../src/sockets/index.ts';
import { identity, type Identity } from '../support/certificates.ts';
import { endTogether, tcpPath } from '../support/tcp-path.ts';

const HERE = { host: '127.0.0.1' } as const;
const TLS12 = { maxVersion: 'TLSv1.2', ALPNProtocols: ['iwarp'] } as const;
/** More than Node lets a client ask for in ten minutes. */
const TOO_OFTEN = 5;
const SOON_MS = 8000;

let ours: Identity;
beforeAll(() => {
  ours = identity('localhost');
});

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).toReversed()) await each();
});

async function echo(connection: Connection): Promise<void> {
  for await (const message of connection) {
    await connection.send(message.data).finally(() => message.release());
  }
}

async function ask(connection: Connection, text: string): Promise<string> {
  await connection.send(text);
  const message = (await connection.receive())!;
  const answer = message.text();
  message.release();
  return answer;
}

function renegotiate(socket: tls.TLSSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once('close', () => reject(new Error('closed')));
    socket.renegotiate({ rejectUnauthorized: false }, (error) =>
      error === null ? resolve() : reject(error),
    );
  });
}

/** What goes on in place of a chunk behind `before` bytes, and in how many ms the relay ends, if so. */
type Change = (chunk: Buffer, before: number) => { readonly bytes: Buffer; readonly over: number | null };

/** A path to a port that changes what passes; it ends both of its sides with FIN, or destroys them. */
const relay = (to: number, toServer: Change, toClient: Change, how: 'end' | 'destroy'): Promise<number> =>
  tcpPath(to, (near, far) => {
    const both = [near, far];
    const pipe = (from: net.Socket, into: net.Socket, change: Change): void => {
      let octets = 0;
      from.on('data', (chunk: Buffer) => {
        const { bytes, over } = change(chunk, octets);
        octets += chunk.length;
        if (into.writable) into.write(bytes);
        const finish = (): void => both.forEach((end) => end[how]());
        if (over === 0) finish();
        else if (over !== null) void setTimeout(over).then(finish);
      });
      from.on('end', () => into.end());
    };
    pipe(near, far, toServer);
    pipe(far, near, toClient);
    endTogether(near, far);
  });

const pass: Change = (bytes) => ({ bytes, over: null });
const cutAt =
  (at: number): Change =>
  (chunk, before) => ({
    bytes: chunk.subarray(0, Math.max(0, at - before)),
    over: before + chunk.length >= at ? 0 : null,
  });
const flipAt =
  (at: number): Change =>
  (chunk, before) => {
    if (at < before || at >= before + chunk.length) return { bytes: chunk, over: null };
    const bytes = Buffer.from(chunk);
    bytes[at - before]! ^= 0x10;
    // A record whose length has grown waits for bytes that never come.
    return { bytes, over: 200 };
  };

/** A promise of something that has to be there in time: a hang is a failure that says where. */
async function soon<T>(what: string, promise: Promise<T>): Promise<T> {
  const stop = new AbortController();
  const late = setTimeout(SOON_MS, undefined, { signal: stop.signal }).then(
    () => Promise.reject(new Error(`${what} takes more than ${SOON_MS} ms`)),
    () => new Promise<never>(() => undefined),
  );
  try {
    return await Promise.race([promise, late]);
  } finally {
    stop.abort();
  }
}

describe.each(['thread', 'worker'] as const)('TLS with engine %s', (engine) => {
  const rnic = openRnic({ engine });
  afterAll(() => rnic.device.close());

  async function serving(onFailure: (failure: ServerFailure) => void = () => undefined): Promise<Server> {
    const server = await createServer({ rnic, tls: ours, onFailure }, async (connection) => {
      await echo(connection).catch(() => undefined);
    }).listen({ ...HERE });
    cleanup.push(() => server.close());
    return server;
  }

  async function good(server: Server): Promise<void> {
    const connection = await connect({ rnic, ...HERE, port: server.address().port, tls: { ca: ours.cert } });
    expect(await ask(connection, 'still here')).toBe('still here');
    await connection.close();
  }

  it('lets a client renegotiate in TLS 1.2, and ends the connection of one that goes on', async () => {
    const server = await serving();
    const socket = tls.connect({ ...HERE, port: server.address().port, ca: ours.cert, ...TLS12 });
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    const connection = await upgrade(socket, { role: 'initiator' });
    expect(await ask(connection, 'before')).toBe('before');
    await renegotiate(socket);
    expect(await ask(connection, 'behind')).toBe('behind');
    let refused = 0;
    for (let i = 0; i < TOO_OFTEN && refused === 0; i++) await renegotiate(socket).catch(() => refused++);
    expect(refused).toBe(1);
    await connection.closed;
    await expect.poll(() => server.connections.size).toBe(0);
    await good(server);
  });

  it('follows a server that renegotiates in TLS 1.2', async () => {
    const accepted: tls.TLSSocket[] = [];
    const server = tls.createServer({ ...ours, ...TLS12 }, (socket) => {
      accepted.push(socket);
      void upgrade(socket, { role: 'responder' }).then(echo, () => undefined);
    });
    await new Promise<void>((resolve) => server.listen(0, HERE.host, resolve));
    cleanup.push(() => void server.close());
    const { port } = server.address() as net.AddressInfo;
    const connection = await connect({ rnic, ...HERE, port, tls: { ca: ours.cert } });
    expect(connection.tls!.protocol).toBe('TLSv1.2');
    expect(await ask(connection, 'before')).toBe('before');
    await renegotiate(accepted[0]!);
    expect(await ask(connection, 'behind')).toBe('behind');
    await connection.close();
  });

  /** A message goes through a relay that cuts or changes; everything ends soon with a typed error. */
  async function endsBadly(toServer: Change, toClient: Change, how: 'end' | 'destroy'): Promise<void> {
    const server = await serving();
    const port = await relay(server.address().port, toServer, toClient, how);
    const attempt = async (): Promise<unknown> => {
      const connection = await connect({ rnic, ...HERE, port, tls: { ca: ours.cert } });
      await ask(connection, 'x'.repeat(20_000)).catch(() => undefined);
      const { error, cause } = await connection.closed;
      expect(cause).not.toBe('graceful');
      throw error as Error;
    };
    const error = await soon('the client', attempt()).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(IwarpError);
    expect((error as IwarpError).code).toMatch(/^ERR_/);
    await expect.poll(() => server.connections.size, { timeout: SOON_MS }).toBe(0);
    await expect.poll(() => rnic.device.query().inUse).toMatchObject({ pd: 0, qp: 0, mr: 0 });
    await good(server);
  }

  // In the first record's header, in the hello, the certificate, MPA's frames, and in the message.
  const PLACES = [0, 3, 60, 300, 900, 1300, 1600, 2500, 9000, 18_000];
  describe.each(['end', 'destroy'] as const)('cut off by %s', (how) => {
    it.each(PLACES)('a stream to the client behind %i bytes', (at) => endsBadly(pass, cutAt(at), how));
    it.each(PLACES)('a stream to the server behind %i bytes', (at) => endsBadly(cutAt(at), pass, how));
  });

  const FLIPS = [0, 3, 60, 300, 900, 1300, 1600, 2500, 9000];
  it.each(FLIPS)('a bit changed at %i to the client', (at) => endsBadly(pass, flipAt(at), 'destroy'));
  it.each(FLIPS)('a bit changed at %i to the server', (at) => endsBadly(flipAt(at), pass, 'destroy'));

  it('a certificate that is none', async () => {
    const none = 'no certificate at all';
    const code = expect.stringMatching(/^ERR_/) as string;
    const serve = createServer({ rnic, tls: { key: ours.key, cert: none } }, () => undefined).listen({
      ...HERE,
    });
    await expect(serve).rejects.toMatchObject({ code });
    const server = await serving();
    const { port } = server.address();
    const own = { key: ours.key, cert: none, ca: ours.cert };
    await expect(connect({ rnic, ...HERE, port, tls: own })).rejects.toMatchObject({ code });
    await good(server);
  });

  it.each(['sdp', 'rsocket'] as const)(
    'a byte stream over %s that is cut off never ends',
    async (protocol) => {
      const server = sockets.createServer({ protocol, rnic, tls: ours }, (socket) => {
        socket.on('error', () => undefined).pipe(socket);
      });
      await new Promise<void>((resolve) => server.listen(0, HERE.host, resolve));
      cleanup.push(() => void server.close());
      const { port } = server.address() as net.AddressInfo;
      for (const at of [5000, 9000, 15_000, 30_000]) {
        const through = await relay(port, pass, cutAt(at), 'end');
        const options = { protocol, rnic, ...HERE, port: through, tls: { ca: ours.cert } };
        const socket = sockets.connect(options);
        let [got, ended] = [0, false];
        socket.on('data', ({ length }: Buffer) => (got += length)).on('end', () => (ended = true));
        const failed = soon('the stream', once(socket, 'error'));
        socket.write(Buffer.alloc(1 << 20));
        expect((await failed)[0]).toMatchObject({ code: expect.stringMatching(/^E/) as string });
        expect([got < 1 << 20, ended]).toEqual([true, false]);
      }
      // An end that the peer has said is one.
      const whole = sockets.connect({ protocol, rnic, ...HERE, port, tls: { ca: ours.cert } });
      whole.resume().end('all');
      await soon('the end', once(whole, 'close'));
      await expect
        .poll(() => rnic.device.query().inUse, { timeout: SOON_MS })
        .toMatchObject({ pd: 0, qp: 0, mr: 0 });
    },
  );
});
