/**
 * The NBD protocol on the wire: code points, fixed lengths and the codec of every message. Everything is
 * big-endian. Read `doc/proto.md` of the NBD project first, its sections "Handshake phase" and "Transmission
 * phase". Decoders return null for input that the document does not allow; encoders are lenient.
 */
import { Buffer } from '../base/host.ts';

/** First eight bytes of a greeting: `NBDMAGIC`. */
const NBD_MAGIC = 0x4e42444d41474943n;
/** Second eight bytes of a newstyle greeting, and the first of every option: `IHAVEOPT`. */
const OPTION_MAGIC = 0x49484156454f5054n;
/** First eight bytes of a reply to an option. */
const OPTION_REPLY_MAGIC = 0x0003e889045565a9n;
export const REQUEST_MAGIC = 0x25609513;
export const SIMPLE_REPLY_MAGIC = 0x67446698;
export const STRUCTURED_REPLY_MAGIC = 0x668e33ef;

export const GREETING_LENGTH = 18;
export const CLIENT_FLAGS_LENGTH = 4;
export const OPTION_HEADER_LENGTH = 16;
export const OPTION_REPLY_HEADER_LENGTH = 20;
export const REQUEST_LENGTH = 28;
export const SIMPLE_REPLY_LENGTH = 16;
export const CHUNK_HEADER_LENGTH = 20;
/** Zeros that follow size and flags in the answer to EXPORT_NAME, unless both sides leave them out. */
export const EXPORT_NAME_ZEROES = 124;

/** Longest data of an option that is read; longer data is skipped and answered with ERR_TOO_BIG. */
export const MAX_OPTION_LENGTH = 4096;
/** Longest export name that this package takes; the document allows 4096. */
export const MAX_NAME_LENGTH = 255;
/** Longest name that the document allows in any text. */
const LONGEST_NAME = 4096;
/** Most options of one handshake; a client of ours sends at most five. */
export const MAX_OPTIONS = 64;
/** Longest READ or WRITE that a client may send without knowing the server's limit. */
export const DEFAULT_MAXIMUM = 33_554_432;

export const HANDSHAKE_FLAG = { FIXED_NEWSTYLE: 1, NO_ZEROES: 2 } as const;
export const CLIENT_FLAG = { FIXED_NEWSTYLE: 1, NO_ZEROES: 2 } as const;

export const TRANSMISSION_FLAG = {
  HAS_FLAGS: 1,
  READ_ONLY: 2,
  SEND_FLUSH: 4,
  SEND_FUA: 8,
  ROTATIONAL: 16,
  SEND_TRIM: 32,
  SEND_WRITE_ZEROES: 64,
  SEND_DF: 128,
  CAN_MULTI_CONN: 256,
  SEND_RESIZE: 512,
  SEND_CACHE: 1024,
  SEND_FAST_ZERO: 2048,
} as const;

export const OPTION = {
  EXPORT_NAME: 1,
  ABORT: 2,
  LIST: 3,
  STARTTLS: 5,
  INFO: 6,
  GO: 7,
  STRUCTURED_REPLY: 8,
  LIST_META_CONTEXT: 9,
  SET_META_CONTEXT: 10,
} as const;

/** Set in the type of every reply that is an error. */
const ERROR_BIT = 0x8000_0000;
export const REPLY = {
  ACK: 1,
  SERVER: 2,
  INFO: 3,
  META_CONTEXT: 4,
  ERR_UNSUP: 0x8000_0001,
  ERR_POLICY: 0x8000_0002,
  ERR_INVALID: 0x8000_0003,
  ERR_PLATFORM: 0x8000_0004,
  ERR_TLS_REQD: 0x8000_0005,
  ERR_UNKNOWN: 0x8000_0006,
  ERR_SHUTDOWN: 0x8000_0007,
  ERR_BLOCK_SIZE_REQD: 0x8000_0008,
  ERR_TOO_BIG: 0x8000_0009,
} as const;

export const INFO = { EXPORT: 0, NAME: 1, DESCRIPTION: 2, BLOCK_SIZE: 3 } as const;

