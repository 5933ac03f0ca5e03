/** `iwarp bench`: measure, print, write, compare. See docs/benchmarks.md for what the figures mean. */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { baselineOf, compare, compareText, ofProcessor, sameProcessor, type Baseline, type BaselineRun } from './compare.ts';
import { custom, goals } from './experiments.ts';
import { goalsTable, judgeGoals } from './goals.ts';
import { describeMachine, processor } from './machine.ts';
import { buildNative } from './native.ts';
import { parseBench, partNames, USAGE, type BenchOptions } from './options.ts';
import type { Probe, Progress } from './probes/probe.ts';
import { probeTable, table } from './report/table.ts';
import { expectedSeconds, runExperiment } from './runner.ts';
import { answers, everything, SCENARIOS } from './scenarios.ts';
import type { Experiment, ExperimentResult, ProbeResult, RunResult } from './types.ts';

const SCHEMA = 'iwarp-bench/2';
const say = (text: string): void => void process.stdout.write(`${text}\n`);

/** The committed baselines, also when this file has been compiled into dist/bench/. Ratios differ from one kind of processor to the other. */
const BASELINES = ['baseline.json', 'baseline-xeon.json'] as const;

function committed(): { readonly path: string; readonly run?: BaselineRun | undefined }[] {
  const folders = ['.', '../../bench'].map((place) => fileURLToPath(new URL(place, import.meta.url)));
  const folder = folders.find((place) => existsSync(join(place, BASELINES[0]))) ?? folders.at(-1)!;
  return BASELINES.map((name) => join(folder, name)).filter((path) => existsSync(path)).map((path) => ({ path, run: readBaseline(path).run }));
}

/** Where the ratios of this machine are kept: told before half an hour of measuring, for they may not take the place of another processor's. */
function placeToKeep({ baseline }: BenchOptions, CPU: string | undefined): string {
  if (baseline !== undefined) return baseline;
  const own = ofProcessor(committed(), CPU);
  if (own === undefined) throw new Error(`no baseline is of this processor, ${CPU}: name a file for it with --baseline`);
  return own.path;
}

const readBaseline = (path: string): Baseline => JSON.parse(readFileSync(path, 'utf8')) as Baseline;

/** What is said of the figures. */
function said(experiments: readonly ExperimentResult[], probes: readonly ProbeResult[]): Pick<RunResult, 'scenarios' | 'goals'> {
  return { scenarios: answers(experiments, probes), goals: judgeGoals({ experiments, probes }) };
}

/** What is to be measured, in order. */
interface Plan {
  readonly experiments: readonly Experiment[];
  readonly probes: readonly Probe[];
}

function planned(options: BenchOptions): Plan {
  const { experiments, probes } = everything();
  switch (options.mode) {
    case 'custom':
      return { experiments: [custom(options.wish!)], probes: [] };
    case 'full':
      return { experiments, probes };
    case 'only':
    case 'scenario':
      return { experiments: experiments.filter(({ id }) => options.parts.includes(id)), probes: probes.filter(({ id }) => options.parts.includes(id)) };
    default:
      return { experiments: goals(), probes: probes.filter(({ id }) => id === 'micro') };
  }
}

/** A part of the run, and how long it takes on a machine that does nothing else. */
interface Part {
  readonly id: string;
  readonly seconds: number;
}

/** After fewer seconds a pace says nothing. */
const MIN_PACE_SECONDS = 10;
const clock = (seconds: number): string => `${Math.floor(seconds / 60)}:${String(Math.round(seconds) % 60).padStart(2, '0')}`;

/** One line that is written over on a terminal: how far, how long yet, what. Where output is kept, a line for each part. */
class ProgressLine {
  readonly #parts: readonly Part[];
  readonly #began = performance.now();
  #part = 0;
  #partBegan = 0;
  #id = '';

  constructor(parts: readonly Part[]) {
    this.#parts = parts;
  }

  next(id: string): void {
    this.#part++;
    this.#partBegan = performance.now();
    this.#id = id;
    if (!process.stderr.isTTY) process.stderr.write(`${this.#head()} ${id}\n`);
  }

