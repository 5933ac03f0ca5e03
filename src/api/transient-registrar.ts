/**
 * How any view becomes memory that the device can use, for the time of one operation. Registrations are kept
 * for the next operation: making one costs more than all the rest of a small Read (`read 64` of
 * bench/micro/layers.ts), and where the device works in other threads a hand-shake.
 */
import { isShared, lengthNow, putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { FreeList, SizedPool } from '../base/pool.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import type { MemoryRegion, Sge } from '../verbs/memory.ts';
import type { ProtectionDomain } from '../verbs/pd.ts';

/** @internal Memory as an operation uses it. */
export interface Local {
  readonly sge: Sge;
  readonly length: number;
  readonly bytes: Uint8Array;
  readonly cleanup: Cleanup | null;
}

/**
 * Runs once, when the stack is done with the memory; `ok` says whether the operation succeeded. Returns the
 * error that spoils that success on this side, or null.
 */
export type Cleanup = (ok: boolean) => IwarpError | null;

/** @internal */
export interface TransientRegistrar {
  /** The device works in this thread: memory that is only read needs no registration at all. */
  readonly inThread: boolean;
  /** `bytes` for one operation that needs `access` of them. */
  lend(bytes: Uint8Array, access: number): Local;
  /** The connection is gone. */
  close(): void;
}

/** @internal What suits the domain's device. */
export function registrarFor(pd: ProtectionDomain): TransientRegistrar {
  return !pd.device.mirror.offloaded ? new DirectRegistrar(pd) : new BounceRegistrar(pd);
}

/** Registrations without memory that are kept. As many operations can be under way by default. */
const KEEP_REGIONS = 256;

/**
 * Memory that the device reaches as it is: a kept registration is given the view, each time under another
 * key.
 */
class DirectRegistrar implements TransientRegistrar {
  readonly inThread = true;
  readonly #pd: ProtectionDomain;
  /** Registrations without memory. */
  readonly #free = new FreeList<MemoryRegion>(KEEP_REGIONS, (region) => region.deregister());

  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
  }

  lend(bytes: Uint8Array, access: number): Local {
    let mr = this.#free.take();
    if (mr === undefined) mr = this.#pd.registerMemory(bytes, access);
    else mr.lend(bytes, access);
    const region = mr;
    return {
      sge: { mr, offset: 0, length: bytes.length },
      length: bytes.length,
      bytes,
      cleanup: () => this.#giveBack(region),
    };
  }

  #giveBack(region: MemoryRegion): null {
    region.takeBack();
    this.#free.put(region);
    return null;
  }

  close(): void {
    this.#free.close();
  }
}

/**
 * Copies the bytes of a Read to the program's memory. Returns an error if that memory has been detached or
 * resized: such a view has no bytes, or fewer.
 */
function copyBack(source: Uint8Array, target: Uint8Array, octets: number): IwarpError | null {
  if (lengthNow(target) < octets)
    return new IwarpError(
      'ERR_INVALID_REGION',
      'local: the memory has been transferred away or resized since it was given',
    );
  putBytes(source.subarray(0, octets), target, 0);
  return null;
}

/** Small pieces are worth keeping in one size. */
const SMALLEST = 256;
/** Bytes kept for later operations; memory beyond that is deregistered at once. */
const KEEP_OCTETS = 4 << 20;

/**
 * Lends memory that only this thread reaches: the bytes are copied to shared memory for the time of the
 * operation, and the bytes of a Read are copied back.
 */
class BounceRegistrar implements TransientRegistrar {
  readonly inThread = false;
  readonly #pd: ProtectionDomain;
  /** Free pieces, whose sizes are powers of two. */
  readonly #free = new SizedPool<MemoryRegion>(KEEP_OCTETS, (region) => region.deregister());

  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
  }

  lend(bytes: Uint8Array, access: number): Local {
    const { length } = bytes;
    if (isShared(bytes)) {
      const region = this.#pd.registerMemory(bytes, access);
      return {
        sge: { mr: region, offset: 0, length },
        length,
        bytes,
        cleanup: () => (region.deregister(), null),
      };
    }
    const mr = this.#take(length);
    const sink = (access & ACCESS.LOCAL_WRITE) !== 0;
    if (!sink) putBytes(bytes, mr.bytes, 0);
    const cleanup = (ok: boolean): IwarpError | null => {
      const gone = ok && sink ? copyBack(mr.bytes, bytes, length) : null;
      this.#giveBack(mr);
      return gone;
    };
    return { sge: { mr, offset: 0, length }, length, bytes, cleanup };
  }

  /** Takes a piece of at least `octets` bytes. */
  #take(octets: number): MemoryRegion {
    let size = octets; // a piece that is not kept has exactly the size needed
    if (octets <= KEEP_OCTETS) for (size = SMALLEST; size < octets; ) size *= 2;
    const { device } = this.#pd;
    return this.#free.take(size) ?? this.#pd.registerMemory(device.allocateMemory(size), ACCESS.LOCAL_WRITE);
  }

  #giveBack(region: MemoryRegion): void {
    this.#free.put(region, region.length);
  }

  close(): void {
    this.#free.close();
  }
}
