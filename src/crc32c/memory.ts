/**
 * Ordinary memory, for engines that run on any; the memory that is kept of an engine's; and the check of a
 * range that all engines share.
 */
import { checkInteger, IwarpError } from '../base/errors.ts';
import type { Crc32cEngine } from './types.ts';

/**
 * Throw unless start..end lies inside `bytes`. In WebAssembly memory nothing else would stop a wrong end from
 * reading the neighbour's bytes. Written so that NaN fails too.
 */
export function checkRange(bytes: Uint8Array, start: number, end: number): void {
  if (!(start >= 0 && start <= end && end <= bytes.length)) {
    throw new IwarpError(
      'ERR_OUT_OF_RANGE',
      `CRC32c range ${start}..${end} is outside of 0..${bytes.length}`,
    );
  }
}

/** Where memory comes from and goes back to. */
export type MemorySource = Pick<Crc32cEngine, 'allocate' | 'release'>;

/**
 * Bytes that a pool of such memory keeps free: as many as 64 connections hold while each has two writes out.
 * Memory that WebAssembly has had stays resident anyway.
 */
export const POOL_OCTETS: number = 16 << 20;

const read = new WeakMap<MemorySource, Uint8Array>();

/**
 * At least this number of bytes for reads that are used at once: the same for all sockets and transports of
 * a thread with this engine. Never given back.
 */
export function readMemory(source: MemorySource, octets: number): Uint8Array {
  let memory = read.get(source);
  if (memory === undefined || memory.length < octets) read.set(source, (memory = source.allocate(octets)));
  return memory;
}

/**
 * allocate and release over the JavaScript heap, as strict about a wrong release as the WebAssembly arenas
 * are.
 */
export class OrdinaryMemory {
  readonly #lent = new WeakSet<Uint8Array>();

  allocate(octets: number): Uint8Array {
    checkInteger('octets', octets, 0, Number.MAX_SAFE_INTEGER);
    const memory = new Uint8Array(octets);
    this.#lent.add(memory);
    return memory;
  }

  release(memory: Uint8Array): void {
    if (!this.#lent.delete(memory)) {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        'this memory was not allocated here, or was released before',
      );
    }
  }
}
