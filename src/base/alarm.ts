/** What shall happen later, and perhaps not. */
import type { CancelTimer, Scheduler } from './clock.ts';

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

  /** `ring` after so many milliseconds. */
  set(ms: number, ring: () => void): void {
    this.setAt(this.now() + ms, ring);
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = null;
  }
}
