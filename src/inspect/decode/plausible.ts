/**
 * Does this look like the front of an FPDU? Used to find FPDUs again after a gap, in a capture that starts
 * mid-stream, and after an FPDU whose length cannot be trusted. RFC 5041 4 and RFC 5040 figure 4: the first
 * four bytes and the length have few lawful values.
 */
import {
  DDP_CONTROL,
  TAGGED_HEADER_OCTETS,
  UNTAGGED_HEADER_OCTETS,
  UNTAGGED_QN_OFFSET,
  UNTAGGED_ULP_WORD_OFFSET,
  getU32,
} from '../../ddp/wire.ts';
import { MARKER_OCTETS, ULPDU_LENGTH_OCTETS } from '../../mpa/wire.ts';
import {
  ATOMIC_REQUEST_OCTETS,
  ATOMIC_RESPONSE_OCTETS,
  IMMEDIATE_OCTETS,
  MAX_CONTROL_ULPDU,
  OPCODE,
  OPCODE_TABLE,
  RDMAP_CONTROL,
  RDMAP_VERSION_SHIFT,
  READ_REQUEST_OCTETS,
  TERMINATE_FIXED_OCTETS,
} from '../../rdmap/wire.ts';
import type { ExpectedVersions } from './ulpdu.ts';

/**
 * Bytes that must be there to judge: ULPDU_Length and both control octets. A marker never separates them:
 * all goes in fours (RFC 5044 4.3).
 */
export const FRONT_OCTETS = 4;
/** Evidence at which a front counts as found. */
export const ENOUGH = 3;

/**
 * How strongly `bytes[at..)` looks like ULPDU_Length and the headers after it: 0 not at all, 1 a tagged front
 * (some 18 bits agree), 3 an untagged front whose queue and length fit (some 80 bits). Needs {@link
 * FRONT_OCTETS}; looks further if `available` allows.
 */
export function frontEvidence(
  bytes: Uint8Array,
  at: number,
  available: number,
  expected: ExpectedVersions,
): number {
  const ulpduLength = (bytes[at]! << 8) | bytes[at + 1]!;
  const ddp = bytes[at + ULPDU_LENGTH_OCTETS]!;
  const rdmap = bytes[at + ULPDU_LENGTH_OCTETS + 1]!;
  if ((ddp & (DDP_CONTROL.RESERVED | DDP_CONTROL.VERSION)) !== expected.ddp) return 0;
  if ((rdmap & ~RDMAP_CONTROL.OPCODE) !== expected.rdmap << RDMAP_VERSION_SHIFT) return 0;
  const opcode = rdmap & RDMAP_CONTROL.OPCODE;
  const row = OPCODE_TABLE[opcode];
  const tagged = (ddp & DDP_CONTROL.TAGGED) !== 0;
  if (row === undefined || row.tagged !== tagged) return 0;
  if (tagged) return ulpduLength >= TAGGED_HEADER_OCTETS ? 1 : 0;
  if (!lengthFits(opcode, ulpduLength - UNTAGGED_HEADER_OCTETS)) return 0;
  if (available < ULPDU_LENGTH_OCTETS + UNTAGGED_QN_OFFSET + 4) return 1;
  return queueFits(bytes, at + ULPDU_LENGTH_OCTETS, opcode, row.qn) ? ENOUGH : 0;
}

function lengthFits(opcode: number, after: number): boolean {
  switch (opcode) {
    case OPCODE.READ_REQUEST:
      return after === READ_REQUEST_OCTETS;
    case OPCODE.TERMINATE:
      return after >= TERMINATE_FIXED_OCTETS && after <= MAX_CONTROL_ULPDU;
    case OPCODE.IMMEDIATE:
    case OPCODE.IMMEDIATE_SE:
      return after === IMMEDIATE_OCTETS;
    case OPCODE.ATOMIC_REQUEST:
      return after === ATOMIC_REQUEST_OCTETS;
    case OPCODE.ATOMIC_RESPONSE:
      return after === ATOMIC_RESPONSE_OCTETS;
    default:
      return after >= 0;
  }
}

/**
 * A marker may stand between the control octets and the queue number: then the number is looked for after it.
 */
function queueFits(bytes: Uint8Array, ulpdu: number, opcode: number, qn: number): boolean {
  const at = ulpdu + UNTAGGED_QN_OFFSET;
  const invalidates = opcode === OPCODE.SEND_INVALIDATE || opcode === OPCODE.SEND_SE_INVALIDATE;
  const wordFits = invalidates || getU32(bytes, ulpdu + UNTAGGED_ULP_WORD_OFFSET) === 0;
  if (getU32(bytes, at) === qn && wordFits) return true;
  // FPDUPTR 4 or 8: the only markers that can stand before the queue number.
  const first = getU32(bytes, ulpdu + 2);
  return first === MARKER_OCTETS || getU32(bytes, ulpdu + 6) === 2 * MARKER_OCTETS;
}
