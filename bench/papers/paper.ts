/**
 * The rows of a paper: parts, which are groups of subjects that take turns in each round. `runParts`
 * measures, prints and returns them; `iwarp bench --paper` and `bench/sdp.ts` call it.
 */
import { ratios, spread } from '../stats.ts';
import type { Spread } from '../types.ts';
import { reasonOf } from '../reason.ts';
import { cpuSeconds } from './cpu.ts';

/** Figures of one turn where there are several, by the key of their quantity. */
export type Figures = Readonly<Record<string, number>>;

/** One line of a group. */
export interface Subject {
  readonly name: string;
  /** The figure of one round, or one for each quantity of the group. */
  measure(): Promise<number | Figures>;
  close?(): unknown;
}

/** A goal of the stack: the ratio of one subject to another. */
interface RowGoal {
  readonly of: string;
  readonly to: string;
  readonly words: 'at least' | 'at most';
  readonly goal: number;
}

/** Something that a group measures: figures of one panel have one unit, and share a picture. */
interface Quantity {
  readonly key: string;
  readonly panel: string;
  readonly unit: string;
}

/** Subjects that are compared with the one named `base`, where there is one. */
export interface Group {
  /** Groups of one panel share a picture, in which `at` is the place of each. */
  readonly panel: string;
  readonly at: string;
  readonly unit: string;
  readonly base: string | null;
  /** Where a turn gives several figures; then `panel` and `unit` are theirs. */
  readonly quantities?: readonly Quantity[];
  /** Nothing is said of processor time where a turn does more than the figure is about. */
  readonly cpu?: false;
  readonly subjects: readonly Subject[];
  readonly goals?: readonly RowGoal[];
  /** Rounds where fewer than asked for do, as with memory. */
  readonly mostRounds?: number;
  /** The round before the first is left out where nothing has to warm up. */
  readonly cold?: boolean;
}

/** A figure or table of a paper. */
export interface Part {
  readonly id: string;
  /** Its name in the paper. */
  readonly row: string;
  readonly title: string;
  /** What the paper has found. */
  readonly there: string;
  /** Why our ratio is as it is, in one sentence. */
  readonly why: string;
  /** Reasons for what this row has in the paper and not here. */
  readonly lacks?: readonly string[];
  /** The subjects whose ratios are the row's result; all that are not the base, unless they are named. */
  readonly headline?: readonly string[];
  /** Groups are made one after the other, each when the one before is over. */
  groups(rounds: number): AsyncIterable<Group | GroupResult> | Iterable<Group | GroupResult>;
  /** A sentence on the results, such as where two lines cross. */
  conclude?(results: readonly GroupResult[]): string;
}

/** A paper with its parts. */
export interface Paper {
  readonly id: string;
  readonly title: string;
  /** Authors, title, year. */
  readonly cite: string;
  readonly parts: readonly Part[];
}

/** A judged ratio. */
interface GoalFigure extends RowGoal {
  readonly figure: Spread;
  readonly verdict: 'met' | 'in the spread' | 'missed';
}

/** A subject with its figures. */
export interface RowResult {
  readonly name: string;
  readonly figure: Spread;
  /** To the base; null where there is none. */
  readonly ratio: Spread | null;
  /** Microseconds of all processors for an operation or a megabyte; null where nobody can say. */
  readonly cpu: Spread | null;
}

/** A group with its figures. */
export interface GroupResult {
  readonly panel: string;
  readonly at: string;
  readonly unit: string;
  readonly base: string | null;
  readonly rows: readonly RowResult[];
  readonly goals: readonly GoalFigure[];
  /** Subjects that could not be measured, each with the reason. */
  readonly missing: readonly string[];
}

/** Groups of one panel; without their base where it has no figure in any: then nothing is a ratio. */
export function comparable(groups: readonly GroupResult[]): GroupResult[] {
  const isRatio = groups.some(({ base, rows }) =>
    rows.some(({ name, ratio }) => name !== base && Number.isFinite(ratio?.median)),
  );
  return isRatio ? [...groups] : groups.map((group) => ({ ...group, base: null }));
}

