/**
 * Terminate messages, built and parsed: RFC 5040 4.8 and 7.1; protocol-notes 2.1 says which headers go in for
 * which error.
 */
import { copyOf } from '../base/copy.ts';
import { describeTerminateCode, isKnownTerminateCode } from '../base/terminate-codes.ts';
import { DDP_CONTROL, TAGGED_HEADER_OCTETS, UNTAGGED_HEADER_OCTETS, type Segment } from '../ddp/wire.ts';
import {
  OPCODE,
  RDMAP_CONTROL,
  READ_REQUEST_OCTETS,
  SEGMENT_LENGTH_OCTETS,
  TERMINATE_CONTROL,
  TERMINATE_CONTROL_OFFSET,
  TERMINATE_FIXED_OCTETS,
} from './wire.ts';

/** A decoded Terminate, sent or received. */
export interface TerminateInfo {
  /** `local`: we found the error and sent the Terminate. `remote`: the peer did. */
  readonly origin: 'local' | 'remote';
  /** Layer of the error (RFC 5040 4.8): 0 RDMAP, 1 DDP, 2 MPA and below. */
  readonly layer: number;
  /** Error type, four bits; its meaning depends on the layer. */
  readonly type: number;
  /** Error code, eight bits; its meaning depends on layer and type. */
  readonly code: number;
  /** `layer/type/code (name)`. */
  readonly description: string;
  /** DDP Segment Length of the segment in error, if the Terminate has one. */
  readonly segmentLength: number | undefined;
  /** Terminated DDP header, 14 or 18 bytes. */
  readonly ddpHeader: Uint8Array | undefined;
  /** Terminated RDMAP header: a Read Request header. */
  readonly rdmapHeader: Uint8Array | undefined;
}

const EMPTY: { segmentLength: undefined; ddpHeader: undefined; rdmapHeader: undefined } = {
  segmentLength: undefined,
  ddpHeader: undefined,
  rdmapHeader: undefined,
};

function base(
  origin: 'local' | 'remote',
  packed: number,
): Pick<TerminateInfo, 'origin' | 'layer' | 'type' | 'code' | 'description'> {
  const wire = packed & 0xffff;
  return {
    origin,
    layer: wire >>> 12,
    type: (wire >>> 8) & 0xf,
    code: wire & 0xff,
    description: describeTerminateCode(packed),
  };
}

/**
 * A Terminate without headers: local errors (RDMAP-072), MPA errors, and those that no segment caused
 * (RDMAP-085).
 */
export function plainTerminate(packed: number): TerminateInfo {
  return { ...base('local', packed), ...EMPTY };
}

/**
 * The Terminate for an error on an incoming segment (RDMAP-073, RDMAP-074). `delivered` says that DDP had
 * handed the message up: only then does a Read Request's own header go in. Layers and types without headers:
 * local catastrophic and MPA.
 */
export function terminateForSegment(
  packed: number,
  segment: Readonly<Segment>,
  delivered: boolean,
): TerminateInfo {
  const head = base('local', packed);
  if (head.layer === 2 || (head.layer === 0 && head.type === 0)) return { ...head, ...EMPTY };
  const octets = segment.tagged ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
  // A segment too short for its own header has none to return; its length is reported all the same.
  if (segment.length < octets) return { ...head, ...EMPTY, segmentLength: segment.length };
  const { bytes, start } = segment;
  const isReadRequest = (segment.ulpControl & RDMAP_CONTROL.OPCODE) === OPCODE.READ_REQUEST;
  const withRdmap = delivered && isReadRequest && segment.length >= octets + READ_REQUEST_OCTETS;
  return {
    ...head,
    segmentLength: segment.length,
    ddpHeader: copyOf(bytes, start, start + octets),
    rdmapHeader: withRdmap ? copyOf(bytes, start + octets, start + octets + READ_REQUEST_OCTETS) : undefined,
  };
}

/**
 * The Terminate for a Read Request whose headers were kept, advanced by the bytes already answered
 * (RDMAP-086).
 */
export function terminateForRead(
  packed: number,
  segmentLength: number,
  ddpHeader: Uint8Array,
  rdmapHeader: Uint8Array,
): TerminateInfo {
  return { ...base('local', packed), segmentLength, ddpHeader, rdmapHeader };
}

/** Bytes of the Terminate payload (after the DDP header). */
export function terminateOctets(info: TerminateInfo): number {
  return (
    TERMINATE_FIXED_OCTETS +
    (info.segmentLength === undefined ? 0 : SEGMENT_LENGTH_OCTETS) +
    (info.ddpHeader?.length ?? 0) +
    (info.rdmapHeader?.length ?? 0)
  );
}

/** Write the Terminate payload at `at`; returns its bytes. The 13 reserved bits are 0 (RDMAP-082). */
export function putTerminate(bytes: Uint8Array, at: number, info: TerminateInfo): number {
  bytes[at] = (info.layer << 4) | info.type;
  bytes[at + 1] = info.code;
  bytes[at + 2] =
    (info.segmentLength === undefined ? 0 : TERMINATE_CONTROL.SEGMENT_LENGTH) |
    (info.ddpHeader === undefined ? 0 : TERMINATE_CONTROL.DDP_HEADER) |
    (info.rdmapHeader === undefined ? 0 : TERMINATE_CONTROL.RDMAP_HEADER);
  bytes[at + 3] = 0;
  let out = at + TERMINATE_FIXED_OCTETS;
  if (info.segmentLength !== undefined) {
    bytes[out] = info.segmentLength >>> 8;
    bytes[out + 1] = info.segmentLength;
    out += SEGMENT_LENGTH_OCTETS;
  }
  for (const header of [info.ddpHeader, info.rdmapHeader]) {
    if (header === undefined) continue;
    bytes.set(header, out);
    out += header.length;
  }
  return out - at;
}

