// The naive encoder: builds start-up frames, ULPDUs and streams of FPDUs octet by octet, lawful or not, to
// feed our receiver. Every field can be given a wrong value; a field not given is right. RFC 5044 4 and
// 7.1.1, RFC 6581 9, RFC 5041 4, RFC 5040 4, RFC 7306 5 and 6. Shares no code with src.

import { crcOctets, naiveCrc, octetsOf } from './octets.ts';
import type {
  NaiveAtomicRequest,
  NaiveEnhanced,
  NaiveHeader,
  NaiveReadRequest,
  NaiveSegment,
  NaiveStreamOptions,
  NaiveTerminate,
} from './types.ts';

/** A start-up frame to build. Absent: revision 1, C set, all other bits clear, PD_Length as needed. */
export interface NaiveStartupInput {
  readonly kind: 'request' | 'reply';
  /** Octets to send as key instead of the right one. */
  readonly key?: Uint8Array;
  readonly markers?: boolean;
  readonly crc?: boolean;
  readonly reject?: boolean;
  /** The S bit; set by itself when `enhanced` is given. */
  readonly enhancedData?: boolean;
  readonly reserved?: number;
  readonly revision?: number;
  /** PD_Length to claim. */
  readonly pdLength?: number;
  readonly enhanced?: NaiveEnhanced;
  readonly privateData?: Uint8Array;
}

/** The octets of a start-up frame. */
export function encodeStartup(input: NaiveStartupInput): Uint8Array {
  const text = input.kind === 'request' ? 'MPA ID Req Frame' : 'MPA ID Rep Frame';
  const key = input.key ?? Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const data = [
    ...(input.enhanced === undefined ? [] : encodeEnhanced(input.enhanced)),
    ...(input.privateData ?? []),
  ];
  let flags = (input.reserved ?? 0) & 0x0f;
  if (input.markers ?? false) flags += 0x80;
  if (input.crc ?? true) flags += 0x40;
  if (input.reject ?? false) flags += 0x20;
  if (input.enhancedData ?? input.enhanced !== undefined) flags += 0x10;
  return Uint8Array.from([
    ...key,
    flags,
    input.revision ?? 1,
    ...octetsOf(input.pdLength ?? data.length, 2),
    ...data,
  ]);
}

/** The four octets of RFC 6581 9. */
export function encodeEnhanced(enhanced: NaiveEnhanced): Uint8Array {
  const first = (enhanced.a ? 0x8000 : 0) + (enhanced.b ? 0x4000 : 0) + enhanced.ird;
  const second = (enhanced.c ? 0x8000 : 0) + (enhanced.d ? 0x4000 : 0) + enhanced.ord;
  return Uint8Array.from([...octetsOf(first, 2), ...octetsOf(second, 2)]);
}

/** One FPDU to build from a ULPDU, with the faults wanted. */
export interface NaiveFpduInput {
  readonly ulpdu: Uint8Array;
  /** ULPDU_Length to claim. */
  readonly length?: number;
  /** Value of every PAD octet. */
  readonly padValue?: number;
  /** Number of PAD octets. */
  readonly padLength?: number;
  /** Bits to flip in the CRC field, read as the usual 32-bit value. */
  readonly crcFlip?: number;
  /** FPDUPTR to send in a marker of this FPDU instead of the right one. */
  readonly pointer?: (right: number, position: number) => number;
  /** Reserved half of this FPDU's markers. */
  readonly markerReserved?: number;
}

/** The octets of some FPDUs in a row. A bare ULPDU is a faultless FPDU. With CRC off the field is zero. */
export function encodeFpdus(
  fpdus: readonly (Uint8Array | NaiveFpduInput)[],
  options: NaiveStreamOptions,
): Uint8Array {
  const out: number[] = [];
  for (const fpdu of fpdus) encodeOne(out, fpdu instanceof Uint8Array ? { ulpdu: fpdu } : fpdu, options);
  return Uint8Array.from(out);
}

function encodeOne(out: number[], input: NaiveFpduInput, options: NaiveStreamOptions): void {
  const base = options.streamOffset ?? 0;
  const body = [...octetsOf(input.length ?? input.ulpdu.length, 2), ...input.ulpdu];
  const padWanted = input.padLength ?? (4 - (body.length % 4)) % 4;
  for (let i = 0; i < padWanted; i++) body.push(input.padValue ?? 0);

  const covered: number[] = [];
  const put = (octet: number): void => {
    out.push(octet);
    covered.push(octet);
  };
  let start = -1;
  const markerIfDue = (): void => {
    const position = base + out.length;
    if (!options.markers || position % 512 !== 0) return;
    const right = start < 0 ? 0 : position - start;
    const pointer = input.pointer === undefined ? right : input.pointer(right, position);
    for (const octet of [...octetsOf(input.markerReserved ?? 0, 2), ...octetsOf(pointer, 2)]) put(octet);
  };

  markerIfDue();
  start = base + out.length;
  body.forEach((octet, i) => {
    if (i > 0) markerIfDue();
    put(octet);
  });
  markerIfDue();
  const crc = options.crc ? (naiveCrc(covered) ^ (input.crcFlip ?? 0)) >>> 0 : 0;
  out.push(...crcOctets(crc));
}

