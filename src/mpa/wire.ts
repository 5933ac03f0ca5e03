/**
 * MPA on the wire: start-up frames (RFC 5044 7.1.1, RFC 6581 6 and 9), FPDU layout and sizes (RFC 5044 4.1,
 * 4.5), markers (4.2, 4.3). The one place for MPA's offsets, masks and limits. Decoding is strict about
 * bounds only; encoding is lenient, because tests and the conformance suite must be able to build illegal
 * frames.
 */

/** Bytes of a start-up frame before its private data (RFC 5044 7.1.1). */
export const STARTUP_HEADER_OCTETS = 20;
/** Largest private data, the four enhanced bytes included (RFC 5044 7.1.1). */
export const MAX_PRIVATE_DATA = 512;
/** Bytes of the enhanced connection data that precede the private data when S=1 (RFC 6581 9). */
export const ENHANCED_OCTETS = 4;
/**
 * Bytes of the IRD and ORD header that SMB Direct puts before the private data on revision 1 (MS-SMBD 6.1).
 */
export const LEGACY_DEPTHS_OCTETS = 8;
/** Bytes of the largest start-up frame. */
export const MAX_STARTUP_FRAME: number = STARTUP_HEADER_OCTETS + MAX_PRIVATE_DATA;

const KEY_TEXT = 'MPA ID Req Frame';
/** `MPA ID Req Frame`, 16 bytes, no terminator (MPA-002). */
export const REQUEST_KEY: Uint8Array = Uint8Array.from(KEY_TEXT, (c) => c.charCodeAt(0));
/** `MPA ID Rep Frame` (MPA-003). */
export const REPLY_KEY: Uint8Array = Uint8Array.from(KEY_TEXT.replace('Req', 'Rep'), (c) => c.charCodeAt(0));

/** Byte of the flags, {@link STARTUP_FLAG}. */
export const STARTUP_FLAGS_OFFSET = 16;
/** Byte of the MPA revision. */
export const STARTUP_REVISION_OFFSET = 17;
/** PD_Length, u16. */
export const STARTUP_PD_LENGTH_OFFSET = 18;

/** Flag masks of byte 16 (RFC 5044 7.1.1; S from RFC 6581 6). */
export const STARTUP_FLAG = {
  /** M: the sender of the frame wants markers in what it receives. */
  MARKERS: 0x80,
  /** C: the sender of the frame wants CRC. One side is enough to turn it on. */
  CRC: 0x40,
  /** R: the connection is rejected; only in a Reply. */
  REJECT: 0x20,
  /** S: the private data begins with the four enhanced bytes. */
  ENHANCED: 0x10,
} as const;

/** IRD and ORD are 14 bits; all ones means "not negotiated here" (RFC 6581 9.1). */
export const DEPTH_MASK = 0x3fff;
/** The depth is not negotiated in start-up (ENH-024). */
export const DEPTH_NOT_NEGOTIATED = 0x3fff;
const HIGH_BIT = 0x8000;
const SECOND_BIT = 0x4000;

/** The four enhanced bytes (RFC 6581 9). */
export interface EnhancedData {
  /** A: an RTR message will follow the Reply. */
  readonly peerToPeer: boolean;
  /** B: a zero-length Send serves as RTR. */
  readonly rtrSend: boolean;
  /** C: a zero-length RDMA Write serves as RTR. */
  readonly rtrWrite: boolean;
  /** D: a zero-length RDMA Read serves as RTR. */
  readonly rtrRead: boolean;
  /**
   * Reads that the sender of the frame serves at a time, 14 bits; {@link DEPTH_NOT_NEGOTIATED} if it does not
   * say.
   */
  readonly ird: number;
  /** Reads that the sender of the frame wants to have outstanding, 14 bits. */
  readonly ord: number;
}

/** IRD and ORD in the form of SMB Direct, for revision 1. */
export interface LegacyDepths {
  /** Reads that the sender of the header serves at a time: u32. */
  readonly ird: number;
  /** Reads that the sender of the header wants to have outstanding: u32. */
  readonly ord: number;
}

/** A decoded start-up frame. `privateData` is the ULP's part only, after the enhanced bytes. */
export interface StartupFrame {
  /** Request or Reply, by its key. */
  readonly kind: 'request' | 'reply';
  /** M. */
  readonly markers: boolean;
  /** C. */
  readonly crc: boolean;
  /** R. */
  readonly reject: boolean;
  /** Rev, 0 to 255 as it stands. */
  readonly revision: number;
  /** The four enhanced bytes with S=1, else null. */
  readonly enhanced: EnhancedData | null;
  /** Private data of the ULP; with the bytes that precede it at most {@link MAX_PRIVATE_DATA}. */
  readonly privateData: Uint8Array;
  /** The SMB Direct header before the private data, if both sides use one. */
  readonly legacyDepths?: LegacyDepths;
}

