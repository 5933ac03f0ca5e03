/**
 * Credit arithmetic between two endpoints of this package. Each side counts the messages it has sent and the
 * messages it has been granted room for; the receiver grants as buffers come back. Grants are absolute counts
 * modulo 2^32, so nothing is lost if one message announces several.
 *
 * A grant is due when half of the credits have come back, and, so that no sender waits for a peer that keeps
 * messages for long, when one has come back and the peer has none left. Why it cannot stall: a sender without
 * credit has sent all that was granted; as soon as one buffer is free a grant is due, and it goes out when
 * its one reserved queue entry is free. Why it cannot overrun: a grant uses a receive at the sender, but one
 * for less than a half is only made when all the others have been used, so read; and no more than one half
 * fits after it. At most two are unread.
 *
 * The window may grow whenever the peer has read every grant but the latest ({@link Credits.caughtUp}): half
 * of the larger window cannot come back before it has read that one too. The window may shrink at any time by
 * buffers that are not posted again, since that grants nothing.
 */
import { hi32, lo32, toBigInt } from '../base/u64.ts';

/**
 * Immediate Data whose upper half is this grants credits: the lower half is the number of messages that the
 * receiver has made room for since the connection began, modulo 2^32. Immediate Data uses no byte of a
 * receive buffer, so a grant costs the peer nothing.
 */
const GRANT_MARK = 0x69_57_63_72;
/** The last word before an orderly close, see {@link Connection.close}. */
const FAREWELL_MARK = 0x69_57_63_62;
/** Receives kept beyond the granted ones: two grants and the farewell can be unread; one is to spare. */
export const RESERVED_RECEIVES = 4;

const TWO_32 = 0x1_0000_0000;

/** The farewell, as Immediate Data. */
export const FAREWELL_VALUE: bigint = toBigInt(FAREWELL_MARK, 0);

/** True for Immediate Data that says farewell. */
export function isFarewell(immediate: bigint): boolean {
  return hi32(immediate) === FAREWELL_MARK;
}

/** True for Immediate Data that is a grant. */
export function isGrant(immediate: bigint): boolean {
  return hi32(immediate) === GRANT_MARK;
}

export class Credits {
  #own: number;
  #limit: number;
  #sent: number;
  #room: number;
  #received: number;
  #announced: number;
  /** The limits before the latest two grants. */
  #before = Number.NEGATIVE_INFINITY;
  #longBefore = Number.NEGATIVE_INFINITY;
  /** Grants made so far. */
  grants = 0;

  /**
   * `peer`: messages that the peer is ready for at the start, `own`: that we are. `origin` is where counting
   * begins: tests put it near the wrap.
   */
  constructor(peer: number, own: number, origin = 0) {
    this.#own = own;
    this.#limit = origin + peer;
    this.#sent = origin;
    this.#room = origin + own;
    this.#announced = this.#room;
    this.#received = origin;
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
    const limit = unwrap(lo32(immediate), this.#limit);
    if (limit <= this.#limit) return false;
    this.#limit = limit;
    return true;
  }

  /** A message of the peer has come. */
  received(): void {
    this.#received++;
  }

  /** A buffer has been posted again. */
  released(): void {
    this.#room++;
  }

  /** Counts `count` further buffers, which are posted. It may be called only when {@link caughtUp}. */
  widen(count: number): void {
    this.#own += count;
    this.#room += count;
  }

  /** A buffer has come back and is not posted again. */
  narrow(): void {
    this.#own--;
  }

  /** The peer has used a credit of the grant before the latest: it has read all but that. */
  get caughtUp(): boolean {
    return this.#received > this.#longBefore;
  }

  /** The peer has used all its credits. */
  get exhausted(): boolean {
    return this.#received >= this.#announced;
  }

  /** Credits have come back, and it is time to let the peer know. */
  get due(): boolean {
    const back = this.#room - this.#announced;
    return back >= (this.#own + 1) >> 1 || (back > 0 && this.exhausted);
  }

  /** The grant to send now. */
  announce(): bigint {
    this.#longBefore = this.#before;
    this.#before = this.#announced;
    this.#announced = this.#room;
    this.grants++;
    return toBigInt(GRANT_MARK, lo32(this.#room));
  }
}

/** The count whose lower 32 bits are `value`, within 2^31 of `near`. */
function unwrap(value: number, near: number): number {
  const candidate = near - (near % TWO_32) + value;
  if (candidate < near - TWO_32 / 2) return candidate + TWO_32;
  return candidate > near + TWO_32 / 2 ? candidate - TWO_32 : candidate;
}
