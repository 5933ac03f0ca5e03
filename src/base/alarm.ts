/** What shall happen later, and perhaps not. */
import type { CancelTimer, Scheduler } from './clock.ts';

/** A call that is later than this, ms, comes from a thread that has stood still. */
const LATE = 10;

/** So often may a thread have stood still within one silence. */
const MOST_STANDS = 3;

/** One call in the future. To set it again takes the call back that was set before. */
export class Alarm {
  readonly #scheduler: Scheduler;
  #cancel: CancelTimer | null = null;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
  }

  now(): number {
    return this.#scheduler.now();
  }

  get isSet(): boolean {
    return this.#cancel !== null;
  }

  /** `ring` at this time of {@link Alarm.now}. */
  setAt(time: number, ring: () => void): void {
    this.stop();
    this.#cancel = this.#scheduler.at(time, () => {
      this.#cancel = null;
      ring();
    });
  }

  /** `ring` after this number of milliseconds. */
  set(ms: number, ring: () => void): void {
    this.setAt(this.now() + ms, ring);
  }

  /**
   * As {@link Alarm.set}, where silence of a peer for this number of milliseconds is the end of it. A thread
   * that has stood still (a long computation, a machine that slept) gets its timers before it reads the bytes
   * that have come: where the call would be late, a quarter of the time is waited to read them, and again,
   * but not without an end, where the thread stands still once more.
   */
  setForSilence(ms: number, ring: () => void): void {
    this.#wait(ms, Math.ceil(ms / 4), MOST_STANDS, ring);
  }

  #wait(ms: number, more: number, stands: number, ring: () => void): void {
    const due = this.now() + ms;
    this.setAt(due, () => {
      if (stands > 0 && this.now() - due > LATE) this.#wait(more, more, stands - 1, ring);
      else ring();
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = null;
  }
}
