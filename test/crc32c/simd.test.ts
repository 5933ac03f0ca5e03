/**
 * The mathematics behind the SIMD cascade, checked with independent arithmetic, and the module's memory map.
 */
import { describe, expect, it } from 'vitest';
import { createCrc32cEngine } from '../../src/crc32c/engine.ts';
import { multiply, powerOfOctets, slicingTables } from '../../src/crc32c/polynomial.ts';
import {
  emitSimdModule,
  SIMD_MEMORY,
  simdSupported,
  SPARSE_STAGES,
  SWIZZLE_DISTANCES,
  SWIZZLE_REACH,
  swizzleTables,
} from '../../src/crc32c/simd.ts';
import { SLICING_TABLES_END } from '../../src/crc32c/wasm.ts';
import { bitSerialCrc32c, noise } from './reference.ts';

/** 0x11EDC6F41, highest coefficient first, as a plain BigInt polynomial. */
const P = 0x11edc6f41n;

/** Remainder modulo P by long division of BigInt polynomials. */
function remainder(polynomial: bigint): bigint {
  let rest = polynomial;
  for (let bits = rest.toString(2).length; bits > 32; bits = rest.toString(2).length)
    rest ^= P << BigInt(bits - 33);
  return rest;
}

/** A reflected 32-bit word as a BigInt polynomial. */
function unreflect(word: number): bigint {
  return BigInt(`0b${[...(word >>> 0).toString(2).padStart(32, '0')].reverse().join('')}`);
}

function product(a: bigint, b: bigint): bigint {
  let result = 0n;
  for (let shift = 0n; shift < 33n; shift++) if ((b >> shift) & 1n) result ^= a << shift;
  return result;
}

describe('polynomials modulo P', () => {
  it('multiply and powerOfOctets agree with long division (MPA-051)', () => {
    for (const [a, b] of [
      [1, 2],
      [0x80000000, 0xdeadbeef],
      [0xffffffff, 0xffffffff],
      [0x12345678, 0x9abcdef0],
    ] as const) {
      expect(unreflect(multiply(a, b))).toBe(remainder(product(unreflect(a), unreflect(b))));
    }
    for (const octets of [0, 1, 3, 4, 5, 17, 290]) {
      expect(unreflect(powerOfOctets(octets))).toBe(remainder(1n << BigInt(8 * octets)));
    }
  });

  it('slicing table k is the register after an octet and k zero octets (MPA-051)', () => {
    const tables = slicingTables();
    for (let k = 0; k < 16; k++) {
      for (const value of [0, 1, 0x80, 0xa5, 0xff]) {
        const message = new Uint8Array(1 + k);
        message[0] = value;
        // A register that starts at 0 is a finished value that starts at ~0, and ends complemented.
        expect((tables[256 * k + value] as number) >>> 0).toBe(~bitSerialCrc32c(0xffffffff, message) >>> 0);
      }
    }
  });
});

describe('sparse stages', () => {
  it.each(SPARSE_STAGES)('distances $distances belong to a multiple of P (MPA-051)', ({ distances }) => {
    const reach = Math.max(...distances);
    const sparse = [0, ...distances].reduce((sum, distance) => sum ^ (1n << BigInt(reach - distance)), 0n);
    expect(remainder(sparse)).toBe(0n);
    const scaled = [0, ...distances].reduce((sum, distance) => sum ^ powerOfOctets(reach - distance), 0);
    expect(scaled).toBe(0);
  });

  it('removes no more than what a round can read back: distances are above its 32 octets', () => {
    for (const { distances, from } of SPARSE_STAGES) {
      expect(Math.min(...distances)).toBeGreaterThanOrEqual(32);
      // The head is taken as it is, and a round of them behind it.
      expect(from).toBeGreaterThanOrEqual(Math.max(...distances) + Math.min(...distances) + 32 + 31);
    }
  });

  it('the areas of memory do not overlap', () => {
    const areas = [
      { start: 0, end: SLICING_TABLES_END },
      { start: SIMD_MEMORY.swizzleTables, end: SIMD_MEMORY.swizzleTables + 128 },
      { start: SIMD_MEMORY.folded, end: SIMD_MEMORY.folded + 16 * SWIZZLE_REACH },
      ...SPARSE_STAGES.flatMap(({ distances, scratch, block, tail }) => {
        const reach = Math.max(...distances);
        // Cleared by whole vectors.
        const left = 16 * Math.ceil((reach + 32) / 16);
        return [
          { start: tail, end: tail + left },
          { start: scratch, end: scratch + block + reach + left },
        ];
      }),
      { start: SIMD_MEMORY.end, end: SIMD_MEMORY.end },
    ].toSorted((a, b) => a.start - b.start);
    for (const [index, area] of areas.entries()) {
      expect(area.end).toBeLessThanOrEqual(areas[index + 1]?.start ?? SIMD_MEMORY.end);
    }
  });
});

describe('swizzle fold', () => {
  it('the four octets that replace an octet have its remainder (MPA-051)', () => {
    const tables = swizzleTables();
    const shifted = (octet: number, vectors: number): number =>
      multiply(slicingTables()[octet] as number, powerOfOctets(16 * vectors));
    for (let octet = 0; octet < 256; octet++) {
      const sent = SWIZZLE_DISTANCES.map(
        (_, number) =>
          (tables[32 * number + (octet & 15)] as number) ^
          (tables[32 * number + 16 + (octet >> 4)] as number),
      );
      const sum = SWIZZLE_DISTANCES.reduce(
        (total, distance, number) => total ^ shifted(sent[number] as number, SWIZZLE_REACH - distance),
        0,
      );
      expect(sum >>> 0).toBe(shifted(octet, SWIZZLE_REACH));
    }
  });
});

describe.runIf(simdSupported())('the module', () => {
  it('is small, and the same at every load', () => {
    const bytes = emitSimdModule();
    expect(bytes.length).toBeLessThan(8192);
    expect(Buffer.compare(bytes, emitSimdModule())).toBe(0);
  });

  it('every length around each threshold and each block (MPA-051)', () => {
    const engine = createCrc32cEngine('simd');
    const edges = [256, 600, 24_576, 32_768, 8192 + 290, 16_384 + 290, 32_768 + 5685, 65_536 + 5685];
    const bytes = engine.allocate(75_000);
    bytes.set(noise(75_000, 11));
    for (const edge of edges) {
      // Run the reference once up to the first length, then octet by octet.
      let expected = bitSerialCrc32c(0, bytes, 3, 3 + edge - 130);
      for (let length = edge - 130; length <= edge + 130; length++) {
        if (engine.update(0, bytes, 3, 3 + length) !== expected)
          expect(length).toBe('a length with the right CRC');
        expected = bitSerialCrc32c(expected, bytes, 3 + length, 4 + length);
      }
    }
  });
});
