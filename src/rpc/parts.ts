/**
 * Requests and replies that are larger than a frame and small enough to be copied: they come in parts, one
 * after the other, and are put together here.
 */
import type { Carrier } from './carrier.ts';
import type { Requester, Responder } from './requests.ts';
import { KIND, type Frame } from './wire.ts';

/** A body of which a part is still to come. */
interface Assembly {
  /** Null where it is too large for the program: its parts pass by. */
  readonly bytes: Uint8Array | null;
  readonly length: number;
  at: number;
}

/** Limits in bytes: of what may come in parts at all, and of what the program takes. */
interface PartLimits {
  readonly most: number;
  readonly taken: number;
}

const nothing = (): void => undefined;

export class Parts {
  readonly #carrier: Carrier;
  readonly #requester: Requester;
  readonly #responder: Responder;
  readonly #limits: PartLimits;
  /** By slot of the request. */
  readonly #requests = new Map<number, Assembly>();
  readonly #replies = new Map<number, Assembly>();

  constructor(carrier: Carrier, requester: Requester, responder: Responder, limits: PartLimits) {
    this.#carrier = carrier;
    this.#requester = requester;
    this.#responder = responder;
    this.#limits = limits;
  }

  /** PART. False if it is not lawful. */
  part({ id, flags, number, payload }: Frame): boolean {
    if (flags !== KIND.REQUEST && flags !== KIND.REPLY) return false;
    const open = flags === KIND.REQUEST ? this.#requests : this.#replies;
    let one = open.get(id);
    if (one === undefined) {
      if (number > this.#limits.most) return false;
      if (!(flags === KIND.REQUEST ? this.#responder.reserve(id) : this.#requester.expects(id))) return false;
      const bytes = number > this.#limits.taken ? null : this.#carrier.allocate(number);
      one = { bytes, length: number, at: 0 };
      open.set(id, one);
    }
    return one.length === number && append(one, payload);
  }

  /** REQUEST with the last part. False if it is not lawful. */
  request({ id, number, payload }: Frame): boolean {
    const one = whole(this.#requests, id, payload);
    if (one === null) return false;
    if (one.bytes === null) this.#responder.tooLarge(id, this.#limits.taken);
    else this.#responder.filled(id, one.bytes, number, nothing);
    return true;
  }

  /** REPLY with the last part. False if it is not lawful. */
  reply({ id, payload }: Frame): boolean {
    const one = whole(this.#replies, id, payload);
    if (one === null) return false;
    if (one.bytes === null) return this.#requester.refused(id, one.length, this.#limits.taken);
    return this.#requester.replied(id, one.bytes);
  }

  /** The connection is gone. */
  end(): void {
    this.#requests.clear();
    this.#replies.clear();
  }
}

function append(one: Assembly, payload: Uint8Array): boolean {
  if (one.at + payload.length > one.length) return false;
  one.bytes?.set(payload, one.at);
  one.at += payload.length;
  return true;
}

/** The body with its last part; null if its length is not the one that its parts have named. */
function whole(open: Map<number, Assembly>, id: number, payload: Uint8Array): Assembly | null {
  const one = open.get(id);
  if (one === undefined) return null;
  open.delete(id);
  return append(one, payload) && one.at === one.length ? one : null;
}
