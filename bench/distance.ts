/**
 * How far apart the two processors are: after how many nanoseconds one of them sees what the other has
 * written. On a virtual machine that changes for seconds at a time, because the host moves its processors to
 * the same core, to another of the same cache, to another cache. What two processes have from each other
 * changes with it, by two and more, so slices that are compared belong to the same distance. Only this look
 * decides, never a slice's own figure.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import { median } from './stats.ts';

/** Words of the shared memory, each in one or two cache lines that hold nothing else. */
const STATE = 0;
const CALL = 32;
const ANSWER = 64;
const WORDS = 96;
/** States: the worker sleeps, answers, ends. */
const REST = 0;
const ANSWERING = 1;
const OVER = 2;

/** A batch is short, so that few of them are hit when another program needs a processor. */
const BATCHES = 15;
const BATCH = 100;
const LIMIT_MS = 30;
/** Looks at the clock are dearer than the memory. */
const SPINS_A_LOOK = 1000;

/** The other processor: writes back whatever it sees. Runs by itself in a worker. */
function answer(
  words: Int32Array,
  state: number,
  call: number,
  to: number,
  rest: number,
  answering: number,
  over: number,
): void {
  while (Atomics.load(words, state) !== over) {
    Atomics.wait(words, state, rest);
    for (let last = 0; Atomics.load(words, state) === answering; ) {
      const now = Atomics.load(words, call);
      if (now === last) continue;
      last = now;
      Atomics.store(words, to, now);
    }
  }
}

/**
 * Nanoseconds of a hand-over, or null if a look came to nothing because another program had one of the
 * processors.
 */
type Look = () => number | null;

/**
 * Two threads that both work are on two processors, and where there are only two, on those of client and
 * server.
 */
class Pair {
  readonly #words = new Int32Array(new SharedArrayBuffer(4 * WORDS));
  readonly #worker: Worker;
  #calls = 0;

  constructor() {
    const args = ['workerData', STATE, CALL, ANSWER, REST, ANSWERING, OVER].join(', ');
    this.#worker = new Worker(
      `const { workerData } = require('node:worker_threads'); (${answer.toString()})(${args});`,
      { eval: true, workerData: this.#words, execArgv: [] },
    );
    this.#worker.unref();
    // Without it nothing is known of the distance, which is no reason to end.
    this.#worker.on('error', () => undefined);
  }

  #batch(until: number): boolean {
    for (let i = 0; i < BATCH; i++) {
      Atomics.store(this.#words, CALL, ++this.#calls);
      for (let spins = 1; Atomics.load(this.#words, ANSWER) !== this.#calls; spins++) {
        if (spins % SPINS_A_LOOK === 0 && performance.now() > until) return false;
      }
    }
    return true;
  }

  readonly look: Look = () => {
    const until = performance.now() + LIMIT_MS;
    const taken: number[] = [];
    Atomics.store(this.#words, STATE, ANSWERING);
    Atomics.notify(this.#words, STATE);
    // The first wakes the worker, and is not counted.
    for (let began = 0, told = this.#batch(until); told && taken.length < BATCHES; ) {
      began = performance.now();
      told = this.#batch(until);
      if (told) taken.push(((performance.now() - began) * 1e6) / BATCH / 2);
    }
    Atomics.store(this.#words, STATE, REST);
    return taken.length < BATCHES ? null : median(taken);
  };

  close(): void {
    Atomics.store(this.#words, STATE, OVER);
    Atomics.notify(this.#words, STATE);
    void this.#worker.terminate();
  }
}

/** Same core, same cache and other cache are 1.7 and more apart. */
const FACTOR = 1.5;
/** Whether some of the measured distances are not the usual one; false where that is not known. */
export const isAway = (seen: readonly number[], usual: number): boolean =>
  seen.some((ns) => ns > usual * FACTOR || ns * FACTOR < usual);

/**
 * Looks before the first slice, so that there is a usual distance; a compiler's first ones count for nothing.
 */
const FIRST_LOOKS = 20;
const COMPILING_LOOKS = 10;
/** How long a group waits in all for the usual distance to come back, and one slice of it at most. */
const PATIENCE_MS = 30_000;
const SLICE_PATIENCE_MS = 3000;
const PAUSE_MS = 50;

/** Watches the distance while a group is measured. */
export class DistanceWatch {
  readonly #look: Look;
  readonly close: () => void;
  readonly #seen: number[] = [];
  #patience = PATIENCE_MS;

  constructor(look: Look, close: () => void = () => undefined) {
    this.#look = look;
    this.close = close;
  }

  /** Null where there are not two processors: then nobody says which two are meant. */
  static async open(): Promise<DistanceWatch | null> {
    if (availableParallelism() !== 2) return null;
    const pair = new Pair();
    for (let i = 0; i < COMPILING_LOOKS; i++) {
      pair.look();
      await sleep(PAUSE_MS / 10);
    }
    const watch = new DistanceWatch(pair.look, () => pair.close());
    for (let i = 0; i < FIRST_LOOKS; i++) {
      watch.look();
      await sleep(PAUSE_MS);
    }
    return watch;
  }

  /** Nanoseconds, as a list that is empty where a look came to nothing. */
  look(): number[] {
    const ns = this.#look();
    if (ns === null) return [];
    this.#seen.push(ns);
    return [ns];
  }

  /** The median of all that was seen. */
  usual(): number {
    return median(this.#seen);
  }

  /**
   * Wait for the usual distance, as far as patience goes. A distance that stays meanwhile becomes the usual
   * one.
   */
  async settle(): Promise<number[]> {
    const began = performance.now();
    const limit = began + Math.min(SLICE_PATIENCE_MS, this.#patience);
    let seen = this.look();
    while (isAway(seen, this.usual()) && performance.now() < limit) {
      await sleep(PAUSE_MS);
      seen = this.look();
    }
    this.#patience -= performance.now() - began;
    return seen;
  }

  /**
   * Whether a slice that took `ms` has seen another distance than the usual one, and is worth doing again.
   */
  isSpoilt(seen: readonly number[], ms: number): boolean {
    if (!isAway(seen, this.usual())) return false;
    this.#patience -= ms;
    return this.#patience > 0;
  }
}
