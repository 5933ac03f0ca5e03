/**
 * The course of a test by time: a margin, the sample, a margin again. A test may last for years: `setTimeout`
 * takes no more than 2^31 - 1 milliseconds, alarms take any time.
 */
import { Alarm } from '../../src/base/alarm.ts';
import type { Scheduler } from '../../src/base/clock.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { cpuTimes, utilization, type CpuTimes } from './cpu.ts';
import type { Settings } from './settings.ts';

type Phase = 'margin' | 'sample' | 'after' | 'over';

/** Runs through the phases by timers; figures count in the sample only. */
export class TestClock {
  phase: Phase = 'margin';
  sampleBegan = 0;
  sampleEnded = 0;
  /** Use of the processors in the sample, in percent. */
  utilization = 0;
  #cpuBegan: CpuTimes = { user: 0, idle: 0 };
  readonly #alarm: Alarm;
  #began = Number.POSITIVE_INFINITY;
  readonly #s: Settings;
  readonly #onOver: () => void;

  constructor(s: Settings, onOver: () => void, scheduler: Scheduler = realScheduler) {
    this.#s = s;
    this.#alarm = new Alarm(scheduler);
    this.#onOver = onOver;
  }

  start(): void {
    this.#began = this.#alarm.now();
    this.#wait(this.#s.margin, () => this.#sample());
  }

  stop(): void {
    this.#alarm.stop();
  }

  /** End now, and the sample with it, if half of the time is over; false if it is not. */
  cut(): boolean {
    const now = this.#alarm.now();
    if (this.phase === 'margin' || now - this.#began < this.#s.duration! * 500) return false;
    this.stop();
    if (this.phase === 'sample') this.#endSample();
    this.phase = 'over';
    this.#onOver();
    return true;
  }

  #sample(): void {
    this.phase = 'sample';
    this.sampleBegan = this.#alarm.now();
    if (this.#s.cpuUtil) this.#cpuBegan = cpuTimes();
    this.#wait(this.#s.duration! - 2 * this.#s.margin, () => this.#after());
  }

  #after(): void {
    this.phase = 'after';
    this.#endSample();
    this.#wait(this.#s.margin, () => {
      this.phase = 'over';
      this.#onOver();
    });
  }

  #endSample(): void {
    this.sampleEnded = this.#alarm.now();
    if (this.#s.cpuUtil) this.utilization = utilization(this.#cpuBegan, cpuTimes());
  }

  #wait(seconds: number, then: () => void): void {
    if (seconds <= 0) then();
    else this.#alarm.set(seconds * 1000, then);
  }
}

/** From here on a timer does most of the waiting, which is never more than a day at once. */
const TIMED_MS = 5;
const TIMER_SLACK_MS = 2;
const LONGEST_MS = 86_400_000;

/**
 * Calls `then` at a time of `performance.now()`, unless the returned function has been called. Timers know no
 * less than a millisecond: the last stretch is spent in turns of the event loop, in which the connections go
 * on.
 */
export function callAt(time: number, then: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  const look = (): void => {
    if (stopped) return;
    const left = time - performance.now();
    if (left <= 0) then();
    else if (left < TIMED_MS) setImmediate(look);
    else timer = setTimeout(look, Math.min(left - TIMER_SLACK_MS, LONGEST_MS));
  };
  setImmediate(look);
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}

/** Calls `lap` after each period of `seconds`, until it is stopped. */
export class LapTimer {
  readonly #alarm: Alarm;

  constructor(seconds: number, lap: () => void, scheduler: Scheduler = realScheduler) {
    this.#alarm = new Alarm(scheduler);
    this.#next(seconds * 1000, lap);
  }

  stop(): void {
    this.#alarm.stop();
  }

  #next(ms: number, lap: () => void): void {
    this.#alarm.set(ms, () => {
      this.#next(ms, lap);
      lap();
    });
  }
}
