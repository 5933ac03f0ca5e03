/** A path that carries less than the interface says, and says nothing of it. */
import { expect, it } from 'vitest';
import { acquirePacket } from '../../src/trp/packet.ts';
import { cutPacket, PieceStore } from '../../src/trp/pieces.ts';
import { TRP_HEADER_OCTETS } from '../../src/trp/wire.ts';
import { pattern } from '../verbs/support.ts';
import { World } from './support.ts';

const PAYLOAD = 60_000;
/** Octets of the longest datagram, its headers of IP and UDP not counted. */
const PATH = 1200 - 28;

/** Requests of each kind, both ways. */
function exchange(world: World, rounds: number): void {
  const { client, server } = world;
  for (let round = 0; round < rounds; round++) {
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      const [fromBefore, toBefore] = [from.poll().length, to.poll().length];
      from.memory.bytes.set(pattern(PAYLOAD, round + 1));
      to.memory.bytes.fill(0, 0, PAYLOAD);
      to.qp.postRecv({ wrId: 1, sges: [{ mr: to.memory, length: PAYLOAD }] });
      const { addr: remoteAddr, rkey } = to.memory;
      const sges = [{ mr: from.memory, length: PAYLOAD }];
      const sink = [{ mr: from.memory, offset: PAYLOAD, length: PAYLOAD }];
      from.qp.postSend({ opcode: 'rdma-write', sges, remoteAddr: remoteAddr + BigInt(PAYLOAD), rkey });
      from.qp.postSend({ opcode: 'send', sges });
      from.qp.postSend({ opcode: 'rdma-read', sges: sink, remoteAddr: remoteAddr + BigInt(PAYLOAD), rkey });
      world.run(60_000, () => from.poll().length === fromBefore + 3 && to.poll().length === toBefore + 1);
      expect(from.completions.slice(fromBefore).map(({ status }) => status)).toEqual(
        Array<string>(3).fill('success'),
      );
      const data = pattern(PAYLOAD, round + 1);
      expect(to.memory.bytes.subarray(0, PAYLOAD)).toEqual(data);
      expect(to.memory.bytes.subarray(PAYLOAD, 2 * PAYLOAD)).toEqual(data);
      expect(from.memory.bytes.subarray(PAYLOAD, 2 * PAYLOAD)).toEqual(data);
    }
  }
}

const LOSSES = [0, 0.05] as const;

it.each(LOSSES)('from the beginning, loss %s: goes on with shorter segments', (loss) => {
  const trp = { mtu: 9000 };
  const world = World.connected({ client: trp, server: trp, network: { latency: 1, loss, seed: 3 } });
  world.network.mayPass = ({ bytes }) => bytes.length <= PATH;
  exchange(world, 2);
  expect(world.client.trp.pieces).toBeGreaterThan(0);
  expect(world.server.trp.pieces).toBeGreaterThan(0);
  const { length } = world.network.passed;
  exchange(world, 1);
  const later = world.network.passed.slice(length).map(({ bytes }) => bytes.length);
  expect(Math.max(...later)).toBeLessThanOrEqual(PATH);
});

it('from the middle of a message: segments under way come in pieces, and each arrives once', () => {
  const trp = { mtu: 9000 };
  const world = World.connected({ client: trp, server: trp, network: { latency: 1 } });
  exchange(world, 1);
  expect(world.client.trp.pieces).toBe(0);
  let left = 3;
  world.network.mayPass = ({ bytes }) => bytes.length <= PATH || left-- > 0;
  exchange(world, 2);
  expect(world.client.trp.pieces).toBeGreaterThan(0);
});

it('a silent peer is not taken for a narrow path, and neither is loss where long ones arrive', () => {
  const trp = { mtu: 9000 };
  const world = World.connected({ client: trp, server: trp, network: { latency: 1 } });
  let passes = false;
  world.network.mayPass = () => passes;
  const { client, server } = world;
  server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: PAYLOAD }] });
  client.qp.postSend({ opcode: 'send', sges: [{ mr: client.memory, length: PAYLOAD }] });
  world.run(10_000);
  passes = true;
  world.run(10_000, () => client.poll().length > 0);
  expect(client.completions.map(({ status }) => status)).toEqual(['success']);
  expect(client.trp.pieces).toBe(0);
});

it('with a fixed MTU below, nothing is ever cut', () => {
  const trp = { mtu: 1200 };
  const world = World.connected({ client: trp, server: trp, network: { latency: 1 } });
  world.network.mayPass = ({ bytes }) => bytes.length <= PATH;
  exchange(world, 1);
  expect(world.client.trp.pieces).toBe(0);
});

function packet(length: number): { whole: Uint8Array; pieces: Uint8Array[] } {
  const one = acquirePacket(TRP_HEADER_OCTETS + length);
  one.bytes.fill(0, 0, TRP_HEADER_OCTETS);
  const whole = pattern(length);
  one.bytes.set(whole, TRP_HEADER_OCTETS);
  return { whole, pieces: cutPacket(one, 1134) };
}

const take = (store: PieceStore, sequence: number, piece: Uint8Array) =>
  store.take(sequence, piece, TRP_HEADER_OCTETS, piece.length);

it.each([1131, 2261, 8962, 32_310, 65_477])('pieces of %s octets come in any order, and twice', (length) => {
  const { whole, pieces } = packet(length);
  const store = new PieceStore();
  const last = pieces.shift()!;
  for (const piece of pieces.toReversed()) {
    expect(take(store, 5, piece)).toBeNull();
    expect(take(store, 5, piece)).toBeNull();
  }
  expect(take(store, 5, last)).toEqual(whole);
});

it('a piece that disagrees is none, and a few segments are kept: the lowest ones', () => {
  const { whole, pieces } = packet(2000);
  const [first, second] = pieces as [Uint8Array, Uint8Array];
  const wrong = (at: number, value: number): Uint8Array => first.with(at, value);
  const store = new PieceStore();
  expect(take(store, 9, first)).toBeNull();
  for (const bad of [wrong(10, 1), wrong(12, 0), wrong(12, 1), wrong(12, 3), wrong(13, 2), wrong(12, 255)])
    expect(take(store, 9, bad)).toBeUndefined();
  expect(take(store, 9, first.subarray(0, -1))).toBeUndefined();
  for (const sequence of [20, 10, 11, 12]) expect(take(store, sequence, first)).toBeNull();
  // 20 has made room for 12.
  expect(take(store, 20, second)).toBeNull();
  expect(take(store, 20, first)).toBeNull();
  for (const sequence of [9, 10, 11, 12]) expect(take(store, sequence, second)).toEqual(whole);
  expect(take(store, 30, first)).toBeNull();
  store.forget(31);
  expect(take(store, 30, second)).toBeNull();
});
