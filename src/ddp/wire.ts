/**
 * DDP on the wire: RFC 5041 4. The one place for DDP's offsets and masks; offsets count from the first octet of the ULPDU.
 */

export const DDP_CONTROL_OFFSET = 0;
/** RsvdULP octet 0: the RDMAP control octet. */
export const RSVDULP_OFFSET = 1;

/** Masks of the DDP control octet. */
export const DDP_CONTROL = { TAGGED: 0x80, LAST: 0x40, RESERVED: 0x3c, VERSION: 0x03 } as const;

export const TAGGED_HEADER_OCTETS = 14;
export const TAGGED_STAG_OFFSET = 2;
export const TAGGED_TO_OFFSET = 6;

export const UNTAGGED_HEADER_OCTETS = 18;
/** RsvdULP octets 1..4: the Invalidate STag field. */
export const UNTAGGED_ULP_WORD_OFFSET = 2;
export const UNTAGGED_QN_OFFSET = 6;
export const UNTAGGED_MSN_OFFSET = 10;
export const UNTAGGED_MO_OFFSET = 14;

/** Untagged queue numbers (RFC 5040 3.1, RFC 7306 10.2). */
export const QN = { SEND: 0, READ_REQUEST: 1, TERMINATE: 2, ATOMIC_RESPONSE: 3 } as const;
export const QUEUE_COUNT = 4;
/** MSN of the first message on each queue and direction (DDP-014). */
export const FIRST_MSN = 1;
/** Messages have fewer than 2^32 octets (DDP-022). */
export const MAX_MESSAGE = 0xffff_ffff;

/** A big-endian u32. */
export function getU32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}

/** Write a tagged header at `at`. */
export function putTaggedHeader(
  view: DataView, at: number, control: number, ulpControl: number, stag: number, toHi: number, toLo: number,
): void {
  view.setUint16(at, ((DDP_CONTROL.TAGGED | control) << 8) | ulpControl);
  view.setUint32(at + TAGGED_STAG_OFFSET, stag);
  view.setUint32(at + TAGGED_TO_OFFSET, toHi);
  view.setUint32(at + TAGGED_TO_OFFSET + 4, toLo);
}

/** Write an untagged header at `at`. */
export function putUntaggedHeader(
  view: DataView, at: number, control: number, ulpControl: number, ulpWord: number, qn: number, msn: number, mo: number,
): void {
  view.setUint16(at, (control << 8) | ulpControl);
  view.setUint32(at + UNTAGGED_ULP_WORD_OFFSET, ulpWord);
  view.setUint32(at + UNTAGGED_QN_OFFSET, qn);
  view.setUint32(at + UNTAGGED_MSN_OFFSET, msn);
  view.setUint32(at + UNTAGGED_MO_OFFSET, mo);
}

/**
 * One received segment, decoded. A single object is filled again for every segment; which fields mean something depends on `tagged`.
 * The octets are borrowed.
 */
export interface Segment {
  bytes: Uint8Array;
  /** First octet of the DDP header and the octets of the whole segment. */
  start: number;
  length: number;
  tagged: boolean;
  last: boolean;
  version: number;
  ulpControl: number;
  stag: number;
  toHi: number;
  toLo: number;
  ulpWord: number;
  qn: number;
  msn: number;
  mo: number;
  payload: number;
  payloadLength: number;
}

/** An empty segment to decode into. */
export function createSegment(): Segment {
  return {
    bytes: new Uint8Array(0), start: 0, length: 0, tagged: false, last: false, version: 0, ulpControl: 0,
    stag: 0, toHi: 0, toLo: 0, ulpWord: 0, qn: 0, msn: 0, mo: 0, payload: 0, payloadLength: 0,
  };
}

/**
 * Decode the header of `bytes[start..start+length)` into `segment`; false if it is shorter than its header (MPA-090). Of a short one the
 * two control octets are decoded as far as they are there, and read as zero where they are not.
 */
export function decodeSegment(segment: Segment, bytes: Uint8Array, start: number, length: number): boolean {
  segment.bytes = bytes;
  segment.start = start;
  segment.length = length;
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
