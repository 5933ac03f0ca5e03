/** Clients that connect again, spread calls and repeat them, in both engines; servers that shut down. */
import net from 'node:net';
import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import {
  createClient,
  createServer,
  openRnic,
  type Client,
  type ClientOptions,
  type Connection,
  type Server,
} from '../../src/index.ts';
import { freePort } from '../../scripts/ports.ts';
import { plain } from '../support/plain.ts';

const HOST = '127.0.0.1';
const heartbeat = { interval: 40, timeout: 120 };
const reconnect = { first: 5, most: 40 };

/** A path to `port` with faults: it can be reset, closed in the middle, or fall silent. */
async function faultyPath(
  port: number,
): Promise<{ readonly port: number; fault(kind: 'reset' | 'cut' | 'stall'): void }> {
  const pairs = new Set<[net.Socket, net.Socket]>();
  const relay = net.createServer((near) => {
    const far = net.connect(port, HOST);
    const both: [net.Socket, net.Socket] = [near, far];
    pairs.add(both);
    near.pipe(far);
    far.pipe(near);
    for (const socket of both)
      socket
        .on('error', () => undefined)
        .on('close', () => {
          pairs.delete(both);
          for (const each of both) each.destroy();
        });
  });
  await new Promise<void>((resolve) => relay.listen(0, HOST, resolve));
  onTestFinished(() => {
    relay.close();
    for (const [near, far] of pairs) [near, far].forEach((socket) => socket.destroy());
  });
  return {
    port: (relay.address() as net.AddressInfo).port,
    fault: (kind) => {
      for (const [near, far] of pairs) {
        if (kind === 'reset') near.resetAndDestroy();
        else if (kind === 'cut') near.destroy();
        else [near, far].forEach((socket) => socket.unpipe().pause());
      }
    },
  };
}

