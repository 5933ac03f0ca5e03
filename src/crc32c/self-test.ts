/**
 * The test an engine has to pass before it is used, in every thread: known values, and agreement with a
 * byte-wise CRC on lengths that enter every stage of every engine. The byte-wise values are computed once.
 */
import { TextEncoder } from '../base/host.ts';
import type { Crc32cEngine } from './types.ts';
import { slicingTables } from './polynomial.ts';

/** ASCII "123456789" and its CRC32c, the customary check value. */
const CHECK_INPUT = '123456789';
const CHECK_VALUE = 0xe3069283;

/**
 * One length in every stage of the longest cascade (simd.ts), none of them a multiple of anything it works
 * in.
 */
const LENGTHS = [3, 61, 301, 1459, 40_009] as const;

/** The fault of the engine in words; undefined if it has none. */
export function firstFault(engine: Crc32cEngine): string | undefined {
  const { bytes, values } = (expected ??= makeExpected());
  const own = engine.allocate(bytes.length);
  try {
    own.set(bytes);
    return faultIn(engine, bytes, values) ?? faultIn(engine, own, values);
  } finally {
    engine.release(own);
  }
}

function faultIn(engine: Crc32cEngine, bytes: Uint8Array, values: readonly number[]): string | undefined {
  if (engine.update(0, bytes, 0, CHECK_INPUT.length) !== CHECK_VALUE) return 'check value';
  if (engine.updateSigned(0, bytes, 0, CHECK_INPUT.length) !== (CHECK_VALUE | 0)) return 'signed check value';
  const wrong = LENGTHS.findIndex((length, index) => {
    // From a carried value, at an odd address.
    return (
      engine.update(CHECK_VALUE, bytes, CHECK_INPUT.length, CHECK_INPUT.length + length) !== values[index]
    );
  });
  return wrong === -1 ? undefined : `length ${LENGTHS[wrong]}`;
}

interface Expected {
  /** The check input, then as many bytes as the longest length. */
  readonly bytes: Uint8Array;
  /** For each length, the value of the check input and as many bytes after it. */
  readonly values: readonly number[];
}

let expected: Expected | undefined;

function makeExpected(): Expected {
  const first = CHECK_INPUT.length;
  const bytes = new Uint8Array(first + Math.max(...LENGTHS));
  // A multiplicative sequence: every octet value occurs, neighbours differ, and it is the same on every
  // machine.
  for (let i = 0, x = 1; i < bytes.length; i++, x = Math.imul(x, 0x9e3779b1) + 1) bytes[i] = x >>> 24;
  bytes.set(new TextEncoder().encode(CHECK_INPUT));
  const table = slicingTables();
  const values: number[] = [];
  let register = ~CHECK_VALUE;
  for (let i = first; i < bytes.length; i++) {
    register = (table[(register ^ (bytes[i] as number)) & 255] as number) ^ (register >>> 8);
    const index = LENGTHS.indexOf((i + 1 - first) as (typeof LENGTHS)[number]);
    if (index !== -1) values[index] = ~register >>> 0;
  }
  return { bytes, values };
}