export const COMMAND = {
  READ: 0,
  WRITE: 1,
  DISC: 2,
  FLUSH: 3,
  TRIM: 4,
  CACHE: 5,
  WRITE_ZEROES: 6,
  BLOCK_STATUS: 7,
} as const;

export const COMMAND_FLAG = { FUA: 1, NO_HOLE: 2, DF: 4, REQ_ONE: 8, FAST_ZERO: 16 } as const;

export const CHUNK = {
  NONE: 0,
  OFFSET_DATA: 1,
  OFFSET_HOLE: 2,
  BLOCK_STATUS: 5,
  /** Types with this bit are errors. */
  ERROR: 0x8001,
  ERROR_OFFSET: 0x8002,
} as const;
export const CHUNK_ERROR_BIT = 0x8000;
export const CHUNK_FLAG_DONE = 1;

/** The metadata context that this package serves, and the bits of its states. */
export const ALLOCATION_CONTEXT = 'base:allocation';
export const EXTENT = { HOLE: 1, ZERO: 2 } as const;

/** Error numbers of replies; the names are those of Linux. */
export const NBD_ERRORS: Readonly<Record<NbdErrorName, number>> = {
  EPERM: 1,
  ENOENT: 2,
  EIO: 5,
  ENOMEM: 12,
  EINVAL: 22,
  ENOSPC: 28,
  EOVERFLOW: 75,
  ENOTSUP: 95,
  ESHUTDOWN: 108,
};
/** Name of an error number of the NBD protocol. */
export type NbdErrorName =
  | 'EPERM'
  | 'ENOENT'
  | 'EIO'
  | 'ENOMEM'
  | 'EINVAL'
  | 'ENOSPC'
  | 'EOVERFLOW'
  | 'ENOTSUP'
  | 'ESHUTDOWN';

const decoder = new TextDecoder('utf-8', { fatal: true });

/** A view of `bytes` for big-endian access. */
export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Text of UTF-8 bytes; null if they are none, or hold a NUL. */
export function decodeText(bytes: Uint8Array): string | null {
  if (bytes.includes(0)) return null;
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}

// ------------------------------------------------------------------------------------------------- handshake

export function encodeGreeting(flags: number): Buffer {
  const bytes = Buffer.allocUnsafe(GREETING_LENGTH);
  bytes.writeBigUInt64BE(NBD_MAGIC, 0);
  bytes.writeBigUInt64BE(OPTION_MAGIC, 8);
  bytes.writeUInt16BE(flags, 16);
  return bytes;
}

/** Handshake flags of a newstyle greeting; null if the bytes are none. */
export function decodeGreeting(bytes: Uint8Array): number | null {
  const view = viewOf(bytes);
  const isNewstyle = view.getBigUint64(0) === NBD_MAGIC && view.getBigUint64(8) === OPTION_MAGIC;
  return isNewstyle ? view.getUint16(16) : null;
}

export function encodeClientFlags(flags: number): Buffer {
  const bytes = Buffer.allocUnsafe(CLIENT_FLAGS_LENGTH);
  bytes.writeUInt32BE(flags);
  return bytes;
}

export function encodeOption(option: number, data: Uint8Array = new Uint8Array(0)): Buffer {
  const bytes = Buffer.allocUnsafe(OPTION_HEADER_LENGTH + data.length);
  bytes.writeBigUInt64BE(OPTION_MAGIC, 0);
  bytes.writeUInt32BE(option, 8);
  bytes.writeUInt32BE(data.length, 12);
  bytes.set(data, OPTION_HEADER_LENGTH);
  return bytes;
}

/** Header of an option: its number and the length of its data. */
interface OptionHeader {
  readonly option: number;
  readonly length: number;
}

export function decodeOptionHeader(bytes: Uint8Array): OptionHeader | null {
  const view = viewOf(bytes);
  if (view.getBigUint64(0) !== OPTION_MAGIC) return null;
  return { option: view.getUint32(8), length: view.getUint32(12) };
}

