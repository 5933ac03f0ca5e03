/** Memory of the engines: arenas that never move, their allocator, and what happens when they are full. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Arena } from '../../src/crc32c/arena.ts';
import { availableCrc32cEngines, createCrc32cEngine } from '../../src/crc32c/engine.ts';
import { webAssembly } from '../../src/crc32c/host.ts';
import { bitSerialCrc32c, noise } from './reference.ts';

const MEBI = 1 << 20;
const invalid = expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' });

describe.each(availableCrc32cEngines())('allocate and release of %s', (name) => {
  it('gives zeroed memory of the exact size, again after use', () => {
    const engine = createCrc32cEngine(name);
    for (let round = 0; round < 3; round++) {
      const pieces = [0, 1, 63, 64, 65, 1460, 65_536].map((octets) => ({
        octets,
        memory: engine.allocate(octets),
      }));
      for (const { octets, memory } of pieces) {
        expect(memory.length).toBe(octets);
        expect(memory.every((octet) => octet === 0)).toBe(true);
        memory.fill(0xa5);
      }
      for (const { memory } of pieces) engine.release(memory);
    }
  });

  it('pieces do not share octets', () => {
    const engine = createCrc32cEngine(name);
    const pieces = Array.from({ length: 20 }, (_, index) => engine.allocate(100 + index).fill(index));
    pieces.forEach((piece, index) => expect(piece.every((octet) => octet === index)).toBe(true));
  });

  it('refuses sizes that are none, and memory that was not allocated or was released before', () => {
    const engine = createCrc32cEngine(name);
    for (const octets of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => engine.allocate(octets)).toThrowError(invalid);
    }
    const memory = engine.allocate(1000);
    expect(() => engine.release(new Uint8Array(1000))).toThrowError(invalid);
    expect(() => engine.release(memory.subarray(0, 999))).toThrowError(invalid);
    expect(() => engine.release(createCrc32cEngine(name).allocate(1000))).toThrowError(invalid);
    engine.release(memory);
    expect(() => engine.release(memory)).toThrowError(invalid);
  });
});

describe.each(availableCrc32cEngines().filter((name) => name === 'simd' || name === 'wasm'))(
  'arenas of %s',
  (name) => {
    it('further arenas on exhaustion, then ordinary memory; views and values stay right (MPA-051)', () => {
      const engine = createCrc32cEngine(name);
      const samples = Array.from({ length: 28 }, (_, index) => noise(5000, index + 1));
      const expected = samples.map((sample) => bitSerialCrc32c(0, sample));
      const crc = (piece: Uint8Array): number => engine.update(0, piece, 4 * MEBI, 4 * MEBI + 5000);
      const pieces = Array.from({ length: 28 }, () => engine.allocate(8 * MEBI));
      const buffers = new Set(pieces.map((piece) => piece.buffer));
      // Three pieces fit into each of the eight arenas; the four that are left are ordinary.
      expect(buffers.size).toBe(8 + 4);
      for (const [index, piece] of pieces.entries()) {
        expect(piece.length).toBe(8 * MEBI);
        piece.set(samples[index] as Uint8Array, 4 * MEBI);
      }
      // Twice each: an engine that remembers an array must remember its arena as well.
      expect(pieces.flatMap((piece) => [crc(piece), crc(piece)])).toEqual(
        expected.flatMap((value) => [value, value]),
      );
      const [first, ...others] = pieces;
      for (const piece of others) engine.release(piece);
      const again = engine.allocate(8 * MEBI);
      expect(again.buffer).toBe(first?.buffer);
      expect(crc(first as Uint8Array)).toBe(expected[0]);
    });

    it('a single piece larger than an arena is ordinary memory and works as well', () => {
      const engine = createCrc32cEngine(name);
      const piece = engine.allocate(40 * MEBI);
      piece.set(noise(100, 1), 39 * MEBI);
      expect(engine.update(0, piece, 39 * MEBI, 39 * MEBI + 100)).toBe(bitSerialCrc32c(0, noise(100, 1)));
      engine.release(piece);
      expect(() => engine.release(piece)).toThrowError(invalid);
    });
  },
);

describe.runIf(webAssembly !== undefined)('Arena', () => {
  const OCTETS = 2 * 65_536;
  const RESERVED = 1000;

  it('never overlaps, keeps to its part, and is whole again when all is released', () => {
    const step = fc.oneof(
      fc.record({ take: fc.integer({ min: 0, max: 40_000 }) }),
      fc.record({ give: fc.nat(50) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const arena = new Arena(OCTETS, RESERVED);
        const held: Uint8Array[] = [];
        for (const one of steps) {
          if ('take' in one) {
            const memory = arena.allocate(one.take);
            if (memory === undefined) continue;
            expect(memory.length).toBe(one.take);
            expect(memory.byteOffset % 64).toBe(0);
            expect(memory.byteOffset).toBeGreaterThanOrEqual(RESERVED);
            expect(memory.indexOf(0xa5)).toBe(-1);
            held.push(memory.fill(0xa5));
          } else if (held.length > 0) {
            const [memory] = held.splice(one.give % held.length, 1);
            expect(arena.release(memory as Uint8Array)).toBe(true);
          }
          const sorted = held.toSorted((a, b) => a.byteOffset - b.byteOffset);
          sorted.slice(1).forEach((memory, index) => {
            const before = sorted[index] as Uint8Array;
            expect(before.byteOffset + Math.max(64, before.length)).toBeLessThanOrEqual(memory.byteOffset);
          });
        }
        for (const memory of held) expect(arena.release(memory)).toBe(true);
        expect(arena.allocate(OCTETS - 1024)?.length).toBe(OCTETS - 1024);
        expect(arena.allocate(0)).toBeUndefined();
      }),
      { numRuns: 200 },
    );
  });

  it('its buffer cannot be transferred away: a transfer copies or throws', () => {
    const arena = new Arena(OCTETS, RESERVED);
    const view = arena.allocate(10)?.fill(7);
    let outcome: unknown;
    try {
      outcome = structuredClone(arena.buffer, { transfer: [arena.buffer] });
    } catch (error) {
      outcome = error;
    }
    expect(outcome).not.toBe(arena.buffer);
    expect(arena.buffer.byteLength).toBe(OCTETS);
    expect(view?.join()).toBe('7,7,7,7,7,7,7,7,7,7');
  });
});
