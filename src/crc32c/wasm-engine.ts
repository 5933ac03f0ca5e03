/**
 * The engine around a WebAssembly kernel: where the memory comes from and how octets elsewhere are brought in.
 * Read wasm.ts or simd.ts for the kernels, arena.ts for the memory.
 *
 * Memory: the first arena is made with the engine. When it is full another is made, each a memory and an instance of the same
 * module with its own tables, up to MAX_ARENAS; after that, and for single allocations larger than an arena, `allocate` gives
 * ordinary memory, on which everything works as well, at the price of a copy.
 */
import { checkInteger, IwarpError } from '../base/errors.ts';
import { Arena } from './arena.ts';
import type { Crc32cEngine, Crc32cEngineName } from './engine.ts';
import { webAssembly } from './host.ts';
import type { WebAssemblyModule } from './host.ts';
import { crc32cByTables, ViewCache } from './js.ts';
import { checkRange, OrdinaryMemory } from './memory.ts';
import { RUN_OCTETS, RUN_SCRATCH_OCTETS, RUN_SPACING, type RunKernel } from './runs.ts';

interface Kernel {
  readonly name: Crc32cEngineName;
  readonly module: WebAssemblyModule;
  /** Octets at the start of memory that the kernel uses for tables and scratch. */
  readonly reserved: number;
  /** Write the tables into fresh memory. */
  fillTables(memory: ArrayBuffer): void;
}

/** What the modules export: register in, register out (not finished values), over memory[address..address+octets). */
type Run = (register: number, address: number, octets: number) => number;

/** Enough for the staging and read buffers of some two hundred busy connections; only touched pages cost memory. */
const ARENA_OCTETS = 32 << 20;

/** With 32 MiB each this bounds what an engine can take to 256 MiB, and the search for the arena of a view to eight steps. */
const MAX_ARENAS = 8;

/**
 * Copy-in window for octets outside of the arenas: any FPDU in one piece, long enough for the fast stages, short enough to stay in
 * the level-2 cache. Half of it costs a tenth at 1 MiB, twice as much gains nothing worth it.
 */
const WINDOW_OCTETS = 128 << 10;

/** Below this many octets outside of the arenas, tables in JavaScript are faster than the copy and the call (bench/micro/crc32c.ts). */
const COPY_IN_FROM = 160;

type Spread = (to: number, from: number, runs: number, pointer: number) => number;
type Collect = (to: number, from: number, runs: number) => number;

interface Instance {
  readonly arena: Arena;
  readonly run: Run;
  readonly spread: Spread;
  readonly collect: Collect;
}

export class WasmEngine implements Crc32cEngine, RunKernel {
  readonly name: Crc32cEngineName;
  readonly #kernel: Kernel;
  readonly #instances: Instance[] = [];
  readonly #ordinary = new OrdinaryMemory();
  readonly #views = new ViewCache();
  readonly #window: Uint8Array;
  readonly #run: Run;
  // The two arrays in the first arena that were used last: a stack alternates between its read buffer and its staging ring, and
  // finding out by `bytes.buffer` that memory is ours costs half as much as the whole CRC of 64 octets. So does asking for `byteOffset`, nearly: V8
  // makes a call of it.
  #recent: Uint8Array;
  #recentAt: number;
  #previous: Uint8Array;
  #previousAt: number;

  /** Throws what WebAssembly throws if the host refuses the memory. */
  constructor(kernel: Kernel) {
    this.name = kernel.name;
    this.#kernel = kernel;
    const { arena, run } = this.#addInstance();
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
    checkInteger('octets', octets, 0, Number.MAX_SAFE_INTEGER);
    for (const { arena } of this.#instances) {
      const memory = arena.allocate(octets);
      if (memory !== undefined) return memory;
    }
    const another = octets <= ARENA_OCTETS / 2 ? this.#tryAddInstance() : undefined;
    return another?.arena.allocate(octets) ?? this.#ordinary.allocate(octets);
  }

