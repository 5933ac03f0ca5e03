/** All that two endpoints of this package do beyond messages, over one connection. */
import { captureContext } from '../base/async-context.ts';
import type { IwarpError } from '../base/errors.ts';
import { Arrivals } from './arrivals.ts';
import { BatchWriter } from './batch-writer.ts';
import type { Carrier } from './carrier.ts';
import { LargeReceiver, LargeSender, type Inbound } from './large.ts';
import { Parts } from './parts.ts';
import { Published } from './published.ts';
import { Requester, Responder, serveOne, type Request } from './requests.ts';
import { Streams, type ByteStream } from './streams.ts';
import { decodeBatch, FRAME, KIND, PARTED, type Frame } from './wire.ts';

/** Answers a request of the peer: with its value, or with the error that it throws. */
export type RequestHandler = (
  request: Request,
) => Promise<Uint8Array | string | void> | Uint8Array | string | void;

/**
 * Bytes of answers that may wait for a peer, beside twice those that a lawful one can wait for: it may have
 * taken some of which we have not heard.
 */
const MORE_ANSWERS = 1 << 20;

/** The place of a large message among the messages. */
export interface MessageSlot {
  fill(bytes: Uint8Array, release: () => void): void;
  cancel(): void;
}

/** Settings of a session. */
interface SessionSettings {
  /** Requests that the peer takes at a time. */
  readonly peerRequests: number;
  /** Requests of the peer that are taken at a time. */
  readonly requests: number;
  readonly maxLargeMessage: number;
  /** Largest request or reply that the peer may send in parts. */
  readonly mostInParts: number;
  readonly largeMessageMemory: number;
  /** Keep a place for a message that is still to be read. */
  readonly reserveMessage: () => MessageSlot;
}

export class Session {
  // A LargeUser to its transfers; declarations leave those methods out, as they are internal.
  readonly #carrier: Carrier;
  readonly #settings: SessionSettings;
  readonly #writer: BatchWriter;
  readonly large: LargeSender;
  readonly requester: Requester;
  readonly requests: Arrivals<Request> = new Arrivals<Request>();
  readonly incoming: Arrivals<ByteStream> = new Arrivals<ByteStream>();
  readonly streams: Streams;
  readonly published: Published;
  readonly #responder: Responder;
  readonly #receiver: LargeReceiver;
  readonly #parts: Parts;
  readonly #slots = new Map<Inbound, MessageSlot>();
  readonly #mostUnsent: number;
  #handler: RequestHandler | null = null;
  #ended = false;

