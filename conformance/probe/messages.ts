// DDP segments and the RDMAP messages in them, built octet by octet and taken apart again: RFC 5041 4, RFC
// 5040 4, RFC 7306 4 to 6. Builders are lenient on purpose: every field can be given a value that the RFCs
// forbid. Nothing here judges lawfulness.

import { DDP_CONTROL, FIRST_MSN, OPCODE, QN } from './wire.ts';

const RV_1 = 0x40;
const DV_1 = 0x01;

/** Fields every segment has. Absent ones take the lawful value. */
interface CommonFields {
  readonly opcode: number;
  readonly last?: boolean | undefined;
  readonly payload?: Uint8Array | undefined;
  /** The whole DDP control octet, instead of T, L and DV. */
  readonly ddpControl?: number | undefined;
  /** The whole RDMAP control octet, instead of RV and opcode. */
  readonly rdmapControl?: number | undefined;
}

interface TaggedFields extends CommonFields {
  readonly stag: number;
  readonly to: bigint;
}

interface UntaggedFields extends CommonFields {
  readonly qn: number;
  readonly msn: number;
  readonly mo?: number | undefined;
  /** The Invalidate STag field: RsvdULP octets 1 to 4. */
  readonly word?: number | undefined;
}

const NOTHING = new Uint8Array(0);

/** A tagged segment (14-octet header). */
export function tagged(fields: TaggedFields): Uint8Array {
  const { opcode, stag, to, last = true, payload = NOTHING } = fields;
  const bytes = new Uint8Array(14 + payload.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = fields.ddpControl ?? DDP_CONTROL.TAGGED | (last ? DDP_CONTROL.LAST : 0) | DV_1;
  bytes[1] = fields.rdmapControl ?? RV_1 | opcode;
  view.setUint32(2, stag);
  view.setBigUint64(6, to);
  bytes.set(payload, 14);
  return bytes;
}

/** An untagged segment (18-octet header). */
export function untagged(fields: UntaggedFields): Uint8Array {
  const { opcode, qn, msn, mo = 0, word = 0, last = true, payload = NOTHING } = fields;
  const bytes = new Uint8Array(18 + payload.length);
  const view = new DataView(bytes.buffer);
  bytes[0] = fields.ddpControl ?? (last ? DDP_CONTROL.LAST : 0) | DV_1;
  bytes[1] = fields.rdmapControl ?? RV_1 | opcode;
  view.setUint32(2, word);
  view.setUint32(6, qn);
  view.setUint32(10, msn);
  view.setUint32(14, mo);
  bytes.set(payload, 18);
  return bytes;
}

export interface ReadRequestFields {
  readonly sinkStag: number;
  readonly sinkTo: bigint;
  readonly size: number;
  readonly sourceStag: number;
  readonly sourceTo: bigint;
}

/** The 28 octets of a Read Request header. */
export function readRequestHeader(fields: ReadRequestFields): Uint8Array {
  const bytes = new Uint8Array(28);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, fields.sinkStag);
  view.setBigUint64(4, fields.sinkTo);
  view.setUint32(12, fields.size);
  view.setUint32(16, fields.sourceStag);
  view.setBigUint64(20, fields.sourceTo);
  return bytes;
}

/** Take a Read Request header apart; null when octets are missing. */
export function parseReadRequest(bytes: Uint8Array): ReadRequestFields | null {
  if (bytes.length < 28) return null;
  const view = viewOf(bytes);
  return {
    sinkStag: view.getUint32(0),
    sinkTo: view.getBigUint64(4),
    size: view.getUint32(12),
    sourceStag: view.getUint32(16),
    sourceTo: view.getBigUint64(20),
  };
}

export interface AtomicRequestFields {
  readonly aopcode: number;
  readonly id: number;
  readonly stag: number;
  readonly to: bigint;
  readonly data: bigint;
  readonly mask?: bigint;
  readonly compare?: bigint;
  readonly compareMask?: bigint;
  /** The 28 reserved bits, in place. */
  readonly reserved?: number;
}

const ALL_ONES = 0xffff_ffff_ffff_ffffn;

/** The 52 octets of an Atomic Request header. */
export function atomicRequestHeader(fields: AtomicRequestFields): Uint8Array {
  const bytes = new Uint8Array(52);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, ((fields.reserved ?? 0) | fields.aopcode) >>> 0);
  view.setUint32(4, fields.id);
  view.setUint32(8, fields.stag);
  view.setBigUint64(12, fields.to);
  view.setBigUint64(20, fields.data);
  view.setBigUint64(28, fields.mask ?? 0n);
  view.setBigUint64(36, fields.compare ?? 0n);
  view.setBigUint64(44, fields.compareMask ?? ALL_ONES);
  return bytes;
}

/** Take an Atomic Request header apart; null when octets are missing. */
export function parseAtomicRequest(bytes: Uint8Array): Required<AtomicRequestFields> | null {
  if (bytes.length < 52) return null;
  const view = viewOf(bytes);
  const first = view.getUint32(0);
  return {
    aopcode: first & 0xf,
    reserved: (first & 0xffff_fff0) >>> 0,
    id: view.getUint32(4),
    stag: view.getUint32(8),
    to: view.getBigUint64(12),
    data: view.getBigUint64(20),
    mask: view.getBigUint64(28),
    compare: view.getBigUint64(36),
    compareMask: view.getBigUint64(44),
  };
}

