/** A queue of items from the peer that the program takes one after the other. */
import { Waiters } from '../base/waiters.ts';
import type { IwarpError } from '../base/errors.ts';

const END = { value: undefined, done: true } as const;

export class Arrivals<T> {
  #items: T[] = [];
  #at = 0;
  readonly #waiting = new Waiters<T | null>();
  #ended = false;
  #error: IwarpError | undefined;

  add(item: T): void {
    if (this.#ended || this.#waiting.next(item)) return;
    this.#items.push(item);
  }

  next(signal: AbortSignal | undefined): Promise<T | null> {
    if (this.#at < this.#items.length) {
      const item = this.#items[this.#at++]!;
      if (this.#at === this.#items.length) {
        this.#items = [];
        this.#at = 0;
      }
      return Promise.resolve(item);
    }
    if (!this.#ended) return this.#waiting.wait(signal);
    return this.#error === undefined ? Promise.resolve(null) : Promise.reject(this.#error);
  }

  /** Items until the end; the iteration throws if the connection has failed. */
  iterate(signal: AbortSignal | undefined): AsyncIterableIterator<T> {
    let over = false;
    const iterator: AsyncIterableIterator<T> = {
      next: async () => {
        const value = over ? null : await this.next(signal);
        if (value !== null) return { value, done: false };
        over = true;
        return END;
      },
      return: () => {
        over = true;
        return Promise.resolve(END);
      },
      [Symbol.asyncIterator]: () => iterator,
    };
    return iterator;
  }

  end(error: IwarpError | undefined): void {
    this.#ended = true;
    this.#error = error;
    if (error === undefined) while (this.#waiting.next(null));
    else this.#waiting.rejectAll(error);
  }
}
