/**
 * Requests of a client that wait for their replies. The cookie is a slot's number and a count of its uses, so
 * that a late or invented reply is recognised.
 */
import { abortError, whenAborted } from '../base/abort.ts';
import { IwarpError } from '../base/errors.ts';
import type { LinkRequest } from './link.ts';
import type { ExtentDescriptor } from './wire.ts';

/** One request under way. */
export interface Pending {
  readonly slot: number;
  readonly use: number;
  readonly request: LinkRequest;
  readonly resolve: (extents: readonly ExtentDescriptor[]) => void;
  readonly reject: (error: Error) => void;
  /** Stops listening to the caller's signal; null without one. */
  stop: (() => void) | null;
  /** The caller has given up: what arrives is dropped, and its memory is not touched. */
  isAbandoned: boolean;
  /** What chunks of a structured reply have brought. */
  extents: ExtentDescriptor[];
  error: number;
  filled: number;
}

export class PendingTable {
  readonly depth: number;
  readonly #slots: (Pending | null)[];
  readonly #uses: number[];
  readonly #free: number[];
  readonly #waiting: (() => void)[] = [];
  #inFlight = 0;
  #ended: Error | null = null;

  constructor(depth: number) {
    this.depth = depth;
    this.#slots = new Array<Pending | null>(depth).fill(null);
    this.#uses = new Array<number>(depth).fill(0);
    this.#free = Array.from({ length: depth }, (_, i) => depth - 1 - i);
  }

  get inFlight(): number {
    return this.#inFlight + this.#waiting.length;
  }

  /** Waits for a slot, hands the request to `send`, and resolves with its reply. */
  async submit(
    request: LinkRequest,
    signal: AbortSignal | undefined,
    send: (pending: Pending) => void,
  ): Promise<readonly ExtentDescriptor[]> {
    if (isAborted(signal)) throw abortError(signal);
    while (this.#ended === null && this.#free.length === 0)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    if (this.#ended !== null) throw this.#ended;
    if (isAborted(signal)) {
      this.#waiting.shift()?.();
      throw abortError(signal);
    }
    const slot = this.#free.pop()!;
    this.#inFlight++;
    return await new Promise((resolve, reject) => {
      const use = (this.#uses[slot] = (this.#uses[slot]! + 1) >>> 0);
      const pending: Pending = {
        slot,
        use,
        request,
        resolve,
        reject,
        stop: null,
        isAbandoned: false,
        extents: [],
        error: 0,
        filled: 0,
      };
      this.#slots[slot] = pending;
      if (signal !== undefined) {
        pending.stop = whenAborted(signal, () => {
          pending.isAbandoned = true;
          reject(abortError(signal));
        });
      }
      send(pending);
    });
  }

  /** The request of a cookie; null if none is under way. */
  find(cookieHi: number, cookieLo: number): Pending | null {
    const pending = this.#slots[cookieLo] ?? null;
    return pending !== null && pending.use === cookieHi ? pending : null;
  }

  /** The reply is here. */
  settle(pending: Pending, error: Error | null): void {
    this.#slots[pending.slot] = null;
    this.#free.push(pending.slot);
    this.#inFlight--;
    pending.stop?.();
    if (error === null) pending.resolve(pending.extents);
    else pending.reject(error);
    this.#waiting.shift()?.();
  }

  /** No reply will come. */
  end(error: Error | undefined): void {
    this.#ended ??= error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the connection has been closed');
    for (const pending of this.#slots) if (pending !== null) this.settle(pending, this.#ended);
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

/** Asked again after a wait, where the compiler would take the first answer for good. */
function isAborted(signal: AbortSignal | undefined): signal is AbortSignal {
  return signal?.aborted === true;
}
