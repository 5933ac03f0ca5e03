// Calls that shall happen later, on a clock that moves on demand, and on one that jumps as that of a thread
// which has stood still.
import { expect, it } from 'vitest';
import { Alarm } from '../../src/base/alarm.ts';
import type { Scheduler } from '../../src/base/clock.ts';
import { VirtualTime } from '../../src/simnet/virtual-time.ts';

/** Its next timers, that many `times`, fire late by `ms`. */
function standing(time: VirtualTime, stood: { ms: number; times: number }): Scheduler {
  return {
    now: () => time.now(),
    at: (due, task) => {
      const late = stood.times > 0 ? stood.ms : 0;
      stood.times--;
      return time.at(due + late, task);
    },
    defer: (task) => time.defer(task),
  };
}

it('a set alarm rings once; setting it again and stopping it take the earlier call back', () => {
  const time = new VirtualTime();
  const alarm = new Alarm(time);
  const rung: string[] = [];
  alarm.set(10, () => rung.push('first'));
  alarm.set(20, () => rung.push('second'));
  expect(alarm.isSet).toBe(true);
  time.advance(15);
  expect(rung).toEqual([]);
  time.advance(5);
  expect([rung, alarm.isSet]).toEqual([['second'], false]);
  alarm.set(1, () => rung.push('third'));
  alarm.stop();
  time.advance(10);
  expect(rung).toEqual(['second']);
});

it('a silence is over in its time, and a quarter later where the thread stood still', () => {
  const time = new VirtualTime();
  const stood = { ms: 500, times: 0 };
  const alarm = new Alarm(standing(time, stood));
  let rung = 0;
  alarm.setForSilence(100, () => void rung++);
  time.advance(99);
  expect(rung).toBe(0);
  time.advance(1);
  expect(rung).toBe(1);

  stood.times = 1;
  alarm.setForSilence(100, () => void rung++);
  time.advance(600);
  expect(rung).toBe(1); // the bytes that have come are read first
  expect(alarm.isSet).toBe(true);
  time.advance(24);
  expect(rung).toBe(1);
  time.advance(1);
  expect(rung).toBe(2);

  stood.times = 1;
  alarm.setForSilence(100, () => void rung++);
  time.advance(600);
  alarm.stop();
  time.advance(1000);
  expect(rung).toBe(2);

  stood.times = 9; // a thread that never keeps its time ends a dead connection all the same
  alarm.setForSilence(100, () => void rung++);
  time.advance(600 + 2 * 525);
  expect(rung).toBe(2);
  time.advance(525);
  expect(rung).toBe(3);
});
