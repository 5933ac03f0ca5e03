// One listener for all engines: a Node that can post an accepted socket to another thread spreads inbound
// connections, and an older one keeps them on the engine that listens. This file asks for the right answer of
// every Node.
import { once } from 'node:events';
import { connect as connectTcp, createServer as createTcpServer, type Socket } from 'node:net';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { afterAll, describe, expect, it } from 'vitest';
import { leastLoaded, TakingListener } from '../../src/engine/worker/handover.ts';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  type Connection,
  type Rnic,
} from '../../src/index.ts';
import * as sockets from '../../src/sockets/index.ts';
import { postedSocket, postSocket, postsSockets } from '../../src/transport/posted-socket.ts';
import { identity } from '../support/certificates.ts';
import { enginesOf, openWorkers, stop, until } from './support.ts';

const ENGINES = 4;
const CLIENTS = 64;
const HERE = { host: '127.0.0.1' } as const;

const loads = (rnic: Rnic): number[] => enginesOf(rnic).map(({ load }) => load);
/** Most to mean. */
const unevenness = (counts: readonly number[]): number =>
  Math.max(...counts) / (counts.reduce((sum, count) => sum + count, 0) / counts.length);

describe('inbound connections of one listener', () => {
  const rnic = openWorkers({ engines: ENGINES });
  const peer = openRnic({ engine: 'thread' });
  afterAll(() => stop(rnic));

  const clients = (port: number, count: number): Promise<Connection[]> =>
    Promise.all(Array.from({ length: count }, () => connect({ rnic: peer, ...HERE, port })));

  it('are spread over the engines where this Node posts sockets, and work', async () => {
    const there: Connection[] = [];
    const server = await createServer({ rnic }, (connection) => void there.push(connection)).listen(HERE);
    const { port } = server.address();
    const here = await clients(port, CLIENTS);
    await until(() => there.length === CLIENTS);
    const counts = loads(rnic);
    if (postsSockets()) expect(unevenness(counts)).toBeLessThanOrEqual(1.05);
    else expect([...counts].sort((a, b) => b - a)).toEqual([CLIENTS, 0, 0, 0]);
    for (const connection of there) {
      const memory = connection.allocate(4096, 'read-write');
      await connection.send(connection.share(memory).toBytes());
    }
    await Promise.all(
      here.map(async (connection, i) => {
        const remote = RemoteBuffer.fromBytes((await connection.receive())!.data);
        await connection.write(new Uint8Array(4096).fill(i), remote);
        const back = new Uint8Array(4096);
        await connection.read(remote, back);
        expect(back.every((byte) => byte === i)).toBe(true);
      }),
    );
    // Those that leave make room on their engine, and newcomers take it.
    await Promise.all(here.splice(0, CLIENTS / 2).map((connection) => connection.close()));
    await until(() => loads(rnic).reduce((sum, load) => sum + load, 0) === CLIENTS / 2);
    here.push(...(await clients(port, CLIENTS / 2)));
    await until(() => there.length === CLIENTS * 1.5);
    if (postsSockets()) expect(unevenness(loads(rnic))).toBeLessThanOrEqual(1.05);
    await Promise.all(here.map((connection) => connection.close()));
    await server.close();
    await until(() => loads(rnic).every((load) => load === 0));
    // The port is free.
    const next = await createServer({ rnic: peer }).listen({ ...HERE, port });
    await next.close();
  });

  it('fill up the engines that outbound ones have left', async () => {
    const far = await createServer({ rnic: peer }).listen(HERE);
    const out = [await connect({ rnic, ...HERE, port: far.address().port })];
    const server = await createServer({ rnic }).listen(HERE);
    const here = await clients(server.address().port, 3);
    await until(() => server.connections.size === 3);
    if (postsSockets()) expect(loads(rnic)).toEqual([1, 1, 1, 1]);
    await Promise.all([...here, ...out].map((connection) => connection.close()));
    await Promise.all([server.close(), far.close()]);
  });

  it('are limited all together (SEC-033)', async () => {
    const LIMIT = 4;
    const pending: unknown[] = [];
    const refused: string[] = [];
    const listener = await rnic.cm.listen(
      { ...HERE, maxPending: LIMIT, onFailure: ({ reason }) => refused.push(reason) },
      (request) => pending.push(request),
    );
    const { port } = listener.address;
    const patience = new AbortController();
    const { signal } = patience;
    const all = Promise.allSettled(
      Array.from({ length: CLIENTS }, () => connect({ rnic: peer, ...HERE, port, signal })),
    );
    await until(() => pending.length >= LIMIT && refused.length >= CLIENTS - LIMIT);
    patience.abort();
    const attempts = await all;
    expect(attempts.every(({ status }) => status === 'rejected')).toBe(true); // nobody was answered
    expect([pending.length, refused.length]).toEqual([LIMIT, CLIENTS - LIMIT]);
    await new Promise<void>((resolve) => listener.close(resolve));
    await until(() => loads(rnic).every((load) => load === 0));
  });

  it('may speak TLS, and may be byte streams', async () => {
    const { cert, key } = identity('handover');
    const server = sockets.createServer({ rnic, tls: { cert, key } }, (socket) => void socket.pipe(socket));
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as { port: number };
    const talk = async (text: string): Promise<string> => {
      const socket = sockets.connect({ rnic: peer, ...HERE, port, tls: { rejectUnauthorized: false } });
      socket.end(text);
      let heard = '';
      for await (const chunk of socket) heard += String(chunk);
      return heard;
    };
    const texts = Array.from({ length: 8 }, (_, i) => `text ${i}`);
    expect(await Promise.all(texts.map(talk))).toEqual(texts);
    server.close();
    await once(server, 'close');
  });

  it('of peers that reset at once cost nothing, and the next ones are spread evenly', async () => {
    const server = await createServer({ rnic }).listen(HERE);
    const { port } = server.address();
    for (let round = 0; round < 8; round++) {
      const strangers = Array.from({ length: 32 }, () => connectTcp(port, '127.0.0.1'));
      await Promise.all(strangers.map((socket) => once(socket, 'connect')));
      for (const socket of strangers) socket.resetAndDestroy();
    }
    await until(() => loads(rnic).every((load) => load === 0));
    const here = await clients(port, 16);
    await until(() => server.connections.size === 16);
    if (postsSockets()) expect(loads(rnic)).toEqual([4, 4, 4, 4]);
    await Promise.all(here.map((connection) => connection.close()));
    await server.close();
  });

  it('end with the listener while they are on their way, and the address is free', async () => {
    for (let round = 0; round < 4; round++) {
      const listener = await rnic.cm.listen(HERE, (request) => request.reject());
      const { port } = listener.address;
      const strangers = Array.from({ length: 32 }, () => connectTcp(port, '127.0.0.1').on('error', () => {}));
      const ended = strangers.map((socket) => new Promise((resolve) => socket.once('close', resolve)));
      for (const socket of strangers) socket.resume();
      await once(strangers[0]!, 'connect');
      await new Promise<void>((resolve) => listener.close(resolve));
      await Promise.all(ended);
      await until(() => loads(rnic).every((load) => load === 0));
      await (await createServer({ rnic: peer }).listen({ ...HERE, port })).close();
    }
  });

  it('stay on one engine where the device has a shared receive queue', async () => {
    const one = openWorkers({ engines: ENGINES });
    const srq = one.device.allocatePd().createSrq({ maxWr: 4 });
    const server = await createServer({ rnic: one }).listen(HERE);
    await clients(server.address().port, 8);
    await until(() => server.connections.size === 8);
    expect([...loads(one)].sort((a, b) => b - a)).toEqual([8, 0, 0, 0]);
    await server.close();
    srq.destroy();
    await stop(one);
  });
});

