/** Pools: what they keep, in which order, and what they drop. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FreeList, Pool, SizedPool } from '../../src/base/pool.ts';

describe('a free list', () => {
  it('gives the last one first, keeps a limit, and drops the others and all after its close', () => {
    const dropped: number[] = [];
    const list = new FreeList<number>(2, (n) => dropped.push(n));
    for (const n of [1, 2, 3]) list.put(n);
    expect([dropped, list.take(), list.take(), list.take()]).toEqual([[3], 2, 1, undefined]);
    list.put(4);
    list.put(5);
    expect(list.take()).toBe(5);
    list.close();
    list.put(6);
    expect([dropped, list.take()]).toEqual([[3, 4, 6], undefined]);
  });
});

describe('a pool', () => {
  it('makes missing things, resets returned ones, and counts lent ones', () => {
    let made = 0;
    const reset: number[] = [];
    const dropped: number[] = [];
    const pool = new Pool({
      keep: 1,
      make: () => ++made,
      reset: (n) => reset.push(n),
      drop: (n) => dropped.push(n),
    });
    const things = [pool.acquire(), pool.acquire()];
    expect([things, pool.lent]).toEqual([[1, 2], 2]);
    for (const thing of things) pool.release(thing);
    expect([reset, dropped, pool.lent]).toEqual([[1, 2], [2], 0]);
    expect([pool.acquire(), pool.acquire(), made]).toEqual([1, 3, 3]);
  });
});

describe('a pool of sizes', () => {
  it('does what a list does that is searched from its end and cut at its beginning', () => {
    const size = fc.constantFrom(1, 2, 4, 8, 40);
    const action = fc.record({ put: fc.boolean(), size });
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const dropped: number[] = [];
        const pool = new SizedPool<number>(30, (n) => dropped.push(n));
        let model: { thing: number; size: number }[] = [];
        const gone: number[] = [];
        actions.forEach((one, thing) => {
          if (!one.put) {
            const at = model.findLastIndex((kept) => kept.size === one.size);
            expect(pool.take(one.size)).toBe(model[at]?.thing);
            if (at >= 0) model.splice(at, 1);
            return;
          }
          pool.put(thing, one.size);
          if (one.size > 30) gone.push(thing);
          else model.push({ thing, size: one.size });
          const octets = (): number => model.reduce((sum, kept) => sum + kept.size, 0);
          while (octets() > 30) gone.push(model.shift()!.thing);
          expect(dropped).toEqual(gone);
        });
        pool.close();
        gone.push(...model.map(({ thing }) => thing));
        model = [];
        pool.put(99, 1);
        expect(dropped).toEqual([...gone, 99]);
        expect(pool.take(1)).toBeUndefined();
      }),
    );
  });
});
