/**
 * Shared memory for operations on memory that is not, where the device works in other threads: the octets are copied there for the time of
 * the operation, and what was read is copied back. Pieces are kept for the next operation, since registering costs a hand-shake with the
 * engine.
 */
import { ACCESS } from '../ddp/stag-table.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { ProtectionDomain } from '../verbs/pd.ts';

/** Small pieces are worth keeping in one size. */
const SMALLEST = 256;
/** Octets kept for later; what is above goes back at once. */
const KEEP_OCTETS = 4 << 20;

export class BouncePool {
  readonly #pd: ProtectionDomain;
  /** Free pieces by size, a power of two. */
  readonly #free = new Map<number, MemoryRegion[]>();
  readonly #lent = new Set<MemoryRegion>();
  #kept = 0;
  #closed = false;

  constructor(pd: ProtectionDomain) {
    this.#pd = pd;
  }

  /** A piece of at least so many octets. */
  take(octets: number): MemoryRegion {
    let size = SMALLEST;
    while (size < octets) size *= 2;
    let region = this.#free.get(size)?.pop();
    if (region === undefined) region = this.#pd.registerMemory(this.#pd.device.newMemory(size), ACCESS.LOCAL_WRITE);
    else this.#kept -= size;
    this.#lent.add(region);
    return region;
  }

  give(region: MemoryRegion): void {
    this.#lent.delete(region);
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

  /** The connection is gone. */
  close(): void {
    this.#closed = true;
    for (const regions of this.#free.values()) for (const region of regions) region.deregister();
    this.#free.clear();
  }
}
