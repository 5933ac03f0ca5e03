/**
 * FPDU framing on the sending side: RFC 5044 4.1 (layout), 4.2 and 4.3 (markers), 4.4 (CRC). One class per marker variant, chosen when
 * the connection is established.
 *
 * The caller asks `begin` for a place, writes a ULPDU there, and calls `finish` with its length; the FPDU then stands in the stage. Where the
 * framer has no need to see the payload (`lends`), the caller may write only the header, call `openLent`, lend the stage the payload, and call
 * `closeLent`.
 */
import { copyOctets, NO_BYTES, type Octets } from '../base/copy.ts';
import { WIDE_ZERO } from '../base/wide.ts';
import type { Crc32cEngine } from '../crc32c/engine.ts';
import type { RunKernel } from '../crc32c/runs.ts';
import type { Stage } from './stage.ts';
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

export abstract class Framer {
  /** Stream octets produced since full operation began; the marker phase counts from here (MPA-095). */
  position: number = WIDE_ZERO;
  /** Where the ULPDU goes between `begin` and `finish`. */
  bytes: Uint8Array;
  view: DataView;
  ulpdu = 0;
  protected readonly crc: Crc32cEngine | null;

  constructor(crc: Crc32cEngine | null) {
    this.crc = crc;
    this.bytes = NO_BYTES;
    this.view = EMPTY_VIEW;
  }

  /** Octets that an FPDU with this ULPDU may take in the stage at most. */
  abstract room(ulpduLength: number): number;
  /** A ULPDU of this length comes next. */
  abstract begin(stage: Stage, ulpduLength: number): void;
  abstract finish(stage: Stage, ulpduLength: number): void;

  /** True if a payload need not pass through the stage: no CRC is made over it and no marker stands in it. */
  get lends(): boolean {
    return false;
  }

  /** Own octets of the stage that an FPDU takes whose payload is lent, at most. */
  lentRoom(headerOctets: number): number {
    return ULPDU_LENGTH_OCTETS + headerOctets + MAX_PAD_OCTETS + CRC_OCTETS;
  }

  /** `headerOctets` of a ULPDU of this length have been written; its payload is to be lent now. */
  openLent(stage: Stage, headerOctets: number, ulpduLength: number): void {
    stage.bytes[stage.end] = ulpduLength >>> 8;
    stage.bytes[stage.end + 1] = ulpduLength;
    stage.end += ULPDU_LENGTH_OCTETS + headerOctets;
  }

  /** PAD, and zero in the place of the CRC (MPA-057). */
  closeLent(stage: Stage, ulpduLength: number): void {
    const octets = fpduOctets(ulpduLength);
    for (let left = octets - ULPDU_LENGTH_OCTETS - ulpduLength; left > 0; left--) stage.bytes[stage.end++] = 0;
    this.position += octets;
  }

  /** ULPDU_Length in front and zero PAD after (MPA-065, MPA-067); returns the octets of both with the ULPDU. */
  protected frame(bytes: Uint8Array, at: number, ulpduLength: number): number {
    bytes[at] = ulpduLength >>> 8;
    bytes[at + 1] = ulpduLength;
    const body = fpduBodyOctets(ulpduLength);
    for (let i = at + ULPDU_LENGTH_OCTETS + ulpduLength; i < at + body; i++) bytes[i] = 0;
    return body;
  }

  /** The CRC field after the covered octets, least significant octet first (MPA-069); zero where CRC is off (MPA-057). */
  protected seal(stage: Stage, from: number, to: number): void {
    const value = this.crc === null ? 0 : this.crc.updateSigned(0, stage.bytes, from, to);
    stage.view.setInt32(to, value, true);
    stage.end = to + CRC_OCTETS;
  }
}

const EMPTY_VIEW = new DataView(NO_BYTES.buffer);

/** Without markers the ULPDU is written straight into the stage. */
class PlainFramer extends Framer {
  override get lends(): boolean {
    return this.crc === null;
  }

  override room(ulpduLength: number): number {
    return fpduOctets(ulpduLength);
  }

  override begin(stage: Stage): void {
    this.bytes = stage.bytes;
    this.view = stage.view;
    this.ulpdu = stage.end + ULPDU_LENGTH_OCTETS;
  }

  override finish(stage: Stage, ulpduLength: number): void {
    const start = stage.end;
    const body = this.frame(stage.bytes, start, ulpduLength);
    this.seal(stage, start, start + body);
    this.position += stage.end - start;
  }
}

/**
 * With markers an FPDU that has any inside is written into a scratch area first and moved into the stage around them; a shorter one is
 * written where it belongs, for the two copies would cost more than all the rest.
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

  override room(ulpduLength: number): number {
    return maxFpduOctetsWithMarkers(ulpduLength);
  }

  override begin(stage: Stage, ulpduLength: number): void {
    const lead = markerPhase(this.position) === 0 ? MARKER_OCTETS : 0;
    this.#direct = markersWithin(this.position + lead, fpduOctets(ulpduLength)) === 0;
    this.bytes = this.#direct ? stage.bytes : this.#scratch.bytes;
    this.view = this.#direct ? stage.view : this.#scratch.view;
    this.ulpdu = (this.#direct ? stage.end + lead : 0) + ULPDU_LENGTH_OCTETS;
  }

  override finish(stage: Stage, ulpduLength: number): void {
    if (this.#direct) this.#finishDirect(stage, ulpduLength);
    else this.#finishSpread(stage, ulpduLength);
  }

  /** No marker inside: at most one in front, which points at 0 (MPA-097). */
  #finishDirect(stage: Stage, ulpduLength: number): void {
    const start = stage.end;
    let at = start;
    if (markerPhase(this.position) === 0) {
      stage.view.setUint32(at, 0);
      at += MARKER_OCTETS;
    }
    this.seal(stage, start, at + this.frame(stage.bytes, at, ulpduLength));
    this.position += stage.end - start;
  }

  #finishSpread(stage: Stage, ulpduLength: number): void {
    const body = this.frame(this.#scratch.bytes, 0, ulpduLength);
    const start = stage.end;
    let out = start;
    let position = this.position;
    // MPA-094, MPA-097: a marker directly in front of ULPDU_Length points at 0 and belongs to this FPDU's CRC.
    if (markerPhase(position) === 0) {
      stage.view.setUint32(out, 0);
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
          this.#runs.spread(this.#scratch.bytes, taken, stage.bytes, out, runs, position - lengthField);
          taken += runs * MARKER_RUN;
          out += runs * MARKER_SPACING;
          position += runs * MARKER_SPACING;
          if (taken === body) break;
        }
        // MPA-096, MPA-098: the distance counts earlier markers of the same FPDU. The reserved half stays 0 (MPA-100).
        stage.view.setUint32(out, position - lengthField);
        out += MARKER_OCTETS;
        position += MARKER_OCTETS;
        continue;
      }
      const run = Math.min(MARKER_SPACING - phase, body - taken);
      copyOctets(this.#scratch, taken, stage, out, run);
      taken += run;
      out += run;
      position += run;
    }
    // MPA-099: between PAD and CRC a marker is covered by the FPDU that ends here.
    if (markerPhase(position) === 0) {
      stage.view.setUint32(out, position - lengthField);
      out += MARKER_OCTETS;
    }
    this.seal(stage, start, out);
    this.position += stage.end - start;
  }
}

/** The framer for what was negotiated: with `runs`, which move octets around markers, it sets markers. */
export function createFramer(runs: RunKernel | null, crc: Crc32cEngine | null): Framer {
  return runs === null ? new PlainFramer(crc) : new MarkerFramer(crc, runs);
}
