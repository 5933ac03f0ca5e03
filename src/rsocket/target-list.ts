/** The memory that the peer Writes its receive buffers and mapped buffers into, one entry after the other. */
import type { MemoryRegion } from '../verbs/memory.ts';
import { findMapped } from './iomap.ts';
import { viewOf } from './resources.ts';
import { decodeSge, SGE_OCTETS, SGL_ENTRIES, type RemoteMemory } from './wire.ts';

export class TargetList {
  readonly #view: DataView;
  readonly #iomapSize: number;
  #next = 1;

  constructor(list: MemoryRegion, iomapSize: number) {
    this.#view = viewOf(list);
    this.#iomapSize = iomapSize;
  }

  /** The receive buffer that the peer has entered next, and only once; null if there is none. */
  take(): RemoteMemory | null {
    const at = this.#next * SGE_OCTETS;
    const { addr, key, length } = decodeSge(this.#view, at);
    if (length === 0) return null;
    this.#view.setUint32(at + 12, 0);
    this.#next = (this.#next + 1) % SGL_ENTRIES;
    return { addr, key, length };
  }

  /** The mapped buffer of the peer that holds `offset`; null if none does. */
  mapped(offset: bigint): ReturnType<typeof findMapped> {
    return findMapped(this.#view, SGL_ENTRIES * SGE_OCTETS, this.#iomapSize, offset);
  }
}
