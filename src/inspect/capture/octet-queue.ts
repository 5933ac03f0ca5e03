/**
 * Bytes waiting to be decoded: appended at the end, dropped at the front, in one buffer that is given back
 * when empty.
 */
import { NO_BYTES } from '../../base/copy.ts';

/** A limit that several queues share; see limits.ts for the figures. */
export class OctetBudget {
  private used = 0;
  /** Bytes that may be taken. */
  readonly limit: number;

  /** An empty queue that holds `limit` bytes at most. */
  constructor(limit: number) {
    this.limit = limit;
  }

  /** Take `octets` more, or return false and take nothing. Negative gives back. */
  take(octets: number): boolean {
    if (this.used + octets > this.limit) return false;
    this.used += octets;
    return true;
  }

  /** Bytes that are taken now. */
  get taken(): number {
    return this.used;
  }
}

const FIRST_OCTETS = 4096;

export class OctetQueue {
  bytes: Uint8Array = NO_BYTES;
  head = 0;
  tail = 0;
  private readonly budget: OctetBudget | undefined;

  constructor(budget?: OctetBudget) {
    this.budget = budget;
  }

  get length(): number {
    return this.tail - this.head;
  }

  /** Append `bytes[start..end)`; false, with nothing appended, if the budget does not allow the room. */
  append(bytes: Uint8Array, start: number, end: number): boolean {
    const octets = end - start;
    if (this.tail + octets > this.bytes.length && !this.makeRoom(octets)) return false;
    this.bytes.set(bytes.subarray(start, end), this.tail);
    this.tail += octets;
    return true;
  }

  private makeRoom(octets: number): boolean {
    const length = this.length;
    if (length + octets <= this.bytes.length && this.head >= this.bytes.length >>> 1) {
      this.bytes.copyWithin(0, this.head, this.tail);
    } else {
      let size = Math.max(FIRST_OCTETS, this.bytes.length);
      while (size < length + octets) size *= 2;
      if (this.budget !== undefined && !this.budget.take(size - this.bytes.length)) return false;
      const bigger = new Uint8Array(size);
      bigger.set(this.bytes.subarray(this.head, this.tail));
      this.bytes = bigger;
    }
    this.head = 0;
    this.tail = length;
    return true;
  }

  /** Drop `octets` at the front. */
  drop(octets: number): void {
    this.head += octets;
    if (this.head < this.tail) return;
    this.head = 0;
    this.tail = 0;
    // A buffer of the first size is kept for the next octets; a bigger one goes, so that idle streams hold
    // little.
    if (this.bytes.length > FIRST_OCTETS) this.release();
  }

  /** Give the buffer back. */
  release(): void {
    this.budget?.take(-this.bytes.length);
    this.bytes = NO_BYTES;
    this.head = 0;
    this.tail = 0;
  }
}
