/** `iwarp bench`: measure, print, write, compare. See docs/benchmarks.md for what the figures mean. */
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { OutputFile } from '../cli/support/output-file.ts';
import { withFile } from '../cli/support/system-errors.ts';
import {
  baselineOf,
  compare,
  compareText,
  ofProcessor,
  sameProcessor,
  type Baseline,
  type BaselineRun,
} from './compare.ts';
import { custom, goals } from './experiments.ts';
import { goalsTable, judgeGoals } from './goals.ts';
import { describeMachine, isSameProcessor, processor } from './machine.ts';
import { buildNative } from './native.ts';
import { parseBench, partNames, USAGE, type BenchOptions } from './options.ts';
import { readJson } from './read-json.ts';
import { reasonOf } from './reason.ts';
import type { Probe, Progress } from './probes/probe.ts';
import { costTable, probeTable, table } from './report/table.ts';
import { expectedSeconds, runExperiment } from './runner.ts';
import { answers, everything, SCENARIOS } from './scenarios.ts';
import type { Experiment, ExperimentResult, ProbeResult, RunResult } from './types.ts';
import type { Method } from './method.ts';

const SCHEMA = 'iwarp-bench/2';
const say = (text: string): void => void process.stdout.write(`${text}\n`);

/**
 * The committed baselines, also when this file has been compiled into dist/bench/. Ratios differ from one
 * kind of processor to the other.
 */
const BASELINES = ['baseline.json', 'baseline-xeon.json'] as const;

function committed(): { readonly path: string; readonly run?: BaselineRun | undefined }[] {
  const folders = ['.', '../../bench'].map((place) => fileURLToPath(new URL(place, import.meta.url)));
  const folder = folders.find((place) => existsSync(join(place, BASELINES[0]))) ?? folders.at(-1)!;
  return BASELINES.map((name) => join(folder, name))
    .filter((path) => existsSync(path))
    .map((path) => ({ path, run: readBaseline(path).run }));
}

/**
 * Where the ratios of this machine are kept: checked before half an hour of measuring, since they must not
 * take the place of another processor's.
 */
function placeToKeep({ baseline }: BenchOptions, CPU: string): string {
  if (baseline !== undefined) return baseline;
  const own = ofProcessor(committed(), CPU);
  if (own === undefined)
    throw new Error(`no baseline is of this processor, ${CPU}: name a file for it with --baseline`);
  return own.path;
}

const readBaseline = (path: string): Baseline => readJson<Baseline>(path, 'iwarp-bench-ratios/2', 'baseline');

/** The baseline that a run is compared with. */
function baselineFor({ baseline }: BenchOptions, CPU: string): Baseline {
  const path = baseline ?? sameProcessor(committed(), CPU)?.path;
  if (path === undefined || !existsSync(path))
    throw new Error(
      `there is no baseline${path === undefined ? '' : ` at ${path}`}: make one with --save-baseline`,
    );
  return readBaseline(path);
}

/** The remarks about the figures. */
function said(
  experiments: readonly ExperimentResult[],
  probes: readonly ProbeResult[],
): Pick<RunResult, 'scenarios' | 'goals'> {
  return { scenarios: answers(experiments, probes), goals: judgeGoals({ experiments, probes }) };
}

/** The measurements to make, in order. */
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
      return {
        experiments: experiments.filter(({ id }) => options.parts.includes(id)),
        probes: probes.filter(({ id }) => options.parts.includes(id)),
      };
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
/** Minutes and seconds. */
export function clock(seconds: number): string {
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}
/** Of a terminal that does not say how wide it is. */
const WIDTH = 110;

