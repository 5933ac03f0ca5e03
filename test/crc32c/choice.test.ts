/**
 * Which engine is taken: by name, by the environment, by what the host can do; and what an engine must show
 * before.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Crc32cEngine, Crc32cEngineName } from '../../src/crc32c/engine.ts';
import { availableCrc32cEngines, createCrc32cEngine } from '../../src/crc32c/engine.ts';
import { createJsEngine } from '../../src/crc32c/js.ts';
import { firstFault } from '../../src/crc32c/self-test.ts';

type EngineModule = typeof import('../../src/crc32c/engine.ts');

/** The module as a new process would load it. */
async function freshModule(): Promise<EngineModule> {
  vi.resetModules();
  return import('../../src/crc32c/engine.ts');
}

// The environment of the test run does not decide here.
beforeEach(() => void vi.stubEnv('IWARP_CRC32C', ''));
afterEach(() => {
  vi.doUnmock('../../src/crc32c/simd.ts');
  vi.unstubAllEnvs();
  vi.unstubAllGlobals();
  vi.resetModules();
});

describe('createCrc32cEngine', () => {
  it('gives the engine that is named, and the fastest for auto or nothing', () => {
    for (const name of availableCrc32cEngines()) expect(createCrc32cEngine(name).name).toBe(name);
    expect(createCrc32cEngine().name).toBe(availableCrc32cEngines()[0]);
    expect(createCrc32cEngine('auto').name).toBe(availableCrc32cEngines()[0]);
  });

  it('refuses an unknown name', () => {
    for (const name of ['', 'SIMD', 'crc32', 'constructor']) {
      expect(() => createCrc32cEngine(name as 'js')).toThrowError(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
    }
  });

  it('without WebAssembly there are still two engines (MPA-051)', async () => {
    vi.stubGlobal('WebAssembly', undefined);
    const module = await freshModule();
    expect(module.availableCrc32cEngines()).toEqual(['js', 'crc-32']);
    expect(module.defaultCrc32cEngine().name).toBe('js');
    expect(() => module.createCrc32cEngine('simd')).toThrowError(
      expect.objectContaining({ code: 'ERR_NOT_SUPPORTED' }),
    );
  });

  it('a host that refuses the memory is served by the next engine (MPA-051)', async () => {
    class NoMemory {
      constructor() {
        throw new RangeError('could not allocate memory');
      }
    }
    const { Module, Instance, validate } = (globalThis as unknown as { WebAssembly: Record<string, unknown> })
      .WebAssembly;
    vi.stubGlobal('WebAssembly', { Module, Instance, validate, Memory: NoMemory });
    const module = await freshModule();
    expect(module.defaultCrc32cEngine().name).toBe('js');
    expect(() => module.createCrc32cEngine('wasm')).toThrowError(RangeError);
  });
});

describe('defaultCrc32cEngine', () => {
  it('is made once', async () => {
    const module = await freshModule();
    expect(module.defaultCrc32cEngine()).toBe(module.defaultCrc32cEngine());
    expect(module.defaultCrc32cEngine().name).toBe(module.availableCrc32cEngines()[0]);
  });

  it('is the one that IWARP_CRC32C names', async () => {
    for (const name of availableCrc32cEngines()) {
      vi.stubEnv('IWARP_CRC32C', name);
      expect((await freshModule()).defaultCrc32cEngine().name).toBe(name);
    }
  });

  it('throws on a wrong name in IWARP_CRC32C, and takes an empty one for none', async () => {
    vi.stubEnv('IWARP_CRC32C', 'fastest');
    const module = await freshModule();
    expect(() => module.defaultCrc32cEngine()).toThrowError(
      expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
    );
    vi.stubEnv('IWARP_CRC32C', '');
    expect(module.defaultCrc32cEngine().name).toBe(module.availableCrc32cEngines()[0]);
  });
});

/** A JavaScript engine with an error that shows from a certain length on. */
function faultyFrom(length: number, name: Crc32cEngineName = 'js'): Crc32cEngine {
  const good = createJsEngine();
  const wrong = (crc: number, bytes: Uint8Array, start: number, end: number): number =>
    good.updateSigned(crc, bytes, start, end) ^ (end - start >= length ? 1 : 0);
  return {
    name,
    update: (...all) => wrong(...all) >>> 0,
    updateSigned: wrong,
    allocate: (octets) => good.allocate(octets),
    release: (memory) => good.release(memory),
    runs: good.runs,
  };
}

describe('an engine that computes wrong values on this host', () => {
  beforeEach(() => {
    vi.doMock('../../src/crc32c/simd.ts', () => ({
      simdSupported: () => true,
      createSimdEngine: () => faultyFrom(1000, 'simd'),
    }));
  });

  it.each([
    ['auto', (module: EngineModule) => module.createCrc32cEngine('auto')],
    ['no name', (module: EngineModule) => module.createCrc32cEngine()],
    ['the default', (module: EngineModule) => module.defaultCrc32cEngine()],
  ])('is passed over by %s (MPA-051)', async (_asked, make) => {
    expect(make(await freshModule()).name).toBe(availableCrc32cEngines().find((name) => name !== 'simd'));
  });

  it.each([
    ['an option', (module: EngineModule) => module.createCrc32cEngine('simd')],
    [
      'the environment',
      (module: EngineModule) => (vi.stubEnv('IWARP_CRC32C', 'simd'), module.defaultCrc32cEngine()),
    ],
  ])('is refused where %s names it (MPA-051)', async (_who, make) => {
    const module = await freshModule();
    expect(() => make(module)).toThrowError(
      expect.objectContaining({
        code: 'ERR_INTERNAL',
        message: "the CRC32c engine 'simd' computes wrong values here (length 1459)",
      }),
    );
  });
});

describe('the self-test', () => {
  it('finds an engine that is wrong, in whichever stage (MPA-051)', () => {
    expect(firstFault(createJsEngine())).toBeUndefined();
    expect(firstFault(faultyFrom(1))).toBe('check value');
    expect(firstFault(faultyFrom(256))).toBe('length 301');
    expect(firstFault(faultyFrom(600))).toBe('length 1459');
    expect(firstFault(faultyFrom(24_576))).toBe('length 40009');
  });

  it('finds an engine wrong only in its own memory, or with a signed carried value (MPA-051)', () => {
    const good = createJsEngine();
    let own: Uint8Array | undefined;
    const inOwn: Crc32cEngine = {
      name: 'js',
      update: (crc, bytes, start, end) => (bytes === own ? 0 : good.update(crc, bytes, start, end)),
      updateSigned: (...all) => good.updateSigned(...all),
      allocate: (octets) => (own = good.allocate(octets)),
      release: (memory) => good.release(memory),
      runs: good.runs,
    };
    expect(firstFault(inOwn)).toBe('check value');
    const signed: Crc32cEngine = {
      name: 'js',
      update: (crc, bytes, start, end) => good.update(crc, bytes, start, end) | 0,
      updateSigned: (...all) => good.updateSigned(...all),
      allocate: (octets) => good.allocate(octets),
      release: (memory) => good.release(memory),
      runs: good.runs,
    };
    expect(firstFault(signed)).toBe('check value');
    const unsigned: Crc32cEngine = {
      ...signed,
      update: (...all) => good.update(...all),
      updateSigned: (...all) => good.update(...all),
    };
    expect(firstFault(unsigned)).toBe('signed check value');
  });
});
