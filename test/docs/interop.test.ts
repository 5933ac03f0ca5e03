/**
 * The page of each kernel shows its two whole runs, one after the other.
 */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { caseTitle } from '../../conformance/siw/bench.ts';
import { CASES } from '../../conformance/siw/cases.ts';
import type { InteropRecord, RecordedCase } from '../../conformance/siw/report.ts';
import { pages, pairOf, renderInteropPage, RESULTS, type InteropPair } from '../../scripts/docs-interop.ts';

const one = (name: string, more: Partial<RecordedCase> = {}): RecordedCase => ({
  driver: 'stock',
  topic: 'rping',
  tool: 'rping',
  name,
  ours: 'client',
  ok: true,
  detail: 'well',
  seconds: 1,
  ...more,
});
const run = (began: string, cases: readonly RecordedCase[]): InteropRecord => ({
  began,
  seconds: 60,
  peer: 'guest up after 9.8 s (tcg): link siw0/1',
  ours: { engine: 'thread', crc32c: 'simd', receive: 'onread', busyPoll: 50 },
  cases,
});

describe('the page of the interop runs', () => {
  it('join the parts of a run, count, and tell of what failed and of what our side was', () => {
    const first = [run('2026-01-01T10:00:00Z', [one('a'), one('b', { ok: false })])];
    const second = [
      run('2026-01-01T11:30:00Z', [one('b', { ours: 'server' })]),
      run('2026-01-01T11:00:00Z', [one('a', { detail: 'x|y' }), one('kill', { topic: 'killed', ok: false })]),
    ];
    const pair = pairOf(first, second);
    expect(pair.runs.map(({ passed, failed, seconds }) => [passed, failed, seconds])).toEqual([
      [1, 1, 60],
      [2, 1, 120],
    ]);
    expect(pair.peer).toBe('link siw0/1');
    const page = renderInteropPage(pair, { line: '6.1', name: 'interop' });
    for (const words of [
      '2026-01-01 11:00 UTC, 2 passed and 1 failed',
      'engine thread, CRC32c simd, receive onread',
      '| a | our client, stock server | x\\|y | 1 |',
      '| kill | our client, stock server | FAILED | 1 |',
    ])
      expect(page).toContain(words);
    expect(page).toContain('| `rping` | 1 of 1 | 1 of 1 | 0 of 1 |');
  });

  it('show what our proxy stood between, and apart what siw lacks', () => {
    const cases = [
      one('-S 64', { topic: 'proxied', tool: 'fi_pingpong', ours: 'proxy' }),
      one('-q', { topic: 'lacking', ours: 'nothing', detail: '"no": why' }),
    ];
    const page = renderInteropPage(pairOf([], [run('2026-01-01T10:00:00Z', cases)]), {
      line: '6.1',
      name: 'interop',
    });
    for (const words of [
      '| as client | as server | with our proxy between two | killed in the middle |',
      '| `fi_pingpong` |  |  | 1 of 1 |  |',
      '| -S 64 | stock client and server, our proxy | well | 1 |',
      '| `rping -q` | "no": why |',
    ])
      expect(page).toContain(words);
    expect(page).not.toContain('| `rping` |');
  });

  it('are made from the results, and so is the table of peers in the README', () => {
    for (const { file } of RESULTS) expect(existsSync(file)).toBe(true);
    for (const { name, is, shouldBe } of pages())
      expect(is === shouldBe, `${name} is out of date: npx tsx scripts/docs-interop.ts`).toBe(true);
  });

  it.each(RESULTS)('show every case, in each run without a failure: $line', ({ file }) => {
    const { runs, cases } = JSON.parse(readFileSync(file, 'utf8')) as InteropPair;
    const whole = [CASES.length, 0];
    expect(runs.map(({ passed, failed }) => [passed, failed])).toEqual([whole, whole]);
    const title = (each: Pick<RecordedCase, 'driver' | 'tool' | 'name' | 'ours'>): string =>
      `${each.driver} ${caseTitle(each)}`;
    expect(cases.map(title).sort()).toEqual(CASES.map(title).sort());
  });
});
