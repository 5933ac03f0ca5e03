// Capture files: both kinds, every link header, TCP as it comes in real captures. RFC 791, RFC 8200, RFC
// 9293.

import { describe, expect, it } from 'vitest';
import { IwarpError } from '../../src/base/errors.ts';
import { CaptureDissector } from '../../src/inspect/decode/capture.ts';
import { LINK_TYPE } from '../../src/inspect/capture/pcap.ts';
import { renderJson, renderSummary } from '../../src/inspect/render/views.ts';
import { encodeFpdus, encodeReadRequest, encodeStartup, untaggedUlpdu } from '../support/naive/encoder.ts';
import {
  FLAG,
  Wire,
  bytesOf,
  concat,
  conversation,
  dissectOctets,
  ethernet,
  fpdusOf,
  ipv4,
  ipv6,
  pcapOf,
  pcapRecord,
  problemIds,
  tcp,
  wireOf,
} from './support.ts';

const TALK = conversation();
const FPDUS = 14;

function expectWhole(file: Uint8Array, piece?: number): void {
  const { events, remarks } = dissectOctets(file, piece);
  expect(remarks).toEqual([]);
  expect(problemIds(events)).toEqual([]);
  expect(events.filter(({ event }) => event.kind === 'note')).toEqual([]);
  expect(fpdusOf(events)).toHaveLength(FPDUS);
}

/** A pcapng file by hand: section, interfaces, one block for each packet. */
function pcapng(
  packets: readonly Uint8Array[],
  options: { little?: boolean; kind?: 6 | 3 | 2; resolution?: number; tick?: bigint; extra?: boolean } = {},
): Uint8Array {
  const little = options.little ?? true;
  const kind = options.kind ?? 6;
  const block = (type: number, body: Uint8Array): Uint8Array => {
    const padded = concat(body, new Uint8Array(-body.length & 3));
    const all = new Uint8Array(12 + padded.length);
    const view = new DataView(all.buffer);
    view.setUint32(0, type, little);
    view.setUint32(4, all.length, little);
    all.set(padded, 8);
    view.setUint32(all.length - 4, all.length, little);
    return all;
  };
  const words = (...values: readonly (readonly [number, 2 | 4])[]): Uint8Array => {
    const out = new Uint8Array(values.reduce((sum, [, size]) => sum + size, 0));
    const view = new DataView(out.buffer);
    let at = 0;
    for (const [value, size] of values) {
      if (size === 2) view.setUint16(at, value, little);
      else view.setUint32(at, value, little);
      at += size;
    }
    return out;
  };
  const option =
    options.resolution === undefined
      ? new Uint8Array(0)
      : concat(words([9, 2], [1, 2]), Uint8Array.of(options.resolution, 0, 0, 0), words([0, 4]));
  const parts = [
    block(0x0a0d0d0a, concat(words([0x1a2b3c4d, 4], [1, 2], [0, 2]), new Uint8Array(8).fill(0xff))),
    block(1, concat(words([LINK_TYPE.RAW, 2], [0, 2], [0x40000, 4]), option)),
    block(1, concat(words([LINK_TYPE.ETHERNET, 2], [0, 2], [0x40000, 4]), option)),
  ];
  packets.forEach((packet, i) => {
    const stamp = BigInt(i) * (options.tick ?? 1000n);
    const time = [
      [Number(stamp >> 32n), 4],
      [Number(stamp & 0xffff_ffffn), 4],
    ] as const;
    if (options.extra === true) parts.push(block(0x0bad, bytesOf(9)));
    if (kind === 6)
      parts.push(block(6, concat(words([1, 4], ...time, [packet.length, 4], [packet.length, 4]), packet)));
    if (kind === 2)
      parts.push(
        block(2, concat(words([1, 2], [0, 2], ...time, [packet.length, 4], [packet.length, 4]), packet)),
      );
    if (kind === 3) parts.push(block(3, concat(words([packet.length, 4]), packet)));
  });
  return concat(...parts);
}

