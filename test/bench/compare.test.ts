/** Which ratios count as moved, and the arithmetic under them. */
import { describe, expect, it } from 'vitest';
import {
  baselineOf,
  compare,
  compareText,
  ofProcessor,
  sameProcessor,
  type Baseline,
  type BaselineRun,
} from '../../bench/compare.ts';
import { spec } from '../../bench/experiments.ts';
import { ratioOf } from '../../bench/probes/probe.ts';
import { latencySlice, mergeLatency, ratios, spread } from '../../bench/stats.ts';
import type { CaseResult, ExperimentResult, ProbeResult } from '../../bench/types.ts';

function resultOf(id: string, ratio: readonly [number, number, number]): ExperimentResult {
  const [low, middle, high] = ratio;
  const of = { median: middle, low, high, best: high, rounds: 7 };
  const one = {
    id: `${id}/1/Write`,
    spec: spec('verbs', 'bw', 64),
    ratios: { base: of },
  } as unknown as CaseResult;
  return {
    id,
    title: '',
    test: id === 'latency' ? 'lat' : 'bw',
    axis: 'case',
    unit: 'GB/s',
    about: '',
    cases: [one],
    missing: [],
  };
}

const probeOf = (ratios: ProbeResult['ratios']): ProbeResult => ({
  id: 'micro',
  title: '',
  about: '',
  columns: [],
  rows: [],
  charts: [],
  ratios,
  missing: [],
  disturbed: false,
});

const old = (id: string): Baseline => ({
  schema: 'iwarp-bench-ratios/2',
  ratios: {
    [`${id}/1/Write : base`]: {
      median: 1,
      low: 0.95,
      high: 1.05,
      better: id === 'latency' ? 'less' : 'more',
    },
  },
});
const ran = (
  ...experiments: ExperimentResult[]
): { experiments: ExperimentResult[]; probes: ProbeResult[] } => ({ experiments, probes: [] });

