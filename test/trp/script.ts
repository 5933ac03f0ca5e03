/** Requests of every kind, drawn from a seed, and their outcome: completions and memory of both sides. */
import { expect } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import type { MemoryDatagramOptions } from '../../src/simnet/datagrams.ts';
import type { TrpOptions } from '../../src/trp/profile.ts';
import type { SendWorkRequest } from '../../src/verbs/index.ts';
import { World, type End } from './support.ts';

const AREA = 1 << 16;
const COUNTER = 2 * AREA - 8;
export const OPERATIONS = 60;

/** What a side has seen of it. */
export interface Outcome {
  readonly sends: readonly string[];
  readonly receives: readonly string[];
  readonly memory: string;
}

/** Requests of one side: no two of them write to the same place. */
export function script(seed: number, from: End, to: End, plain: boolean): SendWorkRequest[] {
  const draw = seededRandom(seed);
  const below = (n: number): number => draw() % n;
  const { memory: mr } = from;
  const remote = (offset: number): bigint => to.memory.addr + BigInt(offset);
  return Array.from({ length: OPERATIONS }, (_, i): SendWorkRequest => {
    const wrId = i + 1;
    // A third are of several datagrams, and some of none.
    const length = plain ? 1 + below(1000) : below(3) === 0 ? below(1000) : below(10) === 0 ? 0 : below(60);
    const offset = i * 1000;
    const source = { mr, offset, length };
    const fence = below(8) === 0;
    switch (below(plain ? 3 : 5)) {
      case 0:
        return { wrId, opcode: 'send', sges: [source] };
      case 1:
        return {
          wrId,
          opcode: 'rdma-write',
          sges: [source],
          remoteAddr: remote(AREA + offset),
          rkey: to.memory.rkey,
        };
      case 2:
        return {
          wrId,
          opcode: 'rdma-read',
          sges: [{ mr, offset: 3 * AREA + offset, length }],
          remoteAddr: remote(offset),
          rkey: to.memory.rkey,
        };
      case 3:
        return {
          wrId,
          fence,
          opcode: 'atomic-fetch-add',
          sges: [{ mr, offset: 3 * AREA + offset + 992, length: 8 }],
          remoteAddr: remote(COUNTER),
          rkey: to.memory.rkey,
          add: 3n,
        };
      default:
        return { wrId, opcode: 'immediate', immediate: BigInt(i) };
    }
  });
}

/** Memory that differs from place to place, and a receive for each request that may take one. */
export function prepare(end: End, seed: number): void {
  const draw = seededRandom(seed);
  for (let i = 0; i < AREA; i++) end.memory.bytes[i] = draw();
  for (let i = 0; i < OPERATIONS; i++)
    end.qp.postRecv({
      wrId: 1000 + i,
      sges: [{ mr: end.memory, offset: 2 * AREA + i * 1000, length: 1000 }],
    });
}

/** Throws unless each of `expected` requests has ended exactly once. */
export function outcomeOf(end: End, expected: number): Outcome {
  end.poll();
  const text = end.completions.map(
    ({ wrId, status, opcode, byteLength }) => `${wrId} ${opcode} ${status} ${byteLength}`,
  );
  const isReceive = (one: string): boolean => one.startsWith('1') && one.split(' ')[0]!.length === 4;
  const sends = text.filter((one) => !isReceive(one));
  expect(new Set(sends.map((one) => one.split(' ')[0])).size).toBe(sends.length);
  expect(sends).toHaveLength(expected);
  return {
    sends,
    receives: text.filter(isReceive),
    memory: Buffer.from(end.memory.bytes).toString('base64'),
  };
}

/** Reads that are placed out of turn end in any order. */
export const withoutOrder = ({ sends, receives, memory }: Outcome): Outcome => ({
  sends: sends.toSorted(),
  receives,
  memory,
});

/** Both scripts in virtual time, over a network in memory. */
export function play(seed: number, network: MemoryDatagramOptions, trp: TrpOptions): [Outcome, Outcome] {
  const world = World.connected({ network, client: trp, server: trp, qp: { maxSendWr: 256 } });
  const { client, server } = world;
  prepare(client, seed);
  prepare(server, seed + 1);
  const plain = trp.profile === 'urdma';
  const ours = script(seed + 2, client, server, plain);
  const theirs = script(seed + 3, server, client, plain);
  for (let i = 0; i < OPERATIONS; i += 15) {
    client.qp.postSend(ours.slice(i, i + 15));
    server.qp.postSend(theirs.slice(i, i + 15));
    world.run(i % 2 === 0 ? 0.5 : 20);
  }
  const done = (): boolean =>
    client.poll().filter(({ wrId }) => wrId < 1000).length === OPERATIONS &&
    server.poll().filter(({ wrId }) => wrId < 1000).length === OPERATIONS;
  world.run(120_000, done);
  world.run(100);
  return [outcomeOf(client, OPERATIONS), outcomeOf(server, OPERATIONS)];
}
