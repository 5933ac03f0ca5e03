/**
 * What a peer does to a connection can reach a program that does not look: it gets no unhandled rejection,
 * and a program that does look gets an error that names operation, peer and side.
 */
import { connect as connectTcp, createServer as createTcpServer } from 'node:net';
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import {
  connect,
  createServer,
  IwarpError,
  OperationError,
  RemoteBuffer,
  type Connection,
} from '../../src/index.ts';
import { pair, pairOf, rnicOf, WORLDS } from './support.ts';

let unhandled: unknown[] = [];
const listener = (reason: unknown): void => void unhandled.push(reason);
beforeEach(() => {
  unhandled = [];
  process.on('unhandledRejection', listener);
});
afterEach(() => void process.off('unhandledRejection', listener));
const turns = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

describe.each(WORLDS)('operations that nobody awaits, %s', (world) => {
  it('end quietly with the connection, and so do calls after its end', async () => {
    const { client, server, close } = await pairOf(world, { sends: 2 });
    const remote = new RemoteBuffer(1, 0n, 8);
    const start = (): void => {
      void client.send('a');
      void client.sendImmediate(1n);
      void client.write(new Uint8Array(8), remote);
      void client.writeImmediate(new Uint8Array(8), remote, 1n);
      void client.read(remote);
      void client.fetchAdd(remote, 1n);
      void client.compareSwap(remote, 0n, 1n);
      void client.receive();
    };
    start();
    server.destroy();
    await client.closed;
    start();
    await turns();
    await close();
    expect(unhandled).toEqual([]);
  });

  it('reject for a caller that awaits them, with operation, peer and side', async () => {
    const { client, server } = await pair(world);
    const remote = server.share(server.allocate(8));
    server.destroy();
    const error = await client.read(remote).catch((reason: unknown) => reason as IwarpError);
    await client.closed;
    const peer = `${client.remoteAddress.address}:${client.remoteAddress.port}`;
    expect(error).toBeInstanceOf(IwarpError);
    expect(error).toMatchObject({ peer, side: 'client' });
    expect((error as IwarpError).message).toContain(peer);
    const refused = await client.send('late').catch((reason: unknown) => reason as IwarpError);
    expect(refused).toMatchObject({ peer, side: 'client', operation: 'send' });
    expect((refused as IwarpError).message).toContain('send');
  });

  it('that the peer refuses name themselves', async () => {
    const { client } = await pair(world);
    const error = await client.read(new RemoteBuffer(7, 0n, 8)).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(OperationError);
    expect(error).toMatchObject({ operation: 'rdma-read', side: 'client' });
    expect((error as Error).message).toContain(`:${client.remoteAddress.port}`);
  });

  it('show the line of the caller with callerStacks', async () => {
    const { client } = await pair(world, { callerStacks: true });
    const error = await client.read(new RemoteBuffer(7, 0n, 8)).catch((reason: unknown) => reason);
    expect((error as Error).stack).toContain('rejections.test.ts');
  });
});

it('a broadcast over server.connections survives a client that leaves', async () => {
  const rnic = rnicOf('memory');
  const failures: unknown[] = [];
  const server = await createServer({ rnic }, async (connection) => {
    for await (const message of connection) {
      message.release();
      for (const other of server.connections) await other.send('news');
    }
  }).listen({ host: '127.0.0.1', port: 0 });
  onTestFinished(() => server.close());
  process.on('uncaughtException', (error) => failures.push(error));
  const open = (): Promise<Connection> => connect({ rnic, host: '127.0.0.1', port: server.address().port });
  const [stays, leaves] = [await open(), await open()];
  await stays.send('go');
  leaves.destroy();
  for (let i = 0; i < 10; i++) void stays.send('go');
  await turns();
  void stays.close();
  expect(unhandled).toEqual([]);
});

it('a start-up failure rejects at its deadline', async () => {
  const silent = createTcpServer(
    { allowHalfOpen: true },
    (socket) => void socket.on('error', () => undefined),
  );
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  onTestFinished(() => void silent.close());
  const { port } = silent.address() as { port: number };
  const began = performance.now();
  const attempt = connect({
    host: '127.0.0.1',
    port,
    policy: { replyTimeout: 100, closeTimeout: 30_000 },
  });
  await expect(attempt).rejects.toMatchObject({
    code: 'ERR_TIMEOUT',
    operation: 'connect',
    peer: `127.0.0.1:${port}`,
    side: 'client',
  });
  expect(performance.now() - began).toBeLessThan(20_000);
});

it('a server reports a failed start-up at its deadline', async () => {
  let report!: () => void;
  const failed = new Promise<void>((resolve) => (report = resolve));
  const server = await createServer({
    policy: { requestTimeout: 100, closeTimeout: 30_000 },
    onFailure: report,
  }).listen({ host: '127.0.0.1', port: 0 });
  onTestFinished(() => server.close());
  const began = performance.now();
  const socket = connectTcp({ port: server.address().port, host: '127.0.0.1', allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  await failed;
  expect(performance.now() - began).toBeLessThan(20_000);
});
