// The naive codec on its own: faults built by the encoder are named by the decoder, and streams of any shape
// survive the way there and back. RFC 5044 4, RFC 5041 4 and 5, RFC 5040 4.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeFpdus, decodeStartup } from '../support/naive/decoder.ts';
import { encodeFpdus, encodeStartup, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import type { NaiveFpduInput } from '../support/naive/encoder.ts';
import { reassemble } from '../support/naive/messages.ts';
import { decodeSegment } from '../support/naive/segments.ts';

const send = (msn: number, size: number, more: object = {}): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn, ...more }, new Uint8Array(size).fill(msn));

/** Problems of a stream of markers and CRC that starts with `first` and goes on with a good Send. */
function problemsOf(first: NaiveFpduInput): readonly string[] {
  const options = { markers: true, crc: true };
  return decodeFpdus(encodeFpdus([first, send(2, 9)], options), options).flatMap((fpdu) => fpdu.problems);
}

describe('faults of framing', () => {
  const ulpdu = send(1, 700);

  it('finds none in a good stream', () => {
    expect(problemsOf({ ulpdu })).toEqual([]);
  });

  it('names a wrong CRC, whichever of its bits is wrong', () => {
    for (let bit = 0; bit < 32; bit++)
      expect(problemsOf({ ulpdu, crcFlip: 2 ** bit })).toEqual(['wrong CRC']);
  });

  it('names a PAD that is not zero', () => {
    expect(problemsOf({ ulpdu: send(1, 1), padValue: 0xff })).toEqual(['PAD is not zero']);
  });

  it('names a marker pointer that is off, and takes its low bits as they are', () => {
    expect(problemsOf({ ulpdu, pointer: (right) => right + 4 })).toEqual([
      'marker at 0 points back 4 octets, not 0',
      'marker at 512 points back 512 octets, not 508',
    ]);
    expect(problemsOf({ ulpdu, pointer: (right) => right + (right === 0 ? 0 : 1) })).toEqual([
      'marker at 512 points back 509 octets, not 508',
    ]);
  });

  it('names a marker whose reserved half is not zero', () => {
    expect(problemsOf({ ulpdu, markerReserved: 0xffff })).toEqual(['reserved half of a marker is not zero']);
  });

  it('sees a stream without markers as wrong when markers are due, and the reverse', () => {
    const plain = encodeFpdus([ulpdu], { markers: false, crc: true });
    expect(decodeFpdus(plain, { markers: true, crc: true })[0]?.problems).not.toEqual([]);
    const marked = encodeFpdus([ulpdu], { markers: true, crc: true });
    expect(decodeFpdus(marked, { markers: false, crc: true })[0]?.problems).not.toEqual([]);
  });

  it('names the end of a stream that comes too early, wherever it comes', () => {
    const stream = encodeFpdus([ulpdu], { markers: true, crc: true });
    for (let end = 1; end < stream.length; end++) {
      const fpdus = decodeFpdus(stream.slice(0, end), { markers: true, crc: true });
      expect(fpdus[0]?.problems, `cut at ${end}`).toContain('the stream ends inside this FPDU');
    }
  });

  it('sees a marker with no FPDU after it as an unfinished FPDU', () => {
    const stream = encodeFpdus([send(1, 484)], { markers: true, crc: true });
    expect(stream).toHaveLength(512);
    const fpdus = decodeFpdus(Uint8Array.from([...stream, 0, 0, 0, 0]), { markers: true, crc: true });
    expect(fpdus.map((fpdu) => fpdu.problems.length > 0)).toEqual([false, true]);
  });
});

describe('faults of headers', () => {
  it.each([
    ['DDP version 2', send(1, 4, { dv: 2 })],
    ['RDMAP version 0', send(1, 4, { rv: 0 })],
    ['reserved DDP control bits are set', send(1, 4, { ddpReserved: 15 })],
    ['reserved RDMAP control bits are set', send(1, 4, { rdmapReserved: 3 })],
    ['opcode 12 is not assigned', send(1, 4, { opcode: 12 })],
    ['RDMA Write with the wrong T flag', send(1, 4, { opcode: 0 })],
    ['Send with the wrong T flag', taggedUlpdu({ opcode: 3, stag: 1, to: 0n })],
    ['Send on queue 1', send(1, 4, { qn: 1 })],
    ['Send with an Invalidate STag', send(1, 4, { invalidateStag: 7 })],
    ['RDMA Read Request with 27 octets', send(1, 27, { opcode: 1, qn: 1 })],
    ['RDMA Read Request in more than one segment', send(1, 28, { opcode: 1, qn: 1, last: false })],
    ['Immediate Data with 7 octets', send(1, 7, { opcode: 8 })],
    ['Atomic Response with 11 octets', send(1, 11, { opcode: 11, qn: 3 })],
    ['Terminate shorter than its control word', send(1, 3, { opcode: 7, qn: 2 })],
    ['ULPDU too short for its DDP header', send(1, 0).slice(0, 17)],
  ])('names: %s', (problem, ulpdu) => {
    expect(decodeSegment(ulpdu).problems).toEqual([problem]);
  });

  it('names what a Terminate lacks against its flags', () => {
    const control = (...octets: number[]): Uint8Array =>
      untaggedUlpdu({ opcode: 7, qn: 2, msn: 1 }, Uint8Array.from(octets));
    expect(decodeSegment(control(0x11, 0, 0xc0, 0)).problems).toEqual([
      'Terminate without its segment length',
      'Terminate without its DDP header',
    ]);
    expect(decodeSegment(control(0x01, 0, 0x20, 0)).problems).toEqual(['Terminate without its RDMAP header']);
    expect(decodeSegment(control(0x20, 2, 0, 1)).problems).toEqual(['reserved bits of a Terminate are set']);
    expect(decodeSegment(control(0x20, 2, 0, 0, 9)).problems).toEqual(['octets after a Terminate']);
  });
});

