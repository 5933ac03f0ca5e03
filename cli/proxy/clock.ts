/**
 * Times that mean the same on the screen and in the capture file. A capture holds seconds and nanoseconds
 * since 1970; milliseconds in steps of 1/4096 are the finest that a double still adds to that without
 * rounding.
 */
import { realScheduler } from '../../src/transport/scheduler.ts';

const STEPS = 4096;

export class ProxyClock {
  /** Milliseconds since 1970 at time 0. */
  readonly epoch: number = Math.round(Date.now() - realScheduler.now());
  #origin: { readonly seconds: number; readonly nanos: number } | undefined;

  /** Milliseconds on the scheduler's clock. */
  now(): number {
    return Math.round(realScheduler.now() * STEPS) / STEPS;
  }

  /** Seconds since the first call, as a reader of the capture file computes them. */
  seconds(now: number): number {
    const time = this.epoch + now;
    const seconds = Math.floor(time / 1000);
    const nanos = Math.min(999_999_999, Math.round((time - seconds * 1000) * 1e6));
    this.#origin ??= { seconds, nanos };
    return seconds - this.#origin.seconds + (nanos - this.#origin.nanos) / 1e9;
  }
}
