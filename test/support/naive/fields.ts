// Between the naive codec's values and the notation of the golden vectors: octets as hexadecimal text, 64-bit
// values and 32-bit names as 0x and all their digits (conformance/vectors/index.ts).

import type { FpduFields, SegmentFields, StartupFields } from '../../../conformance/vectors/index.ts';
import type { NaiveFpdu, NaiveSegment, NaiveStartup } from './types.ts';

/** Fields that the vectors write as 0x and 8 digits. */
const NAMES_OF_32_BITS = new Set([
  'stag',
  'invalidateStag',
  'sinkStag',
  'sourceStag',
  'remoteStag',
  'requestId',
]);
/** Fields that the vectors write as octets. */
const OCTETS = new Set(['payload', 'immediate', 'privateData']);

/** A decoded segment in the notation of the vectors. */
export function segmentFields(segment: NaiveSegment): SegmentFields {
  return toNotation('', segment) as SegmentFields;
}

/** A segment to encode, from the notation of the vectors. */
export function segmentFrom(fields: SegmentFields): NaiveSegment {
  return fromNotation('', fields) as NaiveSegment;
}

/** A decoded start-up frame in the notation of the vectors. */
export function startupFields(frame: NaiveStartup): StartupFields {
  return toNotation('', frame) as StartupFields;
}

/** What the vectors say of an FPDU; null when it holds no segment. */
export function fpduFields(fpdu: NaiveFpdu): FpduFields | null {
  if (fpdu.segment === null) return null;
  const { offset, ulpduLength, padLength, crc } = fpdu;
  return { offset, ulpduLength, padLength, crc, segment: segmentFields(fpdu.segment) };
}

function toNotation(name: string, value: unknown): unknown {
  if (value instanceof Uint8Array)
    return Array.from(value, (octet) => octet.toString(16).padStart(2, '0')).join('');
  if (typeof value === 'bigint') return `0x${value.toString(16).padStart(16, '0')}`;
  if (typeof value === 'number' && NAMES_OF_32_BITS.has(name))
    return `0x${value.toString(16).padStart(8, '0')}`;
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, toNotation(key, inner)]));
}

function fromNotation(name: string, value: unknown): unknown {
  if (typeof value === 'string') {
    if (OCTETS.has(name))
      return Uint8Array.from(value.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
    return NAMES_OF_32_BITS.has(name) ? Number(value) : BigInt(value);
  }
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, fromNotation(key, inner)]));
}
