/**
 * Messages between a store and its RDMA clients: frames of memcached's binary protocol, one Send each, with
 * our opcodes for operations that memcached does not have. Numbers in frames are big-endian, as there.
 */
import { Buffer } from 'node:buffer';
import { RemoteBuffer, REMOTE_BUFFER_OCTETS } from '../api/remote-buffer.ts';
import { IwarpError } from '../base/errors.ts';
import type { Geometry } from './layout.ts';

/** Our opcodes; memcached has none above 0x4f. */
export const KV_OP = {
  /** No body; the answer's value is the set-up below. */
  HELLO: 0xe0,
  /** Extras: expiry in milliseconds from now f64 (0: never), flags u32, mode u32; key; value. */
  STORE: 0xe1,
  /** As STORE, with a ticket of 16 bytes behind the extras' 16: the owner Reads the value from there. */
  STORE_FROM: 0xe2,
  /** Extras: an i64 to add; key. The answer's value is the sum, i64. */
  ADD: 0xe3,
  /** Extras: expiry in milliseconds from now f64 (0: never); key. */
  EXPIRE: 0xe4,
  /** Key. The answer's value is the number u32 of the word of the key's counter, which is made. */
  COUNTER: 0xe5,
  /** No body. The answer's value is the numbers of {@link StoreStats} as JSON. */
  STATS: 0xe6,
} as const;

/** Conditions of STORE. */
export const STORE_MODE = { SET: 0, ADD: 1, REPLACE: 2, CAS: 3 } as const;

/** The longest value that goes in a message; longer ones are read by the owner. */
export const MESSAGE_VALUE = 4096;
/** Length of the largest message. */
export const MESSAGE_OCTETS = 8192;

/** What a client has to know. */
export interface Setup {
  readonly geometry: Geometry;
  /** The owner's clock, milliseconds since 1970: expiry counts by it. */
  readonly now: number;
  readonly table: RemoteBuffer;
  readonly counters: RemoteBuffer;
}

const SETUP_VERSION = 1;
const SETUP_OCTETS = 32 + 2 * REMOTE_BUFFER_OCTETS;

export function encodeSetup({ geometry, now, table, counters }: Setup): Buffer {
  const out = Buffer.alloc(SETUP_OCTETS);
  out.writeUInt32BE(SETUP_VERSION, 0);
  out.writeUInt32BE(geometry.octets, 4);
  out.writeUInt32BE(geometry.buckets, 8);
  out.writeUInt32BE(geometry.page, 12);
  out.writeUInt32BE(geometry.pages, 16);
  out.writeUInt32BE(geometry.seed, 20);
  out.writeDoubleBE(now, 24);
  out.set(table.toBytes(), 32);
  out.set(counters.toBytes(), 32 + REMOTE_BUFFER_OCTETS);
  return out;
}

/** @throws ERR_PROTOCOL unless the sizes fit each other */
export function decodeSetup(bytes: Uint8Array): Setup {
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (view.length < SETUP_OCTETS || view.readUInt32BE(0) !== SETUP_VERSION)
    throw new IwarpError('ERR_PROTOCOL', 'the store answers with another version of the set-up');
  const [octets, buckets, page, pages, seed] = [4, 8, 12, 16, 20].map((at) => view.readUInt32BE(at)) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const geometry: Geometry = { octets, buckets, page, pages, seed };
  const table = RemoteBuffer.fromBytes(view.subarray(32, 32 + REMOTE_BUFFER_OCTETS));
  const counters = RemoteBuffer.fromBytes(view.subarray(32 + REMOTE_BUFFER_OCTETS, SETUP_OCTETS));
  const isPower = buckets > 0 && (buckets & (buckets - 1)) === 0;
  if (!isPower || table.length < octets || buckets * 256 + page * pages > octets || page > 2 ** 21)
    throw new IwarpError('ERR_PROTOCOL', 'the sizes in the set-up of the store do not fit each other');
  return { geometry, now: view.readDoubleBE(24), table, counters };
}
