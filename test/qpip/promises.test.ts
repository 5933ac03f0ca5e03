/** The promise layer over plain TCP: what it can do there, and what it refuses. */
import { once } from 'node:events';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  connect,
  createServer,
  openRnic,
  RemoteBuffer,
  type Connection,
  type Server,
} from '../../src/index.ts';
import { dial, PlainServer, read } from './support.ts';

async function messagesOf(connection: Connection, count: number): Promise<string[]> {
  const texts: string[] = [];
  while (texts.length < count) {
    const message = await connection.receive();
    if (message === null) break;
    texts.push(Buffer.from(message.data).toString('latin1'));
    message.release();
  }
  return texts;
}

describe.each(['thread', 'worker'] as const)('promises over plain TCP, engine %s', (engine) => {
  const rnic = openRnic({ wire: 'qpip', engine });
  const policy = { framing: 'length' } as const;
  let server: Server;
  let client: Connection;
  let accepted: Connection;
  beforeEach(async () => {
    server = await createServer({ rnic, policy }).listen({ host: '127.0.0.1', port: 0 });
    const next = server[Symbol.asyncIterator]().next();
    client = await connect({ rnic, policy, host: '127.0.0.1', port: server.address().port });
    accepted = (await next).value as Connection;
  });
  afterEach(async () => {
    client.destroy();
    await server.close();
  });

  it('sends and receives messages in both directions, in order', async () => {
    const texts = Array.from({ length: 200 }, (_, i) => `${i} ${'x'.repeat(i * 17)}`);
    const sent = Promise.all(texts.map((text) => client.send(text)));
    expect(await messagesOf(accepted, 200)).toEqual(texts);
    await sent;
    await accepted.send(new Uint8Array([0x6f, 0x6b]));
    expect(await messagesOf(client, 1)).toEqual(['ok']);
  });

  it('sends registered memory', async () => {
    const region = client.allocate(70_000, 'none');
    region.bytes.fill(0x61);
    region.bytes.set(Buffer.from('begin'));
    const [texts] = await Promise.all([messagesOf(accepted, 1), client.send(region.bytes.subarray(0, 1000))]);
    expect(texts).toEqual(['begin' + 'a'.repeat(995)]);
  });

  it('closes in order: what has been sent arrives, then the end', async () => {
    await client.send('the last');
    const closed = client.close();
    expect(await messagesOf(accepted, 2)).toEqual(['the last']);
    await accepted.close();
    await closed;
    expect([client.state, accepted.state]).toEqual(['closed', 'closed']);
    await expect(client.send('too late')).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
  });

  it('a connection that is dropped ends that of the peer', async () => {
    client.destroy();
    await expect(messagesOf(accepted, 1)).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
  });

  it('rejects what plain TCP cannot carry, and goes on', async () => {
    const remote = new RemoteBuffer(0x1234_5678, 0n, 8);
    const refused = { code: 'ERR_NOT_SUPPORTED' };
    await expect(client.write(new Uint8Array(8), remote)).rejects.toMatchObject(refused);
    await expect(client.read(remote)).rejects.toMatchObject(refused);
    await expect(client.fetchAdd(remote, 1n)).rejects.toMatchObject(refused);
    await expect(connect({ rnic, port: 9, credits: true })).rejects.toMatchObject(refused);
    await client.send('still here');
    expect(await messagesOf(accepted, 1)).toEqual(['still here']);
  });
});

describe.each(['thread', 'worker'] as const)('promises opposite a socket of Node, engine %s', (engine) => {
  const rnic = openRnic({ wire: 'qpip', engine });

  it('a client sends its bytes and nothing else', async () => {
    const plain = new PlainServer();
    const connection = await connect({ rnic, host: '127.0.0.1', port: await plain.listen() });
    const socket = await plain.next();
    await connection.send('PING\r\n');
    expect((await read(socket, 6)).toString()).toBe('PING\r\n');
    socket.write('+PONG\r\n');
    expect(await messagesOf(connection, 1)).toEqual(['+PONG\r\n']);
    const closed = connection.close();
    socket.resume();
    await once(socket, 'end');
    socket.end();
    await closed;
    plain.close();
  });

  it('a server answers after the end of its client', async () => {
    const server = await createServer({ rnic }).listen({ host: '127.0.0.1', port: 0 });
    const next = server[Symbol.asyncIterator]().next();
    const socket = await dial(server.address().port);
    socket.end('a question');
    const connection = (await next).value as Connection;
    expect(await messagesOf(connection, 2)).toEqual(['a question']);
    await connection.send('an answer');
    expect((await read(socket, 9)).toString()).toBe('an answer');
    await connection.close();
    await server.close();
  });
});
