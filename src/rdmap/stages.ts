/** Stages lent to streams for the time of one write, so that idle connections hold none. */
import { createStage, type Stage } from '../mpa/stage.ts';

/**
 * Octets of a stage: one write's worth. 64 KiB stays in the second-level cache, where larger stages fall out of it (256 KiB cost a
 * quarter of the throughput), and holds the largest lawful FPDU with all its markers.
 */
export const STAGE_OCTETS = 65_536;

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

/** A pool that keeps up to `keep` free stages. */
export class FreeListStagePool implements StagePool {
  readonly #allocate: (octets: number) => Uint8Array;
  readonly #free: Stage[] = [];
  readonly #keep: number;

  constructor(allocate: (octets: number) => Uint8Array = (octets) => new Uint8Array(octets), keep = 16) {
    this.#allocate = allocate;
    this.#keep = keep;
  }

  acquire(): Stage {
    return this.#free.pop() ?? createStage(this.#allocate(STAGE_OCTETS));
  }

  release(stage: Stage): void {
    stage.clear();
    if (this.#free.length < this.#keep) this.#free.push(stage);
  }
}
