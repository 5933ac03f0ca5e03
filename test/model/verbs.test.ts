// Random requests on several connections, domains, regions and windows, against a naive model.
// IWARP_MODEL_OPS sets how many calls, IWARP_MODEL_SEED where to begin; a failure names the seed and the
// round that show it again.
import { describe, expect, it } from 'vitest';
import { pairWire } from '../support/pair.ts';
import { World } from './world.ts';
import { depth } from '../support/depth.ts';

const OPERATIONS = Number(
  process.env['IWARP_MODEL_OPS'] ?? (pairWire() === 'trp' ? 6_000 : depth(25_000, 100_000)),
);
const FIRST_SEED = Number(process.env['IWARP_MODEL_SEED'] ?? 1);
/** Calls on one world before the next seed begins another. */
const WORLD_OPERATIONS = Math.ceil(Math.min(20_000, OPERATIONS / 4));

describe('verbs against the naive model', () => {
  it(`${OPERATIONS} random calls keep all completions (VERBS-092/094/095/106/107/108/163/157)`, async () => {
    let done = 0;
    const ends = { local: 0, remote: 0, closed: 0, reset: 0 };
    let placed = 0;
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
      placed = Math.max(placed, world.placed);
      for (const kind of ['local', 'remote', 'closed', 'reset'] as const) ends[kind] += world.ends[kind];
    }
    console.log(
      `model: ${done} calls from seed ${FIRST_SEED} on, ${Date.now() - started} ms, ends ` +
        `${JSON.stringify(ends)}, at most ${placed} Writes of a connection were placed directly`,
    );
    expect(done).toBeGreaterThanOrEqual(OPERATIONS);
    expect(placed > 0).toBe(pairWire() === 'shm');
    // The test means something only if every kind of end was among it.
    if (OPERATIONS >= 50_000) for (const count of Object.values(ends)) expect(count).toBeGreaterThan(3);
  }, 3_600_000);
});
