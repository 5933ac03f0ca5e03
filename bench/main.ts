/** `iwarp bench`: measure, print, write, compare. See docs/benchmarks.md for what the figures mean. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { baselineOf, compare, compareText, type Baseline } from './compare.ts';
import { custom, goals, sweeps } from './experiments.ts';
import { describeMachine } from './machine.ts';
import { buildNative } from './native.ts';
import { parseBench, USAGE, type BenchOptions } from './options.ts';
import { table } from './report/table.ts';
import { runExperiment, type Progress } from './runner.ts';
import { answers, experimentsOf, SCENARIOS } from './scenarios.ts';
import type { Experiment, ExperimentResult, RunResult } from './types.ts';

const say = (text: string): void => void process.stdout.write(`${text}\n`);

/** One line that is written over, on a terminal; nothing where output is kept. */
const progressLine: Progress = (text) => {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text.slice(0, 100)}`);
};

/** The committed baseline, also when this file has been compiled into dist/bench/. */
function baselinePath(): string {
  const places = ['./baseline.json', '../../bench/baseline.json'].map((place) => fileURLToPath(new URL(place, import.meta.url)));
  return places.find((place) => existsSync(place)) ?? places.at(-1)!;
}

function chosen(options: BenchOptions): Experiment[] {
  switch (options.mode) {
    case 'custom':
      return [custom(options.wish!)];
    case 'scenario':
      return experimentsOf(options.scenarios);
    case 'full':
      return [...goals(), ...sweeps()];
    default:
      return goals();
  }
}

/** Run the experiments that the options ask for. */
export async function measure(options: BenchOptions, progress: Progress, done: (result: ExperimentResult) => void): Promise<RunResult> {
  const began = performance.now();
  const started = new Date().toISOString();
  const compiler = buildNative() ?? 'none: no C baseline';
  const experiments: ExperimentResult[] = [];
  for (const experiment of chosen(options)) {
    const result = await runExperiment(experiment, options.method, progress);
    experiments.push(result);
    done(result);
  }
  return {
    schema: 'iwarp-bench/1', mode: options.mode, started, seconds: Math.round((performance.now() - began) / 1000), machine: describeMachine(compiler),
    method: options.method, experiments, scenarios: answers(experiments),
  };
}

async function results(options: BenchOptions): Promise<RunResult> {
  const show = (result: ExperimentResult): void => {
    progressLine('');
    say(table(result));
  };
  if (options.from === undefined) return await measure(options, progressLine, show);
  const run = JSON.parse(readFileSync(options.from, 'utf8')) as RunResult;
  if (run.schema !== 'iwarp-bench/1') throw new Error(`${options.from} holds no results of this program`);
  return run;
}

/** Status 1 if a ratio is worse or gone. */
function judge(options: BenchOptions, run: RunResult): number {
  const path = options.baseline ?? baselinePath();
  if (options.compare) {
    const moves = compare(JSON.parse(readFileSync(path, 'utf8')) as Baseline, run.experiments);
    say(compareText(moves));
    if (moves.some(({ verdict }) => verdict === 'worse' || verdict === 'gone')) return 1;
  }
  if (options.saveBaseline) writeFileSync(path, `${JSON.stringify(baselineOf(run.experiments), null, 1)}\n`);
  return 0;
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
    say(options.mode === 'help' ? USAGE : SCENARIOS.map(({ name, question }) => `${name.padEnd(16)} ${question}`).join('\n'));
    return 0;
  }
  try {
    const result = await results(options);
    for (const { question, there, here } of result.scenarios) say(`${question}\n  seen there: ${there}\n  seen here:  ${here}`);
    if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(result)}\n`);
    if (options.html !== undefined) writeFileSync(options.html, (await import('./report/html.ts')).report(result));
    say(`${result.seconds} s`);
    return judge(options, result);
  } catch (error) {
    process.stderr.write(`bench: ${(error as Error).message}\n`);
    return 1;
  }
}
