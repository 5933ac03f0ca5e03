// The decoder on streams: golden vectors, the naive codec as a second opinion, every cut, gaps, damage. RFC
// 5044 4, RFC 5041 4.

import { describe, expect, it } from 'vitest';
import { hexToOctets, loadVectors } from '../../conformance/vectors/index.ts';
import { renderJson, renderLine, renderOctets, renderTree } from '../../src/inspect/render/views.ts';
import { StreamDecoder } from '../../src/inspect/decode/stream-decoder.ts';
import type { InspectEvent } from '../../src/inspect/decode/types.ts';
import { encodeFpdus, taggedUlpdu, untaggedUlpdu, type NaiveFpduInput } from '../support/naive/encoder.ts';
import { bytesOf, concat, conversation, decodeConversation, fpdusOf, problemIds } from './support.ts';

function decode(
  octets: Uint8Array,
  options: { markers?: boolean; crc?: boolean; position?: number; begin?: 'fpdu' | 'unknown' } = {},
): InspectEvent[] {
  const events: InspectEvent[] = [];
  const framing = {
    markers: options.markers ?? false,
    markerPhase: 0,
    crc: (options.crc ?? true) ? 'on' : 'off',
  } as const;
  const decoder = new StreamDecoder({
    direction: 0,
    begin: options.begin ?? 'fpdu',
    emit: (event) => events.push(event),
    ...(options.begin === 'unknown' ? {} : { framing, position: options.position ?? 0 }),
  });
  decoder.push(octets, 0, octets.length, 0);
  decoder.end('capture', 0);
  return events;
}

const send = (msn: number, length: number, more: object = {}): Uint8Array =>
  untaggedUlpdu({ opcode: 3, qn: 0, msn, ...more }, bytesOf(length, msn));

describe('golden vectors', () => {
  for (const file of ['fpdu', 'markers'] as const) {
    it.each(loadVectors(file).map((vector) => [vector.name, vector] as const))(
      '%s (MPA-063, MPA-069, MPA-095, MPA-096)',
      (_name, vector) => {
        const octets = hexToOctets(vector.hex);
        const events = decode(octets, {
          markers: vector.markers,
          crc: vector.crc,
          position: vector.streamOffset ?? 0,
        });
        const fpdus = fpdusOf(events);
        expect(events).toHaveLength(fpdus.length);
        expect(
          fpdus.map(({ position, ulpduLength, padLength }) => ({ offset: position, ulpduLength, padLength })),
        ).toEqual(
          vector.fields.fpdus.map(({ offset, ulpduLength, padLength }) => ({
            offset,
            ulpduLength,
            padLength,
          })),
        );
        expect(
          fpdus.flatMap(({ markers }) => markers.map(({ position, pointer }) => ({ position, pointer }))),
        ).toEqual(vector.fields.markers);
        fpdus.forEach((fpdu, i) => {
          const { segment } = vector.fields.fpdus[i]!;
          expect(fpdu.rdmap).toEqual({
            version: segment.rv,
            reserved: segment.rdmapReserved,
            opcode: segment.opcode,
          });
          expect(fpdu.crc.ok || !vector.crc).toBe(true);
          expect(fpdu.ddp).toMatchObject(
            segment.tagged
              ? { tagged: true, last: segment.last, stag: Number(segment.stag), to: BigInt(segment.to!) }
              : {
                  tagged: false,
                  last: segment.last,
                  invalidateStag: Number(segment.invalidateStag),
                  qn: segment.qn,
                  msn: segment.msn,
                  mo: segment.mo,
                },
          );
          expect(problemIds([fpdu])).toEqual([]);
          for (const render of [renderLine, renderTree, renderOctets, renderJson])
            expect(render(fpdu).length).toBeGreaterThan(20);
          expect(JSON.parse(renderJson(fpdu))).toMatchObject({ kind: 'fpdu', opcode: fpdu.opcode });
        });
      },
    );
  }

  it.each(loadVectors('fpdu').map((vector) => [vector.name, vector] as const))(
    'finds %s without having seen the start-up',
    (_name, vector) => {
      const fpdus = fpdusOf(decode(hexToOctets(vector.hex), { begin: 'unknown' }));
      expect(fpdus).toHaveLength(1);
      expect(fpdus[0]!.crc.use).toBe(vector.crc ? 'on' : 'off');
    },
  );

  it.each(loadVectors('markers').map((vector) => [vector.name, vector] as const))(
    'finds the markers of %s by their pointers (MPA-096)',
    (_name, vector) => {
      const fpdus = fpdusOf(decode(hexToOctets(vector.hex), { begin: 'unknown' }));
      expect(fpdus.map(({ ulpduLength }) => ulpduLength)).toEqual(
        vector.fields.fpdus.map(({ ulpduLength }) => ulpduLength),
      );
      expect(fpdus.every(({ crc }) => crc.ok)).toBe(true);
    },
  );

  it('decodes the structures after the DDP header', () => {
    const byName = new Map(
      loadVectors('fpdu').map((vector) => [vector.name, fpdusOf(decode(hexToOctets(vector.hex)))[0]!]),
    );
    expect(byName.get('read-request.4096')!.readRequest).toEqual({
      sinkStag: 0xaabbcc00,
      sinkTo: 0x10000n,
      size: 4096,
      sourceStag: 0x11223344,
      sourceTo: 0x2000n,
    });
    expect(byName.get('atomic-request.fetch-add')!.atomicRequest).toMatchObject({
      aopcodeName: 'FetchAdd',
      data: 5n,
      stag: 0x11223344,
    });
    expect(byName.get('atomic-response')!.atomicResponse).toEqual({ requestId: 1, original: 0x2an });
    expect(byName.get('immediate.plain')!.immediate).toBe(0x0011223344556677n);
    expect(byName.get('terminate.invalid-stag-of-read')!.terminate).toMatchObject({
      layer: 0,
      type: 1,
      code: 0,
      m: true,
      d: true,
      r: true,
      segmentLength: 46,
      rdmap: { opcode: 1 },
      readRequest: { size: 4096 },
    });
  });
});

