/** The endurance programs of `scripts/`, small. */
import { describe, expect, it } from 'vitest';
import { endureMessages, isFlat } from '../../scripts/endure-messages.ts';
import { endureReconnects, isBounded } from '../../scripts/endure-reconnects.ts';
import { endureRequests } from '../../scripts/endure-requests.ts';
import { depth } from '../support/depth.ts';
import { plain } from '../support/plain.ts';

const MOST = depth(1 << 20, 8 << 20);

describe.each(['thread', 'worker'] as const)('engine %s', (engine) => {
  it(`messages of 1 byte to ${MOST >> 20} MiB reach slow readers whole, and memory stays flat`, async () => {
    const peaks = await endureMessages({
      most: MOST,
      pool: 100_000,
      readers: 4,
      rounds: 4,
      engine,
      file: plain('scripts/endure-messages.ts'),
    });
    expect(peaks).toHaveLength(4);
    expect(isFlat(peaks)).toBe(true);
  }, 120_000);

  it('of requests with random aborts each ends once', async () => {
    const requests = depth(3000, 10_000);
    const ends = await endureRequests({
      requests,
      connections: 8,
      under: 200,
      engine,
      seed: 3,
      file: plain('scripts/endure-requests.ts'),
    });
    expect({ ...ends, all: ends.replies + ends.aborts }).toMatchObject({
      wrong: 0,
      doubled: 0,
      all: requests,
    });
    expect(ends.aborts).toBeGreaterThan(30);
  }, 120_000);

  it('beside a peer that reconnects all the time others are served, and memory stays flat', async () => {
    const result = await endureReconnects({
      rate: 0,
      seconds: depth(0.5, 1),
      spans: 2,
      engine,
      limit: 0,
      file: plain('scripts/endure-reconnects.ts'),
    });
    for (const { accepted, served } of result.spans) {
      expect(accepted).toBeGreaterThan(0);
      expect(served).toBeGreaterThan(0);
    }
    expect(isBounded(result)).toBe(true);
  }, 120_000);
});

it('growth is seen', () => {
  expect(isFlat([100, 110, 120, 130])).toBe(true);
  expect(isFlat([100, 110, 120, 140])).toBe(false);
});
