// The fuzzer of fuzz.ts, for as long as a test may take; by hand it takes a million inputs and more.
import { expect, it } from 'vitest';
import { fuzzStore } from './fuzz.ts';

it.each([1, 2, 3])('twenty thousand changed requests and tables, seed %d', (seed) => {
  const counts = fuzzStore(20_000, seed);
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(2000);
});