/**
 * Encode a start-up frame. Anything that fits the fields is encoded, lawful or not.
 *
 * @example
 * const octets = encodeStartupFrame({
 *   kind: 'request', markers: false, crc: true, reject: false, revision: 1, enhanced: null, privateData: new
 * Uint8Array(0), });
 */
export function encodeStartupFrame(frame: StartupFrame): Uint8Array {
  const front = frame.enhanced === null ? 0 : ENHANCED_OCTETS;
  const pdLength = front + frame.privateData.length;
  const bytes = new Uint8Array(STARTUP_HEADER_OCTETS + pdLength);
  bytes.set(frame.kind === 'request' ? REQUEST_KEY : REPLY_KEY);
  bytes[STARTUP_FLAGS_OFFSET] =
    (frame.markers ? STARTUP_FLAG.MARKERS : 0) |
    (frame.crc ? STARTUP_FLAG.CRC : 0) |
    (frame.reject ? STARTUP_FLAG.REJECT : 0) |
    (frame.enhanced === null ? 0 : STARTUP_FLAG.ENHANCED);
  bytes[STARTUP_REVISION_OFFSET] = frame.revision;
  bytes[STARTUP_PD_LENGTH_OFFSET] = pdLength >>> 8;
  bytes[STARTUP_PD_LENGTH_OFFSET + 1] = pdLength;
  if (frame.enhanced !== null) encodeEnhanced(frame.enhanced, bytes, STARTUP_HEADER_OCTETS);
  bytes.set(frame.privateData, STARTUP_HEADER_OCTETS + front);
  return bytes;
}

function encodeEnhanced(data: EnhancedData, bytes: Uint8Array, at: number): void {
  const word0 = (data.peerToPeer ? HIGH_BIT : 0) | (data.rtrSend ? SECOND_BIT : 0) | (data.ird & DEPTH_MASK);
  const word1 = (data.rtrWrite ? HIGH_BIT : 0) | (data.rtrRead ? SECOND_BIT : 0) | (data.ord & DEPTH_MASK);
  bytes[at] = word0 >>> 8;
  bytes[at + 1] = word0;
  bytes[at + 2] = word1 >>> 8;
  bytes[at + 3] = word1;
}

/** Decode the four enhanced bytes at `at`. */
export function decodeEnhanced(bytes: Uint8Array, at: number): EnhancedData {
  const word0 = (bytes[at]! << 8) | bytes[at + 1]!;
  const word1 = (bytes[at + 2]! << 8) | bytes[at + 3]!;
  return {
    peerToPeer: (word0 & HIGH_BIT) !== 0,
    rtrSend: (word0 & SECOND_BIT) !== 0,
    ird: word0 & DEPTH_MASK,
    rtrWrite: (word1 & HIGH_BIT) !== 0,
    rtrRead: (word1 & SECOND_BIT) !== 0,
    ord: word1 & DEPTH_MASK,
  };
}

/** PD_Length of a frame whose 20 header bytes are at `at`. */
export function startupPdLength(bytes: Uint8Array, at: number): number {
  return (bytes[at + STARTUP_PD_LENGTH_OFFSET]! << 8) | bytes[at + STARTUP_PD_LENGTH_OFFSET + 1]!;
}

// ------------------------------------------------------------------------------------------------------ FPDU

/** Bytes of the ULPDU_Length field, which precedes the ULPDU. */
export const ULPDU_LENGTH_OCTETS = 2;
/** Bytes of the CRC32c after the PAD, least significant byte first (MPA-069). */
export const CRC_OCTETS = 4;
/** ULPDU_Length is 16 bits: a receiver handles all of it (MPA-091), a sender stays at {@link MAX_MULPDU}. */
export const MAX_ULPDU_FIELD = 0xffff;
/** MULPDU lies between these (MPA-077). */
export const MIN_MULPDU = 128;
/** The largest MULPDU (MPA-077). */
export const MAX_MULPDU = 64768;

