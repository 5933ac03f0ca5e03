/**
 * Two builds of this project in turn: cases of the benchmark's experiments from this build and from another,
 * and the ratio of the two inside each round, which judges a change. Machine and other programs change within
 * minutes by more than most changes bring; within a round they do not.
 *
 * Run compiled, with plain node: `node dist/bench/micro/datapath.js [experiments] [rounds] [cases] [other]`;
 * experiments are names of `iwarp bench
 * --list`, separated by commas; `cases` is a regular expression over the cases of this package, written as
 * `rate/64/Write, CRC`; `other` is the folder
 * `dist` of another build. Without it this build alone is measured, beside bare TCP.
 */
import { resolve } from 'node:path';
import { isOurs } from '../cases.ts';
import { goals, sweeps } from '../experiments.ts';
import { runExperiment } from '../runner.ts';
import type { Case, CaseResult, Experiment, Group } from '../types.ts';

const METHOD = { windows: 2, windowMs: 60, latencyMs: 120 };
const USUAL = 'bulk,small,rate,latency';
const OTHER = 'other: ';

const [wanted = USUAL, rounds = '9', pattern = '', folder] = process.argv.slice(2);
const only = new RegExp(pattern);
const other = folder === undefined ? undefined : resolve(folder);

/** The case from the other build, then the case; the group's first base beside all of them. */
function inTurn({ cases, bases }: Group): Group {
  const base = cases.find(({ id }) => id === bases[0]);
  const ours = cases.filter((one) => isOurs(one.spec) && only.test(one.id));
  const twins =
    other === undefined
      ? []
      : ours.map((one): Case => ({ ...one, id: OTHER + one.id, series: OTHER + one.series, build: other }));
  const first = base === undefined || ours.includes(base) || ours.length === 0 ? [] : [base];
  return {
    cases: [...first, ...ours.flatMap((one, i) => (twins[i] === undefined ? [one] : [twins[i], one]))],
    bases: [...bases.slice(0, 1), ...twins.map(({ id }) => id)],
  };
}

const text = (value: number | undefined, digits = 2): string =>
  (value === undefined || !Number.isFinite(value) ? '-' : value.toFixed(digits)).padStart(10);

function row({ unit }: Experiment, base: string | undefined, one: CaseResult): string {
  const { value, cost, latency, ratios } = one;
  const figure = (gbs: number): number => (unit === 'M messages/s' ? (gbs * 1000) / one.spec.size : gbs);
  const toBase = base === undefined ? undefined : ratios[base];
  const last = unit === 'us' ? text(latency?.p99) : text(cost.serverPerByte + cost.clientPerByte, 3);
  return (
    one.id.padEnd(46) +
    text(figure(value.median)) +
    text(figure(value.best)) +
    text(toBase?.median) +
    text(toBase?.low) +
    text(toBase?.high) +
    last +
    text(ratios[OTHER + one.id]?.median)
  );
}

async function measure(experiment: Experiment): Promise<void> {
  const groups = experiment.groups.map(inTurn).filter(({ cases }) => cases.length > 0);
  const { cases, missing } = await runExperiment(
    { ...experiment, groups, careful: true },
    { ...METHOD, rounds: Math.max(1, Number(rounds)) },
    () => undefined,
  );
  const heads = [
    'median',
    'best',
    'to base',
    '25 %',
    '75 %',
    experiment.unit === 'us' ? '99 %' : 'CPU ns/B',
    'to other',
  ];
  console.log(
    `${experiment.id}: ${experiment.unit}\n` +
      `${''.padEnd(46)}${heads.map((head) => head.padStart(10)).join('')}`,
  );
  for (const one of cases)
    console.log(
      row(
        experiment,
        experiment.groups.find((group) => group.cases.some(({ id }) => id === one.id))?.bases[0],
        one,
      ),
    );
  for (const { id, reason } of missing) console.log(`not measured: ${id}: ${reason}`);
  console.log('');
}

const all = [...goals(), ...sweeps()];
const unknown = wanted.split(',').filter((name) => !all.some(({ id }) => id === name));
if (unknown.length > 0) {
  console.error(`${unknown.join(', ')}: the experiments are ${all.map(({ id }) => id).join(', ')}`);
  process.exit(2);
}
for (const experiment of all) if (wanted.split(',').includes(experiment.id)) await measure(experiment);
