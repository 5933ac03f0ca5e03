/** Rings for counters that run freely. */
import { describe, expect, it } from 'vitest';
import { Ring } from '../../src/base/ring.ts';

describe('a ring', () => {
  it.each([
    [0, 1],
    [1, 1],
    [2, 2],
    [3, 4],
    [4, 4],
    [5, 8],
    [1000, 1024],
    [1024, 1024],
    [1025, 2048],
    [1 << 20, 1 << 20],
  ])('for %i entries has room for %i', (entries, places) => {
    const ring = new Ring<number>(entries);
    expect(ring.size).toBe(places);
    ring.resize(7, 0, 0);
    expect(ring.size).toBe(8);
    ring.resize(entries, 0, 0);
    expect(ring.size).toBe(places);
  });

  it.each([0, 2 ** 31 - 2, 2 ** 32 - 2, 2 ** 40 + 5])('holds what stands at counters around %i', (base) => {
    const ring = new Ring<number>(4);
    for (let i = 0; i < 4; i++) ring.put(base + i, i);
    for (let i = 0; i < 4; i++) expect(ring.at(base + i)).toBe(i);
    expect(ring.take(base)).toBe(0);
    ring.put(base + 4, 4);
    for (const entries of [5, 64, 4, 17]) {
      ring.resize(entries, base + 1, base + 5);
      expect([1, 2, 3, 4].map((i) => ring.at(base + i))).toEqual([1, 2, 3, 4]);
    }
  });

  it('does not keep what has been taken, nor what is not in use when it changes its size', () => {
    const ring = new Ring<object>(2);
    ring.put(0, {});
    ring.take(0);
    expect(ring.at(0)).toBeNull();
    ring.put(1, {});
    ring.resize(2, 2, 2);
    expect(ring.at(1)).toBeNull();
  });
});
