/**
 * Every engine against the published vectors, the bit-serial definition and the `crc-32` package: all short
 * lengths, long ones at any alignment, any cut, in its memory and in other memory.
 */
import oracle from 'crc-32/crc32c.js';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { availableCrc32cEngines, createCrc32cEngine } from '../../src/crc32c/engine.ts';
import type { Crc32cEngine } from '../../src/crc32c/engine.ts';
import { firstFault } from '../../src/crc32c/self-test.ts';
import { bitSerialCrc32c, noise, VECTORS } from './reference.ts';

const byPackage = (bytes: Uint8Array): number => oracle.buf(bytes) >>> 0;

/**
 * What running on over a message and its own CRC field gives, whatever the message: the remainder of the
 * complement. RFC 3720 section 12.1 states it as 0x1c2d19ed, this is its reflected, complemented form.
 */
const RESIDUE = 0x48674bc7;

/** Memory of each kind that an engine may meet. */
const MEMORIES: readonly {
  readonly title: string;
  take(engine: Crc32cEngine, octets: number): Uint8Array;
}[] = [
  { title: 'its own memory', take: (engine, octets) => engine.allocate(octets) },
  { title: 'ordinary memory', take: (_, octets) => new Uint8Array(octets) },
  { title: 'a Node buffer', take: (_, octets) => Buffer.allocUnsafe(octets) },
  { title: 'shared memory', take: (_, octets) => new Uint8Array(new SharedArrayBuffer(octets)) },
];

describe('the reference itself', () => {
  it('the bit-serial definition gives the check value (MPA-051)', () => {
    expect(bitSerialCrc32c(0, Buffer.from('123456789'))).toBe(0xe3069283);
  });
});

