/**
 * FPDUs in a run of octets: RFC 5044 4.1 to 4.4. Says where an FPDU ends, takes its markers out, and checks
 * marker pointers, PAD and CRC. Unlike the product's deframer it stops at nothing and names everything that
 * is wrong.
 */
import { defaultCrc32cEngine } from '../../crc32c/engine.ts';
import {
  CRC_OCTETS,
  FPDUPTR_MASK,
  MARKER_OCTETS,
  MARKER_SPACING,
  MAX_MULPDU,
  MAX_ULPDU_FIELD,
  ULPDU_LENGTH_OCTETS,
  fpduBodyOctets,
  markersWithin,
  maxFpduOctetsWithMarkers,
  padOctets,
} from '../../mpa/wire.ts';
import { problem, type Problem } from './problems.ts';
import type { MarkerSeen } from './types.ts';

/** How one direction is framed. */
export interface Framing {
  readonly markers: boolean;
  /** Stream position of any marker, modulo 512; 0 where the start-up frame was captured. */
  readonly markerPhase: number;
  readonly crc: 'on' | 'off' | 'unknown';
}

/** The largest FPDU, its markers included. */
export const MAX_FPDU_OCTETS: number = maxFpduOctetsWithMarkers(MAX_ULPDU_FIELD);

export interface FpduSpan {
  /** Bytes from the leading marker, if any, to the end of the CRC field. */
  readonly total: number;
  /** Bytes of the marker directly in front of ULPDU_Length: 4 or 0. */
  readonly lead: number;
  readonly ulpduLength: number;
}

/**
 * Measure the FPDU at `bytes[at]`; undefined while ULPDU_Length is not there. `position` is the stream
 * position of `bytes[at]`.
 */
export function measureFpdu(
  bytes: Uint8Array,
  at: number,
  available: number,
  position: number,
  framing: Framing,
): FpduSpan | undefined {
  const lead = framing.markers && phaseOf(position, framing) === 0 ? MARKER_OCTETS : 0;
  if (available < lead + ULPDU_LENGTH_OCTETS) return undefined;
  const ulpduLength = (bytes[at + lead]! << 8) | bytes[at + lead + 1]!;
  const unmarked = fpduBodyOctets(ulpduLength) + CRC_OCTETS;
  const inside = framing.markers ? markersWithin(phaseOf(position + lead, framing), unmarked) : 0;
  return { total: lead + unmarked + MARKER_OCTETS * inside, lead, ulpduLength };
}

function phaseOf(position: number, framing: Framing): number {
  return (position - framing.markerPhase + MARKER_SPACING) % MARKER_SPACING;
}

/** The CRC field and the CRC32c of what it covers: everything from the leading marker to the field itself. */
export function crcOf(bytes: Uint8Array, at: number, total: number): { field: number; computed: number } {
  const end = at + total - CRC_OCTETS;
  const field =
    (bytes[end]! | (bytes[end + 1]! << 8) | (bytes[end + 2]! << 16) | (bytes[end + 3]! << 24)) >>> 0;
  return { field, computed: defaultCrc32cEngine().update(0, bytes, at, end) >>> 0 };
}

interface TakenFpdu {
  readonly ulpdu: Uint8Array;
  readonly padLength: number;
  readonly markers: readonly MarkerSeen[];
  readonly problems: Problem[];
}

/**
 * Take the FPDU `raw` (exactly its span) apart. `position` is the stream position of its first byte; markers
 * after the first `captured` bytes are not there to be judged.
 */
export function takeFpdu(
  raw: Uint8Array,
  span: FpduSpan,
  position: number,
  framing: Framing,
  captured: number = raw.length,
): TakenFpdu {
  const problems: Problem[] = [];
  const markers: MarkerSeen[] = [];
  const start = position + span.lead;
  const body = new Uint8Array(fpduBodyOctets(span.ulpduLength));
  const end = raw.length - CRC_OCTETS;
  let out = 0;
  for (let at = 0; at < end; ) {
    const phase = framing.markers ? phaseOf(position + at, framing) : 1;
    if (phase === 0) {
      if (at + MARKER_OCTETS <= captured) markers.push(takeMarker(raw, at, position + at, start, problems));
      at += MARKER_OCTETS;
      continue;
    }
    const run = Math.min(end - at, framing.markers ? MARKER_SPACING - phase : end);
    body.set(raw.subarray(at, at + run), out);
    out += run;
    at += run;
  }
  const padLength = padOctets(span.ulpduLength);
  const ulpduEnd = ULPDU_LENGTH_OCTETS + span.ulpduLength;
  if (body.subarray(ulpduEnd).some((octet) => octet !== 0)) {
    problems.push(
      problem('MPA-067', `PAD bytes are not 0: ${Array.from(body.subarray(ulpduEnd), hexOf).join(' ')}`),
    );
  }
  if (span.ulpduLength > MAX_MULPDU) {
    problems.push(problem('MPA-076', `ULPDU_Length ${span.ulpduLength} is above ${MAX_MULPDU}`));
  }
  return { ulpdu: body.subarray(ULPDU_LENGTH_OCTETS, ulpduEnd), padLength, markers, problems };
}

function takeMarker(
  raw: Uint8Array,
  at: number,
  position: number,
  start: number,
  problems: Problem[],
): MarkerSeen {
  const reserved = (raw[at]! << 8) | raw[at + 1]!;
  const pointer = (raw[at + 2]! << 8) | raw[at + 3]!;
  const right = position < start ? 0 : position - start;
  if (reserved !== 0 || (pointer & ~FPDUPTR_MASK) !== 0) {
    problems.push(
      problem(
        'MPA-100',
        `marker at ${position}: reserved half 0x${reserved.toString(16)}, low pointer bits ${pointer & 3}`,
      ),
    );
  }
  // Past 65535 the field cannot hold the distance (16 bits, RFC 5044 4.3); it is compared modulo 2^16 then.
  if ((pointer & FPDUPTR_MASK) !== (right & FPDUPTR_MASK)) {
    const id = right === 0 ? 'MPA-097' : 'MPA-096';
    problems.push(
      problem(id, `marker at ${position} has FPDUPTR ${pointer}, ULPDU_Length is ${right} bytes before it`),
    );
  }
  return { position, pointer, reserved };
}

function hexOf(octet: number): string {
  return octet.toString(16).padStart(2, '0');
}
