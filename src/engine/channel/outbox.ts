/**
 * One direction between two threads: the writing end of a ring, and objects on a message port, in one order.
 * Records that find no room wait here in order; their number is bounded by the work that the writer may have
 * under way.
 */
import type { MessagePort } from 'node:worker_threads';
import type { RingWriter } from './ring.ts';

/** A record that waits: its type, how many words it has, and those. */
interface Waiting {
  readonly type: number;
  readonly count: number;
  readonly a: number;
  readonly b: number;
  readonly c: number;
  readonly d: number;
  readonly e: number;
  readonly f: number;
}

export class Outbox {
  readonly ring: RingWriter;
  readonly #doorbell: MessagePort;
  readonly #objects: MessagePort;
  /** Records that found no room. */
  #waiting: Waiting[] = [];
  #first = 0;
  /**
   * Records that had waited are in the ring and not published: their callers asked for the bell long before.
   */
  #owed = false;

  constructor(ring: RingWriter, doorbell: MessagePort, objects: MessagePort) {
    this.ring = ring;
    this.#doorbell = doorbell;
    this.#objects = objects;
  }

  /** True if everything has gone into the ring; else nothing else may go in front. */
  get open(): boolean {
    return this.#waiting.length === 0;
  }

  /**
   * Write a record of `count` words after its type now or later. Written out: a list of them would be garbage
   * for every completion.
   */
  put(type: number, count: number, a = 0, b = 0, c = 0, d = 0, e = 0, f = 0): void {
    if (this.open && this.#write(type, count, a, b, c, d, e, f)) return;
    this.#waiting.push({ type, count, a, b, c, d, e, f });
    this.flush(); // there may be room by now, and then no bell would come for it
  }

  /**
   * An object for the port; `type` is the record that marks its place. The object first: one that cannot be
   * copied throws, and leaves no mark. Ports in `transfer` move to the other thread.
   */
  send(type: number, object: unknown, transfer: MessagePort[] = []): void {
    this.#objects.postMessage(object, transfer);
    this.put(type, 0);
  }

  #write(
    type: number,
    count: number,
    a: number,
    b: number,
    c: number,
    d: number,
    e: number,
    f: number,
  ): boolean {
    const at = this.ring.begin(type, count + 1);
    if (at < 0) return false;
    const { words } = this.ring;
    if (count > 0) words[at + 1] = a;
    if (count > 1) words[at + 2] = b;
    if (count > 2) words[at + 3] = c;
    if (count > 3) words[at + 4] = d;
    if (count > 4) words[at + 5] = e;
    if (count > 5) words[at + 6] = f;
    return true;
  }

  #writeWaiting({ type, count, a, b, c, d, e, f }: Waiting): boolean {
    return this.#write(type, count, a, b, c, d, e, f);
  }

  /** There may be room again: write the records that wait. True if nothing is left waiting. */
  flush(): boolean {
    if (this.open) return true;
    while (this.#first < this.#waiting.length) {
      const record = this.#waiting[this.#first]!;
      if (!this.#writeWaiting(record) && (this.waitForRoom(record.count + 1) || !this.#writeWaiting(record)))
        return false;
      this.#first++;
      this.#owed = true;
    }
    this.#waiting = [];
    this.#first = 0;
    return true;
  }

  /** Ask to be rung when there is room. False if there is some by now, after all. */
  waitForRoom(words: number): boolean {
    if (!this.ring.waitForRoom(words)) return false;
    this.wake(); // the ring may have been filled without a ring of the bell
    return true;
  }

  /** Let the other side see it all. */
  publish(): void {
    this.#owed = false;
    if (this.ring.publish()) this.ringBell();
  }

  /** Let the other side see it all when it wakes. Records that had waited for room ring all the same. */
  publishQuietly(): void {
    if (this.#owed) this.publish();
    else this.ring.publishQuietly();
  }

  /** Wake the other side if it sleeps. */
  wake(): void {
    if (this.ring.wake()) this.ringBell();
  }

  /** Wake the other side, whatever it does. */
  ringBell(): void {
    this.#doorbell.postMessage(0);
  }
}
