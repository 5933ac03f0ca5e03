// What IWARP_ENGINE, IWARP_CRC32C, IWARP_RECEIVE and IWARP_BUSY_POLL say is what a device works with, in both
// kinds of engine, and a wrong word is thrown at once.
// cspell:ignore wrokers
import { afterEach, describe, expect, it, vi } from 'vitest';
import { CONFIGURATIONS, expectedSettings } from '../../scripts/matrix-configurations.ts';
import { settingsOf } from '../../src/api/environment.ts';
import { availableCrc32cEngines, createCrc32cEngine } from '../../src/crc32c/engine.ts';
import { openRnic, type Rnic } from '../../src/index.ts';
import { MemoryTransport } from '../../src/simnet/memory.ts';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { runTs } from '../examples/support.ts';
import { until } from './support.ts';

afterEach(() => void vi.unstubAllEnvs());

/** Once the streams' own thread is up. */
async function settled(rnic: Rnic): Promise<ReturnType<typeof settingsOf>> {
  await until(() => settingsOf(rnic) !== null);
  const settings = settingsOf(rnic);
  rnic.device.close();
  return settings;
}

describe('the environment', () => {
  it('of this run is in force here: engine, CRC32c, way of receiving and of waiting', async () => {
    expect(await settled(openRnic())).toEqual(expectedSettings(process.env));
  });

  it.each(CONFIGURATIONS)('$name is what a process with it works with', async ({ environment }) => {
    const others = { IWARP_ENGINE: '', IWARP_CRC32C: '', IWARP_RECEIVE: '', IWARP_BUSY_POLL: '' };
    const { status, stdout, stderr } = await runTs('scripts/matrix-probe.ts', [], {
      ...others,
      ...environment,
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(JSON.parse(stdout)).toEqual(expectedSettings(environment));
  });

  it.each(availableCrc32cEngines())(
    'reaches into a worker: CRC32c by %s, octets as data events',
    async (crc32c) => {
      vi.stubEnv('IWARP_CRC32C', crc32c);
      vi.stubEnv('IWARP_RECEIVE', 'data');
      vi.stubEnv('IWARP_BUSY_POLL', '7');
      // This thread's own engine was made before: only a worker starts anew.
      expect(await settled(openRnic({ engine: 'worker' }))).toEqual({
        engine: 'worker',
        crc32c,
        receive: 'data',
        busyPoll: 7,
      });
    },
  );

  it('yields to options', async () => {
    vi.stubEnv('IWARP_ENGINE', 'worker');
    vi.stubEnv('IWARP_CRC32C', 'js');
    vi.stubEnv('IWARP_BUSY_POLL', '9');
    expect(await settled(openRnic({ engine: 'thread', crc32c: 'crc-32', busyPoll: 0 }))).toMatchObject({
      engine: 'thread',
      crc32c: 'crc-32',
      busyPoll: 0,
    });
    expect(await settled(openRnic({ engine: 'worker', crc32c: 'wasm', busyPoll: 100 }))).toMatchObject({
      engine: 'worker',
      crc32c: 'wasm',
      busyPoll: 100,
    });
    expect(settingsOf(openRnic({ transport: new MemoryTransport(realScheduler) }))).toBeNull();
  });

  it.each([
    ['IWARP_ENGINE', 'thread'],
    ['IWARP_ENGINE', 'worker'],
    ['IWARP_CRC32C', 'thread'],
    ['IWARP_CRC32C', 'worker'],
    ['IWARP_RECEIVE', 'thread'],
    ['IWARP_RECEIVE', 'worker'],
    ['IWARP_BUSY_POLL', 'thread'],
    ['IWARP_BUSY_POLL', 'worker'],
  ] as const)(
    'a wrong word in %s ends a program that asks for engine %s, and says so',
    async (name, engine) => {
      const { status, stderr } = await runTs('scripts/matrix-probe.ts', [], {
        IWARP_ENGINE: engine,
        [name]: 'wrokers',
      });
      expect(status).not.toBe(0);
      expect(stderr).toContain('ERR_INVALID_ARGUMENT');
      expect(stderr).toMatch(new RegExp(`IwarpError: ${name} must be .*['"]wrokers['"]`));
    },
  );
});

describe('expectedSettings', () => {
  it('distinguishes the configurations, and takes the fastest CRC32c where none is named', () => {
    expect(expectedSettings({}).crc32c).toBe(createCrc32cEngine().name);
    const seen = CONFIGURATIONS.map(({ environment }) => JSON.stringify(expectedSettings(environment)));
    // The default has one of the named CRC32c engines.
    expect(new Set(seen).size).toBe(CONFIGURATIONS.length - 1);
  });
});
