/** What a client has sent and nobody has taken yet. */
import { Buffer } from 'node:buffer';

/**
 * Bytes in, from the front out. Those of one push are looked at where they lie; if a request needs more than
 * one push, it is gathered in a buffer that doubles, so that a long value in many pieces is copied about once
 * and leaves no more garbage than it has bytes.
 */
export class RequestBytes {
  #buffer: Buffer = Buffer.alloc(0);
  #from = 0;
  #to = 0;
  /** The buffer is our own, not the socket's. */
  #isGathered = false;

  /** Bytes that wait. */
  get length(): number {
    return this.#to - this.#from;
  }

  /** Bytes of memory that they take. */
  get held(): number {
    return this.#isGathered ? this.#buffer.length : this.length;
  }

  /** What waits, where it lies: valid until the next push. */
  get view(): Buffer {
    return this.#buffer.subarray(this.#from, this.#to);
  }

  push(bytes: Buffer): void {
    if (this.length === 0) {
      [this.#buffer, this.#from, this.#to, this.#isGathered] = [bytes, 0, bytes.length, false];
      return;
    }
    const whole = this.length + bytes.length;
    if (!this.#isGathered || whole > this.#buffer.length) {
      const larger = Buffer.allocUnsafeSlow(2 * whole);
      this.#buffer.copy(larger, 0, this.#from, this.#to);
      [this.#buffer, this.#from, this.#to, this.#isGathered] = [larger, 0, this.length, true];
    } else if (this.#to + bytes.length > this.#buffer.length) {
      this.#buffer.copyWithin(0, this.#from, this.#to);
      [this.#from, this.#to] = [0, this.length];
    }
    bytes.copy(this.#buffer, this.#to);
    this.#to += bytes.length;
  }

  /** Where the first `octet` lies among those that wait; -1 if there is none. */
  indexOf(octet: number): number {
    const at = this.#buffer.subarray(0, this.#to).indexOf(octet, this.#from);
    return at < 0 ? -1 : at - this.#from;
  }

  /** The byte at `index`, or undefined. */
  at(index: number): number | undefined {
    return index < this.length ? this.#buffer[this.#from + index] : undefined;
  }

  /** Take bytes from the front, where they lie: valid until the next push. */
  take(octets: number): Buffer {
    const taken = this.#buffer.subarray(this.#from, this.#from + Math.min(octets, this.length));
    this.#from += taken.length;
    // An own buffer is not kept for a client that sends nothing more.
    if (this.length === 0) [this.#buffer, this.#from, this.#to, this.#isGathered] = [EMPTY, 0, 0, false];
    return taken;
  }
}

const EMPTY = Buffer.alloc(0);
