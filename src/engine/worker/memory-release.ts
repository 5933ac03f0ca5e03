/**
 * Gives shared memory back to the system after its regions have ended.
 *
 * A SharedArrayBuffer goes when no thread refers to it. This thread's heap hardly grows, so that V8 does not
 * collect its garbage, and V8 does not count shared memory: memory that the program had freed long ago stayed
 * mapped, 34 GB after 16,000 idle connections. V8 does count ordinary buffers. Two large ones, which are
 * never written and so never resident, make it look.
 */
// Imported, not global, as in `transport/busy-poll.ts`.
import { setTimeout } from 'node:timers';

/** Bytes of ended regions that are worth a collection. */
const WORTH = 128 << 20;
/** A collection takes some milliseconds: no more than one in this time. */
const PAUSE_MS = 1_000;
/** V8 collects after 64 MiB of new buffers. */
const BUFFER = 66 << 20;
const BUFFERS = 2;

/** Counts the bytes of regions that have ended, and has them collected now and then. */
export class MemoryRelease {
  #bytes = 0;
  #waiting = false;
  readonly #collect: () => void;

  /** `collect` is replaced in tests. */
  constructor(collect: () => void = provoke) {
    this.#collect = collect;
  }

  ended(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < WORTH || this.#waiting) return;
    this.#waiting = true;
    setTimeout(() => {
      this.#waiting = false;
      this.#bytes = 0;
      this.#collect();
    }, PAUSE_MS).unref();
  }
}

function provoke(): void {
  try {
    for (let i = 0; i < BUFFERS; i++) void new ArrayBuffer(BUFFER);
  } catch {
    // There is no room even for that: the system is short of memory, and V8 has collected on its own.
  }
}
