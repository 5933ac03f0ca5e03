/**
 * A block device over a file or a block device of the system. Node has no call for holes: `trim` changes
 * nothing, and zeros are written.
 */
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { checkBoolean, checkOptions, IwarpError, show, type Names } from '../../base/errors.ts';
import type { BlockDevice, WriteOptions, ZeroOptions } from '../device.ts';
import { checkRange } from '../device.ts';
import { NbdError } from '../errors.ts';
import { DEFAULT_MAXIMUM } from '../wire.ts';

/** Options of {@link fileDevice}. */
export interface FileDeviceOptions {
  /** Default false. */
  readonly readOnly?: boolean | undefined;
  /** Make the file, or give it this size in bytes; without it the file has to exist. */
  readonly size?: number | undefined;
}

const NAMES: Names<FileDeviceOptions> = { readOnly: true, size: true };
const ZEROS = new Uint8Array(1024 * 1024);

/**
 * Open a file as a block device; `close()` closes it.
 *
 * @throws ERR_INVALID_ARGUMENT; rejects with ERR_ACCESS for what the system refuses
 *
 * @example
 * const disk = await fileDevice('disk.img', { size: 1 << 30 });
 */
export async function fileDevice(path: string, options: FileDeviceOptions = {}): Promise<BlockDevice> {
  if (typeof path !== 'string' || path === '')
    throw new IwarpError('ERR_INVALID_ARGUMENT', `path must be a file's path, got ${show(path)}`);
  checkOptions('options', options, NAMES);
  const readOnly = checkBoolean('options.readOnly', options.readOnly ?? false);
  const { size } = options;
  if (size !== undefined && !(Number.isSafeInteger(size) && size >= 0 && !readOnly))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.size must be a whole number of bytes, and is for writable files, got ${show(size)}`,
    );
  const flags = readOnly
    ? constants.O_RDONLY
    : constants.O_RDWR | (size === undefined ? 0 : constants.O_CREAT);
  let file: FileHandle | null = null;
  try {
    file = await open(path, flags, 0o644);
    if (size !== undefined) await file.truncate(size);
    return new FileDevice(file, await sizeOf(file), readOnly);
  } catch (error) {
    await file?.close();
    throw new IwarpError('ERR_ACCESS', `${path}: ${(error as Error).message}`, { cause: error });
  }
}

/** A block device of the system has no length in its inode: its last byte is looked for. */
async function sizeOf(file: FileHandle): Promise<number> {
  const found = await file.stat();
  if (found.isFile()) return found.size;
  if (!found.isBlockDevice())
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'is neither a regular file nor a block device');
  const byte = new Uint8Array(1);
  const has = async (at: number): Promise<boolean> => (await file.read(byte, 0, 1, at)).bytesRead === 1;
  if (!(await has(0))) return 0;
  let [low, high] = [0, 512];
  while (await has(high)) [low, high] = [high, high * 2];
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (await has(middle)) low = middle;
    else high = middle;
  }
  return high;
}

class FileDevice implements BlockDevice {
  readonly #file: FileHandle;
  readonly size: bigint;
  readonly readOnly: boolean;
  readonly blocks = { minimum: 1, preferred: 4096, maximum: DEFAULT_MAXIMUM } as const;

  constructor(file: FileHandle, size: number, readOnly: boolean) {
    this.#file = file;
    this.size = BigInt(size);
    this.readOnly = readOnly;
  }

  async read(into: Uint8Array, offset: bigint): Promise<void> {
    checkRange(this, offset, into.length);
    for (let at = 0; at < into.length; ) {
      const { bytesRead } = await this.#file.read(into, at, into.length - at, Number(offset) + at);
      if (bytesRead === 0) throw new NbdError('EIO', 'the file has become shorter than the device');
      at += bytesRead;
    }
  }

  async write(from: Uint8Array, offset: bigint, { fua }: WriteOptions): Promise<void> {
    checkRange(this, offset, from.length);
    for (let at = 0; at < from.length; )
      at += (await this.#file.write(from, at, from.length - at, Number(offset) + at)).bytesWritten;
    if (fua) await this.#file.datasync();
  }

  flush(): Promise<void> {
    return this.#file.datasync();
  }

  async trim(offset: bigint, length: number): Promise<void> {
    checkRange(this, offset, length);
  }

  async zero(offset: bigint, length: number, { fast }: ZeroOptions): Promise<void> {
    checkRange(this, offset, length);
    if (fast) throw new NbdError('ENOTSUP', 'zeros are written, which is as slow as any write');
    for (let at = 0; at < length; at += ZEROS.length) {
      const part = ZEROS.subarray(0, Math.min(ZEROS.length, length - at));
      await this.write(part, offset + BigInt(at), { fua: false });
    }
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}
