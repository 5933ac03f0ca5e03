/**
 * The fault matrix: a program over `iwarp` in both engines, and the same program over ws with and without
 * pings by hand, through every fault. Each operation has to end within its time, none may be lost or doubled,
 * and the program has to go on by itself.
 *
 *   npx tsx scripts/faults.ts [--runs N] [--ws N] [--seed N] [--jobs N] [--scenario TEXT] [--subject NAME]
 *       [--log FILE] [--write]
 *
 * Each engine has `--runs` runs (216: twelve seeds for each scenario) and each program over ws `--ws` (36),
 * which take the scenarios in turn; run number i has the seed plus i. All of it takes some minutes.
 * Each outcome goes into the file of `--log`, and one that is there already is not run again. `--write` puts
 * the table into docs/production.md. The status is 1 if a program over `iwarp` has failed.
 */
import { execFile } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { parseArgs, promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { run, SCENARIOS, type Outcome } from './faults/run.ts';
import { LIMIT, SUBJECTS, engineOf, type Subject } from './faults/subjects.ts';
import { between } from './marked.ts';

const PAGE = fileURLToPath(new URL('../docs/production.md', import.meta.url));
const MARKS = ['<!-- faults: made by scripts/faults.ts -->', '<!-- end of the faults -->'] as const;
const DEAD_PATH = 'dead path';

/** A run in separate namespaces. */
export async function deadPath(subject: Subject, seed: number): Promise<Outcome> {
  const program = fileURLToPath(new URL('faults/dead-path.ts', import.meta.url));
  const { stdout } = await promisify(execFile)('unshare', [
    '-rn',
    process.execPath,
    '--import',
    'tsx',
    program,
    subject,
    String(seed),
  ]);
  return JSON.parse(stdout) as Outcome;
}

/** Whether a run did what it has to. */
export const isFine = ({ late, lost, doubled, wrong, again }: Outcome): boolean =>
  late + lost + doubled + wrong === 0 && again !== null;

const ALL = [...Object.keys(SCENARIOS), DEAD_PATH];

const seconds = (ms: number): string => (ms / 1000).toFixed(2);
const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!;

function cellOf(outcomes: readonly Outcome[]): string {
  if (outcomes.length === 0) return '–';
  const sum = (name: 'late' | 'lost' | 'doubled' | 'wrong'): number =>
    outcomes.reduce((all, one) => all + one[name], 0);
  const faults = (['late', 'lost', 'doubled', 'wrong'] as const)
    .filter((name) => sum(name) > 0)
    .map((name) => `${sum(name)} ${name}`);
  const back = outcomes.flatMap(({ again }) => (again === null ? [] : [again]));
  const never = outcomes.length - back.length;
  const times = back.length === 0 ? [] : [`${seconds(median(back))} s (${seconds(Math.max(...back))} s)`];
  return [...times, ...(never > 0 ? [`never in ${never} of ${outcomes.length}`] : []), ...faults].join(', ');
}

export function table(outcomes: readonly Outcome[]): string {
  const of = (subject: Subject, scenario?: string): Outcome[] =>
    outcomes.filter((one) => one.subject === subject && (scenario ?? one.scenario) === one.scenario);
  const sums = (subject: Subject): string => {
    const mine = of(subject);
    const sum = (value: (one: Outcome) => number): number => mine.reduce((all, one) => all + value(one), 0);
    const [late, lost, doubled] = [sum((one) => one.late), sum((one) => one.lost), sum((one) => one.doubled)];
    return (
      `${mine.length} runs, ${sum((one) => one.calls).toLocaleString('en-US')} operations: ` +
      `${late} late, ${lost} lost, ${doubled} doubled; the longest ` +
      `${seconds(Math.max(0, ...mine.map((one) => one.longest)))} s`
    );
  };
  const rows = [
    `| Fault | ${SUBJECTS.join(' | ')} |`,
    `|---|${SUBJECTS.map(() => '---').join('|')}|`,
    ...ALL.map((name) => `| ${name} | ${SUBJECTS.map((subject) => cellOf(of(subject, name))).join(' | ')} |`),
    `| all | ${SUBJECTS.map(sums).join(' | ')} |`,
  ];
  return rows.join('\n');
}

/** The sentences below the table. */
function settings(outcomes: readonly Outcome[], load: number): string {
  const held = outcomes.reduce((sum, one) => sum + one.heldUp, 0);
  const seeds = outcomes.map(({ seed }) => seed);
  const range = `Seeds ${Math.min(...seeds)} to ${Math.max(...seeds)}`;
  const machine = `Node ${process.versions.node}, ${cpus().length} processors`;
  return [
    `Each operation may take ${LIMIT} ms. ${range}, ${machine} with a load of ${load.toFixed(1)}`,
    `at the start. The process that measures waited ${seconds(held)} s for a processor in all.`,
  ].join('\n');
}

interface Plan {
  readonly subject: Subject;
  readonly scenario: string;
  readonly seed: number;
}

/** Outcomes of an earlier run with the same file. */
function logged(log: string | undefined, plans: readonly Plan[]): Outcome[] {
  const text = log !== undefined && existsSync(log) ? readFileSync(log, 'utf8') : '';
  const all = text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line) as Outcome]));
  return all.filter((one) => plans.some((plan) => isOf(plan, one)));
}

