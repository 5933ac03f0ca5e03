/**
 * A ring of records in shared memory, one writer thread and one reader thread, and the doorbell between them.
 *
 * Records are runs of 32-bit words, never cut by the end of the ring; the first word is `type | words << 8`.
 * Head and tail are free-running counters, each written by one side only. The writer publishes as many
 * records as it likes at once.
 *
 * Doorbell. A reader that has found the ring empty says that it sleeps, looks once more, and goes back to its
 * event loop. The writer that publishes takes that word away and rings; while the reader has not said that it
 * sleeps, there is no ring. So a burst costs one wake, and a busy reader none (bench/micro/ring.ts). What the
 * reader need not know before it wakes by itself is published without a ring. The other way round a writer
 * that finds no room leaves a note, and the reader that makes room rings back; one that sleeps in front of a
 * full ring is rung then.
 */

/** Type of a record that only fills up the end of the ring. */
const PAD = 0;
const TYPE_BITS = 8;
const TYPE_MASK = 0xff;

/** Where the counters are: each on its own cache line. */
const HEAD = 0;
const TAIL = 16;
const ASLEEP = 32;
const WANTS_ROOM = 48;
const FIRST_WORD = 64;

/** Where records are. */
export interface RecordMemory {
  /** `at` of a record is an index into them. */
  readonly words: Int32Array;
  /** The same memory as bytes, for payloads in a record. */
  readonly bytes: Uint8Array;
}

/** Memory for a ring of this many words, a power of two. */
export function createRing(words: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer((FIRST_WORD + words) * Int32Array.BYTES_PER_ELEMENT));
}

/** The side that writes. */
export class RingWriter implements RecordMemory {
  readonly words: Int32Array;
  readonly bytes: Uint8Array;
  readonly #mask: number;
  #head = 0;
  #tail = 0;
  #published = 0;

  constructor(ring: Int32Array) {
    this.words = ring;
    this.bytes = new Uint8Array(ring.buffer);
    this.#mask = ring.length - FIRST_WORD - 1;
  }

  /** Words written so far, a counter that runs freely. */
  get written(): number {
    return this.#head;
  }

  /** Whether the reader has read all that was there when `written` had this value. */
  isRead(written: number): boolean {
    return ((written - Atomics.load(this.words, TAIL)) | 0) <= 0;
  }

