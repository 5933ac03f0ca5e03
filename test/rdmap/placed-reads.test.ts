/** What a responder may say of Reads that are placed in any order. */
import { expect, it } from 'vitest';
import type { Segment } from '../../src/ddp/wire.ts';
import type { SendWqe } from '../../src/queues/work.ts';
import { WORK } from '../../src/queues/work.ts';
import { aliasOf, MATCH, PlacedReads } from '../../src/rdmap/placed-reads.ts';
import type { Requests } from '../../src/rdmap/reads.ts';

const TOTAL = 4096;
const OFFSET = 100;

function reads(): { placed: PlacedReads; match: (at: number, length: number, stag?: number) => number } {
  const entry = { baseHi: 0, baseLo: 0 };
  const sges = { first: { entry, offset: OFFSET }, usable: () => true };
  const wqe = { kind: WORK.READ, msn: 5, total: TOTAL, received: 0, sges } as unknown as SendWqe;
  const requests = {
    findOutstanding: (fits: (one: SendWqe) => boolean) => (fits(wqe) ? wqe : null),
  } as unknown as Requests;
  const placed = new PlacedReads(requests);
  const match = (at: number, payloadLength: number, stag = aliasOf(5)): number =>
    placed.match({ stag, toHi: 0, toLo: OFFSET + at, payloadLength } as Segment, 0);
  return { placed, match };
}

it('names no Read that is not out, and no octet that it did not ask for', () => {
  const { match } = reads();
  expect(match(0, 8, aliasOf(6))).toBe(MATCH.NONE);
  expect(match(0, 8, 5)).toBe(MATCH.NONE);
  expect(match(-1, 8)).toBe(MATCH.NONE);
  expect(match(TOTAL - 7, 8)).toBe(MATCH.NONE);
  expect(match(TOTAL, 1)).toBe(MATCH.NONE);
  expect(match(0, TOTAL)).toBe(MATCH.WHOLE);
});

it('takes no octet twice, in whatever order they come', () => {
  const { match } = reads();
  expect(match(100, 100)).toBe(MATCH.PART);
  for (const [at, length] of [
    [100, 100],
    [150, 10],
    [99, 2],
    [199, 2],
    [0, 400],
  ] as const)
    expect(match(at, length)).toBe(MATCH.NONE);
  expect(match(200, TOTAL - 200)).toBe(MATCH.PART);
  expect(match(0, 100)).toBe(MATCH.WHOLE);
});

it('keeps 128 ranges of a Read, so that every second octet cannot make its work grow', () => {
  const { match } = reads();
  for (let i = 0; i < 128; i++) expect(match(2 * i, 1)).toBe(MATCH.PART);
  expect(match(1000, 1)).toBe(MATCH.NONE);
  expect(match(1, 1)).toBe(MATCH.PART); // joins two
  expect(match(1000, 1)).toBe(MATCH.PART);
});
