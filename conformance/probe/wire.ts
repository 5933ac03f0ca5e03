// The code points and limits of the wire, written down from the RFCs for the suite alone. What the stack
// under test believes stands in src/ and may not come in here: where both had one table, a mistake in it
// would be judged by itself. RFC 5044 3 and 7.1.1, RFC 5041 4, RFC 5040 4, RFC 7306 4 to 6; requirements of
// the catalogue in brackets.

const octets = (text: string): Uint8Array => Uint8Array.from(text, (c) => c.charCodeAt(0));

/** The 16 octets that an MPA Request begins with (RFC 5044 7.1.1; MPA-002). */
export const REQUEST_KEY: Uint8Array = octets('MPA ID Req Frame');
/** The octets that an MPA Reply begins with (RFC 5044 7.1.1; MPA-003). */
export const REPLY_KEY: Uint8Array = octets('MPA ID Rep Frame');

/** The longest ULPDU that MPA lets its user send: 64 KiB less 768 octets (RFC 5044 3; MPA-076). */
export const MAX_MULPDU: number = 64 * 1024 - 768;

/** Bits of the DDP control octet, the most significant first: T, L, four reserved, DV (RFC 5041 4.1). */
export const DDP_CONTROL = {
  TAGGED: 0b1000_0000,
  LAST: 0b0100_0000,
  RESERVED: 0b0011_1100,
  VERSION: 0b0000_0011,
} as const;

/** The MSN of a queue's first message (RFC 5041 4.3; DDP-014). */
export const FIRST_MSN = 1;

/**
 * Queues of untagged messages: 0 to 2 by RFC 5040 4.1 (figure 4; RDMAP-008), 3 by RFC 7306 5.2.2 (EXT-022).
 */
export const QN = { SEND: 0, READ_REQUEST: 1, TERMINATE: 2, ATOMIC_RESPONSE: 3 } as const;

/** RDMAP opcodes: the first eight by RFC 5040 4.1, the others by RFC 7306 4.1. */
export const OPCODE = {
  RDMA_WRITE: 0b0000,
  READ_REQUEST: 0b0001,
  READ_RESPONSE: 0b0010,
  SEND: 0b0011,
  SEND_INVALIDATE: 0b0100,
  SEND_SE: 0b0101,
  SEND_SE_INVALIDATE: 0b0110,
  TERMINATE: 0b0111,
  IMMEDIATE: 0b1000,
  IMMEDIATE_SE: 0b1001,
  ATOMIC_REQUEST: 0b1010,
  ATOMIC_RESPONSE: 0b1011,
} as const;

/** How an RDMAP message travels. */
interface OpcodeRule {
  readonly name: string;
  /** The T bit of its segments. */
  readonly tagged: boolean;
  /** Its queue; null for a tagged message, which has none. */
  readonly qn: number | null;
  /**
   * Octets after the DDP header of a message that carries nothing of its user; null where the user decides,
   * or the message itself.
   */
  readonly octets: number | null;
}

const onQueue = (name: string, qn: number, octets: number | null = null): OpcodeRule => ({
  name,
  tagged: false,
  qn,
  octets,
});
const tagged = (name: string): OpcodeRule => ({ name, tagged: true, qn: null, octets: null });

/**
 * RFC 5040 4.1 (figure 4; RDMAP-006, RDMAP-008) and RFC 7306 4.1, by opcode. An opcode that is not here is
 * not assigned.
 */
export const OPCODE_RULES: Readonly<Record<number, OpcodeRule>> = {
  [OPCODE.RDMA_WRITE]: tagged('RDMA Write'),
  // RFC 5040 4.4: two STags, two TOs and a size.
  [OPCODE.READ_REQUEST]: onQueue('RDMA Read Request', QN.READ_REQUEST, 4 + 8 + 4 + 4 + 8),
  [OPCODE.READ_RESPONSE]: tagged('RDMA Read Response'),
  [OPCODE.SEND]: onQueue('Send', QN.SEND),
  [OPCODE.SEND_INVALIDATE]: onQueue('Send with Invalidate', QN.SEND),
  [OPCODE.SEND_SE]: onQueue('Send with Solicited Event', QN.SEND),
  [OPCODE.SEND_SE_INVALIDATE]: onQueue('Send with Solicited Event and Invalidate', QN.SEND),
  [OPCODE.TERMINATE]: onQueue('Terminate', QN.TERMINATE),
  // RFC 7306 6: eight octets, whatever they mean.
  [OPCODE.IMMEDIATE]: onQueue('Immediate Data', QN.SEND, 8),
  [OPCODE.IMMEDIATE_SE]: onQueue('Immediate Data with Solicited Event', QN.SEND, 8),
  // RFC 7306 5.2.1: opcode, identifier, STag, TO, then data, mask, compare data and compare mask.
  [OPCODE.ATOMIC_REQUEST]: onQueue('Atomic Request', QN.READ_REQUEST, 4 + 4 + 4 + 8 + 4 * 8),
  // RFC 7306 5.2.2: identifier and the value before.
  [OPCODE.ATOMIC_RESPONSE]: onQueue('Atomic Response', QN.ATOMIC_RESPONSE, 4 + 8),
};
