/** A bounded run of the fuzzer; `npx tsx test/nbd/fuzz.ts` is the long one. */
import { expect, it } from 'vitest';
import { fuzz, PHASES } from './fuzz.ts';

it.each(Object.keys(PHASES))('1000 mutated inputs, %s, are dealt with', async (phase) => {
  const stray: unknown[] = [];
  const hear = (reason: unknown): void => void stray.push(reason);
  process.on('unhandledRejection', hear);
  await fuzz(1000, 20_261_125, [phase]);
  process.off('unhandledRejection', hear);
  expect(stray).toEqual([]);
});
