/** Promises that wait in line, each of which an AbortSignal can take out again. */
import { abortError, whenAborted } from './abort.ts';
import { handled } from './promised.ts';

interface Waiter<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
  readonly ready: () => boolean;
  promise: Promise<T> | null;
  /** Stops listening to the signal; null without one. */
  stop: (() => void) | null;
  previous: Waiter<T> | null;
  next: Waiter<T> | null;
}

const always = (): boolean => true;

/**
 * A linked list: each step takes constant time, however many waiters a peer has made us keep. (The first
 * entry of a `Set` is found behind all entries that have been deleted before it.)
 */
export class Waiters<T> {
  #first: Waiter<T> | null = null;
  #last: Waiter<T> | null = null;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** `ready` is the condition that `settle` checks. */
  wait(signal: AbortSignal | undefined, ready: () => boolean = always): Promise<T> {
    if (signal?.aborted) return Promise.reject(abortError(signal));
    let waiter!: Waiter<T>;
    const promise = new Promise<T>((resolve, reject) => {
      waiter = { resolve, reject, ready, promise: null, stop: null, previous: this.#last, next: null };
    });
    waiter.promise = promise;
    if (signal !== undefined) this.#listen(waiter, signal);
    if (this.#last === null) this.#first = waiter;
    else this.#last.next = waiter;
    this.#last = waiter;
    this.#size++;
    return promise;
  }

  #listen(waiter: Waiter<T>, signal: AbortSignal): void {
    waiter.stop = whenAborted(signal, () => {
      this.#remove(waiter);
      waiter.reject(abortError(signal));
    });
  }

  #remove(waiter: Waiter<T>): void {
    const { previous, next } = waiter;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    this.#size--;
  }

  #resolve(waiter: Waiter<T>, value: T): void {
    this.#remove(waiter);
    waiter.stop?.();
    waiter.resolve(value);
  }

  /** Give the value to the caller that has waited longest; false if none waits. */
  next(value: T): boolean {
    const first = this.#first;
    if (first === null) return false;
    this.#resolve(first, value);
    return true;
  }

  /** Give the value to every caller that is ready for it. */
  settle(value: T): void {
    for (let waiter = this.#first; waiter !== null; ) {
      const { next } = waiter;
      if (waiter.ready()) this.#resolve(waiter, value);
      waiter = next;
    }
  }

  /**
   * The object that the callers wait for has ended: each wait rejects with `error`. A wait that nobody awaits
   * is no unhandled rejection.
   */
  rejectAll(error: Error): void {
    for (let waiter = this.#first; waiter !== null; waiter = this.#first) {
      this.#remove(waiter);
      waiter.stop?.();
      void handled(waiter.promise!);
      waiter.reject(error);
    }
  }
}
