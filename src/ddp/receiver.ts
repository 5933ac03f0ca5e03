/**
 * DDP on the receiving side: RFC 5041 4 (headers), 5.3 and 5.4 (placement, delivery), 7.1 (checks). Order,
 * protection and placement are decided here and in `placement.ts`; the layer above is asked what kind of
 * message a segment belongs to, for the buffer of an untagged message, and to deliver (protocol-notes 1.1).
 *
 * {@link OrderedReceiver} handles segments in the order in which they were sent, so MSN and MO must be
 * exactly the next ones. `placing-receiver.ts` adds placement before that.
 */
import { FINE, TERM } from '../base/terminate-codes.ts';
import {
  placeSolicited,
  placeTagged,
  placeUntagged,
  type ProtectionScope,
  type TaggedSink,
  type UntaggedBuffer,
} from './placement.ts';
import { ACCESS } from './stag-table.ts';
import { createSegment, decodeSegment, FIRST_MSN, PLACED, QN, type Segment } from './wire.ts';

/** What DDP has to know of a kind of message. */
export interface MessageKind {
  /** Queue of an untagged message. */
  readonly qn: number;
  /** Tagged: it answers a request of ours, and the layer above knows its place. */
  readonly solicited: boolean;
  /** Untagged: null if it is placed in a buffer; else the sizes of a message that is one segment. */
  readonly fixed: FixedSize | null;
  /** The layer above takes part when the last segment has been placed. */
  readonly delivered: boolean;
}

/** A message of one segment, which is delivered where it lies. */
export interface FixedSize {
  /** Least payload, in bytes. */
  readonly least: number;
  /** Largest payload, in bytes. */
  readonly most: number;
  /** The verdict on any other size. */
  readonly verdict: number;
}

/** The layer above, as DDP sees it. Methods return a verdict (`base/verdict.ts`). */
export interface DdpUlp {
  /** The STags and rights that a tagged segment is checked against. */
  readonly scope: ProtectionScope;
  /** Version, opcode and T flag of the ULP's header; for a solicited message also that it was asked for. */
  classify(segment: Segment): number;
  /** The kind of message that `classify` has found. */
  readonly kind: MessageKind;
  /** Where the payload of a solicited segment goes, as `classify` has found. */
  readonly sink: TaggedSink;
  /** First segment of an untagged message: take a buffer for it. */
  openMessage(segment: Segment): number;
  /** The open message's buffer; null if it has none, and so no room. */
  readonly buffer: UntaggedBuffer | null;
  /** The open message's buffer can no longer be used; returns the verdict. */
  bufferUnusable(): number;
  /** The message is whole and placed; `length` is its length (DDP-035). */
  deliver(segment: Segment, length: number): number;
}

/** A receiver of DDP segments. */
interface SegmentReceiver {
  /**
   * The segment handled last, for the Terminate that reports it: only until `handleUlpdu` of any stream is
   * called again.
   */
  readonly segment: Readonly<Segment>;
  handleUlpdu(bytes: Uint8Array, start: number, length: number): number;
}

/**
 * The segment that is being handled. Segments of a thread are handled one at a time, each to its end, so all
 * connections share it: an idle one would hold it for nothing.
 */
const current = createSegment();

/** Where the bytes received begin in a receiver's list, after an MSN for each queue. */
const RECEIVED = 4;

export class OrderedReceiver implements SegmentReceiver {
  readonly #ulp: DdpUlp;
  readonly #version: number;
  /**
   * For each queue the MSN of the message in progress or the next one; behind RECEIVED the bytes of the open
   * message received so far, -1 with no message open. One list for both, for idle connections keep it; one
   * that has had no untagged message has none.
   */
  #queues: number[] | null = null;
  readonly #firstMsn: number;

  constructor(ulp: DdpUlp, version: number, firstMsn: number) {
    this.#ulp = ulp;
    this.#version = version;
    this.#firstMsn = firstMsn;
  }

  #begin(): number[] {
    const first = this.#firstMsn;
    return (this.#queues = [first, first, FIRST_MSN, first, -1, -1, -1, -1]);
  }

