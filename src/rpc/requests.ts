/** Requests of this side, and requests of the peer. */
import { AbortController, performance } from '../base/host.ts';
import { abortError, whenAborted } from '../base/abort.ts';
import { IwarpError } from '../base/errors.ts';
import { handled } from '../base/promised.ts';
import type { BatchWriter } from './batch-writer.ts';
import type { Carrier } from './carrier.ts';
import { tooLarge, type LargeSender } from './large.ts';
import { Slots } from './slots.ts';
import { FRAME, KIND, NOT_BEGUN, TOO_LARGE, type Frame } from './wire.ts';

const TEXT = new TextEncoder();
const WORDS = new TextDecoder();
const SENT = Promise.resolve();
/** Bytes of the text of an error that travel. */
const MAX_WORDS = 1024;

/** A request of ours, until its answer has come. */
class Outgoing {
  readonly type: number;
  readonly body: Uint8Array;
  readonly deadline: number;
  readonly resolve: (reply: Uint8Array) => void;
  readonly reject: (error: Error) => void;
  stop: (() => void) | null = null;
  id = -1;
  /** The caller has its rejection; the answer is still to come. */
  abandoned = false;
  next: Outgoing | null = null;

  constructor(
    type: number,
    body: Uint8Array,
    deadline: number,
    resolve: (reply: Uint8Array) => void,
    reject: (error: Error) => void,
  ) {
    this.type = type;
    this.body = body;
    this.deadline = deadline;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** The requests of this side: as many under way as the peer takes, the others in line. */
export class Requester {
  readonly #carrier: Carrier;
  readonly #writer: BatchWriter;
  readonly #large: LargeSender;
  readonly #open: Slots<Outgoing>;
  readonly #line = new Set<Outgoing>();

  constructor(carrier: Carrier, writer: BatchWriter, large: LargeSender, most: number) {
    this.#carrier = carrier;
    this.#writer = writer;
    this.#large = large;
    this.#open = new Slots(most);
  }

  get size(): number {
    return this.#open.size + this.#line.size;
  }

  request(
    type: typeof FRAME.REQUEST | typeof FRAME.LOOKUP,
    body: Uint8Array,
    signal: AbortSignal | undefined,
    deadline: number,
  ): Promise<Uint8Array> {
    if (signal?.aborted === true) return Promise.reject(abortError(signal));
    let one!: Outgoing;
    const reply = new Promise<Uint8Array>((resolve, reject) => {
      one = new Outgoing(type, body, deadline, resolve, reject);
    });
    if (signal !== undefined) one.stop = whenAborted(signal, () => this.#abort(one, signal));
    if (this.#open.full) this.#line.add(one);
    else this.#start(one);
    return reply;
  }

  #start(one: Outgoing): void {
    one.id = this.#open.add(one);
    const writer = this.#writer;
    const { length } = one.body;
    if (length <= writer.largest) writer.write(one.type, one.id, one.body, one.deadline);
    else if (length <= writer.largestInParts)
      writer.writeParts(KIND.REQUEST, one.type, one.id, one.body, one.deadline);
    // A refusal is the answer; any other failure ends the connection.
    else
      void this.#large.send(KIND.REQUEST, one.body, undefined, one.id, one.deadline).catch((error: Error) => {
        if (this.#open.get(one.id) === one && (error as IwarpError).code === 'ERR_TOO_LARGE')
          this.#settle(one.id, error, null);
      });
  }

  #abort(one: Outgoing, signal: AbortSignal): void {
    one.reject(abortError(signal));
    if (this.#line.delete(one)) return;
    one.abandoned = true;
    this.#writer.write(FRAME.CANCEL, one.id);
  }

  /** A request with this slot is under way. */
  expects(id: number): boolean {
    return this.#open.get(id) !== undefined;
  }

  /** REPLY or ERROR. False if nothing was asked. */
  answered({ type, id, flags, number, payload }: Frame): boolean {
    if (type === FRAME.REPLY) return this.#settle(id, null, payload);
    if (flags === TOO_LARGE) {
      const length = this.#open.get(id)?.body.length ?? 0;
      return this.#settle(id, tooLarge(length, number), null);
    }
    if (flags === NOT_BEGUN) {
      const words = 'the peer is closing the connection, and has not begun the request';
      return this.#settle(id, new IwarpError('ERR_CONNECTION_CLOSED', words), null);
    }
    return this.#settle(id, new IwarpError('ERR_REMOTE', WORDS.decode(payload.slice(0, MAX_WORDS))), null);
  }

  /** A reply that came as a large message. */
  replied(id: number, bytes: Uint8Array): boolean {
    return this.#settle(id, null, bytes);
  }

  /** A reply that is larger than this side takes. */
  refused(id: number, length: number, limit: number): boolean {
    const words = `the reply has ${length} bytes, above maxLargeMessage, which is ${limit}`;
    return this.#settle(id, new IwarpError('ERR_TOO_LARGE', words), null);
  }

  #settle(id: number, error: Error | null, reply: Uint8Array | null): boolean {
    const one = this.#open.remove(id);
    if (one === undefined) return false;
    one.stop?.();
    if (one.abandoned) {
      // Its caller has the rejection already.
    } else if (error === null) one.resolve(reply!);
    else one.reject(error);
    if (this.#line.size > 0) {
      const [next] = this.#line;
      this.#line.delete(next!);
      this.#start(next!);
    }
    return true;
  }

  end(): void {
    for (const one of [...this.#open.clear(), ...this.#line]) {
      one.stop?.();
      one.reject(this.#carrier.ended('request'));
    }
    this.#line.clear();
  }
}

/** How a request of the peer reaches its answer. */
interface Answering {
  answer(request: Request, type: number, body: Uint8Array): Promise<void>;
}

/**
 * A request of the peer. Answer it once, with {@link Request.reply} or {@link Request.fail}.
 *
 * @example
 * for await (const request of connection.requests()) await request.reply(work(request.data));
 */
export class Request {
  /** The bytes of the request, as a Buffer in Node; they are the program's to keep. */
  readonly data: Uint8Array;
  /** Milliseconds that the requester waits, counted from the request; undefined without a limit. */
  readonly timeout: number | undefined;
  readonly #by: Answering;
  readonly #arrivedAt: number;
  readonly #id: number;
  #controller: AbortController | null = null;
  #reason: IwarpError | null = null;
  #answered = false;

  /** @internal */
  constructor(by: Answering, id: number, data: Uint8Array, timeout: number) {
    this.#by = by;
    this.#id = id;
    this.data = data;
    this.timeout = timeout === 0 ? undefined : timeout;
    this.#arrivedAt = timeout === 0 ? 0 : performance.now();
  }

  /** @internal */
  get id(): number {
    return this.#id;
  }

  /** Milliseconds that are left until the requester gives up, 0 or more; undefined without a limit. */
  get left(): number | undefined {
    return this.timeout === undefined
      ? undefined
      : Math.max(0, this.timeout - (performance.now() - this.#arrivedAt));
  }

  /** The request as UTF-8 text. */
  text(): string {
    return WORDS.decode(this.data);
  }

  /** Aborted when the requester has given up, or the connection has ended. */
  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#reason !== null) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /**
   * Answer with bytes, or with text as UTF-8. Resolves when the reply has been taken; one above five times
   * the size of a message is read from `data` by the requester until then. After the requester has given up,
   * or the end of the connection, nothing happens.
   *
   * @throws ERR_INVALID_STATE if the request has been answered, ERR_TOO_LARGE if the requester does not read
   *   a reply of that size; its call then rejects with that too
   */
  reply(data: Uint8Array | string = ''): Promise<void> {
    return this.#answer(FRAME.REPLY, typeof data === 'string' ? TEXT.encode(data) : data);
  }

  /**
   * Answer with an error: the requester's call rejects with ERR_REMOTE and this text, of which 1024 bytes
   * travel.
   *
   * @throws ERR_INVALID_STATE if the request has been answered
   */
  fail(error: Error | string): Promise<void> {
    const text = typeof error === 'string' ? error : error.message;
    return this.#answer(FRAME.ERROR, TEXT.encode(text).subarray(0, MAX_WORDS));
  }

  #answer(type: number, body: Uint8Array): Promise<void> {
    if (this.#answered)
      return Promise.reject(new IwarpError('ERR_INVALID_STATE', 'the request has been answered already'));
    this.#answered = true;
    return this.#by.answer(this, type, body);
  }

  /** @internal */
  abandon(reason: IwarpError): void {
    this.#reason ??= reason;
    this.#controller?.abort(this.#reason);
  }
}

/** A request's place, from its arrival to its answer. */
interface Place {
  request: Request | null;
  cancelled: boolean;
  release: (() => void) | null;
}

/** The requests of the peer. */
export class Responder implements Answering {
  readonly #carrier: Carrier;
  readonly #writer: BatchWriter;
  readonly #large: LargeSender;
  readonly #open: Slots<Place>;
  readonly #deliver: (request: Request) => void;
  /** No further requests are begun. */
  refusing = false;

  constructor(
    carrier: Carrier,
    writer: BatchWriter,
    large: LargeSender,
    most: number,
    deliver: (request: Request) => void,
  ) {
    this.#carrier = carrier;
    this.#writer = writer;
    this.#large = large;
    this.#open = new Slots(most);
    this.#deliver = deliver;
  }

  get size(): number {
    return this.#open.size;
  }

  /** A place for a request that arrives later. False beyond the limit, or for a slot that is in use. */
  reserve(id: number): boolean {
    return this.#open.put(id, { request: null, cancelled: false, release: null });
  }

  /** REQUEST. */
  arrived({ id, number, payload }: Frame): boolean {
    if (!this.reserve(id)) return false;
    this.#begin(id, payload, number);
    return true;
  }

  #begin(id: number, data: Uint8Array, timeout: number): void {
    if (this.refusing) {
      this.#close(id, FRAME.ERROR, undefined, NOT_BEGUN);
      return;
    }
    const request = new Request(this, id, data, timeout);
    this.#open.get(id)!.request = request;
    this.#deliver(request);
  }

  /** The large message of a reserved place has been read. */
  filled(id: number, data: Uint8Array, timeout: number, release: () => void): void {
    const place = this.#open.get(id)!;
    place.release = release;
    if (place.cancelled) this.#close(id, FRAME.ERROR);
    else this.#begin(id, data, timeout);
  }

  /** The large message of a reserved place does not come. */
  vacate(id: number): void {
    this.#close(id, FRAME.ERROR);
  }

  /** CANCEL: it may have crossed the answer. */
  cancelled({ id }: Frame): void {
    const place = this.#open.get(id);
    if (place === undefined) return;
    place.cancelled = true;
    place.request?.abandon(new IwarpError('ERR_ABORTED', 'the requester has given up'));
  }

  /** A request that has come in parts is above our limit. */
  tooLarge(id: number, limit: number): void {
    if (this.#open.take(id) !== undefined) this.#writer.answer(FRAME.ERROR, id, undefined, limit, TOO_LARGE);
  }

  /** A lookup is answered later. */
  respond(id: number, type: number, body: Uint8Array): void {
    if (this.#open.take(id) !== undefined) this.#writer.answer(type, id, body);
  }

  answer(request: Request, type: number, body: Uint8Array): Promise<void> {
    const { id } = request;
    const place = this.#open.get(id);
    if (place === undefined || place.request !== request) return SENT; // the connection has ended
    const { largest, largestInParts } = this.#writer;
    if (body.length <= largest || place.cancelled) this.#close(id, type, place.cancelled ? undefined : body);
    else if (body.length > largestInParts) return this.#announce(id, body);
    else {
      this.#open.take(id);
      place.release?.();
      this.#writer.writeParts(KIND.REPLY, type, id, body);
    }
    return SENT;
  }

  #announce(id: number, body: Uint8Array): Promise<void> {
    const place = this.#open.get(id)!;
    const sent = this.#large.send(KIND.REPLY, body, undefined, id, 0, () => {
      this.#open.take(id);
      place.release?.();
    });
    return sent.catch((error: Error) => {
      if ((error as IwarpError).code === 'ERR_TOO_LARGE') throw error;
    });
  }

  #close(id: number, type: number, body?: Uint8Array, flags?: number): void {
    const place = this.#open.take(id);
    if (place === undefined) return;
    place.release?.();
    this.#writer.answer(type, id, body, 0, flags);
  }

  end(): void {
    for (const { request } of this.#open.clear()) request?.abandon(this.#carrier.ended('request'));
  }
}

/** The value that answers a request. */
type Answer = Uint8Array | string | void;

/**
 * Answer a request with the value of `serve`, or with its error. A value that is there at once goes out at
 * once: promises and functions made for each request would cost more than the rest of a short one.
 */
export function serveOne(request: Request, serve: (request: Request) => Promise<Answer> | Answer): void {
  let answer: Promise<Answer> | Answer;
  try {
    answer = serve(request);
  } catch (error) {
    failWith(request, error);
    return;
  }
  if (typeof answer === 'object' && typeof (answer as Promise<Answer>).then === 'function')
    void serveLater(request, answer as Promise<Answer>);
  else replyWith(request, answer as Answer);
}

async function serveLater(request: Request, answer: Promise<Answer>): Promise<void> {
  try {
    await request.reply((await answer) ?? '');
  } catch (error) {
    failWith(request, error);
  }
}

function replyWith(request: Request, answer: Answer): void {
  let sent: Promise<void>;
  try {
    sent = request.reply(answer ?? '');
  } catch (error) {
    failWith(request, error);
    return;
  }
  if (sent !== SENT) void sent.catch((error: unknown) => failWith(request, error));
}

function failWith(request: Request, error: unknown): void {
  // An error of another realm is no instance of the class of this one.
  const { message } = (error ?? {}) as Partial<Error>;
  void handled(request.fail(typeof message === 'string' ? message : String(error)));
}
