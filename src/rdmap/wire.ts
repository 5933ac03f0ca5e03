/**
 * RDMAP on the wire: RFC 5040 4, RFC 7306 4 to 6. The one place for RDMAP's opcodes and offsets; header offsets count from the first
 * octet after the DDP header.
 */
import { QN } from '../ddp/wire.ts';

/** Masks of the RDMAP control octet. RV sits in the two high bits. */
export const RDMAP_CONTROL = {
  /** RV: 1, or 0 in the RDMA Consortium mode. */
  VERSION: 0xc0,
  /** Sent as zero, ignored on receipt. */
  RESERVED: 0x30,
  /** One of {@link OPCODE}. */
  OPCODE: 0x0f,
} as const;
/** Bits by which RV is shifted to the left. */
export const RDMAP_VERSION_SHIFT = 6;

/** Opcodes (RFC 5040 figure 4, RFC 7306 figure 3). */
export const OPCODE = {
  /** RDMA Write; tagged. */
  RDMA_WRITE: 0x0,
  /** RDMA Read Request; queue 1. */
  READ_REQUEST: 0x1,
  /** RDMA Read Response; tagged. */
  READ_RESPONSE: 0x2,
  /** Send; queue 0. */
  SEND: 0x3,
  /** Send with Invalidate; queue 0. */
  SEND_INVALIDATE: 0x4,
  /** Send with Solicited Event; queue 0. */
  SEND_SE: 0x5,
  /** Send with Solicited Event and Invalidate; queue 0. */
  SEND_SE_INVALIDATE: 0x6,
  /** Terminate; queue 2. */
  TERMINATE: 0x7,
  /** Immediate Data (RFC 7306 6); queue 0. */
  IMMEDIATE: 0x8,
  /** Immediate Data with Solicited Event; queue 0. */
  IMMEDIATE_SE: 0x9,
  /** Atomic Request (RFC 7306 5); queue 1. */
  ATOMIC_REQUEST: 0xa,
  /** Atomic Response; queue 3. */
  ATOMIC_RESPONSE: 0xb,
} as const;

/** Properties of an opcode (RFC 5040 figure 4, RFC 7306). */
export interface OpcodeRow {
  /** Name as the RFCs write it. */
  readonly name: string;
  /** True if its segments carry an STag and a tagged offset. */
  readonly tagged: boolean;
  /** Queue of an untagged opcode; -1 for tagged ones. */
  readonly qn: number;
  /** True for opcodes of RFC 7306. */
  readonly extension: boolean;
}

const row = (name: string, tagged: boolean, qn: number, extension = false): OpcodeRow => ({ name, tagged, qn, extension });

/** Indexed by opcode; an opcode without a row is not assigned. */
export const OPCODE_TABLE: readonly OpcodeRow[] = [
  row('RDMA Write', true, -1),
  row('RDMA Read Request', false, QN.READ_REQUEST),
  row('RDMA Read Response', true, -1),
  row('Send', false, QN.SEND),
  row('Send with Invalidate', false, QN.SEND),
  row('Send with Solicited Event', false, QN.SEND),
  row('Send with Solicited Event and Invalidate', false, QN.SEND),
  row('Terminate', false, QN.TERMINATE),
  row('Immediate Data', false, QN.SEND, true),
  row('Immediate Data with Solicited Event', false, QN.SEND, true),
  row('Atomic Request', false, QN.READ_REQUEST, true),
  row('Atomic Response', false, QN.ATOMIC_RESPONSE, true),
];

/** Octets of the Read Request header. */
export const READ_REQUEST_OCTETS = 28;
/** Fields of the Read Request header (RFC 5040 4.4). */
export const READ_REQUEST = {
  /** Data Sink STag, u32: where the response goes. */
  SINK_STAG: 0,
  /** Data Sink Tagged Offset, u64. */
  SINK_TO: 4,
  /** RDMA Read Message Size, u32, octets. */
  SIZE: 12,
  /** Data Source STag, u32: what is read. */
  SOURCE_STAG: 16,
  /** Data Source Tagged Offset, u64. */
  SOURCE_TO: 20,
} as const;

/** Octets of Immediate Data (RFC 7306 6). */
export const IMMEDIATE_OCTETS = 8;

/** Octets of the Atomic Request header. */
export const ATOMIC_REQUEST_OCTETS = 52;
/** Fields of the Atomic Request header (RFC 7306 5.2.1). `DATA` is Add Data or Swap Data, `MASK` its mask. */
export const ATOMIC_REQUEST = {
  /** u32, its low four bits the atomic opcode. */
  OPCODE: 0,
  /** Request Identifier, u32, returned in the response. */
  ID: 4,
  /** Remote STag, u32. */
  STAG: 8,
  /** Remote Tagged Offset, u64. */
  TO: 12,
  /** Add Data or Swap Data, u64. */
  DATA: 20,
  /** Add Mask or Swap Mask, u64. */
  MASK: 28,
  /** Compare Data, u64. */
  COMPARE: 36,
  /** Compare Mask, u64. */
  COMPARE_MASK: 44,
} as const;
/** Bits of the opcode word that hold the atomic opcode. */
export const ATOMIC_OPCODE_MASK = 0xf;
/** Atomic opcodes (RFC 7306 5.2.1); the other values are not assigned. */
export const ATOMIC_OPCODE = {
  /** FetchAdd (RFC 7306 5.1.1). */
  FETCH_ADD: 0,
  /** CmpSwap (RFC 7306 5.1.2). */
  CMP_SWAP: 2,
} as const;

/** Octets of the Atomic Response header. */
export const ATOMIC_RESPONSE_OCTETS = 12;
/** Fields of the Atomic Response header (RFC 7306 5.2.2). */
export const ATOMIC_RESPONSE = {
  /** Request Identifier of the request, u32. */
  ID: 0,
  /** The value before the operation, u64. */
  ORIGINAL: 4,
} as const;

/** Terminate header (RFC 5040 4.8): layer and type, code, header control, reserved; then what the control bits announce. */
export const TERMINATE_FIXED_OCTETS = 4;
/** Offset of the header control bits. */
export const TERMINATE_CONTROL_OFFSET = 2;
/** Header control bits: what follows the fixed part (RFC 5040 4.8). */
export const TERMINATE_CONTROL = {
  /** M: the length of the segment in error follows. */
  SEGMENT_LENGTH: 0x80,
  /** D: its DDP header follows. */
  DDP_HEADER: 0x40,
  /** R: its RDMAP header follows. */
  RDMAP_HEADER: 0x20,
} as const;
/** Octets of the DDP Segment Length field. */
export const SEGMENT_LENGTH_OCTETS = 2;
/** Length field, untagged DDP header, Read Request header after the fixed part. */
export const MAX_TERMINATE_OCTETS = 52;

/** The largest ULPDU that fits every header-only message. */
export const MAX_CONTROL_ULPDU = 70;
