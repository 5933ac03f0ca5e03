/**
 * The operations of one shared socket: numbered from 1, completed in that order, each reported once. A
 * completion keeps its place until `poll` has reported it or `settled` has taken it, so what a program never
 * looks at is bounded by the depth.
 */
import { IwarpError } from '../base/errors.ts';
import type { WcStatus } from '../verbs/index.ts';

/** A finished operation, as `poll` reports it. The caller owns the object, and each poll fills it again. */
export interface SharedEvent {
  /** The operation's number, as `read` or `write` returned it. */
  id: number;
  /** The requested operation. */
  operation: 'read' | 'write';
  /** Length of the operation in bytes. */
  length: number;
  /** `success`, or how it failed. All later operations of the socket fail as well. */
  status: WcStatus;
}

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** Places hold these: an operation under way, done and not reported, done and taken by `settled`. */
const FREE = 0;
const DONE = 1;
const TAKEN = 2;

export class Operations {
  readonly depth: number;
  readonly #kinds: ('read' | 'write')[];
  readonly #lengths: Float64Array;
  readonly #marks: Uint8Array;
  readonly #waiters = new Map<number, Waiter[]>();
  /** Numbers below have been posted, completed, reported; each is at least the next. */
  #next = 1;
  #completed = 1;
  #reported = 1;
  /** The first operation that failed, and how: all later ones failed too. */
  #failedFrom = Number.MAX_SAFE_INTEGER;
  #failure: WcStatus = 'success';
  /** The error that waiting programs get for failed operations. */
  cause: Error | undefined;

  constructor(depth: number) {
    this.depth = depth;
    this.#kinds = new Array<'read' | 'write'>(depth).fill('read');
    this.#lengths = new Float64Array(depth);
    this.#marks = new Uint8Array(depth);
  }

  /** Number of the next operation. */
  get next(): number {
    return this.#next;
  }

  /** Operations posted and not completed. */
  get inFlight(): number {
    return this.#next - this.#completed;
  }

  get isFull(): boolean {
    return this.#next - this.#reported >= this.depth;
  }

  /** Take the next number for an operation that has been posted. */
  add(operation: 'read' | 'write', length: number): number {
    const id = this.#next++;
    const place = id % this.depth;
    this.#kinds[place] = operation;
    this.#lengths[place] = length;
    this.#marks[place] = FREE;
    return id;
  }

  /** The oldest operation under way has ended. */
  complete(status: WcStatus): void {
    const id = this.#completed++;
    if (status !== 'success' && id < this.#failedFrom) {
      this.#failedFrom = id;
      this.#failure = status;
    }
    const waiters = this.#waiters.get(id);
    this.#marks[id % this.depth] = waiters === undefined ? DONE : TAKEN;
    if (waiters === undefined) return;
    this.#waiters.delete(id);
    for (const waiter of waiters) this.#settle(id, waiter);
    this.#skipTaken();
  }

  /** Fill up to `most` events with completions, oldest first; the result is how many. */
  report(events: SharedEvent[], most: number): number {
    let n = 0;
    while (n < most && this.#reported < this.#completed) {
      const place = this.#reported % this.depth;
      if (this.#marks[place] === DONE) {
        const event = (events[n] ??= { id: 0, operation: 'read', length: 0, status: 'success' });
        event.id = this.#reported;
        event.operation = this.#kinds[place]!;
        event.length = this.#lengths[place]!;
        event.status = this.#reported < this.#failedFrom ? 'success' : this.#failure;
        n++;
      }
      this.#reported++;
    }
    this.#skipTaken();
    return n;
  }

  /** Resolves when the operation has succeeded; `poll` then does not report it, unless it has already. */
  settled(id: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiter = { resolve, reject };
      if (id >= this.#completed) {
        const waiters = this.#waiters.get(id);
        if (waiters === undefined) this.#waiters.set(id, [waiter]);
        else waiters.push(waiter);
        return;
      }
      if (id >= this.#reported) {
        this.#marks[id % this.depth] = TAKEN;
        this.#skipTaken();
      }
      this.#settle(id, waiter);
    });
  }

  #settle(id: number, { resolve, reject }: Waiter): void {
    if (id < this.#failedFrom) resolve();
    else
      reject(
        new IwarpError('ERR_WORK_COMPLETION', `operation ${id} ended with status ${this.#failure}`, {
          cause: this.cause,
        }),
      );
  }

  /** Completions that `settled` has taken do not hold their places. */
  #skipTaken(): void {
    while (this.#reported < this.#completed && this.#marks[this.#reported % this.depth] === TAKEN)
      this.#reported++;
  }
}