describe('file formats', () => {
  const { packets } = wireOf(TALK);

  it.each([1, 7, 1000, 1 << 20])('reads pcap pushed in pieces of %i', (piece) =>
    expectWhole(pcapOf(packets), piece),
  );

  it.each([true, false])(
    'reads classic files of either byte order with microseconds, little-endian %s',
    (little) => {
      const header = new Uint8Array(24);
      const view = new DataView(header.buffer);
      view.setUint32(0, 0xa1b2c3d4, little);
      view.setUint32(16, 65535, little);
      view.setUint32(20, 1, little);
      const records = packets.map((packet, i) => {
        const front = new Uint8Array(16);
        [100, i * 1000, packet.length, packet.length].forEach((value, k) =>
          new DataView(front.buffer).setUint32(4 * k, value, little),
        );
        return concat(front, packet);
      });
      const file = concat(header, ...records);
      expectWhole(file);
      expect(fpdusOf(dissectOctets(file).events)[0]!.time).toBeCloseTo(0.005, 9);
    },
  );

  it.each([true, false])(
    'reads pcapng of either byte order, blocks it does not know between, little-endian %s',
    (little) => {
      expectWhole(pcapng(packets, { little, extra: true }));
      expectWhole(pcapng(packets, { little, kind: 2 }));
    },
  );

  it('reads stamps of other resolutions', () => {
    const times = (file: Uint8Array): number => fpdusOf(dissectOctets(file).events)[0]!.time;
    expect(times(pcapng(packets))).toBeCloseTo(0.005, 9);
    expect(times(pcapng(packets, { resolution: 9, tick: 1000n }))).toBeCloseTo(0.000005, 12);
    expect(times(pcapng(packets, { resolution: 0x80 | 10, tick: 1024n }))).toBeCloseTo(5, 9);
  });

  it('reads simple packet blocks of the first interface', () => {
    const raw = new Wire([1, 2], (from, segment) => ipv4(from, segment));
    expectWhole(pcapng(wireOf(TALK, raw).packets, { kind: 3 }));
  });

  it.each([[[]], [[1, 2]], [[1, 2, 3, 4, 5]], [[0x50, 0x4b, 3, 4, 9, 9, 9, 9]]])(
    'refuses what is no capture with a typed error: %j',
    (octets) => {
      expect(() => dissectOctets(Uint8Array.from(octets), 1)).toThrow(IwarpError);
      expect(() => dissectOctets(Uint8Array.from(octets))).toThrow(
        expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }),
      );
    },
  );

  it.each([
    ['gzip', [0x1f, 0x8b, 8, 0]],
    ['zstd', [0x28, 0xb5, 0x2f, 0xfd]],
    ['snoop', [0x73, 0x6e, 0x6f, 0x6f, 0x70]],
  ])('names %s and says what to do', (name, octets) => {
    expect(() => dissectOctets(Uint8Array.from(octets))).toThrow(new RegExp(`but ${name}: try `));
  });

  it('says at which offset a record cannot be believed, and keeps earlier ones', () => {
    const whole = pcapOf(packets);
    const broken = concat(whole, pcapRecord(1, 1, new Uint8Array(0)), Uint8Array.of(1, 2, 3));
    new DataView(broken.buffer).setUint32(whole.length + 8, 0x7fff_ffff, true);
    const { events, remarks } = dissectOctets(broken);
    expect(remarks).toEqual([
      `${whole.length}: a packet record claims 2147483647 bytes; the rest of the file cannot be read`,
    ]);
    expect(fpdusOf(events)).toHaveLength(FPDUS);
    expect(dissectOctets(whole.subarray(0, whole.length - 5)).remarks[0]).toContain('ends inside a record');
  });
});

