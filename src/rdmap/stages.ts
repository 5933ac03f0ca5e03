/** Stages lent to streams for the time of one write, so that idle connections hold none. */
import { FreeList } from '../base/free-list.ts';
import { POOL_OCTETS, type MemorySource } from '../crc32c/memory.ts';
import { createStage, type Stage } from '../mpa/stage.ts';

/**
 * Octets of a stage, which is one write: two TCP segments of the loopback interface (65483 octets each), less what keeps stages apart by
 * whole words. 64 KiB is one such segment and a little one after it, and each write may have to wake the peer, which costs more than the
 * octets; at twice that 1 MiB Reads without CRC gained 1.3 to 1.8, Writes with markers 1.2 to 1.4, and CRC on a little. Two stages of
 * 128 KiB still stay in the second-level cache; four of 256 KiB, tried with the prototypes, fell out of it and cost a quarter.
 */
export const STAGE_OCTETS = 130_960;

/**
 * Octets of a write whose payloads are lent, unless one FPDU alone is longer. Nothing of it has to stay in a cache; more would keep a
 * Terminate or a message of the other kind waiting for longer.
 */
export const LENT_WRITE_OCTETS = 262_144;

/** From this many octets on, and in one piece, a payload is lent. Below, the copy costs less than the view and its place in the list. */
export const LEND_FROM = 6144;

/** Lends stages. */
export interface StagePool {
  acquire(): Stage;
  release(stage: Stage): void;
}

/** A pool that keeps up to `keep` free stages, and gives the memory of others back. */
export class FreeListStagePool implements StagePool {
  readonly #memory: MemorySource;
  readonly #free: FreeList<Stage>;

  constructor(memory: MemorySource, keep: number = Math.floor(POOL_OCTETS / STAGE_OCTETS)) {
    this.#memory = memory;
    this.#free = new FreeList(keep, ({ bytes }) => memory.release(bytes));
  }

  acquire(): Stage {
    return this.#free.take() ?? createStage(this.#memory.allocate(STAGE_OCTETS));
  }

  release(stage: Stage): void {
    stage.clear();
    this.#free.put(stage);
  }
}
