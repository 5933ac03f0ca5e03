// The golden vectors against the naive codec, in both directions, and their checksums against a CRC32c that
// is neither ours nor the naive one's (the crc-32 package). No line of src is involved: this is the judge
// being judged.

import crc32c from 'crc-32/crc32c.js';
import { describe, expect, it } from 'vitest';
import { VECTOR_FILES, hexToOctets, loadVectors, octetsToHex } from '../../conformance/vectors/index.ts';
import type { StreamVector } from '../../conformance/vectors/index.ts';
import { decodeCapture, decodeEnhanced, decodeFpdus, decodeStartup } from '../support/naive/decoder.ts';
import { encodeEnhanced, encodeFpdus, encodeSegment, encodeStartup } from '../support/naive/encoder.ts';
import { fpduFields, segmentFields, segmentFrom, startupFields } from '../support/naive/fields.ts';
import { reassemble } from '../support/naive/messages.ts';
import { crcOctets, naiveCrc } from '../support/naive/octets.ts';
import { decodeSegment } from '../support/naive/segments.ts';
import type { NaiveStreamOptions } from '../support/naive/types.ts';

const streams: readonly StreamVector[] = [...loadVectors('fpdu'), ...loadVectors('markers')];

function optionsOf({ markers, crc, streamOffset }: StreamVector): NaiveStreamOptions {
  return { markers, crc, streamOffset: streamOffset ?? 0 };
}

describe('the vector files', () => {
  it('hold uniquely named vectors, each with a clause, a source and whole octets', () => {
    const all = VECTOR_FILES.flatMap((file) => [...loadVectors(file)]);
    expect(all).toHaveLength(63);
    expect(new Set(all.map((vector) => vector.name)).size).toBe(all.length);
    for (const vector of all) {
      expect(vector.clause, vector.name).toMatch(/^RFC \d{4} /);
      expect(vector.source.length, vector.name).toBeGreaterThan(5);
      expect(octetsToHex(hexToOctets(vector.hex)), vector.name).toBe(vector.hex);
    }
  });
});

describe('crc32c.json', () => {
  it.each(loadVectors('crc32c').map((vector) => [vector.name, vector] as const))('%s', (_, vector) => {
    const octets = hexToOctets(vector.hex);
    expect(naiveCrc(octets)).toBe(Number(vector.fields.value));
    expect(crc32c.buf(octets) >>> 0).toBe(Number(vector.fields.value));
    expect(octetsToHex(Uint8Array.from(crcOctets(naiveCrc(octets))))).toBe(vector.fields.wire);
    expect(naiveCrc(hexToOctets(vector.hex + vector.fields.wire))).toBe(0x48674bc7);
  });
});

