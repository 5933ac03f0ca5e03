/**
 * A clock that moves only on demand, so that tests with time-outs, latency and bandwidth run without
 * waiting and are repeatable.
 *
 * Read first: `base/clock.ts`.
 */

import type { CancelTimer, Scheduler } from '../base/clock.ts';
import { IwarpError } from '../base/errors.ts';

interface Entry {
  readonly time: number;
  /** Breaks ties: first scheduled, first run. */
  readonly order: number;
  readonly task: () => void;
  cancelled: boolean;
}

/** Far above what a test needs; a run that gets here goes round in circles. */
const DEFAULT_STEPS = 1_000_000;

/**
 * {@link Scheduler} over a queue of events. Tasks run only in `step`, `run`, `runUntil` and `advance`, in the
 * order of their times; tasks of one time run in the order in which they were scheduled, so `defer` is first
 * in, first out.
 *
 * @example
 * const time = new VirtualTime();
 * time.at(5, () => console.log('five'));
 * time.advance(10); // prints; time.now() is 10
 */
export class VirtualTime implements Scheduler {
  #now: number;
  #order = 0;
  #live = 0;
  /** A binary heap, earliest first. */
  readonly #heap: Entry[] = [];

  /** A clock that shows `start` milliseconds and stands still. */
  constructor(start = 0) {
    this.#now = start;
  }

  /** Milliseconds of virtual time. */
  now(): number {
    return this.#now;
  }

  at(time: number, task: () => void): CancelTimer {
    const entry: Entry = { time: Math.max(time, this.#now), order: this.#order++, task, cancelled: false };
    push(this.#heap, entry);
    this.#live++;
    return () => {
      if (entry.cancelled) return;
      entry.cancelled = true;
      this.#live--;
    };
  }

  defer(task: () => void): void {
    this.at(this.#now, task);
  }

  /** Number of waiting tasks. */
  get pending(): number {
    return this.#live;
  }

  /** Time of the next task; undefined if none waits. */
  get next(): number | undefined {
    return this.#peek()?.time;
  }

  /** Run the next task, with the clock at its time. False if none waits. */
  step(): boolean {
    const entry = this.#peek();
    if (entry === undefined) return false;
    pop(this.#heap);
    entry.cancelled = true; // A later cancel finds nothing to do.
    this.#live--;
    this.#now = entry.time;
    entry.task();
    return true;
  }

  /** Run until no task waits, and return how many ran. Throws ERR_INTERNAL after `maxSteps` tasks. */
  run(maxSteps: number = DEFAULT_STEPS): number {
    return this.#runWhile(() => true, maxSteps);
  }

  /**
   * Run all tasks up to and including `time`, then set the clock to it. Returns how many ran. Limited as
   * {@link run} is.
   */
  runUntil(time: number, maxSteps: number = DEFAULT_STEPS): number {
    const ran = this.#runWhile((due) => due <= time, maxSteps);
    this.#now = Math.max(this.#now, time);
    return ran;
  }

  /** The same as `runUntil`, for a number of milliseconds from now. */
  advance(milliseconds: number, maxSteps: number = DEFAULT_STEPS): number {
    return this.runUntil(this.#now + milliseconds, maxSteps);
  }

  #runWhile(wanted: (due: number) => boolean, maxSteps: number): number {
    for (let ran = 0; ; ran++) {
      const entry = this.#peek();
      if (entry === undefined || !wanted(entry.time)) return ran;
      if (ran === maxSteps) {
        throw new IwarpError(
          'ERR_INTERNAL',
          `virtual time ran ${maxSteps} tasks and stands at ${this.#now} ms: it does not come to rest`,
        );
      }
      this.step();
    }
  }

  #peek(): Entry | undefined {
    for (;;) {
      const entry = this.#heap[0];
      if (entry === undefined || !entry.cancelled) return entry;
      pop(this.#heap);
    }
  }
}

function before(a: Entry, b: Entry): boolean {
  return a.time < b.time || (a.time === b.time && a.order < b.order);
}

function push(heap: Entry[], entry: Entry): void {
  let at = heap.length;
  heap.push(entry);
  while (at > 0) {
    const parent = (at - 1) >> 1;
    const above = heap[parent];
    if (above === undefined || !before(entry, above)) break;
    heap[at] = above;
    at = parent;
  }
  heap[at] = entry;
}

/** Removes the first entry. */
function pop(heap: Entry[]): void {
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return;
  let at = 0;
  for (;;) {
    const left = heap[2 * at + 1];
    if (left === undefined) break;
    const right = heap[2 * at + 2];
    const rightFirst = right !== undefined && before(right, left);
    const child = rightFirst ? right : left;
    if (!before(child, last)) break;
    heap[at] = child;
    at = 2 * at + (rightFirst ? 2 : 1);
  }
  heap[at] = last;
}
