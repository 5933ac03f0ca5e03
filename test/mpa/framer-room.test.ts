/**
 * How much room an FPDU needs in a transmit buffer: one that just fits is written, one that does not waits
 * for the next write. RFC 5044 4.1, 4.3.
 */
import { describe, expect, it } from 'vitest';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { createFramer, type Framer } from '../../src/mpa/framer.ts';
import { createTransmitBuffer, type TransmitBuffer } from '../../src/mpa/transmit-buffer.ts';
import { ZERO_COPY_WRITE_OCTETS } from '../../src/mpa/transmit-buffer-pool.ts';
import { decodeFpdus } from '../support/naive/decoder.ts';

const HEADER = 14;
/** ULPDU_Length, header, at most three octets of PAD, CRC. */
const OWN = 2 + HEADER + 3 + 4;

function buffer(octets: number, filled = 0): TransmitBuffer {
  const made = createTransmitBuffer(new Uint8Array(octets));
  made.end = filled;
  return made;
}

describe('the room of a payload that is not copied', () => {
  const framer = createFramer(null, null);

  it('is that of everything around it, to the octet', () => {
    expect(framer.fitsZeroCopy(buffer(OWN), HEADER, 9000)).toBe(true);
    expect(framer.fitsZeroCopy(buffer(OWN - 1), HEADER, 9000)).toBe(false);
    expect(framer.fitsZeroCopy(buffer(OWN + 100, 100), HEADER, 9000)).toBe(true);
    expect(framer.fitsZeroCopy(buffer(OWN + 100, 101), HEADER, 9000)).toBe(false);
  });

  it('ends with the octets of a write, but the first FPDU of a write always fits', () => {
    const most = ZERO_COPY_WRITE_OCTETS - OWN - 100;
    expect(framer.fitsZeroCopy(buffer(4096, 100), HEADER, most)).toBe(true);
    expect(framer.fitsZeroCopy(buffer(4096, 100), HEADER, most + 1)).toBe(false);
    expect(framer.fitsZeroCopy(buffer(4096), HEADER, 4 * ZERO_COPY_WRITE_OCTETS)).toBe(true);
  });
});

describe('the room of an FPDU', () => {
  const engine = defaultCrc32cEngine();
  const framers: [string, () => Framer, boolean][] = [
    ['without markers', () => createFramer(null, engine), false],
    ['with markers', () => createFramer(engine.runs, engine), true],
  ];
  for (const [name, create, markers] of framers) {
    it(`${name} is enough for each length, wherever in the stream it stands`, () => {
      for (let position = 0; position < 512; position += 4) {
        for (const ulpdu of [0, 1, 2, 3, 14, 200, 500, 502, 506, 1100]) {
          const framer = create();
          framer.position = position;
          const room = framer.room(ulpdu);
          const whole = buffer(room);
          expect([framer.fits(whole, ulpdu), framer.fits(buffer(room, 1), ulpdu)]).toEqual([true, false]);
          framer.begin(whole, ulpdu);
          framer.target.bytes.fill(0x5a, framer.at, framer.at + ulpdu);
          framer.finish(whole, ulpdu);
          expect(whole.end).toBeLessThanOrEqual(room);
          expect(framer.position).toBe(position + whole.end);
          if (!markers) expect(whole.end).toBe(room);
          if (!markers || position === 0) {
            const fpdus = decodeFpdus(whole.bytes.subarray(0, whole.end), { markers, crc: true });
            expect(fpdus.map(({ ulpdu: { length } }) => length)).toEqual([ulpdu]);
          }
        }
      }
    });
  }
});