/** Bytes of TCP stream from one marker to the next (MPA-095). */
export const MARKER_SPACING = 512;
/** Bytes of a marker: two reserved, two FPDUPTR. */
export const MARKER_OCTETS = 4;
/** FPDU bytes between two markers. */
export const MARKER_RUN: number = MARKER_SPACING - MARKER_OCTETS;
/** The low two bits of FPDUPTR are sent as zero and taken as zero (MPA-100, MPA-101). */
export const FPDUPTR_MASK = 0xfffc;

/** Largest PAD: an FPDU ends on a multiple of 4. */
export const MAX_PAD_OCTETS = 3;

/**
 * PAD bytes after a ULPDU of this length (MPA-066).
 *
 * @example
 * padOctets(17); // 1: 2 + 17 + 1 is a multiple of 4
 */
export function padOctets(ulpduLength: number): number {
  return -(ULPDU_LENGTH_OCTETS + ulpduLength) & 3;
}

/**
 * Bytes of ULPDU_Length, ULPDU and PAD, which is everything before the CRC field but markers. Always a
 * multiple of 4.
 */
export function fpduBodyOctets(ulpduLength: number): number {
  return ULPDU_LENGTH_OCTETS + ulpduLength + padOctets(ulpduLength);
}

/** Bytes of a whole FPDU without markers. */
export function fpduOctets(ulpduLength: number): number {
  return fpduBodyOctets(ulpduLength) + CRC_OCTETS;
}

/** Bytes from the last marker to stream position `position`; 0 at a marker. */
export function markerPhase(position: number): number {
  // By bits: a remainder of a position beyond 2^31 is slow (bench/micro/codec.ts, markers).
  return position & (MARKER_SPACING - 1);
}

/**
 * Number of markers in `octets` (a multiple of 4) of FPDU data sent from stream position `position`. If the
 * position is that of a marker, it is included.
 */
export function markersWithin(position: number, octets: number): number {
  const phase = markerPhase(position);
  // The first data octet stands after `lead` data octets' worth of room to the next marker position.
  const lead = phase === 0 ? 0 : MARKER_SPACING - phase;
  return octets <= lead ? 0 : 1 + Math.floor((octets - lead - 1) / MARKER_RUN);
}

/**
 * The largest ULPDU for a TCP segment payload of `emss` bytes (RFC 5044 4.5: MPA-078, MPA-079), held within
 * 128..64768 (MPA-077, MPA-080).
 *
 * @example
 * mulpduFor(1460, false); // 1454
 */
export function mulpduFor(emss: number, markers: boolean): number {
  const overhead = 6 + (emss % 4) + (markers ? MARKER_OCTETS * Math.ceil(emss / MARKER_SPACING) : 0);
  return Math.min(MAX_MULPDU, Math.max(MIN_MULPDU, emss - overhead));
}

/** Bytes an FPDU may take on the wire with markers, wherever it starts. */
export function maxFpduOctetsWithMarkers(ulpduLength: number): number {
  const octets = fpduOctets(ulpduLength);
  return octets + MARKER_OCTETS * (1 + Math.ceil(octets / MARKER_RUN));
}

/**
 * Put both depths, each a big-endian u32, before `privateData`. A depth of 0 is said as 1: with a zero in it
 * the peer would take the header for private data.
 */
export function putLegacyDepths(depths: LegacyDepths, privateData: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(LEGACY_DEPTHS_OCTETS + privateData.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, Math.max(1, depths.ird));
  view.setUint32(4, Math.max(1, depths.ord));
  bytes.set(privateData, LEGACY_DEPTHS_OCTETS);
  return bytes;
}

/**
 * Separate the header from the private data. Null if there is none: in a header both depths are positive and
 * below 0x3FFF. Some drivers are known to write it little-endian; the range shows the byte order.
 */
export function takeLegacyDepths(
  privateData: Uint8Array,
): { readonly depths: LegacyDepths; readonly privateData: Uint8Array } | null {
  if (privateData.length < LEGACY_DEPTHS_OCTETS) return null;
  const view = new DataView(privateData.buffer, privateData.byteOffset, LEGACY_DEPTHS_OCTETS);
  const usable = (depth: number): boolean => depth > 0 && depth < DEPTH_NOT_NEGOTIATED;
  for (const littleEndian of [false, true]) {
    const depths = { ird: view.getUint32(0, littleEndian), ord: view.getUint32(4, littleEndian) };
    if (usable(depths.ird) && usable(depths.ord))
      return { depths, privateData: privateData.subarray(LEGACY_DEPTHS_OCTETS) };
  }
  return null;
}
