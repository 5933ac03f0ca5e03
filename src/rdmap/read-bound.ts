/**
 * How much the Reads of an automatic ORD may ask for together. Near by, answers that are all under way at the
 * same time have to stay in a processor's cache: 64 Reads of 64 KiB at a time had three quarters of the rate
 * of 16 over loopback (of 4 KiB 1.2 times). Far away the same bound would leave the way empty for most of the
 * time. The first answers show how far the peer is.
 */
import type { SendWqe } from '../queues/work.ts';

/** What gives the time of the input that is being handled, in milliseconds. */
export interface InputClock {
  readonly now: number;
}

/**
 * Bytes that requests beyond the first few may ask for together, at a peer that is near or not yet known.
 */
const NEAR_OCTETS = 524_288;
/**
 * Answers that have to be late, one after another, for a peer to be far. The first ones of a process are late
 * anywhere: its code is not yet compiled.
 */
const SAMPLES = 8;
/**
 * An answer is late if it takes longer than that, milliseconds, and longer than all that had been asked for
 * takes at the rate of 1 GB/s.
 */
const LATE_MS = 2;
const OCTETS_PER_MS = 1_000_000;

export class ReadBound {
  readonly #clock: InputClock;
  #octets = NEAR_OCTETS;
  /** The request whose answer is timed. */
  #timed: SendWqe | null = null;
  #lateAt = 0;
  /** Late answers that are still missing for the verdict that the peer is far; 0 once there is a verdict. */
  #samples = SAMPLES;

  constructor(clock: InputClock) {
    this.#clock = clock;
  }

  get octets(): number {
    return this.#octets;
  }

  /** A request goes out; with it `asked` bytes are asked for. */
  requested(wqe: SendWqe, asked: number): void {
    if (this.#samples === 0 || this.#timed !== null) return;
    this.#timed = wqe;
    this.#lateAt = this.#clock.now + LATE_MS + asked / OCTETS_PER_MS;
  }

  answered(wqe: SendWqe): void {
    if (wqe !== this.#timed) return;
    this.#timed = null;
    if (this.#clock.now < this.#lateAt)
      this.#samples = 0; // near for good
    else if (--this.#samples === 0) this.#octets = Infinity;
  }
}
