/** Promises that wait in line, each of which an AbortSignal can take out again. */
import { abortError, whenAborted } from './abort.ts';

interface Waiter<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
  /** Stops listening to the signal; null without one. */
  stop: (() => void) | null;
  readonly ready: () => boolean;
}

const always = (): boolean => true;

export class Waiters<T> {
  readonly #line = new Set<Waiter<T>>();

  get size(): number {
    return this.#line.size;
  }

  /** `ready` is what `settle` asks. */
  wait(signal: AbortSignal | undefined, ready: () => boolean = always): Promise<T> {
    if (signal?.aborted) return Promise.reject(abortError(signal));
    return new Promise<T>((resolve, reject) => {
      const waiter: Waiter<T> = { resolve, reject, stop: null, ready };
      if (signal !== undefined) this.#listen(waiter, signal);
      this.#line.add(waiter);
    });
  }

  #listen(waiter: Waiter<T>, signal: AbortSignal): void {
    waiter.stop = whenAborted(signal, () => {
      this.#line.delete(waiter);
      waiter.reject(abortError(signal));
    });
  }

  /** Give the value to whoever waits longest; false if nobody does. */
  next(value: T): boolean {
    for (const waiter of this.#line) {
      this.#line.delete(waiter);
      waiter.stop?.();
      waiter.resolve(value);
      return true;
    }
    return false;
  }

  /** Give the value to everybody who is ready for it. */
  settle(value: T): void {
    for (const waiter of this.#line) {
      if (!waiter.ready()) continue;
      this.#line.delete(waiter);
      waiter.stop?.();
      waiter.resolve(value);
    }
  }

  rejectAll(error: Error): void {
    for (const waiter of this.#line) {
      waiter.stop?.();
      waiter.reject(error);
    }
    this.#line.clear();
  }
}
