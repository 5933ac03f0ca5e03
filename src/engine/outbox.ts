/**
 * One direction between two threads: the writing end of a ring, and objects on a message port, in one order. What finds no room waits here
 * in order; it is bounded by what the writer may have under way at all.
 */
import type { MessagePort } from 'node:worker_threads';
import type { RingWriter } from './ring.ts';

export class Outbox {
  readonly ring: RingWriter;
  readonly #doorbell: MessagePort;
  readonly #objects: MessagePort;
  /** Records that found no room: type and words. */
  #waiting: (readonly number[])[] = [];
  #first = 0;

  constructor(ring: RingWriter, doorbell: MessagePort, objects: MessagePort) {
    this.ring = ring;
    this.#doorbell = doorbell;
    this.#objects = objects;
  }

  /** True if everything has gone into the ring; else nothing else may go in front. */
  get open(): boolean {
    return this.#waiting.length === 0;
  }

  /** Write a small record now or later. */
  put(type: number, ...words: readonly number[]): void {
    if (this.open && this.#write(type, words)) return;
    this.#waiting.push([type, ...words]);
    this.flush(); // there may be room by now, and then nobody would ring for it
  }

  /** An object for the port; `type` is the record that marks its place. */
  send(type: number, object: unknown): void {
    this.put(type);
    this.attach(object);
  }

  /** An object that belongs to the record written last. It must not have been published yet. */
  attach(object: unknown): void {
    this.#objects.postMessage(object);
  }

  #write(type: number, words: readonly number[]): boolean {
    const at = this.ring.begin(type, words.length + 1);
    if (at < 0) return false;
    for (let i = 0; i < words.length; i++) this.ring.words[at + 1 + i] = words[i]!;
    return true;
  }

  /** There may be room again: write what waits. True if nothing waits any more. */
  flush(): boolean {
    while (this.#first < this.#waiting.length) {
      const [type, ...words] = this.#waiting[this.#first]!;
      if (!this.#write(type!, words) && (this.ring.waitForRoom(words.length + 1) || !this.#write(type!, words))) return false;
      this.#first++;
    }
    this.#waiting = [];
    this.#first = 0;
    return true;
  }

  /** Let the other side see it all. */
  publish(): void {
    if (this.ring.publish()) this.#doorbell.postMessage(0);
  }

  /** Wake the other side, whatever it does. */
  ringBell(): void {
    this.#doorbell.postMessage(0);
  }
}
