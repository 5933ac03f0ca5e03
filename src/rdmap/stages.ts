/** Stages lent to streams for the time of one write, so that idle connections hold none. */
import { createStage, type Stage } from '../mpa/framer.ts';

/**
 * Octets of a stage: one write's worth. 64 KiB stays in the second-level cache, where larger stages fall out of it (256 KiB cost a
 * quarter of the throughput), and holds the largest lawful FPDU with all its markers.
 */
export const STAGE_OCTETS = 65_536;

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
    const stage = this.#free.pop() ?? createStage(this.#allocate(STAGE_OCTETS));
    stage.end = 0;
    return stage;
  }

  release(stage: Stage): void {
    if (this.#free.length < this.#keep) this.#free.push(stage);
  }
}