/** Header fields of a lawful single-segment message; give the ones that matter. */
type NaiveTaggedInput = { readonly opcode: number; readonly stag: number; readonly to: bigint } & Partial<
  Omit<Extract<NaiveHeader, { tagged: true }>, 'opcode' | 'stag' | 'to' | 'tagged'>
>;
type NaiveUntaggedInput = { readonly opcode: number; readonly qn: number; readonly msn: number } & Partial<
  Omit<Extract<NaiveHeader, { tagged: false }>, 'opcode' | 'qn' | 'msn' | 'tagged'>
>;

const LAWFUL = { last: true, dv: 1, ddpReserved: 0, rv: 1, rdmapReserved: 0 } as const;

/** A tagged ULPDU: 14 octets of header and the payload. */
export function taggedUlpdu(input: NaiveTaggedInput, payload: Uint8Array = new Uint8Array(0)): Uint8Array {
  return Uint8Array.from([...encodeHeader({ ...LAWFUL, ...input, tagged: true }), ...payload]);
}

/** An untagged ULPDU: 18 octets of header and whatever follows. */
export function untaggedUlpdu(
  input: NaiveUntaggedInput,
  payload: Uint8Array = new Uint8Array(0),
): Uint8Array {
  return Uint8Array.from([
    ...encodeHeader({ ...LAWFUL, invalidateStag: 0, mo: 0, ...input, tagged: false }),
    ...payload,
  ]);
}

/** The ULPDU of a segment as the decoder would give it: header, structure, then payload. */
export function encodeSegment(segment: NaiveSegment): Uint8Array {
  return Uint8Array.from([...encodeHeader(segment), ...encodeStructures(segment), ...segment.payload]);
}

function encodeStructures(segment: NaiveSegment): number[] {
  const octets: number[] = [];
  if (segment.readRequest !== undefined) octets.push(...encodeReadRequest(segment.readRequest));
  if (segment.terminate !== undefined) octets.push(...encodeTerminate(segment.terminate));
  if (segment.immediate !== undefined) octets.push(...segment.immediate);
  if (segment.atomicRequest !== undefined) octets.push(...encodeAtomicRequest(segment.atomicRequest));
  if (segment.atomicResponse !== undefined) {
    octets.push(
      ...octetsOf(segment.atomicResponse.requestId, 4),
      ...octetsOf(segment.atomicResponse.original, 8),
    );
  }
  return octets;
}

/** 14 or 18 octets of DDP header. */
export function encodeHeader(header: NaiveHeader): Uint8Array {
  const ddp = (header.tagged ? 0x80 : 0) + (header.last ? 0x40 : 0) + header.ddpReserved * 4 + header.dv;
  const rdmap = header.rv * 0x40 + header.rdmapReserved * 0x10 + header.opcode;
  if (header.tagged)
    return Uint8Array.from([ddp, rdmap, ...octetsOf(header.stag, 4), ...octetsOf(header.to, 8)]);
  const words = [header.invalidateStag, header.qn, header.msn, header.mo];
  return Uint8Array.from([ddp, rdmap, ...words.flatMap((word) => octetsOf(word, 4))]);
}

/** 28 octets. */
export function encodeReadRequest(request: NaiveReadRequest): Uint8Array {
  return Uint8Array.from([
    ...octetsOf(request.sinkStag, 4),
    ...octetsOf(request.sinkTo, 8),
    ...octetsOf(request.size, 4),
    ...octetsOf(request.sourceStag, 4),
    ...octetsOf(request.sourceTo, 8),
  ]);
}

/** 52 octets. */
export function encodeAtomicRequest(request: NaiveAtomicRequest): Uint8Array {
  return Uint8Array.from([
    ...octetsOf(request.reserved * 16 + request.aopcode, 4),
    ...octetsOf(request.requestId, 4),
    ...octetsOf(request.remoteStag, 4),
    ...[
      request.remoteTo,
      request.addOrSwap,
      request.addOrSwapMask,
      request.compare,
      request.compareMask,
    ].flatMap((value) => octetsOf(value, 8)),
  ]);
}

/** 4 to 52 octets; the fields of the structure are included, whatever the flags say. */
export function encodeTerminate(terminate: NaiveTerminate): Uint8Array {
  let flags = terminate.reserved & 0x1fff;
  if (terminate.m) flags += 0x8000;
  if (terminate.d) flags += 0x4000;
  if (terminate.r) flags += 0x2000;
  const octets = [terminate.layer * 16 + terminate.etype, terminate.code, ...octetsOf(flags, 2)];
  if (terminate.segmentLength !== undefined) octets.push(...octetsOf(terminate.segmentLength, 2));
  if (terminate.ddpHeader !== undefined) octets.push(...encodeHeader(terminate.ddpHeader));
  if (terminate.readRequest !== undefined) octets.push(...encodeReadRequest(terminate.readRequest));
  return Uint8Array.from(octets);
}