describe('comparing with the baseline', () => {
  it.each([
    ['bulk', [0.9, 1.02, 1.1], 'same'],
    ['bulk', [0.6, 0.7, 0.8], 'worse'],
    ['bulk', [1.3, 1.4, 1.5], 'better'],
    ['latency', [1.3, 1.4, 1.5], 'worse'],
    ['latency', [0.6, 0.7, 0.8], 'better'],
    ['bulk', [0.7, 0.8, 1], 'same'],
  ] as const)('%s at %j is %s', (id, ratio, verdict) => {
    expect(compare(old(id), ran(resultOf(id, ratio)))).toMatchObject([{ verdict }]);
  });

  it('takes the baseline of the same processor, or the first', () => {
    const [amd, intel] = ['2 x AMD', '2 x Intel'].map((CPU) => ({
      run: { machine: { CPU } } as unknown as BaselineRun,
    })) as [Baseline, Baseline];
    expect(sameProcessor([amd, intel], '2 x Intel')).toBe(intel);
    expect(sameProcessor([amd, intel], '4 x Intel')).toBe(amd);
    expect(sameProcessor([old('bulk'), intel], '2 x Intel')).toBe(intel);
    expect(sameProcessor([], '2 x Intel')).toBeUndefined();
  });

  it('knows generations of one name apart, and takes a baseline without one for any', () => {
    const named = ['2 x AMD, family 25 model 17', '2 x AMD, family 26 model 2', '2 x Intel'];
    const baselines = named.map((CPU) => ({ run: { machine: { CPU } } as unknown as BaselineRun }));
    expect(
      [...named, '2 x Intel, family 6 model 207', '2 x AMD, family 25 model 1', '2 x Intel II'].map((now) =>
        baselines.findIndex((one) => one === ofProcessor(baselines, now)),
      ),
    ).toEqual([0, 1, 2, 2, -1, -1]);
  });

  it('misses what its part should have given, and only that', () => {
    expect(compare(old('bulk'), ran({ ...resultOf('bulk', [1, 1, 1]), cases: [] }))).toMatchObject([
      { verdict: 'gone' },
    ]);
    expect(compare(old('bulk'), ran())).toEqual([]);
  });

  it('does not miss figures measured only with an add-on that this run lacks', () => {
    const native = {
      schema: 'iwarp-bench-ratios/2',
      ratios: { 'micro/simd 65536 : native 65536': { median: 1.8, low: 1.7, high: 1.9, better: 'more' } },
    } as const;
    expect(compare(native, { experiments: [], probes: [probeOf([])] })).toEqual([]);
  });

  it('knows the part of a case whose name begins otherwise', () => {
    const base = { median: 1, low: 1, high: 1, better: 'more' } as const;
    const was: Baseline = {
      schema: 'iwarp-bench-ratios/2',
      ratios: { 'spread-each/4/Write, CRC : spread/1/Write, CRC': base },
    };
    const now = ran({ ...resultOf('spread', [1, 1, 1]), cases: [] });
    expect(compare(was, now)).toMatchObject([{ verdict: 'gone' }]);
  });

  it('takes differences about zero for what they are, and minds which way they went', () => {
    const ratio = (values: readonly number[], slack?: number): ProbeResult =>
      probeOf([ratioOf('micro/x : y', 'less', values, slack)]);
    const verdict = (was: readonly number[], is: readonly number[], slack?: number): string =>
      compare(baselineOf({ experiments: [], probes: [ratio(was, slack)] }), {
        experiments: [],
        probes: [ratio(is, slack)],
      })[0]!.verdict;
    expect(verdict([-175, -173, -169], [-166, -165, -164])).toBe('same');
    expect(verdict([-175, -173, -169], [-103, -102, -101])).toBe('worse');
    expect(verdict([-175, -173, -169], [-303, -302, -301])).toBe('better');
    expect(verdict([-0.1, 0, 0.1], [0.4, 0.5, 0.6], 1)).toBe('same');
    expect(verdict([-0.1, 0, 0.1], [1.4, 1.5, 1.6], 1)).toBe('worse');
  });

  it('keeps the distance of the processors, and compares runs of the same distance only', () => {
    const at = (ns: number, ratio: number): ExperimentResult => ({
      ...resultOf('bulk', [ratio, ratio, ratio]),
      apart: { ns: { median: ns, low: ns, high: ns, best: ns, rounds: 1 }, turns: 7, away: 0 },
    });
    const was = baselineOf({ experiments: [at(100, 1)], probes: [] });
    expect(was.apart).toEqual({ bulk: 100 });
    const is = (ns: number): ReturnType<typeof compare> =>
      compare(was, { experiments: [at(ns, 0.5)], probes: [] });
    expect(is(120)).toMatchObject([{ verdict: 'worse' }]);
    expect(is(460)).toMatchObject([{ verdict: 'elsewhere' }]);
    expect(compareText(is(460))).toMatch(/^0 ratios as before, 0 moved\n1 not compared: .* distance/);
    // Baselines of before it was kept are compared as they were.
    const { apart: _, ...without } = was;
    expect(compare(without, { experiments: [at(460, 0.5)], probes: [] })).toMatchObject([
      { verdict: 'worse' },
    ]);
  });

  it('says which figures were disturbed, and lists moved, new and gone ones apart', () => {
    const one = resultOf('bulk', [0.6, 0.7, 0.8]);
    const disturbed = { ...one, cases: one.cases.map((each) => ({ ...each, disturbed: true })) };
    const text = compareText([
      ...compare(old('bulk'), ran(disturbed)),
      ...compare({ schema: 'iwarp-bench-ratios/2', ratios: {} }, ran(resultOf('rate', [1, 1, 1]))),
    ]);
    expect(text).toMatch(/^0 ratios as before, 1 moved, 1 new or gone:\n/);
    expect(text).toMatch(/worse +1\.00 -> +0\.70 +bulk\/1\/Write : base \(disturbed\)\n/);
    expect(text).toMatch(/new +– -> +1\.00 +rate\/1\/Write : base\n/);
  });

  it('watches the ratios of probes, each with its own good way, and names what moved', () => {
    const probe = (median: number): ProbeResult => probeOf([ratioOf('micro/x : y', 'less', [median])]);
    const was = baselineOf({ experiments: [], probes: [probe(1)] });
    const moves = compare(was, { experiments: [], probes: [probe(2)] });
    expect(moves).toEqual([{ name: 'micro/x : y', verdict: 'worse', was: 1, is: 2, disturbed: false }]);
    expect(compareText(moves)).toMatch(/1 moved:[^]*worse +1\.00 -> +2\.00 +micro\/x : y/);
    expect(compare(was, { experiments: [], probes: [probe(0.5)] })).toMatchObject([{ verdict: 'better' }]);
  });
});

describe('the arithmetic', () => {
  it('leaves disturbed rounds out of spread and ratio', () => {
    expect(spread([3, Number.NaN, 1, 2])).toMatchObject({ median: 2, low: 1, high: 3, rounds: 3 });
    expect(spread(ratios([2, 4, Number.NaN], [1, 4, 5])).median).toBe(1.5);
  });

  it('has quartiles that lie as far from either end', () => {
    expect(spread([1, 2, 3, 4])).toMatchObject({ median: 2.5, low: 1.5, high: 3.5 });
    expect(spread([1, 2, 3, 4, 5, 6, 7, 8])).toMatchObject({ median: 4.5, low: 2.5, high: 6.5 });
    expect(spread([1, 2, 3, 4, 5, 6, 7])).toMatchObject({ median: 4, low: 2, high: 6 });
  });

  it('merges latencies within the width of a bucket', () => {
    const slices = [
      latencySlice(Float64Array.from([10, 20, 30])),
      latencySlice(Float64Array.from([40, 1000])),
    ];
    const merged = mergeLatency(slices, 2)!;
    expect(merged).toMatchObject({ count: 5, min: 5, max: 500, average: 110 });
    expect(merged.typical).toBeCloseTo(15, 0);
    expect(merged.p999).toBeGreaterThan(490);
  });
});