  /**
   * Words that a record can have at most. From more than half a ring on one might not even fit into an empty
   * ring, depending on where that stands; a quarter lets one be written while the one before is read.
   */
  get maxRecord(): number {
    return (this.#mask + 1) >> 2;
  }

  /**
   * Begin a record; returns where its first word is, already written, or -1 if there is no room. The rest is
   * the caller's to fill.
   */
  begin(type: number, words: number): number {
    let at = this.#head & this.#mask;
    const rest = this.#mask + 1 - at;
    const needed = words > rest ? words + rest : words;
    if (!this.#hasRoom(needed)) return -1;
    if (words > rest) {
      this.words[FIRST_WORD + at] = PAD | (rest << TYPE_BITS);
      this.#head = (this.#head + rest) | 0;
      at = 0;
    }
    this.words[FIRST_WORD + at] = type | (words << TYPE_BITS);
    this.#head = (this.#head + words) | 0;
    return FIRST_WORD + at;
  }

  #hasRoom(words: number): boolean {
    if (((this.#head - this.#tail) | 0) + words <= this.#mask + 1) return true;
    this.#tail = Atomics.load(this.words, TAIL);
    return ((this.#head - this.#tail) | 0) + words <= this.#mask + 1;
  }

  /**
   * Ask to be rung when there is room. False if there is some by now, after all; the wish stays, for it may
   * be an earlier one's too.
   */
  waitForRoom(words: number): boolean {
    Atomics.store(this.words, WANTS_ROOM, 1);
    return !this.#hasRoom(2 * words);
  }

  /** Let the reader see the records written so far. True if it sleeps and has to be rung. */
  publish(): boolean {
    return this.publishQuietly() && this.wake();
  }

  /**
   * Publish records that can wait until the reader wakes by itself. False if there was nothing to publish.
   */
  publishQuietly(): boolean {
    if (this.#published === this.#head) return false;
    this.#published = this.#head;
    Atomics.store(this.words, HEAD, this.#head);
    return true;
  }

  /** True if the reader sleeps and has not seen all: it has to be rung now, and nothing else wakes it. */
  wake(): boolean {
    // A reader at work writes its tail all the time: that line is only fetched from one that sleeps.
    const unseen =
      Atomics.load(this.words, ASLEEP) === 1 && Atomics.load(this.words, TAIL) !== this.#published;
    const asleep = unseen && Atomics.exchange(this.words, ASLEEP, 0) === 1;
    if (asleep) Atomics.notify(this.words, ASLEEP); // a reader that blocks has no event loop to be rung in
    return asleep;
  }
}

/** Bytes of a ring of this many words. */
export function ringOctets(words: number): number {
  return (FIRST_WORD + words) * Int32Array.BYTES_PER_ELEMENT;
}

/** Where a {@link GuardedReader} finds no record: there is none, or what stands there cannot be one. */
export const NO_RECORD = { NONE: -1, BROKEN: -2 } as const;

/**
 * The side that reads what a thread has written that is not trusted. Each number of the ring is read once and
 * checked before it is used, for the other thread may change it at any time. What stands in a record is the
 * caller's to read once and to check.
 */
export class GuardedReader implements RecordMemory {
  readonly words: Int32Array;
  readonly bytes: Uint8Array;
  readonly #mask: number;
  #tail = 0;
  /** Type and words of the record that `take` has found last. */
  type: number = PAD;
  length = 0;

  constructor(ring: Int32Array) {
    this.words = ring;
    this.bytes = new Uint8Array(ring.buffer);
    this.#mask = ring.length - FIRST_WORD - 1;
  }

  /** Nothing has been published since the last record. */
  get isEmpty(): boolean {
    return Atomics.load(this.words, HEAD) === this.#tail;
  }

  /** Where the next record is, or {@link NO_RECORD}. It stays where it is until `drop`. */
  take(): number {
    const size = this.#mask + 1;
    const filled = (Atomics.load(this.words, HEAD) - this.#tail) | 0;
    if (filled < 0 || filled > size) return NO_RECORD.BROKEN;
    // Two rounds: what fills up the end of the ring stands there at most once in a row.
    for (let left = filled, round = 0; left > 0 && round < 2; round++) {
      const at = this.#tail & this.#mask;
      const first = Atomics.load(this.words, FIRST_WORD + at);
      this.type = first & TYPE_MASK;
      this.length = first >>> TYPE_BITS;
      if (this.length < 1 || this.length > left || at + this.length > size) return NO_RECORD.BROKEN;
      if (this.type !== PAD) return FIRST_WORD + at;
      this.drop();
      left -= this.length;
      if (left === 0) return NO_RECORD.NONE;
    }
    return filled === 0 ? NO_RECORD.NONE : NO_RECORD.BROKEN;
  }

  /** Done with the record that was taken last. */
  drop(): void {
    this.#tail = (this.#tail + this.length) | 0;
  }

  /** As of a {@link RingReader}. */
  release(): boolean {
    return releaseUpTo(this.words, this.#tail);
  }

  /** As of a {@link RingReader}. */
  sleep(): boolean {
    return sleepAt(this.words, this.#tail);
  }
}

/** The side that reads. */
export class RingReader implements RecordMemory {
  readonly words: Int32Array;
  readonly bytes: Uint8Array;
  readonly #mask: number;
  #head = 0;
  #tail = 0;

  constructor(ring: Int32Array) {
    this.words = ring;
    this.bytes = new Uint8Array(ring.buffer);
    this.#mask = ring.length - FIRST_WORD - 1;
  }

  /** Where the next record is, or -1. It stays where it is until `next`. */
  peek(): number {
    for (;;) {
      if (this.#tail === this.#head) {
        this.#head = Atomics.load(this.words, HEAD);
        if (this.#tail === this.#head) return -1;
      }
      const at = FIRST_WORD + (this.#tail & this.#mask);
      if ((this.words[at]! & TYPE_MASK) !== PAD) return at;
      this.next(at);
    }
  }

  /** Type of the record at `at`. */
  typeOf(at: number): number {
    return this.words[at]! & TYPE_MASK;
  }

  /** Where the record at `at` ends. */
  endOf(at: number): number {
    return at + (this.words[at]! >>> TYPE_BITS);
  }

  /** Done with the record at `at`. */
  next(at: number): void {
    this.#tail = (this.#tail + (this.words[at]! >>> TYPE_BITS)) | 0;
  }

  /** Give the room of everything read back. True if the writer waits for it and has to be rung. */
  release(): boolean {
    return releaseUpTo(this.words, this.#tail);
  }

  /** Block this thread until there is something to read, at most this long. */
  wait(ms: number): void {
    if (this.peek() < 0 && this.sleep()) Atomics.wait(this.words, ASLEEP, 1, ms);
  }

  /** Nothing is left: say that a doorbell is needed. False if something came meanwhile. */
  sleep(): boolean {
    return sleepAt(this.words, this.#tail);
  }
}

function releaseUpTo(words: Int32Array, tail: number): boolean {
  Atomics.store(words, TAIL, tail);
  return Atomics.load(words, WANTS_ROOM) === 1 && Atomics.exchange(words, WANTS_ROOM, 0) === 1;
}

function sleepAt(words: Int32Array, tail: number): boolean {
  Atomics.store(words, ASLEEP, 1);
  if (Atomics.load(words, HEAD) === tail) return true;
  // Whether or not the writer has seen the word by now: it rings for nothing, at worst.
  Atomics.store(words, ASLEEP, 0);
  return false;
}
