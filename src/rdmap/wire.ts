/**
 * RDMAP on the wire: RFC 5040 4, RFC 7306 4 to 6. The one place for RDMAP's opcodes and offsets; header offsets count from the first
 * octet behind the DDP header.
 */
import { QN } from '../ddp/wire.ts';

/** Masks of the RDMAP control octet. RV sits in the two high bits. */
export const RDMAP_CONTROL = { VERSION: 0xc0, RESERVED: 0x30, OPCODE: 0x0f } as const;
export const RDMAP_VERSION_SHIFT = 6;

/** Opcodes (RFC 5040 figure 4, RFC 7306 figure 3). */
export const OPCODE = {
  RDMA_WRITE: 0x0,
  READ_REQUEST: 0x1,
  READ_RESPONSE: 0x2,
  SEND: 0x3,
  SEND_INVALIDATE: 0x4,
  SEND_SE: 0x5,
  SEND_SE_INVALIDATE: 0x6,
  TERMINATE: 0x7,
  IMMEDIATE: 0x8,
  IMMEDIATE_SE: 0x9,
  ATOMIC_REQUEST: 0xa,
  ATOMIC_RESPONSE: 0xb,
} as const;

/** What RFC 5040 figure 4 and RFC 7306 fix for each opcode. */
export interface OpcodeRow {
  readonly name: string;
  readonly tagged: boolean;
  /** Queue of an untagged opcode; -1 for tagged ones. */
  readonly qn: number;
  /** True for RFC 7306. */
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

export const READ_REQUEST_OCTETS = 28;
/** Fields of the Read Request header (RFC 5040 4.4). */
export const READ_REQUEST = { SINK_STAG: 0, SINK_TO: 4, SIZE: 12, SOURCE_STAG: 16, SOURCE_TO: 20 } as const;

export const IMMEDIATE_OCTETS = 8;

export const ATOMIC_REQUEST_OCTETS = 52;
/** Fields of the Atomic Request header (RFC 7306 5.2.1). `DATA` is Add Data or Swap Data, `MASK` its mask. */
export const ATOMIC_REQUEST = { OPCODE: 0, ID: 4, STAG: 8, TO: 12, DATA: 20, MASK: 28, COMPARE: 36, COMPARE_MASK: 44 } as const;
export const ATOMIC_OPCODE_MASK = 0xf;
export const ATOMIC_OPCODE = { FETCH_ADD: 0, CMP_SWAP: 2 } as const;

export const ATOMIC_RESPONSE_OCTETS = 12;
export const ATOMIC_RESPONSE = { ID: 0, ORIGINAL: 4 } as const;

/** Terminate header (RFC 5040 4.8): layer and type, code, header control, reserved; then what the control bits announce. */
export const TERMINATE_FIXED_OCTETS = 4;
export const TERMINATE_CONTROL_OFFSET = 2;
export const TERMINATE_CONTROL = { SEGMENT_LENGTH: 0x80, DDP_HEADER: 0x40, RDMAP_HEADER: 0x20 } as const;
export const SEGMENT_LENGTH_OCTETS = 2;
/** Length field, untagged DDP header, Read Request header behind the fixed part. */
export const MAX_TERMINATE_OCTETS = 52;

/** The largest ULPDU that fits every header-only message. */
export const MAX_CONTROL_ULPDU = 70;
