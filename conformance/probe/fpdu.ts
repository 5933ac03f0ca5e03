// FPDUs with and without markers, written with faults on request and read with everything noted: RFC 5044 4.

import { castagnoli, ieee } from './crc.ts';

const SPACING = 512;

/** How one FPDU departs from the rules. Each field is one fault. */
export interface FpduFaults {
  /** Written into ULPDU_Length; the ULPDU itself, its PAD and its CRC stay as they are. */
  readonly ulpduLength?: number;
  /** Value of the PAD octets; the CRC covers them. */
  readonly pad?: number;
  /** The value of the CRC field. */
  readonly crc?:
    | 'zero'
    | 'deadbeef'
    | 'big-endian'
    | 'ieee'
    | 'without-markers'
    | 'without-length'
    | 'without-pad';
  /**
   * Bits flipped after the CRC was computed, by octet of the FPDU as it goes out; negative offsets count from
   * the end.
   */
  readonly flip?: { readonly offset: number; readonly mask: number };
  /** Changes each marker's two halves before the CRC is computed; null leaves the marker out. */
  readonly marker?: (marker: {
    readonly pointer: number;
    readonly reserved: number;
    readonly position: number;
  }) => { readonly pointer: number; readonly reserved: number } | null;
}

/** Writes one direction of full operation. */
export class FpduWriter {
  readonly markers: boolean;
  readonly crc: boolean;
  /** Stream octets since full operation began. */
  position = 0;

  constructor(markers: boolean, crc: boolean) {
    this.markers = markers;
    this.crc = crc;
  }

  /** The octets of one FPDU around `ulpdu`. */
  encode(ulpdu: Uint8Array, faults: FpduFaults = {}): Uint8Array {
    const padLength = -(2 + ulpdu.length) & 3;
    const body = new Uint8Array(2 + ulpdu.length + padLength);
    const announced = faults.ulpduLength ?? ulpdu.length;
    body[0] = announced >>> 8;
    body[1] = announced;
    body.set(ulpdu, 2);
    body.fill(faults.pad ?? 0, 2 + ulpdu.length);
    const { covered, plain } = this.#withMarkers(body, faults);
    const out = new Uint8Array(covered.length + 4);
    out.set(covered);
    out.set(this.#crcField(covered, plain, padLength, faults), covered.length);
    if (faults.flip !== undefined) {
      const at = faults.flip.offset < 0 ? out.length + faults.flip.offset : faults.flip.offset;
      out[at]! ^= faults.flip.mask;
    }
    this.position += out.length;
    return out;
  }

  #withMarkers(body: Uint8Array, faults: FpduFaults): { covered: Uint8Array; plain: Uint8Array } {
    if (!this.markers) return { covered: body, plain: body };
    const out: number[] = [];
    const put = (pointer: number): void => {
      const at = this.position + out.length;
      const chosen =
        faults.marker === undefined
          ? { pointer, reserved: 0 }
          : faults.marker({ pointer, reserved: 0, position: at });
      if (chosen === null) return;
      out.push(chosen.reserved >>> 8, chosen.reserved & 0xff, chosen.pointer >>> 8, chosen.pointer & 0xff);
    };
    if (this.position % SPACING === 0) put(0);
    const start = out.length;
    for (let i = 0; i < body.length; i += 4) {
      if (i > 0 && (this.position + out.length) % SPACING === 0) put(out.length - start);
      out.push(...body.subarray(i, i + 4));
    }
    if ((this.position + out.length) % SPACING === 0) put(out.length - start);
    return { covered: Uint8Array.from(out), plain: body };
  }

  #crcField(covered: Uint8Array, plain: Uint8Array, padLength: number, faults: FpduFaults): Uint8Array {
    const field = new Uint8Array(4);
    const view = new DataView(field.buffer);
    switch (faults.crc) {
      case 'zero':
        break;
      case 'deadbeef':
        view.setUint32(0, 0xdead_beef);
        break;
      case 'big-endian':
        view.setUint32(0, castagnoli(covered));
        break;
      case 'ieee':
        view.setUint32(0, ieee(covered), true);
        break;
      case 'without-markers':
        view.setUint32(0, castagnoli(plain), true);
        break;
      case 'without-length':
        view.setUint32(0, castagnoli(covered.subarray(2)), true);
        break;
      case 'without-pad':
        view.setUint32(0, castagnoli(covered.subarray(0, covered.length - padLength)), true);
        break;
      default:
        if (this.crc) view.setUint32(0, castagnoli(covered), true);
    }
    return field;
  }
}