export function encodeOptionReply(
  option: number,
  reply: number,
  data: Uint8Array = new Uint8Array(0),
): Buffer {
  const bytes = Buffer.allocUnsafe(OPTION_REPLY_HEADER_LENGTH + data.length);
  bytes.writeBigUInt64BE(OPTION_REPLY_MAGIC, 0);
  bytes.writeUInt32BE(option, 8);
  bytes.writeUInt32BE(reply, 12);
  bytes.writeUInt32BE(data.length, 16);
  bytes.set(data, OPTION_REPLY_HEADER_LENGTH);
  return bytes;
}

/** Header of a reply to an option. */
interface OptionReplyHeader extends OptionHeader {
  readonly reply: number;
}

export function decodeOptionReplyHeader(bytes: Uint8Array): OptionReplyHeader | null {
  const view = viewOf(bytes);
  if (view.getBigUint64(0) !== OPTION_REPLY_MAGIC) return null;
  return { option: view.getUint32(8), reply: view.getUint32(12), length: view.getUint32(16) };
}

export function isErrorReply(reply: number): boolean {
  return reply >= ERROR_BIT;
}

/** Data of INFO and GO: the export's name and the information that the client asks for. */
export function encodeGo(name: string, infos: readonly number[]): Buffer {
  const text = Buffer.from(name);
  const bytes = Buffer.allocUnsafe(6 + text.length + 2 * infos.length);
  bytes.writeUInt32BE(text.length, 0);
  bytes.set(text, 4);
  bytes.writeUInt16BE(infos.length, 4 + text.length);
  infos.forEach((info, i) => bytes.writeUInt16BE(info, 6 + text.length + 2 * i));
  return bytes;
}

interface GoRequest {
  readonly name: string;
  readonly infos: readonly number[];
}

export function decodeGo(data: Uint8Array): GoRequest | null {
  if (data.length < 6) return null;
  const view = viewOf(data);
  const nameLength = view.getUint32(0);
  if (nameLength > data.length - 6) return null;
  const name = decodeText(data.subarray(4, 4 + nameLength));
  const count = view.getUint16(4 + nameLength);
  if (name === null || data.length !== 6 + nameLength + 2 * count) return null;
  const infos = Array.from({ length: count }, (_, i) => view.getUint16(6 + nameLength + 2 * i));
  return { name, infos };
}

export function encodeInfoExport(size: bigint, flags: number): Buffer {
  const bytes = Buffer.allocUnsafe(12);
  bytes.writeUInt16BE(INFO.EXPORT, 0);
  bytes.writeBigUInt64BE(size, 2);
  bytes.writeUInt16BE(flags, 10);
  return bytes;
}

/** Limits of requests to an export, in bytes. */
export interface BlockSizes {
  /** Offsets and lengths are multiples of it; a power of two from 1 to 65536. */
  readonly minimum: number;
  /** The unit that suits the device best. */
  readonly preferred: number;
  /** Longest READ or WRITE. */
  readonly maximum: number;
}

export function encodeInfoBlockSize({ minimum, preferred, maximum }: BlockSizes): Buffer {
  const bytes = Buffer.allocUnsafe(14);
  bytes.writeUInt16BE(INFO.BLOCK_SIZE, 0);
  bytes.writeUInt32BE(minimum, 2);
  bytes.writeUInt32BE(preferred, 6);
  bytes.writeUInt32BE(maximum, 10);
  return bytes;
}

export function encodeInfoText(info: number, text: string): Buffer {
  const bytes = Buffer.from(`\0\0${text}`);
  bytes.writeUInt16BE(info, 0);
  return bytes;
}

/** One piece of information of a reply to INFO or GO. */
type InfoReply =
  | { readonly kind: 'export'; readonly size: bigint; readonly flags: number }
  | { readonly kind: 'block-size'; readonly blocks: BlockSizes }
  | { readonly kind: 'text'; readonly info: number; readonly text: string }
  | { readonly kind: 'unknown'; readonly info: number };

