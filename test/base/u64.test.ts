/** Checking and halving of 64-bit numbers, at the edges. */
import { describe, expect, it } from 'vitest';
import { checkU64, halve, hi32, isU64, lo32, lower, toBigInt, upper } from '../../src/base/u64.ts';

const HALVES: readonly (readonly [number, number])[] = [
  [0, 0],
  [0, 1],
  [0, 0x7fff_ffff],
  [0, 0x8000_0000],
  [0, 0xffff_ffff],
  [1, 0],
  [0x1f_ffff, 0xffff_ffff],
  [0x20_0000, 0],
  [0x7fff_ffff, 0xffff_ffff],
  [0x8000_0000, 0],
  [0x0123_4567, 0x89ab_cdef],
  [0xfedc_ba98, 0x7654_3210],
  [0xffff_ffff, 0xffff_ffff],
];

describe('64-bit values as two halves', () => {
  it.each(HALVES)('%i and %i make the bigint that falls apart into them', (hi, lo) => {
    const value = toBigInt(hi, lo);
    expect(value).toBe(BigInt(hi) * 0x1_0000_0000n + BigInt(lo));
    expect([hi32(value), lo32(value)]).toEqual([hi, lo]);
    if (value <= BigInt(Number.MAX_SAFE_INTEGER))
      expect([hi32(Number(value)), lo32(Number(value))]).toEqual([hi, lo]);
  });

  it.each(HALVES)('%i and %i are what halve leaves', (hi, lo) => {
    const value = toBigInt(hi, lo);
    expect([halve(value), upper(), lower()]).toEqual([true, hi, lo]);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) return;
    expect(halve(0)).toBe(true);
    expect([halve(Number(value)), upper(), lower()]).toEqual([true, hi, lo]);
  });

  it.each([-1, 0.5, NaN, Infinity, 2 ** 53, -1n, 2n ** 64n, '1', null, undefined, {}])(
    'halve takes %s for no unsigned 64-bit integer',
    (value) => {
      expect(halve(value)).toBe(false);
    },
  );

  it('takes halves that are signed numbers', () => {
    expect(toBigInt(-1, -2)).toBe(0xffff_ffff_ffff_fffen);
  });
});

describe('isU64', () => {
  it.each([0, 1, Number.MAX_SAFE_INTEGER, 0n, 1n, 2n ** 63n, 2n ** 64n - 1n])('%s is one', (value) => {
    expect(isU64(value)).toBe(true);
    expect(checkU64('value', value)).toBe(value);
  });

  it.each([
    -1,
    0.5,
    Number.MAX_SAFE_INTEGER + 1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    -1n,
    -(2n ** 63n),
    2n ** 64n,
    2n ** 64n + 1n,
    2n ** 128n,
    -(2n ** 64n),
    '1',
    null,
    undefined,
    {},
    true,
  ])('%s is none', (value) => {
    expect(isU64(value)).toBe(false);
    expect(() => checkU64('value', value)).toThrowError(
      expect.objectContaining({
        code: 'ERR_INVALID_ARGUMENT',
        message: expect.stringMatching(/^value must be/),
      }),
    );
  });
});
