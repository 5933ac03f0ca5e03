/**
 * The memory of a WebAssembly engine: arenas, and in each an instance of the engine's module with its own
 * tables.
 *
 * The first arena is made with the engine. When it is full another is made, up to MAX_ARENAS; after that, and
 * for single allocations larger than an arena, `allocate` gives ordinary memory, on which everything works as
 * well, at the price of a copy.
 */
import { checkInteger, IwarpError } from '../base/errors.ts';
import { Arena } from './arena.ts';
import type { Crc32cEngineName } from './types.ts';
import { webAssembly } from './host.ts';
import type { WebAssemblyModule } from './host.ts';
import { OrdinaryMemory } from './memory.ts';

export interface Kernel {
  readonly name: Crc32cEngineName;
  readonly module: WebAssemblyModule;
  /** Bytes at the start of memory that the kernel uses for tables and scratch. */
  readonly reserved: number;
  /** Write the tables into fresh memory. */
  fillTables(memory: ArrayBuffer): void;
}

/** An arena, and the module's functions for the addresses in it. */
export interface Instance {
  readonly arena: Arena;
  /** Register in, register out (not finished values), over memory[address..address+bytes). */
  readonly run: (register: number, address: number, octets: number) => number;
  readonly insertMarkers: (to: number, from: number, runs: number, pointer: number) => number;
  readonly removeMarkers: (to: number, from: number, runs: number) => number;
}

/**
 * Enough for the staging and read buffers of some two hundred busy connections; only touched pages cost
 * memory.
 */
const ARENA_OCTETS = 32 << 20;

/**
 * With 32 MiB each this bounds what an engine can take to 256 MiB, and the search for the arena of a view to
 * eight steps.
 */
const MAX_ARENAS = 8;

export class WasmMemory {
  readonly first: Instance;
  readonly #kernel: Kernel;
  readonly #reserved: number;
  readonly #instances: Instance[] = [];
  readonly #ordinary = new OrdinaryMemory();

  /**
   * `window` bytes of each arena, after those of the kernel, are kept for the engine. Throws what
   * WebAssembly throws if the host refuses the memory.
   */
  constructor(kernel: Kernel, window: number) {
    this.#kernel = kernel;
    this.#reserved = kernel.reserved + window;
    this.first = this.#addInstance();
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
    const instance = this.instanceOf(memory);
    if (instance === undefined) {
      this.#ordinary.release(memory);
    } else if (!instance.arena.release(memory)) {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        'this memory was not allocated here, or was released before',
      );
    }
  }

  /** The instance in whose arena these bytes lie. */
  instanceOf(bytes: Uint8Array): Instance | undefined {
    const buffer = bytes.buffer;
    for (let i = 0; i < this.#instances.length; i++) {
      const instance = this.#instances[i]!;
      if (instance.arena.buffer === buffer) return instance;
    }
    return undefined;
  }

  #addInstance(): Instance {
    if (webAssembly === undefined) throw new IwarpError('ERR_NOT_SUPPORTED', 'this host has no WebAssembly');
    const arena = new Arena(ARENA_OCTETS, this.#reserved);
    this.#kernel.fillTables(arena.buffer);
    const { exports } = new webAssembly.Instance(this.#kernel.module, { env: { memory: arena.memory } });
    const instance = {
      arena,
      run: exports['crc32c'] as Instance['run'],
      insertMarkers: exports['insertMarkers'] as Instance['insertMarkers'],
      removeMarkers: exports['removeMarkers'] as Instance['removeMarkers'],
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
