/**
 * CRC32c (RFC 5044 section 4.4) behind one interface, with engines from a WebAssembly SIMD cascade down to
 * the `crc-32` package. Read polynomial.ts for the arithmetic, then the engine of interest: js.ts, wasm.ts,
 * simd.ts, crc-32.ts.
 *
 * MPA-051: CRC generation and checking is always there: the last two engines need nothing but JavaScript.
 */
import { environmentVariable } from '../base/environment.ts';
import { checkOneOf, IwarpError } from '../base/errors.ts';
import { createCrc32PackageEngine } from './crc-32.ts';
import { createJsEngine } from './js.ts';
import { firstFault } from './self-test.ts';
import { createSimdEngine, simdSupported } from './simd.ts';
import type { Crc32cEngine, Crc32cEngineName } from './types.ts';
import { createWasmEngine, wasmSupported } from './wasm.ts';

export type { Crc32cEngine, Crc32cEngineName } from './types.ts';

/**
 * How to make an engine, and whether this host can. From fastest to slowest: the order in which 'auto' tries
 * them.
 */
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

/**
 * Throws ERR_INVALID_ARGUMENT unless `value` names an engine; `name` is the caller's word for it. Whether
 * this host can run it is not asked.
 */
export function checkCrc32cName(name: string, value: unknown): Crc32cEngineName | 'auto' {
  return checkOneOf(name, value, NAMES);
}

/** The engines that this host can run, fastest first. */
export function availableCrc32cEngines(): Crc32cEngineName[] {
  return MAKERS.filter((maker) => maker.supported()).map((maker) => maker.name);
}

/**
 * A new engine with its own memory, which has passed its test. 'auto', the default, is the fastest that
 * this host can run. An unknown name throws ERR_INVALID_ARGUMENT, one that this host cannot run
 * ERR_NOT_SUPPORTED, one that computes wrong values here ERR_INTERNAL.
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

/**
 * The engine of this thread, made at the first call. The environment variable IWARP_CRC32C may name it.
 * Throws as createCrc32cEngine does.
 */
export function defaultCrc32cEngine(): Crc32cEngine {
  defaultEngine ??= createCrc32cEngine(environmentCrc32c());
  return defaultEngine;
}

/** What IWARP_CRC32C says; 'auto' if nothing. @throws ERR_INVALID_ARGUMENT for another word */
export function environmentCrc32c(): Crc32cEngineName | 'auto' {
  return checkCrc32cName(ENVIRONMENT_VARIABLE, environmentVariable(ENVIRONMENT_VARIABLE) || 'auto');
}

function firstGood(): Crc32cEngine {
  for (const maker of MAKERS) {
    if (!maker.supported()) continue;
    const engine = tryCreate(maker);
    if (engine !== undefined && firstFault(engine) === undefined) return engine;
  }
  throw new IwarpError('ERR_INTERNAL', 'no CRC32c engine works on this host');
}

/**
 * A host may run WebAssembly and yet refuse its memory, under an address space limit for instance: then the
 * next engine serves.
 */
function tryCreate(maker: Maker): Crc32cEngine | undefined {
  try {
    return maker.create();
  } catch {
    return undefined;
  }
}
