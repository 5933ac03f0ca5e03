/**
 * The table that owner and readers share: buckets of eight entries, which say where a key's record lies, then
 * pages of records. Everything is little-endian. Readers fetch buckets and records by RDMA Read, without any
 * code of the owner; the sequence number and the CRC32c of a record tell them whether it was whole.
 *
 * Entry, 32 octets:
 *
 * | offset | field |
 * |---|---|
 * | 0 | sequence u32: 0 free, even in use, odd being changed |
 * | 4 | tag u32, the second half of the key's hash |
 * | 8 | place u32 of the record, in units of 64 bytes from the start of the table |
 * | 12 | length u32 of the record, in bytes |
 * | 16 | used u32: set by the owner when the key is used, for eviction |
 * | 20 | spilled u32, in the first entry of a bucket: keys of it that live in their second bucket |
 * | 24 | 8 bytes, zero |
 *
 * Record:
 *
 * | offset | field |
 * |---|---|
 * | 0 | sequence u32: even is whole, odd is dead or being written |
 * | 4 | length u32 of the value |
 * | 8 | expiry f64, milliseconds since 1970, 0 never |
 * | 16 | flags u32 of the client |
 * | 20 | length u16 of the key |
 * | 22 | kind u8: 0 string, 1 hash, 2 counter; then one byte, zero |
 * | 24 | version f64: a number that no other record of the table has had |
 * | 32 | CRC32c u32 over bytes 0 to 32, key and value, beginning with the seed of the table |
 * | 36 | entry u32 that points here |
 * | 40 | key, value |
 */

export const ENTRY_OCTETS = 32;
export const BUCKET_ENTRIES = 8;
export const BUCKET_OCTETS: number = ENTRY_OCTETS * BUCKET_ENTRIES;
/** Records begin at multiples of this. */
export const UNIT = 64;
export const RECORD_HEADER = 40;
/** Longest key, as memcached has it. */
export const MAX_KEY = 250;

/** Word numbers of an entry. */
export const ENTRY = { SEQUENCE: 0, TAG: 1, PLACE: 2, LENGTH: 3, USED: 4, SPILLED: 5 } as const;

/** What a record holds. */
export const KIND = { STRING: 0, HASH: 1, COUNTER: 2 } as const;
export type Kind = (typeof KIND)[keyof typeof KIND];

/** The sizes of a table. */
export interface Geometry {
  /** Bytes in all. */
  readonly octets: number;
  /** Buckets, a power of two; they lie at the start. */
  readonly buckets: number;
  /** Bytes of a page of records; the first page begins behind the buckets. */
  readonly page: number;
  /** Pages. */
  readonly pages: number;
  /** Seed of the hash, so that clients cannot choose keys that collide. */
  readonly seed: number;
}

/** Smallest table. */
export const MIN_OCTETS: number = 1 << 20;
/** A place is a u32 of units, but a ticket's length is a u32 of bytes. */
export const MAX_OCTETS = 0xffff_ff00;

/** An eighth of the table for buckets, the rest for pages. */
export function geometryOf(octets: number, seed: number): Geometry {
  const buckets = 2 ** Math.floor(Math.log2(octets / 8 / BUCKET_OCTETS));
  const room = octets - buckets * BUCKET_OCTETS;
  const page = Math.min(2 ** 21, 2 ** Math.floor(Math.log2(room / 16)));
  return { octets, buckets, page, pages: Math.floor(room / page), seed: seed >>> 0 };
}

/** Longest record of a table: a page. */
export function longestValue({ page }: Geometry): number {
  return page - RECORD_HEADER - MAX_KEY;
}

/** Where a key may live: bucket numbers and tag. */
export interface Hashed {
  first: number;
  second: number;
  tag: number;
}

/** Hash of a key into `out`: two rounds over the bytes with different constants, mixed at the end. */
export function hashKey(key: Uint8Array, { seed, buckets }: Geometry, out: Hashed): void {
  let [a, b] = [seed ^ 0x9e37_79b9, Math.imul(seed, 0x85eb_ca6b) ^ key.length];
  for (let i = 0; i < key.length; i++) {
    const octet = key[i]!;
    a = Math.imul(a ^ octet, 0x0100_0193);
    b = Math.imul(b ^ (octet + (a >>> 15)), 0x27d4_eb2f);
    b ^= b >>> 13;
  }
  a = mix(a ^ b);
  b = mix(b + a);
  out.first = a & (buckets - 1);
  out.second = (out.first ^ (mix(b) | 1)) & (buckets - 1);
  out.tag = b >>> 0;
}

function mix(word: number): number {
  let h = word ^ (word >>> 16);
  h = Math.imul(h, 0x7feb_352d);
  h ^= h >>> 15;
  h = Math.imul(h, 0x846c_a68b);
  return (h ^ (h >>> 16)) >>> 0;
}
