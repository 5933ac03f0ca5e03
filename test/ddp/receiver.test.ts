/**
 * The receiver in order, without RDMAP above it: what it asks of the layer above, and what it says of each
 * segment. RFC 5041 4, 5.3, 5.4, 7.1.
 */
import { describe, expect, it } from 'vitest';
import { seededRandom } from '../../src/base/random.ts';
import { FINE, TERM } from '../../src/base/terminate-codes.ts';
import { placeSolicited, placeUntagged, type UntaggedBuffer } from '../../src/ddp/placement.ts';
import { OrderedReceiver, type DdpUlp, type FixedSize } from '../../src/ddp/receiver.ts';
import { StagTable } from '../../src/ddp/stag-table.ts';
import { createSegment, decodeSegment, type Segment } from '../../src/ddp/wire.ts';
import { SgeList } from '../../src/queues/work.ts';
import { taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';

const UNUSABLE = 0x1234;

/** A layer above that takes untagged messages into `buffer`, on any queue. */
class Ulp implements DdpUlp {
  readonly scope = {
    stags: new StagTable(seededRandom(1), 10),
    pdHandle: 1,
    number: 1,
    rights: { write: true },
  };
  kind = { qn: 0, solicited: false, fixed: null as FixedSize | null, delivered: true };
  sink = { entry: null, offset: 0 };
  buffer: UntaggedBuffer | null = null;
  readonly calls: string[] = [];

  classify(segment: Segment): number {
    this.kind.qn = segment.qn;
    return FINE;
  }

  openMessage({ qn, msn }: Segment): number {
    this.calls.push(`open ${qn}/${msn}`);
    return FINE;
  }

  bufferUnusable(): number {
    return UNUSABLE;
  }

  deliver({ qn, msn }: Segment, length: number): number {
    this.calls.push(`deliver ${qn}/${msn}: ${length}`);
    return FINE;
  }
}

/** A buffer as the stream has them, over plain memory. */
function scatter(lengths: readonly number[]): { buffer: UntaggedBuffer; parts: Uint8Array[] } {
  const stags = new StagTable(seededRandom(2), 100);
  const parts = lengths.map((length) => new Uint8Array(length + 2).fill(0xee));
  const sges = new SgeList();
  for (const [i, part] of parts.entries()) {
    const length = lengths[i]!;
    // VERBS-085: an element without octets needs no region.
    if (length === 0) {
      sges.add(null, part, 1, 0);
      continue;
    }
    const entry = stags.allocate('region', 1);
    entry.bytes = part;
    entry.access = 1;
    sges.add(entry, part, 1, length);
  }
  return { buffer: sges, parts };
}

function segmentOf(ulpdu: Uint8Array): Segment {
  const segment = createSegment();
  expect(decodeSegment(segment, ulpdu, 0, ulpdu.length)).toBe(true);
  return segment;
}

describe('a segment that is decoded', () => {
  it('is all zero and false before', () => {
    expect(createSegment()).toMatchObject({
      tagged: false,
      last: false,
      version: 0,
      length: 0,
      payloadLength: 0,
      ulpControl: 0,
    });
  });

  it('of fewer octets than its header has as many control octets as it has, zero for the others', () => {
    const bytes = Uint8Array.from({ length: 40 }, () => 0xff);
    const segment = createSegment();
    const short = (start: number, length: number): unknown[] => {
      expect(decodeSegment(segment, bytes, start, length)).toBe(false);
      return [segment.tagged, segment.last, segment.version, segment.ulpControl, segment.length];
    };
    expect(short(3, 0)).toEqual([false, false, 0, 0, 0]);
    expect(short(3, 1)).toEqual([true, true, 3, 0, 1]);
    expect(short(3, 2)).toEqual([true, true, 3, 0xff, 2]);
    expect(short(3, 13)).toEqual([true, true, 3, 0xff, 13]);
    bytes.fill(0x41);
    expect(short(3, 17)).toEqual([false, true, 1, 0x41, 17]);
    expect(decodeSegment(segment, bytes, 3, 18)).toBe(true);
    expect([segment.payload, segment.payloadLength]).toEqual([21, 0]);
  });
});

describe('untagged messages', () => {
  it('of several segments are counted on each queue alone, from MSN 1, MO 0 (DDP-014, DDP-040)', () => {
    const ulp = new Ulp();
    const receiver = new OrderedReceiver(ulp, 1, 1);
    const take = (qn: number, msn: number, mo: number, octets: number, last: boolean): number => {
      const ulpdu = untaggedUlpdu({ opcode: 3, qn, msn, mo, last }, new Uint8Array(octets));
      return receiver.handleUlpdu(ulpdu, 0, ulpdu.length);
    };
    ulp.buffer = { total: 64, count: 0, usable: () => true, at: () => expect.unreachable() };
    const queues = [0, 1, 2, 3];
    for (const qn of queues) expect(take(qn, 1, 0, qn + 1, false)).toBe(FINE);
    for (const qn of queues) expect(take(qn, 1, qn, 1, true), `queue ${qn}`).toBe(TERM.DDP_INVALID_MO);
    for (const qn of queues) expect(take(qn, 1, qn + 1, 5, true)).toBe(FINE);
    for (const qn of queues) expect(take(qn, 1, 0, 5, true)).toBe(TERM.DDP_MSN_RANGE);
    for (const qn of queues) expect(take(qn, 2, 0, 2, true)).toBe(FINE);
    expect(ulp.calls).toEqual([
      ...queues.map((qn) => `open ${qn}/1`),
      ...queues.map((qn) => `deliver ${qn}/1: ${qn + 6}`),
      ...queues.flatMap((qn) => [`open ${qn}/2`, `deliver ${qn}/2: 2`]),
    ]);
  });

  it('without a buffer may have no octets (DDP-042)', () => {
    const ulp = new Ulp();
    const receiver = new OrderedReceiver(ulp, 1, 1);
    const take = (msn: number, octets: number): number => {
      const ulpdu = untaggedUlpdu({ opcode: 3, qn: 0, msn }, new Uint8Array(octets));
      return receiver.handleUlpdu(ulpdu, 0, ulpdu.length);
    };
    expect(take(1, 0)).toBe(FINE);
    expect(take(2, 1)).toBe(TERM.DDP_TOO_LONG);
    expect(ulp.calls).toEqual(['open 0/1', 'deliver 0/1: 0', 'open 0/2']);
  });

  it('into a buffer that is gone end as the layer above says (VERBS-049)', () => {
    const ulp = new Ulp();
    ulp.buffer = { total: 8, count: 1, usable: () => false, at: () => expect.unreachable() };
    const ulpdu = untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, new Uint8Array(8));
    expect(new OrderedReceiver(ulp, 1, 1).handleUlpdu(ulpdu, 0, ulpdu.length)).toBe(UNUSABLE);
  });
});

