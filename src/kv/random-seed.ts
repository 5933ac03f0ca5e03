/** Randomness for the hash of a table. */
import { randomInt } from 'node:crypto';

/** A u32 that clients of the edges cannot guess. */
export function randomSeed(): number {
  return randomInt(0, 2 ** 32);
}