/** A part with its figures. */
export interface PartResult {
  readonly paper: string;
  readonly id: string;
  readonly title: string;
  readonly seconds: number;
  readonly groups: readonly GroupResult[];
  readonly here: string;
  /** Nanoseconds until one processor sees what the other has written; null where nobody looked. */
  readonly apart: Spread | null;
}

/** What to run, and where lines go. */
export interface RunOptions {
  readonly rounds: number;
  /** Ids of parts; none means all. */
  readonly parts?: readonly string[];
  readonly print?: (line: string) => void;
  /** The distance between the processors in nanoseconds, or nothing, as {@link DistanceWatch.look} has it. */
  readonly look?: () => readonly number[];
}

const LONGEST_MS = 60_000;

function judged(goal: RowGoal, seen: ReadonlyMap<string, readonly number[]>): GoalFigure | null {
  const [of, to] = [seen.get(goal.of), seen.get(goal.to)];
  if (of === undefined || to === undefined) return null;
  const figure = spread(ratios(of, to), goal.words === 'at most');
  const holds = (value: number): boolean =>
    goal.words === 'at least' ? value >= goal.goal : value <= goal.goal;
  const better = goal.words === 'at least' ? figure.high : figure.low;
  const verdict = holds(figure.median) ? 'met' : holds(better) ? 'in the spread' : 'missed';
  return { ...goal, figure, verdict };
}

