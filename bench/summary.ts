/** From slices to results: clean windows, medians by round, ratios inside a round, costs. */
import { isRead } from './cases.ts';
import { isAway } from './distance.ts';
import type { Slice } from './runner.ts';
import { median, mergeLatency, ratios, spread } from './stats.ts';
import type { Apart, Case, CaseResult, CaseSpec, Cost, Group, Spread, Window } from './types.ts';

/** More stolen clock ticks than this spoil a window. */
const MAX_STEAL = 1;
/**
 * Fewer clean rounds than this are no result: then the disturbed windows have to serve, and the result says
 * so.
 */
const MIN_ROUNDS = 3;
/** Cores that programs which are not ours may use before a result is marked. */
const MAX_FOREIGN = 0.5;

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const gbs = (window: Window): number => window.bytes / window.ns;

/** Whether the host or other programs took the machine away in every window of a slice. */
export function isDisturbed({ windows, steal, latency }: Slice): boolean {
  if (latency !== null && steal > MAX_STEAL) return true;
  return (
    windows.length > 0 && windows.every((window) => window.steal > MAX_STEAL || window.foreign > MAX_FOREIGN)
  );
}

/** perftest counts half a round trip as the latency, and all of it for Reads. */
const tripsOf = (spec: CaseSpec): number => (isRead(spec) ? 1 : 2);

/** A group's slices, by case, and by round. */
export type Slices = ReadonlyMap<Case, readonly Slice[]>;

/** The distances between the processors that a group's slices saw. */
export interface Distances {
  readonly seen: readonly number[];
  readonly usual: number;
  readonly turns: number;
  readonly away: number;
}

export function distancesOf(slices: Slices): Distances {
  const all = [...slices.values()].flat();
  const seen = all.flatMap((slice) => slice.apart);
  const usual = median(seen);
  return { seen, usual, turns: all.length, away: all.filter((slice) => isAway(slice.apart, usual)).length };
}

/** The distances of all groups of an experiment. */
export function apart(groups: readonly Distances[]): Apart | null {
  const seen = groups.flatMap((group) => group.seen);
  return seen.length === 0
    ? null
    : {
        ns: spread(seen, true),
        turns: sum(groups.map(({ turns }) => turns)),
        away: sum(groups.map(({ away }) => away)),
      };
}

/** The parts of a slice that count. */
type Part = Pick<Slice, 'windows' | 'latency'>;

/**
 * Nothing of one that saw another distance than the usual one, and no time in which the host took the
 * processor away.
 */
function cleanOf({ windows, latency, steal, apart: seen }: Slice, usual: number): Part {
  if (isAway(seen, usual)) return { windows: [], latency: null };
  return {
    windows: windows.filter((window) => window.steal <= MAX_STEAL),
    latency: steal <= MAX_STEAL ? latency : null,
  };
}

/** The value of a round; NaN without one. */
function valueOf(spec: CaseSpec, { windows, latency }: Part): number {
  if (spec.test === 'bw') return median(windows.map(gbs));
  return latency !== null && latency.count > 0 ? latency.p50 / tripsOf(spec) : Number.NaN;
}

function cost(spec: CaseSpec, slices: readonly Slice[]): Cost {
  const windows = slices.flatMap((slice) => slice.windows);
  const of = (name: keyof Window): number => sum(windows.map((window) => window[name]));
  const health = (side: 'server' | 'client', name: 'rss' | 'loopP99'): number =>
    median(slices.map((slice) => slice[side]?.[name] ?? Number.NaN));
  const messages = of('bytes') / spec.size;
  return {
    serverPerByte: (of('serverCpu') * 1000) / of('bytes'),
    clientPerByte: (of('clientCpu') * 1000) / of('bytes'),
    clientPerMessage: of('clientCpu') / messages,
    mainPerMessage: (of('clientActive') * 1000) / messages,
    // A transport that does not time its calls has spent no time in them.
    postPerMessage: of('postMs') > 0 ? (of('postMs') * 1000) / of('posts') : Number.NaN,
    gcShare: (of('gc') * 1e6) / of('ns') / (1 + spec.clients),
    serverRss: health('server', 'rss'),
    clientRss: health('client', 'rss'),
    serverLoopP99: health('server', 'loopP99'),
    clientLoopP99: health('client', 'loopP99'),
  };
}

function summarizeCase(
  one: Case,
  slices: readonly Slice[],
  usual: number,
): CaseResult & { readonly rounds: readonly number[] } {
  const { spec } = one;
  const windows = slices.flatMap((slice) => slice.windows);
  const clean = slices.map((slice) => cleanOf(slice, usual));
  const spoilt =
    clean.filter((part) => Number.isFinite(valueOf(spec, part))).length < Math.min(MIN_ROUNDS, slices.length);
  const used: readonly Part[] = spoilt ? slices : clean;
  const rounds = used.map((part) => valueOf(spec, part));
  const value = spread(rounds, spec.test === 'lat');
  const latency = mergeLatency(
    used.flatMap((part) => (part.latency === null ? [] : [part.latency])),
    tripsOf(spec),
  );
  return {
    id: one.id,
    series: one.series,
    x: one.x,
    spec,
    value,
    rounds,
    byRound: rounds.map((round) => (Number.isFinite(round) ? round : null)),
    ratios: {},
    clean: clean.flatMap((part) => part.windows).length,
    windows: windows.length,
    disturbed: spoilt || median(windows.map((window) => window.foreign)) > MAX_FOREIGN,
    messageRate: spec.test === 'bw' ? (value.median * 1e3) / spec.size : 1 / (value.median * tripsOf(spec)),
    peak: Math.max(...windows.map(gbs)),
    latency,
    cost: cost(spec, slices),
  };
}

/** Results of a group, each with its ratios to the group's bases. */
export function summarize(
  group: Group,
  slices: Slices,
  { usual }: Distances = distancesOf(slices),
): CaseResult[] {
  const results = group.cases.flatMap((one) => {
    const list = slices.get(one);
    return list === undefined || list.length === 0 ? [] : [summarizeCase(one, list, usual)];
  });
  return results.map(({ rounds, ...result }) => {
    const to: Record<string, Spread> = {};
    for (const id of group.bases) {
      const base = results.find((other) => other.id === id);
      if (base !== undefined && id !== result.id) to[id] = spread(ratios(rounds, base.rounds));
    }
    return { ...result, ratios: to };
  });
}
