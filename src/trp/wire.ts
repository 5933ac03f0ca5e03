/**
 * The Trivial Reliability Protocol on the wire: the ten bytes between UDP and one DDP segment, after
 * "USIW: Design and Implementation of Userspace Software iWARP using DPDK" and the code that grew out of it.
 * The one place for TRP's offsets and opcodes. All fields are big-endian; offsets count from the first byte
 * of the datagram. Decoders are strict, encoders lenient.
 */
import { NO_BYTES, copyOf } from '../base/copy.ts';

/** Bytes of the header in front of the DDP segment. */
export const TRP_HEADER_OCTETS = 10;
/** Packet sequence number of this datagram, u32. */
export const TRP_PSN_OFFSET = 0;
/** The PSN that its sender expects next, u32: everything below has arrived. */
export const TRP_ACK_OFFSET = 4;
/** Opcode, u16: the upper four bits; the lower twelve are sent as zero. */
export const TRP_OPCODE_OFFSET = 8;
/** Bytes between the header of a piece's datagram and what it carries. */
export const TRP_PIECE_OCTETS = 4;
/** Mask of the opcode within its field; the other bits are reserved. */
export const TRP_OPCODE_MASK = 0xf000;

/** Opcodes, as the whole u16. */
export const TRP_OPCODE = {
  /** A DDP segment, or without one an acknowledgement alone. */
  DATA: 0x0000,
  /** Connection request, with depths and private data. */
  REQUEST: 0x1000,
  /** Its acceptance, from the port of the connection. */
  ACCEPT: 0x2000,
  /** Its rejection. */
  REJECT: 0x3000,
  /** End of a direction: the PSN is that after the last datagram. */
  FIN: 0x4000,
  /** One range received above a hole: `psn` its first PSN, `ack` the one after its last. */
  SACK: 0x5000,
  /** A piece of a DDP segment that the path does not carry whole; only in the profile `fixed`. */
  PIECE: 0x7000,
} as const;

/** Bytes of a request, an accept or a reject without private data. */
export const TRP_SETUP_OCTETS = 16;
/** Bytes of private data, u16. */
export const TRP_PRIVATE_LENGTH_OFFSET = 10;
/** Inbound read depth of the sender, u16. */
export const TRP_IRD_OFFSET = 12;
/** Outbound read depth of the sender, u16. */
export const TRP_ORD_OFFSET = 14;
/** Most bytes of private data that a receiver takes. */
export const TRP_MAX_PRIVATE_DATA = 512;

/** The header of one datagram, decoded. A single object is filled again for every datagram. */
export interface TrpHeader {
  /** Packet sequence number, u32. */
  psn: number;
  /** Cumulative acknowledgement, u32; in a SACK the PSN after the range. */
  ack: number;
  /** One of {@link TRP_OPCODE}. */
  opcode: number;
  /** Bytes behind the header. */
  bodyLength: number;
}

/** Parameters of a request, an accept or a reject. */
export interface TrpSetup {
  /** One of the three opcodes of set-up. */
  readonly opcode: number;
  /** First PSN of its sender, u32; 0 in the profile `urdma`. */
  readonly psn: number;
  /** In an accept the first PSN of the other side, u32. */
  readonly ack: number;
  /** Inbound read depth, u16. */
  readonly ird: number;
  /** Outbound read depth, u16. */
  readonly ord: number;
  /** Private data, up to 512 bytes. */
  readonly privateData: Uint8Array;
}

/** A header to decode into. */
export function createTrpHeader(): TrpHeader {
  return { psn: 0, ack: 0, opcode: 0, bodyLength: 0 };
}

/** Bytes of a piece's own header, and one of the segment. */
const LEAST_PIECE = 5;
const KNOWN = new Set<number>(Object.values(TRP_OPCODE));

/**
 * Decode the header of the datagram `bytes[start..end)` into `header`. False, and nothing is to be made of
 * the datagram, if it is shorter than a header, its opcode is unknown, a reserved bit is set, or its length
 * cannot be that of its opcode: a FIN and a SACK have no body, a piece has five bytes or more, and set-up
 * six.
 *
 * @example
 * const header = createTrpHeader();
 * if (decodeTrpHeader(header, datagram, 0, datagram.length)) console.log(header.psn);
 */