/** A subject that stands still fails alone, and the run goes on. */
async function once(subject: Subject): Promise<number | Figures> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no figure for ${LONGEST_MS / 1000} s`)), LONGEST_MS);
  });
  try {
    return await Promise.race([subject.measure(), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The processor time of one operation at a rate of `value`, for a `share` of one processor. */
function cpuOf(unit: string, value: number, share: number): number {
  if (unit.startsWith('MB/s')) return (share * 1e6) / value;
  if (unit.startsWith('us a ')) return share * value;
  return unit.endsWith('a second') ? (share * 1e6) / value : Number.NaN;
}

/** What `cpuOf` counts. */
export const cpuUnit = (unit: string): string => (/^[MG]B\/s/.test(unit) ? 'CPU-us a MB' : 'CPU-us each');

/** One turn of a subject: its figures, and the processors' share that all our processes had of it. */
async function turn(subject: Subject, key: string): Promise<{ figures: Figures; share: number }> {
  const [cpu, began] = [cpuSeconds(), performance.now()];
  const figure = await once(subject);
  const share = ((cpuSeconds() - cpu) * 1000) / (performance.now() - began);
  return { figures: typeof figure === 'number' ? { [key]: figure } : figure, share };
}

/** All turns of a group's subjects, by name, and the reasons of those that have none. */
interface Turns {
  readonly seen: ReadonlyMap<string, readonly { figures: Figures; share: number }[]>;
  readonly missing: ReadonlyMap<string, string>;
}

const ONLY = 'figure';

async function takeTurns(group: Group, rounds: number): Promise<Turns> {
  const seen = new Map<string, { figures: Figures; share: number }[]>();
  const missing = new Map<string, string>();
  const most = Math.min(rounds, group.mostRounds ?? rounds);
  for (let round = group.cold === true ? 0 : -1; round < most; round++) {
    // In another order each round, so that nothing is always measured after the same neighbor.
    const { length } = group.subjects;
    for (let i = 0; i < length; i++) {
      const subject = group.subjects[(i + Math.max(round, 0)) % length]!;
      if (missing.has(subject.name)) continue;
      try {
        const taken = await turn(subject, ONLY);
        if (round < 0) continue;
        const list = seen.get(subject.name);
        if (list === undefined) seen.set(subject.name, [taken]);
        else list.push(taken);
      } catch (error) {
        missing.set(subject.name, reasonOf(error));
        seen.delete(subject.name);
      }
    }
  }
  for (const { close } of group.subjects) await close?.();
  return { seen, missing };
}

async function measureGroup(group: Group, rounds: number): Promise<GroupResult[]> {
  const { seen, missing } = await takeTurns(group, rounds);
  const quantities = group.quantities ?? [{ key: ONLY, panel: group.panel, unit: group.unit }];
  return quantities.map(({ key, panel, unit }) => {
    const values = new Map(
      [...seen].map(([name, turns]) => [name, turns.map(({ figures }) => figures[key] ?? Number.NaN)]),
    );
    const base = group.base === null ? null : (values.get(group.base) ?? []);
    const rowOf = (name: string): RowResult => {
      const own = values.get(name)!;
      const cpu = spread(seen.get(name)!.map(({ share }, i) => cpuOf(unit, own[i]!, share)));
      return {
        name,
        figure: spread(own),
        ratio: base === null ? null : spread(ratios(own, base)),
        cpu: group.cpu === false || !Number.isFinite(cpu.median) ? null : cpu,
      };
    };
    return {
      ...{ panel, at: group.at, unit, base: group.base },
      // Not every subject has every quantity.
      rows: group.subjects
        .filter(({ name }) => values.get(name)?.some(Number.isFinite) === true)
        .map(({ name }) => rowOf(name)),
      goals: (group.goals ?? []).flatMap((goal) => judged(goal, values) ?? []),
      missing: [...missing].map(([name, reason]) => `${name}: ${reason}`),
    };
  });
}

/** Three digits, or more before the point. */
export const digits = (value: number): string =>
  !Number.isFinite(value)
    ? '-'
    : value >= 1000 || value === 0
      ? value.toFixed(0)
      : value >= 10
        ? value.toFixed(1)
        : Math.abs(value) >= 0.1
          ? value.toFixed(2)
          : String(Number(value.toPrecision(2)));
const range = ({ low, high }: Spread): string => `${digits(low)}..${digits(high)}`;

function printGroup(
  { panel, at, unit, base, rows, goals, missing }: GroupResult,
  print: (line: string) => void,
): void {
  print(`  ${panel}, ${at}, ${unit}`);
  for (const { name, figure, ratio, cpu } of rows) {
    const beside =
      name === base || ratio === null || !Number.isFinite(ratio.median)
        ? ''
        : `${digits(ratio.median).padStart(7)} of ${base} (${range(ratio)})`;
    const cost = cpu === null ? '' : `${digits(cpu.median).padStart(7)} ${cpuUnit(unit)}`;
    print(
      `    ${name.padEnd(30)} ${digits(figure.median).padStart(8)} (${range(figure)})`.padEnd(60) +
        cost.padEnd(22) +
        beside,
    );
  }
  for (const { of, to, words, goal, figure, verdict } of goals)
    print(`    GOAL ${of} : ${to} ${words} ${goal}: ${digits(figure.median)} (${range(figure)}) ${verdict}`);
  for (const line of missing) print(`    not measured: ${line}`);
}

async function runPart(paper: Paper, part: Part, options: RunOptions): Promise<PartResult> {
  const { rounds, print = () => undefined, look = () => [] } = options;
  print(`${paper.title}, ${part.row}: ${part.title}\n  there: ${part.there}`);
  const began = performance.now();
  const groups: GroupResult[] = [];
  const distances: number[] = [...look()];
  for await (const group of part.groups(rounds)) {
    const results = 'rows' in group ? [group] : await measureGroup(group, rounds);
    distances.push(...look());
    for (const result of results) printGroup(result, print);
    groups.push(...results);
  }
  const seconds = (performance.now() - began) / 1000;
  const here = part.conclude?.(groups) ?? '';
  const apart = distances.length === 0 ? null : spread(distances, true);
  if (here !== '') print(`  here: ${here}`);
  if (apart !== null) print(`  processors ${apart.median.toFixed(0)} ns apart (${range(apart)})`);
  print(`  ${seconds.toFixed(1)} s`);
  return {
    ...{ paper: paper.id, id: part.id, title: part.title, seconds, groups },
    ...{ here, apart },
  };
}

/** Measures the parts of papers, one after the other. */
export async function runParts(papers: readonly Paper[], options: RunOptions): Promise<PartResult[]> {
  const { parts = [] } = options;
  const results: PartResult[] = [];
  for (const paper of papers)
    for (const part of paper.parts)
      if (parts.length === 0 || parts.includes(part.id) || parts.includes(paper.id))
        results.push(await runPart(paper, part, options));
  return results;
}

/** The median ratio of a row to its base; NaN if there is none. */
export function ratioIn(group: GroupResult | undefined, name: string): number {
  return group?.rows.find((row) => row.name === name)?.ratio?.median ?? Number.NaN;
}
