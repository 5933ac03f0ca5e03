/**
 * How far apart the processors are: how it is measured, and the fate of slices with another distance than the
 * others.
 */
import { availableParallelism } from 'node:os';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { DistanceWatch, isAway } from '../../bench/distance.ts';
import { custom } from '../../bench/experiments.ts';
import type * as Machine from '../../bench/machine.ts';
import { parseBench } from '../../bench/options.ts';
import { runExperiment, type Slice } from '../../bench/runner.ts';
import { apart, distancesOf, summarize } from '../../bench/summary.ts';
import type { Experiment } from '../../bench/types.ts';

const NEAR = 60;
const FAR = 500;

/** Sees these one after the other, the last for ever. */
function watching(...seen: (number | null)[]): {
  readonly watch: DistanceWatch;
  readonly looks: () => number;
} {
  let looks = 0;
  const watch = new DistanceWatch(() => seen[Math.min(looks++, seen.length - 1)]!);
  return { watch, looks: () => looks };
}

describe('a look', () => {
  it('is measured between two processors, and not where there are more or fewer', async () => {
    const watch = await DistanceWatch.open();
    expect(watch === null).toBe(availableParallelism() !== 2);
    if (watch === null) return;
    try {
      const began = performance.now();
      for (let i = 0; i < 10; i++) for (const ns of watch.look()) expect(ns).toBeGreaterThan(1);
      // Another program may have a processor for as long as it likes: a look gives up.
      expect(performance.now() - began).toBeLessThan(10_000);
    } finally {
      watch.close();
    }
  });

  it.each([
    [100, 100, false],
    [100, 149, false],
    [100, 151, true],
    [100, 67, false],
    [100, 66, true],
    [Number.NaN, 100, false],
  ])('usual %d, seen %d: away %s', (usual, seen, away) => {
    expect(isAway([seen], usual)).toBe(away);
  });

  it('that came to nothing says nothing', async () => {
    const { watch, looks } = watching(null);
    expect(watch.look()).toEqual([]);
    expect(await watch.settle()).toEqual([]);
    expect(watch.isSpoilt([], 1)).toBe(false);
    expect(looks()).toBe(2);
  });
});

describe('a watch', () => {
  it('waits for the usual distance to come back', async () => {
    const { watch, looks } = watching(NEAR, NEAR, NEAR, NEAR, FAR, FAR, NEAR);
    for (let i = 0; i < 4; i++) watch.look();
    expect(await watch.settle()).toEqual([NEAR]);
    expect(looks()).toBe(7);
  });

  it('takes a distance that stays for the usual one', async () => {
    const { watch, looks } = watching(NEAR, NEAR, NEAR, FAR);
    for (let i = 0; i < 3; i++) watch.look();
    expect(await watch.settle()).toEqual([FAR]);
    expect(looks()).toBeGreaterThanOrEqual(6);
    expect(watch.usual()).toBeGreaterThan(NEAR);
  });

  it('has so much patience, and no more', () => {
    const { watch } = watching(NEAR);
    watch.look();
    expect(watch.isSpoilt([NEAR, NEAR], 1000)).toBe(false);
    expect(watch.isSpoilt([NEAR, FAR], 1000)).toBe(true);
    expect(watch.isSpoilt([FAR, FAR], 28_000)).toBe(true);
    expect(watch.isSpoilt([FAR, NEAR], 1000)).toBe(false);
  });
});

