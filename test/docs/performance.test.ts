/**
 * docs/performance.md and the README show the goals of the run that bench/baseline.json keeps, and nothing
 * typed by hand.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { judgeGoals } from '../../bench/goals.ts';
import type { BaselineRun } from '../../bench/compare.ts';
import {
  ENGINES_PAGE,
  keptRun,
  keptXeonRun,
  PERFORMANCE_PAGE,
  README,
  withEngines,
  withFigures,
  withShortFigures,
  type Kept,
} from '../../scripts/docs-performance.ts';

describe('docs/performance.md', () => {
  const page = readFileSync(PERFORMANCE_PAGE, 'utf8');

  it('is what scripts/docs-performance.ts makes of the kept run', () => {
    expect(page).toBe(withFigures(page, keptRun(), keptXeonRun()));
  });

  it('has its figures in the README too, those of both processors', () => {
    const readme = readFileSync(README, 'utf8');
    expect(readme).toBe(withShortFigures(readme, keptRun(), keptXeonRun()));
    expect(withShortFigures(readme, undefined, undefined)).toContain('| ws | higher | – | – |');
  });

  it('has the costs of the engines in their page', () => {
    const engines = readFileSync(ENGINES_PAGE, 'utf8');
    expect(engines).toBe(withEngines(engines, keptRun(), keptXeonRun()));
    const ratio = { median: 3.4567, low: 3, high: 4, better: 'less' } as const;
    const kept = { ratios: { 'latency/64/Send, CRC, worker : latency/64/TCP, onread': ratio } };
    expect(withEngines(engines, kept, undefined)).toContain('| `worker` | 3.46 / – | – / – |');
  });

  it('names the command of a run, by what its figures tell of it', () => {
    const figure = { median: 1, low: 1, high: 1, best: 1, rounds: 9 };
    const goals = judgeGoals({ experiments: [], probes: [] }).map((goal) => ({
      ...goal,
      figure: { ...figure, rounds: goal.group === 'CRC32c' ? 18 : 9 },
    }));
    const run = (of: BaselineRun['goals']): Kept => ({
      ratios: {},
      run: { started: '2026-01-02T03:04:05Z', seconds: 700, mode: 'full', machine: {}, goals: of },
    });
    expect(withFigures(page, run(goals), undefined)).toContain(
      'Made by `iwarp bench --full --rounds 9 --native-crc FOLDER`.',
    );
    const without = goals.map((goal) => (goal.id === 'crc-native' ? { ...goal, figure: null } : goal));
    expect(withFigures(page, run(without), undefined)).toContain('Made by `iwarp bench --full --rounds 9`.');
  });

  it('gets a row for each goal, and again the same when made twice', () => {
    const goals = judgeGoals({ experiments: [], probes: [] });
    const run: BaselineRun = {
      started: '2026-01-02T03:04:05Z',
      seconds: 700,
      mode: 'full',
      machine: { CPU: 'one', network: 'loopback' },
      goals,
    };
    const kept: Kept = {
      run,
      ratios: {
        'layers/64/Promises, Write : layers/64/ws': { median: 5.123, low: 5, high: 6, better: 'more' },
      },
    };
    const made = withFigures(page, kept, undefined);
    expect(made).toContain(
      'Full run of 2026-01-02 03:04 UTC, 12 minutes: one.\nMade by `iwarp bench --full`.\n',
    );
    expect(made.match(/\*\*not measured\*\*/g)).toHaveLength(goals.length);
    expect(made).toContain('| Promises, Write | – / – / 5.12 | – / – / – |');
    expect(made).toContain('| Awaited `write` of 64 bytes, 64 loops | messages of ws | higher | 5.12 | – |');
    expect(withFigures(made, kept, undefined)).toBe(made);
    expect(made).toContain('No full run has been kept yet.');
    expect(withFigures(page, undefined, kept).match(/\*\*not measured\*\* \|$/gm)).toHaveLength(goals.length);
    expect(() => withFigures('no markers', kept, undefined)).toThrow(/markers/);
  });
});
