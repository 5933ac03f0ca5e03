/** docs/performance.md and the README show the goals of the run that bench/baseline.json keeps, and nothing typed by hand. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judgeGoals } from '../../bench/goals.ts';
import type { BaselineRun } from '../../bench/compare.ts';
import { keptRun, keptXeonRun, PERFORMANCE_PAGE, README, withFigures, withShortFigures, type Kept } from '../../scripts/docs-performance.ts';

describe('docs/performance.md', () => {
  const page = readFileSync(PERFORMANCE_PAGE, 'utf8');

  it('is what scripts/docs-performance.ts makes of the kept run', () => {
    expect(page).toBe(withFigures(page, keptRun(), keptXeonRun()));
  });

  it('has its figures in the README too', () => {
    const readme = readFileSync(README, 'utf8');
    expect(readme).toBe(withShortFigures(readme, keptRun()));
    expect(withShortFigures(readme, undefined)).toContain('– times ws');
  });

  it('gets a row for each goal, and again the same when made twice', () => {
    const goals = judgeGoals({ experiments: [], probes: [] });
    const run: BaselineRun = { started: '2026-01-02T03:04:05Z', seconds: 700, mode: 'full', machine: { CPU: 'one', network: 'loopback' }, goals };
    const kept: Kept = { run, ratios: { 'layers/64/Promises, Write : layers/64/ws': { median: 5.123, low: 5, high: 6, better: 'more' } } };
    const made = withFigures(page, kept, undefined);
    expect(made).toContain('Full run of 2026-01-02 03:04 UTC, 12 minutes: one.');
    expect(made.match(/\*\*not measured\*\*/g)).toHaveLength(goals.length);
    expect(made).toContain('| Promises, Write | – / – / 5.12 | – / – / – |');
    expect(withShortFigures(readFileSync(README, 'utf8'), kept)).toContain('Writes 5.12 times, Sends – times');
    expect(withFigures(made, kept, undefined)).toBe(made);
    expect(made).toContain('No full run has been kept yet.');
    expect(withFigures(page, undefined, kept).match(/\*\*not measured\*\* \|$/gm)).toHaveLength(goals.length);
    expect(() => withFigures('no markers', kept, undefined)).toThrow(/markers/);
  });
});
