/**
 * The frames of a connection (`src/rpc`): requests, streams, names and large messages. Their session is made
 * for its first use, by either side.
 */
import { IwarpError, type IwarpErrorCode } from '../base/errors.ts';
import { Waiters } from '../base/waiters.ts';
import { Session, type MessageSlot } from '../rpc/session.ts';
import { LEAST_BATCH, MOST_BATCHES } from '../rpc/wire.ts';
import type { Resources } from './endpoint.ts';
import { usesCredits } from './endpoint.ts';
import type { CloseInfo } from './errors.ts';
import type { Hello } from './hello.ts';
import type { Inbox } from './inbox.ts';
import type { Operations } from './operations.ts';
import { SessionCarrier } from './session-carrier.ts';

/** Bytes of a batch of frames at most. */
const MAX_BATCH = 1 << 16;

/** What requests, streams, names and large messages need, for the texts of errors. */
export const WHAT_FRAMES_NEED: string =
  'an endpoint of this package at both ends, with credits (`extensions`), and maxMessageSize of ' +
  `${LEAST_BATCH} or more`;

/** The parts of a connection that its frames need. */
interface FramesOptions {
  readonly resources: Resources;
  readonly peer: Hello | null;
  readonly operations: Operations;
  readonly inbox: Inbox;
  /** Bytes that have come from the peer so far. */
  readonly octetsIn: () => number;
  /** The connection ends with this error. */
  readonly fail: (code: IwarpErrorCode, words: string) => void;
  /** The error of an operation that ends with the connection. */
  readonly ended: (operation: string) => IwarpError;
  /** How the connection has ended; null before that. */
  readonly over: () => CloseInfo | null;
}

/** @internal */
export class Frames {
  /** Both sides take frames. */
  readonly taken: boolean;
  readonly #options: FramesOptions;
  #session: Session | null = null;
  #carrier: SessionCarrier | null = null;
  /** Calls that wait until the session has nothing under way. */
  readonly #quiet = new Waiters<void>();

  constructor(options: FramesOptions) {
    const { resources, peer } = options;
    this.#options = options;
    this.taken =
      usesCredits(resources.endpoint, peer) &&
      peer!.frames &&
      resources.endpoint.maxMessageSize >= LEAST_BATCH;
  }

  /** @throws ERR_NOT_SUPPORTED */
  get session(): Session {
    return this.#session ?? this.#begin();
  }

  /** @throws ERR_NOT_SUPPORTED */
  get asking(): Session['requester'] {
    const { requester } = this.session;
    if (this.#options.peer!.requests > 0) return requester;
    throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer takes no requests (its maxRequests is 0)');
  }

  #begin(): Session {
    if (!this.taken)
      throw new IwarpError('ERR_NOT_SUPPORTED', `requests, streams and names need ${WHAT_FRAMES_NEED}`);
    const { resources, peer, operations, inbox, octetsIn, fail, ended, over } = this.#options;
    const { maxRequests: requests, maxLargeMessage, largeMessageMemory, maxMessageSize } = resources.endpoint;
    this.#carrier = new SessionCarrier({
      resources,
      operations,
      batchOctets: Math.min(peer!.maxMessageSize, MAX_BATCH),
      violated: (words) => fail('ERR_PROTOCOL', words),
      stalled: (words) => fail('ERR_TIMEOUT', words),
      octetsIn,
      ended,
      idle: () => {
        while (this.#quiet.next());
      },
    });
    this.#session = new Session(this.#carrier, {
      requests,
      peerRequests: peer!.requests,
      maxLargeMessage,
      mostInParts: MOST_BATCHES * Math.min(maxMessageSize, MAX_BATCH),
      largeMessageMemory,
      reserveMessage: (): MessageSlot => inbox.reserve(),
    });
    const end = over();
    if (end !== null) this.#session.end(end.error);
    return this.#session;
  }

  /** Requests and large messages of both sides have come to their end; new ones of the peer are not begun. */
  async settled(): Promise<void> {
    const session = this.#session;
    if (session === null) return;
    session.refuseRequests();
    while (session.busy > 0) await this.#quiet.wait(undefined);
    session.flush();
  }

  /** The connection is gone. */
  end(error: IwarpError | undefined): void {
    this.#session?.end(error);
    this.#carrier?.close();
    while (this.#quiet.next());
  }
}
