/** Bare sockets of the benchmark read into as much memory as the Writes have that they are compared with. */
import { expect, it } from 'vitest';
import { readInto } from '../../bench/peers/peer.ts';

it('short messages come into one buffer, which may hold many of them', () => {
  const seen: number[] = [];
  const { buffer, callback } = readInto(64, (octets) => void seen.push(octets));
  expect((buffer as Uint8Array).length).toBe(65_536);
  expect([callback(65_536), callback(3), seen]).toEqual([true, true, [65_536, 3]]);
});

it('a long message fills memory of its length, and the next one the same', () => {
  const size = 1 << 20;
  const { buffer, callback } = readInto(size, () => undefined);
  const next = buffer as () => Uint8Array;
  const places: number[] = [];
  for (const octets of [65_536, size - 65_536 - 10, 10, 7]) {
    const place = next();
    expect(place.length).toBeGreaterThanOrEqual(octets);
    places.push(place.byteOffset - next().byteOffset, size - place.length);
    callback(octets);
  }
  expect(places).toEqual([0, 0, 0, 65_536, 0, size - 10, 0, 0]);
  expect(next().buffer.byteLength).toBe(size);
});
