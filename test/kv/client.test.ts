// RDMA clients of a store: reads without the owner, changes by message, counters, locks, with both engines.
import { afterAll, describe, expect, it, vi } from 'vitest';
import { connect as connectRdma } from '../../src/api/connect.ts';
import { openRnic, type EngineKind, type Rnic } from '../../src/api/environment.ts';
import { connect, createStore, type KvClient, type KvStore, type StoreOptions } from '../../src/kv/index.ts';
import { depth } from '../support/depth.ts';
import { endTogether, tcpPath } from '../support/tcp-path.ts';

const text = (value: Uint8Array | null): string | null =>
  value === null ? null : Buffer.from(value).toString();
const ends: (() => Promise<void> | void)[] = [];
afterAll(async () => {
  for (const end of ends.toReversed()) await end();
});

async function pair(
  engine: EngineKind,
  options: StoreOptions = {},
): Promise<{ store: KvStore; kv: KvClient; port: number; rnic: Rnic }> {
  const store = createStore({ octets: 8 * 2 ** 20, engine, ...options });
  const { rdma } = await store.listen({ rdma: 0 });
  const rnic = openRnic({ engine });
  const kv = await connect({ port: rdma!, rnic });
  ends.push(
    () => rnic.device.close(),
    async () => {
      await kv.close();
      await store.close();
    },
  );
  return { store, kv, port: rdma!, rnic };
}

