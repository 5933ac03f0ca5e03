/** Small numbers for the items under way; a freed number is used again. */
export class Slots<T> {
  readonly #items: (T | undefined)[] = [];
  readonly #free: number[] = [];
  readonly #most: number;
  size = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get full(): boolean {
    return this.size >= this.#most;
  }

  /** Keep `item` under a free number. Only while not {@link full}. */
  add(item: T): number {
    const id = this.#free.pop() ?? this.#items.length;
    this.#items[id] = item;
    this.size++;
    return id;
  }

  /** Keep `item` under the number that the peer has chosen; false if it may not. */
  put(id: number, item: T): boolean {
    if (id >= this.#most || this.#items[id] !== undefined) return false;
    this.#items[id] = item;
    this.size++;
    return true;
  }

  get(id: number): T | undefined {
    return this.#items[id];
  }

  /** Let the number of an item that {@link add} has kept go. */
  remove(id: number): T | undefined {
    const item = this.take(id);
    if (item !== undefined) this.#free.push(id);
    return item;
  }

  /** Let the number of an item that {@link put} has kept go. */
  take(id: number): T | undefined {
    const item = this.#items[id];
    if (item === undefined) return undefined;
    this.#items[id] = undefined;
    this.size--;
    return item;
  }

  /** All items, which are let go. */
  clear(): T[] {
    const all = this.#items.filter((item) => item !== undefined);
    this.#items.length = this.#free.length = this.size = 0;
    return all;
  }
}
