/**
 * The receiving side's account of sequence numbers: everything below `expected` has arrived, and above it a
 * bounded number of ranges. Sequence numbers count from 0 here and never wrap; the wire's are 32 bits of them
 * from the peer's first one on.
 */

/** What a datagram is, by its sequence number. */
export const ARRIVAL = {
  /** The one that everything waits for. */
  NEXT: 0,
  /** New, with something missing below. */
  ABOVE: 1,
  /** The datagram has arrived before. */
  REPEAT: 2,
  /** Beyond the window, or more ranges than are kept: as if it were lost. */
  OUTSIDE: 3,
} as const;

/** Datagrams above `expected` that are taken at most, whatever their sender's window is. */
const REACH = 4096;

/** The serial difference of two 32-bit numbers, from -2^31 to 2^31 - 1. */
export function serialDifference(a: number, b: number): number {
  return (a - b) | 0;
}

export class ReceiveOrder {
  /** Everything below has arrived. */
  expected = 0;
  readonly #first: number;
  readonly #maxRanges: number;
  /** Ranges above, `[starts[i], ends[i])`, lowest first, none adjacent to another. */
  readonly starts: number[] = [];
  readonly ends: number[] = [];

  /** The one above that came last. */
  #latest = 0;

  constructor(first: number, maxRanges: number) {
    this.#first = first;
    this.#maxRanges = maxRanges;
  }

  /** The number on the wire of this sequence number. */
  wire(sequence: number): number {
    return (this.#first + sequence) >>> 0;
  }

  /** The sequence number next to `expected` that stands for this number on the wire. May be negative. */
  sequence(wire: number): number {
    return this.expected + serialDifference(wire, this.wire(this.expected));
  }

  judge(sequence: number): number {
    if (sequence === this.expected) return ARRIVAL.NEXT;
    if (sequence < this.expected) return ARRIVAL.REPEAT;
    if (sequence - this.expected >= REACH) return ARRIVAL.OUTSIDE;
    const at = this.#find(sequence);
    if (at >= 0 && sequence < this.ends[at]!) return ARRIVAL.REPEAT;
    const joins = (at >= 0 && this.ends[at] === sequence) || this.starts[at + 1] === sequence + 1;
    if (!joins && this.starts.length >= this.#maxRanges) return ARRIVAL.OUTSIDE;
    return ARRIVAL.ABOVE;
  }

  /** Index of the last range that starts at or below; -1 for none. New ones are mostly at the end. */
  #find(sequence: number): number {
    let at = this.starts.length - 1;
    while (at >= 0 && this.starts[at]! > sequence) at--;
    return at;
  }

  /** The next one has arrived. */
  advance(): void {
    this.expected++;
    if (this.starts.length === 0 || this.starts[0]! > this.expected) return;
    this.expected = this.ends[0]!;
    this.starts.shift();
    this.ends.shift();
  }

  /**
   * Indices of the ranges to report, at most `most`, lowest first: the lowest ones, and the one that grew
   * last, so that the sender hears of each in its time.
   */
  reported(most: number): number[] {
    const count = Math.min(this.starts.length, most);
    const indices = Array.from({ length: count }, (_, i) => i);
    const latest = this.#find(this.#latest);
    if (count > 0 && latest >= count) indices[count - 1] = latest;
    return indices;
  }

  /** One judged ABOVE has been taken. */
  insert(sequence: number): void {
    this.#latest = sequence;
    const { starts, ends } = this;
    const at = this.#find(sequence);
    const joinsBelow = at >= 0 && ends[at] === sequence;
    const joinsAbove = starts[at + 1] === sequence + 1;
    if (joinsBelow && joinsAbove) {
      ends[at] = ends[at + 1]!;
      starts.splice(at + 1, 1);
      ends.splice(at + 1, 1);
    } else if (joinsBelow) {
      ends[at]!++;
    } else if (joinsAbove) {
      starts[at + 1]!--;
    } else {
      starts.splice(at + 1, 0, sequence);
      ends.splice(at + 1, 0, sequence + 1);
    }
  }
}
