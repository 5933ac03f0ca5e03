// The whole fast set against our own stack, in both parts, without a waiver and with only the first of
// several lawful outcomes.

import { expect, it } from 'vitest';
import { faults, fastCases, runAgainstSelf } from './support.ts';

it.each(['initiator', 'responder'] as const)(
  'our own stack passes every case with the probe as %s, strictly and without a waiver',
  async (role) => {
    const results = await runAgainstSelf(fastCases, [role]);
    expect(faults(results)).toEqual([]);
    expect(results.length).toBeGreaterThan(500);
  },
  300_000,
);
