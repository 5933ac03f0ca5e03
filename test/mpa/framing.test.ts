/**
 * FPDU framing and deframing, one behaviour at a time: RFC 5044 4.1 to 4.4, 6 and 8. The naive codec is the
 * judge.
 */
import { describe, expect, it } from 'vitest';
import { FINE, TERM } from '../../src/base/terminate-codes.ts';
import { reassemblyPool, REASSEMBLY_OCTETS } from '../../src/mpa/deframer.ts';
import {
  fpduOctets,
  markersWithin,
  maxFpduOctetsWithMarkers,
  MAX_MULPDU,
  padOctets,
} from '../../src/mpa/wire.ts';
import { decodeFpdus } from '../support/naive/decoder.ts';
import { encodeFpdus, type NaiveFpduInput } from '../support/naive/encoder.ts';
import { count, deframe, frame, sameUlpdus, type FramingOptions } from '../support/framing.ts';

const PLAIN: FramingOptions = { markers: false, crc: true };
const MARKED: FramingOptions = { markers: true, crc: true };
const ALL: readonly FramingOptions[] = [
  PLAIN,
  MARKED,
  { markers: false, crc: false },
  { markers: true, crc: false },
];

describe('sending', () => {
  it('length, PAD and size of every ULPDU from 0 to 600 octets (MPA-064, MPA-065, MPA-066, MPA-067)', () => {
    const pads = [2, 1, 0, 3];
    for (let length = 0; length <= 600; length++) {
      const octets = frame([count(length)], PLAIN);
      expect(octets.length % 4).toBe(0);
      expect(octets[0]! * 256 + octets[1]!).toBe(length);
      expect(octets.length).toBe(2 + length + pads[length % 4]! + 4);
      expect(padOctets(length)).toBe(pads[length % 4]);
      expect([...octets.slice(2 + length, -4)]).toEqual(new Array(pads[length % 4]!).fill(0));
      expect(octets.slice(2, 2 + length)).toEqual(count(length));
      expect(fpduOctets(length)).toBe(octets.length);
    }
  });

  it('the CRC field is there, as zero, with CRC off (MPA-057, MPA-056)', () => {
    const on = frame([count(23)], PLAIN);
    const off = frame([count(23)], { markers: false, crc: false });
    expect(off.length).toBe(on.length);
    expect(off.slice(0, -4)).toEqual(on.slice(0, -4));
    expect([...off.slice(-4)]).toEqual([0, 0, 0, 0]);
  });

  it('markers stand at 0, 512, 1024 and so on, and the first is all zero (MPA-094, MPA-095, MPA-100)', () => {
    const octets = frame([count(300), count(1), count(1000), count(18), count(600)], MARKED);
    expect([...octets.slice(0, 4)]).toEqual([0, 0, 0, 0]);
    const fpdus = decodeFpdus(octets, MARKED);
    expect(fpdus.flatMap((fpdu) => fpdu.problems.filter((p) => /marker|CRC|PAD|ends/.test(p)))).toEqual([]);
    const markers = fpdus.flatMap((fpdu) => fpdu.markersSeen);
    expect(markers.map((m) => m.position)).toEqual(
      Array.from({ length: Math.ceil(octets.length / 512) }, (_, i) => i * 512),
    );
    for (const { position, pointer } of markers) {
      expect(pointer % 4).toBe(0);
      expect([octets[position], octets[position + 1]]).toEqual([0, 0]);
    }
  });

  it('three markers in an FPDU point to the same ULPDU_Length, earlier ones counted (MPA-096/098)', () => {
    const [fpdu] = decodeFpdus(frame([count(1500)], MARKED), MARKED);
    expect(fpdu!.offset).toBe(4);
    expect(fpdu!.markersSeen).toEqual([
      { position: 0, pointer: 0 },
      { position: 512, pointer: 508 },
      { position: 1024, pointer: 1020 },
    ]);
    for (const { position, pointer } of fpdu!.markersSeen.slice(1))
      expect(position - pointer).toBe(fpdu!.offset);
  });

  it('a marker exactly between two FPDUs is 0 and covered by the FPDU after it (MPA-097)', () => {
    const octets = frame([count(502), count(23)], MARKED);
    expect([...octets.slice(512, 516)]).toEqual([0, 0, 0, 0]);
    const [first, second] = decodeFpdus(octets, MARKED);
    expect(first!.markersSeen).toEqual([{ position: 0, pointer: 0 }]);
    expect(second!).toMatchObject({ offset: 516, crcOk: true, markersSeen: [{ position: 512, pointer: 0 }] });
  });

  it('a marker between PAD and CRC is covered by the FPDU that ends there (MPA-099)', () => {
    const octets = frame([count(505), count(23)], MARKED);
    const [first, second] = decodeFpdus(octets, MARKED);
    expect(first!).toMatchObject({
      crcOk: true,
      padLength: 1,
      markersSeen: [
        { position: 0, pointer: 0 },
        { position: 512, pointer: 508 },
      ],
    });
    expect(second!).toMatchObject({ offset: 520, crcOk: true, markersSeen: [] });
  });

  it('markers and pointers go on across 2^32 octets of stream (MPA-103)', () => {
    for (const before of [4, 20, 508, 512, 516]) {
      const options = { ...MARKED, streamOffset: 2 ** 32 - before };
      const ulpdus = [count(700), count(90)];
      const octets = frame(ulpdus, options);
      expect(octets).toEqual(encodeFpdus(ulpdus, options));
      expect(deframe(octets, options)).toMatchObject({ ulpdus, code: FINE });
    }
  });

  it('the largest ULPDU sent has 64768 octets and its last pointer still fits its field (MPA-076)', () => {
    const octets = frame([count(MAX_MULPDU)], MARKED);
    expect(octets.length).toBeLessThanOrEqual(maxFpduOctetsWithMarkers(MAX_MULPDU));
    const [fpdu] = decodeFpdus(octets, MARKED);
    expect(fpdu!).toMatchObject({ ulpduLength: 64_768, crcOk: true });
    expect(fpdu!.problems.filter((problem) => problem.includes('marker'))).toEqual([]);
    expect(fpdu!.markersSeen.at(-1)!.pointer).toBeLessThan(65_536);
  });

  it("the count of markers in front of an FPDU's end agrees with counting", () => {
    for (let position = 0; position < 1024; position += 4) {
      for (const octets of [4, 8, 500, 504, 508, 512, 516, 1012, 1016, 1020, 1024, 5000]) {
        let at = position;
        let markers = 0;
        for (let left = octets; left > 0; left -= 4, at += 4)
          if (at % 512 === 0) {
            markers++;
            at += 4;
          }
        expect(markersWithin(position, octets)).toBe(markers);
      }
    }
  });
});

