/**
 * The last bytes of one TCP direction, kept to be compared with bytes that are sent again under the same
 * sequence numbers (RFC 9293 3.4). Distances are those of tcp.ts.
 */
import { NO_BYTES } from '../../base/copy.ts';
import { HISTORY_OCTETS } from './limits.ts';
import type { OctetBudget } from './octet-queue.ts';

const FIRST_OCTETS = 4096;

/** Bytes under sequence numbers that carried others before. */
interface Disagreement {
  /** Distance of the first one. */
  readonly at: number;
  /** How many differ. */
  readonly octets: number;
}

export class TcpHistory {
  private readonly budget: OctetBudget;
  /** The byte of distance d stands at d modulo the length, a power of two. */
  private ring: Uint8Array = NO_BYTES;
  /** Distances from..to are known. */
  private from = 0;
  private to = 0;

  constructor(budget: OctetBudget) {
    this.budget = budget;
  }

  /** `bytes[start..end)`, whose first byte has the distance `at`, are given out. */
  remember(at: number, bytes: Uint8Array, start: number, end: number): void {
    if (at !== this.to) this.from = at;
    this.grow(at + end - start - this.from, at);
    const size = this.ring.length;
    const first = Math.max(start, end - size);
    for (let next = first; next < end; ) {
      const place = (at + next - start) & (size - 1);
      const run = Math.min(end - next, size - place);
      this.ring.set(bytes.subarray(next, next + run), place);
      next += run;
    }
    this.to = at + end - start;
    this.from = Math.max(this.from, this.to - size);
  }

  /**
   * How `bytes[start..end)` at `at` differ from the bytes kept there; undefined if they do not.
   */
  compare(at: number, bytes: Uint8Array, start: number, end: number): Disagreement | undefined {
    const mask = this.ring.length - 1;
    const last = Math.min(at + end - start, this.to);
    let first = -1;
    let octets = 0;
    for (let distance = Math.max(at, this.from); distance < last; distance++) {
      if (this.ring[distance & mask] === bytes[start + distance - at]) continue;
      if (first < 0) first = distance;
      octets++;
    }
    return octets === 0 ? undefined : { at: first, octets };
  }

  /** Give the room back. */
  release(): void {
    this.budget.take(-this.ring.length);
    this.ring = NO_BYTES;
    this.from = this.to;
  }

  /** Room for `wanted` bytes up to the limit, if the budget has it; bytes kept up to `to` stay. */
  private grow(wanted: number, to: number): void {
    let size = Math.max(FIRST_OCTETS, this.ring.length);
    while (size < wanted && size < HISTORY_OCTETS) size *= 2;
    if (size === this.ring.length || !this.budget.take(size - this.ring.length)) return;
    const bigger = new Uint8Array(size);
    for (let distance = this.from; distance < to; distance++)
      bigger[distance & (size - 1)] = this.ring[distance & (this.ring.length - 1)]!;
    this.ring = bigger;
  }
}