/**
 * Parse a Terminate payload. By the control bits and the T bit of the included header, never by type or
 * layer; trailing bytes and an R bit without enough bytes after it are tolerated (protocol-notes 2.3). Null
 * if it is too short to name an error (RDMAP-081).
 */
export function parseTerminate(bytes: Uint8Array, at: number, length: number): TerminateInfo | null {
  if (length < TERMINATE_FIXED_OCTETS) return null;
  const mirrored = isMirrored(bytes, at, length);
  const control = mirrored
    ? mirrorControl(bytes[at + TERMINATE_CONTROL_OFFSET]!)
    : bytes[at + TERMINATE_CONTROL_OFFSET]!;
  const end = at + length;
  let from = at + TERMINATE_FIXED_OCTETS;
  let segmentLength: number | undefined;
  let ddpHeader: Uint8Array | undefined;
  let rdmapHeader: Uint8Array | undefined;
  const hasDdp = (control & TERMINATE_CONTROL.DDP_HEADER) !== 0;
  if ((control & TERMINATE_CONTROL.SEGMENT_LENGTH) !== 0 || hasDdp) {
    if (end - from < SEGMENT_LENGTH_OCTETS) return null;
    // RDMAP-084: the field is there as soon as D is set, and means something if M is.
    if ((control & TERMINATE_CONTROL.SEGMENT_LENGTH) !== 0)
      segmentLength = (bytes[from]! << 8) | bytes[from + 1]!;
    from += SEGMENT_LENGTH_OCTETS;
  }
  if (hasDdp) {
    const octets = (bytes[from]! & DDP_CONTROL.TAGGED) !== 0 ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
    if (end - from >= octets) {
      ddpHeader = copyOf(bytes, from, from + octets);
      from += octets;
    }
  }
  if (
    (control & TERMINATE_CONTROL.RDMAP_HEADER) !== 0 &&
    ddpHeader !== undefined &&
    end - from >= READ_REQUEST_OCTETS
  ) {
    rdmapHeader = copyOf(bytes, from, from + READ_REQUEST_OCTETS);
  }
  const first = mirrored ? swapNibbles(bytes[at]!) : bytes[at]!;
  return { ...base('remote', (first << 8) | bytes[at + 1]!), segmentLength, ddpHeader, rdmapHeader };
}

// The Linux siw driver lays the header out with bit fields, which on little-endian machines puts the layer
// into the low nibble, the type into the high one, and M, D, R into the low bits of the control octet (seen
// with 6.1: a CRC error comes as 02 02 00 00). No other sender can be meant where M, D and R as we know them
// are all zero and yet octets follow that fit the mirrored bits, or where the code makes sense only mirrored.
// A version or opcode error without headers stays ambiguous and is read as the RFC says.

const MIRRORED = { SEGMENT_LENGTH: 0x01, DDP_HEADER: 0x02, RDMAP_HEADER: 0x04 } as const;
const KNOWN_CONTROL =
  TERMINATE_CONTROL.SEGMENT_LENGTH | TERMINATE_CONTROL.DDP_HEADER | TERMINATE_CONTROL.RDMAP_HEADER;

/** The byte with its nibbles exchanged: how a mirrored header carries layer and type. */
export function swapNibbles(octet: number): number {
  return ((octet & 0x0f) << 4) | (octet >>> 4);
}

/** M, D and R of a mirrored header, where they belong. */
export function mirrorControl(control: number): number {
  return (
    ((control & MIRRORED.SEGMENT_LENGTH) !== 0 ? TERMINATE_CONTROL.SEGMENT_LENGTH : 0) |
    ((control & MIRRORED.DDP_HEADER) !== 0 ? TERMINATE_CONTROL.DDP_HEADER : 0) |
    ((control & MIRRORED.RDMAP_HEADER) !== 0 ? TERMINATE_CONTROL.RDMAP_HEADER : 0)
  );
}

/** True if the Terminate payload at `at` makes sense only mirrored. */
export function isMirrored(bytes: Uint8Array, at: number, length: number): boolean {
  const control = bytes[at + TERMINATE_CONTROL_OFFSET]!;
  if ((control & KNOWN_CONTROL) !== 0) return false;
  if ((control & MIRRORED.DDP_HEADER) !== 0) {
    const headerAt = at + TERMINATE_FIXED_OCTETS + SEGMENT_LENGTH_OCTETS;
    const octets =
      (bytes[headerAt]! & DDP_CONTROL.TAGGED) !== 0 ? TAGGED_HEADER_OCTETS : UNTAGGED_HEADER_OCTETS;
    return length >= TERMINATE_FIXED_OCTETS + SEGMENT_LENGTH_OCTETS + octets;
  }
  const plain = (bytes[at]! << 8) | bytes[at + 1]!;
  return (
    control === 0 &&
    !isKnownTerminateCode(plain) &&
    isKnownTerminateCode((swapNibbles(bytes[at]!) << 8) | bytes[at + 1]!)
  );
}
