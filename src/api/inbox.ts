/**
 * The messages of one connection, from its receive buffers to the program and back: messages that no call has
 * taken, calls that wait for one, and the owner of the memory at the end.
 */
import { abortError } from '../base/abort.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import type { IwarpError } from '../base/errors.ts';
import { handled } from '../base/promised.ts';
import { Waiters } from '../base/waiters.ts';
import type { MessageSlot } from '../rpc/session.ts';
import type { WorkCompletion } from '../verbs/cq.ts';
import { Message } from './message.ts';
import type { ReceiveBuffers } from './receive-buffers.ts';

/** Milliseconds for which all buffers may hold messages before that is worth a warning. */
const PATIENCE_MS = 10_000;

/** @internal Where and when an inbox says that the program keeps all messages. */
interface Patience {
  readonly scheduler: Scheduler;
  /** Messages that the connection can hold. */
  readonly depth: number;
  readonly warn: (held: number, seconds: number) => void;
  /** The program has transferred memory that messages lie in: the connection ends. */
  readonly lost: () => void;
}

/** The place of a message that is still to be read. */
class Place {
  message: Message | null = null;
  cancelled = false;
}

/** @internal */
export class Inbox {
  readonly #buffers: ReceiveBuffers;
  readonly #onFree: (index: number) => void;
  /** Messages, and places of messages that are still to be read. */
  readonly #messages: (Message | Place)[] = [];
  readonly #readers = new Waiters<Message | null>();
  #ended = false;
  /** The error that the connection ended with; undefined after an orderly end. */
  #error: IwarpError | undefined;

  readonly #patience: Patience;
  readonly #alarm: Alarm;
  /** Messages that are not released. */
  #held = 0;
  /** Messages that have come so far. */
  count = 0;

  /** `onFree` is called for each receive buffer that can be posted again, unless the connection is gone. */
  constructor(buffers: ReceiveBuffers, onFree: (index: number) => void, patience: Patience) {
    this.#buffers = buffers;
    this.#onFree = onFree;
    this.#patience = patience;
    this.#alarm = new Alarm(patience.scheduler);
  }

  /** A message has come into receive buffer `index`. */
  arrived(index: number, { byteLength, solicited, invalidatedStag, immediate }: WorkCompletion): void {
    const octets = immediate === undefined ? byteLength : 0;
    const data = this.#buffers.lend(index, octets);
    const message = new Message(data, octets, solicited, invalidatedStag, immediate, this.#release, index);
    this.count++;
    if (++this.#held >= this.#patience.depth && !this.#alarm.isSet) this.#watch();
    // A reader that waits behind a place takes what fills it.
    if (message.isLost) this.#lose();
    else if (this.#messages.length > 0 || !this.#readers.next(message)) this.#messages.push(message);
  }

  /** Keep the place of a large message, which has been announced. */
  reserve(): MessageSlot {
    const place = new Place();
    this.#messages.push(place);
    return {
      fill: (bytes, release) => {
        this.count++;
        place.message = new Message(bytes, bytes.length, false, undefined, undefined, release, 0);
        this.#hand();
      },
      cancel: () => {
        place.cancelled = true;
        this.#hand();
      },
    };
  }

  /** Messages at the front go to the readers that wait. */
  #hand(): void {
    while (this.#readers.size > 0) {
      const message = this.take();
      if (message === undefined) return;
      this.#readers.next(message);
    }
  }

  #watch(): void {
    const { warn } = this.#patience;
    this.#alarm.set(PATIENCE_MS, () => warn(this.#held, PATIENCE_MS / 1000));
  }

  /** A message that is there already. */
  take(): Message | undefined {
    for (;;) {
      const [first] = this.#messages;
      if (!(first instanceof Place)) {
        if (first?.isLost !== true) return this.#messages.shift() as Message | undefined;
        this.#lose();
        return undefined;
      }
      if (first.message === null && !first.cancelled && !this.#ended) return undefined;
      this.#messages.shift();
      if (first.message !== null) return first.message;
    }
  }

  /**
   * The next message, also one that is still to come; null after an orderly end. Rejects with the error that
   * the connection failed with, and with ERR_ABORTED.
   */
  next(signal: AbortSignal | undefined): Promise<Message | null> {
    if (signal?.aborted === true) return Promise.reject(abortError(signal));
    const message = this.take();
    if (message !== undefined) return Promise.resolve(message);
    if (!this.#ended) return this.#readers.wait(signal);
    return this.#error === undefined ? Promise.resolve(null) : handled(Promise.reject(this.#error));
  }

  /** The connection is gone. */
  end(error: IwarpError | undefined): void {
    this.#ended = true;
    this.#alarm.stop();
    this.#error = error;
    this.#hand();
    if (error !== undefined) this.#readers.rejectAll(error);
    else while (this.#readers.next(null));
  }

  /** Bytes of the peer cannot be shown any longer: no later message takes their place. */
  #lose(): void {
    for (const message of this.#messages.splice(0)) if (message instanceof Message) message.release();
    if (!this.#ended) this.#patience.lost();
  }

  /** Bound: one function does for all messages. */
  readonly #release = (index: number): void => {
    const isLost = this.#buffers.isLost(index);
    this.#buffers.release(index);
    this.#held--;
    if (this.#alarm.isSet) this.#alarm.stop();
    if (isLost) this.#lose();
    else if (!this.#ended) this.#onFree(index);
  };
}
