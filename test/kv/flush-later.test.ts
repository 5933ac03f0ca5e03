/** flush_all of memcached with a time: seconds from now up to 30 days, above that a moment. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Counters } from '../../src/kv/counters.ts';
import { Keyspace } from '../../src/kv/keyspace.ts';
import { MemcachedStore } from '../../src/kv/memcached-store.ts';
import { Table } from '../../src/kv/table.ts';

// The store holds Node's timers; fake ones take the place of the global ones.
vi.mock('node:timers', async (original) => ({
  ...(await original<typeof import('node:timers')>()),
  setTimeout: (...given: Parameters<typeof setTimeout>) => globalThis.setTimeout(...given),
  clearTimeout: (...given: Parameters<typeof clearTimeout>) => globalThis.clearTimeout(...given),
}));

const DAY = 86_400;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function makeStore(): MemcachedStore {
  const now = (): number => Date.now();
  const table = new Table(2 ** 20, { seed: 1, evicts: true, now });
  return new MemcachedStore(new Keyspace(table, new Counters(64), now));
}

it.each([
  ['a second', 1, 1],
  ['24 days', 24 * DAY, 24 * DAY],
  ['25 days, for which a timer is too short', 25 * DAY, 25 * DAY],
  ['30 days', 30 * DAY, 30 * DAY],
  ['a moment in 60 days', null, 60 * DAY],
])('empties the store after %s', (_name, asked, seconds) => {
  const store = makeStore();
  const key = Buffer.from('k');
  const start = Date.now();
  store.keys.put(key, Buffer.from('v'), 0, 0);
  store.flush(asked ?? Math.ceil(start / 1000) + seconds);
  vi.advanceTimersByTime(seconds * 1000 - 1);
  expect(store.get(key)).not.toBeNull();
  vi.advanceTimersByTime(1001);
  expect(store.get(key)).toBeNull();
  store.close();
});

it('a later flush takes the place of one that waits', () => {
  const store = makeStore();
  const key = Buffer.from('k');
  store.flush(10);
  store.flush(40);
  store.keys.put(key, Buffer.from('v'), 0, 0);
  vi.advanceTimersByTime(39_000);
  expect(store.get(key)).not.toBeNull();
  vi.advanceTimersByTime(1000);
  expect(store.get(key)).toBeNull();
});
