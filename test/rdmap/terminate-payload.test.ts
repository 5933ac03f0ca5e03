/**
 * The payload of a Terminate, written and read: which headers follow, where each ends, and how much of them
 * is there. RFC 5040 4.8.
 */
import { describe, expect, it } from 'vitest';
import { TERM } from '../../src/base/terminate-codes.ts';
import { createSegment, decodeSegment } from '../../src/ddp/wire.ts';
import {
  mirrorControl,
  parseTerminate,
  plainTerminate,
  putTerminate,
  swapNibbles,
  terminateForSegment,
  terminateOctets,
  type TerminateInfo,
} from '../../src/rdmap/terminate.ts';
import { untaggedUlpdu } from '../support/naive/encoder.ts';
import { pattern, readRequest, write } from './scripted.ts';

const TAGGED = Uint8Array.from([0xc1, 0x40, ...pattern(12, 9)]);
const UNTAGGED = Uint8Array.from([0x41, 0x41, ...pattern(16, 5)]);
const READ = pattern(28, 11);
const FIRST = 7;

/** The octets in the middle of others, which look like headers too. */
function amid(octets: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(FIRST + octets.length + 80).fill(0xc1);
  bytes.set(octets, FIRST);
  return bytes;
}

const parse = (octets: readonly number[], length = octets.length): TerminateInfo | null =>
  parseTerminate(amid(octets), FIRST, length);

/** Which parts a Terminate has, as octets of each. */
const parts = (info: TerminateInfo | null): unknown =>
  info === null
    ? null
    : [info.segmentLength, info.ddpHeader && [...info.ddpHeader], info.rdmapHeader && [...info.rdmapHeader]];

describe('a Terminate payload', () => {
  it.each([
    ['without headers', {}, [0x12, 0x05, 0x00, 0]],
    ['with a length', { segmentLength: 0xabcd }, [0x12, 0x05, 0x80, 0, 0xab, 0xcd]],
    [
      'with a tagged header',
      { segmentLength: 300, ddpHeader: TAGGED },
      [0x12, 0x05, 0xc0, 0, 1, 44, ...TAGGED],
    ],
    [
      'with a Read Request header',
      { segmentLength: 46, ddpHeader: UNTAGGED, rdmapHeader: READ },
      [0x12, 0x05, 0xe0, 0, 0, 46, ...UNTAGGED, ...READ],
    ],
  ] as const)(
    '%s is written within its octets and read back (RDMAP-082, RDMAP-084)',
    (_, headers, octets) => {
      const info = { ...plainTerminate(TERM.DDP_TOO_LONG), ...headers };
      expect(terminateOctets(info)).toBe(octets.length);
      const bytes = new Uint8Array(90).fill(0xee);
      expect(putTerminate(bytes, FIRST, info)).toBe(octets.length);
      const expected = new Uint8Array(90).fill(0xee);
      expected.set(octets, FIRST);
      expect(bytes).toEqual(expected);
      const { segmentLength, ddpHeader, rdmapHeader } = info;
      expect(parse(octets)).toMatchObject({
        origin: 'remote',
        layer: 1,
        type: 2,
        code: 5,
        segmentLength,
        ddpHeader,
        rdmapHeader,
      });
    },
  );

  it('that is cut has the headers that are whole; it needs its fixed part (RDMAP-081)', () => {
    const all = [0x12, 0x05, 0xe0, 0, 0, 46, ...UNTAGGED, ...READ];
    for (let length = 0; length <= all.length; length++) {
      expect(parts(parse(all, length)), `${length} octets`).toEqual(
        length < 6
          ? null
          : [46, length < 24 ? undefined : [...UNTAGGED], length < 52 ? undefined : [...READ]],
      );
    }
    const tagged = [0x12, 0x05, 0xc0, 0, 0, 46, ...TAGGED];
    for (let length = 6; length <= tagged.length; length++)
      expect(parts(parse(tagged, length))).toEqual([46, length < 20 ? undefined : [...TAGGED], undefined]);
    expect([0, 1, 2, 3, 4].map((length) => parts(parse([0x12, 0x05, 0, 0], length)))).toEqual([
      ...[null, null, null, null],
      [undefined, undefined, undefined],
    ]);
  });

  it('has what its control bits announce, whatever stands behind (RDMAP-083, RDMAP-084)', () => {
    const behind = [0, 46, ...UNTAGGED, ...READ];
    const seen = (control: number): unknown => parts(parse([0x12, 0x05, control, 0, ...behind]));
    expect(seen(0x00)).toEqual([undefined, undefined, undefined]);
    expect(seen(0x80)).toEqual([46, undefined, undefined]);
    expect(seen(0x40)).toEqual([undefined, [...UNTAGGED], undefined]);
    expect(seen(0xc0)).toEqual([46, [...UNTAGGED], undefined]);
    expect(seen(0x20)).toEqual([undefined, undefined, undefined]);
    expect(seen(0xa0)).toEqual([46, undefined, undefined]);
    expect(seen(0x60)).toEqual([undefined, [...UNTAGGED], [...READ]]);
  });
});

