/**
 * CRC32c (RFC 5044 section 4.4) behind one interface, with engines from a WebAssembly SIMD cascade down to the `crc-32`
 * package. Read polynomial.ts for the arithmetic, then the engine of interest: js.ts, wasm.ts, simd.ts, crc-32.ts.
 *
 * MPA-051: CRC generation and checking is always there: the last two engines need nothing but JavaScript.
 */
import { checkOneOf, IwarpError } from '../base/errors.ts';
import { createCrc32PackageEngine } from './crc-32.ts';
import { createJsEngine } from './js.ts';
import type { RunKernel } from './runs.ts';
import { firstFault } from './self-test.ts';
import { createSimdEngine, simdSupported } from './simd.ts';
import { createWasmEngine, wasmSupported } from './wasm.ts';

/** The engines: WebAssembly SIMD, plain WebAssembly, JavaScript, and the `crc-32` package. */
export type Crc32cEngineName = 'simd' | 'wasm' | 'js' | 'crc-32';

export interface Crc32cEngine {
  readonly name: Crc32cEngineName;

  /**
   * Continue a CRC32c over bytes[start..end). `crc` is the finished value of everything before (0 to start), the result the
   * finished value including these octets, as an unsigned 32-bit number. MPA-069: on the wire it stands least significant
   * octet first. The octets may lie in any memory, shared memory included. Throws ERR_OUT_OF_RANGE if the range does
   * not lie inside `bytes`.
   *
   * ```ts
   * const crc = engine.update(engine.update(0, header, 0, 20), payload, 0, payload.length);
   * ```
   */
  update(crc: number, bytes: Uint8Array, start: number, end: number): number;

  /** The same as a signed number, for what handles FPDUs: V8 makes an object of a number above 2^31, which every second CRC is. */
  updateSigned(crc: number, bytes: Uint8Array, start: number, end: number): number;

  /**
   * Memory, zeroed, on which `update` runs in place: WebAssembly memory for the engines that have one (while that lasts, see
   * arena.ts), ordinary memory otherwise. Never detached, never moved. Memory that is not given back stays taken.
   * The buffer under it is shared with other allocations and with the engine itself: keep to the view.
   */
  allocate(octets: number): Uint8Array;

  /** Moves octets around markers: fastest inside the memory of an engine that has its own. */
  readonly runs: RunKernel;

  /** Give memory from `allocate` back: that very view, once. Anything else throws ERR_INVALID_ARGUMENT. */
  release(memory: Uint8Array): void;
}

/** How to make an engine, and whether this host can. From fastest to slowest: the order in which 'auto' tries them. */
interface Maker {
  readonly name: Crc32cEngineName;
  supported(): boolean;
  create(): Crc32cEngine;
}

const MAKERS: readonly Maker[] = [
  { name: 'simd', supported: simdSupported, create: createSimdEngine },
  { name: 'wasm', supported: wasmSupported, create: createWasmEngine },
  { name: 'js', supported: () => true, create: createJsEngine },
  { name: 'crc-32', supported: () => true, create: createCrc32PackageEngine },
];

/** What may be asked for. */
const NAMES: readonly (Crc32cEngineName | 'auto')[] = ['auto', ...MAKERS.map(({ name }) => name)];

/** Throws ERR_INVALID_ARGUMENT unless `value` names an engine; `name` is what the caller calls it. Whether this host can run it is not asked. */
export function checkCrc32cName(name: string, value: unknown): Crc32cEngineName | 'auto' {
  return checkOneOf(name, value, NAMES);
}

/** The engines that this host can run, fastest first. */
export function availableCrc32cEngines(): Crc32cEngineName[] {
  return MAKERS.filter((maker) => maker.supported()).map((maker) => maker.name);
}

/**
 * A new engine with memory of its own, which has passed its test. 'auto', the default, is the fastest that this host can run. An unknown name
 * throws ERR_INVALID_ARGUMENT, one that this host cannot run ERR_NOT_SUPPORTED, one that computes wrong values here ERR_INTERNAL.
 */
export function createCrc32cEngine(name: Crc32cEngineName | 'auto' = 'auto'): Crc32cEngine {
  if (checkCrc32cName('name', name) === 'auto') return firstGood();
  const maker = MAKERS.find((candidate) => candidate.name === name)!;
  if (!maker.supported()) {
    throw new IwarpError('ERR_NOT_SUPPORTED', `this host cannot run the CRC32c engine '${name}'`);
  }
  const engine = maker.create();
  const fault = firstFault(engine);
  if (fault !== undefined) {
    throw new IwarpError('ERR_INTERNAL', `the CRC32c engine '${name}' computes wrong values here (${fault})`);
  }
  return engine;
}

/** The environment variable that names the default engine. */
const ENVIRONMENT_VARIABLE = 'IWARP_CRC32C';

let defaultEngine: Crc32cEngine | undefined;

/** The engine of this thread, made at the first call. The environment variable IWARP_CRC32C may name it. Throws as createCrc32cEngine does. */
export function defaultCrc32cEngine(): Crc32cEngine {
  defaultEngine ??= createCrc32cEngine(environmentCrc32c());
  return defaultEngine;
}

/** What IWARP_CRC32C says; 'auto' if nothing. @throws ERR_INVALID_ARGUMENT for another word */
export function environmentCrc32c(): Crc32cEngineName | 'auto' {
  return checkCrc32cName(ENVIRONMENT_VARIABLE, process.env[ENVIRONMENT_VARIABLE] || 'auto');
}

function firstGood(): Crc32cEngine {
  for (const maker of MAKERS) {
    if (!maker.supported()) continue;
    const engine = tryCreate(maker);
    if (engine !== undefined && firstFault(engine) === undefined) return engine;
  }
  throw new IwarpError('ERR_INTERNAL', 'no CRC32c engine works on this host');
}

/** A host may run WebAssembly and yet refuse its memory, under an address space limit for instance: then the next engine serves. */
function tryCreate(maker: Maker): Crc32cEngine | undefined {
  try {
    return maker.create();
  } catch {
    return undefined;
  }
}