describe('placement', () => {
  it('follows a scatter list from any offset, over elements of any length (DDP-024)', () => {
    const lengths = [3, 0, 1, 5, 0, 0, 4, 0];
    const total = lengths.reduce((a, b) => a + b, 0);
    for (let mo = 0; mo <= total; mo++) {
      for (let octets = 0; mo + octets <= total; octets++) {
        const { buffer, parts } = scatter(lengths);
        const payload = Uint8Array.from({ length: octets }, (_, i) => i + 1);
        placeUntagged(segmentOf(untaggedUlpdu({ opcode: 3, qn: 0, msn: 1, mo }, payload)), buffer);
        const placed = parts.flatMap((part) => [...part.subarray(1, -1)]);
        const expected = Array.from({ length: total }, (_, i) =>
          i >= mo && i < mo + octets ? i - mo + 1 : 0xee,
        );
        expect(placed, `${octets} octets at ${mo}`).toEqual(expected);
        expect(parts.every((part) => part[0] === 0xee && part.at(-1) === 0xee)).toBe(true);
      }
    }
  });

  it('looks at no element behind the last octet, and writes nothing behind the last element', () => {
    const { buffer, parts } = scatter([2, 2]);
    const first: UntaggedBuffer = {
      total: 4,
      count: 2,
      usable: () => true,
      at: (i) => (i === 0 ? buffer.at(0) : expect.unreachable()),
    };
    placeUntagged(segmentOf(untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, Uint8Array.of(1, 2))), first);
    expect([...parts[0]!]).toEqual([0xee, 1, 2, 0xee]);
    placeUntagged(
      segmentOf(untaggedUlpdu({ opcode: 3, qn: 0, msn: 1 }, Uint8Array.of(1, 2, 3, 4, 5))),
      buffer,
    );
    expect(parts.map((part) => [...part])).toEqual([
      [0xee, 1, 2, 0xee],
      [0xee, 3, 4, 0xee],
    ]);
  });

  it('of a solicited segment without octets needs no place', () => {
    const segment = segmentOf(taggedUlpdu({ opcode: 2, stag: 1, to: 0n }, new Uint8Array(0)));
    expect(() => placeSolicited(segment, { entry: null, offset: 0 })).not.toThrow();
  });
});
