/**
 * The committed ratios, and which of them have moved. Speeds belong to a machine; ratios inside a round are
 * what may be compared.
 */
import { isOurs } from './cases.ts';
import { isAway } from './distance.ts';
import { isSameProcessor } from './machine.ts';
import { NATIVE_OCTETS } from './method.ts';
import { partsOfCases } from './scenarios.ts';
import type { Better, GoalResult, RunResult, Spread } from './types.ts';

/** A ratio with its quartiles, and which way is good. */
interface Kept {
  readonly median: number;
  readonly low: number;
  readonly high: number;
  readonly better: Better;
  /** How far it may drift whatever its size: for figures about zero, of which a share is nothing. */
  readonly slack?: number;
}

/** Ratios by "case : base"; the name begins with the part of the run that gave it. */
export interface Baseline {
  readonly schema: 'iwarp-bench-ratios/2';
  readonly ratios: Readonly<Record<string, Kept>>;
  /** Nanoseconds between the processors while a part was measured, by its id, where they are known. */
  readonly apart?: Readonly<Record<string, number>>;
  /** The run that gave them, and what it says of the goals: docs/performance.md is made of it. */
  readonly run?: BaselineRun;
}

export interface BaselineRun extends Pick<RunResult, 'started' | 'seconds' | 'mode' | 'machine'> {
  readonly goals: readonly GoalResult[];
}

/** Of several baselines that of this processor. */
export function ofProcessor<T extends { readonly run?: BaselineRun | undefined }>(
  baselines: readonly T[],
  CPU: string,
): T | undefined {
  return baselines.find(({ run }) => isSameProcessor(run?.machine['CPU'], CPU));
}

/**
 * Of several baselines that of the same processor, for ratios differ from one kind to the other; the first if
 * there is none.
 */
export function sameProcessor<T extends { readonly run?: BaselineRun | undefined }>(
  baselines: readonly T[],
  CPU: string,
): T | undefined {
  return ofProcessor(baselines, CPU) ?? baselines[0];
}

/** The parts of a run that are compared. */
type Measured = Pick<RunResult, 'experiments' | 'probes'>;

interface Move {
  readonly name: string;
  /** `elsewhere`: the processors were at another distance, so that nothing can be said. */
  readonly verdict: 'better' | 'worse' | 'same' | 'gone' | 'new' | 'elsewhere';
  readonly was: number;
  readonly is: number;
  /** The measurements behind the new figure were disturbed. */
  readonly disturbed: boolean;
}

/** The drift that a ratio may have beyond its quartiles: the machine's own unrest between two runs. */
const TOLERANCE = 0.15;

const round = (value: number): number => Number(value.toPrecision(4));
const keep = ({ median, low, high }: Spread, better: Better, slack?: number): Kept => ({
  median: round(median),
  low: round(low),
  high: round(high),
  better,
  ...(slack !== undefined && { slack }),
});

/** Only of what this package does: the ratios among others are not ours to guard. */
export function baselineOf({ experiments, probes }: Measured): Baseline {
  const ratios: Record<string, Kept> = {};
  for (const experiment of experiments) {
    const better: Better = experiment.test === 'lat' ? 'less' : 'more';
    for (const one of experiment.cases.filter((result) => isOurs(result.spec))) {
      for (const [base, ratio] of Object.entries(one.ratios)) {
        if (Number.isFinite(ratio.median)) ratios[`${one.id} : ${base}`] = keep(ratio, better);
      }
    }
  }
  for (const { id, better, spread, slack } of probes.flatMap((probe) => probe.ratios)) {
    if (Number.isFinite(spread.median)) ratios[id] = keep(spread, better, slack);
  }
  const apart = Object.fromEntries(
    experiments.flatMap((one) => (one.apart == null ? [] : [[one.id, round(one.apart.ns.median)]])),
  );
  return { schema: 'iwarp-bench-ratios/2', ratios, apart };
}

