/**
 * An arena: one WebAssembly memory of fixed size, with an allocator over the part that the engine does not
 * need for itself.
 *
 * Growing a WebAssembly memory detaches its buffer and with it every view handed out, so an arena never
 * grows: it reserves its whole size at once. The operating system gives pages only when they are touched, so
 * unused pages cost address space alone.
 *
 * The allocator is first fit over a sorted list of free ranges, joined again on release. Allocations here are
 * staging rings and read buffers, some for each connection: few and long-lived, so a list is enough.
 */
import { PAGE, webAssembly } from './host.ts';
import type { WebAssemblyMemory } from './host.ts';

/**
 * Allocations start at, and take, whole cache lines: two never share one, and vector loads do not straddle at
 * the start.
 */
const LINE = 64;

interface Range {
  start: number;
  end: number;
}

export class Arena {
  readonly memory: WebAssemblyMemory;
  readonly buffer: ArrayBuffer;
  readonly #free: Range[];
  /** Where each allocation starts, and where the next free byte after it is. */
  readonly #taken = new Map<number, { readonly end: number; readonly view: Uint8Array }>();
  /**
   * Bytes from here to the end were never handed out, so they are still zero and, most likely, not backed by
   * a page.
   */
  #fresh: number;

  /**
   * `reserved` bytes at the start belong to the engine. Throws a RangeError if the host refuses the memory.
   */
  constructor(octets: number, reserved: number) {
    if (webAssembly === undefined) throw new RangeError('no WebAssembly');
    const pages = octets / PAGE;
    this.memory = new webAssembly.Memory({ initial: pages, maximum: pages });
    this.buffer = this.memory.buffer;
    const start = roundUp(reserved);
    this.#free = [{ start, end: octets }];
    this.#fresh = start;
  }

  /** Zeroed memory, or undefined if no free range is long enough. */
  allocate(octets: number): Uint8Array | undefined {
    const need = Math.max(LINE, roundUp(octets));
    const index = this.#free.findIndex((range) => range.end - range.start >= need);
    const range = this.#free[index];
    if (range === undefined) return undefined;
    const start = range.start;
    range.start += need;
    if (range.start === range.end) this.#free.splice(index, 1);
    if (start < this.#fresh) new Uint8Array(this.buffer, start, Math.min(need, this.#fresh - start)).fill(0);
    this.#fresh = Math.max(this.#fresh, start + need);
    const view = new Uint8Array(this.buffer, start, octets);
    this.#taken.set(start, { end: start + need, view });
    return view;
  }

  /** False if this very view was not allocated here, or was released before. */
  release(view: Uint8Array): boolean {
    const start = view.byteOffset;
    const taken = this.#taken.get(start);
    if (taken?.view !== view) return false;
    this.#taken.delete(start);
    const after = this.#free.findIndex((range) => range.start > start);
    const index = after === -1 ? this.#free.length : after;
    this.#free.splice(index, 0, { start, end: taken.end });
    this.#join(index);
    this.#join(index - 1);
    return true;
  }

  /** Join the free range at `index` with the next if they touch. */
  #join(index: number): void {
    const range = this.#free[index];
    const next = this.#free[index + 1];
    if (range === undefined || next === undefined || range.end !== next.start) return;
    range.end = next.end;
    this.#free.splice(index + 1, 1);
  }
}

function roundUp(octets: number): number {
  return Math.ceil(octets / LINE) * LINE;
}
