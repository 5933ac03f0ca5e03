// A bounded run of torn.ts; by hand it makes ten million Reads.
import { expect, it } from 'vitest';
import { readWhileWritten } from './torn.ts';

it('a hundred thousand Reads of values that another process rewrites: none torn, none stale', async () => {
  const { reads, found, torn, rounds } = await readWhileWritten(100_000, 4);
  expect(reads).toBeGreaterThanOrEqual(100_000);
  expect(found).toBeGreaterThan(10_000);
  // Without these the run would have shown nothing.
  expect(torn).toBeGreaterThan(100);
  expect(rounds).toBeGreaterThan(10_000);
}, 120_000);
