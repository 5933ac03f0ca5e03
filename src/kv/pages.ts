/**
 * Memory for records: pages that each serve one size. A page with nothing left in it can become one of
 * another size.
 */
import { UNIT } from './layout.ts';

/** Sizes grow by about a quarter. */
const GROWTH = 1.25;
const NO_CLASS = 255;

export class Pages {
  /** Units of each size, ascending. */
  readonly sizes: readonly number[];
  readonly #pageUnits: number;
  readonly #firstUnit: number;
  /** For each page its size's number, or NO_CLASS. */
  readonly #classes: Uint8Array;
  /** For each page the places in use. */
  readonly #used: Uint32Array;
  readonly #freePages: number[] = [];
  readonly #kill: (place: number) => void;
  /** Where the search for something to evict goes on, for each size. */
  readonly #hands: { page: number; at: number }[] = [];
  /** For each size the places that are free, in units. */
  readonly #free: number[][];

  /** `kill` makes a place look empty. */
  constructor(firstOctet: number, page: number, pages: number, kill: (place: number) => void) {
    this.#kill = kill;
    this.#firstUnit = firstOctet / UNIT;
    this.#pageUnits = page / UNIT;
    const sizes: number[] = [];
    for (let size = 1; size < this.#pageUnits; size = Math.max(size + 1, Math.floor(size * GROWTH)))
      sizes.push(size);
    sizes.push(this.#pageUnits);
    this.sizes = sizes;
    this.#free = sizes.map(() => []);
    this.#classes = new Uint8Array(pages).fill(NO_CLASS);
    this.#used = new Uint32Array(pages);
    for (let i = pages - 1; i >= 0; i--) this.#freePages.push(i);
  }

  /** Number of the smallest size that holds `octets`. */
  classOf(octets: number): number {
    const units = Math.ceil(octets / UNIT);
    let [low, high] = [0, this.sizes.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sizes[middle]! >= units) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** A place of that size in units, or -1 if something has to go first. */
  take(sizeClass: number): number {
    const free = this.#free[sizeClass]!;
    if (free.length === 0) {
      const page = this.#freePages.pop() ?? this.#reclaim();
      if (page === undefined) return -1;
      this.#classes[page] = sizeClass;
      const size = this.sizes[sizeClass]!;
      const start = this.#firstUnit + page * this.#pageUnits;
      for (let at = Math.floor(this.#pageUnits / size) - 1; at >= 0; at--) {
        // What an earlier record left here must not look like the beginning of one.
        this.#kill(start + at * size);
        free.push(start + at * size);
      }
    }
    const place = free.pop()!;
    this.#used[this.#pageOf(place)]!++;
    return place;
  }

  /** Give a place back. */
  give(place: number): void {
    const page = this.#pageOf(place);
    const sizeClass = this.#classes[page]!;
    this.#free[sizeClass]!.push(place);
    this.#used[page]!--;
  }

  /** A page of any size with nothing left in it. */
  #reclaim(): number | undefined {
    const page = this.#used.indexOf(0);
    if (page < 0) return undefined;
    const sizeClass = this.#classes[page]!;
    this.#free[sizeClass] = this.#free[sizeClass]!.filter((other) => this.#pageOf(other) !== page);
    return page;
  }

  /**
   * The next place of that size, live or not, as a hand goes around; -1 when it has reached the end, where
   * the next call begins again.
   */
  advance(sizeClass: number): number {
    const size = this.sizes[sizeClass]!;
    const hand = (this.#hands[sizeClass] ??= { page: 0, at: 0 });
    while (hand.page < this.#classes.length) {
      const { page, at } = hand;
      if (this.#classes[page] === sizeClass && at + size <= this.#pageUnits) {
        hand.at += size;
        return this.#firstUnit + page * this.#pageUnits + at;
      }
      hand.page++;
      hand.at = 0;
    }
    hand.page = 0;
    return -1;
  }

  /** The live places of the page, other than of `sizeClass`, that has the fewest of them. */
  cheapest(sizeClass: number, isLive: (place: number) => boolean): number[] {
    let best = -1;
    for (let page = 0; page < this.#classes.length; page++) {
      if (this.#classes[page] === sizeClass) continue;
      if (best < 0 || this.#used[page]! < this.#used[best]!) best = page;
    }
    return best < 0 ? [] : [...this.#liveIn(best, isLive)];
  }

  *#liveIn(page: number, isLive: (place: number) => boolean): Generator<number> {
    const size = this.sizes[this.#classes[page]!]!;
    const start = this.#firstUnit + page * this.#pageUnits;
    for (let at = 0; at + size <= this.#pageUnits; at += size) if (isLive(start + at)) yield start + at;
  }

  #pageOf(place: number): number {
    return Math.floor((place - this.#firstUnit) / this.#pageUnits);
  }
}
