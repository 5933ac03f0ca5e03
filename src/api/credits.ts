/**
 * Credit arithmetic between two of our own endpoints. Each side counts the messages it has sent and the messages it has been granted room
 * for; the receiver grants as buffers come back. Grants are absolute counts modulo 2^32, so nothing is lost if several are told by one.
 *
 * Why it cannot stall: a sender without credit has sent all that was granted. Once its peer has released those messages, at least half of
 * the credits are unannounced, and the grant goes out as soon as its one reserved queue entry is free. Why it cannot overrun: a grant uses
 * a receive at the sender, but at most two can be unread there before it must have read one to be able to send on.
 */

/**
 * Immediate Data whose upper half is this grants credits: the lower half is the number of messages that the receiver has made room for
 * since the connection began, modulo 2^32. Immediate Data uses no octet of a receive buffer, so a grant costs the peer nothing.
 */
export const GRANT_MARK = 0x69_57_63_72;
/** Receives kept beyond the granted ones, for grants: two can be unread, two more are to spare. */
export const RESERVED_RECEIVES = 4;

const MARK = BigInt(GRANT_MARK);
const TWO_32 = 0x1_0000_0000;

/** True for Immediate Data that is a grant. */
export function isGrant(immediate: bigint): boolean {
  return immediate >> 32n === MARK;
}

export class Credits {
  readonly #own: number;
  #limit: number;
  #sent: number;
  #room: number;
  #announced: number;

  /** `peer`: messages that the peer is ready for at the start, `own`: that we are. `origin` is where counting begins: tests put it near the wrap. */
  constructor(peer: number, own: number, origin = 0) {
    this.#own = own;
    this.#limit = origin + peer;
    this.#sent = origin;
    this.#room = origin + own;
    this.#announced = this.#room;
  }

  /** Messages that may be sent now. */
  get available(): number {
    return this.#limit - this.#sent;
  }

  /** One message is being sent. */
  spend(): void {
    this.#sent++;
  }

  /** The peer's grant has come. Returns false if it grants nothing new. */
  granted(immediate: bigint): boolean {
    const limit = unwrap(Number(immediate & 0xffff_ffffn), this.#limit);
    if (limit <= this.#limit) return false;
    this.#limit = limit;
    return true;
  }

  /** A buffer has been posted again. */
  released(): void {
    this.#room++;
  }

  /** Half of the credits have come back and the peer does not know. */
  get due(): boolean {
    return this.#room - this.#announced >= (this.#own + 1) >> 1;
  }

  /** The grant to send now. */
  announce(): bigint {
    this.#announced = this.#room;
    return (MARK << 32n) | BigInt(this.#room % TWO_32);
  }
}

/** The count whose lower 32 bits are `value`, within 2^31 of `near`. */
function unwrap(value: number, near: number): number {
  const candidate = near - (near % TWO_32) + value;
  if (candidate < near - TWO_32 / 2) return candidate + TWO_32;
  return candidate > near + TWO_32 / 2 ? candidate - TWO_32 : candidate;
}