export function decodeInfo(data: Uint8Array): InfoReply | null {
  if (data.length < 2) return null;
  const view = viewOf(data);
  const info = view.getUint16(0);
  switch (info) {
    case INFO.EXPORT:
      if (data.length !== 12) return null;
      return { kind: 'export', size: view.getBigUint64(2), flags: view.getUint16(10) };
    case INFO.BLOCK_SIZE: {
      if (data.length !== 14) return null;
      const [minimum, preferred, maximum] = [view.getUint32(2), view.getUint32(6), view.getUint32(10)];
      return areBlockSizes(minimum, preferred, maximum)
        ? { kind: 'block-size', blocks: { minimum, preferred, maximum } }
        : null;
    }
    case INFO.NAME:
    case INFO.DESCRIPTION: {
      const text = decodeText(data.subarray(2));
      return text === null ? null : { kind: 'text', info, text };
    }
    default:
      return { kind: 'unknown', info };
  }
}

/** What the document's section "Size constraints" asks of the three numbers. */
export function areBlockSizes(minimum: number, preferred: number, maximum: number): boolean {
  const isPower = minimum > 0 && (minimum & (minimum - 1)) === 0 && minimum <= 65_536;
  return isPower && preferred >= minimum && maximum >= minimum && preferred % minimum === 0;
}

/** Data of LIST_META_CONTEXT and SET_META_CONTEXT. */
export function encodeMetaQueries(name: string, queries: readonly string[]): Buffer {
  const texts = [name, ...queries].map((text) => {
    const bytes = Buffer.from(text);
    const length = Buffer.allocUnsafe(4);
    length.writeUInt32BE(bytes.length);
    return Buffer.concat([length, bytes]);
  });
  const count = Buffer.allocUnsafe(4);
  count.writeUInt32BE(queries.length);
  return Buffer.concat([texts[0]!, count, ...texts.slice(1)]);
}

interface MetaQueries {
  readonly name: string;
  readonly queries: readonly string[];
}

export function decodeMetaQueries(data: Uint8Array): MetaQueries | null {
  const view = viewOf(data);
  let at = 0;
  const u32 = (): number => (at + 4 > data.length ? -1 : (view.getUint32(at), view.getUint32((at += 4) - 4)));
  const text = (): string | null => {
    const length = u32();
    if (length < 0 || at + length > data.length) return null;
    at += length;
    return decodeText(data.subarray(at - length, at));
  };
  const name = text();
  const count = u32();
  // Each query has at least its length: a count that cannot fit is refused before anything is allocated.
  if (name === null || count < 0 || count * 4 > data.length - at) return null;
  const queries: string[] = [];
  for (let i = 0; i < count; i++) {
    const query = text();
    if (query === null) return null;
    queries.push(query);
  }
  return at === data.length ? { name, queries } : null;
}

export function encodeMetaContext(id: number, name: string): Buffer {
  const bytes = Buffer.from(`\0\0\0\0${name}`);
  bytes.writeUInt32BE(id, 0);
  return bytes;
}

/** Data of a reply SERVER: an export's name with its length. */
export function encodeServerName(name: string): Buffer {
  const bytes = Buffer.from(`\0\0\0\0${name}`);
  bytes.writeUInt32BE(bytes.length - 4, 0);
  return bytes;
}

export function decodeServerName(data: Uint8Array): string | null {
  if (data.length < 4) return null;
  const length = viewOf(data).getUint32(0);
  if (length > data.length - 4 || length > LONGEST_NAME) return null;
  return decodeText(data.subarray(4, 4 + length));
}

// ---------------------------------------------------------------------------------------------- transmission

/** A request as it lies on the wire. The cookie is kept in two halves, which need no allocation. */
export interface RequestHeader {
  readonly flags: number;
  readonly command: number;
  readonly cookieHi: number;
  readonly cookieLo: number;
  readonly offset: bigint;
  readonly length: number;
}

export function encodeRequest(view: DataView, at: number, request: RequestHeader): void {
  view.setUint32(at, REQUEST_MAGIC);
  view.setUint16(at + 4, request.flags);
  view.setUint16(at + 6, request.command);
  view.setUint32(at + 8, request.cookieHi);
  view.setUint32(at + 12, request.cookieLo);
  view.setBigUint64(at + 16, request.offset);
  view.setUint32(at + 24, request.length);
}

