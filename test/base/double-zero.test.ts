/** Counters that outgrow 31 bits. */
import { describe, expect, it } from 'vitest';
import { DOUBLE_ZERO } from '../../src/base/double-zero.ts';

describe('a zero that is no small integer', () => {
  it('counts like zero, and shows as zero once 0 has been added', () => {
    expect(DOUBLE_ZERO + 5).toBe(5);
    expect(DOUBLE_ZERO + 0).toBe(0);
    expect(DOUBLE_ZERO & 511).toBe(0);
  });

  it('is minus zero', () => {
    expect(Object.is(DOUBLE_ZERO, -0)).toBe(true);
  });
});