/** Measured only with an add-on that this repository does not have: a run without it has lost nothing. */
const isOptional = (name: string): boolean => name.endsWith(` : native ${NATIVE_OCTETS}`);

/** Names of ratios, and of cases, that were measured while others took part of the machine. */
function disturbedOnes({ experiments, probes }: Measured): (name: string) => boolean {
  const cases = new Set(
    experiments
      .flatMap((experiment) => experiment.cases)
      .filter(({ disturbed }) => disturbed)
      .map(({ id }) => id),
  );
  const ratios = new Set(
    probes
      .filter(({ disturbed }) => disturbed)
      .flatMap((probe) => probe.ratios)
      .map(({ id }) => id),
  );
  return (name) => ratios.has(name) || name.split(' : ').some((id) => cases.has(id));
}

/**
 * Compare what both have; a case that only the new run has is listed as new, a case that it lacks only if its
 * part was run.
 */
export function compare(old: Baseline, measured: Measured): Move[] {
  const { ratios: now, apart = {} } = baselineOf(measured);
  const ran = new Set([...measured.experiments, ...measured.probes].map(({ id }) => id));
  const isDisturbed = disturbedOnes(measured);
  const parts = partsOfCases();
  const partOf = (id: string): string => parts.get(id) ?? id.split('/', 1)[0]!;
  const isElsewhere = (part: string): boolean => {
    const [was, is] = [old.apart?.[part], apart[part]];
    return was !== undefined && is !== undefined && isAway([is], was);
  };
  const moves: Move[] = [];
  for (const [name, was] of Object.entries(old.ratios)) {
    const is = now[name];
    const part = partOf(name.split(' : ', 1)[0]!);
    if (is === undefined) {
      if (ran.has(part) && !isOptional(name))
        moves.push({ name, verdict: 'gone', was: was.median, is: Number.NaN, disturbed: false });
      continue;
    }
    // Some figures are differences, and may lie below zero.
    const drift = Math.max(Math.abs(was.median) * TOLERANCE, is.slack ?? was.slack ?? 0);
    const up = is.low > was.high && is.median > was.median + drift;
    const down = is.high < was.low && is.median < was.median - drift;
    const moved = !up && !down ? 'same' : up === (was.better === 'less') ? 'worse' : 'better';
    const verdict = isElsewhere(part) ? 'elsewhere' : moved;
    moves.push({ name, verdict, was: was.median, is: is.median, disturbed: isDisturbed(name) });
  }
  for (const [name, { median }] of Object.entries(now)) {
    if (old.ratios[name] === undefined)
      moves.push({ name, verdict: 'new', was: Number.NaN, is: median, disturbed: isDisturbed(name) });
  }
  return moves;
}

const figure = (value: number): string => (Number.isFinite(value) ? value.toFixed(2) : '–').padStart(8);

/** The lines to print: ratios that moved, are new or are gone, and how many did not move. */
export function compareText(moves: readonly Move[]): string {
  const elsewhere = moves.filter(({ verdict }) => verdict === 'elsewhere').length;
  const others = moves.filter(({ verdict }) => verdict !== 'same' && verdict !== 'elsewhere');
  const moved = others.filter(({ verdict }) => verdict === 'better' || verdict === 'worse').length;
  const lines = others.map(
    ({ name, verdict, was, is, disturbed }) =>
      `  ${verdict.padEnd(7)} ${figure(was)} -> ${figure(is)}  ${name}${disturbed ? ' (disturbed)' : ''}`,
  );
  const rest = others.length - moved;
  return [
    `${moves.length - others.length - elsewhere} ratios as before, ${moved} ` +
      `moved${rest === 0 ? '' : `, ${rest} new or gone`}${lines.length === 0 ? '' : ':'}`,
    ...lines,
    ...(elsewhere === 0
      ? []
      : [`${elsewhere} not compared: the processors were at another distance than in the baseline`]),
    '',
  ].join('\n');
}
