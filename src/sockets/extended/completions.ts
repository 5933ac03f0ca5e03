/**
 * Completions of one extended socket, in the order in which they came. One that the program has neither
 * polled nor awaited keeps its place, so that their number is bounded by the depth.
 */
import { IwarpError } from '../../base/errors.ts';
import type { WcStatus } from '../../verbs/index.ts';

/** Kinds of posts. */
export type ExtendedOperation = 'send' | 'receive' | 'put' | 'get';

/** A finished post, as {@link ExtendedSocket.poll} reports it. The caller owns the object. */
export interface ExtendedCompletion {
  /** The number that the post was given. */
  id: number;
  /** The kind of the post. */
  operation: ExtendedOperation;
  /** Bytes of the message; of a receive, those that came. */
  length: number;
  /** `success`, or how it failed; then the connection ends. */
  status: WcStatus;
}

export class Completions {
  /** Finished, and not reported. */
  #done: ExtendedCompletion[] = [];
  #first = 0;
  /** Posts under way, by their number. */
  readonly #posted = new Map<number, number>();
  readonly #waiting = new Map<number, ((completion: ExtendedCompletion) => void)[]>();

  /** Finished, and not reported. */
  get unreported(): number {
    return this.#done.length - this.#first;
  }

  posted(id: number): void {
    this.#posted.set(id, (this.#posted.get(id) ?? 0) + 1);
  }

  add(completion: ExtendedCompletion): void {
    const { id } = completion;
    const left = this.#posted.get(id)! - 1;
    if (left === 0) this.#posted.delete(id);
    else this.#posted.set(id, left);
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) {
      this.#done.push(completion);
      return;
    }
    if (waiting.length === 1) this.#waiting.delete(id);
    waiting.shift()!(completion);
  }

  /** Fill up to `most` elements, oldest first; the result is how many. */
  report(out: ExtendedCompletion[], most: number): number {
    let n = 0;
    for (; n < most && this.#first < this.#done.length; n++) {
      const completion = this.#done[this.#first++]!;
      const target = out[n];
      if (target === undefined) out[n] = completion;
      else Object.assign(target, completion);
    }
    if (this.#first === this.#done.length || this.#first > 1024) {
      this.#done = this.#done.slice(this.#first);
      this.#first = 0;
    }
    return n;
  }

  /** The completion of the oldest post of this number that has not been reported; `report` leaves it out. */
  await(id: number): Promise<ExtendedCompletion> {
    const at = this.#done.findIndex((completion, i) => i >= this.#first && completion.id === id);
    if (at >= 0) {
      const [completion] = this.#done.splice(at, 1);
      return Promise.resolve(completion!);
    }
    const waiting = this.#waiting.get(id) ?? [];
    if (waiting.length >= (this.#posted.get(id) ?? 0))
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `no post with id ${id} is under way, and none that has finished waits to be reported`,
      );
    return new Promise((resolve) => {
      waiting.push(resolve);
      this.#waiting.set(id, waiting);
    });
  }
}
