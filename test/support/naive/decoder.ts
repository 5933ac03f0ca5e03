// The naive decoder: a second reading of the wire formats, written for obviousness, to judge what src sends.
// Takes one direction of a stream, splits it octet by octet into markers and data (RFC 5044 4.2, 4.3), cuts
// FPDUs (4.1), recomputes every marker pointer and CRC from scratch, and lists whatever a lawful sender would
// not have done. Segments are read by segments.ts. Shares no code with src.

import { crcOctets, naiveCrc, numberAt } from './octets.ts';
import { decodeSegment } from './segments.ts';
import type { NaiveEnhanced, NaiveFpdu, NaiveMarker, NaiveStartup, NaiveStreamOptions } from './types.ts';

export type { NaiveFpdu, NaiveSegment } from './types.ts';

/** A start-up frame and how many octets it took. */
export interface NaiveStartupResult {
  readonly frame: NaiveStartup;
  readonly octets: number;
  readonly problems: readonly string[];
}

/** One direction of a connection, from its start-up frame on. */
export interface NaiveCapture {
  readonly startup: NaiveStartupResult;
  readonly fpdus: readonly NaiveFpdu[];
}

/** Decode the FPDUs of a stream whose first octet stands `streamOffset` octets after the start-up frame. */
export function decodeFpdus(stream: Uint8Array, options: NaiveStreamOptions): NaiveFpdu[] {
  const reader = new CellReader(stream, options);
  const fpdus: NaiveFpdu[] = [];
  while (!reader.atEnd()) fpdus.push(decodeOne(reader, options));
  return fpdus;
}

/**
 * Decode a whole direction: the start-up frame, then FPDUs. Null when the stream does not begin with a whole
 * frame.
 */
export function decodeCapture(stream: Uint8Array, options: NaiveStreamOptions): NaiveCapture | null {
  const startup = decodeStartup(stream);
  if (startup === null) return null;
  return { startup, fpdus: decodeFpdus(stream.slice(startup.octets), options) };
}

/**
 * Decode the start-up frame at the beginning of `stream`; null when the key is neither or octets are missing.
 */
export function decodeStartup(stream: Uint8Array): NaiveStartupResult | null {
  if (stream.length < 20) return null;
  let key = '';
  for (let i = 0; i < 16; i++) key += String.fromCharCode(numberAt(stream, i, 1));
  if (key !== 'MPA ID Req Frame' && key !== 'MPA ID Rep Frame') return null;
  const flags = numberAt(stream, 16, 1);
  const revision = numberAt(stream, 17, 1);
  const pdLength = numberAt(stream, 18, 2);
  if (stream.length < 20 + pdLength) return null;
  const data = stream.slice(20, 20 + pdLength);
  const enhancedData = (flags & 0x10) !== 0;
  const hasEnhanced = enhancedData && pdLength >= 4;
  const frame: NaiveStartup = {
    kind: key === 'MPA ID Req Frame' ? 'request' : 'reply',
    markers: (flags & 0x80) !== 0,
    crc: (flags & 0x40) !== 0,
    reject: (flags & 0x20) !== 0,
    enhancedData,
    reserved: flags & 0x0f,
    revision,
    pdLength,
    ...(hasEnhanced ? { enhanced: decodeEnhanced(data) } : {}),
    privateData: hasEnhanced ? data.slice(4) : data,
  };
  return { frame, octets: 20 + pdLength, problems: startupProblems(frame) };
}

/** Decode the four octets of RFC 6581 9. */
export function decodeEnhanced(octets: Uint8Array): NaiveEnhanced {
  const first = numberAt(octets, 0, 2);
  const second = numberAt(octets, 2, 2);
  return {
    a: first >= 0x8000,
    b: first % 0x8000 >= 0x4000,
    ird: first % 0x4000,
    c: second >= 0x8000,
    d: second % 0x8000 >= 0x4000,
    ord: second % 0x4000,
  };
}

function startupProblems(frame: NaiveStartup): string[] {
  const problems: string[] = [];
  if (frame.reserved !== 0) problems.push('reserved flag bits are set');
  if (frame.kind === 'request' && frame.reject) problems.push('R is set in a Request');
  if (frame.pdLength > 512) problems.push('more than 512 octets of private data');
  if (frame.enhancedData && frame.revision < 2) problems.push('S is set below revision 2');
  if (frame.enhancedData && frame.enhanced === undefined) problems.push('S is set without the four octets');
  const enhanced = frame.enhanced;
  if (enhanced !== undefined && !enhanced.a && (enhanced.b || enhanced.c || enhanced.d)) {
    problems.push('an RTR kind is offered without A');
  }
  return problems;
}

