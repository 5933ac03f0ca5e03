// What a hostile client may try beside malformed requests: tickets used for more, keys, times, silence.
import { connect as connectTcp } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { connect as connectRdma } from '../../src/api/connect.ts';
import type { Connection } from '../../src/api/connection.ts';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import type { RemoteBuffer } from '../../src/api/remote-buffer.ts';
import { connect, createStore, type KvStore } from '../../src/kv/index.ts';
import { encodeFrame, REQUEST_MAGIC } from '../../src/kv/memcached-binary.ts';
import { decodeSetup, KV_OP } from '../../src/kv/rdma-wire.ts';

const ends: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

async function owner(engine: EngineKind): Promise<{ store: KvStore; port: number; rnic: Rnic }> {
  const store = createStore({ octets: 4 * 2 ** 20, engine });
  ends.push(() => store.close());
  const rnic = openRnic({ engine });
  ends.push(() => rnic.device.close());
  return { store, port: (await store.listen({ rdma: 0 })).rdma!, rnic };
}

/** A connection that has the tickets, and then does with them what it likes. */
async function thief(
  port: number,
  rnic: Rnic,
): Promise<{ raw: Connection; table: RemoteBuffer; words: RemoteBuffer }> {
  const raw = await connectRdma({ host: '127.0.0.1', port, rnic });
  ends.push(async () => {
    raw.destroy();
    await raw.closed;
  });
  await raw.send(encodeFrame(REQUEST_MAGIC, KV_OP.HELLO, 1, { status: 0 }));
  const { table, counters } = decodeSetup((await raw.receive())!.data.subarray(24));
  return { raw, table, words: counters };
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  it.each<[string, (raw: Connection, table: RemoteBuffer, words: RemoteBuffer) => Promise<unknown>]>([
    ['an RDMA Write to the table', (raw, table) => raw.write(new Uint8Array(64), table.slice(0, 64))],
    ['an atomic in the table', (raw, table) => raw.fetchAdd(table.slice(0, 8), 1n)],
    ['an RDMA Write to the counters', (raw, _, words) => raw.write(new Uint8Array(8), words.slice(0, 8))],
    [
      'a Read beyond the table',
      (raw, table) => {
        const beyond = Object.assign(Object.create(table) as RemoteBuffer, {
          at: Number(table.address) + table.length,
        });
        return raw.read(beyond, new Uint8Array(8));
      },
    ],
  ])('%s ends the connection that tries it, and changes nothing', async (_name, act) => {
    const { store, port, rnic } = await owner(engine);
    store.set('k', 'value');
    const kv = await connect({ port, rnic });
    const visits = await kv.counter('visits');
    await visits.add(5);
    const { raw, table, words } = await thief(port, rnic);
    await act(raw, table, words).catch(() => undefined);
    await raw.closed;
    expect(Buffer.from((await kv.get('k'))!).toString()).toBe('value');
    expect(await visits.get()).toBe(5n);
    await kv.close();
  });

  it('a client that sends requests and never receives their answers holds bounded memory', async () => {
    const { port, rnic } = await owner(engine);
    const { raw } = await thief(port, rnic);
    const before = process.memoryUsage();
    let sent = 0;
    const request = encodeFrame(REQUEST_MAGIC, KV_OP.STORE, 1, {
      status: 0,
      extras: Buffer.alloc(16),
      key: Buffer.from('k'),
      value: Buffer.alloc(4000),
    });
    const flood = (async () => {
      for (; sent < 20_000; sent++) await raw.send(request);
    })().catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const after = process.memoryUsage();
    expect(sent).toBeLessThan(20_000);
    expect(after.arrayBuffers + after.heapUsed - before.arrayBuffers - before.heapUsed).toBeLessThan(
      64 * 2 ** 20,
    );
    const kv = await connect({ port, rnic });
    await kv.set('other', 'served');
    expect(Buffer.from((await kv.get('other'))!).toString()).toBe('served');
    await kv.close();
    raw.destroy();
    await flood;
  });
});

/** Send a request, and resolve with the first `count` lines of the answers. */
async function lines(port: number, request: string | Uint8Array, count: number): Promise<string[]> {
  const socket = connectTcp(port, '127.0.0.1');
  socket.write(request);
  let text = '';
  for await (const bytes of socket) {
    text += (bytes as Buffer).toString('latin1');
    if (text.split('\r\n').length > count) break;
  }
  socket.destroy();
  return text.split('\r\n').slice(0, count);
}

describe('the edges', () => {
  it('keys of 0 and of 251 bytes, values above the limit, and times that wrap are refused', async () => {
    const store = createStore({ octets: 2 ** 20, engine: 'thread' });
    ends.push(() => store.close());
    const { resp, memcached } = await store.listen({ resp: 0, memcached: 0 });
    const long = 'k'.repeat(251);
    const redis = [
      `SET "" v`,
      `SET ${long} v`,
      'SET k v EX 9223372036854775807',
      'SET k v PX -1',
      'SET k v',
      'EXPIRE k 9223372036854775807',
    ];
    const answers = await lines(resp!, `${redis.join('\r\n')}\r\n`, 6);
    expect(answers.map((line) => line.replace(/^(-ERR|\+OK).*/, '$1'))).toEqual([
      ...['-ERR', '-ERR', '-ERR', '-ERR', '+OK', '-ERR'],
    ]);
    expect(store.get('k')).not.toBeNull();
    const text = [
      'set k 0 -1 1\r\nv\r\n', // over at once
      'get k\r\n',
      'set k 0 99999999999 1\r\nv\r\n',
      'touch k 4294967296\r\n',
      `set ${long} 0 0 1\r\nv\r\n`,
    ];
    const said = await lines(memcached!, text.join(''), 5);
    expect(said.slice(0, 2)).toEqual(['STORED', 'END']);
    for (const line of said.slice(2)) expect(line).toMatch(/^(CLIENT_ERROR|STORED|NOT_FOUND|TOUCHED|ERROR)/);
    expect(store.stats().keys).toBeLessThanOrEqual(1);
  });

  it('a pipeline of memcached that never reads is waited for, with bounded memory', async () => {
    const store = createStore({ octets: 8 * 2 ** 20, engine: 'thread' });
    ends.push(() => store.close());
    const { memcached } = await store.listen({ memcached: 0 });
    store.set('large', new Uint8Array(200_000));
    const get = Buffer.from('80000005000000000000000500000000000000000000000061', 'hex');
    get.write('large', 24);
    for (const request of [
      'get large\r\n',
      Buffer.concat([Buffer.from(get.subarray(0, 24)), Buffer.from('large')]),
    ]) {
      const lazy = connectTcp(memcached!, '127.0.0.1');
      await new Promise((resolve) => lazy.once('connect', resolve));
      lazy.pause();
      const before = process.memoryUsage();
      lazy.write(Buffer.concat(Array.from({ length: 10_000 }, () => Buffer.from(request))));
      await new Promise((resolve) => setTimeout(resolve, 500));
      const after = process.memoryUsage();
      expect(after.arrayBuffers + after.heapUsed - before.arrayBuffers - before.heapUsed).toBeLessThan(
        64 * 2 ** 20,
      );
      expect((await lines(memcached!, 'version\r\n', 1))[0]).toMatch(/^VERSION /);
      lazy.destroy();
    }
  });
});
