import type { RingWriter } from '../channel/ring.ts';

/**
 * News of peers' connections that the application's thread has not read yet, counted up to a limit. Each is
 * an object, and a peer can make connections as long as that thread is blocked. Completions do not count: the
 * queues bound them, and a program with thousands of them to read is no reason to reset a newcomer.
 */
export class UnreadNews {
  readonly #ring: RingWriter;
  /** Where the ring stood behind each, the oldest at `#first`. */
  readonly #ends: Int32Array;
  #first = 0;
  #count = 0;

  constructor(ring: RingWriter, most: number) {
    this.#ring = ring;
    this.#ends = new Int32Array(most);
  }

  /** The record just written is one. */
  add(): void {
    if (this.isFull) return;
    this.#ends[(this.#first + this.#count++) % this.#ends.length] = this.#ring.written;
  }

  get isFull(): boolean {
    const { length } = this.#ends;
    while (this.#count > 0 && this.#ring.isRead(this.#ends[this.#first]!)) {
      this.#first = (this.#first + 1) % length;
      this.#count--;
    }
    return this.#count === length;
  }
}
