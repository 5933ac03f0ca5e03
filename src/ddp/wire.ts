/**
 * DDP on the wire: RFC 5041 4. The one place for DDP's offsets and masks; offsets count from the first byte
 * of the ULPDU.
 */
import { ChangingOctets } from '../base/copy.ts';

/** The DDP control octet. */
export const DDP_CONTROL_OFFSET = 0;
/** RsvdULP byte 0: the RDMAP control octet. */
export const RSVDULP_OFFSET = 1;

/** Masks of the DDP control octet. */
export const DDP_CONTROL = {
  /** T: the segment is tagged. */
  TAGGED: 0x80,
  /** L: the last segment of its message. */
  LAST: 0x40,
  /** Sent as zero, ignored on receipt. */
  RESERVED: 0x3c,
  /** DV: 1, or 0 in the RDMA Consortium mode. */
  VERSION: 0x03,
} as const;

/** Bytes of a tagged header (RFC 5041 4.2). */
export const TAGGED_HEADER_OCTETS = 14;
/** STag, u32. */
export const TAGGED_STAG_OFFSET = 2;
/** Tagged Offset, u64. */
export const TAGGED_TO_OFFSET = 6;

/** Bytes of an untagged header (RFC 5041 4.3). */
export const UNTAGGED_HEADER_OCTETS = 18;
/** RsvdULP bytes 1..4: the Invalidate STag field. */
export const UNTAGGED_ULP_WORD_OFFSET = 2;
/** Queue Number, u32. */
export const UNTAGGED_QN_OFFSET = 6;
/** Message Sequence Number, u32. */
export const UNTAGGED_MSN_OFFSET = 10;
/** Message Offset, u32: where in the message the payload belongs. */
export const UNTAGGED_MO_OFFSET = 14;

/** Untagged queue numbers (RFC 5040 3.1, RFC 7306 10.2). */
export const QN = {
  /** Sends and Immediate Data. */
  SEND: 0,
  /** Read and Atomic Requests. */
  READ_REQUEST: 1,
  /** The Terminate. */
  TERMINATE: 2,
  /** Atomic Responses. */
  ATOMIC_RESPONSE: 3,
} as const;
/** Queues that RDMAP uses; higher numbers are an error. */
export const QUEUE_COUNT = 4;
/** MSN of the first message on each queue and direction (DDP-014). */
export const FIRST_MSN = 1;
/** Messages have fewer than 2^32 bytes (DDP-022). */
export const MAX_MESSAGE = 0xffff_ffff;

/** A big-endian u32. */
export function getU32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}

/**
 * Write a tagged header at `at`.
 * `control` is the DDP control octet without T ({@link DDP_CONTROL}), `ulpControl` the RDMAP one; STag and
 * both halves of the Tagged Offset are u32.
 */
export function putTaggedHeader(
  view: DataView,
  at: number,
  control: number,
  ulpControl: number,
  stag: number,
  toHi: number,
  toLo: number,
): void {
  view.setUint16(at, ((DDP_CONTROL.TAGGED | control) << 8) | ulpControl);
  view.setUint32(at + TAGGED_STAG_OFFSET, stag);
  view.setUint32(at + TAGGED_TO_OFFSET, toHi);
  view.setUint32(at + TAGGED_TO_OFFSET + 4, toLo);
}

/**
 * Write an untagged header at `at`.
 * `ulpWord` is the STag to invalidate or 0; queue number, MSN and message offset are u32.
 */
export function putUntaggedHeader(
  view: DataView,
  at: number,
  control: number,
  ulpControl: number,
  ulpWord: number,
  qn: number,
  msn: number,
  mo: number,
): void {
  view.setUint16(at, (control << 8) | ulpControl);
  view.setUint32(at + UNTAGGED_ULP_WORD_OFFSET, ulpWord);
  view.setUint32(at + UNTAGGED_QN_OFFSET, qn);
  view.setUint32(at + UNTAGGED_MSN_OFFSET, msn);
  view.setUint32(at + UNTAGGED_MO_OFFSET, mo);
}

/**
 * One received segment, decoded. A single object is filled again for every segment; which fields have a
 * meaning depends on `tagged`. The bytes are borrowed.
 */
