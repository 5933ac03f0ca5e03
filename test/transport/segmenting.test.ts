/** Where the re-segmenting middleware cuts. That it loses and reorders nothing is in the contract test. */

import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { segmenting } from '../../src/simnet/segmenting.ts';
import type { Port, PortHandler } from '../../src/transport/port.ts';
import type { Segmentation } from '../../src/simnet/segmenting.ts';
import { memoryWorld, pattern } from './harness.ts';
import type { End } from './harness.ts';

async function pair(segmentation: Segmentation): Promise<{ active: End; passive: End; run: () => void }> {
  const world = memoryWorld('memory', {}, [(time) => segmenting(time, segmentation)]);
  const { active, passive } = await world.pair();
  active.attach();
  passive.attach();
  world.time.run();
  return { active, passive, run: () => world.time.run() };
}

/** The pieces of writes of 5, 9 and 1 octets that arrive one by one. */
async function pieces(segmentation: Segmentation): Promise<number[]> {
  const { active, passive, run } = await pair(segmentation);
  const bytes = pattern(15, seededRandom(3));
  for (const [start, end] of [
    [0, 5],
    [5, 14],
    [14, 15],
  ] as const) {
    active.write(bytes.subarray(start, end));
    run();
  }
  expect(passive.bytes).toEqual(bytes);
  return passive.pieces;
}

describe('segmenting', () => {
  it('leaves the cuts of the network', async () => {
    expect(await pieces({ kind: 'asIs' })).toEqual([5, 9, 1]);
  });

  it('cuts at every multiple counted from the start of the stream', async () => {
    expect(await pieces({ kind: 'every', octets: 4 })).toEqual([4, 1, 3, 4, 2, 1]);
    expect(await pieces({ kind: 'every', octets: 1 })).toEqual(Array.from({ length: 15 }, () => 1));
  });

  it('cuts at random the same way for the same seed, another way for another connection', async () => {
    const first = await pieces({ kind: 'random', seed: 7, max: 4 });
    expect(await pieces({ kind: 'random', seed: 7, max: 4 })).toEqual(first);
    expect(Math.max(...first)).toBeLessThanOrEqual(4);
    const world = memoryWorld('memory', {}, [
      (time) => segmenting(time, { kind: 'random', seed: 7, max: 9 }),
    ]);
    const seen: number[][] = [];
    for (let i = 0; i < 2; i++) {
      const { active, passive } = await world.pair();
      active.attach();
      passive.attach();
      active.write(new Uint8Array(500));
      world.time.run();
      seen.push(passive.pieces);
    }
    expect(seen[0]).not.toEqual(seen[1]);
  });

  it('coalesces what arrives in one turn, and ends after it', async () => {
    const { active, passive, run } = await pair({ kind: 'coalesce' });
    for (let i = 0; i < 5; i++) active.write(new Uint8Array(10));
    run();
    expect(passive.pieces).toEqual([50]);
    active.write(new Uint8Array(3));
    active.write(new Uint8Array(4));
    active.call(() => active.port.end());
    run();
    expect(passive.pieces).toEqual([50, 7]);
    expect(passive.log).toEqual(['end']);
  });

  it.each(['every', 'random'] as const)(
    'keeps the rest of a chunk when the handler pauses in its middle: %s',
    async (kind) => {
      const { active, passive, run } = await pair(
        kind === 'every' ? { kind, octets: 3 } : { kind, seed: 1, max: 3 },
      );
      passive.hook = () => passive.port.pause();
      active.write(Uint8Array.from({ length: 20 }, (_, i) => i));
      active.call(() => active.port.end());
      run();
      for (let i = 1; passive.log.length === 0; i++) {
        expect(passive.pieces.length).toBeLessThanOrEqual(i);
        expect(i).toBeLessThan(25);
        passive.call(() => passive.port.resume());
        run();
      }
      expect(passive.received).toEqual(Array.from({ length: 20 }, (_, i) => i));
      expect(passive.log).toEqual(['end']);
    },
  );

  it('drops what it holds on a reset', async () => {
    const { active, passive, run } = await pair({ kind: 'every', octets: 1 });
    passive.hook = () => passive.port.pause();
    active.write(new Uint8Array(5));
    run();
    passive.call(() => passive.port.reset());
    passive.call(() => passive.port.resume());
    run();
    expect(passive.pieces).toEqual([1]);
    expect(passive.log).toEqual(['close with error']);
    expect(active.log).toEqual(['close with error']);
  });

  it.each(['coalesce', 'every'] as const)(
    'has octets that it holds back for itself, though they came in a Buffer that is used again: %s',
    async (kind) => {
      const world = memoryWorld('memory', {}, []);
      const { active } = await world.pair();
      const cut = segmenting(world.time, kind === 'every' ? { kind, octets: 3 } : { kind })(
        active.port,
        'active',
      ) as Port & PortHandler;
      const received: number[] = [];
      cut.attach({
        onData: (bytes, start, end) => void received.push(...bytes.subarray(start, end)),
        onEnd: () => undefined,
        onClose: () => undefined,
      });
      cut.pause();
      const read = Buffer.from([1, 2, 3, 4, 5]);
      cut.onData(read, 1, 5);
      read.fill(0xee);
      cut.resume();
      world.time.run();
      expect(received).toEqual([2, 3, 4, 5]);
    },
  );

  it('refuses pieces of no octets', () => {
    const world = memoryWorld();
    expect(() => segmenting(world.time, { kind: 'every', octets: 0 })).toThrow('octets must be');
    expect(() => segmenting(world.time, { kind: 'random', seed: 1, max: 0 })).toThrow('max must be');
  });
});
