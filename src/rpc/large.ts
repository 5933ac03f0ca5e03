/**
 * Large messages by rendezvous: the sender announces the memory, the receiver reads it when it has room, and
 * says so when it is done. Each side has a bounded number of announcements under way, and the receiver a
 * bounded number of bytes that it has read and the program has not let go.
 */
import { abortError, whenAborted } from '../base/abort.ts';
import { IwarpError } from '../base/errors.ts';
import { handled } from '../base/promised.ts';
import type { BatchWriter } from './batch-writer.ts';
import type { Carrier, Offer, Pulled } from './carrier.ts';
import { Slots } from './slots.ts';
import { ANNOUNCE_OCTETS, FRAME, KIND, MAX_ANNOUNCED, TICKET_OCTETS, type Frame, type Kind } from './wire.ts';

/** The peer takes messages of up to `limit` bytes. */
export function tooLarge(length: number, limit: number): IwarpError {
  return new IwarpError(
    'ERR_TOO_LARGE',
    `data has ${length} bytes, the peer takes messages of up to ${limit}: raise maxLargeMessage at the ` +
      'peer, or send the data as a stream',
  );
}

/** A large message on its way out. */
interface Outbound {
  readonly kind: Kind;
  readonly memory: Uint8Array;
  readonly request: number;
  readonly deadline: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  /** Called at once, before the frames that follow in the same batch. */
  readonly settled: (() => void) | undefined;
  offer: Offer | null;
  id: number;
  stop: (() => void) | null;
}

/** Sends large messages. */
export class LargeSender {
  readonly #carrier: Carrier;
  readonly #writer: BatchWriter;
  readonly #open = new Slots<Outbound>(MAX_ANNOUNCED);
  readonly #line = new Set<Outbound>();

  constructor(carrier: Carrier, writer: BatchWriter) {
    this.#carrier = carrier;
    this.#writer = writer;
  }

  get size(): number {
    return this.#open.size + this.#line.size;
  }

