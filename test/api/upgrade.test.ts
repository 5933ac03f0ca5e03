/** Sockets that have spoken another protocol go on as connections; those that cannot are refused. */
import net from 'node:net';
import tls from 'node:tls';
import { Duplex } from 'node:stream';
import { beforeAll, describe, expect, it } from 'vitest';
import { createServer, RemoteBuffer, upgrade, type Connection, type EngineKind } from '../../src/index.ts';
import { identity, type Identity } from '../support/certificates.ts';

let ours: Identity;
beforeAll(() => {
  ours = identity('localhost');
});

/** Two connected sockets. */
async function sockets(options: net.ServerOpts = {}): Promise<[net.Socket, net.Socket]> {
  const server = net.createServer({ pauseOnConnect: true, ...options });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const there = new Promise<net.Socket>((resolve) => server.once('connection', resolve));
  const here = net.connect((server.address() as net.AddressInfo).port, '127.0.0.1');
  await new Promise((resolve) => here.once('connect', resolve));
  const accepted = await there;
  server.close();
  for (const end of [here, accepted]) end.on('error', () => undefined);
  return [here, accepted];
}

async function secured(): Promise<[tls.TLSSocket, tls.TLSSocket]> {
  const server = tls.createServer({ ...ours });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const there = new Promise<tls.TLSSocket>((resolve) => server.once('secureConnection', resolve));
  const { port } = server.address() as net.AddressInfo;
  const here = tls.connect({ port, host: '127.0.0.1', ca: ours.cert });
  await new Promise((resolve) => here.once('secureConnect', resolve));
  const accepted = await there;
  server.close();
  return [here, accepted];
}

/** Two Duplexes that hand their chunks to each other at once, within the write. */
function pipes(): [Duplex, Duplex] {
  const ends: Duplex[] = [];
  const make = (other: number): Duplex =>
    new Duplex({
      read: () => undefined,
      write: (chunk, _encoding, done) => {
        ends[other]!.push(chunk);
        done();
      },
      final: (done) => {
        ends[other]!.push(null);
        done();
      },
    });
  ends.push(make(1), make(0));
  return [ends[0]!, ends[1]!];
}

async function pair(
  ends: [Duplex, Duplex],
  engine: EngineKind = 'thread',
): Promise<[Connection, Connection]> {
  return await Promise.all([
    upgrade(ends[0], { role: 'initiator', privateData: Buffer.from('hello'), engine }),
    upgrade(ends[1], { role: 'responder', engine }),
  ]);
}

describe.each([
  ['net.Socket', 'thread', sockets],
  ['tls.TLSSocket', 'thread', secured],
  ['another Duplex', 'thread', () => Promise.resolve(pipes())],
  ['net.Socket', 'worker', sockets],
  ['tls.TLSSocket', 'worker', secured],
  ['another Duplex', 'worker', () => Promise.resolve(pipes())],
] as const)('upgrade of a %s, engine %s', (name, engine, make) => {
  it('makes two connections that move data in all ways', async () => {
    const [here, there] = await pair(await make(), engine);
    expect(Buffer.from(there.privateData).toString()).toBe('hello');
    const memory = new Uint8Array(new SharedArrayBuffer(1 << 20));
    await there.send(there.share(there.register(memory, 'read-write')).toBytes());
    const remote = RemoteBuffer.fromBytes((await here.receive())!.data);
    await here.write(new Uint8Array(1 << 20).fill(9), remote);
    const back = new Uint8Array(1 << 20);
    await here.read(remote, back);
    expect([back[0], back.at(-1), Buffer.compare(back, memory)]).toEqual([9, 9, 0]);
    await there.send('ready');
    expect((await here.receive())!.text()).toBe('ready');
    for (let i = 0; i < 20; i++) await here.send(Buffer.alloc(10_000, i));
    for (let i = 0; i < 20; i++) {
      const message = (await there.receive())!;
      expect([message.data.length, message.data[9999]]).toEqual([10_000, i]);
      message.release();
    }
    expect(here.tls?.protocol).toBe(name === 'tls.TLSSocket' ? 'TLSv1.3' : undefined);
    await Promise.all([here.close(), there.closed]);
    expect((await here.closed).cause).toBe('graceful');
  });

  it('ends both sides when one is destroyed', async () => {
    const ends = await make();
    const [here, there] = await pair(ends, engine);
    here.destroy();
    if (name === 'another Duplex') ends[1].destroy();
    await there.closed;
    await here.closed;
    expect([here.state, there.state]).toEqual(['closed', 'closed']);
  });
});

