/** The peak of a bandwidth test, against the comparison of each post with each completion. */
import { describe, expect, it } from 'vitest';
import { peakRate } from '../../cli/perftest/peak.ts';
import { Draw } from '../model/draw.ts';

/** Each post with each completion that is not before it, as in the stock programs. */
function plainPeak(posted: Float64Array, done: Float64Array, postList: number): number {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < done.length; i += postList)
    for (let j = i; j < done.length; j++)
      if (done[j]! > 0) best = Math.min(best, (done[j]! - posted[i]!) / (j - i + 1));
  return best > 0 && best < Number.POSITIVE_INFINITY ? 1 / best : 0;
}

/** Times of a run of `n` operations of which `depth` are out at most; one in `every` gives a completion. */
function times(draw: Draw, n: number, depth: number, every: number): [Float64Array, Float64Array] {
  const posted = new Float64Array(n);
  const done = new Float64Array(n);
  // A clock of five microseconds, which stands at many calls.
  let now = 1000 + draw.below(1_000_000) / 1000;
  const tick = (least: number): number => (now += draw.oneIn(3) ? draw.below(200) * 0.005 : least);
  for (let out = 0, back = 0; back < n; ) {
    if (out < n && out - back < depth && !draw.oneIn(3)) posted[out++] = tick(0);
    else if (back < out) {
      const time = tick(0.005);
      back++;
      if (back % every === 0 || back === n) done[back - 1] = time;
    }
  }
  return [posted, done];
}

describe('the peak of a bandwidth test', () => {
  it('is that of all stretches', () => {
    const draw = new Draw(47);
    for (let round = 0; round < 500; round++) {
      const n = 1 + draw.below(200);
      const postList = draw.pick([1, 1, 2, 5]);
      const [posted, done] = times(draw, n, 1 + draw.below(64), draw.pick([1, 1, 3, 100]));
      const right = plainPeak(posted, done, postList);
      const ours = peakRate(posted, done, postList);
      expect(Math.abs(ours - right), `round ${round}: ${ours} in place of ${right}`).toBeLessThanOrEqual(
        right * 1e-9,
      );
    }
  });

  it('is 0 without a completion, and where the clock stood', () => {
    expect(peakRate(new Float64Array(0), new Float64Array(0), 1)).toBe(0);
    expect(peakRate(Float64Array.of(1, 2), Float64Array.of(0, 0), 1)).toBe(0);
    expect(peakRate(Float64Array.of(1, 2), Float64Array.of(3, 2), 1)).toBe(0);
  });

  it('of a million operations needs no comparison of each with each', () => {
    const [posted, done] = times(new Draw(48), 1_000_000, 8192, 1);
    // Each post with each completion would be 500,000,000,000 steps.
    expect(peakRate(posted, done, 1)).toBeGreaterThan(0);
  });
});
