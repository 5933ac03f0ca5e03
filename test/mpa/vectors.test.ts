/**
 * The golden vectors through our encoders and decoders, byte for byte: RFC 5044 4.1 to 4.5 and 7.1.1, RFC
 * 6581 9.
 */
import { describe, expect, it } from 'vitest';
import { hexToOctets, loadVectors, octetsToHex } from '../../conformance/vectors/index.ts';
import { FINE } from '../../src/base/terminate-codes.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { StartupFrameReader } from '../../src/mpa/startup.ts';
import {
  decodeEnhanced,
  encodeStartupFrame,
  markerPhase,
  mulpduFor,
  type EnhancedData,
  type StartupFrame,
} from '../../src/mpa/wire.ts';
import { encodeSegment } from '../support/naive/encoder.ts';
import { segmentFrom } from '../support/naive/fields.ts';
import { deframe, frame, sameUlpdus } from '../support/framing.ts';

const streams = [...loadVectors('fpdu'), ...loadVectors('markers')].map((vector) => ({
  vector,
  options: { markers: vector.markers, crc: vector.crc, streamOffset: vector.streamOffset ?? 0 },
  ulpdus: vector.fields.fpdus.map((fpdu) => encodeSegment(segmentFrom(fpdu.segment))),
}));

const enhancedOf = ({
  a,
  b,
  c,
  d,
  ird,
  ord,
}: {
  a: boolean;
  b: boolean;
  c: boolean;
  d: boolean;
  ird: number;
  ord: number;
}): EnhancedData => ({ peerToPeer: a, rtrSend: b, rtrWrite: c, rtrRead: d, ird, ord });

describe('fpdu.json and markers.json', () => {
  it.each(streams.map((s) => [s.vector.name, s] as const))(
    '%s comes out of our framer (MPA-063, MPA-069, MPA-070)',
    (_, { vector, options, ulpdus }) => {
      expect(octetsToHex(frame(ulpdus, options))).toBe(vector.hex);
    },
  );

  it.each(streams.map((s) => [s.vector.name, s] as const))(
    '%s goes into our deframer, cut at every octet (MPA-070, MPA-086)',
    (_, { vector, options, ulpdus }) => {
      const octets = hexToOctets(vector.hex);
      for (let cut = 0; cut <= octets.length; cut++) {
        const { ulpdus: got, code, deframer } = deframe(octets, options, [cut]);
        expect(code).toBe(FINE);
        if (!sameUlpdus(got, ulpdus)) expect(got, `cut at ${cut}`).toEqual(ulpdus);
        expect(deframer.atBoundary).toBe(true);
        expect(deframer.phase).toBe(markerPhase(options.streamOffset + octets.length));
      }
    },
  );

  it('RFC 5044 figure 5 and figure 6, as printed there (MPA-069, MPA-070, MPA-097)', () => {
    const byName = (name: string): string => streams.find(({ vector }) => vector.name === name)!.vector.hex;
    const figure5 = streams.find(({ vector }) => vector.name === 'markers.figure-5')!;
    expect(byName('markers.figure-5').slice(0, 8)).toBe('00000000');
    expect(byName('markers.figure-5').slice(-8)).toBe('52239983');
    expect(byName('markers.figure-6').slice(-8)).toBe('84925898');
    expect(byName('markers.figure-6')).toContain('00000014');
    // In figure 5 the leading marker is covered: without it the field would read otherwise, and a deframer
    // would refuse it.
    const wrong = hexToOctets(byName('markers.figure-5').slice(0, -8) + 'b7243ec3');
    expect(deframe(wrong, figure5.options).code).not.toBe(FINE);
  });
});

describe('crc32c.json', () => {
  it.each(loadVectors('crc32c').map((vector) => [vector.name, vector] as const))(
    '%s (MPA-051, MPA-069)',
    (_, vector) => {
      const octets = hexToOctets(vector.hex);
      expect(defaultCrc32cEngine().update(0, octets, 0, octets.length)).toBe(Number(vector.fields.value));
    },
  );
});

describe('startup.json', () => {
  it.each(loadVectors('startup').map((vector) => [vector.name, vector] as const))(
    '%s, both ways (MPA-002, MPA-003, ENH-003)',
    (_, vector) => {
      const octets = hexToOctets(vector.hex);
      const { fields } = vector;
      if (!('kind' in fields)) {
        expect(decodeEnhanced(octets, 0)).toEqual(enhancedOf(fields.enhanced));
        return;
      }
      const frame: StartupFrame = {
        kind: fields.kind,
        markers: fields.markers,
        crc: fields.crc,
        reject: fields.reject,
        revision: fields.revision,
        enhanced: fields.enhanced === undefined ? null : enhancedOf(fields.enhanced),
        privateData: hexToOctets(fields.privateData),
      };
      expect(octetsToHex(encodeStartupFrame(frame))).toBe(vector.hex);
      const reader = new StartupFrameReader(fields.kind);
      expect(reader.push(octets, 0, octets.length)).toBe(octets.length);
      expect(reader.failure).toBeNull();
      expect(reader.frame).toEqual(frame);
    },
  );
});

describe('mulpdu.json', () => {
  it.each(loadVectors('mulpdu').map((vector) => [vector.name, vector] as const))(
    '%s (MPA-077, MPA-078, MPA-079, MPA-080)',
    (_, { fields }) => {
      expect(mulpduFor(fields.emss, false)).toBe(fields.withoutMarkers);
      expect(mulpduFor(fields.emss, true)).toBe(fields.withMarkers);
    },
  );

  it('every EMSS from 0 to 70000 gives 128 to 64768 (MPA-076, MPA-077, MPA-080)', () => {
    for (let emss = 0; emss <= 70_000; emss++) {
      for (const markers of [false, true]) {
        const mulpdu = mulpduFor(emss, markers);
        if (mulpdu < 128 || mulpdu > 64_768) expect.unreachable(`EMSS ${emss}: MULPDU ${mulpdu}`);
      }
    }
    expect(mulpduFor(0, true)).toBe(128);
    expect(mulpduFor(70_000, true)).toBe(64_768);
  });
});