  release(memory: Uint8Array): void {
    const instance = this.#instanceOf(memory);
    if (instance === undefined) {
      this.#ordinary.release(memory);
    } else if (!instance.arena.release(memory)) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'this memory was not allocated here, or was released before');
    }
  }

  get runs(): RunKernel {
    return this;
  }

  #spreadScratch: Uint8Array | undefined;
  #collectScratch: Uint8Array | undefined;

  spreadScratch(): Uint8Array {
    return (this.#spreadScratch ??= this.allocate(RUN_SCRATCH_OCTETS));
  }

  collectScratch(): Uint8Array {
    return (this.#collectScratch ??= this.allocate(RUN_SCRATCH_OCTETS));
  }

  // Octets from elsewhere, 'data' events for instance, are copied to the place first, in one piece; the runs are then moved inside of it, each to where
  // nothing stands that is still needed.

  spread(source: Uint8Array, from: number, target: Uint8Array, to: number, runs: number, pointer: number): void {
    checkRange(source, from, from + RUN_OCTETS * runs);
    checkRange(target, to, to + RUN_SPACING * runs);
    const instance = this.#instanceOf(target);
    if (instance === undefined) {
      this.#ordinary.runs.spread(source, from, target, to, runs, pointer);
      return;
    }
    let at = source.byteOffset + from;
    if (source.buffer !== target.buffer) {
      const farEnd = to + (RUN_SPACING - RUN_OCTETS) * runs;
      target.set(source.subarray(from, from + RUN_OCTETS * runs), farEnd);
      at = target.byteOffset + farEnd;
    }
    instance.spread(target.byteOffset + to, at, runs, pointer);
  }

  collect(source: Uint8Array, from: number, target: Uint8Array, to: number, runs: number): void {
    checkRange(source, from, from + RUN_SPACING * runs);
    checkRange(target, to, to + RUN_SPACING * runs);
    const instance = this.#instanceOf(target);
    if (instance === undefined) {
      this.#ordinary.runs.collect(source, from, target, to, runs);
      return;
    }
    let at = source.byteOffset + from;
    if (source.buffer !== target.buffer) {
      target.set(source.subarray(from, from + RUN_SPACING * runs), to);
      at = target.byteOffset + to;
    }
    instance.collect(target.byteOffset + to, at, runs);
  }

  #updateUnknown(crc: number, bytes: Uint8Array, start: number, end: number): number {
    const instance = this.#instanceOf(bytes);
    if (instance === undefined) return this.#updateForeign(crc, bytes, start, end);
    const { byteOffset } = bytes;
    if (instance === this.#instances[0]) this.#remember(bytes, byteOffset);
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

  #instanceOf(bytes: Uint8Array): Instance | undefined {
    const buffer = bytes.buffer;
    for (let i = 0; i < this.#instances.length; i++) {
      const instance = this.#instances[i]!;
      if (instance.arena.buffer === buffer) return instance;
    }
    return undefined;
  }

  #addInstance(): Instance {
    if (webAssembly === undefined) throw new IwarpError('ERR_NOT_SUPPORTED', 'this host has no WebAssembly');
    const arena = new Arena(ARENA_OCTETS, this.#kernel.reserved + WINDOW_OCTETS);
    this.#kernel.fillTables(arena.buffer);
    const { exports } = new webAssembly.Instance(this.#kernel.module, { env: { memory: arena.memory } });
    const instance = {
      arena,
      run: exports['crc32c'] as Run,
      spread: exports['spread'] as Spread,
      collect: exports['collect'] as Collect,
    };
    this.#instances.push(instance);
    return instance;
  }

  /** A host that refuses a further memory is as good as a bound reached: ordinary memory serves then. */
  #tryAddInstance(): Instance | undefined {
    if (this.#instances.length >= MAX_ARENAS) return undefined;
    try {
      return this.#addInstance();
    } catch {
      return undefined;
    }
  }
}
