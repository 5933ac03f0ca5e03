// The streams of anything.ts, for as long as a test may take; by hand thousands of them, with up to 16 MiB.
import { expect, it } from 'vitest';
import { anyStreams } from './anything.ts';

it.each([1, 10_001])(
  'the bytes of fifty streams are their bytes, seeds from %i',
  async (seed) => {
    expect(await anyStreams(50, seed, 400_000)).toBeGreaterThan(1_000_000);
  },
  120_000,
);

it('and those of streams of up to 16 MiB', async () => {
  expect(await anyStreams(2, 20_004)).toBeGreaterThan(0);
}, 120_000);