describe('link and IP headers', () => {
  const ip = (from: 0 | 1, segment: Uint8Array): Uint8Array => ipv4(from, segment);
  const sll = (packet: Uint8Array): Uint8Array => concat(new Uint8Array(14), Uint8Array.of(8, 0), packet);
  const sll2 = (packet: Uint8Array): Uint8Array => concat(Uint8Array.of(8, 0), new Uint8Array(18), packet);
  const hop = Uint8Array.of(60, 0, 0, 0, 0, 0, 0, 0, 6, 1, ...new Uint8Array(14));
  const cases: readonly (readonly [string, number, (from: 0 | 1, segment: Uint8Array) => Uint8Array])[] = [
    ['Ethernet', LINK_TYPE.ETHERNET, (from, s) => ethernet(ip(from, s))],
    ['Ethernet padding', LINK_TYPE.ETHERNET, (from, s) => concat(ethernet(ip(from, s)), bytesOf(6, 0xee))],
    ['VLAN', LINK_TYPE.ETHERNET, (from, s) => ethernet(ip(from, s), [0x8100, 7])],
    ['QinQ', LINK_TYPE.ETHERNET, (from, s) => ethernet(ip(from, s), [0x88a8, 7, 0x8100, 9])],
    ['BSD loopback', LINK_TYPE.NULL, (from, s) => concat(Uint8Array.of(2, 0, 0, 0), ip(from, s))],
    ['OpenBSD loopback', LINK_TYPE.LOOP, (from, s) => concat(Uint8Array.of(0, 0, 0, 2), ip(from, s))],
    ['raw IP', LINK_TYPE.RAW, ip],
    ['raw IP of BSD', LINK_TYPE.RAW_BSD, ip],
    ['IPv4', LINK_TYPE.IPV4, ip],
    ['IPv6', LINK_TYPE.IPV6, (from, s) => ipv6(from, s)],
    [
      'IPv6 over Ethernet with extension headers',
      LINK_TYPE.ETHERNET,
      (from, s) => ethernet(ipv6(from, s, 0, hop)),
    ],
    ['Linux cooked', LINK_TYPE.LINUX_SLL, (from, s) => sll(ip(from, s))],
    ['Linux cooked 2', LINK_TYPE.LINUX_SLL2, (from, s) => sll2(ip(from, s))],
    ['a total length of 0', LINK_TYPE.RAW, (from, s) => ipv4(from, s, 0, 0)],
  ];
  it.each(cases)('finds TCP after %s', (_name, linkType, wrap) => {
    expectWhole(pcapOf(wireOf(TALK, new Wire([9, 9], wrap)).packets, linkType));
  });

  it('shortens IPv6 addresses', () => {
    const { events } = dissectOctets(
      pcapOf(wireOf(TALK, new Wire([9, 9], (from, s) => ipv6(from, s))).packets, LINK_TYPE.RAW),
    );
    expect(events[0]!.connection.ends).toEqual(['[fd00::1]:40000', '[fd00::2]:7174']);
  });

  it('writes a mapped IPv4 address as IPv4', () => {
    const mapped = (from: 0 | 1, segment: Uint8Array): Uint8Array => {
      const packet = ipv6(from, segment);
      const client = from === 0 ? 8 : 24;
      packet.fill(0, client, client + 16);
      packet.set([0xff, 0xff, 127, 0, 0, 1], client + 10);
      return packet;
    };
    const { events } = dissectOctets(pcapOf(wireOf(TALK, new Wire([9, 9], mapped)).packets, LINK_TYPE.RAW));
    expect(events[0]!.connection.ends).toEqual(['127.0.0.1:40000', '[fd00::2]:7174']);
  });

  it('says that fragments, other link types and damaged headers are not decoded', () => {
    const part = ethernet(ipv4(0, tcp({ from: 0, seq: 1, payload: bytesOf(40) }), 0x2000));
    expect(dissectOctets(pcapOf([part])).remarks[0]).toContain('fragment');
    expect(dissectOctets(pcapOf([part], 147)).remarks[0]).toContain('link type 147');
    expect(dissectOctets(pcapOf([part.subarray(0, 20)])).remarks[0]).toContain('cut short');
  });
});