describe('the headers for a segment in error', () => {
  const decoded = (ulpdu: Uint8Array): ReturnType<typeof createSegment> => {
    const segment = createSegment();
    decodeSegment(segment, ulpdu, 0, ulpdu.length);
    return segment;
  };

  it('are left out for MPA and for our own catastrophe (RDMAP-072, RDMAP-085)', () => {
    const segment = decoded(write(1, 2n, pattern(8)));
    for (const code of [TERM.MPA_CRC, TERM.LOCAL_CATASTROPHIC])
      expect(parts(terminateForSegment(code, segment, true))).toEqual([undefined, undefined, undefined]);
    for (const code of [TERM.RDMAP_INVALID_STAG, TERM.DDP_LOCAL_CATASTROPHIC]) {
      const info = terminateForSegment(code, segment, true);
      expect([info.segmentLength, info.ddpHeader?.length]).toEqual([22, 14]);
    }
  });

  it('hold that of a Read Request if it is whole and was delivered (RDMAP-074)', () => {
    const whole = readRequest(1, { sourceStag: 7, size: 64 });
    const header = (ulpdu: Uint8Array, delivered: boolean): number | undefined =>
      terminateForSegment(TERM.RDMAP_BOUNDS, decoded(ulpdu), delivered).rdmapHeader?.length;
    expect([header(whole, true), header(whole, false)]).toEqual([28, undefined]);
    expect(header(whole.subarray(0, whole.length - 1), true)).toBeUndefined();
    expect(header(untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, new Uint8Array(28)), true)).toBeUndefined();
  });
});

describe('a mirrored Terminate header', () => {
  it('has M, D and R in the low bits, and the other bits mean nothing', () => {
    expect(Array.from({ length: 16 }, (_, control) => mirrorControl(control))).toEqual([
      ...[0x00, 0x80, 0x40, 0xc0, 0x20, 0xa0, 0x60, 0xe0],
      ...[0x00, 0x80, 0x40, 0xc0, 0x20, 0xa0, 0x60, 0xe0],
    ]);
    expect([0x12, 0xf0, 0x0f].map(swapNibbles)).toEqual([0x21, 0x0f, 0xf0]);
  });

  it('is taken for one as soon as the header that it announces is there, not before', () => {
    for (const [header, octets] of [
      [TAGGED, 20],
      [UNTAGGED, 24],
    ] as const) {
      const all = [0x21, 0x01, 0x03, 0, 0, 46, ...header];
      for (let length = 4; length <= all.length; length++) {
        const { layer, type } = parse(all, length)!;
        expect([layer, type], `${length} octets`).toEqual(length < octets ? [2, 1] : [1, 2]);
      }
    }
  });

  it('is none where M, D or R stand in their lawful places', () => {
    for (const control of [0x82, 0x42, 0x22])
      expect(parse([0x21, 0x01, control, 0, 0, 46, ...UNTAGGED, ...READ])).toMatchObject({
        layer: 2,
        type: 1,
      });
  });

  it('without headers is none where a reserved bit is set (RDMAP-083)', () => {
    expect(parse([0x02, 0x02, 0x00, 0])).toMatchObject({ layer: 2, type: 0, code: 2 });
    for (const control of [0x01, 0x04, 0x08, 0x10])
      expect(parse([0x02, 0x02, control, 0])).toMatchObject({ layer: 0, type: 2, code: 2 });
  });
});