  constructor(carrier: Carrier, settings: SessionSettings) {
    this.#carrier = carrier;
    this.#settings = settings;
    const writer = new BatchWriter(carrier);
    writer.onTurn = this.#look;
    this.#writer = writer;
    this.large = new LargeSender(carrier, writer);
    this.requester = new Requester(carrier, writer, this.large, settings.peerRequests);
    this.#responder = new Responder(carrier, writer, this.large, settings.requests, (request) =>
      this.#deliver(request),
    );
    const { mostInParts: most, maxLargeMessage: taken } = settings;
    this.#mostUnsent = 2 * settings.requests * writer.largestInParts + MORE_ANSWERS;
    this.#parts = new Parts(carrier, this.requester, this.#responder, { most, taken });
    this.streams = new Streams(carrier, writer, this.incoming);
    this.published = new Published(this.#responder);
    this.#receiver = new LargeReceiver(carrier, writer, this, {
      limit: settings.maxLargeMessage,
      memory: settings.largeMessageMemory,
    });
  }

  /** Requests and large messages under way or in line, of either side. */
  get busy(): number {
    return this.requester.size + this.#responder.size + this.large.size;
  }

  #deliver(request: Request): void {
    if (this.#handler === null) this.requests.add(request);
    else serveOne(request, this.#handler);
  }

  /** Give each request to `handler`, those too that have come already. */
  async serve(handler: RequestHandler): Promise<void> {
    const context = captureContext('IWARP_CALL');
    this.#handler = (request) => context.runInAsyncScope(handler, undefined, request);
    for await (const request of this.requests.iterate(undefined)) serveOne(request, handler);
  }

  readonly #copy = (batch: Uint8Array): Uint8Array => this.#carrier.copy(batch);

  /** A batch has come. Its bytes are copied where the program gets to see them. */
  receive(batch: Uint8Array): void {
    let fault = '';
    const lawful = decodeBatch(batch, this.#copy, (frame) => {
      if (fault === '' && !this.#ended && !this.#take(frame))
        fault = `a frame of type ${frame.type} that has no place here`;
      else if (fault === '' && this.#writer.unsent > this.#mostUnsent)
        fault = 'more frames than it takes answers';
    });
    if (!lawful) fault = 'a batch that is no sequence of frames';
    if (fault !== '' && !this.#ended) this.#carrier.violated(`the peer sent ${fault}`);
    this.#look();
  }

  readonly #look = (): void => {
    if (this.busy === 0) this.#carrier.idle();
  };

  /** Take no further requests of the peer: it is answered that they have not been begun. */
  refuseRequests(): void {
    this.#responder.refusing = true;
  }

  #take(frame: Frame): boolean {
    switch (frame.type) {
      case FRAME.REQUEST:
        return frame.flags === PARTED ? this.#parts.request(frame) : this.#responder.arrived(frame);
      case FRAME.PART:
        return this.#parts.part(frame);
      case FRAME.REPLY:
        return frame.flags === PARTED ? this.#parts.reply(frame) : this.requester.answered(frame);
      case FRAME.ERROR:
        return this.requester.answered(frame);
      case FRAME.CANCEL:
        if (!this.published.cancelled(frame)) this.#responder.cancelled(frame);
        return true;
      case FRAME.LOOKUP:
        return this.published.lookedUp(frame);
      case FRAME.ANNOUNCE:
        return this.#receiver.announced(frame);
      case FRAME.DONE:
      case FRAME.REFUSE:
        return this.large.answered(frame);
      case FRAME.WITHDRAW:
        this.#receiver.withdrawn(frame);
        return true;
      case FRAME.OPEN:
      case FRAME.DATA:
      case FRAME.WINDOW:
      case FRAME.END:
      case FRAME.RESET:
        return this.streams.receive(frame);
      default:
        return false;
    }
  }

  /** @internal Of a `LargeUser`. */
  accepted(message: Inbound): boolean {
    if (message.kind === KIND.REQUEST) return this.#responder.reserve(message.request);
    if (message.kind === KIND.REPLY) return this.requester.expects(message.request);
    this.#slots.set(message, this.#settings.reserveMessage());
    return true;
  }

  /** @internal Of a `LargeUser`. */
  refused({ kind, request, length }: Inbound): boolean {
    return kind !== KIND.REPLY || this.requester.refused(request, length, this.#settings.maxLargeMessage);
  }

  /** @internal Of a `LargeUser`. */
  arrived(message: Inbound, bytes: Uint8Array, release: () => void): void {
    if (message.kind === KIND.REQUEST) {
      this.#responder.filled(message.request, bytes, message.deadline, release);
    } else if (message.kind === KIND.REPLY) {
      // The caller's from here: it has asked for as many as may come.
      if (!this.requester.replied(message.request, bytes))
        this.#carrier.violated('the peer sent a second reply to a request');
      release();
    } else {
      const slot = this.#slots.get(message)!;
      this.#slots.delete(message);
      slot.fill(bytes, release);
    }
  }

  /** @internal Of a `LargeUser`. */
  withdrawn(message: Inbound): void {
    if (message.kind === KIND.REQUEST) this.#responder.vacate(message.request);
    const slot = this.#slots.get(message);
    this.#slots.delete(message);
    slot?.cancel();
  }

  /** The connection is gone; `error` if it failed. */
  end(error: IwarpError | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#receiver.end();
    this.#parts.end();
    this.large.end();
    this.requester.end();
    this.#responder.end();
    this.streams.end();
    this.requests.end(error);
    this.incoming.end(error);
  }

  /** Send the frames written so far. */
  flush(): void {
    this.#writer.flush();
  }
}