/** Reads data octets one by one; markers that stand in between are noted, every octet goes into `covered`. */
class CellReader {
  readonly #stream: Uint8Array;
  readonly #base: number;
  readonly #markers: boolean;
  #index = 0;
  /** Octets read since the current FPDU began, markers included. */
  covered: number[] = [];
  /** Markers met since the current FPDU began. */
  seen: NaiveMarker[] = [];
  reservedSet = false;
  truncated = false;

  constructor(stream: Uint8Array, options: NaiveStreamOptions) {
    this.#stream = stream;
    this.#base = options.streamOffset ?? 0;
    this.#markers = options.markers;
  }

  atEnd(): boolean {
    return this.#index >= this.#stream.length;
  }

  position(): number {
    return this.#base + this.#index;
  }

  begin(): void {
    this.covered = [];
    this.seen = [];
    this.reservedSet = false;
    this.truncated = false;
  }

  /** Take the marker that stands here, if one does. */
  takeMarker(): void {
    if (!this.#markers || this.position() % 512 !== 0) return;
    const position = this.position();
    const octets = [this.#raw(), this.#raw(), this.#raw(), this.#raw()];
    if (this.truncated) return;
    const [high = 0, low = 0, first = 0, second = 0] = octets;
    if (high !== 0 || low !== 0) this.reservedSet = true;
    this.seen.push({ position, pointer: first * 256 + second });
  }

  /** `count` data octets; fewer when the stream ends. */
  data(count: number): number[] {
    const octets: number[] = [];
    for (let i = 0; i < count && !this.truncated; i++) {
      this.takeMarker();
      const octet = this.#raw();
      if (!this.truncated) octets.push(octet);
    }
    return octets;
  }

  #raw(): number {
    const octet = this.#stream[this.#index];
    if (octet === undefined) {
      this.truncated = true;
      return 0;
    }
    this.#index++;
    this.covered.push(octet);
    return octet;
  }
}

function decodeOne(reader: CellReader, options: NaiveStreamOptions): NaiveFpdu {
  reader.begin();
  reader.takeMarker(); // a marker in front of ULPDU_Length belongs to this FPDU
  const leading = reader.seen.length;
  const offset = reader.position();
  const lengthOctets = reader.data(2);
  const ulpduLength = lengthOctets.length === 2 ? numberAt(Uint8Array.from(lengthOctets), 0, 2) : 0;
  const ulpdu = Uint8Array.from(reader.data(ulpduLength));
  let padLength = 0;
  while ((2 + ulpduLength + padLength) % 4 !== 0) padLength++;
  const pad = reader.data(padLength);
  if (!reader.truncated) reader.takeMarker(); // a marker in front of the CRC field is covered by it
  const right = crcOctets(naiveCrc(reader.covered));
  const field = reader.data(4);
  const crcOk = field.length === 4 && field.every((octet, i) => octet === right[i]);
  const padOk = pad.every((octet) => octet === 0);

  const problems = markerProblems(reader, leading, offset);
  if (reader.truncated) problems.push('the stream ends inside this FPDU');
  if (options.crc && !crcOk) problems.push('wrong CRC');
  if (!padOk) problems.push('PAD is not zero');
  if (ulpduLength > 64768) problems.push('ULPDU longer than 64768 octets');
  const decoded = decodeSegment(ulpdu);
  return {
    offset,
    ulpduLength,
    ulpdu,
    padLength,
    markersSeen: [...reader.seen],
    crc: field.map((octet) => octet.toString(16).padStart(2, '0')).join(''),
    crcOk,
    padOk,
    segment: decoded.segment,
    problems: [...problems, ...decoded.problems],
  };
}

function markerProblems(reader: CellReader, leading: number, offset: number): string[] {
  const problems: string[] = [];
  if (reader.reservedSet) problems.push('reserved half of a marker is not zero');
  reader.seen.forEach((marker, i) => {
    const wanted = i < leading ? 0 : marker.position - offset;
    if (marker.pointer !== wanted) {
      problems.push(`marker at ${marker.position} points back ${marker.pointer} octets, not ${wanted}`);
    }
  });
  return problems;
}
