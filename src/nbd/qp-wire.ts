/**
 * NBD over queue pairs: private data of the set-up, and messages. Each request and each reply is one Send.
 *
 * - `message`: requests and replies as on a byte stream, data behind them in the same Send.
 * - `direct`: a request is followed by {STag u32, reserved u32, tagged offset u64} of the client's memory.
 *   The server moves data by RDMA Write and Read, then Sends the 16-byte reply.
 *
 * Everything is big-endian. Decoders return null for input that is not of the form.
 */
import { Buffer } from '../base/host.ts';
import {
  areBlockSizes,
  COMMAND,
  decodeRequest,
  decodeText,
  REQUEST_LENGTH,
  REQUEST_MAGIC,
  SIMPLE_REPLY_LENGTH,
  SIMPLE_REPLY_MAGIC,
  viewOf,
  type BlockSizes,
  type RequestHeader,
} from './wire.ts';

/** `NBDR` */
const MAGIC = 0x4e424452;
export const QP_VERSION = 1;
const MODES = ['message', 'direct'] as const;
/** How data moves. */
export type QpMode = (typeof MODES)[number];

const SETUP_LENGTH = 8;
/** Private data has little room. */
export const QP_MAX_NAME = 64;
export const QP_MAX_DEPTH = 1024;
const ACCEPT_LENGTH = 22;

/** Longest READ or WRITE in message mode: every posted receive has to hold one. */
export const MESSAGE_MAXIMUM = 262_144;
/** Bytes of receives, or of copies, that one connection of a server may need. */
const CONNECTION_BYTES = 64 * 1024 * 1024;

export const DIRECT_REQUEST_LENGTH = 44;
/** Most Reads that are under way at a time on one connection. */
export const QP_MAX_READS = 128;

/** What a client asks for. */
export interface QpSetup {
  readonly version: number;
  readonly mode: QpMode;
  readonly depth: number;
  readonly name: string;
}

export function encodeSetup({ version, mode, depth, name }: QpSetup): Uint8Array {
  const bytes = Buffer.from(`\0\0\0\0\0\0\0\0${name}`);
  bytes.writeUInt32BE(MAGIC, 0);
  bytes.writeUInt8(version, 4);
  bytes.writeUInt8(MODES.indexOf(mode), 5);
  bytes.writeUInt16BE(depth, 6);
  return bytes;
}

export function decodeSetup(bytes: Uint8Array): QpSetup | null {
  if (bytes.length < SETUP_LENGTH || bytes.length > SETUP_LENGTH + QP_MAX_NAME) return null;
  const view = viewOf(bytes);
  const mode = MODES[view.getUint8(5)];
  const depth = view.getUint16(6);
  const name = decodeText(bytes.subarray(SETUP_LENGTH));
  if (view.getUint32(0) !== MAGIC || mode === undefined || name === null) return null;
  return { version: view.getUint8(4), mode, depth, name };
}

/** What a server grants. */
interface QpGrant {
  readonly size: bigint;
  readonly flags: number;
  readonly blocks: BlockSizes;
}

export function encodeGrant({ size, flags, blocks }: QpGrant): Uint8Array {
  const bytes = Buffer.alloc(ACCEPT_LENGTH);
  bytes.writeBigUInt64BE(size, 0);
  bytes.writeUInt16BE(flags, 8);
  bytes.writeUInt32BE(blocks.minimum, 10);
  bytes.writeUInt32BE(blocks.preferred, 14);
  bytes.writeUInt32BE(blocks.maximum, 18);
  return bytes;
}

/** Bytes behind the form are for later versions. */
export function decodeGrant(bytes: Uint8Array): QpGrant | null {
  if (bytes.length < ACCEPT_LENGTH) return null;
  const view = viewOf(bytes);
  const [minimum, preferred, maximum] = [view.getUint32(10), view.getUint32(14), view.getUint32(18)];
  const size = view.getBigUint64(0);
  if (!areBlockSizes(minimum, preferred, maximum) || size >= 1n << 63n) return null;
  return { size, flags: view.getUint16(8), blocks: { minimum, preferred, maximum } };
}