/**
 * One line that is written over on a terminal: how far, how long yet, what. Where output is kept, a line for
 * each part.
 */
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
    if (process.stderr.isTTY)
      process.stderr.write(
        `\r\u001b[K${`${this.#head()} ${this.#id}  ${text}`.slice(0, (process.stderr.columns ?? WIDTH) - 1)}`,
      );
  };

  clear(): void {
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
  }

  /** The parts after this one by what they should take, at the pace of those before. */
  #left(): number {
    const seconds = (parts: readonly Part[]): number => parts.reduce((sum, part) => sum + part.seconds, 0);
    const expected = seconds(this.#parts.slice(0, this.#part - 1));
    const pace = expected > MIN_PACE_SECONDS ? (this.#partBegan - this.#began) / 1000 / expected : 1;
    const here =
      (this.#parts[this.#part - 1]?.seconds ?? 0) * pace - (performance.now() - this.#partBegan) / 1000;
    return Math.max(0, here) + seconds(this.#parts.slice(this.#part)) * pace;
  }

  #head(): string {
    return (
      `[${this.#part}/${this.#parts.length}, ${clock((performance.now() - this.#began) / 1000)}, ` +
      `${clock(this.#left())} left]`
    );
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

  add(
    result: { readonly experiment: ExperimentResult } | { readonly probe: ProbeResult },
    seconds: number,
  ): void {
    const one = 'experiment' in result ? result.experiment : result.probe;
    if ('experiment' in result) this.#experiments.set(one.id, result.experiment);
    else this.#probes.set(one.id, result.probe);
    this.#durations[one.id] = Math.round(seconds * 10) / 10;
  }

  /** In the order of a full run, whatever was measured when. */
  run(): RunResult {
    const order = partNames();
    const sorted = <T extends { readonly id: string }>(all: ReadonlyMap<string, T>): T[] =>
      [...all.values()].toSorted((a, b) => order.indexOf(a.id) - order.indexOf(b.id));
    const experiments = sorted(this.#experiments);
    const probes = sorted(this.#probes);
    return {
      schema: SCHEMA,
      mode: this.#options.mode === 'full' ? 'full' : (this.#kept?.mode ?? this.#options.mode),
      started: this.#kept?.started ?? this.#started,
      seconds: Math.round(Object.values(this.#durations).reduce((sum, seconds) => sum + seconds, 0)),
      machine: this.#machine,
      method: this.#options.method,
      experiments,
      probes,
      durations: this.#durations,
      ...said(experiments, probes),
    };
  }
}

function readRun(path: string): RunResult {
  const run = readJson<RunResult>(path, SCHEMA, 'results');
  // The remarks about the figures are this version's.
  return { ...run, ...said(run.experiments, run.probes) };
}

const partOf = (path: string): string => `${path}.part`;

/** Whole or not at all: a run that is killed while it writes leaves the file of the part before. */
function writeRun(path: string, run: RunResult): void {
  withFile(path, () => {
    writeFileSync(partOf(path), `${JSON.stringify(run)}\n`);
    renameSync(partOf(path), path);
  });
}

const failed = (
  { id, title }: { readonly id: string; readonly title: string },
  error: unknown,
): ProbeResult => ({
  id,
  title,
  about: '',
  columns: [],
  rows: [],
  charts: [],
  ratios: [],
  missing: [{ id, reason: reasonOf(error) }],
  disturbed: false,
});

/** Measure what the options ask for. A part that fails costs only itself. */
async function measure(
  options: BenchOptions,
  shown: (text: string) => void,
  written: () => void,
): Promise<RunResult> {
  const kept =
    options.continue && options.json !== undefined && existsSync(options.json) ? readRun(options.json) : null;
  const other = kept === null ? undefined : kept.machine['CPU'];
  if (kept !== null && other !== processor())
    throw new Error(
      `${options.json} is of another processor, ${other}: its figures and those of this one are not one run`,
    );
  const results = new Results(options, kept);
  const wanted = <T extends { readonly id: string }>(all: readonly T[]): readonly T[] =>
    kept === null || options.mode === 'only' ? all : all.filter(({ id }) => !results.has(id));
  const plan = planned(options);
  const [experiments, probes] = [wanted(plan.experiments), wanted(plan.probes)];
  if (experiments.length + probes.length === 0)
    shown(`${options.json} has all of it already: nothing was measured`);
  const line = new ProgressLine([
    ...experiments.map((one) => ({ id: one.id, seconds: expectedSeconds(one, options.method) })),
    ...probes.map((one) => ({ id: one.id, seconds: one.seconds(options.method) })),
  ]);
  const part = async (id: string, run: () => Promise<Parameters<Results['add']>[0]>): Promise<void> => {
    line.next(id);
    const began = performance.now();
    const result = await run();
    results.add(result, (performance.now() - began) / 1000);
    line.clear();
    shown('experiment' in result ? table(result.experiment) : probeTable(result.probe));
    if ('experiment' in result && options.mode === 'custom') shown(costTable(result.experiment));
    if (options.json === undefined) return;
    writeRun(options.json, results.run());
    written();
  };
  for (const one of experiments)
    await part(one.id, async () => ({ experiment: await runExperiment(one, options.method, line.show) }));
  for (const one of probes)
    await part(one.id, async () => ({
      probe: await one.run(options.method, line.show).catch((error: unknown) => failed(one, error)),
    }));
  return results.run();
}

/** Status 1 if a ratio is worse or gone. */
function judge(run: RunResult, against: Baseline | null, place: string | null): number {
  if (against !== null) {
    const cpu = against.run?.machine['CPU'];
    if (!isSameProcessor(cpu, run.machine['CPU'] ?? ''))
      say(
        `The baseline is of another processor, ${cpu ?? 'which it does not name'}: ratios that moved may ` +
          "be the machine's doing.",
      );
    const moves = compare(against, run);
    say(compareText(moves));
    if (moves.some(({ verdict }) => verdict === 'worse' || verdict === 'gone')) return 1;
  }
  if (place !== null) {
    const { started, seconds, mode, machine, goals } = run;
    const baseline: Baseline = { ...baselineOf(run), run: { started, seconds, mode, machine, goals } };
    withFile(place, () => writeFileSync(place, `${JSON.stringify(baseline, null, 1)}\n`));
    say(`baseline written: ${place}`);
  }
  return 0;
}

function list(method: Method): string {
  const { experiments, probes } = everything();
  const width = 18;
  const parts = [
    ...experiments.map((one) => ({ ...one, seconds: expectedSeconds(one, method) })),
    ...probes.map((one) => ({ ...one, seconds: one.seconds(method) })),
  ];
  return [
    'Parts, for --only, and how many minutes each takes:',
    ...parts.map(({ id, title, seconds }) => `  ${id.padEnd(width)} ${clock(seconds).padStart(5)}  ${title}`),
    '',
    'Scenarios, for --scenario:',
    ...SCENARIOS.map(
      ({ name, question, needs }) => `  ${name.padEnd(width)} ${question} (${needs.join(', ')})`,
    ),
  ].join('\n');
}

/** The data that a run will need when it has ended. */
interface Ready {
  /** An earlier run, where nothing is to be measured. */
  readonly earlier: RunResult | null;
  readonly against: Baseline | null;
  /** Where the ratios will be kept. */
  readonly place: string | null;
  readonly report: ((run: RunResult) => string) | null;
}

/** Throws what the system has against writing a file. What it holds stays as it is. */
const writable = (path: string): void => withFile(path, () => new OutputFile(path).discard());

/**
 * Reports missing files, baselines, add-ons and packages before half an hour of measuring instead of after
 * it.
 */
async function prepare(options: BenchOptions): Promise<Ready> {
  const {
    json,
    html,
    method: { nativeCrc },
  } = options;
  const earlier = options.from === undefined ? null : readRun(options.from);
  const CPU = earlier === null ? processor() : (earlier.machine['CPU'] ?? '');
  const against = options.compare ? baselineFor(options, CPU) : null;
  const place = options.saveBaseline ? placeToKeep(options, CPU) : null;
  for (const path of [
    ...(json === undefined ? [] : [json, partOf(json)]),
    ...(html === undefined ? [] : [html]),
    ...(place === null ? [] : [place]),
  ])
    writable(path);
  if (nativeCrc !== undefined) loadable(nativeCrc);
  return {
    earlier,
    against,
    place,
    report: html === undefined ? null : (await import('./report/html.ts')).report,
  };
}

function loadable(folder: string): void {
  try {
    createRequire(import.meta.url).resolve(resolve(folder));
  } catch {
    throw new Error(`--native-crc: ${folder} holds no module of Node`);
  }
}

/**
 * On Ctrl-C all started processes end with this one, and it prints which results are kept. The result removes
 * the handlers.
 */
function heedSignals(kept: () => string): () => void {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  const stop = (signal: (typeof signals)[number]): void => {
    process.stderr.write(`${process.stderr.isTTY ? '\r\u001b[K' : ''}bench: interrupted; ${kept()}\n`);
    process.exit(128 + constants.signals[signal]);
  };
  for (const signal of signals) process.once(signal, stop);
  return () => {
    for (const signal of signals) process.off(signal, stop);
  };
}

async function measured(options: BenchOptions): Promise<RunResult> {
  let parts = 0;
  const forget = heedSignals(() => {
    if (parts === 0) return 'nothing has been written';
    // The parts that --only names are measured anew.
    const rest =
      options.mode === 'only'
        ? '--continue with --only for the others keeps them'
        : '--continue goes on after them';
    return `parts that ${options.json} has by now: ${parts}; ${rest}`;
  });
  try {
    return await measure(options, say, () => parts++);
  } finally {
    forget();
  }
}

const isEmpty = ({ experiments, probes }: RunResult): boolean =>
  experiments.every(({ cases }) => cases.length === 0) && probes.every(({ rows }) => rows.length === 0);

/** The rows of papers; files that cannot be written are reported before anything is measured. */
async function papers({
  papers: names,
  page,
  json,
  from,
  method,
  continue: more,
}: BenchOptions): Promise<number> {
  const { runPapersCommand } = await import('./papers/run.ts');
  for (const path of [page, json]) if (path !== undefined) writable(path);
  const forget = heedSignals(() => 'nothing has been written');
  try {
    return await runPapersCommand(
      { papers: names, page, json, from, continue: more, rounds: method.rounds },
      say,
    );
  } finally {
    forget();
  }
}

export async function run(args: string[]): Promise<number> {
  let options: BenchOptions;
  try {
    options = parseBench(args);
  } catch (error) {
    process.stderr.write(`bench: ${(error as Error).message}\n"iwarp bench --help" lists the options.\n`);
    return 2;
  }
  if (options.mode === 'help' || options.mode === 'list') {
    process.stdout.write(options.mode === 'help' ? USAGE : `${list(options.method)}\n`);
    return 0;
  }
  try {
    if (options.mode === 'trp') {
      const { measureTrp } = await import('./trp/main.ts');
      await measureTrp(options.method.rounds);
      return 0;
    }
    if (options.mode === 'papers') return await papers(options);
    const { earlier, against, place, report } = await prepare(options);
    const result = earlier ?? (await measured(options));
    for (const { question, source, there, here } of result.scenarios)
      say(`${question}\n  seen there: ${there}${source === '' ? '' : ` (${source})`}\n  seen here:  ${here}`);
    const judged = result.goals.filter(({ figure }) => figure !== null);
    if (judged.length > 0) say(goalsTable(judged));
    if (options.json !== undefined) writeRun(options.json, result);
    const { html } = options;
    if (html !== undefined) withFile(html, () => writeFileSync(html, report!(result)));
    say(`${clock(result.seconds)} minutes of measuring`);
    if (earlier === null && isEmpty(result)) throw new Error('nothing could be measured');
    return judge(result, against, place);
  } catch (error) {
    process.stderr.write(`bench: ${reasonOf(error)}\n`);
    return 1;
  }
}