describe('a socket on its way', () => {
  async function accepted(): Promise<{ there: Socket; client: Socket; close: () => void }> {
    const server = createTcpServer({ pauseOnConnect: true, allowHalfOpen: true });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const client = connectTcp((server.address() as { port: number }).port, '127.0.0.1');
    client.on('error', () => undefined);
    const [there] = (await once(server, 'connection')) as [Socket];
    return { there, client, close: () => server.close() };
  }
  const place = (...counts: number[]): { number: number; loads: Int32Array } => ({
    number: 0,
    loads: new Int32Array(counts),
  });

  it('goes to the engine with the fewest connections, and to none if that is this one', () => {
    const hands = [1, 2, 3].map((engine) => ({ engine, port: new MessageChannel().port1 }));
    expect(leastLoaded(place(2, 2, 2, 2), hands)).toBeNull();
    const at = place(2, 2, 1, 1);
    const { port1: port, port2 } = new MessageChannel();
    const give = leastLoaded(at, [hands[0]!, { engine: 2, port }, hands[2]!])!;
    const socket = connectTcp(1, '127.0.0.1'); // not connected: it cannot be posted, and counts nowhere
    give(socket.on('error', () => undefined));
    expect([socket.destroyed, [...at.loads], receiveMessageOnPort(port2)]).toEqual([
      true,
      [2, 2, 1, 1],
      undefined,
    ]);
    for (const hand of hands) hand.port.close();
    port.close();
  });

  it('that has been destroyed cannot be posted', async () => {
    const { there, client, close } = await accepted();
    there.destroy();
    const { port1, port2 } = new MessageChannel();
    expect([postSocket(port1, there), receiveMessageOnPort(port2)]).toEqual([false, undefined]);
    port1.close();
    client.destroy();
    close();
  });

  it('is none in a message of something else', () => {
    for (const message of [null, 7, {}, { socket: 7 }, { socket: { destroy: 1 } }])
      expect(postedSocket(message)).toBeNull();
  });

  if (postsSockets()) {
    it('arrives with its connection, whose peer hears of it if nobody takes it', async () => {
      const { there, client, close } = await accepted();
      const { port1, port2 } = new MessageChannel();
      const at = place(1);
      const taken: Socket[] = [];
      const address = { address: '127.0.0.1', port: 1, family: 'IPv4' } as const;
      let counts = false;
      const listener = new TakingListener(address, port2, at, (socket) => {
        taken.push(socket);
        return counts;
      });
      expect(postSocket(port1, there)).toBe(true);
      await until(() => taken.length === 1);
      expect([at.loads[0], taken[0]!.remotePort, taken[0]!.isPaused()]).toEqual([0, client.localPort, true]);
      taken[0]!.end('bye');
      expect(String(((await once(client, 'data')) as [Buffer])[0])).toBe('bye');
      // One that the engine has a link for by then counts without a break.
      counts = true;
      const further = await accepted();
      at.loads[0] = 1;
      expect(postSocket(port1, further.there)).toBe(true);
      await until(() => taken.length === 2);
      expect(at.loads[0]).toBe(1);
      taken.pop()!.destroy();
      further.close();
      const second = await accepted();
      at.loads[0] = 1;
      postSocket(port1, second.there);
      const ended = once(second.client.resume(), 'close');
      await new Promise<void>((resolve) => listener.close(resolve));
      await ended;
      expect([at.loads[0], taken.length]).toEqual([0, 1]);
      taken[0]!.destroy();
      client.destroy();
      close();
      second.close();
    });
  }
});
