/**
 * Mapped buffers of a connection (riomap): those of ours that the peer writes straight into, entered in its
 * map, and those of the peer, which it enters in ours.
 */
import { IwarpError } from '../base/errors.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import { decodeIomap, IOMAP_OCTETS, memoryWraps } from './wire.ts';

/** An entry that has still to be written to the peer: its place in the peer's map, and its contents. */
interface Untold {
  readonly index: number;
  readonly offset: bigint;
  readonly mr: MemoryRegion;
}

/** The place of memory, without keeping that memory alive. */
interface Range {
  readonly buffer: WeakRef<ArrayBufferLike>;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/**
 * Buffers of ours. They are known by where they lie: the program may give another view of the same octets.
 */
export class Mappings {
  readonly #maps: (MemoryRegion | null)[] = [];
  /** Memory whose mapping ended with the connection. */
  readonly #ended: Range[] = [];
  readonly #untold: Untold[] = [];

  /** A place among the `room` that the peer has. ERR_LIMIT when all are taken. */
  place(room: number): number {
    const free = this.#maps.indexOf(null);
    const index = free < 0 ? this.#maps.length : free;
    if (index >= room) throw new IwarpError('ERR_LIMIT', `the peer has room for ${room} mapped buffers`);
    return index;
  }

  add(untold: Untold): void {
    this.#maps[untold.index] = untold.mr;
    this.#untold.push(untold);
  }

  /** The next entry to write into the peer's map. */
  get next(): Untold | undefined {
    return this.#untold[0];
  }

  told(): void {
    this.#untold.shift();
  }

  /**
   * ERR_INVALID_REGION if this memory is not mapped. A program cannot know whether the connection has just
   * ended, and with it the mapping: then that is no mistake.
   */
  remove(memory: Uint8Array): void {
    const { buffer, byteOffset, byteLength } = memory;
    const over = this.#ended.findIndex(
      (range) =>
        range.buffer.deref() === buffer && range.byteOffset === byteOffset && range.byteLength === byteLength,
    );
    if (over >= 0) {
      this.#ended.splice(over, 1);
      return;
    }
    const index = this.#maps.findIndex(
      (mr) =>
        mr?.deregistered === false &&
        mr.bytes.buffer === buffer &&
        mr.bytes.byteOffset === byteOffset &&
        mr.bytes.byteLength === byteLength,
    );
    if (index < 0) throw new IwarpError('ERR_INVALID_REGION', 'this memory is not mapped');
    this.#maps[index]!.deregister();
    this.#maps[index] = null;
  }

  /** The end of the connection. */
  clear(): void {
    for (const mr of this.#maps.splice(0)) {
      if (mr === null || mr.deregistered) continue;
      const { buffer, byteOffset, byteLength } = mr.bytes;
      this.#ended.push({ buffer: new WeakRef(buffer), byteOffset, byteLength });
      mr.deregister();
    }
  }
}

/** The peer's mapped buffer that holds `offset`, by the `count` entries of our map from `at` on. */
export function findMapped(
  view: DataView,
  at: number,
  count: number,
  offset: bigint,
): { addr: bigint; key: number; left: number } | null {
  for (let i = 0; i < count; i++) {
    const entry = decodeIomap(view, at + i * IOMAP_OCTETS);
    const past = offset - entry.offset;
    // An entry beyond 2^64 is the peer's mistake: nothing can be written there.
    if (past >= 0n && past < BigInt(entry.memory.length) && !memoryWraps(entry.memory)) {
      return {
        addr: entry.memory.addr + past,
        key: entry.memory.key,
        left: entry.memory.length - Number(past),
      };
    }
  }
  return null;
}
