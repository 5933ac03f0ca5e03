/**
 * Run moving without WebAssembly; runs.ts says what for. A view for each run would be more than a hundred
 * objects an FPDU, so the bytes are copied in one piece to where they end up, and moved apart or together
 * there.
 */
import { RUN_OCTETS, RUN_SCRATCH_OCTETS, RUN_SPACING, type RunKernel } from './runs.ts';

const GAP = RUN_SPACING - RUN_OCTETS;

export class JsRuns implements RunKernel {
  readonly #allocate: (octets: number) => Uint8Array;
  // Made when markers first ask for them.
  #spreadScratch: Uint8Array | undefined;
  #collectScratch: Uint8Array | undefined;

  /** `allocate` makes the scratch memory. */
  constructor(allocate: (octets: number) => Uint8Array = (octets) => new Uint8Array(octets)) {
    this.#allocate = allocate;
  }

  spreadScratch(): Uint8Array {
    return (this.#spreadScratch ??= this.#allocate(RUN_SCRATCH_OCTETS));
  }

  collectScratch(): Uint8Array {
    return (this.#collectScratch ??= this.#allocate(RUN_SCRATCH_OCTETS));
  }

  /**
   * The runs begin at the far end of their place: then none is moved onto one that has not been moved yet.
   */
  insertMarkers(
    source: Uint8Array,
    from: number,
    target: Uint8Array,
    to: number,
    runs: number,
    pointer: number,
  ): void {
    let next = to + runs * GAP;
    target.set(source.subarray(from, from + runs * RUN_OCTETS), next);
    for (let i = 0, at = to; i < runs; i++, at += RUN_SPACING, next += RUN_OCTETS) {
      target.copyWithin(at + GAP, next, next + RUN_OCTETS);
      const value = pointer + i * RUN_SPACING;
      target[at] = 0;
      target[at + 1] = 0;
      target[at + 2] = value >>> 8;
      target[at + 3] = value;
    }
  }

  removeMarkers(source: Uint8Array, from: number, target: Uint8Array, to: number, runs: number): void {
    target.set(source.subarray(from, from + runs * RUN_SPACING), to);
    for (let i = 0, next = to + GAP; i < runs; i++, next += RUN_SPACING) {
      target.copyWithin(to + i * RUN_OCTETS, next, next + RUN_OCTETS);
    }
  }
}
