/**
 * Framing as a property: whatever the sizes, the stream position, markers and CRC, the naive decoder finds no
 * fault in what we send, and whatever the cuts we read what the naive encoder sends. fast-check prints the
 * seed of a failure.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FINE, TERM } from '../../src/base/terminate-codes.ts';
import { decodeFpdus } from '../support/naive/decoder.ts';
import { encodeFpdus, untaggedUlpdu, type NaiveFpduInput } from '../support/naive/encoder.ts';
import { count, deframe, frame, sameUlpdus, type FramingOptions } from '../support/framing.ts';

/**
 * Payloads of a Send: small, near the marker spacing where everything interesting happens, of ordinary size,
 * and now and then long.
 */
const payloadOctets = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 0, max: 40 }) },
  { weight: 4, arbitrary: fc.integer({ min: 440, max: 540 }) },
  { weight: 3, arbitrary: fc.integer({ min: 0, max: 3000 }) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 20_000 }) },
);
const sizes = fc.array(payloadOctets, { minLength: 1, maxLength: 12 });
const options: fc.Arbitrary<FramingOptions> = fc.record({
  markers: fc.boolean(),
  crc: fc.boolean(),
  // FPDUs begin at multiples of 4; the second range crosses 2^32.
  streamOffset: fc.oneof(
    fc.constant(0),
    fc.integer({ min: 0, max: 400 }).map((n) => n * 4),
    fc.integer({ min: -400, max: 4 }).map((n) => 2 ** 32 + n * 4),
  ),
});
const cutFractions = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 30 });

const sends = (octets: readonly number[]): Uint8Array[] =>
  octets.map((length, i) => untaggedUlpdu({ opcode: 3, qn: 0, msn: i + 1 }, count(length, length)));
const cutsOf = (fractions: readonly number[], length: number): number[] =>
  fractions.map((f) => Math.floor(f * length)).toSorted((a, b) => a - b);

describe('framing', () => {
  it('the naive decoder finds no fault in what we send (MPA-063..067, MPA-069/070, MPA-094..100)', () => {
    fc.assert(
      fc.property(sizes, options, (octets, how) => {
        const ulpdus = sends(octets);
        const stream = frame(ulpdus, how);
        const fpdus = decodeFpdus(stream, how);
        expect(fpdus.flatMap((fpdu) => fpdu.problems)).toEqual([]);
        expect(
          sameUlpdus(
            fpdus.map((fpdu) => fpdu.ulpdu),
            ulpdus,
          ),
        ).toBe(true);
        // And octet for octet it is what the naive encoder would have sent.
        expect(Buffer.compare(stream, encodeFpdus(ulpdus, how))).toBe(0);
      }),
      { numRuns: 200 },
    );
  });

  it('we read what the naive encoder sends, however it is cut (MPA-062, MPA-086..088, MPA-106)', () => {
    fc.assert(
      fc.property(sizes, options, cutFractions, (octets, how, fractions) => {
        const ulpdus = sends(octets);
        const stream = encodeFpdus(ulpdus, how);
        const { ulpdus: got, code, deframer, pool } = deframe(stream, how, cutsOf(fractions, stream.length));
        expect(code).toBe(FINE);
        expect(sameUlpdus(got, ulpdus)).toBe(true);
        expect(deframer.atBoundary).toBe(true);
        expect(pool.lent).toBe(0);
      }),
      { numRuns: 300 },
    );
  });

  it('one fault in a random FPDU: all in front of it is passed on, nothing else (MPA-071..073)', () => {
    fc.assert(
      fc.property(
        sizes,
        options,
        cutFractions,
        fc.nat(),
        fc.integer({ min: 0, max: 31 }),
        (octets, how, fractions, at, bit) => {
          const using = { ...how, crc: true };
          const ulpdus = sends(octets);
          const bad = at % ulpdus.length;
          const inputs: NaiveFpduInput[] = ulpdus.map((ulpdu, i) =>
            i === bad ? { ulpdu, crcFlip: (1 << bit) >>> 0 } : { ulpdu },
          );
          const stream = encodeFpdus(inputs, using);
          const { ulpdus: got, code } = deframe(stream, using, cutsOf(fractions, stream.length));
          expect(code).toBe(TERM.MPA_CRC);
          expect(sameUlpdus(got, ulpdus.slice(0, bad))).toBe(true);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('a wrong pointer in a random marker is found at any cut (MPA-104)', () => {
    fc.assert(
      fc.property(
        sizes,
        fc.boolean(),
        cutFractions,
        fc.nat(),
        fc.integer({ min: 1, max: 0x3fff }),
        (octets, crc, fractions, which, change) => {
          const how = { markers: true, crc };
          const ulpdus = sends(octets);
          const positions: number[] = [];
          encodeFpdus(
            ulpdus.map((ulpdu) => ({
              ulpdu,
              pointer: (right, position) => {
                positions.push(position);
                return right;
              },
            })),
            how,
          );
          const wrong = positions[which % positions.length]!;
          const inputs = ulpdus.map(
            (ulpdu): NaiveFpduInput => ({
              ulpdu,
              pointer: (right, position) => (position === wrong ? right ^ (change << 2) : right),
            }),
          );
          const stream = encodeFpdus(inputs, how);
          const { ulpdus: got, code } = deframe(stream, how, cutsOf(fractions, stream.length));
          expect(code).toBe(TERM.MPA_MARKER);
          const bad = decodeFpdus(stream, how).findIndex((fpdu) =>
            fpdu.markersSeen.some((marker) => marker.position === wrong),
          );
          expect(sameUlpdus(got, ulpdus.slice(0, bad))).toBe(true);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('never throws and never reads outside, whatever the octets', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 4000 }),
        fc.boolean(),
        fc.boolean(),
        cutFractions,
        (octets, markers, crc, fractions) => {
          const how = { markers, crc };
          const whole = deframe(octets, how);
          const cut = deframe(octets, how, cutsOf(fractions, octets.length));
          expect([FINE, TERM.MPA_CRC, TERM.MPA_MARKER]).toContain(whole.code);
          expect(cut.code).toBe(whole.code);
          expect(sameUlpdus(cut.ulpdus, whole.ulpdus)).toBe(true);
        },
      ),
      { numRuns: 300 },
    );
  });
});
