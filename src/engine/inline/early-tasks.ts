/** A scheduler whose deferred tasks can be run before their time, by a program that does not wait for it. */
import type { CancelTimer, Scheduler } from '../../base/clock.ts';

export class EarlyTasks implements Scheduler {
  readonly #inner: Scheduler;
  readonly #tasks: (() => void)[] = [];
  /** The inner scheduler runs them: it is asked once, however often they are run before. */
  #due = false;
  /** Tasks are being run early: a clock is read once, when the time is first asked for. */
  #isStill = false;
  #time: number | null = null;

  constructor(inner: Scheduler) {
    this.#inner = inner;
  }

  now(): number {
    return this.#isStill ? (this.#time ??= this.#inner.now()) : this.#inner.now();
  }

  /** From now on time stands still, until it goes on. */
  stop(): void {
    this.#isStill = true;
  }

  goOn(): void {
    this.#isStill = false;
    this.#time = null;
  }

  at(time: number, task: () => void): CancelTimer {
    return this.#inner.at(time, task);
  }

  defer(task: () => void): void {
    this.#tasks.push(task);
    this.#ask();
  }

  #ask(): void {
    if (this.#due) return;
    this.#due = true;
    this.#inner.defer(() => {
      this.#due = false;
      this.run();
    });
  }

  /** Run the tasks that have been deferred so far. */
  run(): void {
    if (this.#tasks.length === 0) return;
    try {
      for (let left = this.#tasks.length; left > 0; left--) this.#tasks.shift()!();
    } finally {
      // What they have deferred themselves, and those behind one that throws.
      if (this.#tasks.length > 0) this.#ask();
    }
  }
}