export function decodeRequest(view: DataView, at = 0): RequestHeader | null {
  if (view.getUint32(at) !== REQUEST_MAGIC) return null;
  return {
    flags: view.getUint16(at + 4),
    command: view.getUint16(at + 6),
    cookieHi: view.getUint32(at + 8),
    cookieLo: view.getUint32(at + 12),
    offset: view.getBigUint64(at + 16),
    length: view.getUint32(at + 24),
  };
}

export function encodeSimpleReply(view: DataView, at: number, error: number, hi: number, lo: number): void {
  view.setUint32(at, SIMPLE_REPLY_MAGIC);
  view.setUint32(at + 4, error);
  view.setUint32(at + 8, hi);
  view.setUint32(at + 12, lo);
}

/** Header of a chunk of a structured reply. */
interface ChunkHeader {
  readonly flags: number;
  readonly type: number;
  readonly cookieHi: number;
  readonly cookieLo: number;
  readonly length: number;
}

export function encodeChunkHeader(view: DataView, at: number, chunk: ChunkHeader): void {
  view.setUint32(at, STRUCTURED_REPLY_MAGIC);
  view.setUint16(at + 4, chunk.flags);
  view.setUint16(at + 6, chunk.type);
  view.setUint32(at + 8, chunk.cookieHi);
  view.setUint32(at + 12, chunk.cookieLo);
  view.setUint32(at + 16, chunk.length);
}

/** Decodes what follows the magic, which starts at `at`. */
export function decodeChunkHeader(view: DataView, at = 0): ChunkHeader {
  return {
    flags: view.getUint16(at + 4),
    type: view.getUint16(at + 6),
    cookieHi: view.getUint32(at + 8),
    cookieLo: view.getUint32(at + 12),
    length: view.getUint32(at + 16),
  };
}

/** One descriptor of a BLOCK_STATUS chunk. */
export interface ExtentDescriptor {
  readonly length: number;
  readonly flags: number;
}

export function encodeExtents(context: number, extents: readonly ExtentDescriptor[]): Buffer {
  const bytes = Buffer.allocUnsafe(4 + 8 * extents.length);
  bytes.writeUInt32BE(context, 0);
  extents.forEach(({ length, flags }, i) => {
    bytes.writeUInt32BE(length, 4 + 8 * i);
    bytes.writeUInt32BE(flags, 8 + 8 * i);
  });
  return bytes;
}

/** Descriptors of the chunk; null unless it has at least one, each of at least one byte. */
export function decodeExtents(
  data: Uint8Array,
): { readonly context: number; readonly extents: readonly ExtentDescriptor[] } | null {
  if (data.length < 12 || (data.length - 4) % 8 !== 0) return null;
  const view = viewOf(data);
  const extents = Array.from({ length: (data.length - 4) / 8 }, (_, i) => ({
    length: view.getUint32(4 + 8 * i),
    flags: view.getUint32(8 + 8 * i),
  }));
  return extents.some(({ length }) => length === 0) ? null : { context: view.getUint32(0), extents };
}

/** Data of an ERROR chunk: the number and a message. */
export function encodeChunkError(error: number, message: string): Buffer {
  const bytes = Buffer.from(`\0\0\0\0\0\0${message}`);
  bytes.writeUInt32BE(error, 0);
  bytes.writeUInt16BE(bytes.length - 6, 4);
  return bytes;
}

/** Number of an ERROR or ERROR_OFFSET chunk; null if its length is wrong or its number 0. */
export function decodeChunkError(data: Uint8Array, type: number): number | null {
  if (data.length < 6) return null;
  const view = viewOf(data);
  const rest = type === CHUNK.ERROR_OFFSET ? 8 : 0;
  const error = view.getUint32(0);
  const known = type === CHUNK.ERROR || type === CHUNK.ERROR_OFFSET;
  if (known && data.length !== 6 + view.getUint16(4) + rest) return null;
  return error === 0 ? null : error;
}