export interface Segment {
  /** Memory that holds the segment. */
  bytes: Uint8Array;
  /** A view of the same memory. */
  readonly view: DataView;
  /** Index in `bytes` of the first byte of the DDP header. */
  start: number;
  /** Bytes of the whole segment, header and payload. */
  length: number;
  /** T: the segment is tagged. It decides which of the fields below are filled. */
  tagged: boolean;
  /** L: the last segment of its message. */
  last: boolean;
  /** DV. */
  version: number;
  /** RsvdULP byte 0: the RDMAP control octet. */
  ulpControl: number;
  /** STag of a tagged segment. */
  stag: number;
  /** Upper half of the Tagged Offset of a tagged segment. */
  toHi: number;
  /** Lower half of the Tagged Offset. */
  toLo: number;
  /** RsvdULP bytes 1..4 of an untagged segment: the STag to invalidate. */
  ulpWord: number;
  /** Queue Number of an untagged segment. */
  qn: number;
  /** Message Sequence Number of an untagged segment. */
  msn: number;
  /** Message Offset of an untagged segment. */
  mo: number;
  /** Index in `bytes` of the first byte of payload. */
  payload: number;
  /** Bytes of payload. */
  payloadLength: number;
  /** One of {@link PLACED}. */
  placed: number;
}

/** How much of a segment has been done before its turn. */
export const PLACED = {
  /** Nothing: it is handled in its turn. */
  NOT: 0,
  /** Its payload is in its place, and not at hand any longer. */
  PAYLOAD: 1,
  /** The segment has taken effect before its turn: in its turn it only counts. */
  DELIVERED: 2,
} as const;

class DecodedSegment extends ChangingOctets implements Segment {
  start = 0;
  length = 0;
  tagged = false;
  last = false;
  version = 0;
  ulpControl = 0;
  stag = 0;
  toHi = 0;
  toLo = 0;
  ulpWord = 0;
  qn = 0;
  msn = 0;
  mo = 0;
  payload = 0;
  payloadLength = 0;
  placed: number = PLACED.NOT;
}

/** An empty segment to decode into. */
export function createSegment(): Segment {
  return new DecodedSegment();
}

/**
 * Decode the header of `bytes[start..start+length)` into `segment`; false if it is shorter than its header
 * (MPA-090). Of a short one the two control octets are decoded as far as they are there, and read as zero
 * where they are not.
 *
 * @example
 * const segment = createSegment();
 * if (decodeSegment(segment, octets, 0, octets.length) && segment.tagged)
 * console.log(segment.stag.toString(16));
 */
export function decodeSegment(segment: Segment, bytes: Uint8Array, start: number, length: number): boolean {
  segment.bytes = bytes;
  segment.start = start;
  segment.length = length;
  segment.placed = PLACED.NOT;
  const control = length > DDP_CONTROL_OFFSET ? bytes[start]! : 0;
  segment.tagged = (control & DDP_CONTROL.TAGGED) !== 0;
  segment.last = (control & DDP_CONTROL.LAST) !== 0;
  segment.version = control & DDP_CONTROL.VERSION;
  segment.ulpControl = length > RSVDULP_OFFSET ? bytes[start + RSVDULP_OFFSET]! : 0;
  if (length < TAGGED_HEADER_OCTETS) return false;
  if (segment.tagged) {
    segment.stag = getU32(bytes, start + TAGGED_STAG_OFFSET);
    segment.toHi = getU32(bytes, start + TAGGED_TO_OFFSET);
    segment.toLo = getU32(bytes, start + TAGGED_TO_OFFSET + 4);
    segment.payload = start + TAGGED_HEADER_OCTETS;
    segment.payloadLength = length - TAGGED_HEADER_OCTETS;
    return true;
  }
  if (length < UNTAGGED_HEADER_OCTETS) return false;
  segment.ulpWord = getU32(bytes, start + UNTAGGED_ULP_WORD_OFFSET);
  segment.qn = getU32(bytes, start + UNTAGGED_QN_OFFSET);
  segment.msn = getU32(bytes, start + UNTAGGED_MSN_OFFSET);
  segment.mo = getU32(bytes, start + UNTAGGED_MO_OFFSET);
  segment.payload = start + UNTAGGED_HEADER_OCTETS;
  segment.payloadLength = length - UNTAGGED_HEADER_OCTETS;
  return true;
}