  readonly show: Progress = (text) => {
    if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${`${this.#head()} ${this.#id}  ${text}`.slice(0, 110)}`);
  };

  clear(): void {
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
  }

  /** The parts after this one by what they should take, at the pace of those before. */
  #left(): number {
    const seconds = (parts: readonly Part[]): number => parts.reduce((sum, part) => sum + part.seconds, 0);
    const expected = seconds(this.#parts.slice(0, this.#part - 1));
    const pace = expected > MIN_PACE_SECONDS ? (this.#partBegan - this.#began) / 1000 / expected : 1;
    const here = (this.#parts[this.#part - 1]?.seconds ?? 0) * pace - (performance.now() - this.#partBegan) / 1000;
    return Math.max(0, here) + seconds(this.#parts.slice(this.#part)) * pace;
  }

  #head(): string {
    return `[${this.#part}/${this.#parts.length}, ${clock((performance.now() - this.#began) / 1000)}, ${clock(this.#left())} left]`;
  }
}

/** A run as it grows: what an earlier one left, and each part as it ends. */
class Results {
  readonly #options: BenchOptions;
  readonly #kept: RunResult | null;
  readonly #experiments = new Map<string, ExperimentResult>();
  readonly #probes = new Map<string, ProbeResult>();
  readonly #durations: Record<string, number> = {};
  readonly #started: string = new Date().toISOString();
  readonly #machine: Record<string, string>;

  constructor(options: BenchOptions, kept: RunResult | null) {
    this.#options = options;
    this.#kept = kept;
    for (const one of kept?.experiments ?? []) this.#experiments.set(one.id, one);
    for (const one of kept?.probes ?? []) this.#probes.set(one.id, one);
    Object.assign(this.#durations, kept?.durations);
    this.#machine = describeMachine(buildNative() ?? 'none: no C baseline');
  }

  /** Whether an earlier run has it, measured and not merely failed. */
  has(id: string): boolean {
    return (this.#experiments.get(id)?.cases.length ?? 0) > 0 || (this.#probes.get(id)?.rows.length ?? 0) > 0;
  }

  add(result: { readonly experiment: ExperimentResult } | { readonly probe: ProbeResult }, seconds: number): void {
    const one = 'experiment' in result ? result.experiment : result.probe;
    if ('experiment' in result) this.#experiments.set(one.id, result.experiment);
    else this.#probes.set(one.id, result.probe);
    this.#durations[one.id] = Math.round(seconds * 10) / 10;
  }

  /** In the order of a full run, whatever was measured when. */
  run(): RunResult {
    const order = partNames();
    const sorted = <T extends { readonly id: string }>(all: ReadonlyMap<string, T>): T[] => [...all.values()].toSorted((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
    const experiments = sorted(this.#experiments);
    const probes = sorted(this.#probes);
    return {
      schema: SCHEMA, mode: this.#kept?.mode ?? this.#options.mode, started: this.#kept?.started ?? this.#started,
      seconds: Math.round(Object.values(this.#durations).reduce((sum, seconds) => sum + seconds, 0)), machine: this.#machine,
      method: this.#options.method, experiments, probes, durations: this.#durations, ...said(experiments, probes),
    };
  }
}

function readRun(path: string): RunResult {
  const run = JSON.parse(readFileSync(path, 'utf8')) as RunResult;
  if (run.schema !== SCHEMA) throw new Error(`${path} holds no results of this program`);
  // What is said of the figures is this version's.
  return { ...run, ...said(run.experiments, run.probes) };
}

/** Whole or not at all: a run that is killed while it writes leaves the file of the part before. */
function writeRun(path: string, run: RunResult): void {
  writeFileSync(`${path}.part`, `${JSON.stringify(run)}\n`);
  renameSync(`${path}.part`, path);
}

const failed = ({ id, title }: { readonly id: string; readonly title: string }, error: unknown): ProbeResult => ({
  id, title, about: '', columns: [], rows: [], charts: [], ratios: [], missing: [{ id, reason: (error as Error).message }], disturbed: false,
});

/** Measure what the options ask for. A part that fails costs only itself. */
async function measure(options: BenchOptions, shown: (text: string) => void): Promise<RunResult> {
  const kept = options.continue && options.json !== undefined && existsSync(options.json) ? readRun(options.json) : null;
  const results = new Results(options, kept);
  const wanted = <T extends { readonly id: string }>(all: readonly T[]): readonly T[] => (kept === null || options.mode === 'only' ? all : all.filter(({ id }) => !results.has(id)));
  const plan = planned(options);
  const [experiments, probes] = [wanted(plan.experiments), wanted(plan.probes)];
  const line = new ProgressLine([
    ...experiments.map((one) => ({ id: one.id, seconds: expectedSeconds(one, options.method) })), ...probes.map((one) => ({ id: one.id, seconds: one.seconds(options.method) })),
  ]);
  const part = async (id: string, run: () => Promise<Parameters<Results['add']>[0]>): Promise<void> => {
    line.next(id);
    const began = performance.now();
    const result = await run();
    results.add(result, (performance.now() - began) / 1000);
    line.clear();
    shown('experiment' in result ? table(result.experiment) : probeTable(result.probe));
    if (options.json !== undefined) writeRun(options.json, results.run());
  };
  for (const one of experiments) await part(one.id, async () => ({ experiment: await runExperiment(one, options.method, line.show) }));
  for (const one of probes) await part(one.id, async () => ({ probe: await one.run(options.method, line.show).catch((error: unknown) => failed(one, error)) }));
  return results.run();
}

/** Status 1 if a ratio is worse or gone. */
function judge(options: BenchOptions, run: RunResult, place: string | null): number {
  if (options.compare) {
    const path = options.baseline ?? sameProcessor(committed(), run.machine)?.path;
    if (path === undefined || !existsSync(path)) throw new Error(`there is no baseline${path === undefined ? '' : ` at ${path}`}: make one with --save-baseline`);
    const baseline = readBaseline(path);
    const cpu = baseline.run?.machine['CPU'];
    if (cpu !== run.machine['CPU']) say(`The baseline is of another processor, ${cpu ?? 'which it does not name'}: what has moved may be the machine's doing.`);
    const moves = compare(baseline, run);
    say(compareText(moves));
    if (moves.some(({ verdict }) => verdict === 'worse' || verdict === 'gone')) return 1;
  }
  if (place !== null) {
    const { started, seconds, mode, machine, goals } = run;
    const baseline: Baseline = { ...baselineOf(run), run: { started, seconds, mode, machine, goals } };
    writeFileSync(place, `${JSON.stringify(baseline, null, 1)}\n`);
    say(`baseline written: ${place}`);
  }
  return 0;
}

function list(): string {
  const { experiments, probes } = everything();
  const width = 18;
  return [
    'Parts, for --only:', ...[...experiments, ...probes].map(({ id, title }) => `  ${id.padEnd(width)} ${title}`),
    '', 'Scenarios, for --scenario:', ...SCENARIOS.map(({ name, question, needs }) => `  ${name.padEnd(width)} ${question} (${needs.join(', ')})`),
  ].join('\n');
}

export async function run(args: string[]): Promise<number> {
  let options: BenchOptions;
  try {
    options = parseBench(args);
  } catch (error) {
    process.stderr.write(`bench: ${(error as Error).message}\n\n${USAGE}`);
    return 2;
  }
  if (options.mode === 'help' || options.mode === 'list') {
    say(options.mode === 'help' ? USAGE : list());
    return 0;
  }
  try {
    const earlier = options.from === undefined ? null : readRun(options.from);
    const place = options.saveBaseline ? placeToKeep(options, earlier === null ? processor() : earlier.machine['CPU']) : null;
    const result = earlier ?? (await measure(options, say));
    for (const { question, source, there, here } of result.scenarios) say(`${question}\n  seen there: ${there}${source === '' ? '' : ` (${source})`}\n  seen here:  ${here}`);
    say(goalsTable(result.goals.filter(({ figure }) => figure !== null)));
    if (options.json !== undefined) writeRun(options.json, result);
    if (options.html !== undefined) writeFileSync(options.html, (await import('./report/html.ts')).report(result));
    say(`${result.seconds} s`);
    return judge(options, result, place);
  } catch (error) {
    process.stderr.write(`bench: ${(error as Error).message}\n`);
    return 1;
  }
}
