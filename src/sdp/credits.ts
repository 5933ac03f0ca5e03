/**
 * Flow control: a credit is one private receive buffer of the peer. Bufs and MSeqAck of the peer's latest
 * message say up to which number it can take messages; all numbers are modulo 2^32.
 */

/** Credits that a message needs: with payload, for control, and for control that gives credits. */
const NEEDED = { payload: 3, control: 2, giving: 1 } as const;

/** The signed distance of two sequence numbers. */
export function ahead(a: number, b: number): number {
  return (a - b) | 0;
}

/** The fields of a header that flow control uses. */
interface Sequence {
  readonly bufs: number;
  readonly mseq: number;
  readonly mseqAck: number;
}

export class Credits {
  /** Private buffers that are posted and not known to be used. */
  posted: number;
  /** MSeqAck stays below this SrcAvailCancel of the peer until it is answered; null if there is none. */
  heldFrom: number | null = null;
  /** Our SrcAvailCancel is not answered yet: the peer may hold MSeqAck back. */
  lenient = false;
  #sent = 0;
  #received = 0;
  #acked = 0;
  /** Highest number that the peer takes, and the highest that we have announced. */
  #limit: number;
  #announced: number;
  /** The highest that has ever been announced: a held acknowledgement takes nothing back. */
  #granted: number;

  /** `bufs` as our set-up message announces them; `peerBufs` as that of the peer does. */
  constructor(bufs: number, peerBufs: number) {
    this.posted = bufs;
    this.#announced = bufs;
    this.#granted = bufs;
    this.#limit = peerBufs;
  }

  /** Messages that may be sent now. */
  get available(): number {
    return ahead(this.#limit, this.#sent);
  }

  /** Number of our latest message. */
  get sent(): number {
    return this.#sent;
  }

  /** Number of the peer's latest message. */
  get received(): number {
    return this.#received;
  }

  /** The latest of our messages that the peer has acted on. */
  get acked(): number {
    return this.#acked;
  }

  /** True if a message of this class may be sent now. */
  allows(payload: boolean): boolean {
    const { available } = this;
    if (payload) return available >= NEEDED.payload;
    return available >= NEEDED.control || (available >= NEEDED.giving && this.#gives());
  }

  /** Our next message gives the peer credits that it does not have. */
  #gives(): boolean {
    return ahead(this.#acknowledged() + this.posted, this.#announced) > 0;
  }

  #acknowledged(): number {
    return this.heldFrom === null ? this.#received : (this.heldFrom - 1) >>> 0;
  }

  /** With the last credit, a held acknowledgement goes with the first answer: else both sides could wait. */
  releaseWithLast(): void {
    if (this.heldFrom !== null && this.available < NEEDED.control) this.heldFrom = null;
  }

  /** The fields of the next message. */
  next(): Sequence {
    this.#sent = (this.#sent + 1) >>> 0;
    const mseqAck = this.#acknowledged();
    const bufs = Math.min(this.posted, 0xffff);
    this.#announced = (mseqAck + bufs) >>> 0;
    if (ahead(this.#announced, this.#granted) > 0) this.#granted = this.#announced;
    return { bufs, mseq: this.#sent, mseqAck };
  }

  /** A message has arrived; returns the fault in its numbers, or null. */
  accept({ bufs, mseq, mseqAck }: Sequence): string | null {
    if (mseq !== (this.#received + 1) >>> 0) return `message ${mseq} behind ${this.#received}`;
    if (this.posted === 0 || ahead(mseq, this.#granted) > 0) return 'a message without a credit';
    if (ahead(mseqAck, this.#acked) < 0 || ahead(mseqAck, this.#sent) > 0)
      return `an acknowledgement of ${mseqAck} where ${this.#acked} to ${this.#sent} are possible`;
    const limit = (mseqAck + bufs) >>> 0;
    if (ahead(limit, this.#sent) < 0 && !this.lenient) return 'fewer credits than are in use';
    this.#received = mseq;
    this.posted--;
    this.#acked = mseqAck;
    this.#limit = limit;
    return null;
  }

  /**
   * A message without payload is worth its credit: the peer knows of few buffers, or many are new. With
   * `answers` the peer has ended, and needs credits for its answers alone.
   */
  updateDue(buffers: number, answers: boolean): boolean {
    const known = ahead(this.#announced, this.#received);
    const fresh = ahead(this.#received + this.posted, this.#announced);
    if (this.heldFrom !== null) return false;
    if (answers) return known < NEEDED.control && fresh > 0;
    return (known < 3 && fresh > 0) || fresh >= Math.max(2, buffers >> 1);
  }
}
