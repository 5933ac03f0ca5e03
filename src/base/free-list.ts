const nothing = (): void => undefined;

/**
 * Things kept for their next use. A plain array that is popped empty throws away what holds it, and the next push makes room for seventeen: 150 octets of garbage
 * for each use of a pool that mostly lends one thing at a time.
 */
export class FreeList<T> {
  readonly #keep: number;
  readonly #drop: (thing: T) => void;
  /** What is free, `#list[0..#count)`; after it stands what was lent last, until something else takes the place. */
  readonly #list: T[] = [];
  #count = 0;

  /** Keeps up to `keep`; `drop` gets what is more. */
  constructor(keep: number, drop: (thing: T) => void = nothing) {
    this.#keep = keep;
    this.#drop = drop;
  }

  /** The one put in last; undefined if there is none. */
  take(): T | undefined {
    return this.#count === 0 ? undefined : this.#list[--this.#count];
  }

  put(thing: T): void {
    if (this.#count < this.#keep) this.#list[this.#count++] = thing;
    else this.#drop(thing);
  }
}
