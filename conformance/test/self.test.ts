// The fast set, or a fourth of it, against our own stack, in both parts, without a waiver and with only the
// first of several lawful outcomes.

import { expect, it } from 'vitest';
import { faults, fastCases, runAgainstSelf } from './support.ts';

/** The gate has a step that runs them all; `npm run judges depth` sets this. */
const FULL = process.env['IWARP_DEPTH'] === 'full';

it.each(['initiator', 'responder'] as const)(
  'our own stack passes every case with the probe as %s, strictly and without a waiver',
  async (role) => {
    const some = fastCases.filter((_case, i) => FULL || i % 4 === 0);
    const results = await runAgainstSelf(some, [role]);
    expect(faults(results)).toEqual([]);
    expect(results.length).toBeGreaterThan(FULL ? 500 : 125);
  },
  300_000,
);
