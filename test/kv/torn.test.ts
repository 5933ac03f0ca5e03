// A bounded run of torn.ts; by hand it makes ten million Reads.
import { expect, it } from 'vitest';
import { readWhileWritten } from './torn.ts';
import { depth } from '../support/depth.ts';

const READS = depth(30_000, 100_000);

it('a hundred thousand Reads of values that another process rewrites: none torn, none stale', async () => {
  const { reads, found, torn, rounds } = await readWhileWritten(READS, 4);
  expect(reads).toBeGreaterThanOrEqual(READS);
  expect(found).toBeGreaterThan(READS / 10);
  // Without these the run would have shown nothing.
  expect(torn).toBeGreaterThan(100);
  expect(rounds).toBeGreaterThan(READS / 10);
}, 120_000);
