/**
 * Placement in any order (RFC 5041 5.3): a segment that comes before its turn goes to its place at once if it
 * may, and is delivered in its turn. In its turn its header goes through every check of the
 * {@link OrderedReceiver}, so verdicts and completions are those of an ordered arrival, whatever the order
 * was. A segment that may not be placed yet is refused: it comes again (protocol-notes 4.3).
 */
import { FINE } from '../base/terminate-codes.ts';
import { EARLY } from '../llp/lower-layer.ts';
import { placeSolicited, placeTagged, placeUntagged, type UntaggedBuffer } from './placement.ts';
import { OrderedReceiver, type DdpUlp, type MessageKind } from './receiver.ts';
import { ACCESS, USE } from './stag-table.ts';
import {
  createSegment,
  decodeSegment,
  PLACED,
  TAGGED_HEADER_OCTETS,
  UNTAGGED_HEADER_OCTETS,
  type Segment,
} from './wire.ts';

/** Most bytes of a message that is kept whole until its turn: requests, responses and a Terminate. */
const KEPT_WHOLE = 128;

/** What the layer above knows of a segment before its turn. None of it changes any state. */
export interface EarlyUlp extends DdpUlp {
  /** The kind of message, or null if `classify` would find a fault. */
  preview(segment: Segment): MessageKind | null;
  /** The receive for the message that comes `ahead` messages after the next one; null if none is posted. */
  receiveAhead(ahead: number): UntaggedBuffer | null;
  /** The place of a solicited segment; false if it has none. Then `sink` says where. */
  earlySink(segment: Segment): boolean;
  /** Place the segment and let it take effect now; false if it has to wait for its turn. */
  deliverEarly(segment: Segment): boolean;
}

/** The segment that comes before its turn; all connections share it. */
const early = createSegment();

export class PlacingReceiver extends OrderedReceiver {
  readonly #early: EarlyUlp;
  readonly #expected: number;

  constructor(ulp: EarlyUlp, version: number, firstMsn: number) {
    super(ulp, version, firstMsn);
    this.#early = ulp;
    this.#expected = version;
  }

  /** See {@link EARLY}. */
  placeEarly(bytes: Uint8Array, start: number, length: number): number {
    const segment = early;
    if (!decodeSegment(segment, bytes, start, length)) return EARLY.REFUSED;
    if (segment.version !== this.#expected) return EARLY.REFUSED;
    const kind = this.#early.preview(segment);
    if (kind === null) return EARLY.REFUSED;
    return segment.tagged ? this.#placeTagged(segment, kind) : this.#placeUntagged(segment, kind);
  }

  #placeTagged(segment: Segment, kind: MessageKind): number {
    const ulp = this.#early;
    // What only one message may use takes its segments in their turn.
    if (!kind.solicited && this.#isForOneUse(segment)) return EARLY.REFUSED;
    if (!kind.solicited)
      return placeTagged(segment, ulp.scope) === FINE ? TAGGED_HEADER_OCTETS : EARLY.REFUSED;
    if (ulp.deliverEarly(segment)) return TAGGED_HEADER_OCTETS | EARLY.DELIVERED;
    if (!ulp.earlySink(segment)) return EARLY.REFUSED;
    placeSolicited(segment, ulp.sink);
    return TAGGED_HEADER_OCTETS;
  }

  #isForOneUse({ stag }: Segment): boolean {
    const entry = this.#early.scope.stags.find(stag);
    return entry !== null && entry.use !== USE.MANY;
  }

  #placeUntagged(segment: Segment, kind: MessageKind): number {
    const { length, mo, payloadLength } = segment;
    if (kind.fixed !== null) {
      if (this.#early.deliverEarly(segment)) return length | EARLY.DELIVERED;
      return length <= KEPT_WHOLE ? length : EARLY.REFUSED;
    }
    if (segment.qn !== kind.qn) return EARLY.REFUSED;
    const buffer = this.#bufferFor(segment);
    if (buffer === null || mo + payloadLength > buffer.total || !buffer.usable(ACCESS.LOCAL_WRITE))
      return EARLY.REFUSED;
    placeUntagged(segment, buffer);
    return UNTAGGED_HEADER_OCTETS;
  }

  /** The receive whose turn it will be. */
  #bufferFor({ msn }: Segment): UntaggedBuffer | null {
    const ahead = (msn - this.sendMsn) | 0;
    if (ahead < 0) return null;
    if (!this.sendOpen) return this.#early.receiveAhead(ahead);
    return ahead === 0 ? this.#early.buffer : this.#early.receiveAhead(ahead - 1);
  }

  /** The turn of a segment whose payload is in its place. */
  handlePlaced(header: Uint8Array, payload: number, delivered: boolean): number {
    return this.handleHeader(header, payload, delivered ? PLACED.DELIVERED : PLACED.PAYLOAD);
  }
}