describe('faults of start-up frames', () => {
  it.each([
    ['reserved flag bits are set', encodeStartup({ kind: 'request', reserved: 1 })],
    ['R is set in a Request', encodeStartup({ kind: 'request', reject: true })],
    [
      'more than 512 octets of private data',
      encodeStartup({ kind: 'reply', privateData: new Uint8Array(513) }),
    ],
    ['S is set without the four octets', encodeStartup({ kind: 'reply', revision: 2, enhancedData: true })],
    [
      'S is set below revision 2',
      encodeStartup({ kind: 'reply', enhanced: { a: true, b: false, ird: 1, c: true, d: false, ord: 1 } }),
    ],
    [
      'an RTR kind is offered without A',
      encodeStartup({
        kind: 'reply',
        revision: 2,
        enhanced: { a: false, b: false, ird: 1, c: true, d: false, ord: 1 },
      }),
    ],
  ])('names: %s', (problem, octets) => {
    expect(decodeStartup(octets)?.problems).toEqual([problem]);
  });

  it('knows no frame with a wrong key or a missing octet', () => {
    const frame = encodeStartup({ kind: 'request', privateData: Uint8Array.of(1, 2) });
    for (let i = 0; i < 16; i++)
      expect(decodeStartup(frame.map((octet, at) => (at === i ? octet ^ 0x20 : octet)))).toBeNull();
    for (let end = 0; end < frame.length; end++) expect(decodeStartup(frame.slice(0, end))).toBeNull();
    expect(decodeStartup(frame)?.octets).toBe(22);
  });
});

describe('faults across segments', () => {
  const judge = (...ulpdus: Uint8Array[]): readonly string[] =>
    reassemble(
      decodeFpdus(encodeFpdus(ulpdus, { markers: false, crc: false }), { markers: false, crc: false }),
    ).problems;
  const write = (to: bigint, size: number, last: boolean, stag = 1): Uint8Array =>
    taggedUlpdu({ opcode: 0, stag, to, last }, new Uint8Array(size));

  it('finds none in lawful messages, segments of a Write around a Send included', () => {
    expect(judge(send(1, 4, { last: false }), send(1, 4, { mo: 4 }), send(2, 0))).toEqual([]);
    expect(judge(write(8n, 4, false), send(1, 3), write(12n, 4, true))).toEqual([]);
    expect(judge(write(0xffff_ffff_ffff_fffcn, 4, false), write(0n, 4, true))).toEqual([]);
  });

  it.each([
    ['MSN 3 on queue 0, not 2', [send(1, 1), send(3, 1)]],
    ['message on queue 0 begins at MO 4', [send(1, 1, { mo: 4 })]],
    ['MO 5 at 28, not 4', [send(1, 4, { last: false }), send(1, 4, { mo: 5 })]],
    ['the stream ends inside a message', [send(1, 4, { last: false })]],
    ['TO jumps at 24', [write(0n, 4, false), write(8n, 4, true)]],
    ['STag changes at 24', [write(0n, 4, false), write(4n, 4, true, 2)]],
    ['opcode changes at 28', [send(1, 4, { last: false }), send(1, 4, { mo: 4, opcode: 5 })]],
    ['an FPDU at 28 follows the Terminate', [send(1, 4, { opcode: 7, qn: 2 }), send(1, 4)]],
  ])('names: %s', (problem, ulpdus) => {
    expect(judge(...ulpdus)).toEqual([problem]);
  });
});

describe('streams of any shape', () => {
  it('come back from encoder to decoder as they went in, with markers and CRC or without', () => {
    const sizes = fc.array(fc.integer({ min: 0, max: 1600 }), { minLength: 1, maxLength: 12 });
    const offset = fc.integer({ min: 0, max: 400 }).map((n) => n * 4);
    fc.assert(
      fc.property(sizes, fc.boolean(), fc.boolean(), offset, (lengths, markers, crc, streamOffset) => {
        const options = { markers, crc, streamOffset };
        const ulpdus = lengths.map((length, i) => send(i + 1, length));
        const stream = encodeFpdus(ulpdus, options);
        const fpdus = decodeFpdus(stream, options);
        expect(fpdus.map((fpdu) => fpdu.ulpdu)).toEqual(ulpdus);
        expect(fpdus.flatMap((fpdu) => fpdu.problems)).toEqual([]);
        const positions = fpdus.flatMap((fpdu) => fpdu.markersSeen.map((marker) => marker.position));
        const due: number[] = [];
        for (let i = 0; i < stream.length; i++)
          if (markers && (streamOffset + i) % 512 === 0) due.push(streamOffset + i);
        expect(positions).toEqual(due);
        expect(reassemble(fpdus).problems).toEqual([]);
      }),
      { numRuns: 150 },
    );
  });
});
