// Recorded histories of nine clients on the same keys, judged against a model; and the judge itself.
import { describe, expect, it } from 'vitest';
import { openRnic, type EngineKind } from '../../src/api/environment.ts';
import { connect, createStore, type KvClient } from '../../src/kv/index.ts';
import { isLinearizable, type Call, type Operation } from './linearizable.ts';

const call = (begin: number, end: number, operation: Operation): Call => ({ begin, end, operation });

it('the judge accepts what overlaps and refuses what is stale', () => {
  const set = call(0, 10, { kind: 'set', value: 'a' });
  const late = (begin: number, end: number, result: string | null): Call =>
    call(begin, end, { kind: 'get', result });
  expect(isLinearizable([set, late(1, 2, null), late(3, 4, 'a')])).toBe(true);
  expect(isLinearizable([set, late(1, 2, 'a'), late(3, 4, null)])).toBe(false);
  expect(isLinearizable([set, late(11, 12, null)])).toBe(false);
  const add = (value: string, stored: boolean): Call => call(0, 10, { kind: 'add', value, stored });
  expect(isLinearizable([add('a', true), add('b', true)])).toBe(false);
  expect(isLinearizable([add('a', true), add('b', false)])).toBe(true);
  const increment = (result: string): Call => call(0, 10, { kind: 'increment', result });
  expect(isLinearizable([increment('1'), increment('2'), increment('3')])).toBe(true);
  expect(isLinearizable([increment('1'), increment('1')])).toBe(false);
});

const text = (value: Uint8Array | null): string | null =>
  value === null ? null : Buffer.from(value).toString();

/** One random operation of a client on a key. */
async function act(kv: KvClient, key: string, fresh: () => string, dice: number): Promise<Operation | null> {
  if (dice < 0.45) return { kind: 'get', result: text(await kv.get(key)) };
  if (dice < 0.65) {
    const value = fresh();
    await kv.set(key, value);
    return { kind: 'set', value };
  }
  if (dice < 0.75) {
    const value = fresh();
    return { kind: 'add', value, stored: (await kv.set(key, value, { when: 'add' })) !== null };
  }
  if (dice < 0.85) return { kind: 'delete', was: await kv.delete(key) };
  return null;
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  it('get, set, add, compare-and-swap, increment and delete of nine clients are linearizable', async () => {
    const store = createStore({ octets: 2 ** 20, engine });
    const { rdma } = await store.listen({ rdma: 0 });
    const rnic = openRnic({ engine });
    const clients = await Promise.all(Array.from({ length: 9 }, () => connect({ port: rdma!, rnic })));
    let values = 1000;
    // Every stored value is a new number, so that increments stay numbers and no value comes twice.
    const fresh = (): string => String((values += 1000));
    for (let round = 0; round < 25; round++) {
      const histories = new Map<string, Call[]>();
      await Promise.all(
        clients.map(async (kv) => {
          for (let i = 0; i < 6; i++) {
            const key = `${round} ${Math.floor(Math.random() * 2)}`;
            const calls = histories.get(key) ?? [];
            histories.set(key, calls);
            const dice = Math.random();
            const begin = performance.now();
            let operation = await act(kv, key, fresh, dice);
            if (operation === null && dice < 0.93) {
              operation = { kind: 'increment', result: String(await kv.increment(key)) };
            } else if (operation === null) {
              const seen = await kv.getVersioned(key);
              calls.push(call(begin, performance.now(), { kind: 'get', result: text(seen?.value ?? null) }));
              if (seen === null) continue;
              const [again, value] = [performance.now(), fresh()];
              const stored = (await kv.set(key, value, { version: seen.version })) !== null;
              calls.push(
                call(again, performance.now(), { kind: 'cas', before: text(seen.value)!, value, stored }),
              );
              continue;
            }
            calls.push(call(begin, performance.now(), operation));
          }
        }),
      );
      for (const [key, calls] of histories)
        expect(isLinearizable(calls), `${key}: ${JSON.stringify(calls)}`).toBe(true);
    }
    for (const client of clients) await client.close();
    await store.close();
    rnic.device.close();
  });
});
