/**
 * The receiving half of a channel, without its queue pair: a buffer that is offered in halves, counts of the
 * octets that have come and been read, and the grants that the peer needs.
 *
 * The first half stands in the private data; each further one is offered as soon as it is free. Beside the
 * room, every message of the peer uses one of our receives: sequence numbers of 16 bits grant how many it may
 * send.
 *
 * A connection may begin with a small buffer and get a large one when its peer has filled half of the small
 * one, read or not. Each window of the protocol names its memory, so this is nothing new on the wire: from
 * then on windows lie in the large buffer, and the small one is filled and read to its end.
 */
import { Buffer } from '../base/host.ts';
import { lengthNow, putBytes } from '../base/copy.ts';

/** A change that is worth a message to the peer. */
interface Grant {
  /** The highest sequence number that it may use. */
  readonly limit: number;
  /** Where the half of the buffer lies that it may fill next; null if none is free. */
  readonly offset: number | null;
}

export class ReceiveWindow {
  /** Octets of one half. */
  half: number;
  /** Octets are read from here. */
  #bytes: Uint8Array;
  /** Windows are offered in here: the same, unless the buffer has grown and the former one is being read. */
  #offered: Uint8Array;
  /** Octets that the former buffer has still to give, come or not. */
  #former = 0;
  /** Makes the large buffer; null when it is there, or cannot be had. */
  #grow: (() => Uint8Array | null) | null;
  readonly #credits: number;
  /**
   * Lengths of the messages that have not been read to their ends, from `#oldest`: at most as many as there
   * are credits.
   */
  readonly #lengths: number[] = [];
  #oldest = 0;
  #readAt = 0;
  #pending = 0;
  /** Octets that the peer may still write. */
  #granted: number;
  #freeOctets: number;
  #freeAt: number;
  /** Messages whose octets have all been read. */
  #consumed = 0;
  /** Messages that have come, and how many the peer has been allowed to send. */
  #messages = 0;
  #allowed: number;
  #nextGrant: number;
  #first = true;

  /**
   * `bytes` can still be read when their region is gone with the connection. `grow` makes a larger buffer
   * to go on with, or returns null if there is none to be had.
   */
  constructor(bytes: Uint8Array, credits: number, grow: (() => Uint8Array | null) | null = null) {
    this.#bytes = bytes;
    this.#offered = bytes;
    this.#grow = grow;
    this.#credits = credits;
    this.half = bytes.length >> 1;
    this.#granted = this.half;
    this.#freeOctets = this.half;
    this.#freeAt = this.half;
    this.#nextGrant = credits >> 1;
    this.#allowed = credits;
  }

  /** Octets that have come and not been read. */
  get pending(): number {
    return this.#pending;
  }

  /** The peer has filled its first window: a grant is due, of a larger buffer. */
  get outgrown(): boolean {
    return this.#grow !== null && !this.#first && this.#granted <= this.half;
  }

  /** Octets that have come and not been read may lie in this buffer. */
  holds(bytes: Uint8Array): boolean {
    return this.#pending > 0 && (bytes === this.#bytes || bytes === this.#offered);
  }

  /** Octets that the peer may write before our next grant. */
  get granted(): number {
    return this.#granted;
  }

  /**
   * A message has come that uses a credit; false if the peer had none left. The list of unread messages is
   * bounded by this.
   */
  useCredit(): boolean {
    if (this.#messages === this.#allowed) return false;
    this.#messages++;
    return true;
  }

  /**
   * A message says that the next `octets` have been written; false if that is more than the peer was
   * offered.
   */
  arrived(octets: number): boolean {
    if (octets > this.#granted) return false;
    if (octets === 0) {
      this.countEmpty();
      return true;
    }
    this.#granted -= octets;
    this.#pending += octets;
    this.#lengths.push(octets);
    return true;
  }

  /** A message has used a receive and brought no octets. */
  countEmpty(): void {
    this.#consumed++;
  }

  /** A copy of at most `max` received octets; null if there is none. */
  read(max: number): Buffer | null {
    const octets = this.#next(max);
    if (octets === 0) return null;
    const data = Buffer.allocUnsafe(octets);
    this.readInto(data);
    return data;
  }

  /** Octets in one piece. */
  #next(max: number): number {
    const piece = Math.min(max, this.#pending, this.#bytes.length - this.#readAt);
    return this.#former > 0 ? Math.min(piece, this.#former) : piece;
  }

  /** Copy received octets to the start of `place`; returns their number. */
  readInto(place: Uint8Array): number {
    const octets = this.#next(lengthNow(place));
    putBytes(this.#bytes.subarray(this.#readAt, this.#readAt + octets), place, 0);
    this.#readAt = (this.#readAt + octets) % this.#bytes.length;
    this.#pending -= octets;
    if (this.#former > 0) this.#leave(octets);
    else this.#freeOctets += octets;
    this.#consume(octets);
    return octets;
  }

  /** Octets of the former buffer have been read: their room is offered no longer. */
  #leave(octets: number): void {
    this.#former -= octets;
    if (this.#former > 0) return;
    this.#bytes = this.#offered;
    this.#readAt = 0;
  }

  /** Count the messages that have been read to their ends; the work is a constant for each of them. */
  #consume(octets: number): void {
    const lengths = this.#lengths;
    for (let left = octets; left > 0; ) {
      const first = lengths[this.#oldest]!;
      if (first > left) {
        lengths[this.#oldest] = first - left;
        break;
      }
      left -= first;
      this.#oldest++;
      this.#consumed++;
    }
    // The entries before the oldest go at once when nothing is unread, else when they are half of the list.
    if (this.#oldest === lengths.length) lengths.length = 0;
    else if (this.#oldest > 32 && this.#oldest > lengths.length >> 1) lengths.splice(0, this.#oldest);
    else return;
    this.#oldest = 0;
  }

  /**
   * The grant to send now: the next half if it is free, or credits when half of them are used; null if
   * neither is worth a message.
   *
   * A half is not offered before the peer has used half of the other, as it may be at its end: librdmacm
   * closes when siw has taken its last data, and what reaches a closed socket makes Linux reset it and drop
   * the data that has not left yet.
   */
  takeGrant(): Grant | null {
    if (this.outgrown) this.#enlarge();
    const room = this.#freeOctets >= this.half && (this.#first || this.#granted <= this.half >> 1);
    if (!room && this.#consumed < this.#nextGrant) return null;
    this.#nextGrant = this.#consumed + (this.#credits >> 1);
    this.#allowed = this.#consumed + this.#credits;
    const limit = this.#allowed & 0xffff;
    if (!room) return { limit, offset: null };
    this.#first = false;
    const offset = this.#freeAt;
    this.#freeOctets -= this.half;
    this.#granted += this.half;
    this.#freeAt = (offset + this.half) % this.#offered.length;
    return { limit, offset };
  }

  /**
   * Offer a larger buffer from now on. The peer fills its windows in order, so all that is in the former one,
   * or may still come there, is read before. At most one window is still open there: with the next it has
   * as many as the protocol knows.
   */
  #enlarge(): void {
    const larger = this.#grow!();
    this.#grow = null;
    if (larger === null) return;
    this.#former = this.#granted + this.#pending;
    this.#offered = larger;
    this.half = larger.length >> 1;
    this.#freeOctets = larger.length;
    this.#freeAt = 0;
    if (this.#former === 0) this.#leave(0);
  }
}