const isOf = (plan: Plan, { subject, scenario, seed }: Plan): boolean =>
  plan.subject === subject && plan.scenario === scenario && plan.seed === seed;

async function execute(plans: readonly Plan[], jobs: number, log: string | undefined): Promise<Outcome[]> {
  const outcomes = logged(log, plans);
  const left = plans.filter((plan) => !outcomes.some((one) => isOf(plan, one)));
  const worker = async (): Promise<void> => {
    for (let plan = left.shift(); plan !== undefined; plan = left.shift()) {
      const { subject, scenario, seed } = plan;
      const go = scenario === DEAD_PATH ? deadPath(subject, seed) : run(subject, scenario, seed);
      const outcome = await go;
      outcomes.push(outcome);
      if (log !== undefined) appendFileSync(log, `${JSON.stringify(outcome)}\n`);
      const word = isFine(outcome) ? 'ok    ' : 'FAILED';
      if (!isFine(outcome) || outcomes.length % 20 === 0)
        console.log(`${word} ${outcomes.length}/${plans.length} ${JSON.stringify(outcome)}`);
    }
  };
  await Promise.all(Array.from({ length: jobs }, worker));
  return outcomes;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      runs: { type: 'string', default: '216' },
      ws: { type: 'string', default: '36' },
      seed: { type: 'string', default: '1' },
      jobs: { type: 'string', default: '3' },
      scenario: { type: 'string', default: '' },
      subject: { type: 'string', default: '' },
      log: { type: 'string' },
      write: { type: 'boolean', default: false },
    },
  });
  const scenarios = ALL.filter((name) => name.includes(values.scenario));
  const subjects = SUBJECTS.filter((name) => values.subject === '' || name === values.subject);
  const first = Number(values.seed);
  const runs = (subject: Subject): number => Number(engineOf(subject) === null ? values.ws : values.runs);
  const plans = subjects.flatMap((subject) =>
    Array.from({ length: runs(subject) }, (_, i) => ({
      subject,
      scenario: scenarios[i % scenarios.length]!,
      seed: first + i,
    })),
  );
  const load = loadavg()[0]!;
  const outcomes = await execute(plans, Number(values.jobs), values.log);
  const text = `${table(outcomes)}\n\n${settings(outcomes, load)}`;
  console.log(text);
  if (values.write) {
    const page = readFileSync(PAGE, 'utf8');
    writeFileSync(PAGE, between(page, PAGE, MARKS, text));
  }
  return outcomes.some((one) => engineOf(one.subject) !== null && !isFine(one)) ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exit(await main());