describe.each(['thread', 'worker'] as const)('a client, engine %s', (engine) => {
  const rnic = openRnic({ engine });

  async function echo(port = 0, serve = (bytes: Uint8Array): Uint8Array => bytes): Promise<Server> {
    const server = await createServer({ rnic, heartbeat }, (connection) => {
      void connection.serve((request) => serve(request.data)).catch(() => undefined);
    }).listen({ host: HOST, port });
    onTestFinished(() => server.close({ timeout: 500 }));
    return server;
  }

  function clientOf(port: number, options: Partial<ClientOptions> = {}): Client {
    const client = createClient({ rnic, host: HOST, port, heartbeat, reconnect, ...options });
    onTestFinished(() => client.destroy());
    return client;
  }

  it('connects again when its server comes back, and reports each step', async () => {
    const first = await echo();
    const { port } = first.address();
    const onConnects: Connection[] = [];
    const client = clientOf(port, { onConnect: (connection) => void onConnects.push(connection) });
    const seen: string[] = [];
    const watching = (async () => {
      for await (const { type } of client.status()) seen.push(type);
    })();
    expect(String(await client.request('one'))).toBe('one');
    await first.close();
    const waiting = client.request('two', { timeout: 5000 });
    await expect.poll(() => seen).toContain('failed');
    const second = await echo(port);
    expect(String(await waiting)).toBe('two');
    expect(onConnects).toHaveLength(2);
    await client.close();
    await watching;
    expect(seen.filter((type) => type !== 'failed')).toEqual(['connected', 'lost', 'connected', 'closed']);
    await expect(client.request('three')).rejects.toMatchObject({ code: 'ERR_DESTROYED' });
    await second.close();
  });

  it('with unrefIdle keeps the process while a call is under way, and lets it end after that', async () => {
    const server = await createServer({ rnic }, (connection) => {
      const serve = async (text: string): Promise<string> => {
        if (text === 'slow') await pause(300);
        return text;
      };
      void connection.serve((request) => serve(request.text())).catch(() => undefined);
    }).listen({ host: HOST, port: 0 });
    onTestFinished(() => server.close({ timeout: 500 }));
    const child = plain('test/client/unref.child.ts');
    const args = [child, String(server.address().port), engine];
    const ended = await new Promise<unknown>((resolve) =>
      execFile(process.execPath, args, { timeout: 30_000 }, (error, stdout) => resolve([error, stdout])),
    );
    expect(ended).toEqual([null, 'slow\nagain\n']);
  }, 40_000);

  it('brings every call to one end over 30 faults of the path, with those repeated that may be', async () => {
    const server = await echo();
    const path = await faultyPath(server.address().port);
    const client = clientOf(path.port, { connections: 2 });
    const random = seededRandom(7);
    let done = 0;
    let running = true;
    const loop = async (name: number): Promise<void> => {
      for (let i = 0; running; i++) {
        const reply = await client.request(`${name}/${i}`, { repeat: true, timeout: 10_000 });
        expect(String(reply)).toBe(`${name}/${i}`);
        done++;
      }
    };
    const loops = Array.from({ length: 8 }, (_, name) => loop(name));
    for (let i = 0; i < 30; i++) {
      await pause(random() % 30);
      path.fault((['reset', 'cut', 'stall'] as const)[random() % 3]!);
      const before = done;
      await expect.poll(() => done, { timeout: 5000, interval: 5 }).toBeGreaterThan(before);
    }
    running = false;
    await Promise.all(loops);
  }, 60_000);

  it('ends each of 20,000 requests once, with random aborts, over 16 connections', async () => {
    const server = await echo();
    const client = clientOf(server.address().port, { connections: 16 });
    const random = seededRandom(11);
    const ends = new Uint8Array(20_000);
    let aborted = 0;
    const one = async (i: number): Promise<void> => {
      const controller = new AbortController();
      if (random() % 4 === 0) setImmediate(() => controller.abort());
      try {
        expect(String(await client.request(String(i), { signal: controller.signal }))).toBe(String(i));
      } catch (error) {
        expect(error).toMatchObject({ code: 'ERR_ABORTED' });
        aborted++;
      }
      ends[i]!++;
    };
    const loop = async (from: number): Promise<void> => {
      for (let i = from; i < ends.length; i += 100) await one(i);
    };
    await Promise.all(Array.from({ length: 100 }, (_, from) => loop(from)));
    expect(ends.every((count) => count === 1)).toBe(true);
    expect(aborted).toBeGreaterThan(100);
    await client.close();
  }, 60_000);

  it('does not repeat unless it may', async () => {
    let calls = 0;
    const server = await createServer({ rnic }, (connection) => {
      void connection
        .serve(() => {
          calls++;
          connection.destroy();
        })
        .catch(() => undefined);
    }).listen({ host: HOST, port: 0 });
    onTestFinished(() => server.close());
    const client = clientOf(server.address().port);
    await expect(client.request('x')).rejects.toMatchObject({ code: 'ERR_CONNECTION_RESET' });
    expect(calls).toBe(1);
  });

  it('spreads calls over its connections, and drains', async () => {
    const server = await createServer({ rnic }, (connection) => {
      void connection.serve(() => pause(20).then(() => 'x')).catch(() => undefined);
    }).listen({ host: HOST, port: 0 });
    onTestFinished(() => server.close());
    const client = clientOf(server.address().port, { connections: 3 });
    await expect.poll(() => client.connections.length).toBe(3);
    const used = new Set<Connection>();
    const calls = Array.from({ length: 9 }, () =>
      client.use((connection) => {
        used.add(connection);
        return connection.request('x');
      }),
    );
    await client.drain();
    expect(used.size).toBe(3);
    await Promise.all(calls);
  });

  it('gives up when it may try no longer, and at once for its own mistakes', async () => {
    const server = await echo();
    const { port } = server.address();
    await server.close();
    const client = clientOf(port, { reconnect: { first: 1, most: 2, attempts: 3 } });
    await expect(client.request('x')).rejects.toThrow(/gives up after 3 failed attempts/);
    expect(client.state).toBe('closed');
    const wrong = clientOf(port, { privateData: new Uint8Array(1000) });
    await expect(wrong.ready()).rejects.toMatchObject({ cause: { code: 'ERR_TOO_LARGE' } });
  });

  it('loses no request to a server that shuts down', async () => {
    let answered = 0;
    const slow = (connection: Connection): void => {
      void connection
        .serve(async (request) => {
          await pause(30);
          answered++;
          return request.data;
        })
        .catch(() => undefined);
    };
    const port = await freePort();
    const first = await createServer({ rnic }, slow).listen({ host: HOST, port });
    const client = clientOf(port);
    const calls = Array.from({ length: 20 }, (_, i) => client.request(String(i)));
    await expect.poll(() => client.connections.length).toBe(1);
    await pause(10);
    await first.shutdown({ timeout: 2000 });
    const second = await createServer({ rnic }, slow).listen({ host: HOST, port });
    onTestFinished(() => second.close());
    const late = client.request('late');
    expect((await Promise.all([...calls, late])).map(String)).toEqual([
      ...Array.from({ length: 20 }, (_, i) => String(i)),
      'late',
    ]);
    expect(answered).toBe(21);
  });
});

it('wrong options are refused at once', () => {
  for (const wrong of [
    { connections: 0 },
    { reconnect: { first: 0 } },
    { onConnect: 1 },
    { unrefIdle: 1 },
    { what: 1 },
  ])
    expect(() => createClient({ port: 1, ...wrong } as ClientOptions)).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }) as Error,
    );
});
