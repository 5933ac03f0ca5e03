/**
 * Outstanding requests of one direction in the order in which they were sent, found again by a key in a
 * constant number of steps: a hostile capture may have 16,384 of them and a response behind a gap for each.
 */

interface Entry<T> {
  readonly key: string | number;
  readonly request: T;
}

export class RequestQueue<T> {
  /** By sequence number less {@link first}; undefined where a request was removed out of order. */
  private entries: (Entry<T> | undefined)[] = [];
  /** Sequence number of `entries[0]`. */
  private first = 0;
  /** Index in `entries` of the oldest request: those before it are gone. */
  private head = 0;
  private count = 0;
  /** Sequence numbers of each key's requests, the oldest first. */
  private readonly byKey = new Map<string | number, number[]>();
  /** Entries visited so far: the measure of the work, for a test that bounds it. */
  steps = 0;

  get length(): number {
    return this.count;
  }

  /** The oldest request. */
  get oldest(): T | undefined {
    return this.entries[this.head]?.request;
  }

  push(key: string | number, request: T): void {
    const same = this.byKey.get(key);
    const sequence = this.first + this.entries.length;
    if (same === undefined) this.byKey.set(key, [sequence]);
    else same.push(sequence);
    this.entries.push({ key, request });
    this.count++;
  }

  /** True if a request with this key is outstanding. */
  has(key: string | number): boolean {
    return this.byKey.has(key);
  }

  /** Remove the oldest request; the result is how many were removed. */
  shift(): number {
    return this.count === 0 ? 0 : this.removeAt(this.head);
  }

  /** Remove the oldest request with this key, which is outstanding. */
  remove(key: string | number): number {
    return this.removeAt(this.byKey.get(key)![0]! - this.first);
  }

  /** Remove every request older than the oldest one with this key; the result is how many were removed. */
  dropBefore(key: string | number): number {
    const until = this.byKey.get(key)![0]!;
    let removed = 0;
    while (this.first + this.head < until) removed += this.removeAt(this.head);
    return removed;
  }

  private removeAt(index: number): number {
    this.steps++;
    const { key } = this.entries[index]!;
    const same = this.byKey.get(key)!;
    // A removal always takes the oldest of its key.
    same.shift();
    if (same.length === 0) this.byKey.delete(key);
    this.entries[index] = undefined;
    this.count--;
    while (this.head < this.entries.length && this.entries[this.head] === undefined) {
      this.head++;
      this.steps++;
    }
    if (this.head > 64 && this.head * 2 > this.entries.length) {
      this.first += this.head;
      this.entries = this.entries.slice(this.head);
      this.head = 0;
    }
    return 1;
  }
}