/** A path to the store whose answers take 300 ms until `quicken`. */
async function slowPath(port: number): Promise<{ readonly port: number; quicken(): void }> {
  let isSlow = true;
  const through = await tcpPath(port, (near, far) => {
    near.pipe(far);
    far.on('data', (bytes: Buffer) =>
      isSlow ? void setTimeout(() => near.write(bytes), 300) : near.write(bytes),
    );
    far.on('end', () => near.end());
    endTogether(near, far);
  });
  return { port: through, quicken: () => (isSlow = false) };
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  it('a holder whose first answer was late does not hold its lock longer than others believe', async () => {
    const { kv, port, rnic } = await pair(engine);
    const path = await slowPath(port);
    const late = await connect({ port: path.port, rnic });
    path.quicken();
    const [a, b] = [await late.lock('door', { lease: 200 }), await kv.lock('door')];
    for (let times = 0; times < 3; times++) {
      await a.acquire();
      await b.acquire(20_000);
      expect(a.isHeld).toBe(false);
      expect(await b.release()).toBe(true);
    }
    await late.close();
  });

  it('a get is two Reads, then one, and no message', async () => {
    const { store, kv } = await pair(engine);
    store.set('colour', 'blue');
    expect(text(await kv.get('colour'))).toBe('blue');
    expect(kv.stats()).toMatchObject({ reads: 2, remembered: 0, messages: 0 });
    expect(text(await kv.get('colour'))).toBe('blue');
    expect(kv.stats()).toMatchObject({ reads: 3, remembered: 1, messages: 0 });
    expect(await kv.get('size')).toBeNull();
    expect(kv.stats()).toMatchObject({ reads: 4, asked: 0, messages: 0 });
    // A changed key has another place: the remembered one is dead.
    store.set('colour', 'green');
    expect(text(await kv.get('colour'))).toBe('green');
    expect(kv.stats()).toMatchObject({ torn: 1, messages: 0 });
    store.delete('colour');
    expect(await kv.get('colour')).toBeNull();
  });

  it('set, conditions, versions, delete, increment, expire, many keys, getInto', async () => {
    const { store, kv } = await pair(engine);
    const first = await kv.set('a', '1');
    expect(first).toBeGreaterThan(0);
    expect(await kv.set('a', '2', { when: 'add' })).toBeNull();
    expect(await kv.set('b', '2', { when: 'replace' })).toBeNull();
    const seen = await kv.getVersioned('a');
    expect(seen).toMatchObject({ version: first, flags: 0 });
    expect(await kv.set('a', '3', { version: first! })).toBeGreaterThan(first!);
    expect(await kv.set('a', '4', { version: first! })).toBeNull();
    expect(await kv.set('gone', '4', { version: 9 })).toBeNull();
    expect(text(store.get('a'))).toBe('3');
    expect(await kv.increment('a', 39)).toBe(42n);
    expect(await kv.increment('new', -5n)).toBe(-5n);
    await kv.set('word', 'abc');
    await expect(kv.increment('word')).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
    expect((await kv.getMany(['a', 'none', 'word'])).map(text)).toEqual(['42', null, 'abc']);
    const memory = new Uint8Array(3);
    expect(await kv.getInto('word', memory)).toBe(3);
    expect(text(memory)).toBe('abc');
    expect(await kv.getInto('none', memory)).toBe(-1);
    await expect(kv.getInto('word', new Uint8Array(2))).rejects.toMatchObject({ code: 'ERR_OUT_OF_RANGE' });
    expect(await kv.delete('word')).toBe(true);
    expect(await kv.delete('word')).toBe(false);
    await kv.set('late', 'x', { ttl: 600_000 });
    expect(text(await kv.get('late'))).toBe('x');
    await kv.set('soon', 'x', { ttl: 60 });
    expect(await kv.expire('a', 1)).toBe(true);
    expect(await kv.expire('none', 1)).toBe(false);
    // The client's idea of the owner's clock is late by what the answer took when it connected.
    for (const key of ['soon', 'a'])
      await vi.waitFor(async () => expect(await kv.get(key)).toBeNull(), { timeout: 30_000 });
    expect(text(await kv.get('late'))).toBe('x');
  });

  it('values of every length, up to the longest, and no longer', async () => {
    const { kv } = await pair(engine);
    for (const length of [0, 1, 23, 64, 4096, 4097, 8192, 100_000, 260_000]) {
      const value = new Uint8Array(length).map((_, i) => i * 7);
      await kv.set(`length ${length}`, value);
      expect(Buffer.compare((await kv.get(`length ${length}`))!, value), String(length)).toBe(0);
    }
    await expect(kv.set('k', new Uint8Array(2 ** 21))).rejects.toMatchObject({ code: 'ERR_TOO_LARGE' });
    await expect(kv.set('', 'v')).rejects.toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    await expect(kv.get('k'.repeat(251))).rejects.toMatchObject({ code: 'ERR_INVALID_ARGUMENT' });
    expect(await kv.set('k'.repeat(250), 'v')).not.toBeNull();
    expect(text(await kv.get('k'.repeat(250)))).toBe('v');
  });

  it('counters: every addition of several clients counts once, and others see an integer', async () => {
    const { store, kv, port, rnic } = await pair(engine);
    const other = await connect({ port, rnic });
    await kv.set('visits', '100');
    const [a, b] = [await kv.counter('visits'), await other.counter('visits')];
    await Promise.all([
      ...Array.from({ length: 50 }, () => a.add()),
      ...Array.from({ length: 50 }, () => b.add(2)),
    ]);
    expect(await a.get()).toBe(250n);
    expect(await a.add(-300)).toBe(-50n);
    expect(text(await kv.get('visits'))).toBe('-50');
    expect(text(store.get('visits'))).toBe('-50');
    expect(await kv.increment('visits')).toBe(-49n);
    await kv.set('word', 'abc');
    await expect(kv.counter('word')).rejects.toMatchObject({ code: 'ERR_INVALID_STATE' });
    await other.close();
  });

  it('a lock excludes, and a holder that does not come back loses it', async () => {
    const { kv, port, rnic } = await pair(engine);
    const other = await connect({ port, rnic });
    const [a, b] = [await kv.lock('door', { lease: 300 }), await other.lock('door', { lease: 10_000 })];
    expect(await a.tryAcquire()).toBe(true);
    expect([a.isHeld, b.isHeld]).toEqual([true, false]);
    expect(await b.tryAcquire()).toBe(false);
    await expect(b.acquire(0)).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
    expect(await a.extend()).toBe(true);
    expect(await a.release()).toBe(true);
    expect(await b.tryAcquire()).toBe(true);
    expect(await b.release()).toBe(true);
    await a.acquire();
    // Nobody releases it: its time goes by.
    await b.acquire(5000);
    expect([a.isHeld, await a.release(), await b.release()]).toEqual([false, false, true]);
    await other.close();
  });

  it('many clients, many keys: what one has stored another one reads', async () => {
    const { port, rnic, kv } = await pair(engine);
    const clients = await Promise.all(Array.from({ length: 8 }, () => connect({ port, rnic })));
    await Promise.all(
      clients.map(async (client, i) => {
        for (let k = 0; k < 50; k++) await client.set(`key ${i} ${k}`, `value ${i} ${k}`);
      }),
    );
    for (const [i, client] of clients.entries())
      for (let k = 0; k < 50; k++)
        expect(text(await client.get(`key ${7 - i} ${k}`))).toBe(`value ${7 - i} ${k}`);
    expect(kv.stats().messages).toBe(0);
    await Promise.all(clients.map((client) => client.close()));
  });

  it('messages that are no requests end their connection, and no other', async () => {
    const { port, rnic, kv } = await pair(engine);
    for (const octets of [
      new Uint8Array(3),
      new Uint8Array(24),
      Buffer.from('800000000000000000000009000000000000000000000000', 'hex'),
      Buffer.concat([
        Buffer.from('8000ffff00000000000000040000000000000000000000000000', 'hex'),
        Buffer.alloc(2),
      ]),
    ]) {
      const raw = await connectRdma({ host: '127.0.0.1', port, rnic });
      await raw.send(octets);
      await raw.closed;
    }
    await kv.set('still', 'here');
    expect(text(await kv.get('still'))).toBe('here');
  });

  it('the owner that goes away ends what is under way with an error', async () => {
    const { store, kv } = await pair(engine);
    await kv.set('a', '1');
    const reads = Array.from({ length: 20 }, () => kv.get('a').then(text, (error: Error) => error));
    await store.close();
    for (const outcome of await Promise.all(reads))
      if (outcome !== '1') expect(outcome).toMatchObject({ name: expect.stringMatching(/Error$/) });
    await kv.closed;
    await expect(kv.set('b', '2')).rejects.toMatchObject({ code: expect.stringMatching(/^ERR_CONNECTION/) });
  });
});

