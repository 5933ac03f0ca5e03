/** The short forms of calls, and what objects look like to a person. */
import { inspect } from 'node:util';
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, createServer, IwarpError, RemoteBuffer, type Server } from '../../src/index.ts';
import { pair, rnicOf, WORLDS } from './support.ts';
import { plain } from '../support/plain.ts';

async function echo(): Promise<{ readonly server: Server; readonly port: number }> {
  const server = await createServer(async (connection) => {
    for await (const message of connection) {
      await connection.send(message.buffer());
      message.release();
    }
  }).listen(0, '127.0.0.1');
  onTestFinished(() => server.close());
  return { server, port: server.address().port };
}

describe('short forms', () => {
  it('createServer(fn), listen(port, host), connect(port, host), connect(url)', async () => {
    const { server, port } = await echo();
    expect(server.address()).toEqual({ address: '127.0.0.1', family: 'IPv4', port });
    for (const open of [
      () => connect(port, '127.0.0.1'),
      () => connect(`iwarp://127.0.0.1:${port}`),
      () => connect(new URL(`iwarp://127.0.0.1:${port}/`), { receiveDepth: 4 }),
    ]) {
      await using connection = await open();
      await connection.send('{"a":1}');
      const message = (await connection.receive())!;
      expect(message.text()).toBe('{"a":1}');
      expect(message.json()).toEqual({ a: 1 });
      expect(Buffer.isBuffer(message.data)).toBe(true);
      const copy = message.buffer();
      message.release();
      expect(String(copy)).toBe('{"a":1}');
      expect(() => message.text()).toThrow(expect.objectContaining({ code: 'ERR_INVALID_STATE' }) as Error);
    }
  });

  it.each(['iwarp://127.0.0.1', 'http://127.0.0.1:80', 'iwarp://:5', 'x', 'iwarp://h:5/path', 'iwarp://h:0'])(
    'connect(%j) is refused with the form that is expected',
    async (url) => {
      await expect(connect(url)).rejects.toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    },
  );

  it('the former names of depths still work, but not beside the present ones', async () => {
    const { client } = await pair(
      'memory',
      { receives: 3, sends: 5, maxMessage: 64 },
      { maxMessageSize: 32 },
    );
    expect(client.peer).toEqual({ maxMessageSize: 32, extensions: true });
    expect(() => createServer({ receives: 1, receiveDepth: 1 })).toThrow(/receives is the former name/);
  });
});

describe.each(WORLDS)('for people, %s', (world) => {
  it('console.log shows state, side and peer; no secret', async () => {
    const { client, server } = await pair(world);
    expect(inspect(client)).toMatch(
      /^Connection \{\s+state: 'open',\s+side: 'client',\s+peer: '127\.0\.0\.1:\d+'/,
    );
    expect(inspect(server)).toMatch(/side: 'server'/);
    const ticket = new RemoteBuffer(0x1234_5678, 4n, 8);
    expect(inspect(ticket)).toBe("RemoteBuffer { length: 8, address: 4n, rkey: '…78' }");
    await client.send('hi');
    const message = (await server.receive())!;
    expect(inspect(message)).toBe('Message { data: <Buffer 68 69> }');
    message.release();
    expect(inspect(message)).toBe("Message { data: 'released' }");
    const unbound = createServer({ rnic: rnicOf(world) });
    expect(inspect(unbound)).toBe("Server { state: 'new', address: null, connections: 0 }");
  });

  it('read gives a Buffer; ERR_TOO_LARGE names what helps; ref and unref chain', async () => {
    const { client, server } = await pair(world, {}, { maxMessageSize: 8 });
    const region = server.allocate(4);
    region.bytes.set([1, 2, 3, 4]);
    const bytes = await client.read(server.share(region));
    expect(Buffer.isBuffer(bytes)).toBe(true);
    expect([...bytes]).toEqual([1, 2, 3, 4]);
    await expect(client.send('far too long')).rejects.toThrow(/maxMessageSize.*ticket/);
    expect(client.unref().ref()).toBe(client);
  });
});

it('a server and a connection that are unref-ed let the process end', async () => {
  const { execFileSync } = await import('node:child_process');
  const program = `
    import { connect, createServer } from ${JSON.stringify(plain('src/index.ts'))};
    const server = await createServer(() => undefined).unref().listen(0, '127.0.0.1');
    (await connect(server.address().port, '127.0.0.1')).unref();
    for (const c of server.connections) c.unref();
    setTimeout(() => { for (const c of server.connections) c.unref(); }, 50);
    console.log('done');`;
  const out = execFileSync(process.execPath, ['--input-type=module', '-e', program], {
    encoding: 'utf8',
    timeout: 50_000,
    env: { ...process.env, IWARP_ENGINE: '' },
  });
  expect(out).toBe('done\n');
  expect(IwarpError).toBeDefined();
});
