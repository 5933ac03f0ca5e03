/**
 * Requests against a device: the checks that the NBD document asks of a server, and their execution. Shared
 * by servers over byte streams and over queue pairs.
 */
import { AbortController } from '../base/host.ts';
import { clearTimeout, setTimeout } from 'node:timers';
import { whenAborted } from '../base/abort.ts';
import type { BlockDevice } from './device.ts';
import { NbdError } from './errors.ts';
import {
  COMMAND,
  COMMAND_FLAG,
  DEFAULT_MAXIMUM,
  EXTENT,
  NBD_ERRORS,
  TRANSMISSION_FLAG,
  type BlockSizes,
  type ExtentDescriptor,
  type RequestHeader,
} from './wire.ts';

/** What a connection has agreed on. */
export interface Agreement {
  /** Replies to READ and BLOCK_STATUS are structured. */
  readonly structured: boolean;
  /** The client may ask for base:allocation. */
  readonly blockStatus: boolean;
  /** Longest READ or WRITE here. */
  readonly maximum: number;
}

/** Flags that a command may carry beside FUA, which goes with every command. */
const FLAGS: Readonly<Record<number, number>> = {
  [COMMAND.READ]: COMMAND_FLAG.DF,
  [COMMAND.WRITE]: 0,
  [COMMAND.FLUSH]: 0,
  [COMMAND.TRIM]: 0,
  [COMMAND.WRITE_ZEROES]: COMMAND_FLAG.NO_HOLE | COMMAND_FLAG.FAST_ZERO,
  [COMMAND.BLOCK_STATUS]: COMMAND_FLAG.REQ_ONE,
};

/** Most descriptors of one BLOCK_STATUS reply: 8 KiB of them. */
const MAX_EXTENTS = 1024;

/** Transmission flags of a device. */
export function flagsOf(device: BlockDevice, structured: boolean): number {
  const F = TRANSMISSION_FLAG;
  // One device serves all connections, so that a flush on any of them covers all.
  let flags = F.HAS_FLAGS | F.CAN_MULTI_CONN | (structured ? F.SEND_DF : 0);
  if (device.readOnly === true) return flags | F.READ_ONLY;
  flags |= F.SEND_FLUSH | F.SEND_FUA;
  if (device.trim !== undefined) flags |= F.SEND_TRIM;
  if (device.zero !== undefined) flags |= F.SEND_WRITE_ZEROES | F.SEND_FAST_ZERO;
  return flags;
}

/** Limits that a server announces: never above what the protocol takes without asking. */
export function blocksOf({ blocks }: BlockDevice, most: number = DEFAULT_MAXIMUM): BlockSizes {
  const { minimum, preferred, maximum } = blocks;
  return { minimum, preferred, maximum: Math.max(minimum, Math.min(maximum, most)) };
}

/** 0, or the error number that refuses the request. */
export function checkRequest(device: BlockDevice, request: RequestHeader, agreed: Agreement): number {
  const { command, flags, offset, length } = request;
  const { EINVAL, ENOSPC, EPERM } = NBD_ERRORS;
  const allowed = FLAGS[command];
  if (allowed === undefined) return EINVAL;
  const readOnly = device.readOnly === true;
  const common = readOnly ? 0 : COMMAND_FLAG.FUA;
  if ((flags & ~(allowed | common)) !== 0) return readOnly && mutates(command) ? EPERM : EINVAL;
  if ((flags & COMMAND_FLAG.DF) !== 0 && !agreed.structured) return EINVAL;
  if (command === COMMAND.BLOCK_STATUS && !agreed.blockStatus) return EINVAL;
  if (mutates(command) && readOnly) return EPERM;
  if (command === COMMAND.TRIM && device.trim === undefined) return EINVAL;
  if (command === COMMAND.WRITE_ZEROES && device.zero === undefined) return EINVAL;
  if (command === COMMAND.FLUSH) return offset === 0n && length === 0 ? 0 : EINVAL;
  if (length === 0) return EINVAL;
  const moves = command === COMMAND.READ || command === COMMAND.WRITE;
  if (moves && length > agreed.maximum) return EINVAL;
  if (offset + BigInt(length) > device.size)
    return command === COMMAND.WRITE || command === COMMAND.WRITE_ZEROES ? ENOSPC : EINVAL;
  const { minimum } = device.blocks;
  return minimum > 1 && (length % minimum !== 0 || offset % BigInt(minimum) !== 0n) ? EINVAL : 0;
}

