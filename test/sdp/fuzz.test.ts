// The fuzzer of fuzz.ts, for as long as a test may take; by hand it sends a million messages and more.
import { expect, it } from 'vitest';
import { depth } from '../support/depth.ts';
import { fuzzSdp } from './fuzz.ts';

/** Where wrong messages have to come to, besides others. */
const STATES = [
  'open, combined here, combined there',
  'open, combined here, combined there, SrcAvail here',
  'open, combined here, combined there, SrcAvail there',
  'open, combined here, combined there, SrcAvail here, cancel here',
  'open, combined here, combined there, SrcAvail there, cancel there',
  'open, pipelined here, combined there, SrcAvail here, SinkAvail there',
  'open, pipelined here, combined there, SrcAvail here',
  'open, pipelined here, pipelined there',
  'open, pipelined here, pipelined there, SinkAvail here',
  'open, buffered here, combined there',
  'ending, combined here, combined there',
  'peer-ended, combined here, combined there',
  'closing, combined here, combined there',
];

const MESSAGES = depth(4000, 10_000);

it(`${MESSAGES} lawful, changed and unlawful messages, at both ends, in every state`, async () => {
  const { ends, states, changed, unlawful } = await fuzzSdp(MESSAGES, 1);
  expect(STATES.filter((state) => !states.has(state))).toEqual([]);
  expect(changed).toBeGreaterThan(MESSAGES / 20);
  expect(unlawful).toBeGreaterThan(MESSAGES / 40);
  expect(ends.get('ECONNRESET')).toBeGreaterThan(MESSAGES / 100);
  expect(ends.get('no code')).toBeUndefined();
}, 120_000);
