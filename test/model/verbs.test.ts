// Random requests on several connections, domains, regions and windows, against a naive model. IWARP_MODEL_OPS sets how many calls,
// IWARP_MODEL_SEED where to begin; a failure names the seed and the round that show it again.
import { describe, expect, it } from 'vitest';
import { World } from './world.ts';

const OPERATIONS = Number(process.env['IWARP_MODEL_OPS'] ?? 100_000);
const FIRST_SEED = Number(process.env['IWARP_MODEL_SEED'] ?? 1);
/** Calls on one world before the next seed begins another. */
const WORLD_OPERATIONS = 20_000;

describe('verbs against the naive model', () => {
  it(`VERBS-092 VERBS-094 VERBS-095 VERBS-106 VERBS-107 VERBS-108 VERBS-163 VERBS-157: ${OPERATIONS} random calls lose, double or misorder no completion`, async () => {
    let done = 0;
    const ends = { local: 0, remote: 0, closed: 0, reset: 0 };
    const started = Date.now();
    for (let seed = FIRST_SEED; done < OPERATIONS; seed++) {
      const world = await World.create(seed);
      const share = Math.min(WORLD_OPERATIONS, OPERATIONS - done);
      for (let round = 0; world.operations < share; round++) {
        try {
          world.round();
        } catch (error) {
          throw new Error(`seed ${seed}, round ${round}: ${(error as Error).message}`, { cause: error });
        }
      }
      done += world.operations;
      for (const kind of ['local', 'remote', 'closed', 'reset'] as const) ends[kind] += world.ends[kind];
    }
    console.log(`model: ${done} calls from seed ${FIRST_SEED} on, ${Date.now() - started} ms, ends ${JSON.stringify(ends)}`);
    expect(done).toBeGreaterThanOrEqual(OPERATIONS);
    // The test means something only if every kind of end was among it.
    if (OPERATIONS >= 50_000) for (const count of Object.values(ends)) expect(count).toBeGreaterThan(3);
  }, 3_600_000);
});