describe.each(availableCrc32cEngines())('engine %s', (name) => {
  let engine: Crc32cEngine;
  beforeAll(() => {
    engine = createCrc32cEngine(name);
  });

  it('the check value is 0xe3069283 (MPA-051)', () => {
    expect(engine.name).toBe(name);
    expect(engine.update(0, Buffer.from('123456789'), 0, 9)).toBe(0xe3069283);
    expect(firstFault(engine)).toBeUndefined();
  });

  it.each(VECTORS)('$title (MPA-051, MPA-069)', ({ data, crc, wire }) => {
    const value = engine.update(0, data, 0, data.length);
    expect(value).toBe(crc);
    const field = new DataView(new ArrayBuffer(4));
    field.setUint32(0, value, true);
    expect(Buffer.from(field.buffer).toString('hex')).toBe(wire);
  });

  it.each(VECTORS)('running on over the CRC field leaves the residue: $title (MPA-069)', ({ data, wire }) => {
    const whole = Buffer.concat([data, Buffer.from(wire, 'hex')]);
    expect(engine.update(0, whole, 0, whole.length)).toBe(RESIDUE);
  });

  it('nothing leaves the value as it is (MPA-051)', () => {
    const bytes = new Uint8Array(8);
    for (const crc of [0, 1, 0x7fffffff, 0x80000000, 0xffffffff])
      expect(engine.update(crc, bytes, 3, 3)).toBe(crc);
  });

  describe.each(MEMORIES)('in $title', ({ take }) => {
    const MAX = 2000;

    it(`every length from 0 to ${MAX}, from a carried value, at every alignment (MPA-051)`, () => {
      const bytes = take(engine, MAX + 16);
      bytes.set(noise(MAX + 16, 7));
      for (let length = 0; length <= MAX; length++) {
        const start = length % 16;
        const value = engine.update(0x12345678, bytes, start, start + length);
        // One comparison by hand for each length: expect() two thousand times takes longer than the CRCs.
        if (value !== bitSerialCrc32c(0x12345678, bytes, start, start + length))
          expect(value).toBe(`CRC of length ${length}`);
      }
    });

    it('long input, any alignment, cut anywhere, with the value carried over the cuts (MPA-051)', () => {
      const LONG = 300_000;
      const bytes = take(engine, LONG);
      bytes.set(noise(LONG, 99));
      const place = fc.nat(LONG);
      fc.assert(
        fc.property(fc.array(place, { minLength: 2, maxLength: 8 }), (places) => {
          const cuts = places.toSorted((a, b) => a - b);
          const [start = 0, end = 0] = [cuts[0], cuts.at(-1)];
          const value = cuts
            .slice(1)
            .reduce((crc, cut, index) => engine.update(crc, bytes, cuts[index] ?? 0, cut), 0);
          expect(value).toBe(byPackage(bytes.subarray(start, end)));
        }),
        { numRuns: 60 },
      );
    });

    it('any octets of any length, as one piece and as two (MPA-051)', () => {
      const bytes = take(engine, 40_064);
      fc.assert(
        fc.property(
          fc.nat(40_000),
          fc.nat(63),
          fc.double({ min: 0, max: 1, noNaN: true }),
          fc.integer({ min: 1 }),
          (length, offset, part, seed) => {
            bytes.set(noise(length, seed), offset);
            const cut = offset + Math.floor(part * length);
            const end = offset + length;
            const expected = byPackage(bytes.subarray(offset, end));
            expect(engine.update(0, bytes, offset, end)).toBe(expected);
            expect(engine.update(engine.update(0, bytes, offset, cut), bytes, cut, end)).toBe(expected);
          },
        ),
        { numRuns: 150 },
      );
    });

    it('any single flipped bit changes the value (MPA-051)', () => {
      const bytes = take(engine, 1460);
      bytes.set(noise(1460, 3));
      const good = engine.update(0, bytes, 0, 1460);
      for (let bit = 0; bit < 1460 * 8; bit += 37) {
        bytes[bit >> 3] = (bytes[bit >> 3] as number) ^ (1 << (bit & 7));
        if (engine.update(0, bytes, 0, 1460) === good) expect(bit).toBe('a bit that counts');
        bytes[bit >> 3] = (bytes[bit >> 3] as number) ^ (1 << (bit & 7));
      }
      expect(engine.update(0, bytes, 0, 1460)).toBe(good);
    });
  });

  it('arrays used in turn do not mix up their places (MPA-051)', () => {
    const arrays = MEMORIES.flatMap(({ take }) => [take(engine, 700), take(engine, 700)]);
    arrays.forEach((array, index) => array.set(noise(700, index + 1)));
    const expected = arrays.map((array) => byPackage(array.subarray(5, 650)));
    for (let round = 0; round < 50; round++) {
      const index = (round * 5 + (round >> 2)) % arrays.length;
      expect(engine.update(0, arrays[index] as Uint8Array, 5, 650)).toBe(expected[index]);
    }
  });

  it('leaves the octets that it reads and their neighbours alone', () => {
    for (const { take } of MEMORIES) {
      const bytes = take(engine, 40_000);
      const before = noise(40_000, 5);
      bytes.set(before);
      for (const length of [10, 300, 1000, 13_000, 39_900]) engine.update(0, bytes, 17, 17 + length);
      expect(Buffer.compare(bytes, before)).toBe(0);
    }
  });

  it('gives the same as a signed number, in memory of every kind', () => {
    for (const { take } of MEMORIES) {
      const bytes = take(engine, 40_000);
      bytes.set(noise(40_000, 6));
      for (const length of [1, 10, 159, 160, 300, 1000, 39_000]) {
        for (const crc of [0, 0x12345678, 0xfedcba98])
          expect(engine.updateSigned(crc, bytes, 17, 17 + length)).toBe(
            engine.update(crc, bytes, 17, 17 + length) | 0,
          );
      }
    }
  });

  it('refuses a range that is not inside the array', () => {
    const bytes = engine.allocate(100);
    for (const [start, end] of [
      [-1, 5],
      [0, 101],
      [6, 5],
      [Number.NaN, 5],
      [0, Number.NaN],
      [101, 101],
    ] as const) {
      expect(() => engine.update(0, bytes, start, end)).toThrowError(
        expect.objectContaining({ code: 'ERR_OUT_OF_RANGE' }),
      );
    }
  });
});
