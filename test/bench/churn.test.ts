// Memory of hostile connections comes back (SEC-033): a server in its own process, peers that say nothing
// after their start-up and reset. Nothing is timed.
import { describe, expect, it } from 'vitest';
import { CostServer } from '../../bench/peers/cost-client.ts';
import { depth } from '../support/depth.ts';

const CONNECTIONS = depth(150, 300);
const ROUNDS = 3;
/**
 * MiB of resident memory. Two rounds whose receives were kept would be 600 or 1,200; the allocator keeps up
 * to 150.
 */
const GROWTH = 256;
const IDLE = 192;
/** MiB of V8's heap. */
const HEAP = 8;

describe.each(['thread', 'worker'] as const)('a server with engine %s', (engine) => {
  it.each(['promise', 'cm', 'stream'] as const)(
    'gives back memory of the connections of %s',
    async (layer) => {
      const server = new CostServer(layer, engine);
      try {
        await server.ready();
        const empty = await server.look();
        await server.open(CONNECTIONS);
        const idle = await server.look();
        expect(idle.connections).toBe(CONNECTIONS);
        await server.reset();
        const first = await server.look(); // compiled code and pools have been made
        for (let round = 1; round < ROUNDS; round++) {
          await server.open(CONNECTIONS);
          await server.reset();
        }
        const last = await server.look();
        expect(last.connections).toBe(0);
        expect(idle.resident - empty.resident).toBeLessThan(IDLE);
        expect(last.resident - first.resident).toBeLessThan(GROWTH);
        expect(last.heap - first.heap).toBeLessThan(HEAP);
      } finally {
        server.end();
      }
    },
  );
});