export function decodeTrpHeader(header: TrpHeader, bytes: Uint8Array, start: number, end: number): boolean {
  const bodyLength = end - start - TRP_HEADER_OCTETS;
  if (bodyLength < 0) return false;
  header.psn = u32(bytes, start + TRP_PSN_OFFSET);
  header.ack = u32(bytes, start + TRP_ACK_OFFSET);
  const opcode = (bytes[start + TRP_OPCODE_OFFSET]! << 8) | bytes[start + TRP_OPCODE_OFFSET + 1]!;
  header.opcode = opcode;
  header.bodyLength = bodyLength;
  if (opcode === TRP_OPCODE.DATA) return true;
  if (!KNOWN.has(opcode)) return false;
  if (opcode === TRP_OPCODE.FIN || opcode === TRP_OPCODE.SACK) return bodyLength === 0;
  if (opcode === TRP_OPCODE.PIECE) return bodyLength >= LEAST_PIECE;
  return bodyLength >= TRP_SETUP_OCTETS - TRP_HEADER_OCTETS;
}

/** Write a header at `at` of `view`. */
export function putTrpHeader(view: DataView, at: number, psn: number, ack: number, opcode: number): void {
  view.setUint32(at + TRP_PSN_OFFSET, psn);
  view.setUint32(at + TRP_ACK_OFFSET, ack);
  view.setUint16(at + TRP_OPCODE_OFFSET, opcode);
}

/**
 * A datagram without a DDP segment: an acknowledgement, a SACK or a FIN.
 *
 * @example
 * socket.send(encodeTrpHeader(next, expected, TRP_OPCODE.DATA), port, address);
 */
export function encodeTrpHeader(psn: number, ack: number, opcode: number): Uint8Array {
  const bytes = new Uint8Array(TRP_HEADER_OCTETS);
  putTrpHeader(new DataView(bytes.buffer), 0, psn, ack, opcode);
  return bytes;
}

/** A datagram of set-up. */
export function encodeTrpSetup({ opcode, psn, ack, ird, ord, privateData }: TrpSetup): Uint8Array {
  const bytes = new Uint8Array(TRP_SETUP_OCTETS + privateData.length);
  const view = new DataView(bytes.buffer);
  putTrpHeader(view, 0, psn, ack, opcode);
  view.setUint16(TRP_PRIVATE_LENGTH_OFFSET, privateData.length);
  view.setUint16(TRP_IRD_OFFSET, ird);
  view.setUint16(TRP_ORD_OFFSET, ord);
  bytes.set(privateData, TRP_SETUP_OCTETS);
  return bytes;
}

/**
 * Decode the set-up datagram `bytes[start..end)`; null if its opcode is another, a reserved bit is set, or
 * its length is not exactly what the length of its private data says.
 */
export function decodeTrpSetup(bytes: Uint8Array, start: number, end: number): TrpSetup | null {
  if (!decodeTrpHeader(setupHeader, bytes, start, end)) return null;
  const { psn, ack, opcode, bodyLength } = setupHeader;
  if (opcode < TRP_OPCODE.REQUEST || opcode > TRP_OPCODE.REJECT) return null;
  const length = u16(bytes, start + TRP_PRIVATE_LENGTH_OFFSET);
  if (length > TRP_MAX_PRIVATE_DATA || bodyLength !== TRP_SETUP_OCTETS - TRP_HEADER_OCTETS + length)
    return null;
  return {
    opcode,
    psn,
    ack,
    ird: u16(bytes, start + TRP_IRD_OFFSET),
    ord: u16(bytes, start + TRP_ORD_OFFSET),
    privateData: length === 0 ? NO_BYTES : copyOf(bytes, start + TRP_SETUP_OCTETS, end),
  };
}

const setupHeader = createTrpHeader();

function u32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}

function u16(bytes: Uint8Array, at: number): number {
  return (bytes[at]! << 8) | bytes[at + 1]!;
}
