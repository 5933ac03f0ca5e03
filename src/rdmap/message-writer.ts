/**
 * What every RDMA message needs on its way into a transmit buffer: the RDMAP control octet (RFC 5040 4.1) and
 * counting, over the segments of DDP. The sender decides which message is sent, and when.
 */
import { DOUBLE_ZERO } from '../base/double-zero.ts';
import { Segmenter } from '../ddp/segmenter.ts';
import { TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS } from '../ddp/wire.ts';
import type { DirectPlacement, LowerLayer, TransmitBuffer, UlpduWriter } from '../llp/lower-layer.ts';
import { countSent } from './counters.ts';
import { OPCODE, RDMAP_VERSION_SHIFT } from './wire.ts';

/**
 * A payload of this size or more, in one piece, is not copied where the lower layer allows it. Below, the
 * copy costs less than the view and its place in the list (4 KiB Writes without CRC in the `small` experiment
 * of bench/micro/datapath.ts).
 */
export const ZERO_COPY_FROM = 6144;

/** The settings of a stream's messages. */
export interface MessageConfig {
  readonly llp: Pick<LowerLayer, 'writer' | 'mulpdu' | 'payloadLimit' | 'direct'>;
  readonly version: 0 | 1;
  /** MSN of the first message of each queue. */
  readonly firstMsn: number;
  /** Counts of messages, see `counters.ts`. */
  readonly messages: number[];
  /** Reads have aliases for their sinks, and complete in whatever order. Default: in order. */
  readonly placedReads?: boolean;
}

export class MessageWriter {
  readonly writer: UlpduWriter;
  /** Bytes of payload in a segment, at most. */
  taggedPayload = 0;
  untaggedPayload = 0;
  /** Reads have aliases for their sinks, and complete in whatever order. */
  readonly placedReads: boolean;
  readonly direct: DirectPlacement | null;
  /** Bytes of the present Write that have been placed directly, all up to this one. */
  placed = 0;
  readonly segments: Segmenter;
  /** The RDMAP control octet without the opcode. */
  readonly #control: number;
  /** Bytes of messages for the peer's memory or its ULP. */
  payloadOctets: number = DOUBLE_ZERO;
  /** Messages of the stream: counted with their last segment. */
  readonly #messages: number[];

  constructor({ llp, version, firstMsn, messages, placedReads = false }: MessageConfig) {
    const { writer } = llp;
    this.direct = llp.direct ?? null;
    this.measure(llp);
    this.placedReads = placedReads;
    this.writer = writer;
    this.segments = new Segmenter(writer, version, firstMsn);
    this.#control = version << RDMAP_VERSION_SHIFT;
    this.#messages = messages;
  }

  /** Take the sizes of segments from the lower layer, at first and after they have changed. */
  measure({ mulpdu, payloadLimit = mulpdu }: Pick<LowerLayer, 'mulpdu' | 'payloadLimit'>): void {
    this.taggedPayload = Math.min(payloadLimit, mulpdu - TAGGED_HEADER_OCTETS);
    this.untaggedPayload = Math.min(payloadLimit, mulpdu - UNTAGGED_HEADER_OCTETS);
  }

  /** The last segment of a message has been written. */
  count(opcode: number): void {
    countSent(this.#messages, opcode);
  }

  /** The RDMAP control octet of a message. */
  control(opcode: number): number {
    return this.#control | opcode;
  }

  /** Begin an untagged message of one segment, the next of its queue, which it counts. */
  beginMessage(buffer: TransmitBuffer, opcode: number, qn: number, payload: number): number {
    return this.beginMessageWith(buffer, opcode, qn, this.segments.nextMsn(qn), payload);
  }

  /** Begin an untagged message of one segment with an MSN that it has got already. */
  beginMessageWith(buffer: TransmitBuffer, opcode: number, qn: number, msn: number, payload: number): number {
    this.count(opcode);
    return this.segments.beginUntagged(buffer, this.control(opcode), true, 0, qn, msn, 0, payload);
  }

  /** A zero-length RDMA Write: the peer must not check its STag or offset (DDP-026). */
  putEmptyWrite(buffer: TransmitBuffer): void {
    this.count(OPCODE.RDMA_WRITE);
    this.segments.beginTagged(buffer, this.control(OPCODE.RDMA_WRITE), true, 0, 0, 0, 0);
    this.writer.finish(buffer, TAGGED_HEADER_OCTETS);
  }
}
