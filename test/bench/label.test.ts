/** What the lines of a report are called. */
import { expect, it } from 'vitest';
import { goals } from '../../bench/experiments.ts';
import { labelOf } from '../../bench/report/label.ts';
import type { CaseResult, ExperimentResult } from '../../bench/types.ts';

it.each(goals().map((experiment) => [experiment.id, experiment] as const))(
  'every line of the goals has a name of its own: %s',
  (_id, { groups }) => {
    const cases = groups.flatMap(({ cases: list }) => list) as unknown as CaseResult[];
    const labels = cases.map((one) => labelOf({ cases } as unknown as ExperimentResult, one));
    expect(new Set(labels).size).toBe(labels.length);
  },
);

it('lines of one series are distinguished by their connections', () => {
  const { groups } = goals().find(({ id }) => id === 'spread')!;
  const cases = groups[0]!.cases as unknown as CaseResult[];
  const labels = cases.map((one) => labelOf({ cases } as unknown as ExperimentResult, one));
  expect(labels).toContain('1 connection, 500 under way');
  expect(labels).toContain('64 connections, 32000 under way');
  expect(labels).toContain('TCP, 7 messages a writev');
});