describe('upgrade', () => {
  it.each(['thread', 'worker'] as const)(
    'follows another protocol on the same socket, and takes what was read beyond it, engine %s',
    async (engine) => {
      const [here, there] = await sockets();
      const asked = new Promise<string>((resolve) => {
        there.once('data', (line) => {
          there.pause();
          resolve(String(line));
        });
        there.resume();
      });
      await new Promise<void>((resolve) => void here.write('RDMA, please\n', () => resolve()));
      expect(await asked).toBe('RDMA, please\n');
      const client = upgrade(here, { role: 'initiator', engine });
      // The Request comes to a program that has not handed its socket over yet.
      const head = await new Promise<Buffer>((resolve) => {
        there.once('data', (chunk) => {
          there.pause();
          resolve(chunk);
        });
        there.resume();
      });
      const [a, b] = await Promise.all([client, upgrade(there, { role: 'responder', head, engine })]);
      await a.send('x');
      expect((await b.receive())!.text()).toBe('x');
      await a.close();
    },
  );

  it('gives the connection to a server that does not listen', async () => {
    const names: string[] = [];
    const server = createServer(
      { engine: 'thread', onRequest: () => Buffer.from('welcome') },
      (connection) => void names.push(connection.remoteAddress.address),
    );
    const ends = await sockets();
    const [here] = await Promise.all([
      upgrade(ends[0], { role: 'initiator' }),
      upgrade(ends[1], { role: 'responder', server }),
    ]);
    expect(Buffer.from(here.privateData).toString()).toBe('welcome');
    expect([names, server.connections.size]).toEqual([['127.0.0.1'], 1]);
    await server.close();
    await here.closed;
  });

  it('rejects on both sides when onRequest refuses', async () => {
    const ends = await sockets();
    const [here, there] = await Promise.allSettled([
      upgrade(ends[0], { role: 'initiator' }),
      upgrade(ends[1], {
        role: 'responder',
        onRequest: () => {
          throw new (class extends Error {})('no');
        },
      }),
    ]).catch(() => []);
    expect([here!.status, there!.status]).toEqual(['rejected', 'rejected']);
  });

  it.each(['thread', 'worker'] as const)(
    'rejects when the peer speaks something else, closes, or says nothing, engine %s',
    async (engine) => {
      const wrong = await sockets();
      wrong[0].on('error', () => undefined).write('GET / HTTP/1.1\r\n\r\n');
      await expect(upgrade(wrong[1], { role: 'responder', engine })).rejects.toMatchObject({
        code: 'ERR_STARTUP',
      });
      const closed = await sockets();
      closed[0].end();
      await expect(upgrade(closed[1], { role: 'responder', engine })).rejects.toMatchObject({
        code: 'ERR_STARTUP',
      });
      const mute = await sockets();
      const signal = AbortSignal.timeout(50);
      await expect(upgrade(mute[1], { role: 'responder', signal, engine })).rejects.toMatchObject({
        code: 'ERR_ABORTED',
      });
      const other = await sockets();
      other[1].on('error', () => undefined);
      await expect(
        upgrade(other[0], { role: 'initiator', engine, signal: AbortSignal.timeout(50) }),
      ).rejects.toMatchObject({ code: 'ERR_ABORTED' });
      for (const socket of [mute[0], other[1]]) socket.destroy();
    },
  );

  it.each<[string, (socket: net.Socket, peer: net.Socket) => unknown, RegExp]>([
    ['has a listener for data', (socket) => socket.on('data', () => undefined), /listener for 'data'/],
    ['has a listener for readable', (socket) => socket.on('readable', () => undefined), /'readable'/],
    ['has been ended', (socket) => socket.end(), /has been ended/],
    ['is destroyed', (socket) => socket.destroy(), /is destroyed/],
    ['gives text', (socket) => socket.setEncoding('utf8'), /setEncoding/],
    ['has unsent bytes', (socket) => socket.write(Buffer.alloc(32 << 20)), /bytes wait to be sent/],
  ])('refuses a socket that %s, at both ends and with both engines', async (_name, spoil, why) => {
    for (const engine of ['thread', 'worker'] as const) {
      const ends = await sockets();
      for (const socket of ends) socket.on('error', () => undefined);
      for (const [i, role] of (['initiator', 'responder'] as const).entries()) {
        spoil(ends[i]!, ends[1 - i]!);
        await expect(upgrade(ends[i]!, { role, engine })).rejects.toMatchObject({
          code: 'ERR_INVALID_STATE',
          message: expect.stringMatching(why) as string,
        });
      }
      for (const socket of ends) socket.destroy();
    }
  });

  it('refuses a socket that is half closed, is not connected, or was upgraded before', async () => {
    const [here, there] = await sockets({ allowHalfOpen: true });
    here.on('error', () => undefined).end();
    await new Promise((resolve) => there.once('end', resolve).resume());
    await expect(upgrade(there, { role: 'responder' })).rejects.toThrow(/peer has ended/);
    there.destroy();
    const early = net.connect(1, '127.0.0.1').on('error', () => undefined);
    await expect(upgrade(early, { role: 'initiator' })).rejects.toThrow(/not connected/);
    const ends = await sockets();
    const both = await pair(ends);
    await expect(upgrade(ends[0], { role: 'initiator' })).rejects.toThrow(/upgraded already/);
    await both[0].close();
  });

  it('refuses wrong options', async () => {
    const [here, there] = await sockets();
    const refused = (options: unknown, socket: unknown = here): Promise<unknown> =>
      expect(upgrade(socket as never, options as never)).rejects.toMatchObject({
        code: expect.stringMatching(/ERR_INVALID_ARGUMENT|ERR_NOT_SUPPORTED/) as string,
      });
    await refused({ role: 'server' });
    await refused({ role: 'initiator', onRequest: () => undefined });
    await refused({ role: 'responder', privateData: Buffer.alloc(1) });
    await refused({ role: 'responder', server: {} });
    await refused({ role: 'initiator', head: 'text' });
    await refused({ role: 'initiator', colour: 1 });
    await refused({ role: 'initiator', engine: 'fast' });
    await refused({ role: 'initiator' }, {});
    for (const socket of [here, there]) socket.destroy();
  });
});
