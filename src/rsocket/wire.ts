/**
 * The rsocket protocol on the wire, as librdmacm speaks it over iWARP: private data of 40 octets each way,
 * then RDMA Writes each followed by a Send of 4 octets, because iWARP as librdmacm knows it has no Write with
 * Immediate. Read first: librdmacm/docs/rsocket.
 */
import { IwarpError } from '../base/errors.ts';
import { hi32, lo32, toBigInt } from '../base/u64.ts';

const CONNECTION_DATA_OCTETS = 40;
export const MESSAGE_OCTETS = 4;
export const SGE_OCTETS = 16;
export const IOMAP_OCTETS = 24;
/** Entries of the list in which a peer announces receive buffers. */
export const SGL_ENTRIES = 2;
const VERSION = 1;

const FLAG_BIG_ENDIAN = 1;
const FLAG_IOMAP = 2;

/** Kinds of message; the upper 3 bits. */
export const OP = { DATA: 0, SGL: 4, IOMAP: 6, CONTROL: 7 } as const;
/** Values of a control message. */
export const CONTROL = { DISCONNECT: 0, KEEPALIVE: 1, SHUTDOWN: 2 } as const;
const VALUE_BITS = 29;
const MAX_VALUE: number = (1 << VALUE_BITS) - 1;

/** Memory of a peer: tagged offset, STag, octets (of the list: entries). */
export interface RemoteMemory {
  readonly addr: bigint;
  readonly key: number;
  readonly length: number;
}

/** Parameters that each side announces in private data. */
export interface ConnectionData {
  readonly bigEndian: boolean;
  readonly iomap: boolean;
  /** Data messages that may be sent before more are granted. */
  readonly credits: number;
  /** Entries of the list of mapped buffers, after those of the list of receive buffers. */
  readonly iomapSize: number;
  readonly targetSgl: RemoteMemory;
  readonly dataBuffer: RemoteMemory;
}

/** Sizes travel in 8 bits: up to 128 as they are, above in units of 256. */
export function sizeToOctet(size: number): number {
  return size <= 128 ? size : 128 | (size >> 8);
}

export function octetToSize(octet: number): number {
  return octet <= 128 ? octet : (octet & 0x7f) << 8;
}

export function encodeConnectionData(data: ConnectionData): Uint8Array {
  const bytes = new Uint8Array(CONNECTION_DATA_OCTETS);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, VERSION);
  view.setUint8(1, (data.bigEndian ? FLAG_BIG_ENDIAN : 0) | (data.iomap ? FLAG_IOMAP : 0));
  view.setUint16(2, data.credits);
  view.setUint8(7, sizeToOctet(data.iomapSize));
  putMemory(view, 8, data.targetSgl, false);
  putMemory(view, 24, data.dataBuffer, false);
  return bytes;
}

/**
 * @throws IwarpError ERR_NOT_SUPPORTED for anything but version 1 of this protocol, ERR_CONNECTION_RESET for
 *   memory that no peer can have
 */
export function decodeConnectionData(bytes: Uint8Array): ConnectionData {
  if (bytes.length < CONNECTION_DATA_OCTETS || bytes[0] !== VERSION) {
    throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not speak version 1 of the rsocket protocol');
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const flags = view.getUint8(1);
  const data = {
    bigEndian: (flags & FLAG_BIG_ENDIAN) !== 0,
    iomap: (flags & FLAG_IOMAP) !== 0,
    credits: view.getUint16(2),
    iomapSize: octetToSize(view.getUint8(7)),
    targetSgl: getMemory(view, 8, false),
    dataBuffer: getMemory(view, 24, false),
  };
  const { addr, length } = data.targetSgl;
  if (length === 0) throw memoryError('its list of receive buffers has no entries');
  if (wraps(addr, length * SGE_OCTETS + data.iomapSize * IOMAP_OCTETS))
    throw memoryError('its list of receive buffers lies beyond 2^64');
  if (memoryWraps(data.dataBuffer)) throw memoryError('its receive buffer lies beyond 2^64');
  return data;
}

/**
 * True if memory of a peer does not lie below 2^64. Posting a work request there would be a mistake of ours,
 * so each address of a peer is checked where it comes in.
 */
export function memoryWraps({ addr, length }: RemoteMemory): boolean {
  return wraps(addr, length);
}

function wraps(addr: bigint, octets: number): boolean {
  return addr + BigInt(octets) > 1n << 64n;
}

function memoryError(what: string): IwarpError {
  return new IwarpError('ERR_CONNECTION_RESET', `the peer breaks the rsocket protocol: ${what}`);
}

function putMemory(view: DataView, at: number, memory: RemoteMemory, little: boolean): void {
  view.setUint32(at + (little ? 4 : 0), hi32(memory.addr), little);
  view.setUint32(at + (little ? 0 : 4), lo32(memory.addr), little);
  view.setUint32(at + 8, memory.key, little);
  view.setUint32(at + 12, memory.length, little);
}

/**
 * An engine in a worker may be placing the entry meanwhile, from its start on. The length, which stands last,
 * is read first: if it is there, all is. If it is not, the entry counts as empty, and the message that
 * announces it comes when it is whole.
 */
function getMemory(view: DataView, at: number, little: boolean): RemoteMemory {
  const length = view.getUint32(at + 12, little);
  const addr = toBigInt(
    view.getUint32(at + (little ? 4 : 0), little),
    view.getUint32(at + (little ? 0 : 4), little),
  );
  return { addr, key: view.getUint32(at + 8, little), length };
}

/** A message, in the byte order of the machine that reads it: no side converts it. */
export function putMessage(view: DataView, op: number, value: number, little: boolean): void {
  view.setUint32(0, ((op << VALUE_BITS) | value) >>> 0, little);
}

export function messageOp(word: number): number {
  return word >>> VALUE_BITS;
}

export function messageValue(word: number): number {
  return word & MAX_VALUE;
}

/** An entry of the list of receive buffers, in the byte order of its reader. */
export function encodeSge(memory: RemoteMemory, little: boolean): Uint8Array {
  const bytes = new Uint8Array(SGE_OCTETS);
  putMemory(new DataView(bytes.buffer), 0, memory, little);
  return bytes;
}

export function decodeSge(view: DataView, at: number): RemoteMemory {
  return getMemory(view, at, true);
}

/** A mapped buffer: where it begins in the peer's map, and where it is. */
interface IomapEntry {
  readonly offset: bigint;
  readonly memory: RemoteMemory;
}

export function encodeIomap(entry: IomapEntry, little: boolean): Uint8Array {
  const bytes = new Uint8Array(IOMAP_OCTETS);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, entry.offset, little);
  putMemory(view, 8, entry.memory, little);
  return bytes;
}

export function decodeIomap(view: DataView, at: number): IomapEntry {
  const memory = getMemory(view, at + 8, true);
  return { offset: view.getBigUint64(at, true), memory };
}
