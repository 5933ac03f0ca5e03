/** What may listen again after `close`, and when: servers of promises and of byte streams, and listeners. */
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { connect, createServer, openRnic, type Rnic, type Server } from '../../src/index.ts';
import * as sockets from '../../src/sockets/index.ts';

const HOST = '127.0.0.1';
const portOf = (server: sockets.RdmaServer): number => (server.address() as { port: number }).port;

/** The server answers a client. */
async function serves(server: Server, rnic: Rnic): Promise<void> {
  const client = await connect({ rnic, host: HOST, port: server.address().port });
  expect(String(await client.request('ping'))).toBe('pong');
  await client.close();
}

it('`address` of a server is a method, and has the fields of the former getter for one release', async () => {
  const server = createServer();
  expect([server.address.port, server.address.address, server.address.family]).toEqual([
    ...[undefined, undefined, undefined],
  ]);
  expect(() => server.address()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
  await server.listen({ port: 0, host: HOST });
  const { port } = server.address();
  expect({ ...server.address }).toEqual({ address: HOST, port, family: 'IPv4' });
  expect(server.address).toBe(server.address);
  const client = await connect({ host: HOST, port: server.address.port! });
  await client.close();
  await server.close();
});

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  const rnic = openRnic({ engine });
  const serving = (): Server => createServer({ rnic }, (connection) => connection.serve(() => 'pong'));

  it('a promise server listens again at its port, also before close has resolved', async () => {
    const server = await serving().listen({ port: 0, host: HOST });
    const { port } = server.address();
    await serves(server, rnic);
    await server.close();
    await server.listen({ port, host: HOST });
    await serves(server, rnic);
    const held = await connect({ rnic, host: HOST, port });
    const closed = server.close();
    await server.listen({ port, host: HOST });
    expect(server.address().port).toBe(port);
    await closed; // it has waited for its own connections only
    await held.closed;
    await serves(server, rnic);
    await server.close();
    await expect(connect({ rnic, host: HOST, port })).rejects.toMatchObject({ code: 'ERR_CONNECT' });
  });

  it('a promise server that is closed while it binds may bind again at once', async () => {
    const server = serving();
    const first = server.listen({ port: 0, host: HOST });
    first.catch(() => undefined);
    const closed = server.close();
    const second = server.listen({ port: 0, host: HOST });
    second.catch(() => undefined);
    await expect(server.listen({ port: 0, host: HOST })).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
    const closedAgain = server.close();
    const third = server.listen({ port: 0, host: HOST });
    for (const overtaken of [first, second])
      await expect(overtaken).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
    await Promise.all([closed, closedAgain, third]);
    await serves(server, rnic);
    await server.close();
  });

  it('accept waits in the new run, and gives null at its end', async () => {
    const server = await createServer({ rnic }).listen({ port: 0, host: HOST });
    await server.close();
    expect(await server.accept()).toBe(null);
    await server.listen({ port: 0, host: HOST });
    const client = connect({ rnic, host: HOST, port: server.address().port });
    expect((await server.accept())!.state).toBe('open');
    await client;
    const none = server.accept();
    await server.close();
    expect(await none).toBe(null);
  });

  it('a server of byte streams tries a port in use again, and is closed while it waits for it', async () => {
    const busy = sockets.createServer({ rnic }).listen(0, HOST);
    await once(busy, 'listening');
    const port = portOf(busy);
    const server = sockets.createServer({ rnic }, (socket) => void socket.end('hello'));
    const codes: unknown[] = [];
    server.on('error', (error: NodeJS.ErrnoException) => {
      codes.push(error.code);
      if (codes.length === 2) busy.close();
      server.close().listen(port, HOST);
      server.close().listen(port, HOST); // the later one counts
    });
    server.listen(port, HOST);
    await new Promise((resolve) => server.once('listening', () => resolve(undefined)));
    expect([codes, portOf(server)]).toEqual([['EADDRINUSE', 'EADDRINUSE'], port]);
    expect(await text(sockets.connect({ rnic, host: HOST, port }))).toBe('hello');
    expect(() => server.listen(port, HOST)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }));
    server.close();
    expect(() => server.listen({ port: 70_000 })).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
    );
    server.listen(port, HOST);
    expect(server.listening).toBe(false);
    expect(await new Promise((resolve) => server.close(resolve))).toBeUndefined();
    expect(server.listening).toBe(false);
  });

  it('the address of a listener of the connection manager is free once it has been closed', async () => {
    const first = await rnic.cm.listen({ port: 0, host: HOST }, (request) => request.reject());
    const { port } = first.address;
    first.close();
    const second = await rnic.cm.listen({ port, host: HOST }, (request) => request.reject());
    expect(second.address.port).toBe(port);
    await new Promise<void>((resolve) => second.close(resolve));
  });
});
