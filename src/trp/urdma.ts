/**
 * Where the old code's segments differ from RFC 5040 and RFC 7306, for the profile `urdma`: it sends plain
 * Sends alone, has the header control bits of a Terminate at the other end of their byte, and a
 * Compare-and-Swap with code 1 and masks of zero. What we have made by the RFCs is changed on its way out,
 * what it has made on its way in. A received Terminate is read either way (protocol-notes 2.3).
 */
import {
  DDP_CONTROL,
  RSVDULP_OFFSET,
  UNTAGGED_HEADER_OCTETS,
  UNTAGGED_ULP_WORD_OFFSET,
} from '../ddp/wire.ts';
import {
  ATOMIC_OPCODE,
  ATOMIC_OPCODE_MASK,
  ATOMIC_REQUEST,
  ATOMIC_REQUEST_OCTETS,
  OPCODE,
  RDMAP_CONTROL,
  TERMINATE_CONTROL_OFFSET,
} from '../rdmap/wire.ts';

/** Its code of a Compare-and-Swap. */
const CMP_SWAP = 1;
/** The top three bits of a byte. */
const TOP = 0x80;

/** Where the segment's body begins; -1 if it is tagged or has none. */
function bodyOf(view: DataView, at: number, length: number): number {
  return length <= UNTAGGED_HEADER_OCTETS || (view.getUint8(at) & DDP_CONTROL.TAGGED) !== 0
    ? -1
    : at + UNTAGGED_HEADER_OCTETS;
}

/** Change a segment that goes out. */
export function toUrdma(view: DataView, at: number, length: number): void {
  if ((view.getUint8(at) & DDP_CONTROL.TAGGED) !== 0) return;
  const control = view.getUint8(at + RSVDULP_OFFSET);
  const opcode = control & RDMAP_CONTROL.OPCODE;
  const body = bodyOf(view, at, length);
  if (opcode > OPCODE.SEND && opcode <= OPCODE.SEND_SE_INVALIDATE) {
    view.setUint8(at + RSVDULP_OFFSET, (control & ~RDMAP_CONTROL.OPCODE) | OPCODE.SEND);
    view.setUint32(at + UNTAGGED_ULP_WORD_OFFSET, 0);
  } else if (opcode === OPCODE.TERMINATE && body >= 0) {
    view.setUint8(body + TERMINATE_CONTROL_OFFSET, mirrored(view.getUint8(body + TERMINATE_CONTROL_OFFSET)));
  } else if (opcode === OPCODE.ATOMIC_REQUEST && body >= 0) {
    if (view.getUint32(body + ATOMIC_REQUEST.OPCODE) !== ATOMIC_OPCODE.CMP_SWAP) return;
    view.setUint32(body + ATOMIC_REQUEST.OPCODE, CMP_SWAP);
    setMasks(view, body, 0);
  }
}

/** The bytes of a segment that has come, changed where they have to be. */
export function fromUrdma(bytes: Uint8Array, at: number, end: number): Uint8Array | null {
  if (end - at !== UNTAGGED_HEADER_OCTETS + ATOMIC_REQUEST_OCTETS) return null;
  const opcode = bytes[at + RSVDULP_OFFSET]! & RDMAP_CONTROL.OPCODE;
  if (opcode !== OPCODE.ATOMIC_REQUEST || (bytes[at]! & DDP_CONTROL.TAGGED) !== 0) return null;
  const copy = new Uint8Array(bytes.subarray(at, end));
  const view = new DataView(copy.buffer);
  const code = view.getUint32(UNTAGGED_HEADER_OCTETS + ATOMIC_REQUEST.OPCODE);
  if ((code & ATOMIC_OPCODE_MASK) !== CMP_SWAP) return null;
  view.setUint32(UNTAGGED_HEADER_OCTETS + ATOMIC_REQUEST.OPCODE, ATOMIC_OPCODE.CMP_SWAP);
  setMasks(view, UNTAGGED_HEADER_OCTETS, 0xffff_ffff);
  return copy;
}

function setMasks(view: DataView, body: number, value: number): void {
  for (const field of [ATOMIC_REQUEST.MASK, ATOMIC_REQUEST.COMPARE_MASK])
    for (const half of [0, 4]) view.setUint32(body + field + half, value);
}

/** M, D and R as 0x01, 0x02 and 0x04. */
function mirrored(control: number): number {
  return [0, 1, 2].reduce((bits, i) => bits | ((control & (TOP >> i)) === 0 ? 0 : 1 << i), 0);
}