describe('fpdu.json and markers.json', () => {
  it.each(streams.map((vector) => [vector.name, vector] as const))(
    '%s decodes to its fields',
    (_, vector) => {
      const fpdus = decodeFpdus(hexToOctets(vector.hex), optionsOf(vector));
      expect(fpdus.map(fpduFields)).toEqual(vector.fields.fpdus);
      expect(fpdus.flatMap((fpdu) => fpdu.markersSeen)).toEqual(vector.fields.markers);
      for (const fpdu of fpdus)
        expect({ problems: fpdu.problems, padOk: fpdu.padOk }).toEqual({ problems: [], padOk: true });
      expect(fpdus.every((fpdu) => fpdu.crcOk)).toBe(vector.crc);
    },
  );

  it.each(streams.map((vector) => [vector.name, vector] as const))(
    '%s is encoded from its fields',
    (_, vector) => {
      const ulpdus = vector.fields.fpdus.map((fpdu) => encodeSegment(segmentFrom(fpdu.segment)));
      expect(octetsToHex(encodeFpdus(ulpdus, optionsOf(vector)))).toBe(vector.hex);
    },
  );

  it.each(streams.filter((vector) => vector.crc).map((vector) => [vector.name, vector] as const))(
    '%s has the CRC that crc-32 computes over what lies in front of the field',
    (_, vector) => {
      const octets = hexToOctets(vector.hex);
      const base = vector.streamOffset ?? 0;
      let from = 0;
      vector.fields.fpdus.forEach((fpdu, i) => {
        const next = vector.fields.fpdus[i + 1];
        const leading =
          next === undefined || !vector.fields.markers.some((m) => m.position === next.offset - 4) ? 0 : 4;
        const end = next === undefined ? octets.length : next.offset - base - leading;
        const value = crc32c.buf(octets.subarray(from, end - 4)) >>> 0;
        expect(octetsToHex(Uint8Array.from(crcOctets(value)))).toBe(fpdu.crc);
        from = end;
      });
    },
  );

  it('detects every single flipped bit of an FPDU with CRC in use', () => {
    const octets = hexToOctets(loadVectors('fpdu')[0]?.hex ?? '');
    for (let bit = 0; bit < octets.length * 8; bit++) {
      const broken = octets.slice();
      broken[bit >> 3] = (broken[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      const problems = decodeFpdus(broken, { markers: false, crc: true }).flatMap((fpdu) => fpdu.problems);
      expect(problems.length, `bit ${bit}`).toBeGreaterThan(0);
    }
  });
});

describe('startup.json', () => {
  it.each(loadVectors('startup').map((vector) => [vector.name, vector] as const))(
    '%s, both ways',
    (_, vector) => {
      const octets = hexToOctets(vector.hex);
      const { fields } = vector;
      if (!('kind' in fields)) {
        expect(decodeEnhanced(octets)).toEqual(fields.enhanced);
        expect(octetsToHex(encodeEnhanced(fields.enhanced))).toBe(vector.hex);
        return;
      }
      const decoded = decodeStartup(octets);
      expect(decoded === null ? null : startupFields(decoded.frame)).toEqual(fields);
      expect(decoded?.problems).toEqual([]);
      expect(decoded?.octets).toBe(octets.length);
      expect(octetsToHex(encodeStartup({ ...fields, privateData: hexToOctets(fields.privateData) }))).toBe(
        vector.hex,
      );
    },
  );

  it('is followed by FPDUs that count their markers from the octet after the frame', () => {
    const frame = encodeStartup({ kind: 'reply', markers: true, privateData: Uint8Array.of(1, 2, 3) });
    const marked = loadVectors('markers').find((vector) => vector.name === 'markers.m4');
    const stream = Uint8Array.from([...frame, ...hexToOctets(marked?.hex ?? '')]);
    const capture = decodeCapture(stream, { markers: true, crc: true });
    expect(capture?.startup.frame.privateData).toEqual(Uint8Array.of(1, 2, 3));
    expect(capture?.fpdus.flatMap((fpdu) => fpdu.problems)).toEqual([]);
    expect(capture?.fpdus.flatMap((fpdu) => fpdu.markersSeen)).toEqual(marked?.fields.markers);
  });
});

describe('segmentation.json', () => {
  it.each(loadVectors('segmentation').map((vector) => [vector.name, vector] as const))(
    '%s adds up',
    (_, { fields }) => {
      let offset = 0;
      fields.segments.forEach((segment, i) => {
        expect(segment.payloadLength + (fields.tagged ? 14 : 18)).toBeLessThanOrEqual(fields.mulpdu);
        if (fields.tagged) expect(BigInt(segment.to ?? '0')).toBe(BigInt(fields.to ?? '0') + BigInt(offset));
        else expect(segment.mo).toBe(offset);
        expect(segment.last).toBe(i === fields.segments.length - 1);
        offset += segment.payloadLength;
      });
      expect(offset).toBe(fields.messageLength);
    },
  );
});

describe('mulpdu.json', () => {
  it.each(loadVectors('mulpdu').map((vector) => [vector.name, vector] as const))(
    '%s fills a TCP segment and no more',
    (_, { fields }) => {
      const { emss, withoutMarkers, withMarkers } = fields;
      for (const size of [withoutMarkers, withMarkers]) expect(size >= 128 && size <= 64768).toBe(true);
      if (withoutMarkers > 128 && withoutMarkers < 64768) {
        const stream = encodeFpdus([new Uint8Array(withoutMarkers)], { markers: false, crc: true });
        expect(emss - stream.length).toBe(emss % 4);
      }
      if (withMarkers <= 128 || withMarkers >= 64768) return;
      // Wherever the FPDU starts between two markers it fits; the formula wastes less than two units of 4
      // octets.
      const lengthAt = (size: number, streamOffset: number): number =>
        encodeFpdus([new Uint8Array(size)], { markers: true, crc: true, streamOffset }).length;
      for (const start of [0, 4, 8, 256, 504, 508])
        expect(lengthAt(withMarkers, start)).toBeLessThanOrEqual(emss);
      expect(lengthAt(withMarkers + 8, 0)).toBeGreaterThan(emss);
    },
  );
});

describe('both directions agree', () => {
  it('a decoded segment encodes to the same octets, whatever the octets', () => {
    let state = 1;
    for (let round = 0; round < 2000; round++) {
      const ulpdu = Uint8Array.from({ length: round % 75 }, () => {
        state = (Math.imul(state, 1103515245) + 12345) >>> 0;
        return state >>> 16;
      });
      const { segment } = decodeSegment(ulpdu);
      if (segment === null) continue;
      expect(octetsToHex(encodeSegment(segment))).toBe(octetsToHex(ulpdu));
      expect(encodeSegment(segmentFrom(segmentFields(segment)))).toEqual(ulpdu);
    }
  });

  it('the streams of markers.json reassemble into the messages they carry', () => {
    for (const vector of loadVectors('markers')) {
      const first = vector.fields.fpdus[0]?.segment.msn ?? 1;
      const { messages, problems } = reassemble(
        decodeFpdus(hexToOctets(vector.hex), optionsOf(vector)),
        first,
      );
      expect(problems, vector.name).toEqual([]);
      expect(messages.map((message) => octetsToHex(message.payload))).toEqual(
        vector.fields.fpdus.map((fpdu) => fpdu.segment.payload),
      );
    }
  });
});