describe('slices of another distance', () => {
  const experiment = custom(parseBench(['--test', 'bw', '--size', '64']).wish!);
  const group = experiment.groups[0]!;
  const slice = (bytes: number, ...seen: number[]): Slice => ({
    windows: [
      {
        bytes,
        ns: 1000,
        steal: 0,
        foreign: 0,
        serverCpu: 1,
        clientCpu: 1,
        gc: 0,
        posts: 1,
        postMs: 0,
        clientActive: 1,
      },
    ],
    latency: null,
    steal: 0,
    server: null,
    client: null,
    apart: seen,
  });
  const [base, other] = group.cases;

  it('are left out, with their rounds of the ratio', () => {
    const near = (bytes: number): Slice => slice(bytes, NEAR, NEAR);
    const slices = new Map([
      [base!, [near(1000), near(1000), near(1000), near(1000), near(1000)]],
      [other!, [near(2000), slice(9000, FAR, FAR), near(2000), slice(9000, NEAR, FAR), near(2000)]],
    ]);
    const [, result] = summarize(group, slices);
    expect(result).toMatchObject({ byRound: [2, null, 2, null, 2], clean: 3, windows: 5, disturbed: false });
    expect(result!.ratios[base!.id]).toMatchObject({ median: 2, high: 2, rounds: 3 });
    expect(apart([distancesOf(slices)])).toMatchObject({
      turns: 10,
      away: 2,
      ns: { median: NEAR, rounds: 20 },
    });
  });

  it('have to serve where there are too few others, which is said', () => {
    const slices = new Map([
      [base!, [slice(1000, NEAR), slice(1000, NEAR), slice(1000, NEAR), slice(1000, NEAR)]],
      [other!, [slice(2000, NEAR), slice(4000, FAR), slice(4000, FAR), slice(2000, NEAR)]],
    ]);
    const [first, second] = summarize(group, slices);
    expect(first).toMatchObject({ disturbed: false });
    expect(second).toMatchObject({ disturbed: true, value: { rounds: 4, median: 3 } });
  });

  it('are nobody’s where nobody looked', () => {
    const slices = new Map(group.cases.map((one) => [one, [slice(1000)]]));
    expect(apart([distancesOf(slices)])).toBeNull();
    expect(summarize(group, slices).map(({ clean }) => clean)).toEqual([1, 1]);
  });
});

const { looks, starts } = vi.hoisted(() => ({ looks: { list: [] as number[] }, starts: { count: 0 } }));

vi.mock('../../bench/peer-process.ts', () => ({
  /** Each answers at once, and 640 octets have come each microsecond. */
  PeerProcess: class {
    #us = 0;

    ask(command: { readonly do: string }): Promise<unknown> {
      if (command.do === 'start') starts.count++;
      this.#us++;
      const mark = {
        bytes: this.#us * 640,
        now: this.#us * 1000,
        cpu: this.#us,
        gc: 0,
        posts: 0,
        postMs: 0,
        active: 0,
      };
      return Promise.resolve({ place: { port: 1 }, mark, health: { rss: 1, loopP99: 0 }, latency: null });
    }

    end(): void {}
  },
}));

/** Nobody else has the machine. */
vi.mock('../../bench/machine.ts', async (original) => ({
  ...(await original<typeof Machine>()),
  readTicks: () => ({ steal: 0, busy: 0 }),
}));

describe('where a goal is judged', () => {
  const METHOD = { rounds: 3, windows: 1, windowMs: 1, latencyMs: 1 };
  const WARM = 10;
  const measured = (careful: boolean): Experiment => {
    const experiment = custom(parseBench(['--test', 'bw', '--size', '64', '--against', '']).wish!);
    return { ...experiment, careful };
  };

  beforeEach(() => {
    starts.count = 0;
    const watch = (): DistanceWatch => new DistanceWatch(() => looks.list.shift() ?? NEAR);
    vi.spyOn(DistanceWatch, 'open').mockImplementation(() => Promise.resolve(watch()));
  });

  it('a slice is taken again, twice at most', async () => {
    // Before and after each: the second goes far for good while it is measured, and comes back only while the
    // next is waited for.
    looks.list = [NEAR, NEAR, NEAR, FAR, NEAR, FAR, NEAR, FAR, NEAR, NEAR];
    const { apart: found, cases } = await runExperiment(measured(true), METHOD, () => undefined);
    expect(starts.count).toBe(WARM + 5);
    expect(found).toMatchObject({ turns: 3, away: 1 });
    expect(cases[0]!.byRound).toHaveLength(3);
  });

  it('and only there: elsewhere one look beside each group says how far they were', async () => {
    looks.list = [FAR];
    const { apart: found } = await runExperiment(measured(false), METHOD, () => undefined);
    expect(found).toMatchObject({ ns: { median: FAR }, turns: 0, away: 0 });
    expect(looks.list).toEqual([]);
    expect(starts.count).toBe(1 + 3);
  });
});
