/** A block device that is memory. It is gone with the process. */
import { setImmediate } from 'node:timers';
import { clearBytes, putBytes } from '../../base/copy.ts';
import {
  checkBoolean,
  checkBytes,
  checkInteger,
  checkOptions,
  orNoMemory,
  type Names,
} from '../../base/errors.ts';
import type { BlockDevice, Extent } from '../device.ts';
import { checkRange } from '../device.ts';
import { DEFAULT_MAXIMUM } from '../wire.ts';

/** Options of {@link memoryDevice}: a size, or memory that is there. */
export interface MemoryDeviceOptions {
  /** Size in bytes of new memory, all zeros; at most 4 GiB less one. */
  readonly size?: number | undefined;
  /** The contents; nothing is copied. */
  readonly memory?: ArrayBufferView | undefined;
  /** New memory is over a SharedArrayBuffer, as devices with worker engines need it. Default false. */
  readonly shared?: boolean | undefined;
  /** Default false. */
  readonly readOnly?: boolean | undefined;
}

const NAMES: Names<MemoryDeviceOptions> = { size: true, memory: true, shared: true, readOnly: true };
/** Offsets and lengths of work requests are 32 bits wide. */
const MOST = 0xffff_ffff;
/** Long fills let other work of the thread in between. */
const FILL = 16 * 1024 * 1024;

/**
 * A block device over memory. Servers send from this memory and receive into it without a copy between.
 *
 * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT
 *
 * @example
 * const disk = memoryDevice({ size: 64 * 1024 * 1024 });
 */
export function memoryDevice(options: MemoryDeviceOptions): BlockDevice & { readonly memory: Uint8Array } {
  checkOptions('options', options, NAMES);
  const shared = checkBoolean('options.shared', options.shared ?? false);
  const readOnly = checkBoolean('options.readOnly', options.readOnly ?? false);
  const memory =
    options.memory === undefined
      ? allocate(checkInteger('options.size', options.size, 0, MOST), shared)
      : checkBytes('options.memory', options.memory);
  checkInteger('options.memory.byteLength', memory.length, 0, MOST);
  return new MemoryDevice(memory, readOnly);
}

function allocate(size: number, shared: boolean): Uint8Array {
  return new Uint8Array(
    orNoMemory(size, () => (shared ? new SharedArrayBuffer(size) : new ArrayBuffer(size))),
  );
}

class MemoryDevice implements BlockDevice {
  readonly memory: Uint8Array;
  readonly size: bigint;
  readonly readOnly: boolean;
  readonly blocks = { minimum: 1, preferred: 4096, maximum: DEFAULT_MAXIMUM } as const;

  constructor(memory: Uint8Array, readOnly: boolean) {
    this.memory = memory;
    this.size = BigInt(memory.length);
    this.readOnly = readOnly;
  }

  async read(into: Uint8Array, offset: bigint): Promise<void> {
    checkRange(this, offset, into.length);
    const at = Number(offset);
    putBytes(this.memory.subarray(at, at + into.length), into, 0);
  }

  async write(from: Uint8Array, offset: bigint): Promise<void> {
    checkRange(this, offset, from.length);
    putBytes(from, this.memory, Number(offset));
  }

  async flush(): Promise<void> {
    // Memory is as stable as it gets.
  }

  /** Trimmed memory reads as zeros. */
  trim(offset: bigint, length: number): Promise<void> {
    return this.zero(offset, length);
  }

  async zero(offset: bigint, length: number): Promise<void> {
    checkRange(this, offset, length);
    const end = Number(offset) + length;
    for (let at = Number(offset); at < end; at += FILL) {
      clearBytes(this.memory.subarray(at, Math.min(end, at + FILL)));
      if (at + FILL < end) await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async *extents(_offset: bigint, length: number): AsyncGenerator<Extent> {
    yield { length, hole: false, zero: false };
  }
}
