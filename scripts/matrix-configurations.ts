/**
 * The configurations in which everything has to work: what the environment says, and what a run then has to
 * be found to use.
 */
import { availableParallelism } from 'node:os';
import type { RnicSettings } from '../src/api/environment.ts';
import { availableCrc32cEngines } from '../src/crc32c/engine.ts';

/**
 * Where a process takes its engine, its CRC32c, its way of receiving and its polling from, if the program
 * does not say.
 */
export const VARIABLES = ['IWARP_ENGINE', 'IWARP_CRC32C', 'IWARP_RECEIVE', 'IWARP_BUSY_POLL'] as const;

export interface Configuration {
  readonly name: string;
  readonly environment: Readonly<Partial<Record<(typeof VARIABLES)[number], string>>>;
}

/**
 * Each engine, each CRC32c, each way of receiving and of waiting once. How they meet is
 * test/engine/configuration.test.ts's.
 */
export const CONFIGURATIONS: readonly Configuration[] = [
  { name: 'default', environment: {} },
  { name: 'worker', environment: { IWARP_ENGINE: 'worker' } },
  { name: 'simd', environment: { IWARP_CRC32C: 'simd' } },
  { name: 'wasm', environment: { IWARP_CRC32C: 'wasm' } },
  { name: 'js', environment: { IWARP_CRC32C: 'js' } },
  { name: 'crc-32', environment: { IWARP_CRC32C: 'crc-32' } },
  { name: 'data', environment: { IWARP_RECEIVE: 'data' } },
  { name: 'no-poll', environment: { IWARP_BUSY_POLL: '0' } },
];

/** The settings that a process with these variables has to work with. */
export function expectedSettings(environment: Readonly<Record<string, string | undefined>>): RnicSettings {
  const {
    IWARP_ENGINE: engine,
    IWARP_CRC32C: crc32c,
    IWARP_RECEIVE: receive,
    IWARP_BUSY_POLL: busyPoll,
  } = environment;
  return {
    engine: engine === 'worker' ? 'worker' : 'thread',
    crc32c: availableCrc32cEngines().find((name) => name === crc32c) ?? availableCrc32cEngines()[0]!,
    receive: receive === 'data' || (receive !== 'onread' && process.platform === 'win32') ? 'data' : 'onread',
    busyPoll:
      busyPoll === undefined || busyPoll === '' ? (availableParallelism() > 1 ? 50 : 0) : Number(busyPoll),
  };
}
