/** An end in the midst of things: the other side learns of it soon, whatever of the data it has. */
import { describe, expect, it } from 'vitest';
import type { TrpOptions } from '../../src/trp/profile.ts';
import { pattern } from '../verbs/support.ts';
import { DATA, FIN, World } from './support.ts';

const PAYLOAD = 5_000;
const SOON_MS = 300;

/** A world in which the client has posted a Send of several datagrams, of which the network loses some. */
function sending(trp: TrpOptions, lost: (nth: number) => boolean = () => false): World {
  const world = World.connected({ client: trp, server: trp, network: { latency: 1 } });
  world.run(100);
  const { client, server } = world;
  client.memory.bytes.set(pattern(PAYLOAD));
  server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: PAYLOAD }] });
  let nth = 0;
  world.network.mayPass = ({ opcode, bytes }) => opcode !== DATA || bytes.length <= 10 || !lost(nth++);
  client.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr: client.memory, length: PAYLOAD }] });
  return world;
}

function expectEnd(world: World): void {
  const { client, server } = world;
  const began = world.time.now();
  world.run(20_000, () => server.eventTypes.includes('disconnected'));
  expect(server.eventTypes).toContain('disconnected');
  expect(client.eventTypes).toContain('disconnected');
  expect(world.time.now() - began).toBeLessThan(SOON_MS);
  expect(client.poll()).toHaveLength(1);
  expect(server.poll()).toHaveLength(1);
}

describe.each(['fixed', 'urdma'] as const)('profile %s: an abort ends the peer', (profile) => {
  it.each([
    ['on their way', 0.5],
    ['at the peer, and their acknowledgements on the way back', 1.5],
    ['acknowledged', 100],
  ])('when datagrams are %s', (_where, ms) => {
    const world = sending({ profile });
    world.run(ms);
    world.client.connection!.abort();
    expectEnd(world);
  });

  it.each<[string, (nth: number) => boolean]>([
    ['the first is missing', (nth) => nth === 0],
    ['two are missing', (nth) => nth === 1 || nth === 3],
    ['none has come', () => true],
  ])('when of its datagrams %s', (_which, lost) => {
    const world = sending({ profile }, lost);
    world.run(1.5);
    world.client.connection!.abort();
    expectEnd(world);
  });

  it('when its first FIN is lost, and the peer has nothing to say', () => {
    const world = sending({ profile });
    world.run(100);
    let left = 1;
    world.network.mayPass = ({ opcode }) => opcode !== FIN || left-- <= 0;
    world.client.connection!.abort();
    expectEnd(world);
  });
});