describe('start-up frames', () => {
  it.each(
    loadVectors('startup')
      .filter((vector) => 'kind' in vector.fields)
      .map((vector) => [vector.name, vector] as const),
  )('%s', (_name, vector) => {
    const events: InspectEvent[] = [];
    const decoder = new StreamDecoder({
      direction: 0,
      begin: 'startup',
      emit: (event) => events.push(event),
    });
    const octets = hexToOctets(vector.hex);
    for (let i = 0; i < octets.length; i++) decoder.push(octets, i, i + 1, 0);
    decoder.end('capture', 0);
    const [event] = events;
    if (event?.kind !== 'startup' || !('kind' in vector.fields)) throw new Error('no start-up frame');
    const { fields } = vector;
    expect(event.frame).toMatchObject({
      kind: fields.kind,
      markers: fields.markers,
      crc: fields.crc,
      reject: fields.reject,
      revision: fields.revision,
    });
    expect(event.pdLength).toBe(fields.pdLength);
    expect(event.problems).toEqual([]);
  });

  it('names what a sender may not do (MPA-010, MPA-012, MPA-018, ENH-001, ENH-005, ENH-030)', () => {
    const ids = (input: object): string[] =>
      problemIds(decodeConversation(conversation({ request: { kind: 'request', ...input } })));
    expect(ids({ reserved: 3 })).toContain('MPA-010');
    expect(ids({ reject: true })).toContain('MPA-012');
    expect(ids({ pdLength: 600 })).toContain('MPA-018');
    expect(ids({ enhancedData: true, revision: 1, privateData: bytesOf(4) })).toContain('ENH-001');
    expect(ids({ enhancedData: true, revision: 2 })).toContain('ENH-005');
    const enhanced = { a: false, b: true, c: false, d: false, ird: 1, ord: 1 };
    expect(ids({ revision: 2, enhanced })).toContain('ENH-030');
  });

  it('a Reply, accepting or rejecting, answers 0x3FFF by 0x3FFF (ENH-024, ENH-025)', () => {
    const enhanced = { a: false, b: false, c: false, d: false, ird: 4, ord: 4 };
    const open = 0x3fff;
    for (const reject of [false, true]) {
      const ids = (asked: object, given: object): string[] =>
        problemIds(
          decodeConversation(
            conversation({
              request: { kind: 'request', revision: 2, enhanced: { ...enhanced, ...asked } },
              reply: { kind: 'reply', revision: 2, reject, enhanced: { ...enhanced, ...given } },
            }),
          ),
        ).filter((id) => id.startsWith('ENH'));
      expect(ids({ ird: open, ord: open }, { ird: open, ord: open })).toEqual([]);
      expect(ids({ ord: open }, {})).toEqual(['ENH-024']);
      expect(ids({ ird: open }, {})).toEqual(['ENH-025']);
      // The ORD of a rejecting Reply is the one that would have been needed (ENH-019).
      expect(ids({ ird: 3 }, {})).toEqual(reject ? [] : ['ENH-016']);
    }
  });

  it('an accepting Reply with A names an RTR kind, a rejecting one need not (ENH-033)', () => {
    const enhanced = { a: true, b: false, c: true, d: false, ird: 4, ord: 4 };
    const ids = (reject: boolean, d: boolean): string[] =>
      problemIds(
        decodeConversation(
          conversation({
            request: { kind: 'request', revision: 2, enhanced },
            reply: { kind: 'reply', revision: 2, reject, enhanced: { ...enhanced, c: false, d } },
          }),
        ),
      ).filter((id) => id === 'ENH-033');
    expect([ids(false, false), ids(false, true), ids(true, false)]).toEqual([['ENH-033'], [], []]);
  });

  it('CRC if either asks, markers if the receiver asks, each direction for itself (MPA-054, MPA-059)', () => {
    for (const markers of [
      [false, false],
      [true, false],
      [false, true],
      [true, true],
    ] as const) {
      for (const crc of [true, false]) {
        const events = decodeConversation(conversation({ crc, markers }));
        expect(problemIds(events)).toEqual([]);
        const fpdus = fpdusOf(events);
        expect(fpdus).toHaveLength(14);
        for (const direction of [0, 1] as const) {
          const seen = fpdus.some((fpdu) => fpdu.direction === direction && fpdu.markers.length > 0);
          expect(seen).toBe(markers[direction]);
        }
        expect(fpdus.every((fpdu) => fpdu.crc.use === (crc ? 'on' : 'off'))).toBe(true);
      }
    }
  });

  it('takes nothing for an FPDU after a rejecting Reply (MPA-032)', () => {
    const events = decodeConversation(conversation({ reply: { kind: 'reply', reject: true } }));
    expect(fpdusOf(events)).toEqual([]);
  });
});

