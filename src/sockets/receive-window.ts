/**
 * The receiving half of a channel, without its queue pair: a buffer that is offered in halves, what has come and been read, and what to
 * tell the peer of it.
 *
 * The first half stands in the private data; each further one is offered as soon as it is free. Beside the room, every message of the
 * peer uses one of our receives: how many it may send is told in sequence numbers of 16 bits.
 */
import { putBytes } from '../base/copy.ts';

/** What is worth a message to the peer. */
interface Grant {
  /** The highest sequence number that it may use. */
  readonly limit: number;
  /** Where the half of the buffer lies that it may fill next; null if none is free. */
  readonly offset: number | null;
}

export class ReceiveWindow {
  /** Octets of one half. */
  readonly half: number;
  readonly #bytes: Uint8Array;
  readonly #credits: number;
  /** Lengths of the messages that have not been read to their ends. */
  readonly #lengths: number[] = [];
  #readAt = 0;
  #pending = 0;
  /** Octets that the peer may still write. */
  #granted: number;
  #freeOctets: number;
  #freeAt: number;
  /** Messages whose octets have all been read. */
  #consumed = 0;
  #nextGrant: number;
  #first = true;

  /** `bytes` can still be read when their region is gone with the connection. */
  constructor(bytes: Uint8Array, credits: number) {
    this.#bytes = bytes;
    this.#credits = credits;
    this.half = bytes.length >> 1;
    this.#granted = this.half;
    this.#freeOctets = this.half;
    this.#freeAt = this.half;
    this.#nextGrant = credits >> 1;
  }

  /** Octets that have come and not been read. */
  get pending(): number {
    return this.#pending;
  }

  /** Octets that the peer may write before it hears from us again. */
  get granted(): number {
    return this.#granted;
  }

  /** A message says that the next `octets` have been written; false if the peer had no right to. */
  arrived(octets: number): boolean {
    if (octets > this.#granted) return false;
    this.#granted -= octets;
    this.#pending += octets;
    this.#lengths.push(octets);
    return true;
  }

  /** A message has used a receive and brought no octets. */
  countEmpty(): void {
    this.#consumed++;
  }

  /** What has arrived, as a copy of at most `max` octets; null if there is nothing. */
  read(max: number): Buffer | null {
    const octets = this.#next(max);
    if (octets === 0) return null;
    const data = Buffer.allocUnsafe(octets);
    this.readInto(data);
    return data;
  }

  /** Octets in one piece. */
  #next(max: number): number {
    return Math.min(max, this.#pending, this.#bytes.length - this.#readAt);
  }

  /** Copy what has arrived to the start of `place`; returns how many octets that were. */
  readInto(place: Uint8Array): number {
    const octets = this.#next(place.length);
    putBytes(this.#bytes.subarray(this.#readAt, this.#readAt + octets), place, 0);
    this.#readAt = (this.#readAt + octets) % this.#bytes.length;
    this.#pending -= octets;
    this.#freeOctets += octets;
    let left = octets;
    while (left > 0) {
      const first = this.#lengths[0]!;
      if (first > left) {
        this.#lengths[0] = first - left;
        break;
      }
      left -= first;
      this.#lengths.shift();
      this.#consumed++;
    }
    return octets;
  }

  /**
   * What to tell the peer now: the next half if it is free, or credits when half of them are used; null if neither is worth a message.
   *
   * A half is not offered before the peer has used half of the other, as it may be at its end: librdmacm closes when siw has taken its last
   * data, and what reaches a closed socket makes Linux reset it and drop the data that has not left yet.
   */
  takeGrant(): Grant | null {
    const room = this.#freeOctets >= this.half && (this.#first || this.#granted <= this.half >> 1);
    if (!room && this.#consumed < this.#nextGrant) return null;
    this.#nextGrant = this.#consumed + (this.#credits >> 1);
    const limit = (this.#consumed + this.#credits) & 0xffff;
    if (!room) return { limit, offset: null };
    this.#first = false;
    const offset = this.#freeAt;
    this.#freeOctets -= this.half;
    this.#granted += this.half;
    this.#freeAt = (offset + this.half) % this.#bytes.length;
    return { limit, offset };
  }
}
