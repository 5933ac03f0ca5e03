/**
 * FPDU framing on the sending side: RFC 5044 4.1 (layout), 4.2 and 4.3 (markers), 4.4 (CRC). One class per
 * marker variant, chosen when the connection is established.
 *
 * {@link UlpduWriter} has the order of calls. The finished FPDU stands in the transmit buffer.
 */
import { copyOctets, NO_BYTES, type Octets } from '../base/copy.ts';
import { DOUBLE_ZERO } from '../base/double-zero.ts';
import type { Crc32cEngine } from '../crc32c/engine.ts';
import type { RunKernel } from '../crc32c/runs.ts';
import type { UlpduWriter } from '../llp/lower-layer.ts';
import { ZERO_COPY_WRITE_OCTETS } from './transmit-buffer-pool.ts';
import type { TransmitBuffer } from './transmit-buffer.ts';
import {
  CRC_OCTETS,
  fpduBodyOctets,
  fpduOctets,
  MARKER_OCTETS,
  markerPhase,
  MARKER_RUN,
  MARKER_SPACING,
  markersWithin,
  MAX_PAD_OCTETS,
  maxFpduOctetsWithMarkers,
  ULPDU_LENGTH_OCTETS,
} from './wire.ts';

/** The target before the first `begin`. */
const NOWHERE: Octets = { bytes: NO_BYTES, view: new DataView(NO_BYTES.buffer) };

export abstract class Framer implements UlpduWriter {
  /** Stream bytes produced since full operation began; the marker phase counts from here (MPA-095). */
  position: number = DOUBLE_ZERO;
  /** Where the ULPDU goes between `begin` and `finish`. */
  target: Octets = NOWHERE;
  at = 0;
  protected readonly crc: Crc32cEngine | null;

  constructor(crc: Crc32cEngine | null) {
    this.crc = crc;
  }

  /** Bytes of the transmit buffer that an FPDU with this ULPDU may take at most. */
  abstract room(ulpduLength: number): number;
  /** A ULPDU of this length comes next. */
  abstract begin(buffer: TransmitBuffer, ulpduLength: number): void;
  abstract finish(buffer: TransmitBuffer, ulpduLength: number): void;

  /** True if this framer sets markers. */
  get markers(): boolean {
    return false;
  }

  /** True if a payload need not pass through the buffer: no CRC is made over it and it holds no marker. */
  get zeroCopy(): boolean {
    return false;
  }

  fits(buffer: TransmitBuffer, ulpduLength: number): boolean {
    return buffer.end + this.room(ulpduLength) <= buffer.bytes.length;
  }

  fitsZeroCopy(buffer: TransmitBuffer, headerOctets: number, payloadOctets: number): boolean {
    const own = ULPDU_LENGTH_OCTETS + headerOctets + MAX_PAD_OCTETS + CRC_OCTETS;
    if (buffer.end + own > buffer.bytes.length) return false;
    return buffer.octets === 0 || buffer.octets + own + payloadOctets <= ZERO_COPY_WRITE_OCTETS;
  }

  /** ULPDU_Length, the payload where it lies, PAD, and zero in the place of the CRC (MPA-057). */
  finishZeroCopy(
    buffer: TransmitBuffer,
    headerOctets: number,
    bytes: Uint8Array,
    from: number,
    payloadOctets: number,
  ): void {
    this.#lengthInFront(buffer, headerOctets, payloadOctets);
    buffer.addView(bytes, from, payloadOctets);
    this.#padBehind(buffer, headerOctets + payloadOctets);
  }

  finishGathered(buffer: TransmitBuffer, headerOctets: number, pieces: readonly Uint8Array[]): void {
    let payloadOctets = 0;
    for (const piece of pieces) payloadOctets += piece.length;
    this.#lengthInFront(buffer, headerOctets, payloadOctets);
    for (const piece of pieces) buffer.addView(piece, 0, piece.length);
    this.#padBehind(buffer, headerOctets + payloadOctets);
  }

  #lengthInFront(buffer: TransmitBuffer, headerOctets: number, payloadOctets: number): void {
    const ulpduLength = headerOctets + payloadOctets;
    buffer.bytes[buffer.end] = ulpduLength >>> 8;
    buffer.bytes[buffer.end + 1] = ulpduLength;
    buffer.end += ULPDU_LENGTH_OCTETS + headerOctets;
  }

  #padBehind(buffer: TransmitBuffer, ulpduLength: number): void {
    const octets = fpduOctets(ulpduLength);
    for (let left = octets - ULPDU_LENGTH_OCTETS - ulpduLength; left > 0; left--)
      buffer.bytes[buffer.end++] = 0;
    this.position += octets;
  }

  /**
   * ULPDU_Length in front and zero PAD after (MPA-065, MPA-067); returns the bytes of both with the ULPDU.
   */
  protected frame(bytes: Uint8Array, at: number, ulpduLength: number): number {
    bytes[at] = ulpduLength >>> 8;
    bytes[at + 1] = ulpduLength;
    const body = fpduBodyOctets(ulpduLength);
    for (let i = at + ULPDU_LENGTH_OCTETS + ulpduLength; i < at + body; i++) bytes[i] = 0;
    return body;
  }

  /**
   * The CRC field after the covered bytes, least significant byte first (MPA-069); zero where CRC is off
   * (MPA-057).
   */
  protected seal(buffer: TransmitBuffer, from: number, to: number): void {
    const value = this.crc === null ? 0 : this.crc.updateSigned(0, buffer.bytes, from, to);
    buffer.view.setInt32(to, value, true);
    buffer.end = to + CRC_OCTETS;
  }
}

