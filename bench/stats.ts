/** Medians, spreads, ratios inside a round, and a histogram of latencies that can be merged. */
import type { LatencySlice, LatencySummary, Spread } from './types.ts';

/** The value at `share` of sorted numbers; NaN without any. */
function quantile(sorted: ArrayLike<number>, share: number): number {
  if (sorted.length === 0) return Number.NaN;
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * share) - 1))]!;
}

/**
 * The same, but where the share falls between two values their mean, as the median has it: both quartiles are
 * then as far from their end.
 */
function quartile(sorted: readonly number[], share: number): number {
  const before = sorted.length * share;
  return Number.isInteger(before) && before > 0
    ? (sorted[before - 1]! + sorted[before]!) / 2
    : quantile(sorted, share);
}

export function median(values: readonly number[]): number {
  const sorted = values.filter((value) => Number.isFinite(value)).toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return Number.NaN;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Median, quartiles and best; `best` is the highest, or the lowest where small is good. */
export function spread(values: readonly number[], smallIsGood = false): Spread {
  const sorted = values.filter((value) => Number.isFinite(value)).toSorted((a, b) => a - b);
  return {
    median: median(sorted),
    low: quartile(sorted, 0.25),
    high: quartile(sorted, 0.75),
    best: sorted.length === 0 ? Number.NaN : smallIsGood ? sorted[0]! : sorted.at(-1)!,
    rounds: sorted.length,
  };
}

/** Round by round, `values` over `bases`. */
export function ratios(values: readonly number[], bases: readonly number[]): number[] {
  return values.map((value, round) => value / (bases[round] ?? Number.NaN));
}

/** Buckets of a histogram grow by 1.1 %: 64 to each doubling of nanoseconds. */
const PER_OCTAVE = 64;

function bucketOf(us: number): number {
  return Math.max(0, Math.round(Math.log2(Math.max(us * 1000, 1)) * PER_OCTAVE));
}

/** Microseconds in the middle of a bucket. */
function bucketValue(bucket: number): number {
  return 2 ** (bucket / PER_OCTAVE) / 1000;
}

/** Sum up the samples (microseconds) of one slice. */
export function latencySlice(samples: Float64Array): LatencySlice {
  const sorted = samples.toSorted();
  const counts = new Map<number, number>();
  let sum = 0;
  let sumSquares = 0;
  for (const us of sorted) {
    sum += us;
    sumSquares += us * us;
    const bucket = bucketOf(us);
    counts.set(bucket, (counts.get(bucket) ?? 0) + 1);
  }
  return {
    count: sorted.length,
    p50: quantile(sorted, 0.5),
    sum,
    sumSquares,
    min: sorted[0] ?? Number.NaN,
    max: sorted.at(-1) ?? Number.NaN,
    buckets: [...counts].flat(),
  };
}

/** All slices together, divided by `trips` (2 turns a round trip into a latency as perftest counts it). */
export function mergeLatency(slices: readonly LatencySlice[], trips: number): LatencySummary | null {
  const counts = new Map<number, number>();
  let count = 0;
  let sum = 0;
  let sumSquares = 0;
  for (const slice of slices) {
    count += slice.count;
    sum += slice.sum;
    sumSquares += slice.sumSquares;
    for (let i = 0; i < slice.buckets.length; i += 2) {
      counts.set(slice.buckets[i]!, (counts.get(slice.buckets[i]!) ?? 0) + slice.buckets[i + 1]!);
    }
  }
  if (count === 0) return null;
  const sorted = [...counts].toSorted(([a], [b]) => a - b);
  const max = Math.max(...slices.map((slice) => slice.max));
  // The middle of the last bucket may lie beyond all that was seen.
  const at = (share: number): number => Math.min(max / trips, atBucket(share));
  const atBucket = (share: number): number => {
    let left = Math.ceil(count * share);
    for (const [bucket, n] of sorted) {
      left -= n;
      if (left <= 0) return bucketValue(bucket) / trips;
    }
    return Number.NaN;
  };
  const average = sum / count;
  return {
    count,
    min: Math.min(...slices.map((slice) => slice.min)) / trips,
    max: max / trips,
    typical: at(0.5),
    average: average / trips,
    stdev: Math.sqrt(Math.max(0, sumSquares / count - average ** 2)) / trips,
    p90: at(0.9),
    p99: at(0.99),
    p999: at(0.999),
  };
}
