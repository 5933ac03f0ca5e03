/**
 * How any view becomes memory that the device can use, for the time of one operation. Registrations are kept for the next operation: making
 * one costs more than all the rest of a small Read, and where the device works in other threads a hand-shake.
 */
import { isShared, putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
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

/** Run once, when the stack is done with the memory; told whether the operation succeeded. Returns what is in the way of that here. */
export type Cleanup = (ok: boolean) => IwarpError | null;

/** @internal */
export interface Lender {
  /** The device works in this thread: memory that is only read needs no registration at all. */
  readonly inThread: boolean;
  /** `bytes` for one operation that needs `access` of them. */
  lend(bytes: Uint8Array, access: number): Local;
  /** The connection is gone. */
  close(): void;
}

/** @internal What suits the domain's device. */
export function lenderFor(pd: ProtectionDomain): Lender {
  return pd.device.mirror === null ? new InPlace(pd) : new Bounce(pd);
}

/** Registrations without memory that are kept. As many operations can be under way by default. */
const KEEP_REGIONS = 256;

/** Memory that the device reaches as it is: a kept registration is given the view, each time under another key. */
class InPlace implements Lender {
  readonly inThread = true;
  readonly #pd: ProtectionDomain;
  readonly #free: MemoryRegion[] = [];
  #closed = false;

  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
  }

  lend(bytes: Uint8Array, access: number): Local {
    let mr = this.#free.pop();
    if (mr === undefined) mr = this.#pd.registerMemory(bytes, access);
    else mr.lend(bytes, access);
    const region = mr;
    return { sge: { mr, offset: 0, length: bytes.length }, length: bytes.length, bytes, cleanup: () => this.#giveBack(region) };
  }

  #giveBack(region: MemoryRegion): null {
    if (this.#closed || this.#free.length >= KEEP_REGIONS) {
      region.deregister();
      return null;
    }
    region.takeBack();
    this.#free.push(region);
    return null;
  }

  close(): void {
    this.#closed = true;
    for (const region of this.#free.splice(0)) region.deregister();
  }
}

/** What was read comes to the program's memory, unless that is not there any more: such a view has no octets, or fewer. */
function copyBack(source: Uint8Array, target: Uint8Array, octets: number): IwarpError | null {
  if (target.length < octets) return new IwarpError('ERR_INVALID_REGION', 'local: the memory has been transferred away or resized since it was given');
  putBytes(source.subarray(0, octets), target, 0);
  return null;
}

/** Small pieces are worth keeping in one size. */
const SMALLEST = 256;
/** Octets kept for later; what is above goes back at once. */
const KEEP_OCTETS = 4 << 20;

/** Memory that only this thread reaches: the octets are copied to shared memory for the time of the operation, and what was read is copied back. */
class Bounce implements Lender {
  readonly inThread = false;
  readonly #pd: ProtectionDomain;
  /** Free pieces by size, a power of two. */
  readonly #free = new Map<number, MemoryRegion[]>();
  #kept = 0;
  #closed = false;

  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
  }

  lend(bytes: Uint8Array, access: number): Local {
    const { length } = bytes;
    if (isShared(bytes)) {
      const region = this.#pd.registerMemory(bytes, access);
      return { sge: { mr: region, offset: 0, length }, length, bytes, cleanup: () => (region.deregister(), null) };
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

  /** A piece of at least so many octets. */
  #take(octets: number): MemoryRegion {
    let size = octets; // what is not kept has the size that it needs
    if (octets <= KEEP_OCTETS) for (size = SMALLEST; size < octets;) size *= 2;
    const region = this.#free.get(size)?.pop();
    if (region === undefined) return this.#pd.registerMemory(this.#pd.device.newMemory(size), ACCESS.LOCAL_WRITE);
    this.#kept -= size;
    return region;
  }

  #giveBack(region: MemoryRegion): void {
    const size = region.length;
    if (this.#closed || this.#kept + size > KEEP_OCTETS) {
      region.deregister();
      return;
    }
    this.#kept += size;
    const free = this.#free.get(size);
    if (free === undefined) this.#free.set(size, [region]);
    else free.push(region);
  }

  close(): void {
    this.#closed = true;
    for (const regions of this.#free.values()) for (const region of regions) region.deregister();
    this.#free.clear();
  }
}
