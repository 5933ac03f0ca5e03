/**
 * Run moving in WebAssembly, where the bytes go to an arena of the engine, and in JavaScript where they go
 * elsewhere; runs.ts says what for.
 *
 * Bytes from elsewhere, 'data' events for instance, are copied to the place first, in one piece; the runs
 * are then moved inside of it, each to where nothing stands that is still needed.
 */
import { JsRuns } from './js-runs.ts';
import { checkRange } from './memory.ts';
import { RUN_OCTETS, RUN_SPACING } from './runs.ts';
import type { WasmMemory } from './wasm-memory.ts';

export class WasmRuns extends JsRuns {
  readonly #memory: WasmMemory;

  constructor(memory: WasmMemory) {
    super((octets) => memory.allocate(octets));
    this.#memory = memory;
  }

  override insertMarkers(
    source: Uint8Array,
    from: number,
    target: Uint8Array,
    to: number,
    runs: number,
    pointer: number,
  ): void {
    checkRange(source, from, from + RUN_OCTETS * runs);
    checkRange(target, to, to + RUN_SPACING * runs);
    const instance = this.#memory.instanceOf(target);
    if (instance === undefined) {
      super.insertMarkers(source, from, target, to, runs, pointer);
      return;
    }
    let at = source.byteOffset + from;
    if (source.buffer !== target.buffer) {
      const farEnd = to + (RUN_SPACING - RUN_OCTETS) * runs;
      target.set(source.subarray(from, from + RUN_OCTETS * runs), farEnd);
      at = target.byteOffset + farEnd;
    }
    instance.insertMarkers(target.byteOffset + to, at, runs, pointer);
  }

  override removeMarkers(
    source: Uint8Array,
    from: number,
    target: Uint8Array,
    to: number,
    runs: number,
  ): void {
    checkRange(source, from, from + RUN_SPACING * runs);
    checkRange(target, to, to + RUN_SPACING * runs);
    const instance = this.#memory.instanceOf(target);
    if (instance === undefined) {
      super.removeMarkers(source, from, target, to, runs);
      return;
    }
    let at = source.byteOffset + from;
    if (source.buffer !== target.buffer) {
      target.set(source.subarray(from, from + RUN_SPACING * runs), to);
      at = target.byteOffset + to;
    }
    instance.removeMarkers(target.byteOffset + to, at, runs);
  }
}
