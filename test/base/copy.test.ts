// Copies of octets: every length around the bounds between the ways to copy, at every alignment, and nothing
// beside the target touched.
import { describe, expect, it, vi } from 'vitest';
import { ChangingOctets, copyBytes, copyOctets, putBytes } from '../../src/base/copy.ts';

const LENGTHS = [0, 1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 508, 4096];
const ROOM = 4200;

/** Octets in the middle of other memory. */
function octetsOver(
  fill: (i: number) => number,
  Memory: typeof ArrayBuffer | typeof SharedArrayBuffer = ArrayBuffer,
): ChangingOctets {
  const octets = new ChangingOctets();
  octets.bytes = new Uint8Array(new Memory(ROOM + 16), 5, ROOM);
  for (let i = 0; i < ROOM; i++) octets.bytes[i] = fill(i);
  return octets;
}

describe('copies', () => {
  const MEMORIES = [
    [ArrayBuffer, ArrayBuffer],
    [SharedArrayBuffer, ArrayBuffer],
    [ArrayBuffer, SharedArrayBuffer],
    [SharedArrayBuffer, SharedArrayBuffer],
  ] as const;
  it.each(['copyBytes', 'copyOctets', 'putBytes'] as const)(
    '%s: the octets asked for, at their place, and no others, from and to memory of either kind',
    (way) => {
      for (const [From, To] of MEMORIES) {
        for (const length of LENGTHS) {
          for (let shift = 0; shift < 8; shift++) {
            const source = octetsOver((i) => (i * 7 + 1) & 0xff, From);
            const target = octetsOver(() => 0xee, To);
            if (way === 'copyBytes') copyBytes(source.bytes, shift, target.bytes, 9 - shift, length);
            else if (way === 'copyOctets') copyOctets(source, shift, target, 9 - shift, length);
            else putBytes(source.bytes.subarray(shift, shift + length), target.bytes, 9 - shift);
            const expected = new Uint8Array(ROOM).fill(0xee);
            expected.set(source.bytes.subarray(shift, shift + length), 9 - shift);
            expect(Buffer.compare(target.bytes, expected), `${length} octets from ${shift}`).toBe(0);
          }
        }
      }
    },
  );

  it('octets that are exchanged take their view along', () => {
    const octets = octetsOver((i) => i & 0xff);
    expect([octets.view.byteLength, octets.view.getUint8(3)]).toEqual([ROOM, 3]);
    const other = new Uint8Array([9, 8, 7, 6]).subarray(1, 3);
    octets.bytes = other;
    expect([octets.view.byteLength, octets.view.getUint8(0)]).toEqual([2, 8]);
    const { view } = octets;
    octets.bytes = other;
    expect(octets.view).toBe(view);
  });

  it('memory that can shrink has a view as long as any of it is there', () => {
    const Resizable = ArrayBuffer as unknown as new (
      octets: number,
      options: { maxByteLength: number },
    ) => ArrayBuffer & { resize(octets: number): void };
    const buffer = new Resizable(64, { maxByteLength: 64 });
    const octets = new ChangingOctets();
    octets.bytes = new Uint8Array(buffer, 8);
    expect(octets.view.getUint8(0)).toBe(0);
    buffer.resize(32);
    const target = octetsOver(() => 1);
    copyOctets(octets, 0, target, 0, 24);
    expect(target.bytes.subarray(0, 25)).toEqual(Uint8Array.of(...new Uint8Array(24), 1));
  });

  it('shared memory is copied without Node too, and where Buffer wants another kind of array', async () => {
    const picky = {
      prototype: {
        fill: () => {
          throw new TypeError('no Buffer');
        },
      },
    };
    for (const Buffer of [undefined, picky]) {
      vi.resetModules();
      vi.stubGlobal('Buffer', Buffer);
      const copy = await import('../../src/base/copy.ts').finally(() => vi.unstubAllGlobals());
      const target = new Uint8Array(new SharedArrayBuffer(300));
      copy.putBytes(new Uint8Array(200).fill(9), target, 50);
      expect([target.indexOf(9), target.lastIndexOf(9)]).toEqual([50, 249]);
    }
  });
});