/** The 12 octets of an Atomic Response header. */
export function atomicResponseHeader(id: number, original: bigint): Uint8Array {
  const bytes = new Uint8Array(12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, id);
  view.setBigUint64(4, original);
  return bytes;
}

export interface TerminateFields {
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
  readonly m: boolean;
  readonly d: boolean;
  readonly r: boolean;
  /** The 13 reserved bits. */
  readonly reserved: number;
  readonly segmentLength: number | null;
  /** The included DDP header, 14 or 18 octets. */
  readonly ddpHeader: Uint8Array | null;
  /** The included Read Request header. */
  readonly rdmapHeader: Uint8Array | null;
  /** Octets after everything that the flags announce. */
  readonly trailing: number;
}

/** A packed code, `layer<<12 | type<<8 | code`. */
export function packedCode(terminate: TerminateFields): number {
  return (terminate.layer << 12) | (terminate.etype << 8) | terminate.code;
}

/**
 * Take a Terminate's payload apart by its flags and the T bit of the included header; null when octets are
 * missing.
 */
export function parseTerminate(bytes: Uint8Array): TerminateFields | null {
  if (bytes.length < 4) return null;
  const view = viewOf(bytes);
  const word = view.getUint32(0);
  const m = (word & 0x8000) !== 0;
  const d = (word & 0x4000) !== 0;
  const r = (word & 0x2000) !== 0;
  let at = 4;
  let segmentLength: number | null = null;
  if (m || d) {
    if (bytes.length < at + 2) return null;
    segmentLength = view.getUint16(at);
    at += 2;
  }
  let ddpHeader: Uint8Array | null = null;
  if (d) {
    if (bytes.length <= at) return null;
    const octets = (bytes[at]! & DDP_CONTROL.TAGGED) !== 0 ? 14 : 18;
    if (bytes.length < at + octets) return null;
    ddpHeader = bytes.slice(at, at + octets);
    at += octets;
  }
  let rdmapHeader: Uint8Array | null = null;
  if (r && bytes.length >= at + 28) {
    rdmapHeader = bytes.slice(at, at + 28);
    at += 28;
  }
  return {
    layer: word >>> 28,
    etype: (word >>> 24) & 0xf,
    code: (word >>> 16) & 0xff,
    m,
    d,
    r,
    reserved: word & 0x1fff,
    segmentLength,
    ddpHeader,
    rdmapHeader,
    trailing: bytes.length - at,
  };
}

/** A Terminate without headers, for the probe to send. */
export function terminateHeader(code: number, control = 0): Uint8Array {
  return Uint8Array.of(code >>> 8, code, control >>> 8, control);
}

/** A segment taken apart. Fields of the other kind of header are zero. */
export interface ParsedSegment {
  readonly ulpdu: Uint8Array;
  readonly tagged: boolean;
  readonly last: boolean;
  readonly ddpReserved: number;
  readonly dv: number;
  readonly rv: number;
  readonly rdmapReserved: number;
  readonly opcode: number;
  readonly stag: number;
  readonly to: bigint;
  readonly word: number;
  readonly qn: number;
  readonly msn: number;
  readonly mo: number;
  readonly header: Uint8Array;
  readonly payload: Uint8Array;
}

/** Take a ULPDU apart; null when it is shorter than its header. */
export function parseSegment(ulpdu: Uint8Array): ParsedSegment | null {
  if (ulpdu.length < 2) return null;
  const control = ulpdu[0]!;
  const isTagged = (control & DDP_CONTROL.TAGGED) !== 0;
  const octets = isTagged ? 14 : 18;
  if (ulpdu.length < octets) return null;
  const view = viewOf(ulpdu);
  const ulp = ulpdu[1]!;
  return {
    ulpdu,
    tagged: isTagged,
    last: (control & DDP_CONTROL.LAST) !== 0,
    ddpReserved: control & DDP_CONTROL.RESERVED,
    dv: control & DDP_CONTROL.VERSION,
    rv: ulp >>> 6,
    rdmapReserved: ulp & 0x30,
    opcode: ulp & 0x0f,
    stag: isTagged ? view.getUint32(2) : 0,
    to: isTagged ? view.getBigUint64(6) : 0n,
    word: isTagged ? 0 : view.getUint32(2),
    qn: isTagged ? 0 : view.getUint32(6),
    msn: isTagged ? 0 : view.getUint32(10),
    mo: isTagged ? 0 : view.getUint32(14),
    header: ulpdu.slice(0, octets),
    payload: ulpdu.slice(octets),
  };
}

/** A lawful Terminate of the probe: untagged, QN 2, MSN 1, MO 0, L. */
export function terminate(code: number, control = 0): Uint8Array {
  return untagged({
    opcode: OPCODE.TERMINATE,
    qn: QN.TERMINATE,
    msn: FIRST_MSN,
    payload: terminateHeader(code, control),
  });
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
