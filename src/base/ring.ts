/**
 * A ring of references for counters that run freely: the place of a counter is its lower bits. The owner
 * counts, and says which counters are in use when the ring changes its size.
 *
 * Send queues, receive queues and completion queues stand in rings. It has its own class rather than three
 * copies since that costs a queue entry nothing: `bench/micro/guard.ts`, figures in docs/architecture.md.
 */
export class Ring<T> {
  #places: (T | null)[];
  #mask: number;

  /** Room for at least this number of entries. */
  constructor(entries: number) {
    const places = ringPlaces(entries);
    this.#places = new Array<T | null>(places).fill(null);
    this.#mask = places - 1;
  }

  /** Entries that there is room for, a power of two. */
  get size(): number {
    return this.#mask + 1;
  }

  /** The item at a counter that is in use. */
  at(counter: number): T {
    return this.#places[counter & this.#mask]!;
  }

  put(counter: number, thing: T): void {
    this.#places[counter & this.#mask] = thing;
  }

  /** Takes the item at a counter that is in use; its place is free afterwards. */
  take(counter: number): T {
    const at = counter & this.#mask;
    const thing = this.#places[at]!;
    this.#places[at] = null;
    return thing;
  }

  /** Make room for this number of entries, no more; those of the counters `from` to `end` are kept. */
  resize(entries: number, from: number, end: number): void {
    const places = ringPlaces(entries);
    const moved = new Array<T | null>(places).fill(null);
    for (let counter = from; counter < end; counter++) moved[counter & (places - 1)] = this.at(counter);
    this.#places = moved;
    this.#mask = places - 1;
  }
}

/**
 * Places of a ring for this number of entries, a power of two: `counter & (places - 1)` finds the place of a
 * counter that runs freely. A remainder costs little until the counter outgrows 31 bits, and then a fifth of
 * the message rate (`rate` of bench/micro/datapath.ts).
 */
function ringPlaces(entries: number): number {
  return entries <= 1 ? 1 : 1 << (32 - Math.clz32(entries - 1));
}
