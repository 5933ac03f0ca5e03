/** A test by time, on a clock that moves on demand: it may last longer than a timer of Node. */
import { describe, expect, it } from 'vitest';
import { LapTimer, TestClock } from '../../cli/perftest/clock.ts';
import type { Settings } from '../../cli/perftest/settings.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';

describe('the clock of a test by time', () => {
  it.each([
    [4, 1],
    [2_000_000, 500_000],
    [2_200_000, 1],
    [100_000_000, 49_999_999],
  ])('of %i s, with margins of %i s', (duration, margin) => {
    const time = new VirtualTime(17);
    let over = 0;
    const clock = new TestClock({ duration, margin } as Settings, () => over++, time);
    clock.start();
    for (const [phase, seconds] of [
      ['margin', margin],
      ['sample', duration - 2 * margin],
      ['after', margin],
    ] as const) {
      time.advance(seconds * 1000 - 1);
      expect([phase, over]).toEqual([clock.phase, 0]);
      time.advance(1);
    }
    expect([clock.phase, over]).toEqual(['over', 1]);
    expect(clock.sampleEnded - clock.sampleBegan).toBe((duration - 2 * margin) * 1000);
  });

  it('does not end once it is stopped', () => {
    const time = new VirtualTime();
    let over = 0;
    const clock = new TestClock({ duration: 4, margin: 1 } as Settings, () => over++, time);
    clock.start();
    time.advance(2000);
    clock.stop();
    time.advance(10_000);
    expect([clock.phase, over]).toEqual(['sample', 0]);
  });
});

it.each([5, 3_000_000])('a lap comes every %i s', (seconds) => {
  const time = new VirtualTime();
  const at: number[] = [];
  const laps = new LapTimer(seconds, () => at.push(time.now()), time);
  time.advance(3 * seconds * 1000);
  laps.stop();
  time.advance(3 * seconds * 1000);
  expect(at).toEqual([1, 2, 3].map((lap) => lap * seconds * 1000));
});
