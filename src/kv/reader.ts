/**
 * What a client makes of bytes that it has read from the table while the owner may have been changing them:
 * a value, proof that there is none, or nothing that can be trusted.
 */
import { defaultCrc32cEngine } from '../crc32c/engine.ts';
import { BUCKET_ENTRIES, ENTRY, ENTRY_OCTETS, RECORD_HEADER, type Kind } from './layout.ts';

/** A record that was whole. */
export interface WholeRecord {
  readonly kind: Kind;
  readonly flags: number;
  readonly expiry: number;
  readonly version: number;
  /** Where the value lies in the bytes that were read. */
  readonly from: number;
  readonly to: number;
}

/** Where a record may lie. */
export interface Location {
  /** In units of 64 bytes. */
  readonly place: number;
  /** In bytes. */
  readonly length: number;
}

/** What a bucket says about a tag. */
interface BucketView {
  readonly candidates: readonly Location[];
  /** An entry of the tag was being changed: look again. */
  readonly isUnsettled: boolean;
  /** Keys of this bucket live in their second one. */
  readonly hasSpilled: boolean;
}

export function readBucket(bytes: DataView, tag: number): BucketView {
  const candidates: Location[] = [];
  let isUnsettled = false;
  const word = (entry: number, at: number): number => bytes.getUint32(entry * ENTRY_OCTETS + 4 * at, true);
  for (let entry = 0; entry < BUCKET_ENTRIES; entry++) {
    const sequence = word(entry, ENTRY.SEQUENCE);
    if (sequence === 0 || word(entry, ENTRY.TAG) !== tag) continue;
    if ((sequence & 1) === 1) isUnsettled = true;
    else candidates.push({ place: word(entry, ENTRY.PLACE), length: word(entry, ENTRY.LENGTH) });
  }
  return { candidates, isUnsettled, hasSpilled: word(0, ENTRY.SPILLED) !== 0 };
}

/**
 * The record of `key` in the first `length` bytes of `bytes`; `other` if it is another key's, `torn` if it
 * was not whole or is dead. The CRC begins with the table's seed, so that no client's value can be taken for
 * a record.
 */
export function readRecord(
  bytes: Uint8Array,
  length: number,
  key: Uint8Array,
  seed: number,
): WholeRecord | 'other' | 'torn' {
  if (length < RECORD_HEADER + key.length) return 'other';
  const view = new DataView(bytes.buffer, bytes.byteOffset, length);
  const sequence = view.getUint32(0, true);
  if (sequence === 0 || (sequence & 1) === 1) return 'torn';
  const crc = defaultCrc32cEngine();
  const sum = crc.update(crc.update(seed, bytes, 0, 32), bytes, RECORD_HEADER, length);
  if (sum !== view.getUint32(32, true)) return 'torn';
  const [from, octets] = [RECORD_HEADER + view.getUint16(20, true), view.getUint32(4, true)];
  if (from + octets !== length) return 'torn';
  if (from - RECORD_HEADER !== key.length) return 'other';
  for (let i = 0; i < key.length; i++) if (bytes[RECORD_HEADER + i] !== key[i]) return 'other';
  return {
    kind: view.getUint8(22) as Kind,
    flags: view.getUint32(16, true),
    expiry: view.getFloat64(8, true),
    version: view.getFloat64(24, true),
    from,
    to: from + octets,
  };
}