it('no torn and no foreign value is ever returned while the owner rewrites, moves and evicts', async () => {
  const { store, kv } = await pair('worker', { octets: 2 ** 20 });
  const KEYS = 40;
  // Each value proves itself: key, round, and octets that follow from both.
  const value = (key: number, round: number): Uint8Array => {
    const bytes = new Uint8Array(8 + ((key * 977 + round * 131) % 3000)).fill(key * 31 + round);
    new DataView(bytes.buffer).setUint32(0, key);
    new DataView(bytes.buffer).setUint32(4, round);
    return bytes;
  };
  const newest = new Array<number>(KEYS).fill(0);
  let round = 0;
  const writer = setInterval(() => {
    for (let i = 0; i < 200; i++) {
      const key = Math.floor(Math.random() * KEYS);
      newest[key] = ++round;
      store.set(`key ${key}`, value(key, round));
    }
  }, 0);
  const floors = new Array<number>(KEYS).fill(0);
  let found = 0;
  const [enough, end] = [depth(1000, 5000), Date.now() + 40_000];
  try {
    while ((found < enough || kv.stats().torn === 0) && Date.now() < end) {
      await Promise.all(
        Array.from({ length: 32 }, async () => {
          const key = Math.floor(Math.random() * KEYS);
          const [stored, floor] = [newest[key]!, floors[key]!];
          const bytes = await kv.get(`key ${key}`);
          if (bytes === null) return;
          found++;
          const view = new DataView(bytes.buffer, bytes.byteOffset);
          const seen = view.getUint32(4);
          expect(view.getUint32(0)).toBe(key);
          expect(Buffer.compare(bytes, value(key, seen))).toBe(0);
          // Nothing older than the value stored, or read by a client, before this get began.
          expect(seen).toBeGreaterThanOrEqual(Math.max(stored, floor));
          floors[key] = Math.max(floors[key]!, seen);
        }),
      );
    }
  } finally {
    clearInterval(writer);
  }
  expect(found).toBeGreaterThan(100);
  expect(kv.stats().torn).toBeGreaterThan(0);
});