  get segment(): Readonly<Segment> {
    return current;
  }

  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    // MPA-090, VERBS-171
    if (!decodeSegment(current, bytes, start, length)) return TERM.DDP_LOCAL_CATASTROPHIC;
    return this.#handle(current);
  }

  /** A segment in its turn of which the header is left, and `payload` bytes are in their place. */
  protected handleHeader(header: Uint8Array, payload: number, placed: number): number {
    const segment = current;
    decodeSegment(segment, header, 0, header.length);
    segment.length += payload;
    segment.payloadLength += payload;
    segment.placed = placed;
    return this.#handle(segment);
  }

  #handle(segment: Segment): number {
    if (segment.version !== this.#version) {
      return segment.tagged ? TERM.DDP_TAGGED_VERSION : TERM.DDP_UNTAGGED_VERSION; // DDP-007, DDP-008
    }
    const ulp = this.#ulp;
    const verdict = ulp.classify(segment);
    if (verdict !== FINE) return verdict;
    const { kind } = ulp;
    if (!segment.tagged) return this.#handleUntagged(segment, kind);
    if (segment.placed === PLACED.DELIVERED) return FINE;
    if (kind.solicited) {
      placeSolicited(segment, ulp.sink);
    } else {
      const placed = placeTagged(segment, ulp.scope);
      if (placed !== FINE) return placed;
    }
    return segment.last && kind.delivered ? ulp.deliver(segment, 0) : FINE;
  }

  /**
   * RFC 5041 5.4 delivers a message only after all before it (DDP-034). Among untagged messages the MSN sees
   * to that. A Send inside an RDMA Write whose L segment has not come is delivered at once all the same:
   * segments of the two kinds may alternate (DDP-037), Linux siw takes such streams, and a Write has no
   * delivery that the Send could get ahead of. Its bytes up to here are in their place, and a peer that
   * announces a Write by a message sends that message after the Write's last segment.
   */
  #handleUntagged(segment: Segment, kind: MessageKind): number {
    const ulp = this.#ulp;
    const qn = segment.qn;
    if (qn !== kind.qn) return TERM.DDP_INVALID_QN; // DDP-039, RDMAP-009
    const queues = this.#queues ?? this.#begin();
    if (segment.msn !== queues[qn]) return TERM.DDP_MSN_RANGE; // DDP-043
    if (queues[RECEIVED + qn]! < 0 && segment.placed !== PLACED.DELIVERED) {
      const verdict = ulp.openMessage(segment); // DDP-040
      if (verdict !== FINE) return verdict;
      queues[RECEIVED + qn] = 0;
    }
    // A gap or overlap cannot come from an in-order sender (DDP-027 lets a receiver say so).
    if (segment.placed === PLACED.DELIVERED) queues[RECEIVED + qn] = 0;
    if (segment.mo !== queues[RECEIVED + qn]) return TERM.DDP_INVALID_MO; // DDP-041
    const verdict = kind.fixed === null ? this.#place(segment) : fixedVerdict(segment, kind.fixed);
    if (verdict !== FINE) return verdict;
    const length = segment.mo + segment.payloadLength;
    if (!segment.last) {
      queues[RECEIVED + qn] = length;
      return FINE;
    }
    queues[RECEIVED + qn] = -1;
    queues[qn] = (queues[qn]! + 1) >>> 0; // from 0xFFFFFFFF to 0 (DDP-015)
    if (segment.placed === PLACED.DELIVERED) return FINE;
    return ulp.deliver(segment, length); // DDP-034
  }

  /** MSN of the message on queue 0 that is open or comes next. */
  protected get sendMsn(): number {
    return this.#queues?.[QN.SEND] ?? this.#firstMsn;
  }

  /** That message has begun. */
  protected get sendOpen(): boolean {
    return (this.#queues?.[RECEIVED] ?? -1) >= 0;
  }

  #place(segment: Segment): number {
    const ulp = this.#ulp;
    const { buffer } = ulp;
    const room = buffer === null ? 0 : buffer.total;
    if (segment.mo + segment.payloadLength > room) return TERM.DDP_TOO_LONG; // DDP-042
    if (buffer === null) return FINE;
    if (!buffer.usable(ACCESS.LOCAL_WRITE)) return ulp.bufferUnusable(); // VERBS-049, VERBS-169
    placeUntagged(segment, buffer);
    return FINE;
  }
}

/** A message of one segment has its size, and continues no other message (RDMAP-015, EXT-010). */
function fixedVerdict({ last, mo, payloadLength }: Segment, fixed: FixedSize): number {
  const fits = last && mo === 0 && payloadLength >= fixed.least && payloadLength <= fixed.most;
  return fits ? FINE : fixed.verdict;
}
