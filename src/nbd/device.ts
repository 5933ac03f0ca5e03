/**
 * What a block device is: an interface of a few methods, which a program can implement itself. Offsets are
 * bigints, since a device may be longer than 2^53 bytes.
 */
import { checkInteger, IwarpError, show } from '../base/errors.ts';
import { areBlockSizes, type BlockSizes } from './wire.ts';

/** A part of a device: how long it is, and whether it is allocated and known to be zero. */
export interface Extent {
  /** Length in bytes. */
  readonly length: number;
  /** Whether no storage is allocated for the part. */
  readonly hole: boolean;
  /** Whether the part reads as zeros. */
  readonly zero: boolean;
}

/** Options of a write. */
export interface WriteOptions {
  /** The write has to be on stable storage before the promise resolves. */
  readonly fua: boolean;
}

/** Options of {@link BlockDevice.zero}. */
export interface ZeroOptions {
  /** Reject with ENOTSUP at once unless this is faster than writing zeros. */
  readonly fast: boolean;
  /** Storage stays allocated. */
  readonly noHole: boolean;
}

/**
 * A block device. Servers call it only with ranges inside `size`, aligned to `blocks.minimum`, and reads and
 * writes of at most `blocks.maximum` bytes. Many calls may be under way at a time. What a method throws or
 * rejects with becomes an error number for the client: see {@link NbdError}.
 *
 * @example
 * const zeros: BlockDevice = {
 *   size: 1n << 30n,
 *   blocks: { minimum: 1, preferred: 4096, maximum: 1 << 20 },
 *   readOnly: true,
 *   read: async (into) => void into.fill(0),
 *   write: () => Promise.reject(new Error('read-only')),
 * };
 */
export interface BlockDevice {
  /** Size in bytes; it does not change. */
  readonly size: bigint;
  /** Limits of requests. */
  readonly blocks: BlockSizes;
  /** Writes are refused. */
  readonly readOnly?: boolean | undefined;
  /**
   * All contents as memory, for devices that are memory: servers send from it and receive into it without a
   * copy between. Writes then do not pass through `write`.
   */
  readonly memory?: Uint8Array | undefined;
  /** Fill `into` from `offset`. The signal aborts when nobody waits for the result. */
  read(into: Uint8Array, offset: bigint, signal: AbortSignal): Promise<void>;
  /** Store `from` at `offset`; `from` belongs to the caller again when the promise settles. */
  write(from: Uint8Array, offset: bigint, options: WriteOptions, signal: AbortSignal): Promise<void>;
  /** Bring every write that has been answered to stable storage. Default: writes are stable. */
  flush?(): Promise<void>;
  /** The range is not needed; what it reads as is undefined. */
  trim?(offset: bigint, length: number): Promise<void>;
  /** Make the range zero. */
  zero?(offset: bigint, length: number, options: ZeroOptions): Promise<void>;
  /** The parts of a range, in order. They may go beyond it, and may stop short of it after the first. */
  extents?(offset: bigint, length: number): AsyncIterable<Extent>;
  /** Give back what the device holds. */
  close?(): Promise<void>;
}

/** What a call without a signal waits on. */
export const NEVER: AbortSignal = new AbortController().signal;

/** Throws ERR_INVALID_ARGUMENT unless `value` has the shape of a block device; returns it. */
export function checkDevice(name: string, value: unknown): BlockDevice {
  const device = value as Partial<BlockDevice> | null;
  if (typeof device !== 'object' || device === null)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a BlockDevice, got ${show(value)}`);
  const { size, blocks } = device;
  if (typeof size !== 'bigint' || size < 0n || size >= 1n << 63n)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.size must be a bigint from 0n to 2n ** 63n - 1n, got ${show(size)}`,
    );
  for (const method of ['read', 'write'] as const) {
    if (typeof device[method] !== 'function')
      throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.${method} must be a function`);
  }
  const { minimum, preferred, maximum } = blocks ?? ({} as Partial<BlockSizes>);
  checkInteger(`${name}.blocks.minimum`, minimum, 1, 65_536);
  checkInteger(`${name}.blocks.preferred`, preferred, 1, 0x8000_0000);
  checkInteger(`${name}.blocks.maximum`, maximum, 1, 0xffff_ffff);
  if (!areBlockSizes(minimum!, preferred!, maximum!))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.blocks: minimum must be a power of two that divides preferred, and not above maximum`,
    );
  return device as BlockDevice;
}

/** Throws ERR_OUT_OF_RANGE unless the range lies inside the device. */
export function checkRange(device: BlockDevice, offset: bigint, length: number): void {
  if (typeof offset !== 'bigint')
    throw new IwarpError('ERR_INVALID_ARGUMENT', `offset must be a bigint, got ${show(offset)}`);
  checkInteger('length', length, 0, 0xffff_ffff);
  if (offset >= 0n && offset + BigInt(length) <= device.size) return;
  throw new IwarpError(
    'ERR_OUT_OF_RANGE',
    `offset ${offset}: ${length} bytes from there pass the device's ${device.size} bytes`,
  );
}
