/** A CRC32c engine as its users see it, whichever it is. */
import type { RunKernel } from './runs.ts';

/** The engines: WebAssembly SIMD, plain WebAssembly, JavaScript, and the `crc-32` package. */
export type Crc32cEngineName = 'simd' | 'wasm' | 'js' | 'crc-32';

export interface Crc32cEngine {
  readonly name: Crc32cEngineName;

  /**
   * Continue a CRC32c over bytes[start..end). `crc` is the finished value of everything before (0 to start),
   * the result the finished value including these bytes, as an unsigned 32-bit number. MPA-069: on the wire
   * it stands least significant byte first. The bytes may lie in any memory, shared memory included. Throws
   * ERR_OUT_OF_RANGE if the range does not lie inside `bytes`.
   *
   * ```ts
   * const crc = engine.update(engine.update(0, header, 0, 20), payload, 0, payload.length);
   * ```
   */
  update(crc: number, bytes: Uint8Array, start: number, end: number): number;

  /**
   * The same as a signed number, for what handles FPDUs: V8 makes an object of a number above 2^31, which
   * every second CRC is.
   */
  updateSigned(crc: number, bytes: Uint8Array, start: number, end: number): number;

  /**
   * Memory, zeroed, on which `update` runs in place: WebAssembly memory for the engines that have one (while
   * that lasts, see arena.ts), ordinary memory otherwise. Never detached, never moved. Memory that is not
   * given back stays taken. The buffer under it is shared with other allocations and with the engine itself:
   * keep to the view.
   */
  allocate(octets: number): Uint8Array;

  /** Moves bytes around markers: fastest inside the memory of an engine that has its own. */
  readonly runs: RunKernel;

  /** Give memory from `allocate` back: that very view, once. Anything else throws ERR_INVALID_ARGUMENT. */
  release(memory: Uint8Array): void;
}
