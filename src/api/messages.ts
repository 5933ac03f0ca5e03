/** Iteration over the messages of a connection. */
import type { Message } from './message.ts';

type Step = IteratorResult<Message, void>;

const END: Step = { value: undefined, done: true };

/**
 * Stands for an async generator over `receive`, without its promises and turns of the microtask queue: those
 * were a quarter of the work of a program that receives short messages. Like a generator, it is over once it
 * has said so, has failed, or `return` or `throw` was called.
 */
export class Messages implements AsyncGenerator<Message, void, undefined> {
  readonly #take: () => Message | undefined;
  readonly #wait: () => Promise<Message | null>;
  #over = false;

  /**
   * `take` gives a message that is there already; where it gives none, `wait` gives the next, or null at the
   * end. Neither throws.
   */
  constructor(take: () => Message | undefined, wait: () => Promise<Message | null>) {
    this.#take = take;
    this.#wait = wait;
  }

  next(): Promise<Step> {
    if (this.#over) return Promise.resolve(END);
    const message = this.#take();
    if (message !== undefined) return Promise.resolve({ value: message, done: false });
    return this.#wait().then(this.#arrived, this.#failed);
  }

  readonly #arrived = (message: Message | null): Step => {
    if (message !== null) return { value: message, done: false };
    this.#over = true;
    return END;
  };

  /** Only one of several waiting calls rejects. */
  readonly #failed = (error: unknown): Step => {
    if (this.#over) return END;
    this.#over = true;
    throw error;
  };

  return(): Promise<Step> {
    this.#over = true;
    return Promise.resolve(END);
  }

  throw(error: unknown): Promise<Step> {
    this.#over = true;
    return Promise.reject(error as Error);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}
