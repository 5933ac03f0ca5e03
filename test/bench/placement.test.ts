/** The figure of placement under loss has its place in the report: the plot, its sentence, all its points. */
import { expect, it } from 'vitest';
import { judgeGoals } from '../../bench/goals.ts';
import { placement } from '../../bench/probes/placement.ts';
import { report } from '../../bench/report/html.ts';
import { answers } from '../../bench/scenarios.ts';

it('the report plots what becomes of segments above a hole, and says what is seen', {
  timeout: 60_000,
}, async () => {
  const method = { rounds: 1, windows: 1, windowMs: 1, latencyMs: 1 };
  const probe = await placement.run(method, () => undefined);
  // Losses 0 to 5 % and reordering 1 to 10 %, three receivers each.
  expect(probe.rows.length).toBe((6 + 4) * 3);
  const held = (label: string): unknown => probe.rows.find((row) => row.label === label)!.cells[3];
  expect(held('loss 5 %, placing')).toBeLessThan(3);
  expect(held('loss 5 %, ordered')).toBeGreaterThan(50);
  expect(probe.ratios[0]!.spread.median).toBeGreaterThan(0.8);
  const html = report({
    schema: 'iwarp-bench/2',
    mode: 'only',
    started: 'now',
    seconds: 1,
    machine: {},
    durations: {},
    method,
    experiments: [],
    probes: [probe],
    scenarios: answers([], [probe]),
    goals: judgeGoals({ experiments: [], probes: [probe] }),
  });
  for (const part of [
    'arrival to placement, mean ms',
    'memory held, KB at most',
    'goodput, MB/s',
    'A placing receiver has every segment in its place when it arrives',
    'at 1 % loss a placing receiver has each segment in its place after 0.000 ms',
  ])
    expect(html).toContain(part);
});
