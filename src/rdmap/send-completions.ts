/**
 * When entries of a send queue complete: in posting order (RDMAP-094), once they have been answered if they
 * ask for something, and once the transmission that carries their last byte is done if they do not.
 */
import type { StreamEndpoint } from '../queues/endpoint.ts';
import { flushSends, isRequest, WORK, type LocalWork } from '../queues/work.ts';

/** The sender: its queue, and how far it is. */
export interface SendPosition {
  readonly endpoint: Pick<StreamEndpoint, 'sq' | 'owner'>;
  /** Reads complete in whatever order. */
  readonly placedReads: boolean;
  /** FPDUs produced. */
  readonly fpdus: number;
  /** The queue position after the last entry that is all in segments. */
  segmented(): number;
}

export class SendCompletions {
  readonly #sender: SendPosition;
  /**
   * Transmissions that are under way, two at most over a byte stream; and the FPDUs produced up to the end of
   * the last of them.
   */
  #handedOut = 0;
  #handedFpdus = 0;
  /**
   * Queue positions after the last entry that is done with the last write that was confirmed, and with each
   * of those two.
   */
  #confirmed = 0;
  #firstEnd = 0;
  #secondEnd = 0;
  /** Queue positions after further writes, where more than two are under way; null while there are none. */
  #laterEnds: number[] | null = null;
  /** Completes invalidations that have waited for a pin; made for the first that has to. */
  #unpinned: (() => void) | null = null;

  constructor(sender: SendPosition) {
    this.#sender = sender;
  }

  /** Transmissions that are under way. */
  get transmissions(): number {
    return this.#handedOut;
  }

  /** The FPDUs of the last `fill` go to the port. */
  handedOut(): void {
    this.#handedOut++;
    this.#handedFpdus = this.#sender.fpdus;
    this.#endWith(this.#sender.segmented());
  }

  /** The oldest transmission is done. */
  transmissionDone(): void {
    this.#handedOut--;
    this.#confirmed = this.#firstEnd;
    this.#firstEnd = this.#secondEnd;
    if (this.#handedOut > 1) this.#secondEnd = this.#laterEnds!.shift()!;
    this.sweep();
  }

  /** The last write handed out carries the entries before this position. */
  #endWith(end: number): void {
    if (this.#handedOut === 1) this.#firstEnd = end;
    else if (this.#handedOut === 2) this.#secondEnd = end;
    else (this.#laterEnds ??= [])[this.#handedOut - 3] = end;
  }

  /** Every FPDU produced has been handed out. */
  get allHandedOut(): boolean {
    return this.#sender.fpdus === this.#handedFpdus;
  }

  /**
   * Local work stands after a write that has been handed out and in front of all that will be: it waits for
   * nothing else.
   */
  doneBetweenWrites(): void {
    if (this.#handedOut === 0) this.sweep();
    else this.#endWith(this.#sender.endpoint.sq.next);
  }

  /**
   * Complete entries that have been answered, or that the port has taken if they ask for nothing. An answer
   * says that its request has arrived, whatever of the same transmission has not.
   */
  sweep(): void {
    const { sq, owner } = this.#sender.endpoint;
    const segmented = this.#sender.segmented();
    // With nothing on the way to the port only local work can stand after the last write: that is done.
    const nothingOut = this.#handedOut === 0 && this.allHandedOut;
    const end = nothingOut ? segmented : this.#confirmed;
    while (sq.tail < segmented) {
      const wqe = sq.slot(sq.tail);
      if (wqe.status !== 'success') return; // the faulty one ends the stream; `flush` reports it
      if (isRequest(wqe)) {
        if (!wqe.responded) {
          if (this.#sender.placedReads) this.#sweepPlaced(segmented);
          return;
        }
      } else if (sq.tail >= end) return;
      if (wqe.local !== null && this.#isLent(wqe.local)) return;
      owner.sendCompleted(wqe);
    }
  }

  /**
   * Reads that are done overtake Reads and Atomics that are not; other work keeps its place, and so do the
   * positions of `#confirmed` and those after it, which tell nothing of requests.
   */
  #sweepPlaced(segmented: number): void {
    const { sq, owner } = this.#sender.endpoint;
    for (let at = sq.tail + 1; at < segmented; at++) {
      const wqe = sq.slot(at);
      if (!isRequest(wqe) || wqe.status !== 'success') return;
      if (wqe.kind !== WORK.READ || !wqe.responded || wqe.local !== null) continue;
      owner.sendAdvanced?.(at - sq.tail);
      sq.advance(at);
      owner.sendCompleted(wqe);
    }
  }

  /**
   * True if an invalidation has been done while a write reads the memory in place. It completes when that
   * write is over: later changes by the program are not for the peer (VERBS-157, SEC-007).
   */
  #isLent({ operation }: LocalWork): boolean {
    if (operation.type !== 'invalidate' || operation.entry.pins === 0) return false;
    this.#unpinned ??= () => {
      if (this.#unpinned !== null) this.sweep();
    };
    operation.entry.whenUnpinned(this.#unpinned);
    return true;
  }

  /**
   * End everything still in the queue: the faulty entry with its status, the others as flushed (VERBS-056,
   * VERBS-057).
   */
  flush(): void {
    this.#unpinned = null;
    flushSends(this.#sender.endpoint.sq, this.#sender.endpoint.owner);
  }
}
