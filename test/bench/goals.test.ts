/**
 * The goals find their figures in a run, judge them the right way round, and name only cases and ratios that
 * exist.
 */
import { describe, expect, it } from 'vitest';
import { goalCounts, GOALS, goalsMarkdown, judgedNow, judgeGoals } from '../../bench/goals.ts';
import { everything } from '../../bench/scenarios.ts';
import type { CaseResult, ExperimentResult, ProbeResult, Spread } from '../../bench/types.ts';

const of = (low: number, median: number, high: number): Spread => ({
  low,
  median,
  high,
  best: high,
  rounds: 7,
});

function experiment(ratios: Readonly<Record<string, Readonly<Record<string, Spread>>>>): ExperimentResult {
  const cases = Object.entries(ratios).map(
    ([id, to]) => ({ id, ratios: to, disturbed: id.includes('Read') }) as unknown as CaseResult,
  );
  return { id: 'x', title: '', test: 'bw', axis: 'case', unit: 'GB/s', about: '', cases, missing: [] };
}

function probe(id: string, spread: Spread): ProbeResult {
  return {
    id: 'p',
    title: '',
    about: '',
    columns: [],
    rows: [],
    charts: [],
    ratios: [{ id, better: 'less', spread }],
    missing: [],
    disturbed: false,
  };
}

const verdict = (id: string, experiments: ExperimentResult[], probes: ProbeResult[] = []): unknown =>
  judgeGoals({ experiments, probes }).find((goal) => goal.id === id);

describe('the goals', () => {
  const bulk = 'bulk/1048576/';

  it.each([
    [of(0.8, 0.91, 0.95), 'met'],
    [of(0.8, 0.88, 0.95), 'in the spread'],
    [of(0.6, 0.7, 0.8), 'missed'],
  ] as const)('of what shall be more: %j is %s', (spread, expected) => {
    expect(
      verdict('write-off', [experiment({ [`${bulk}Write, no CRC`]: { [`${bulk}TCP, onread`]: spread } })]),
    ).toMatchObject({ verdict: expected, figure: spread, disturbed: false });
  });

  it.each([
    [of(0.9, 1, 1.2), 'met'],
    [of(1, 1.2, 1.3), 'in the spread'],
    [of(1.2, 1.3, 1.4), 'missed'],
  ] as const)('of what shall be less: %j is %s', (spread, expected) => {
    const trip = 'latency/64/';
    expect(
      verdict('latency', [experiment({ [`${trip}Send, CRC`]: { [`${trip}TCP, onread`]: spread } })]),
    ).toMatchObject({ verdict: expected });
  });

  it('compare with nothing but bare sockets and ourselves: the rest are figures', () => {
    const text = (from: object): string => JSON.stringify(from);
    const others = GOALS.filter(({ from }) => /'data'|\bws\b|grpc/.test(text(from)));
    expect(others.map(({ id, goal }) => [id, goal])).toEqual(
      ['write-off-data', 'write-on-data', 'ws', 'grpc', 'latency-data', 'idle', 'idle-silent'].map((id) => [
        id,
        null,
      ]),
    );
    const seen = [probe("idle/iwarp : TCP, 'data'", of(5, 6, 7))];
    expect(verdict('idle', [], seen)).toMatchObject({ goal: '–', verdict: 'no goal', figure: of(5, 6, 7) });
    const judged = judgeGoals({ experiments: [], probes: seen });
    expect(goalCounts(judged)).toMatchObject({ all: GOALS.length - 7, figures: 7 });
    expect(goalCounts(judged).of('not measured')).toBe(GOALS.length - 7);
  });

  it('that were dropped after a run was kept are figures of it', () => {
    const kept = judgeGoals({ experiments: [], probes: [] }).map((goal) => ({
      ...goal,
      ...{ goal: 'at least 1', verdict: 'missed' as const, figure: of(1, 1, 1) },
    }));
    expect(goalCounts(judgedNow(kept)).of('missed')).toBe(GOALS.length - 7);
    expect(judgedNow(kept).find(({ id }) => id === 'ws')).toMatchObject({ goal: '–', verdict: 'no goal' });
  });

  it('are judged by the worst where several cases answer, and only if all were measured', () => {
    const base = 'spread/1/Write, CRC';
    const cases = {
      'spread-each/4/Write, CRC': { [base]: of(1, 1.1, 1.2) },
      'spread-each/16/Write, CRC': { [base]: of(0.5, 0.6, 0.7) },
      'spread-each/64/Write, CRC': { [base]: of(0.9, 1, 1.1) },
    };
    expect(verdict('connections', [experiment(cases)])).toMatchObject({
      verdict: 'missed',
      figure: { median: 0.6 },
    });
    expect(
      verdict('connections', [experiment({ 'spread-each/4/Write, CRC': cases['spread-each/4/Write, CRC'] })]),
    ).toMatchObject({ verdict: 'not measured', figure: null });
  });

  it('say when what they stand on was disturbed, and when null came out of a file', () => {
    const on = [experiment({ [`${bulk}Read, CRC`]: { [`${bulk}Write, CRC`]: of(1, 1, 1) } })];
    expect(verdict('read-on', on)).toMatchObject({ verdict: 'met', disturbed: true });
    expect(
      verdict(
        'ring',
        [],
        [
          probe('handover/ring, 256 under way : a message each', {
            ...of(1, 1, 1),
            median: null as unknown as number,
          }),
        ],
      ),
    ).toMatchObject({ verdict: 'not measured' });
  });

  it('name cases and bases that a full run measures together', () => {
    const groups = everything().experiments.flatMap(({ groups: all }) => all);
    for (const { id, from } of GOALS) {
      if ('ratio' in from) continue;
      const ids = 'of' in from ? [from.of] : from.worst;
      for (const one of ids) {
        const group = groups.find(({ cases }) => cases.some((each) => each.id === one));
        expect([id, group?.bases.includes(from.to)]).toEqual([id, true]);
      }
    }
  });

  it('are a table of Markdown with a row for each', () => {
    const lines = goalsMarkdown(judgeGoals({ experiments: [], probes: [] })).split('\n');
    expect(lines).toHaveLength(GOALS.length + 2);
    for (const line of lines.slice(2))
      expect(line).toMatch(/^\| .* \| .* \| – \| – \| \*\*not measured\*\* \| .+ \|$/);
  });
});
