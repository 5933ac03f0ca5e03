/**
 * How many messages of the peer a connection takes at a time, between two endpoints of this package.
 *
 * A server with thousands of idle connections should not hold the buffers that a few busy ones need. So the
 * window of a connection starts small. It grows to the `receiveDepth` of the program while the peer
 * uses it up or sends fast, and gives buffers back while messages are few. The alternative, a receive queue
 * that connections share, needs less memory still, but its limit is common: a peer whose messages the program
 * does not release would take the receives of all others.
 *
 * On the wire this is nothing new. The peer is granted credits as ever, at first fewer, later more.
 */
import type { Scheduler } from '../base/clock.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { RESERVED_RECEIVES, type Credits } from './credits.ts';
import type { ReceiveBuffers } from './receive-buffers.ts';

/**
 * Milliseconds in which a peer uses the credits of one grant. If it needs less it could be waiting for us,
 * over a path with such a round trip.
 */
const QUICK_MS = 250;
/** A peer that needs longer for half of the first piece has no use for further ones. */
const SLOW_MS = 1_000;

/** @internal */
export class InboundWindow {
  readonly #credits: Credits;
  readonly #buffers: ReceiveBuffers;
  readonly #qp: QueuePair;
  readonly #scheduler: Scheduler;
  #grants = 0;
  #grantedAt: number;
  /** Messages since then. */
  #messages = 0;
  readonly #firstHalf: number;
  #slow = false;

  constructor(credits: Credits, buffers: ReceiveBuffers, qp: QueuePair, scheduler: Scheduler) {
    this.#credits = credits;
    this.#buffers = buffers;
    this.#qp = qp;
    this.#scheduler = scheduler;
    this.#grantedAt = scheduler.now();
    this.#firstHalf = (buffers.first - RESERVED_RECEIVES) / 2;
  }

  /** A message has come. */
  received(): void {
    const credits = this.#credits;
    credits.received();
    this.#messages++;
    if (credits.exhausted) this.#widen();
  }

  /** The program has released the message in this buffer. Returns true if a grant is due. */
  released(index: number): boolean {
    const credits = this.#credits;
    if (credits.grants !== this.#grants && credits.caughtUp) this.#pace();
    if (this.#slow && this.#buffers.isExtra(index)) {
      this.#buffers.retire(index);
      credits.narrow();
    } else {
      this.#buffers.post(this.#qp, index);
      credits.released();
    }
    return credits.due;
  }

  /** Once for each grant: how long the peer took for the credits. */
  #pace(): void {
    const now = this.#scheduler.now();
    const took = now - this.#grantedAt;
    this.#grants = this.#credits.grants;
    this.#grantedAt = now;
    this.#slow = took * this.#firstHalf > SLOW_MS * this.#messages;
    this.#messages = 0;
    if (took < QUICK_MS) this.#widen();
  }

  #widen(): void {
    if (this.#qp.state !== 'rts') return;
    this.#slow = false;
    this.#credits.widen(this.#buffers.tryGrow(this.#qp));
  }
}
