/**
 * 64-bit values as two u32 halves.
 *
 * Tagged offsets are (hi, lo) inside: storing one as BigInt costs nine times a whole 16-byte header written
 * through a DataView (4 ns against 37; "write a tagged header" of bench/micro/guard.ts). BigInt appears only
 * where a public signature needs it.
 */
import { IwarpError, show } from './errors.ts';

const TWO_32 = 0x1_0000_0000;

/**
 * A 64-bit cell and its halves. A value stored here is taken modulo 2^64, in one instruction; shifts, masks
 * and comparisons of bigints are calls, and objects: checking and halving one took 48 ns so, and takes 6.
 * Each Write has one: `rate` of bench/micro/datapath.ts.
 */
const cell = new BigUint64Array(1);
const halves = new Uint32Array(cell.buffer);
cell[0] = 1n;
/** This machine's byte order. */
export const LITTLE_ENDIAN: boolean = halves[0] === 1;
/** Where the lower half stands. */
const LOWER = LITTLE_ENDIAN ? 0 : 1;
const UPPER = 1 - LOWER;

/** The upper 32 bits of a bigint, taken modulo 2^64, or safe integer. */
export function hi32(value: bigint | number): number {
  if (typeof value === 'number') return value < TWO_32 ? 0 : Math.floor(value / TWO_32);
  cell[0] = value;
  return halves[UPPER]!;
}

/** The lower 32 bits of a bigint or safe integer. */
export function lo32(value: bigint | number): number {
  if (typeof value === 'number') return value >>> 0;
  cell[0] = value;
  return halves[LOWER]!;
}

/** Both halves as a bigint. */
export function toBigInt(hi: number, lo: number): bigint {
  halves[UPPER] = hi;
  halves[LOWER] = lo;
  return cell[0]!;
}

const MAX_SAFE = BigInt(Number.MAX_SAFE_INTEGER);

/** `value` as a number where one can hold it: halving that costs a tenth of halving a bigint. */
export function asNumberIfSafe(value: bigint): bigint | number {
  return value <= MAX_SAFE ? Number(value) : value;
}

/** `value` + `add`, a number for as long as one can hold it; `add` is a safe integer. */
export function plus(value: bigint | number, add: number): bigint | number {
  if (typeof value === 'bigint') return value + BigInt(add);
  return value + add <= Number.MAX_SAFE_INTEGER ? value + add : BigInt(value) + BigInt(add);
}

/** The upper half of (hi, lo) + add, modulo 2^64; `add` is 0..2^53. */
export function addHi(hi: number, lo: number, add: number): number {
  const sum = lo + add;
  return sum < TWO_32 ? hi : (hi + Math.floor(sum / TWO_32)) >>> 0;
}

/** The lower half of (hi, lo) + add. */
export function addLo(lo: number, add: number): number {
  // The modulo keeps the sum exact: `lo + add` may pass 2^53 only when add does, and callers stay below 2^52.
  const sum = lo + add;
  return sum < TWO_32 ? sum : (sum % TWO_32) >>> 0;
}

/**
 * True if (hi, lo) + add passes 2^64. A sum of exactly 2^64 wraps too: its last byte is still addressable,
 * so it does not count.
 */
export function addWraps(hi: number, lo: number, add: number): boolean {
  const sum = lo + add;
  if (sum <= TWO_32) return false;
  const carry = Math.floor(sum / TWO_32);
  const top = hi + carry;
  return top > 0xffff_ffff && !(top === TWO_32 && sum % TWO_32 === 0);
}

/**
 * (hi, lo) - (baseHi, baseLo) as a number: negative when below the base. Exact while the difference is under
 * 2^53, and past that still on the right side of any region length, which is all that the bounds check needs.
 */
export function distance(hi: number, lo: number, baseHi: number, baseLo: number): number {
  return (hi - baseHi) * TWO_32 + (lo - baseLo);
}

/** True for an integer from 0 to 2^32 - 1. */
export function isU32(value: unknown): value is number {
  return typeof value === 'number' && value >>> 0 === value;
}

/** True for a bigint or safe integer from 0 to 2^64 - 1. */
export function isU64(value: unknown): value is bigint | number {
  return halve(value);
}

/** {@link isU64}, and then the halves of `value` are {@link upper} and {@link lower}. */
export function halve(value: unknown): boolean {
  if (typeof value === 'bigint') {
    cell[0] = value;
    return cell[0] === value;
  }
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) return false;
  // A store takes the integer part, modulo 2^32.
  halves[UPPER] = value / TWO_32;
  halves[LOWER] = value;
  return true;
}

/** The upper half of the value that was last given to {@link halve}. */
export function upper(): number {
  return halves[UPPER]!;
}

/** The lower half of the value that was last given to {@link halve}. */
export function lower(): number {
  return halves[LOWER]!;
}

/** Throws ERR_INVALID_ARGUMENT unless `value` is a bigint or safe integer from 0 to 2^64 - 1; returns it. */
export function checkU64(name: string, value: unknown): bigint | number {
  if (isU64(value)) return value;
  throw new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `${name} must be an unsigned 64-bit integer (bigint or safe integer), got ${show(value)}`,
  );
}
