// MPA start-up frames with every field open to abuse: RFC 5044 7.1.1, RFC 6581 6 and 9.

import { REPLY_KEY, REQUEST_KEY } from './wire.ts';

export interface Enhanced {
  readonly a: boolean;
  readonly b: boolean;
  readonly c: boolean;
  readonly d: boolean;
  readonly ird: number;
  readonly ord: number;
}

/** The fields of a frame. Absent fields take the value that the others imply. */
export interface StartupFields {
  readonly kind: 'request' | 'reply';
  readonly markers?: boolean | undefined;
  readonly crc?: boolean | undefined;
  readonly reject?: boolean | undefined;
  readonly revision: number;
  /** The four enhanced octets, which also set S. */
  readonly enhanced?: Enhanced | null | undefined;
  readonly privateData?: Uint8Array | undefined;
  /** Bits or-ed into the flags octet. */
  readonly extraFlags?: number | undefined;
  /** Written into PD_Length whatever follows. */
  readonly pdLength?: number | undefined;
  readonly key?: Uint8Array | undefined;
}

/** The octets of a start-up frame. */
export function startupFrame(fields: StartupFields): Uint8Array {
  const front = fields.enhanced == null ? 0 : 4;
  const ulp = fields.privateData ?? new Uint8Array(0);
  const bytes = new Uint8Array(20 + front + ulp.length);
  bytes.set(fields.key ?? (fields.kind === 'request' ? REQUEST_KEY : REPLY_KEY));
  bytes[16] =
    (fields.markers === true ? 0x80 : 0) |
    (fields.crc === true ? 0x40 : 0) |
    (fields.reject === true ? 0x20 : 0) |
    (front > 0 ? 0x10 : 0) |
    (fields.extraFlags ?? 0);
  bytes[17] = fields.revision;
  const length = fields.pdLength ?? front + ulp.length;
  bytes[18] = length >>> 8;
  bytes[19] = length;
  if (fields.enhanced != null) bytes.set(enhancedOctets(fields.enhanced), 20);
  bytes.set(ulp, 20 + front);
  return bytes;
}

/** The four enhanced octets. */
function enhancedOctets(e: Enhanced): Uint8Array {
  const word0 = (e.a ? 0x8000 : 0) | (e.b ? 0x4000 : 0) | (e.ird & 0x3fff);
  const word1 = (e.c ? 0x8000 : 0) | (e.d ? 0x4000 : 0) | (e.ord & 0x3fff);
  return Uint8Array.of(word0 >>> 8, word0, word1 >>> 8, word1);
}

/** A received frame. */
export interface ParsedStartup {
  readonly raw: Uint8Array;
  readonly key: Uint8Array;
  readonly flags: number;
  readonly markers: boolean;
  readonly crc: boolean;
  readonly reject: boolean;
  readonly s: boolean;
  readonly revision: number;
  readonly pdLength: number;
  readonly enhanced: Enhanced | null;
  /** The ULP's part. */
  readonly privateData: Uint8Array;
}

/** Octets that a frame beginning like this has in all; null while fewer than 20 are there. */
export function startupLength(bytes: Uint8Array): number | null {
  return bytes.length < 20 ? null : 20 + ((bytes[18]! << 8) | bytes[19]!);
}

/** Take a whole frame apart. */
export function parseStartup(raw: Uint8Array): ParsedStartup {
  const flags = raw[16]!;
  const s = (flags & 0x10) !== 0;
  const pdLength = (raw[18]! << 8) | raw[19]!;
  const hasEnhanced = s && raw.length >= 24;
  let enhanced: Enhanced | null = null;
  if (hasEnhanced) {
    const word0 = (raw[20]! << 8) | raw[21]!;
    const word1 = (raw[22]! << 8) | raw[23]!;
    enhanced = {
      a: (word0 & 0x8000) !== 0,
      b: (word0 & 0x4000) !== 0,
      ird: word0 & 0x3fff,
      c: (word1 & 0x8000) !== 0,
      d: (word1 & 0x4000) !== 0,
      ord: word1 & 0x3fff,
    };
  }
  return {
    raw,
    key: raw.slice(0, 16),
    flags,
    markers: (flags & 0x80) !== 0,
    crc: (flags & 0x40) !== 0,
    reject: (flags & 0x20) !== 0,
    s,
    revision: raw[17]!,
    pdLength,
    enhanced,
    privateData: raw.slice(hasEnhanced ? 24 : 20),
  };
}