function mutates(command: number): boolean {
  return command === COMMAND.WRITE || command === COMMAND.TRIM || command === COMMAND.WRITE_ZEROES;
}

/** The memory of a request's range, where the device is memory. */
export function memoryOf({ memory }: BlockDevice, offset: bigint, length: number): Uint8Array | null {
  if (memory === undefined) return null;
  const at = Number(offset);
  // A range was checked against the size; memory that has shrunk since then is no memory.
  return at + length <= memory.length ? memory.subarray(at, at + length) : null;
}

/**
 * Execute a request that has passed {@link checkRequest}. `data` is filled by READ and stored by WRITE. The
 * promise rejects with whatever the device throws, or with EIO when `patience` milliseconds have passed.
 */
export async function perform(
  device: BlockDevice,
  request: RequestHeader,
  data: Uint8Array,
  connection: AbortSignal,
  patience: number,
): Promise<void> {
  const abort = new AbortController();
  const give = (): void => abort.abort(connection.reason);
  if (connection.aborted) give();
  const stop = whenAborted(connection, give);
  try {
    await inTime(execute(device, request, data, abort.signal), patience, (late) => abort.abort(late));
  } finally {
    stop();
  }
}

/**
 * The result of a device's method; rejects with EIO when `patience` milliseconds have passed, after a call of
 * `gaveUp`.
 */
export async function inTime<T>(
  work: Promise<T>,
  patience: number,
  gaveUp?: (late: NbdError) => void,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      const error = new NbdError('EIO', `the device has not answered within ${patience} ms`);
      gaveUp?.(error);
      reject(error);
    }, patience);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function execute(
  device: BlockDevice,
  { command, flags, offset, length }: RequestHeader,
  data: Uint8Array,
  signal: AbortSignal,
): Promise<void> {
  const fua = (flags & COMMAND_FLAG.FUA) !== 0;
  switch (command) {
    case COMMAND.READ:
      return await device.read(data, offset, signal);
    case COMMAND.WRITE:
      return await device.write(data, offset, { fua }, signal);
    case COMMAND.FLUSH:
      return await device.flush?.();
    case COMMAND.TRIM:
      await device.trim!(offset, length);
      break;
    case COMMAND.WRITE_ZEROES: {
      const fast = (flags & COMMAND_FLAG.FAST_ZERO) !== 0;
      const noHole = (flags & COMMAND_FLAG.NO_HOLE) !== 0;
      await device.zero!(offset, length, { fast, noHole });
    }
  }
  if (fua) await device.flush?.();
}

/**
 * Descriptors of a BLOCK_STATUS reply; neighbours of one state are joined. Rejects with EIO when `patience`
 * milliseconds have passed.
 */
export async function extentsOf(
  device: BlockDevice,
  request: RequestHeader,
  patience: number,
): Promise<ExtentDescriptor[]> {
  return await inTime(collectExtents(device, request), patience);
}

async function collectExtents(
  device: BlockDevice,
  { flags, offset, length }: RequestHeader,
): Promise<ExtentDescriptor[]> {
  if (device.extents === undefined) return [{ length, flags: 0 }];
  const one = (flags & COMMAND_FLAG.REQ_ONE) !== 0;
  const found: { length: number; flags: number }[] = [];
  let left = length;
  for await (const extent of device.extents(offset, length)) {
    if (!Number.isInteger(extent.length) || extent.length <= 0)
      throw new NbdError('EIO', `the device reports an extent of ${extent.length} bytes`);
    const inside = Math.min(extent.length, left);
    const bits = (extent.hole ? EXTENT.HOLE : 0) | (extent.zero ? EXTENT.ZERO : 0);
    const last = found.at(-1);
    if (last?.flags === bits) last.length += inside;
    else if (found.length === (one ? 1 : MAX_EXTENTS)) break;
    else found.push({ length: inside, flags: bits });
    left -= inside;
    if (left === 0) break;
  }
  if (found.length === 0) throw new NbdError('EIO', 'the device reports no extent');
  return found;
}