describe('TCP', () => {
  const WRAP = [0xffff_ff00, 0xffff_fff0] as [number, number];

  it('sequence numbers that wrap (MPA-103)', () =>
    expectWhole(pcapOf(wireOf(TALK, new Wire([...WRAP])).packets)));

  it('segments of 1 to 1000 octets', () => {
    for (const size of [1, 5, 100, 1000])
      expectWhole(pcapOf(wireOf(TALK, new Wire([...WRAP]), size).packets));
  });

  it('reordered, repeated and overlapping segments, keep-alives', () => {
    const wire = wireOf(TALK, new Wire([...WRAP]), 200);
    const { packets } = wire;
    for (let i = 5; i + 3 < packets.length - 2; i += 4)
      [packets[i], packets[i + 2]] = [packets[i + 2]!, packets[i]!];
    for (let i = packets.length - 3; i > 5; i -= 3) packets.splice(i, 0, packets[i - 2]!, packets[i]!);
    const keepAlive = ethernet(
      ipv4(0, tcp({ from: 0, seq: WRAP[0] + 1 + TALK.request.length - 1, payload: Uint8Array.of(0) })),
    );
    packets.splice(8, 0, keepAlive);
    expectWhole(pcapOf(packets));
    expect(dissectOctets(pcapOf(packets)).events[0]!.connection.reorderedSegments).toBeGreaterThan(0);
  });

  it('overlaps of other cuts', () => {
    const wire = new Wire([...WRAP]).open().send(0, TALK.request).send(1, TALK.reply);
    const all = TALK.fromInitiator;
    const base = wire.seq[0];
    for (const [from, to] of [
      [0, 300],
      [600, 1000],
      [250, 700],
      [100, 1100],
      [900, all.length],
    ] as const) {
      wire.raw({ from: 0, seq: base + from, ack: wire.seq[1], payload: all.subarray(from, to) });
    }
    wire.seq[0] += all.length;
    expectWhole(pcapOf(wire.send(1, TALK.fromResponder).close().packets));
  });

  it('segments the capture missed: says where, and finds the FPDUs after', () => {
    const wire = wireOf(TALK, new Wire([...WRAP]), 100);
    const lost = wire.packets.filter((_, i) => i !== 12);
    const { events, dissector } = dissectOctets(pcapOf(lost));
    expect(problemIds(events)).toEqual([]);
    expect(renderSummary(dissector.connections[0]!)).toContain('100 not captured');
    const notes = events.map(({ event }) => event).filter((event) => event.kind === 'note');
    expect(notes[0]!.message).toContain('80 bytes were not captured');
    // The other 20 are the end of an FPDU whose headers were captured.
    expect(
      fpdusOf(events)
        .filter(({ captured }) => captured !== undefined)
        .map(({ octets, captured }) => octets - captured!),
    ).toEqual([20]);
    expect(fpdusOf(events).length).toBeGreaterThan(FPDUS - 4);
    expect(fpdusOf(events).length).toBeLessThan(FPDUS);
  });

  it('octets sent again with other values: says where, decodes the first', () => {
    const wire = wireOf(TALK, new Wire([...WRAP]), 200);
    const segment = wire.packets[8]!;
    const repeat = (at: number, ...others: readonly number[]): Uint8Array => {
      const copy = segment.slice();
      for (const other of others) copy[copy.length - other]! ^= 0xff;
      wire.packets.splice(at, 0, copy);
      return pcapOf(wire.packets);
    };
    expectWhole(repeat(10));
    const { events } = dissectOctets(repeat(12, 10, 3));
    expect(fpdusOf(events)).toHaveLength(FPDUS);
    const notes = events.map(({ event }) => event).filter((event) => event.kind === 'note');
    expect(notes).toHaveLength(1);
    // The fourth segment of 200 octets after the start-up frame, from its tenth last octet on.
    expect(notes[0]).toMatchObject({
      position: 790,
      problems: [
        { id: 'TCP-OVERLAP', message: expect.stringContaining('2 bytes from here on were sent again') },
      ],
    });
  });

  it('a disagreement among segments that wait for an earlier one', () => {
    const wire = wireOf(TALK, new Wire([...WRAP]), 200);
    const [missing] = wire.packets.splice(7, 1);
    const other = wire.packets[7]!.slice();
    other[other.length - 1]! ^= 1;
    wire.packets.splice(8, 0, other, missing!);
    const { events } = dissectOctets(pcapOf(wire.packets));
    expect(problemIds(events)).toEqual(['TCP-OVERLAP']);
    expect(fpdusOf(events)).toHaveLength(FPDUS);
  });

  it('a capture that starts mid-stream, with markers', () => {
    const talk = conversation({ markers: [true, true] });
    const wire = wireOf(talk, new Wire([...WRAP]), 100);
    const { events, dissector } = dissectOctets(pcapOf(wire.packets.slice(9)));
    expect(problemIds(events)).toEqual([]);
    expect(fpdusOf(events).length).toBeGreaterThan(FPDUS - 4);
    expect(fpdusOf(events).some(({ markers }) => markers.length > 0)).toBe(true);
    expect(dissector.connections[0]).toMatchObject({ fromStart: false, iwarp: true });
  });

  it('a capture that starts mid-stream', () => {
    const wire = wireOf(TALK, new Wire([...WRAP]), 100);
    const { events, dissector } = dissectOctets(pcapOf(wire.packets.slice(9)));
    expect(problemIds(events)).toEqual([]);
    expect(fpdusOf(events).length).toBeGreaterThan(FPDUS - 4);
    expect(dissector.connections[0]).toMatchObject({ fromStart: false, iwarp: true });
  });

  it('packets that the snap length cut', () => {
    const { packets } = wireOf(TALK, new Wire([...WRAP]), 400);
    const records = packets.map((packet, i) => pcapRecord(1, i, packet.subarray(0, 300), packet.length));
    const { events, dissector } = dissectOctets(concat(pcapOf([]), ...records));
    expect(dissector.counts.truncated).toBeGreaterThan(3);
    expect(problemIds(events)).toEqual([]);
    expect(events.some(({ event }) => event.kind === 'note' && event.message.includes('not captured'))).toBe(
      true,
    );
  });

  it.each([false, true])(
    'headers alone are enough where the snap length cut the rest, markers %s',
    (markers) => {
      const talk = conversation({ markers: [markers, markers] });
      const wire = new Wire().open().send(0, talk.request).send(1, talk.reply);
      const spans = fpdusOf(dissectOctets(pcapOf(wireOf(talk).packets)).events);
      for (const { direction, raw } of spans) wire.send(direction, raw);
      const records = wire
        .close()
        .packets.map((packet, i) => pcapRecord(1, i, packet.subarray(0, 54 + 26), packet.length));
      const { events, dissector } = dissectOctets(concat(pcapOf([]), ...records));
      expect(problemIds(events)).toEqual([]);
      const fpdus = fpdusOf(events);
      expect(fpdus.map(({ opcode, ddp, payloadLength }) => [opcode, ddp, payloadLength])).toEqual(
        spans.map(({ opcode, ddp, payloadLength }) => [opcode, ddp, payloadLength]),
      );
      expect(events.some(({ event }) => event.kind === 'note')).toBe(false);
      expect(
        fpdus.every(
          ({ captured, crc }) => captured === undefined || (captured <= 26 && crc.use === 'unknown'),
        ),
      ).toBe(true);
      const read = fpdus.find(({ opcode }) => opcode === 'RDMA Read Request')!;
      expect([read.captured, read.readRequest]).toEqual([26, undefined]);
      expect(renderSummary(dissector.connections[0]!)).toContain('not captured');
    },
  );

  it('an RTR Read whose size the snap length cut is not blamed (ENH-038)', () => {
    const enhanced = { a: true, b: false, c: false, d: true, ird: 4, ord: 4 };
    const read = encodeReadRequest({ sinkStag: 0, sinkTo: 0n, size: 0, sourceStag: 0, sourceTo: 0n });
    const rtr = encodeFpdus([untaggedUlpdu({ opcode: 1, qn: 1, msn: 1 }, read)], {
      crc: true,
      markers: false,
    });
    const wire = new Wire()
      .open()
      .send(0, encodeStartup({ kind: 'request', crc: true, markers: false, revision: 2, enhanced }))
      .send(1, encodeStartup({ kind: 'reply', crc: true, markers: false, revision: 2, enhanced }))
      .send(0, rtr);
    const records = wire
      .close()
      .packets.map((packet, i) => pcapRecord(1, i, packet.subarray(0, 90), packet.length));
    const { events } = dissectOctets(concat(pcapOf([]), ...records));
    expect(fpdusOf(events).map(({ opcode, captured }) => [opcode, captured])).toEqual([
      ['RDMA Read Request', 36],
    ]);
    expect(problemIds(events)).toEqual([]);
  });

  it('a segment lost within one FPDU leaves the next one where it is', () => {
    const wire = wireOf(TALK, new Wire([...WRAP]), 100);
    const lost = wire.packets.filter((_, i) => i !== 7);
    const { events } = dissectOctets(pcapOf(lost));
    expect(problemIds(events)).toEqual([]);
    expect(fpdusOf(events)).toHaveLength(FPDUS);
    expect(fpdusOf(events).find(({ direction }) => direction === 0)).toMatchObject({
      captured: 200,
      octets: 720,
      payloadLength: 700,
    });
  });

  it('ports that are used again, and connections that are none of ours', () => {
    const first = wireOf(TALK, new Wire([1, 2])).packets;
    const second = wireOf(TALK, new Wire([70_000, 80_000])).packets;
    const text = new TextEncoder().encode('GET / HTTP/1.1\r\n\r\n'.repeat(40));
    const other = new Wire([5, 6]).open().send(0, text).send(1, text).close().packets;
    const { events, dissector } = dissectOctets(pcapOf([...first, ...second, ...other]));
    expect(fpdusOf(events)).toHaveLength(2 * FPDUS);
    expect(dissector.connections.map(({ iwarp }) => iwarp)).toEqual([true, true, false]);
    expect(renderSummary(dissector.connections[2]!)).toContain('no iWARP seen');
    expect(renderSummary(dissector.connections[0]!)).toContain('Write 6, Send 3, ReadReq 1');
  });

  it('counts the packet that completes each FPDU', () => {
    const seen: (number | undefined)[] = [];
    const dissector = new CaptureDissector({
      event: ({ packet }) => seen.push(packet),
      remark: () => undefined,
    });
    dissector.push(pcapOf(wireOf(TALK).packets));
    dissector.end();
    expect(seen.slice(0, 5)).toEqual([4, 5, 6, 6, 6]);
    expect(dissector.began).toBe(1_700_000_000_000);
  });

  it('a reset', () => {
    const wire = new Wire()
      .open()
      .send(0, TALK.request)
      .send(1, TALK.reply)
      .send(0, TALK.fromInitiator.subarray(0, 30));
    const { events } = dissectOctets(
      pcapOf(wire.raw({ from: 1, seq: wire.seq[1], flags: FLAG.RST }).packets),
    );
    expect(renderJson(events.at(-1)!.event)).toContain('the connection was reset after 30 of');
  });

  it('names directions by the side that opened, in any order of the capture', () => {
    const { packets } = wireOf(TALK);
    const { events } = dissectOctets(pcapOf(packets.slice(1)));
    expect(events[0]!.connection.ends).toEqual(['10.0.0.1:40000', '10.0.0.2:7174']);
    expect(fpdusOf(events)).toHaveLength(FPDUS);
  });
});