/** Private data of a refusal: an error number and a message. */
export function encodeRefusal(error: number, message: string): Uint8Array {
  const bytes = Buffer.from(`\0\0\0\0${message}`);
  bytes.writeUInt32BE(error, 0);
  return bytes;
}

export function decodeRefusal(bytes: Uint8Array): { readonly error: number; readonly message: string } {
  if (bytes.length < 4) return { error: 0, message: '' };
  return { error: viewOf(bytes).getUint32(0), message: decodeText(bytes.subarray(4)) ?? '' };
}

/** Longest READ or WRITE that a server of this device grants. */
export function grantedMaximum(mode: QpMode, depth: number, maximum: number, isMemory: boolean): number {
  if (mode === 'direct' && isMemory) return maximum;
  const share = Math.floor(CONNECTION_BYTES / depth / 4096) * 4096;
  return Math.min(maximum, share, mode === 'message' ? MESSAGE_MAXIMUM : share);
}

/** Where a client's memory is. */
export interface RemoteMemory {
  readonly stag: number;
  readonly to: bigint;
}

export const NO_MEMORY: RemoteMemory = { stag: 0, to: 0n };

export function encodeRemoteMemory(view: DataView, at: number, { stag, to }: RemoteMemory): void {
  view.setUint32(at, stag);
  view.setUint32(at + 4, 0);
  view.setBigUint64(at + 8, to);
}

/** A request of direct mode; null unless it has exactly its form. `view` begins where `bytes` begin. */
export function decodeDirectRequest(
  bytes: Uint8Array,
  view: DataView = viewOf(bytes),
): { readonly request: RequestHeader; readonly memory: RemoteMemory } | null {
  if (bytes.length !== DIRECT_REQUEST_LENGTH) return null;
  const request = decodeRequest(view);
  if (request === null || view.getUint32(REQUEST_LENGTH + 4) !== 0) return null;
  const memory = { stag: view.getUint32(REQUEST_LENGTH), to: view.getBigUint64(REQUEST_LENGTH + 8) };
  return { request, memory };
}

/** A READ of direct mode without flags, below 2^53. */
interface PlainRead {
  cookieHi: number;
  cookieLo: number;
  /** First byte of the range. */
  at: number;
  /** Length of the range, at least 1. */
  length: number;
  readonly memory: { stag: number; to: number };
}

export function newPlainRead(): PlainRead {
  return { cookieHi: 0, cookieLo: 0, at: 0, length: 0, memory: { stag: 0, to: 0 } };
}

/** READ and its flags, in one word: both are 0. */
const PLAIN_READ = COMMAND.READ;
/** Upper halves of numbers that are exact as they are. */
const EXACT_HI = 1 << 21;

/** Fill `read` from a message of the length of a direct request; false if it is anything else. */
export function decodePlainRead(view: DataView, read: PlainRead): boolean {
  if (view.getUint32(0) !== REQUEST_MAGIC || view.getUint32(4) !== PLAIN_READ) return false;
  const [hi, toHi] = [view.getUint32(16), view.getUint32(REQUEST_LENGTH + 8)];
  if (hi >= EXACT_HI || toHi >= EXACT_HI || view.getUint32(REQUEST_LENGTH + 4) !== 0) return false;
  read.cookieHi = view.getUint32(8);
  read.cookieLo = view.getUint32(12);
  read.at = hi * 2 ** 32 + view.getUint32(20);
  read.length = view.getUint32(24);
  read.memory.stag = view.getUint32(REQUEST_LENGTH);
  read.memory.to = toHi * 2 ** 32 + view.getUint32(REQUEST_LENGTH + 12);
  return read.length > 0;
}

/** A simple reply at the start of a message. `view` begins where `bytes` begin. */
export function decodeSimpleReply(
  bytes: Uint8Array,
  view: DataView = viewOf(bytes),
): { readonly error: number; readonly cookieHi: number; readonly cookieLo: number } | null {
  if (bytes.length < SIMPLE_REPLY_LENGTH) return null;
  if (view.getUint32(0) !== SIMPLE_REPLY_MAGIC) return null;
  return { error: view.getUint32(4), cookieHi: view.getUint32(8), cookieLo: view.getUint32(12) };
}
