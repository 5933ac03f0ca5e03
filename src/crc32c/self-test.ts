/**
 * The test an engine has to pass before it is used by default: known values, and agreement with a byte-wise CRC on lengths that
 * enter every stage of every engine. It takes well under a millisecond once compiled.
 */
import type { Crc32cEngine } from './engine.ts';
import { slicingTables } from './polynomial.ts';

/** ASCII "123456789" and its CRC32c, the customary check value. */
const CHECK_INPUT = '123456789';
const CHECK_VALUE = 0xe3069283;

/**
 * What running on over a message and its own CRC field gives, whatever the message: the remainder of the complement. RFC 3720
 * section 12.1 states it as 0x1c2d19ed, this is its reflected, complemented form.
 */
export const CRC32C_RESIDUE = 0x48674bc7;

/** One length in every stage of the longest cascade (simd.ts), none of them a multiple of anything it works in. */
const LENGTHS = [3, 61, 301, 1459, 20_011] as const;

/** What is wrong with the engine, or undefined. */
export function firstFault(engine: Crc32cEngine): string | undefined {
  const size = Math.max(...LENGTHS) + 1;
  const foreign = new Uint8Array(size);
  const own = engine.allocate(size);
  try {
    for (const bytes of [foreign, own]) {
      for (let i = 0; i < CHECK_INPUT.length; i++) bytes[i] = CHECK_INPUT.charCodeAt(i);
      if (engine.update(0, bytes, 0, CHECK_INPUT.length) !== CHECK_VALUE) return 'check value';
      // A multiplicative sequence: every octet value occurs, neighbours differ, and it is the same on every machine.
      for (let i = 0, x = 1; i < size; i++, x = Math.imul(x, 0x9e3779b1) + 1) bytes[i] = x >>> 24;
      for (const length of LENGTHS) {
        if (engine.update(CHECK_VALUE, bytes, 1, 1 + length) !== byTable(CHECK_VALUE, bytes, 1, 1 + length)) {
          return `length ${length}`;
        }
      }
    }
    return undefined;
  } finally {
    engine.release(own);
  }
}

function byTable(crc: number, bytes: Uint8Array, start: number, end: number): number {
  const table = slicingTables();
  let register = ~crc;
  for (let i = start; i < end; i++) {
    register = (table[(register ^ (bytes[i] as number)) & 255] as number) ^ (register >>> 8);
  }
  return ~register >>> 0;
}
