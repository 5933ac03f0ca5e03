/** A part of another block device as a device. */
import { IwarpError } from '../../base/errors.ts';
import {
  checkDevice,
  checkRange,
  type BlockDevice,
  type Extent,
  type WriteOptions,
  type ZeroOptions,
} from '../device.ts';

/**
 * `length` bytes of a device from `offset`; both are multiples of its minimum block size. Closing the slice
 * leaves the device open.
 *
 * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE
 *
 * @example
 * const partition = sliceDevice(disk, 1048576n, disk.size - 1048576n);
 */
export function sliceDevice(device: BlockDevice, offset: bigint, length: bigint): BlockDevice {
  checkDevice('device', device);
  if (typeof offset !== 'bigint' || typeof length !== 'bigint')
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'offset and length must be bigints');
  if (offset < 0n || length < 0n || offset + length > device.size)
    throw new IwarpError('ERR_OUT_OF_RANGE', `offset and length must lie inside the ${device.size} bytes`);
  const minimum = BigInt(device.blocks.minimum);
  if (offset % minimum !== 0n || length % minimum !== 0n)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `offset and length must be multiples of ${minimum}`);
  return new SliceDevice(device, offset, length);
}

class SliceDevice implements BlockDevice {
  readonly size: bigint;
  readonly blocks: BlockDevice['blocks'];
  readonly readOnly: boolean;
  readonly memory?: Uint8Array;
  readonly flush?: () => Promise<void>;
  readonly trim?: (offset: bigint, length: number) => Promise<void>;
  readonly zero?: (offset: bigint, length: number, options: ZeroOptions) => Promise<void>;
  readonly extents?: (offset: bigint, length: number) => AsyncIterable<Extent>;
  readonly #under: BlockDevice;
  readonly #start: bigint;

  constructor(under: BlockDevice, start: bigint, size: bigint) {
    this.#under = under;
    this.#start = start;
    this.size = size;
    this.blocks = under.blocks;
    this.readOnly = under.readOnly ?? false;
    if (under.memory !== undefined) this.memory = under.memory.subarray(Number(start), Number(start + size));
    if (under.flush !== undefined) this.flush = () => under.flush!();
    if (under.trim !== undefined)
      this.trim = (offset, length) => under.trim!(this.#at(offset, length), length);
    if (under.zero !== undefined)
      this.zero = (offset, length, options) => under.zero!(this.#at(offset, length), length, options);
    if (under.extents !== undefined) this.extents = (offset, length) => this.#extents(offset, length);
  }

  #at(offset: bigint, length: number): bigint {
    checkRange(this, offset, length);
    return this.#start + offset;
  }

  async read(into: Uint8Array, offset: bigint, signal: AbortSignal): Promise<void> {
    await this.#under.read(into, this.#at(offset, into.length), signal);
  }

  async write(from: Uint8Array, offset: bigint, options: WriteOptions, signal: AbortSignal): Promise<void> {
    await this.#under.write(from, this.#at(offset, from.length), options, signal);
  }

  /** The last part may go beyond the slice: it is cut there. */
  async *#extents(offset: bigint, length: number): AsyncGenerator<Extent> {
    let left = this.size - offset;
    for await (const extent of this.#under.extents!(this.#at(offset, length), length)) {
      const inside = Number(left < BigInt(extent.length) ? left : BigInt(extent.length));
      if (inside === 0) return;
      yield { ...extent, length: inside };
      left -= BigInt(inside);
    }
  }
}