/** A marker as received. */
interface ReceivedMarker {
  readonly position: number;
  readonly reserved: number;
  readonly pointer: number;
  /** The value that the position and the FPDU around it call for. */
  readonly expected: number;
}

/** An FPDU as received. */
export interface ReceivedFpdu {
  /** Stream position of ULPDU_Length. */
  readonly start: number;
  readonly ulpdu: Uint8Array;
  readonly pad: Uint8Array;
  readonly markers: readonly ReceivedMarker[];
  readonly crc: number;
  readonly crcGood: boolean;
  /** All its octets, markers and CRC included. */
  readonly raw: Uint8Array;
}

/** Reads one direction of full operation. */
export class FpduReader {
  readonly markers: boolean;
  #pending: Uint8Array = new Uint8Array(0);
  #position = 0;

  constructor(markers: boolean) {
    this.markers = markers;
  }

  /** Stream octets not yet part of a complete FPDU. */
  get pending(): Uint8Array {
    return this.#pending;
  }

  push(bytes: Uint8Array): void {
    const joined = new Uint8Array(this.#pending.length + bytes.length);
    joined.set(this.#pending);
    joined.set(bytes, this.#pending.length);
    this.#pending = joined;
  }

  /** The next whole FPDU, or null. */
  next(): ReceivedFpdu | null {
    const bytes = this.#pending;
    const markers: { at: number; value: number }[] = [];
    const plain: number[] = [];
    let at = 0;
    let start = 0;
    const markerHere = (): boolean => this.markers && (this.#position + at) % SPACING === 0;
    const takeMarker = (): boolean => {
      if (bytes.length < at + 4) return false;
      markers.push({ at, value: u32(bytes, at) });
      at += 4;
      return true;
    };
    if (markerHere() && !takeMarker()) return null;
    start = at;
    if (bytes.length < at + 2) return null;
    const length = (bytes[at]! << 8) | bytes[at + 1]!;
    const padLength = -(2 + length) & 3;
    const body = 2 + length + padLength;
    if (!this.markers) {
      if (bytes.length < at + body + 4) return null;
      return this.#finish(start, length, bytes.subarray(at, at + body), at + body, markers);
    }
    while (plain.length < body) {
      if (plain.length > 0 && markerHere() && !takeMarker()) return null;
      if (bytes.length < at + 4) return null;
      plain.push(bytes[at]!, bytes[at + 1]!, bytes[at + 2]!, bytes[at + 3]!);
      at += 4;
    }
    if (markerHere() && !takeMarker()) return null;
    if (bytes.length < at + 4) return null;
    return this.#finish(start, length, Uint8Array.from(plain), at, markers);
  }

  #finish(
    start: number,
    length: number,
    body: Uint8Array,
    crcAt: number,
    markers: { at: number; value: number }[],
  ): ReceivedFpdu {
    const raw = this.#pending.slice(0, crcAt + 4);
    const crc = new DataView(raw.buffer).getUint32(crcAt, true);
    const fpdu: ReceivedFpdu = {
      start: this.#position + start,
      ulpdu: body.slice(2, 2 + length),
      pad: body.slice(2 + length),
      markers: markers.map(({ at, value }) => ({
        position: this.#position + at,
        reserved: value >>> 16,
        pointer: value & 0xffff,
        expected: at < start ? 0 : at - start,
      })),
      crc,
      crcGood: castagnoli(raw.subarray(0, crcAt)) === crc,
      raw,
    };
    this.#position += raw.length;
    this.#pending = this.#pending.slice(raw.length);
    return fpdu;
  }
}

function u32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>> 0;
}
