/**
 * RDMAP on the wire: RFC 5040 4, RFC 7306 4 to 6. The one place for RDMAP's opcodes and offsets; header
 * offsets count from the first byte after the DDP header.
 */
import { TERM } from '../base/terminate-codes.ts';
import { VERDICT } from '../base/verdict.ts';
import type { FixedSize, MessageKind } from '../ddp/receiver.ts';
import { MAX_MESSAGE, QN } from '../ddp/wire.ts';
import type { MessageCounters } from './message-counters.ts';

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

/** Bytes of the Read Request header. */
export const READ_REQUEST_OCTETS = 28;
/** Fields of the Read Request header (RFC 5040 4.4). */
export const READ_REQUEST = {
  /** Data Sink STag, u32: where the response goes. */
  SINK_STAG: 0,
  /** Data Sink Tagged Offset, u64. */
  SINK_TO: 4,
  /** RDMA Read Message Size, u32, bytes. */
  SIZE: 12,
  /** Data Source STag, u32: the memory that is read. */
  SOURCE_STAG: 16,
  /** Data Source Tagged Offset, u64. */
  SOURCE_TO: 20,
} as const;

/** Bytes of Immediate Data (RFC 7306 6). */
export const IMMEDIATE_OCTETS = 8;

/** Bytes of the Atomic Request header. */
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

/** Bytes of the Atomic Response header. */
export const ATOMIC_RESPONSE_OCTETS = 12;
/** Fields of the Atomic Response header (RFC 7306 5.2.2). */
export const ATOMIC_RESPONSE = {
  /** Request Identifier of the request, u32. */
  ID: 0,
  /** The value before the operation, u64. */
  ORIGINAL: 4,
} as const;

/**
 * Terminate header (RFC 5040 4.8): layer and type, code, header control, reserved; then the parts that the
 * control bits announce.
 */
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
/** Bytes of the DDP Segment Length field. */
export const SEGMENT_LENGTH_OCTETS = 2;
/** Length field, untagged DDP header, Read Request header after the fixed part. */
export const MAX_TERMINATE_OCTETS = 52;

/** The largest ULPDU that fits every header-only message. */
export const MAX_CONTROL_ULPDU = 70;

/** How a message is delivered when its last segment has been placed. */
export const DELIVERY = {
  /** Not at all: its bytes are in their place, and that is all. */
  NONE: 0,
  /** A receive completes. */
  RECEIVE: 1,
  /** A Read or Atomic Request waits for its answer. */
  READ_REQUEST: 2,
  /** An Atomic Request is executed and answered. */
  ATOMIC_REQUEST: 3,
  /** A request of ours completes. */
  READ_RESPONSE: 4,
  /** An Atomic of ours completes. */
  ATOMIC_RESPONSE: 5,
  /** The stream ends. */
  TERMINATE: 6,
  /** A receive completes with the eight bytes, which its memory does not get. */
  IMMEDIATE: 7,
} as const;

/** Properties of an opcode (RFC 5040 figure 4, RFC 7306). */
export interface OpcodeRow extends MessageKind {
  /** Name as the RFCs write it. */
  readonly name: string;
  /** True if its segments carry an STag and a tagged offset. */
  readonly tagged: boolean;
  /** True for opcodes of RFC 7306. */
  readonly extension: boolean;
  /** The counter of its messages; null if they are not counted. */
  readonly counter: keyof MessageCounters | null;
  /** Solicited Event: the receiver's completion may wake a waiting program. */
  readonly event: boolean;
  /** The message names an STag that it invalidates. */
  readonly invalidates: boolean;
  /** One of {@link DELIVERY}. */
  readonly delivery: number;
}

type Traits = Partial<Omit<OpcodeRow, 'name' | 'counter' | 'delivered'>>;

const row = (name: string, counter: OpcodeRow['counter'], traits: Traits): OpcodeRow => {
  const delivery = traits.delivery ?? DELIVERY.NONE;
  return {
    name,
    counter,
    tagged: traits.tagged ?? false,
    qn: traits.qn ?? -1,
    extension: traits.extension ?? false,
    solicited: traits.solicited ?? false,
    fixed: traits.fixed ?? null,
    event: traits.event ?? false,
    invalidates: traits.invalidates ?? false,
    delivery,
    delivered: delivery !== DELIVERY.NONE,
  };
};

/** RDMAP-015, EXT-010: a message with exactly one size. */
const exactly = (octets: number): FixedSize => ({
  least: octets,
  most: octets,
  verdict: TERM.RDMAP_STREAM_CATASTROPHIC,
});

const SEND: Traits = { qn: QN.SEND, delivery: DELIVERY.RECEIVE };
const IMMEDIATE: Traits = {
  ...SEND,
  extension: true,
  fixed: exactly(IMMEDIATE_OCTETS),
  delivery: DELIVERY.IMMEDIATE,
};

/**
 * Indexed by opcode; an opcode without a row is not assigned. Everything that receiving, counting and
 * decoding know of an opcode stands here.
 */
export const OPCODE_TABLE: readonly OpcodeRow[] = [
  row('RDMA Write', 'writes', { tagged: true }),
  row('RDMA Read Request', 'reads', {
    qn: QN.READ_REQUEST,
    fixed: exactly(READ_REQUEST_OCTETS),
    delivery: DELIVERY.READ_REQUEST,
  }),
  row('RDMA Read Response', 'readResponses', {
    tagged: true,
    solicited: true,
    delivery: DELIVERY.READ_RESPONSE,
  }),
  row('Send', 'sends', SEND),
  row('Send with Invalidate', 'sends', { ...SEND, invalidates: true }),
  row('Send with Solicited Event', 'sends', { ...SEND, event: true }),
  row('Send with Solicited Event and Invalidate', 'sends', { ...SEND, event: true, invalidates: true }),
  row('Terminate', 'terminates', {
    qn: QN.TERMINATE,
    // Octets after those that a Terminate announces are dropped (protocol-notes 2.3).
    fixed: { least: TERMINATE_FIXED_OCTETS, most: MAX_MESSAGE, verdict: VERDICT.SILENT },
    delivery: DELIVERY.TERMINATE,
  }),
  row('Immediate Data', 'immediates', IMMEDIATE),
  row('Immediate Data with Solicited Event', 'immediates', { ...IMMEDIATE, event: true }),
  row('Atomic Request', 'atomics', {
    qn: QN.READ_REQUEST,
    extension: true,
    fixed: exactly(ATOMIC_REQUEST_OCTETS),
    delivery: DELIVERY.ATOMIC_REQUEST,
  }),
  row('Atomic Response', null, {
    qn: QN.ATOMIC_RESPONSE,
    extension: true,
    fixed: exactly(ATOMIC_RESPONSE_OCTETS),
    delivery: DELIVERY.ATOMIC_RESPONSE,
  }),
];
