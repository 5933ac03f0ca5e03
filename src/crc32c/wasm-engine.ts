/**
 * The engine around a WebAssembly kernel: how bytes elsewhere are brought in.
 * Read wasm.ts or simd.ts for the kernels, wasm-memory.ts and arena.ts for the memory.
 */
import type { Crc32cEngine, Crc32cEngineName } from './types.ts';
import { crc32cByTables, ViewCache } from './js.ts';
import { checkRange } from './memory.ts';
import type { RunKernel } from './runs.ts';
import { WasmMemory, type Instance, type Kernel } from './wasm-memory.ts';
import { WasmRuns } from './wasm-runs.ts';

/**
 * Copy-in window for bytes outside of the arenas: any FPDU in one piece, long enough for the fast stages,
 * short enough to stay in the level-2 cache. Half of it costs a tenth at 1 MiB, twice as much gains nothing
 * worth it (bench/micro/crc32c.ts, memory that is not the engine's).
 */
const WINDOW_OCTETS = 128 << 10;

/**
 * Below this many bytes outside of the arenas, tables in JavaScript are faster than the copy and the call
 * (bench/micro/crc32c.ts).
 */
const COPY_IN_FROM = 160;

export class WasmEngine implements Crc32cEngine {
  readonly name: Crc32cEngineName;
  readonly runs: RunKernel;
  readonly #memory: WasmMemory;
  readonly #views = new ViewCache();
  readonly #window: Uint8Array;
  readonly #run: Instance['run'];
  // The two arrays in the first arena that were used last: a stack alternates between its read buffer and its
  // staging ring, and finding out by `bytes.buffer` that memory is ours costs half as much as the whole CRC
  // of 64 octets (bench/micro/crc32c.ts). So does asking for `byteOffset`, nearly: V8 makes a call of it.
  #recent: Uint8Array;
  #recentAt: number;
  #previous: Uint8Array;
  #previousAt: number;

  /** Throws what WebAssembly throws if the host refuses the memory. */
  constructor(kernel: Kernel) {
    this.name = kernel.name;
    this.#memory = new WasmMemory(kernel, WINDOW_OCTETS);
    this.runs = new WasmRuns(this.#memory);
    const { arena, run } = this.#memory.first;
    this.#run = run;
    this.#window = new Uint8Array(arena.buffer, kernel.reserved, WINDOW_OCTETS);
    this.#recent = this.#previous = this.#window;
    this.#recentAt = this.#previousAt = this.#window.byteOffset;
  }

  update(crc: number, bytes: Uint8Array, start: number, end: number): number {
    return this.updateSigned(crc, bytes, start, end) >>> 0;
  }

  updateSigned(crc: number, bytes: Uint8Array, start: number, end: number): number {
    checkRange(bytes, start, end);
    if (bytes !== this.#recent) {
      if (bytes !== this.#previous) return this.#updateUnknown(crc, bytes, start, end);
      this.#remember(bytes, this.#previousAt);
    }
    return ~this.#run(~crc, this.#recentAt + start, end - start);
  }

  allocate(octets: number): Uint8Array {
    return this.#memory.allocate(octets);
  }

  release(memory: Uint8Array): void {
    this.#memory.release(memory);
  }

  #updateUnknown(crc: number, bytes: Uint8Array, start: number, end: number): number {
    const instance = this.#memory.instanceOf(bytes);
    if (instance === undefined) return this.#updateForeign(crc, bytes, start, end);
    const { byteOffset } = bytes;
    if (instance === this.#memory.first) this.#remember(bytes, byteOffset);
    return ~instance.run(~crc, byteOffset + start, end - start);
  }

  #remember(bytes: Uint8Array, at: number): void {
    this.#previous = this.#recent;
    this.#previousAt = this.#recentAt;
    this.#recent = bytes;
    this.#recentAt = at;
  }

  /** A copy through the window also gives shared memory that changes meanwhile one single value. */
  #updateForeign(crc: number, bytes: Uint8Array, start: number, end: number): number {
    if (end - start < COPY_IN_FROM) return crc32cByTables(crc, bytes, start, end, this.#views.of(bytes));
    const window = this.#window;
    let register = ~crc;
    for (let at = start; at < end; at += WINDOW_OCTETS) {
      const next = Math.min(end, at + WINDOW_OCTETS);
      window.set(bytes.subarray(at, next));
      register = this.#run(register, window.byteOffset, next - at);
    }
    return ~register;
  }
}
