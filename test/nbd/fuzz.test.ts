/** A bounded run of the fuzzer; `npx tsx test/nbd/fuzz.ts` is the long one. */
import { expect, it } from 'vitest';
import { fuzz, PHASES } from './fuzz.ts';
import { depth } from '../support/depth.ts';

const INPUTS = depth(200, 1000);

it.each(Object.keys(PHASES))(
  `${INPUTS} mutated inputs, %s, are dealt with`,
  async (phase) => {
    const stray: unknown[] = [];
    const hear = (reason: unknown): void => void stray.push(reason);
    process.on('unhandledRejection', hear);
    await fuzz(INPUTS, 20_261_125, [phase]);
    process.off('unhandledRejection', hear);
    expect(stray).toEqual([]);
  },
  600_000,
);
