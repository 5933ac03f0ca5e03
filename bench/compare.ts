/** The committed ratios, and which of them have moved. Speeds belong to a machine; ratios inside a round are what may be compared. */
import type { ExperimentResult } from './types.ts';

/** Ratio by "case : base", with its quartiles. */
export interface Baseline {
  readonly schema: 'iwarp-bench-ratios/1';
  readonly ratios: Readonly<Record<string, { readonly median: number; readonly low: number; readonly high: number }>>;
}

export interface Move {
  readonly name: string;
  readonly verdict: 'better' | 'worse' | 'same' | 'gone' | 'new';
  readonly was: number;
  readonly is: number;
}

/** What a ratio may drift beyond its quartiles: the machine's own unrest between two runs. */
const TOLERANCE = 0.15;

const round = (value: number): number => Number(value.toPrecision(4));
/** Latency is better when smaller; its cases carry it in their id. */
const smallIsGood = (name: string): boolean => name.startsWith('latency');

/** Only of what this package does: the ratios among others are not ours to guard. */
export function baselineOf(experiments: readonly ExperimentResult[]): Baseline {
  const ratios: Record<string, { median: number; low: number; high: number }> = {};
  for (const one of experiments.flatMap((experiment) => experiment.cases).filter((result) => result.spec.peer === 'iwarp')) {
    for (const [base, ratio] of Object.entries(one.ratios)) {
      if (Number.isFinite(ratio.median)) ratios[`${one.id} : ${base}`] = { median: round(ratio.median), low: round(ratio.low), high: round(ratio.high) };
    }
  }
  return { schema: 'iwarp-bench-ratios/1', ratios };
}

/** Compare what both have; cases that only the new run has are told as new, those that it lacks only if their experiment was run. */
export function compare(old: Baseline, experiments: readonly ExperimentResult[]): Move[] {
  const now = baselineOf(experiments).ratios;
  const ran = new Set(experiments.map(({ id }) => id));
  const moves: Move[] = [];
  for (const [name, was] of Object.entries(old.ratios)) {
    const is = now[name];
    if (is === undefined) {
      if (ran.has(name.split('/')[0]!)) moves.push({ name, verdict: 'gone', was: was.median, is: Number.NaN });
      continue;
    }
    const up = is.low > was.high && is.median > was.median * (1 + TOLERANCE);
    const down = is.high < was.low && is.median < was.median * (1 - TOLERANCE);
    const verdict = !up && !down ? 'same' : up === smallIsGood(name) ? 'worse' : 'better';
    moves.push({ name, verdict, was: was.median, is: is.median });
  }
  for (const [name, { median }] of Object.entries(now)) {
    if (old.ratios[name] === undefined) moves.push({ name, verdict: 'new', was: Number.NaN, is: median });
  }
  return moves;
}

/** What to print: everything that moved, and how many did not. */
export function compareText(moves: readonly Move[]): string {
  const moved = moves.filter(({ verdict }) => verdict !== 'same');
  const lines = moved.map(({ name, verdict, was, is }) => `  ${verdict.padEnd(7)} ${was.toFixed(2).padStart(8)} -> ${is.toFixed(2).padStart(8)}  ${name}`);
  return [`${moves.length - moved.length} ratios as before, ${moved.length} moved:`, ...lines, ''].join('\n');
}
