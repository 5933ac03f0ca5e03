/**
 * Pools: things kept for their next use, in bounded number. docs/architecture.md, "Memory that is kept", has
 * all of them with their bounds.
 */

/** How a pool makes, keeps and drops its things. */
interface PoolOptions<T> {
  /** How many free things are kept. */
  readonly keep: number;
  readonly make: () => T;
  /** Called before a thing is kept or dropped. */
  readonly reset?: (thing: T) => void;
  /** Gets the things that are not kept. */
  readonly drop?: (thing: T) => void;
}

/** A bounded LIFO free list: the thing used last is most likely still in a cache. */
export class FreeList<T> {
  readonly #drop: ((thing: T) => void) | undefined;
  #keep: number;
  /**
   * The free items, `#list[0..#count)`. Behind it stays the reference to the last thing lent, until another
   * takes the place: a plain array that is popped empty throws away what holds it, and the next push makes
   * room for seventeen, which is 150 bytes of garbage for each use of a pool that mostly lends one thing at
   * a time.
   */
  readonly #list: T[] = [];
  #count = 0;

  /** Keeps up to `keep`; `drop` gets the others. */
  constructor(keep: number, drop?: (thing: T) => void) {
    this.#keep = keep;
    this.#drop = drop;
  }

  /** The one put in last; undefined if there is none. */
  take(): T | undefined {
    return this.#count === 0 ? undefined : this.#list[--this.#count];
  }

  put(thing: T): void {
    if (this.#count < this.#keep) this.#list[this.#count++] = thing;
    else this.#drop?.(thing);
  }

  /** Drop all that is free, and from now on everything that is put in. */
  close(): void {
    this.#keep = 0;
    const free = this.#list.splice(0).slice(0, this.#count);
    this.#count = 0;
    for (const thing of free) this.#drop?.(thing);
  }
}

/** A free list that makes a thing when it has none. */
export class Pool<T> {
  readonly #make: () => T;
  readonly #reset: ((thing: T) => void) | undefined;
  readonly #free: FreeList<T>;
  /** Things lent out at present. */
  lent = 0;

  constructor({ keep, make, reset, drop }: PoolOptions<T>) {
    this.#make = make;
    this.#reset = reset;
    this.#free = new FreeList(keep, drop);
  }

  acquire(): T {
    const thing = this.#free.take() ?? this.#make();
    this.lent++;
    return thing;
  }

  release(thing: T): void {
    this.lent--;
    this.#reset?.(thing);
    this.#free.put(thing);
  }
}

interface Kept<T> {
  readonly thing: T;
  /** Things put in before. */
  readonly order: number;
}

/** Things of many sizes, kept up to a number of octets: those put in last. */
export class SizedPool<T> {
  readonly #drop: ((thing: T) => void) | undefined;
  #keep: number;
  /** Of each size, in the order in which they came. */
  readonly #sizes = new Map<number, Kept<T>[]>();
  #octets = 0;
  #order = 0;

  /** Keeps up to `keep` bytes; `drop` gets the others, those put in first before those put in last. */
  constructor(keep: number, drop?: (thing: T) => void) {
    this.#keep = keep;
    this.#drop = drop;
  }

  /** The last one of exactly this size; undefined if there is none. */
  take(octets: number): T | undefined {
    const kept = this.#sizes.get(octets);
    if (kept === undefined) return undefined;
    const { thing } = kept.pop()!;
    this.#removed(octets, kept);
    return thing;
  }

  put(thing: T, octets: number): void {
    if (octets > this.#keep) {
      this.#drop?.(thing);
      return;
    }
    const one = { thing, order: this.#order++ };
    const kept = this.#sizes.get(octets);
    if (kept === undefined) this.#sizes.set(octets, [one]);
    else kept.push(one);
    this.#octets += octets;
    while (this.#octets > this.#keep) this.#dropOldest();
  }

  /** Drop all that is kept, and from now on everything that is put in. */
  close(): void {
    this.#keep = -1;
    while (this.#sizes.size > 0) this.#dropOldest();
  }

  #dropOldest(): void {
    let [oldest, list] = this.#sizes.entries().next().value!;
    for (const [octets, kept] of this.#sizes)
      if (kept[0]!.order < list[0]!.order) [oldest, list] = [octets, kept];
    const { thing } = list.shift()!;
    this.#removed(oldest, list);
    this.#drop?.(thing);
  }

  #removed(octets: number, kept: readonly Kept<T>[]): void {
    this.#octets -= octets;
    if (kept.length === 0) this.#sizes.delete(octets);
  }
}
