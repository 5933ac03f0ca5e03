/** The messages of one connection, from its receive buffers to the program and back: those that nobody has taken, who waits for them, and whose memory it is in the end. */
import { abortError } from '../base/abort.ts';
import type { IwarpError } from '../base/errors.ts';
import { Waiters } from '../base/waiters.ts';
import type { WorkCompletion } from '../verbs/cq.ts';
import { Message } from './message.ts';
import type { ReceiveBuffers } from './receive-buffers.ts';

/** @internal */
export class Inbox {
  readonly #buffers: ReceiveBuffers;
  readonly #onFree: (index: number) => void;
  readonly #messages: Message[] = [];
  readonly #readers = new Waiters<Message | null>();
  #ended = false;
  /** What it ended with; undefined after an orderly end. */
  #error: IwarpError | undefined;

  /** `onFree` is told each receive buffer that can be posted again, unless the connection is gone. */
  constructor(buffers: ReceiveBuffers, onFree: (index: number) => void) {
    this.#buffers = buffers;
    this.#onFree = onFree;
  }

  /** A message has come into receive buffer `index`. */
  arrived(index: number, { byteLength, solicited, invalidatedStag, immediate }: WorkCompletion): void {
    const data = this.#buffers.lend(index, immediate === undefined ? byteLength : 0);
    const message = new Message(data, solicited, invalidatedStag, immediate, this.#release, index);
    if (!this.#readers.next(message)) this.#messages.push(message);
  }

  /** A message that is there already. */
  take(): Message | undefined {
    return this.#messages.shift();
  }

  /** The next message, also one that is still to come; null after an orderly end. Rejects with what the connection failed with, and with ERR_ABORTED. */
  next(signal: AbortSignal | undefined): Promise<Message | null> {
    if (signal?.aborted === true) return Promise.reject(abortError(signal));
    const message = this.take();
    if (message !== undefined) return Promise.resolve(message);
    if (!this.#ended) return this.#readers.wait(signal);
    return this.#error === undefined ? Promise.resolve(null) : Promise.reject(this.#error);
  }

  /** The connection is gone. */
  end(error: IwarpError | undefined): void {
    this.#ended = true;
    this.#error = error;
    if (error !== undefined) this.#readers.rejectAll(error);
    else while (this.#readers.next(null));
  }

  /** Bound: one function does for all messages. */
  readonly #release = (index: number): void => {
    this.#buffers.release(index);
    if (!this.#ended) this.#onFree(index);
  };
}
