/**
 * DDP on the receiving side: RFC 5041 4 (headers), 5.3 and 5.4 (placement, delivery), 7.1 (checks). Segments arrive in order, because
 * TCP delivers in order, so MSN and MO must be exactly the next ones.
 *
 * Order of checks: protocol-notes 1.1. What only the layer above can judge (versions and opcodes of RDMAP, which queue an opcode
 * belongs to, buffers) is asked through {@link DdpUlp}.
 */
import { FINE, TERM } from '../base/terminate-codes.ts';
import { createSegment, decodeSegment, FIRST_MSN, type Segment } from './wire.ts';

/** The layer above, as DDP sees it. Every method returns FINE or a packed Terminate code unless it says otherwise. */
export interface DdpUlp {
  /** RV, opcode and T flag. */
  checkControl(segment: Segment): number;
  /** The queue that this opcode belongs to. */
  queueOf(segment: Segment): number;
  /** First segment of a message: take a buffer. Returns FINE or the reason why there is none. */
  openMessage(segment: Segment): number;
  /** Octets that the open message's buffer holds. */
  capacity(qn: number): number;
  /** Checks of fixed-size messages, before anything is placed. */
  checkUntagged(segment: Segment): number;
  placeUntagged(segment: Segment): number;
  /** The message is whole; `length` is its length (DDP-035). */
  deliverUntagged(segment: Segment, length: number): number;
  /** One tagged segment: check, place, and deliver where the opcode has delivery. */
  handleTagged(segment: Segment): number;
}

/**
 * The segment that is being handled. Segments of a thread are handled one at a time, each to its end, so all connections share it: an idle
 * one would hold it for nothing.
 */
const current = createSegment();

/** Where the octets received begin in a receiver's list, after an MSN for each queue. */
const RECEIVED = 4;

export class DdpReceiver {
  readonly #ulp: DdpUlp;
  readonly #version: number;
  /**
   * For each queue the MSN of the message in progress or the next one; from RECEIVED on, the octets of the open message received so far, -1 with no
   * message open. One list for both, for idle connections keep it.
   */
  readonly #queues: number[] = [FIRST_MSN, FIRST_MSN, FIRST_MSN, FIRST_MSN, -1, -1, -1, -1];

  constructor(ulp: DdpUlp, version: number) {
    this.#ulp = ulp;
    this.#version = version;
  }

  /** The segment handled last, for the Terminate that reports it: only until `handleUlpdu` of any stream is called again. */
  get segment(): Readonly<Segment> {
    return current;
  }

  /** Preset the next MSN of a queue: for tests near the wrap (DDP-015). */
  presetMsn(qn: number, msn: number): void {
    this.#queues[qn] = msn;
  }

  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    const segment = current;
    if (!decodeSegment(segment, bytes, start, length)) return TERM.DDP_LOCAL_CATASTROPHIC; // MPA-090, VERBS-171
    if (segment.version !== this.#version) {
      return segment.tagged ? TERM.DDP_TAGGED_VERSION : TERM.DDP_UNTAGGED_VERSION; // DDP-007, DDP-008
    }
    const code = this.#ulp.checkControl(segment);
    if (code !== FINE) return code;
    return segment.tagged ? this.#ulp.handleTagged(segment) : this.#handleUntagged(segment);
  }

  /**
   * RFC 5041 5.4 delivers a message only after all before it (DDP-034). Among untagged messages the MSN sees to that. A Send inside an RDMA
   * Write whose L segment has not come is delivered at once all the same: segments of the two kinds may alternate (DDP-037), Linux siw takes
   * such streams, and a Write has no delivery of its own that the Send could get ahead of. Its octets up to here are in their place, and who
   * sends a message that tells of a Write sends it after the Write's last segment.
   */
  #handleUntagged(segment: Segment): number {
    const ulp = this.#ulp;
    const qn = segment.qn;
    if (qn !== ulp.queueOf(segment)) return TERM.DDP_INVALID_QN; // DDP-039, RDMAP-009
    if (segment.msn !== this.#queues[qn]) return TERM.DDP_MSN_RANGE; // DDP-043
    if (this.#queues[RECEIVED + qn]! < 0) {
      const code = ulp.openMessage(segment); // DDP-040
      if (code !== FINE) return code;
      this.#queues[RECEIVED + qn] = 0;
    }
    // A gap or overlap cannot come from an in-order sender (DDP-027 lets a receiver say so).
    if (segment.mo !== this.#queues[RECEIVED + qn]) return TERM.DDP_INVALID_MO; // DDP-041
    const fixed = ulp.checkUntagged(segment);
    if (fixed !== FINE) return fixed;
    if (segment.mo + segment.payloadLength > ulp.capacity(qn)) return TERM.DDP_TOO_LONG; // DDP-042
    const placed = ulp.placeUntagged(segment);
    if (placed !== FINE) return placed;
    const length = segment.mo + segment.payloadLength;
    if (!segment.last) {
      this.#queues[RECEIVED + qn] = length;
      return FINE;
    }
    this.#queues[RECEIVED + qn] = -1;
    this.#queues[qn] = (this.#queues[qn]! + 1) >>> 0; // from 0xFFFFFFFF to 0 (DDP-015)
    return ulp.deliverUntagged(segment, length); // DDP-034
  }
}
