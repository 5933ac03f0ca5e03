/** Counters that outgrow 31 bits, and rings for counters that run freely. */
import { describe, expect, it } from 'vitest';
import { ringPlaces, WIDE_ZERO } from '../../src/base/wide.ts';

describe('WIDE_ZERO', () => {
  it('counts like zero, and shows as zero once 0 has been added', () => {
    expect(WIDE_ZERO + 5).toBe(5);
    expect(WIDE_ZERO + 0).toBe(0);
    expect(WIDE_ZERO & 511).toBe(0);
  });

  it('is no small integer', () => {
    expect(Object.is(WIDE_ZERO, -0)).toBe(true);
  });
});

describe('ringPlaces', () => {
  it.each([[1, 1], [2, 2], [3, 4], [4, 4], [5, 8], [1000, 1024], [1024, 1024], [1025, 2048], [1 << 20, 1 << 20]])('for %i entries %i', (entries, places) => {
    expect(ringPlaces(entries)).toBe(places);
  });

  it('finds places beyond 2^31 and 2^32 by their lower bits', () => {
    for (const counter of [2 ** 31 - 1, 2 ** 31, 2 ** 32 + 3, 2 ** 40 + 5]) expect(counter & (ringPlaces(16) - 1)).toBe(counter % 16);
  });
});
