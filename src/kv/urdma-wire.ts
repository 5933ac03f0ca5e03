/**
 * Messages of the paper "Userspace software iWARP using DPDK" (MacArthur), as its program urdma sends them:
 * memcached's binary header, then the place of memory, then extras, key and value; one Send each. Numbers are
 * big-endian.
 *
 * | offset | field |
 * |---|---|
 * | 0 | magic u8: 0x80 request, 0x81 reply |
 * | 1 | opcode u8, of memcached |
 * | 2 | length u16 of the key |
 * | 4 | length u8 of the extras; then one byte, zero |
 * | 6 | status u16 of a reply |
 * | 8 | length u32 of extras, key and value together |
 * | 12 | opaque u32, which the reply repeats |
 * | 16 | version u64 |
 * | 24 | STag u32 of the place |
 * | 28 | length u32 of the place |
 * | 32 | tagged offset u64 of the place |
 * | 40 | extras, key, value |
 */
import { Buffer } from 'node:buffer';
import { RemoteBuffer } from '../api/remote-buffer.ts';
import { REQUEST_MAGIC, RESPONSE_MAGIC } from './memcached-binary.ts';

const URDMA_HEADER = 40;
/** Longest key and value of the profile. */
export const URDMA_KEY = 40;
export const URDMA_VALUE = 20_480;
/** Receive buffers of urdma's program: their number, and bytes of each. */
export const URDMA_RECEIVES = 63;
export const URDMA_MESSAGE = 25_000;

/** A request or a reply. */
export interface UrdmaMessage {
  readonly opcode: number;
  readonly opaque: number;
  /** Of a reply; 0 in requests. */
  readonly status?: number;
  readonly version?: bigint;
  /** A client's memory for the value of a GET, or the owner's memory that holds a value. */
  readonly place?: RemoteBuffer;
  readonly extras?: Uint8Array;
  readonly key?: Uint8Array;
  readonly value?: Uint8Array;
}

const NONE = new Uint8Array(0);

export function encodeUrdma(
  kind: 'request' | 'reply',
  { opcode, opaque, status = 0, version = 0n, place, extras = NONE, key = NONE, value = NONE }: UrdmaMessage,
): Buffer {
  const body = extras.length + key.length + value.length;
  const out = Buffer.alloc(URDMA_HEADER + body);
  out.writeUInt8(kind === 'request' ? REQUEST_MAGIC : RESPONSE_MAGIC, 0);
  out.writeUInt8(opcode, 1);
  out.writeUInt16BE(key.length, 2);
  out.writeUInt8(extras.length, 4);
  out.writeUInt16BE(status, 6);
  out.writeUInt32BE(body, 8);
  out.writeUInt32BE(opaque, 12);
  out.writeBigUInt64BE(version, 16);
  if (place !== undefined) {
    out.writeUInt32BE(place.rkey, 24);
    out.writeUInt32BE(place.length, 28);
    out.writeBigUInt64BE(place.address, 32);
  }
  out.set(extras, URDMA_HEADER);
  out.set(key, URDMA_HEADER + extras.length);
  out.set(value, URDMA_HEADER + extras.length + key.length);
  return out;
}

/** A message taken apart; null if it is none of that kind, or its lengths disagree. */
export function decodeUrdma(kind: 'request' | 'reply', bytes: Buffer): Required<UrdmaMessage> | null {
  const magic = kind === 'request' ? REQUEST_MAGIC : RESPONSE_MAGIC;
  if (bytes.length < URDMA_HEADER || bytes[0] !== magic) return null;
  const [keyLength, extrasLength] = [bytes.readUInt16BE(2), bytes.readUInt8(4)];
  const body = bytes.subarray(URDMA_HEADER);
  if (body.length !== bytes.readUInt32BE(8) || extrasLength + keyLength > body.length) return null;
  return {
    opcode: bytes.readUInt8(1),
    status: bytes.readUInt16BE(6),
    opaque: bytes.readUInt32BE(12),
    version: bytes.readBigUInt64BE(16),
    place: new RemoteBuffer(bytes.readUInt32BE(24), bytes.readBigUInt64BE(32), bytes.readUInt32BE(28)),
    extras: body.subarray(0, extrasLength),
    key: body.subarray(extrasLength, extrasLength + keyLength),
    value: body.subarray(extrasLength + keyLength),
  };
}
