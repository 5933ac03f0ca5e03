/**
 * Copy between octet arrays without a view object for short lengths: a `subarray` costs 24-37 ns, more than a loop over a
 * header-sized run.
 */

// Below this the loop wins over subarray + set (measured: the break-even lies between 32 and 64 octets on V8 11).
const LOOP_MAX = 48;

/** Copy `length` octets from `source[from]` to `target[to]`. Bounds are the caller's duty. */
export function copyBytes(source: Uint8Array, from: number, target: Uint8Array, to: number, length: number): void {
  if (length <= LOOP_MAX) {
    for (let i = 0; i < length; i++) target[to + i] = source[from + i]!;
    return;
  }
  target.set(source.subarray(from, from + length), to);
}