  /** Settles when the peer has read `memory`, or will not. */
  send(
    kind: Kind,
    memory: Uint8Array,
    signal?: AbortSignal,
    request: number = 0,
    deadline: number = 0,
    settled?: () => void,
  ): Promise<void> {
    if (signal?.aborted === true) return Promise.reject(abortError(signal));
    return handled(
      new Promise<void>((resolve, reject) => {
        const one: Outbound = {
          kind,
          memory,
          request,
          deadline,
          resolve,
          reject,
          settled,
          offer: null,
          id: -1,
          stop: null,
        };
        if (signal !== undefined) one.stop = whenAborted(signal, () => this.#abort(one, signal));
        if (this.#open.full) this.#line.add(one);
        else this.#announce(one);
      }),
    );
  }

  #announce(one: Outbound): void {
    one.offer = this.#carrier.offer(one.memory);
    one.id = this.#open.add(one);
    const body = new Uint8Array(ANNOUNCE_OCTETS);
    body.set(one.offer.ticket);
    new DataView(body.buffer).setUint32(TICKET_OCTETS, one.deadline);
    this.#writer.write(FRAME.ANNOUNCE, one.id, body, one.request, one.kind);
    // At once: a message that is sent after this one must not overtake it.
    this.#writer.flush();
  }

  #abort(one: Outbound, signal: AbortSignal): void {
    one.reject(abortError(signal));
    if (!this.#line.delete(one)) this.#writer.write(FRAME.WITHDRAW, one.id);
  }

  /** DONE or REFUSE. False if there is no such announcement. */
  answered({ type, id, number }: Frame): boolean {
    const one = this.#open.remove(id);
    if (one === undefined) return false;
    one.offer!.withdraw();
    one.stop?.();
    one.settled?.();
    if (type === FRAME.DONE) one.resolve();
    else one.reject(tooLarge(one.memory.length, number));
    const [next] = this.#line;
    if (next !== undefined) {
      this.#line.delete(next);
      this.#announce(next);
    }
    return true;
  }

  end(): void {
    for (const one of [...this.#open.clear(), ...this.#line]) {
      one.offer?.withdraw();
      one.stop?.();
      one.reject(this.#carrier.ended('send'));
    }
    this.#line.clear();
  }
}

/** A large message on its way in. */
export interface Inbound {
  readonly kind: Kind;
  readonly id: number;
  /** Slot of the request that it belongs to. */
  readonly request: number;
  readonly deadline: number;
  readonly ticket: Uint8Array;
  readonly length: number;
}

/** Notified by {@link LargeReceiver}. */
interface LargeUser {
  /** An announcement has been accepted: its place in the order of messages. False if it is not lawful. */
  accepted(message: Inbound): boolean;
  /** The message is larger than the limit. False if it is not lawful. */
  refused(message: Inbound): boolean;
  /** The message has been read. Call `release` when the program lets the memory go. */
  arrived(message: Inbound, bytes: Uint8Array, release: () => void): void;
  /** The sender has withdrawn the message. */
  withdrawn(message: Inbound): void;
}

/** Reads large messages as there is room. */
export class LargeReceiver {
  readonly #carrier: Carrier;
  readonly #writer: BatchWriter;
  readonly #user: LargeUser;
  readonly #limit: number;
  readonly #room: number;
  readonly #open = new Slots<Inbound>(MAX_ANNOUNCED);
  readonly #waiting = new Set<Inbound>();
  #used = 0;
  #ended = false;

  constructor(
    carrier: Carrier,
    writer: BatchWriter,
    user: LargeUser,
    limits: { readonly limit: number; readonly memory: number },
  ) {
    this.#carrier = carrier;
    this.#writer = writer;
    this.#user = user;
    this.#limit = limits.limit;
    this.#room = limits.memory;
  }

  /** ANNOUNCE. False if it is not lawful. */
  announced({ id, flags, number, payload }: Frame): boolean {
    if (payload.length !== ANNOUNCE_OCTETS || flags > 2) return false;
    const view = new DataView(payload.buffer, payload.byteOffset, payload.length);
    const length = view.getUint32(12);
    const message: Inbound = {
      kind: flags as Kind,
      id,
      request: number,
      deadline: view.getUint32(TICKET_OCTETS),
      ticket: payload.subarray(0, TICKET_OCTETS),
      length,
    };
    if (!this.#open.put(id, message)) return false;
    if (length > this.#limit) {
      this.#open.take(id);
      this.#writer.answer(FRAME.REFUSE, id, undefined, this.#limit);
      return this.#user.refused(message);
    }
    if (!this.#user.accepted(message)) return false;
    this.#waiting.add(message);
    this.#next();
    return true;
  }

  /** WITHDRAW: of use only before reading has begun. A peer may send it after our DONE has left. */
  withdrawn({ id }: Frame): void {
    const message = this.#open.get(id);
    if (message === undefined || !this.#waiting.delete(message)) return;
    this.#open.take(id);
    this.#writer.answer(FRAME.DONE, id);
    this.#user.withdrawn(message);
    this.#next();
  }

  /** In the order of the announcements, as many as there is room for; one in any case. */
  #next(): void {
    for (const message of this.#waiting) {
      if (this.#ended || (this.#used > 0 && this.#used + message.length > this.#room)) return;
      this.#waiting.delete(message);
      this.#used += message.length;
      void this.#read(message);
    }
  }

  async #read(message: Inbound): Promise<void> {
    let pulled: Pulled;
    try {
      pulled = await this.#carrier.pull(message.ticket, message.kind === KIND.MESSAGE ? 'lent' : 'given');
    } catch (error) {
      // The connection has ended, or this process has no memory.
      const words = `a large message could not be read: ${(error as Error).message}`;
      if (!this.#ended) this.#carrier.violated(words);
      return;
    }
    if (this.#ended) return;
    this.#open.take(message.id);
    this.#writer.answer(FRAME.DONE, message.id);
    let held = true;
    this.#user.arrived(message, pulled.bytes, () => {
      if (!held) return;
      held = false;
      pulled.release();
      this.#used -= message.length;
      this.#next();
    });
  }

  end(): void {
    this.#ended = true;
    this.#open.clear();
    this.#waiting.clear();
  }
}