describe('cuts and damage', () => {
  it('decodes the same however the stream is cut (MPA-086)', () => {
    const talk = conversation({ markers: [true, true] });
    const whole = decodeConversation(talk).map((event) => renderJson(event));
    for (const piece of [1, 3, 7, 512, 1449])
      expect(decodeConversation(talk, piece).map((event) => renderJson(event))).toEqual(whole);
  });

  const faults: readonly (readonly [string, Partial<NaiveFpduInput>, string])[] = [
    ['PAD that is not 0 (MPA-067)', { padValue: 0xff }, 'MPA-067'],
    ['a wrong CRC (MPA-069)', { crcFlip: 4 }, 'MPA-069'],
    ['a marker that points elsewhere (MPA-096)', { pointer: (right) => right + 4 }, 'MPA-096'],
    ['the reserved half of a marker (MPA-100)', { markerReserved: 1 }, 'MPA-100'],
    ['low pointer bits (MPA-100)', { pointer: (right) => right + 1 }, 'MPA-100'],
  ];
  it.each(faults)('names %s', (_title, fault, id) => {
    const octets = encodeFpdus([send(1, 601), { ulpdu: send(2, 603), ...fault }, send(3, 5)], {
      markers: true,
      crc: true,
    });
    const events = decode(octets, { markers: true });
    expect([...new Set(problemIds(events))]).toEqual([id]);
    expect(fpdusOf(events)).toHaveLength(3);
  });

  it('names a marker between FPDUs that is not 0 (MPA-097)', () => {
    const octets = encodeFpdus([{ ulpdu: send(1, 4), pointer: () => 8 }], { markers: true, crc: true });
    expect(problemIds(decode(octets, { markers: true }))).toEqual(['MPA-097']);
  });

  it.each([0, 1, 13])('names a ULPDU of %i octets and goes on (MPA-090)', (length) => {
    const octets = encodeFpdus([bytesOf(length, 0x81), send(1, 4)], { markers: false, crc: true });
    const events = decode(octets);
    expect(problemIds(events)).toEqual(['MPA-090']);
    expect(fpdusOf(events).map(({ opcode }) => opcode)).toEqual(['Malformed', 'Send']);
  });

  it('decodes the longest ULPDU and says that it is too long (MPA-091, MPA-076)', () => {
    const ulpdu = taggedUlpdu({ opcode: 0, stag: 1, to: 0n }, new Uint8Array(65535 - 14));
    for (const markers of [false, true]) {
      const events = decode(encodeFpdus([ulpdu, send(1, 1)], { markers, crc: false }), {
        markers,
        crc: false,
      });
      expect(fpdusOf(events).map(({ ulpduLength }) => ulpduLength)).toEqual([65535, 19]);
      expect(new Set(problemIds(events))).toEqual(new Set(['MPA-076']));
    }
  });

  it('finds the next FPDU after a ULPDU_Length with a flipped bit', () => {
    const octets = encodeFpdus(
      [
        send(1, 100),
        { ulpdu: send(2, 100), length: 118 + 1024 },
        send(3, 100),
        ...[4, 5, 6].map((i) => send(i, 2000)),
      ],
      { markers: false, crc: true },
    );
    const events = decode(octets);
    expect(problemIds(events)[0]).toBe('MPA-069');
    const good = fpdusOf(events)
      .filter(({ crc }) => crc.ok)
      .map(({ ddp }) => (ddp?.tagged === false ? ddp.msn : 0));
    expect(good).toEqual([1, 3, 4, 5, 6]);
  });

  it.each([true, false])('finds FPDUs again after a gap, CRC %s', (crc) => {
    const octets = encodeFpdus(
      [1, 2, 3, 4, 5, 6].map((i) => send(i, 400 + i)),
      { markers: true, crc },
    );
    const events: InspectEvent[] = [];
    const decoder = new StreamDecoder({
      direction: 0,
      begin: 'fpdu',
      framing: { markers: true, markerPhase: 0, crc: crc ? 'on' : 'off' },
      emit: (event) => events.push(event),
    });
    decoder.push(octets, 0, 900, 0);
    expect(decoder.gap(500, 0)).toBe(true);
    decoder.push(octets, 1400, octets.length, 0);
    decoder.end('capture', 0);
    const fpdus = fpdusOf(events);
    // The third is cut, the fourth is missing in front.
    expect(fpdus.map(({ ddp }) => (ddp?.tagged === false ? ddp.msn : 0))).toEqual([1, 2, 3, 5, 6]);
    expect(problemIds(events)).toEqual([]);
    const third = fpdus[2]!;
    const start = third.position + third.octets - third.raw.length;
    expect(start + third.captured!).toBe(900);
    expect(events.find((event) => event.kind === 'note')).toMatchObject({
      position: start + third.raw.length,
      message: `${1400 - start - third.raw.length} bytes were not captured`,
    });
  });

  it('a gap within one FPDU leaves the next where its length says', () => {
    const octets = encodeFpdus(
      [1, 2, 3, 4].map((i) => send(i, 400 + i)),
      { markers: true, crc: true },
    );
    const events: InspectEvent[] = [];
    const decoder = new StreamDecoder({
      direction: 0,
      begin: 'fpdu',
      framing: { markers: true, markerPhase: 0, crc: 'on' },
      emit: (event) => events.push(event),
    });
    decoder.push(octets, 0, 500, 0);
    expect(decoder.gap(100, 0)).toBe(false);
    decoder.push(octets, 600, 650, 0);
    expect(decoder.gap(50, 0)).toBe(false);
    decoder.push(octets, 700, octets.length, 0);
    decoder.end('fin', 0);
    expect(events.map(({ kind }) => kind)).toEqual(['fpdu', 'fpdu', 'fpdu', 'fpdu']);
    expect(fpdusOf(events).map(({ captured, crc }) => [captured === undefined, crc.use, crc.ok])).toEqual([
      [true, 'on', true],
      [false, 'unknown', false],
      [true, 'on', true],
      [true, 'on', true],
    ]);
  });

  it.each([
    [true, true],
    [true, false],
    [false, false],
  ])('begins in the middle of an FPDU, CRC %s, markers %s', (crc, markers) => {
    const ulpdus = [1, 2, 3, 4, 5, 6].map((i) =>
      taggedUlpdu({ opcode: 0, stag: 7, to: BigInt(i * 600) }, bytesOf(600, i)),
    );
    const octets = encodeFpdus(ulpdus, { markers, crc });
    const events = decode(octets.subarray(333), { begin: 'unknown' });
    expect(fpdusOf(events).map(({ ddp }) => (ddp?.tagged === true ? ddp.to : 0n))).toEqual([
      1200n,
      1800n,
      2400n,
      3000n,
      3600n,
    ]);
    expect(problemIds(events)).toEqual([]);
  });

  it('says where a stream ends inside an FPDU (MPA-087)', () => {
    const octets = encodeFpdus([send(1, 40)], { markers: false, crc: true });
    const events: InspectEvent[] = [];
    const decoder = new StreamDecoder({
      direction: 0,
      begin: 'fpdu',
      framing: { markers: false, markerPhase: 0, crc: 'on' },
      emit: (event) => events.push(event),
    });
    decoder.push(octets, 0, 30, 0);
    decoder.end('fin', 0);
    expect(problemIds(events)).toEqual(['MPA-087']);
    expect(renderLine(events[0]!)).toContain('after 30 of 64 bytes of an FPDU');
  });

  it('passes over streaming mode data in front of the Request (MPA-043)', () => {
    const talk = conversation();
    const hello = new TextEncoder().encode('220 mail ready MPA\r\n');
    const events = decodeConversation({ ...talk, request: concat(hello, talk.request) });
    expect(fpdusOf(events)).toHaveLength(14);
    expect(problemIds(events)).toEqual([]);
  });
});