describe('receiving', () => {
  for (const options of ALL) {
    const mode = `markers ${options.markers}, CRC ${options.crc}`;

    it(`FPDUs cut at every octet, or all in one, give the same ULPDUs (${mode}) (MPA-062/086/088)`, () => {
      const ulpdus = [count(18), count(19), count(485, 3), count(0), count(21), count(1200, 9)];
      const octets = encodeFpdus(ulpdus, options);
      expect(deframe(octets, options)).toMatchObject({ ulpdus, code: FINE });
      const every = Array.from({ length: octets.length }, (_, i) => i);
      expect(deframe(octets, options, every)).toMatchObject({ ulpdus, code: FINE });
      for (const cut of every)
        if (!sameUlpdus(deframe(octets, options, [cut]).ulpdus, ulpdus)) expect.unreachable(`cut at ${cut}`);
    });

    it(`nothing is passed on before the last CRC octet is there (${mode}) (MPA-087)`, () => {
      const octets = encodeFpdus([count(600)], options);
      const early = deframe(octets.slice(0, -1), options);
      expect(early).toMatchObject({ ulpdus: [], code: FINE });
      expect(early.deframer.atBoundary).toBe(false);
      expect(early.deframer.held).toBe(octets.length - 1);
      expect(deframe(octets, options, [octets.length - 1]).ulpdus).toEqual([count(600)]);
    });

    it(`ULPDU_Length 0, 1, 2, 13 and 65535 are passed on as they are (${mode}) (MPA-090, MPA-091)`, () => {
      for (const length of [0, 1, 2, 13, 65_535]) {
        const octets = encodeFpdus([count(length)], options);
        expect(deframe(octets, options)).toMatchObject({ ulpdus: [count(length)], code: FINE });
        expect(deframe(octets, options, [1, octets.length - 5])).toMatchObject({
          ulpdus: [count(length)],
          code: FINE,
        });
      }
    });
  }

  it('PAD may hold anything if the CRC covers it (MPA-068)', () => {
    for (const options of ALL) {
      const octets = encodeFpdus([{ ulpdu: count(20), padValue: 0xff }], options);
      expect(deframe(octets, options)).toMatchObject({ ulpdus: [count(20)], code: FINE });
    }
  });

  it('a flipped bit after the length is error 2/0/02; nothing is passed on (MPA-070/071/072)', () => {
    for (const options of [PLAIN, MARKED]) {
      const octets = encodeFpdus([count(505)], options);
      const lengthAt = options.markers ? 4 : 0;
      for (let bit = 0; bit < octets.length * 8; bit++) {
        // A longer length makes a receiver wait for more; only flips from 1 to 0 of the length are looked at.
        const at = bit >> 3;
        const mask = 0x80 >> (bit & 7);
        if ((at === lengthAt || at === lengthAt + 1) && (octets[at]! & mask) === 0) continue;
        const broken = octets.slice();
        broken[at]! ^= mask;
        const { ulpdus, code } = deframe(broken, options);
        if (code !== TERM.MPA_CRC || ulpdus.length > 0)
          expect.unreachable(`bit ${bit}: code ${code.toString(16)}, ${ulpdus.length} ULPDUs`);
      }
    }
  });

  it('with CRC off the field may hold anything (MPA-055)', () => {
    for (const field of [0x0000_0000, 0xdead_beef]) {
      const octets = encodeFpdus([count(30)], { markers: false, crc: false });
      new DataView(octets.buffer).setUint32(octets.length - 4, field);
      expect(deframe(octets, { markers: false, crc: false })).toMatchObject({
        ulpdus: [count(30)],
        code: FINE,
      });
    }
  });

  it('after an error nothing more is passed on (MPA-073)', () => {
    const good = count(40, 7);
    const faulty: NaiveFpduInput = { ulpdu: count(40), crcFlip: 1 };
    const { ulpdus, code } = deframe(encodeFpdus([good, faulty, good, good], PLAIN), PLAIN);
    expect(code).toBe(TERM.MPA_CRC);
    expect(ulpdus).toEqual([good]);
  });

  it('low pointer bits and the reserved half are ignored but for the CRC (MPA-101, MPA-102)', () => {
    const input: NaiveFpduInput = {
      ulpdu: count(900),
      pointer: (right) => right | 3,
      markerReserved: 0xffff,
    };
    for (const options of [MARKED, { markers: true, crc: false }]) {
      expect(deframe(encodeFpdus([input], options), options)).toMatchObject({
        ulpdus: [count(900)],
        code: FINE,
      });
    }
    // The CRC is over the octets as they came: with a CRC made over zeroes it is wrong.
    const octets = encodeFpdus([{ ulpdu: count(900) }], MARKED);
    octets[512] = 0xff;
    expect(deframe(octets, MARKED).code).toBe(TERM.MPA_CRC);
  });

  it('a marker that points elsewhere is error 2/0/03, wherever it stands, CRC on or off (MPA-104)', () => {
    for (const crc of [true, false]) {
      const options = { markers: true, crc };
      for (const wrongAt of [0, 512, 1024]) {
        for (const change of [4, -4, 256, 0xfffc]) {
          const pointer = (right: number, position: number): number =>
            position === wrongAt ? (right + change) & 0xffff : right;
          const { ulpdus, code } = deframe(encodeFpdus([{ ulpdu: count(1400), pointer }], options), options);
          expect(code).toBe(TERM.MPA_MARKER);
          expect(ulpdus).toEqual([]);
        }
      }
      // Between PAD and CRC too.
      const pointer = (right: number): number => (right === 508 ? 504 : right);
      expect(deframe(encodeFpdus([{ ulpdu: count(505), pointer }], options), options).code).toBe(
        TERM.MPA_MARKER,
      );
    }
  });

  it('an FPDU that ends at a marker position is passed on without waiting for the marker (MPA-106)', () => {
    const octets = encodeFpdus([count(502)], MARKED);
    expect(octets.length).toBe(512);
    const { ulpdus, deframer } = deframe(octets, MARKED);
    expect(ulpdus).toEqual([count(502)]);
    expect(deframer.atBoundary).toBe(true);
  });

  it('a reassembly buffer is borrowed for an incomplete FPDU only; one fits the largest (SEC-033)', () => {
    const octets = encodeFpdus([count(65_535), count(10)], MARKED);
    expect(octets.length).toBeGreaterThan(65_535);
    const half = deframe(octets.slice(0, 60_000), MARKED);
    expect(half.pool.lent).toBe(1);
    half.deframer.dispose();
    expect(half.pool.lent).toBe(0);
    const whole = deframe(octets, MARKED, [1, 60_000]);
    expect(whole).toMatchObject({ ulpdus: [count(65_535), count(10)], code: FINE });
    expect(whole.pool.lent).toBe(0);
    expect(REASSEMBLY_OCTETS).toBeLessThan(70_000);
  });

  it('reassembly buffers are used again, and no more are kept than asked for', () => {
    let made = 0;
    const back: Uint8Array[] = [];
    const memory = {
      allocate: (octets: number) => {
        made++;
        return new Uint8Array(octets);
      },
      release: (buffer: Uint8Array) => void back.push(buffer),
    };
    const pool = reassemblyPool(memory, 2);
    const buffers = [pool.acquire(), pool.acquire(), pool.acquire()];
    for (const buffer of buffers) pool.release(buffer);
    expect(pool.lent).toBe(0);
    expect(back).toEqual([buffers[2]]);
    const again = [pool.acquire(), pool.acquire(), pool.acquire()];
    expect(made).toBe(4);
    expect(new Set(again).size).toBe(3);
  });
});
