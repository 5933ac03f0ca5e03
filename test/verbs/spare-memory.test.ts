/** Memory of connections that are over: what is kept, for whom, and for how long. */
import { describe, expect, it } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { SpareMemory } from '../../src/verbs/spare-memory.ts';

const KIB = 1024;
const MIB = 1 << 20;

describe('spare memory', () => {
  it('goes to one that wants exactly so many octets, the latest first, and to one only', () => {
    const spare = new SpareMemory();
    const [early, late, other] = [new Uint8Array(MIB), new Uint8Array(MIB), new Uint8Array(MIB + 1)];
    for (const bytes of [early, late, other]) spare.give(bytes);
    expect(spare.take(MIB - 1)).toBeUndefined();
    expect(spare.take(MIB)).toBe(late);
    expect(spare.take(MIB)).toBe(early);
    expect(spare.take(MIB)).toBeUndefined();
    expect(spare.take(MIB + 1)).toBe(other);
  });

  it('is 16 MiB at most: what has been kept for longest goes first, and none goes for a piece that is too large', () => {
    const spare = new SpareMemory();
    const pieces: Uint8Array[] = Array.from({ length: 17 }, () => new Uint8Array(MIB));
    for (const bytes of pieces) spare.give(bytes);
    spare.give(new Uint8Array(16 * MIB + 1));
    // By their places: `expect` compares the octets of arrays that are not the same, for minutes.
    expect(pieces.map(() => pieces.indexOf(spare.take(MIB)!))).toEqual([...pieces.keys()].slice(1).toReversed().concat(-1));
  });

  it('is all given back: kept octets are counted down to none', () => {
    const spare = new SpareMemory();
    for (let i = 0; i < 100; i++) {
      spare.give(new Uint8Array(16 * MIB));
      expect(spare.take(16 * MIB)?.length).toBe(16 * MIB);
    }
  });

  it('does not keep small pieces', () => {
    const spare = new SpareMemory();
    spare.give(new Uint8Array(64 * KIB - 1));
    spare.give(new Uint8Array(0));
    expect([spare.take(64 * KIB - 1), spare.take(0)]).toEqual([undefined, undefined]);
  });

  it('is not what the program has transferred away meanwhile', () => {
    const spare = new SpareMemory();
    const [whole, detached] = [new Uint8Array(MIB), new Uint8Array(MIB)];
    spare.give(whole);
    spare.give(detached);
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    expect(spare.take(MIB)).toBe(whole);
    expect(spare.take(MIB)).toBeUndefined();
  });
});

describe.each(['thread', 'worker'] as const)('memory of a device for connections: %s', (engine) => {
  it('is spare memory where there is some, cleared for those who ask, and of the kind that the device takes', () => {
    const { device } = openRnic({ engine });
    const OCTETS = MIB + 3;
    const first = device.connectionMemory(OCTETS, false);
    expect(first.buffer).toBeInstanceOf(engine === 'worker' ? SharedArrayBuffer : ArrayBuffer);
    first.fill(7);
    device.spare.give(first);
    const second = device.connectionMemory(OCTETS, false);
    expect(second).toBe(first);
    expect(second.every((octet) => octet === 7)).toBe(true);
    device.spare.give(second);
    const third = device.connectionMemory(OCTETS, true);
    expect(third).toBe(first);
    expect(third.every((octet) => octet === 0)).toBe(true);
    expect(device.connectionMemory(OCTETS, false) === first).toBe(false);
    device.close();
  });
});
