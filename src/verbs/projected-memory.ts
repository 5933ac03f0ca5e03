/**
 * A change that queued requests will make to a region or window (invalidate it, register or bind it anew)
 * counts for the requests posted after them, though it has not happened yet. So memory with such work in a
 * queue has a projection: how it will stand once that is done.
 */
import type { StagEntry } from '../ddp/stag-table.ts';
import type { PostedMemory } from '../queues/work.ts';

/** A region or a window. */
interface ChangingMemory {
  readonly entry: StagEntry;
  /** Null unless work that changes the memory is queued. */
  projected: ProjectedMemory | null;
}

/** The fields of an entry that work can change, under the same names, so that one check serves both. */
export class ProjectedMemory implements PostedMemory {
  stag: number;
  valid: boolean;
  access: number;
  bytes: Uint8Array;
  baseHi: number;
  baseLo: number;
  readonly #memory: ChangingMemory;
  /** Requests that are queued. */
  #queued = 0;

  constructor(memory: ChangingMemory) {
    const { stag, valid, access, bytes, baseHi, baseLo } = memory.entry;
    this.#memory = memory;
    this.stag = stag;
    this.valid = valid;
    this.access = access;
    this.bytes = bytes;
    this.baseHi = baseHi;
    this.baseLo = baseLo;
  }

  /** Work that changes `memory` is being queued: its projection, to be changed as the work will change it. */
  static queue(memory: ChangingMemory): ProjectedMemory {
    const projected = (memory.projected ??= new ProjectedMemory(memory));
    projected.#queued++;
    return projected;
  }

  /** One such request is through, done or flushed. A call that changes memory at once ends its projection. */
  settled(): void {
    this.#queued--;
    if (this.#queued === 0 && this.#memory.projected === this) this.#memory.projected = null;
  }
}
