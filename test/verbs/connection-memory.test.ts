/** Memory of connections: cut from slabs, used again, and let go. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { ConnectionMemory } from '../../src/verbs/connection-memory.ts';

const KIB = 1024;
const MIB = 1 << 20;

function pool(): { memory: ConnectionMemory; asked: number[] } {
  const asked: number[] = [];
  const memory = new ConnectionMemory((octets) => {
    asked.push(octets);
    return new Uint8Array(octets);
  });
  return { memory, asked };
}

describe('memory of connections', () => {
  it('takes slabs that double, up to 34 MiB', () => {
    const { memory, asked } = pool();
    for (let i = 0; i < 200; i++) memory.take(MIB, false);
    expect(asked).toEqual([1, 1, 2, 4, 8, 16, 32, 34, 34, 34, 34].map((count) => count * MIB));
    expect(memory.reserved).toBe(200 * MIB);
  });

  it('allocates small and very large pieces one by one, and keeps none of them', () => {
    const { memory, asked } = pool();
    for (const octets of [0, 64 * KIB - 1, 16 * MIB + 1, 64 * KIB - 1])
      memory.give(memory.take(octets, false));
    expect(asked).toEqual([0, 64 * KIB - 1, 16 * MIB + 1, 64 * KIB - 1]);
    expect(memory.reserved).toBe(0);
  });

  it('gives the piece that came back last, for exactly its size, cleared on request', () => {
    const { memory } = pool();
    const [first, second] = [memory.take(MIB, false), memory.take(MIB, false)];
    first.fill(7);
    second.fill(8);
    memory.give(first);
    memory.give(second);
    expect(memory.take(2 * MIB, false).length).toBe(2 * MIB);
    const again = memory.take(MIB, false);
    expect(again.length).toBe(MIB);
    expect([7, 8]).toContain(again[0]);
    const cleared = memory.take(MIB, true);
    expect(cleared.every((octet) => octet === 0)).toBe(true);
  });

  it('does not clear a piece that nothing was written into', () => {
    const { memory } = pool();
    const piece = memory.take(MIB, true);
    piece[0] = 1; // as a mark
    memory.give(piece, true);
    expect(memory.take(MIB, true)[0]).toBe(1);
  });

  it('keeps no more than 16 MiB of slabs that no connection uses', () => {
    const { memory } = pool();
    const pieces = Array.from({ length: 100 }, () => memory.take(MIB, false));
    for (const piece of pieces) memory.give(piece);
    expect(memory.reserved).toBeLessThanOrEqual(16 * MIB);
  });

  it('lets a slab go of which the program keeps everything, and keeps the free part of others', () => {
    const { memory, asked } = pool();
    const pieces = Array.from({ length: 4 }, () => memory.take(MIB, false)); // slabs of 1, 1 and 2
    memory.lose(pieces[3]!);
    memory.give(pieces[2]!);
    expect(memory.reserved).toBe(4 * MIB);
    const again = memory.take(MIB, false);
    expect(again.buffer).toBe(pieces[3]!.buffer);
    memory.lose(again);
    expect(memory.reserved).toBe(2 * MIB);
    memory.found(pieces[3]!); // too late
    expect(memory.reserved).toBe(2 * MIB);
    memory.lose(pieces[1]!);
    expect(memory.reserved).toBe(MIB);
    expect(asked).toEqual([MIB, MIB, 2 * MIB]);
  });

  it('has a piece again that the program gives up while its slab is in use', () => {
    const { memory } = pool();
    const pieces = Array.from({ length: 4 }, () => memory.take(MIB, false));
    memory.lose(pieces[3]!);
    memory.found(pieces[3]!);
    expect(memory.take(MIB, false).byteOffset).toBe(pieces[3]!.byteOffset);
    expect(memory.reserved).toBe(4 * MIB);
  });

  it('takes a piece back that was the whole of its slab', () => {
    const { memory, asked } = pool();
    const piece = memory.take(MIB, false);
    memory.lose(piece);
    expect(memory.reserved).toBe(0);
    memory.found(piece);
    expect(memory.reserved).toBe(MIB);
    expect(memory.take(MIB, true).buffer).toBe(piece.buffer);
    expect(asked).toEqual([MIB]);
  });

  it('passes over a slab whose buffer the program has transferred away', () => {
    const { memory } = pool();
    const piece = memory.take(MIB, false);
    structuredClone(piece.buffer, { transfer: [piece.buffer as ArrayBuffer] });
    memory.give(piece);
    expect(memory.reserved).toBe(0);
    const kept = memory.take(MIB, false);
    memory.give(kept);
    structuredClone(kept.buffer, { transfer: [kept.buffer as ArrayBuffer] });
    expect(memory.take(MIB, false).length).toBe(MIB);
    expect(memory.reserved).toBe(MIB);
  });

  it('never gives one piece to two, whatever the order of takes and returns', () => {
    const sizes = [64 * KIB, 128 * KIB, MIB];
    const step = fc.record({
      do: fc.constantFrom('take', 'give', 'lose', 'found'),
      size: fc.nat({ max: 2 }),
      at: fc.nat(),
    });
    const property = fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const memory = new ConnectionMemory((octets) => new Uint8Array(new ArrayBuffer(octets)));
      const [held, lost]: [Uint8Array[], Uint8Array[]] = [[], []];
      for (const { do: what, size, at } of steps) {
        if (what === 'take') {
          const piece = memory.take(sizes[size]!, false);
          for (const other of [...held, ...lost]) {
            const apart =
              other.buffer !== piece.buffer ||
              other.byteOffset + other.length <= piece.byteOffset ||
              piece.byteOffset + piece.length <= other.byteOffset;
            expect(apart).toBe(true);
          }
          held.push(piece);
        } else if (what === 'found') {
          const [piece] = lost.splice(at % (lost.length || 1), 1);
          if (piece !== undefined) memory.found(piece);
        } else {
          const [piece] = held.splice(at % (held.length || 1), 1);
          if (piece === undefined) continue;
          memory[what](piece);
          if (what === 'lose') lost.push(piece);
        }
      }
      for (const piece of lost) memory.found(piece);
      for (const piece of held) memory.give(piece);
      expect(memory.reserved).toBeLessThanOrEqual(16 * MIB);
    });
    fc.assert(property, { numRuns: 60 });
  });
});

describe.each(['thread', 'worker'] as const)('memory of a device for connections: %s', (engine) => {
  it("is of the device's kind", () => {
    const { device } = openRnic({ engine });
    const piece = device.connectionMemory.take(MIB, false);
    expect(piece.buffer).toBeInstanceOf(engine === 'worker' ? SharedArrayBuffer : ArrayBuffer);
    device.close();
  });
});

describe('an asynchronous event that nobody has asked for', () => {
  it('does not keep the queue pair that it is about', () => {
    const { device } = openRnic({ engine: 'thread' });
    const pd = device.allocatePd();
    const cq = device.createCq(4);
    const [gone, here] = [0, 1].map(() =>
      pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 1, maxRecvWr: 1 }),
    ) as [ReturnType<typeof pd.createQp>, ReturnType<typeof pd.createQp>];
    for (const qp of [gone, here]) device.raise({ type: 'llp-close-complete', qp });
    gone.destroy();
    const seen: unknown[] = [];
    device.setAsyncEventHandler((event) => seen.push((event as { qp?: unknown }).qp));
    return new Promise<void>((resolve) =>
      setImmediate(() => {
        expect(seen.length).toBe(1);
        expect(seen[0]).toBe(here);
        resolve();
      }),
    );
  });
});