/** Without markers the ULPDU is written straight into the transmit buffer. */
class PlainFramer extends Framer {
  override get zeroCopy(): boolean {
    return this.crc === null;
  }

  override room(ulpduLength: number): number {
    return fpduOctets(ulpduLength);
  }

  override begin(buffer: TransmitBuffer): void {
    this.target = buffer;
    this.at = buffer.end + ULPDU_LENGTH_OCTETS;
  }

  /** `frame` and `seal` in one, which V8 so compiles into its caller: some 3 % of a Write of 64 bytes. */
  override finish(buffer: TransmitBuffer, ulpduLength: number): void {
    const { bytes, end: start } = buffer;
    bytes[start] = ulpduLength >>> 8;
    bytes[start + 1] = ulpduLength;
    const to = start + fpduBodyOctets(ulpduLength);
    for (let i = start + ULPDU_LENGTH_OCTETS + ulpduLength; i < to; i++) bytes[i] = 0;
    const crc = this.crc === null ? 0 : this.crc.updateSigned(0, bytes, start, to);
    buffer.view.setInt32(to, crc, true);
    buffer.end = to + CRC_OCTETS;
    this.position += buffer.end - start;
  }
}

/** The same for a port that is to get no payload in pieces. */
class CopyingFramer extends PlainFramer {
  override get zeroCopy(): boolean {
    return false;
  }
}

/**
 * With markers an FPDU that has any inside is written into a scratch area first and moved into the buffer
 * around them; a shorter one is written where it belongs, for the two copies would cost more than all the
 * rest (bench/micro/codec.ts, markers with short ULPDUs).
 */
class MarkerFramer extends Framer {
  readonly #scratch: Octets;
  /** The FPDU that has been begun has no marker inside. */
  #direct = false;
  readonly #runs: RunKernel;

  constructor(crc: Crc32cEngine | null, runs: RunKernel) {
    super(crc);
    this.#runs = runs;
    const bytes = runs.spreadScratch();
    this.#scratch = { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength) };
  }

  override get markers(): boolean {
    return true;
  }

  override room(ulpduLength: number): number {
    return maxFpduOctetsWithMarkers(ulpduLength);
  }

  override begin(buffer: TransmitBuffer, ulpduLength: number): void {
    const lead = markerPhase(this.position) === 0 ? MARKER_OCTETS : 0;
    this.#direct = markersWithin(this.position + lead, fpduOctets(ulpduLength)) === 0;
    this.target = this.#direct ? buffer : this.#scratch;
    this.at = (this.#direct ? buffer.end + lead : 0) + ULPDU_LENGTH_OCTETS;
  }

  override finish(buffer: TransmitBuffer, ulpduLength: number): void {
    if (this.#direct) this.#finishDirect(buffer, ulpduLength);
    else this.#finishSpread(buffer, ulpduLength);
  }

  /** No marker inside: at most one in front, which points at 0 (MPA-097). */
  #finishDirect(buffer: TransmitBuffer, ulpduLength: number): void {
    const start = buffer.end;
    let at = start;
    if (markerPhase(this.position) === 0) {
      buffer.view.setUint32(at, 0);
      at += MARKER_OCTETS;
    }
    this.seal(buffer, start, at + this.frame(buffer.bytes, at, ulpduLength));
    this.position += buffer.end - start;
  }

  #finishSpread(buffer: TransmitBuffer, ulpduLength: number): void {
    const body = this.frame(this.#scratch.bytes, 0, ulpduLength);
    const start = buffer.end;
    let out = start;
    let position = this.position;
    // MPA-094, MPA-097: a marker directly in front of ULPDU_Length points at 0 and belongs to this FPDU's
    // CRC.
    if (markerPhase(position) === 0) {
      buffer.view.setUint32(out, 0);
      out += MARKER_OCTETS;
      position += MARKER_OCTETS;
    }
    const lengthField = position;
    let taken = 0;
    while (taken < body) {
      const phase = markerPhase(position);
      if (phase === 0) {
        const runs = Math.floor((body - taken) / MARKER_RUN);
        if (runs > 0) {
          this.#runs.insertMarkers(
            this.#scratch.bytes,
            taken,
            buffer.bytes,
            out,
            runs,
            position - lengthField,
          );
          taken += runs * MARKER_RUN;
          out += runs * MARKER_SPACING;
          position += runs * MARKER_SPACING;
        }
        // MPA-096, MPA-098: the distance counts earlier markers of the same FPDU. The reserved half stays 0
        // (MPA-100).
        buffer.view.setUint32(out, position - lengthField);
        out += MARKER_OCTETS;
        position += MARKER_OCTETS;
        continue;
      }
      const run = Math.min(MARKER_SPACING - phase, body - taken);
      copyOctets(this.#scratch, taken, buffer, out, run);
      taken += run;
      out += run;
      position += run;
    }
    // MPA-099: between PAD and CRC a marker is covered by the FPDU that ends here.
    if (markerPhase(position) === 0) {
      buffer.view.setUint32(out, position - lengthField);
      out += MARKER_OCTETS;
    }
    this.seal(buffer, start, out);
    this.position += buffer.end - start;
  }
}

/**
 * The framer for a start-up's result: with `runs`, which move bytes around markers, it sets markers. One
 * that `copies` lends no payload to a write.
 */
export function createFramer(
  runs: RunKernel | null,
  crc: Crc32cEngine | null,
  copies: boolean = false,
): Framer {
  if (runs !== null) return new MarkerFramer(crc, runs);
  return copies ? new CopyingFramer(crc) : new PlainFramer(crc);
}
