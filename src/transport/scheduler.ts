/**
 * The real clock behind the {@link Scheduler} interface, and Node's asynchronous contexts. The virtual
 * counterpart of the clock is `virtual-time.ts`.
 *
 * Read first: `base/clock.ts`, `base/async-context.ts`.
 */

import { nextTick } from 'node:process';
import { AsyncResource } from 'node:async_hooks';
import { performance } from 'node:perf_hooks';
// Held here, as in `busy-poll.ts`; and where the global ones are a browser's, they make numbers.
import { clearTimeout, setImmediate, setTimeout } from 'node:timers';
import { takeContextsFrom } from '../base/async-context.ts';
import type { CancelTimer, Scheduler } from '../base/clock.ts';

// In this module, because whatever runs in Node has its scheduler.
takeContextsFrom({
  capture: (type) => new AsyncResource(type),
  begin: (type) => new AsyncResource(type, CALL),
});

/** A call says itself when it is over. */
const CALL = { requireManualDestroy: true };

/** The longest delay `setTimeout` takes; a longer one is reached in several steps. */
const LONGEST_DELAY = 0x7fff_ffff;

/**
 * The process's monotonic clock.
 *
 * `at`: timers are unreferenced, so that a pending time-out never keeps a process alive whose sockets have
 * all closed. libuv counts whole milliseconds from the start of the loop's turn, and may therefore fire a
 * fraction early by `performance.now()`. Such a timer is armed again, because the interface promises "at or
 * after".
 *
 * libuv looks at timers before sockets. After a turn that took long, or when a stopped process goes on, a
 * time-out would strike although the bytes that it waits for have arrived in time and only have not been
 * read. So a task runs at the end of the turn in which its timer fires, after the data that has arrived.
 *
 * `defer` uses `process.nextTick` and not `queueMicrotask`. Posts made by several promise continuations of
 * one turn should share one flush: the tick queue runs when the microtask queue is empty, a microtask would
 * run in the middle of it. It is also cheaper in Node, where `queueMicrotask` makes an AsyncResource for each
 * call. All tasks deferred in one turn, and those that they defer, share one tick: separate ticks for a
 * completion handler and for the flush of its requests cost half a microsecond of each round trip (`latency`
 * of bench/micro/datapath.ts).
 */
export const realScheduler: Scheduler = {
  now: () => performance.now(),
  at: startTimer,
  defer: (task) => {
    deferred[count++] = task;
    if (running) return;
    running = true;
    nextTick(runDeferred);
  },
};

const nothing = (): void => undefined;
/**
 * Deferred tasks, `deferred[0..count)`. It is not emptied by its length: that would throw away what holds
 * it, once a turn.
 */
const deferred: (() => void)[] = [];
let count = 0;
/** Places kept for the next turns. */
const KEEP = 1024;
/** A tick for `deferred` has been asked for, or is at work. */
let running = false;

function runDeferred(): void {
  let next = 0;
  try {
    while (next < count) {
      const task = deferred[next]!;
      deferred[next++] = nothing;
      task();
    }
    count = 0;
    if (deferred.length > KEEP) deferred.length = 0;
    running = false;
  } finally {
    // A task that throws does not take those after it along.
    if (running) {
      deferred.splice(0, next);
      count -= next;
      nextTick(runDeferred);
    }
  }
}

/** A timer under way. One object and one bound call-back: a connection sets two while it starts. */
class RealTimer {
  readonly #time: number;
  #task: (() => void) | null;
  #timer: NodeJS.Timeout | undefined;

  constructor(time: number, task: () => void) {
    this.#time = time;
    this.#task = task;
    this.#arm();
  }

  #arm(): void {
    const delay = Math.min(Math.max(Math.ceil(this.#time - performance.now()), 1), LONGEST_DELAY);
    this.#timer = setTimeout(fire, delay, this).unref();
  }

  fire(): void {
    if (performance.now() < this.#time) {
      this.#arm();
      return;
    }
    setImmediate(run, this);
  }

  run(): void {
    const task = this.#task;
    this.#task = null;
    task?.();
  }

  cancel(): void {
    this.#task = null;
    clearTimeout(this.#timer);
  }
}

function fire(timer: RealTimer): void {
  timer.fire();
}

function run(timer: RealTimer): void {
  timer.run();
}

function startTimer(time: number, task: () => void): CancelTimer {
  const timer = new RealTimer(time, task);
  return timer.cancel.bind(timer);
}
