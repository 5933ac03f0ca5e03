/** Randomness as an interface: the core never draws its own. */

import { IwarpError } from './errors.ts';
import { crypto } from './host.ts';

/** A source of uniformly distributed u32 values. */
export type RandomU32 = () => number;

/**
 * A small seeded generator (xorshift-multiply, 32-bit state walked by a Weyl sequence) for tests and fault
 * injection, where a printed seed must give the same run again. Not for STags: those come from the operating
 * system's generator (SEC-009).
 */
export function seededRandom(seed: number): RandomU32 {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e37_79b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0_aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a_2d97);
    return (z ^ (z >>> 15)) >>> 0;
  };
}

/** A u32 from the operating system's generator (SEC-009), drawn in batches. */
const batch = new Uint32Array(256);
let left = 0;
export function systemRandom(): number {
  if (left === 0) {
    if (crypto === undefined)
      throw new IwarpError('ERR_NOT_SUPPORTED', 'this host has no random numbers: there is no crypto');
    crypto.getRandomValues(batch);
    left = batch.length;
  }
  return batch[--left]!;
}
