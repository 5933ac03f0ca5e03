// TCP as a receiver takes it: what it does not accept is not decoded and is counted; bytes that had to wait
// keep their packet; packets that are not looked into are named.
import { describe, expect, it } from 'vitest';
import { encodeFpdus, encodeStartup, taggedUlpdu, untaggedUlpdu } from '../support/naive/encoder.ts';
import {
  concat,
  dissectOctets,
  ethernet,
  FLAG,
  fpdusOf,
  ipv4,
  pcapHeader,
  pcapOf,
  pcapRecord,
  problemIds,
  tcp,
  Wire,
} from './support.ts';

const REQUEST = encodeStartup({ kind: 'request', crc: true });
const REPLY = encodeStartup({ kind: 'reply', crc: true });

function send(msn: number, octets = 20): Uint8Array {
  return encodeFpdus([untaggedUlpdu({ opcode: 3, qn: 0, msn }, new Uint8Array(octets).fill(msn))], {
    crc: true,
    markers: false,
  });
}

/** An open connection that has exchanged its start-up frames. */
function begun(start?: [number, number]): Wire {
  return new Wire(start).open().send(0, REQUEST).send(1, REPLY);
}

const decoded = (wire: Wire): ReturnType<typeof dissectOctets> => dissectOctets(pcapOf(wire.packets));

describe('segments that a receiver does not accept', () => {
  it.each([
    ['outside of the window', (seq: number) => seq - 0x1000_0000],
    ['of sequence number 0', () => 0],
    ['inside the window, but not the next one', (seq: number) => seq + 7],
  ])('a RST %s does not end the connection', (_what, number) => {
    const wire = begun().send(0, send(1));
    wire.raw({ from: 1, seq: number(wire.seq[1]), flags: FLAG.RST });
    const { events, dissector } = decoded(wire.send(0, send(2)).send(1, send(1)).close());
    expect(fpdusOf(events)).toHaveLength(3);
    expect(dissector.counts.unassigned).toBe(1);
  });

  it('a RST with the expected number ends it, and its text is not decoded', () => {
    const wire = begun().send(1, send(1).subarray(0, 30));
    wire.raw({ from: 1, seq: wire.seq[1], flags: FLAG.RST, payload: send(9) });
    const { events } = decoded(wire);
    expect(fpdusOf(events)).toEqual([]);
    expect(events.map(({ event }) => ('message' in event ? event.message : ''))).toContainEqual(
      expect.stringContaining('the connection was reset after 30'),
    );
  });

  it('a FIN outside of the window is not the end of the stream', () => {
    const wire = begun().send(0, send(1));
    wire.raw({ from: 1, seq: wire.seq[1], ack: wire.seq[0] });
    wire.raw({ from: 0, seq: wire.seq[0] + 5_000_000, ack: wire.seq[1], flags: FLAG.FIN | FLAG.ACK });
    const { events, dissector } = decoded(wire.send(0, send(2)).close());
    expect(fpdusOf(events)).toHaveLength(2);
    expect(events.filter(({ event }) => 'missing' in event)).toEqual([]);
    expect(dissector.counts.unassigned).toBe(1);
  });

  it('a SYN within a connection does not end it, but one that is answered begins another', () => {
    const wire = begun().send(0, send(1)).raw({ from: 0, seq: 77_000_000, flags: FLAG.SYN });
    wire.send(0, send(2));
    const first = decoded(wire);
    expect([fpdusOf(first.events).length, first.dissector.counts.connections]).toEqual([2, 1]);
    const next = begun([88_000_000, 99_000_000]).send(0, send(1));
    const both = dissectOctets(pcapOf([...wire.packets, ...next.packets]));
    expect([fpdusOf(both.events).length, both.dissector.counts.connections]).toEqual([3, 2]);
  });

  it.each(['FIN', 'RST'])(
    'ports in use again after a %s, without a SYN in the capture, are another connection',
    (how) => {
      const first = begun().send(0, send(1));
      if (how === 'FIN') first.close();
      else first.raw({ from: 0, seq: first.seq[0], ack: first.seq[1], flags: FLAG.RST | FLAG.ACK });
      const second = begun([3_000_000_000, 4_000_000_000]).send(0, send(1));
      const { events, dissector } = dissectOctets(pcapOf([...first.packets, ...second.packets.slice(3)]));
      expect(fpdusOf(events)).toHaveLength(2);
      expect(events.filter(({ event }) => event.kind === 'startup')).toHaveLength(4);
      expect(dissector.counts.unassigned).toBe(0);
    },
  );

  it('what follows a RST under the old numbers is counted', () => {
    const wire = begun();
    wire.raw({ from: 0, seq: wire.seq[0], flags: FLAG.RST }).send(1, send(1));
    expect(decoded(wire).dissector.counts.unassigned).toBe(1);
  });
});

describe('checksums', () => {
  const sum = (bytes: Uint8Array): number => {
    let total = 0;
    for (let i = 0; i < bytes.length; i++) total += i % 2 === 0 ? bytes[i]! << 8 : bytes[i]!;
    while (total > 0xffff) total = (total & 0xffff) + (total >>> 16);
    return total;
  };
  /** An IPv4 packet whose TCP checksum is right, or off by `wrong`. */
  const packet = (from: 0 | 1, segment: Uint8Array, wrong = 0): Uint8Array => {
    const pseudo = Uint8Array.of(
      10,
      0,
      0,
      1 + from,
      10,
      0,
      0,
      2 - from,
      0,
      6,
      segment.length >>> 8,
      segment.length & 0xff,
    );
    const field = (~sum(concat(pseudo, segment)) & 0xffff) ^ wrong;
    segment.set([field >>> 8, field & 0xff], 16);
    return ipv4(from, segment);
  };

  it('a damaged segment gives way to its good copy, before or after it', () => {
    for (const order of [
      ['bad', 'good'],
      ['good', 'bad'],
    ]) {
      const wire = new Wire([1000, 5000], (from, segment) => packet(from, segment))
        .open()
        .send(0, REQUEST)
        .send(1, REPLY);
      const good = send(1);
      const bad = good.slice();
      bad[22]! ^= 0x40;
      for (const which of order) {
        const payload = which === 'bad' ? bad : good;
        wire.packets.push(
          packet(
            0,
            tcp({ from: 0, seq: wire.seq[0], ack: wire.seq[1], payload }),
            which === 'bad' ? 0x5a5a : 0,
          ),
        );
      }
      wire.seq[0] += good.length;
      wire.raw({ from: 1, seq: wire.seq[1], ack: wire.seq[0] });
      const { events, dissector } = dissectOctets(pcapOf(wire.packets, 101));
      expect(
        fpdusOf(events).map(({ crc }) => crc.ok),
        order.join(),
      ).toEqual([true]);
      expect(problemIds(events)).toEqual([]);
      expect(dissector.counts.damaged).toBe(order[0] === 'bad' ? 1 : 0);
    }
  });

  it('a segment with a wrong checksum counts if the receiver acknowledges it or no other copy comes', () => {
    const wire = new Wire([1000, 5000], (from, segment) => packet(from, segment))
      .open()
      .send(0, REQUEST)
      .send(1, REPLY);
    for (const msn of [1, 2]) {
      wire.packets.push(
        packet(0, tcp({ from: 0, seq: wire.seq[0], ack: wire.seq[1], payload: send(msn) }), 3),
      );
      wire.seq[0] += send(msn).length;
      if (msn === 1) wire.raw({ from: 1, seq: wire.seq[1], ack: wire.seq[0] });
    }
    expect(fpdusOf(dissectOctets(pcapOf(wire.packets, 101)).events)).toHaveLength(2);
  });

  it('where no checksum is right, an offloading sender is captured: nothing waits', () => {
    const wire = new Wire([1000, 5000], (from, segment) => packet(from, segment, 9));
    const { events, dissector } = dissectOctets(
      pcapOf(wire.open().send(0, REQUEST).send(1, REPLY).send(0, send(1)).packets, 101),
    );
    expect(fpdusOf(events)).toHaveLength(1);
    expect(dissector.counts.damaged).toBe(0);
  });
});

describe('packet numbers and times of bytes that had to wait', () => {
  /** The times of the FPDUs in a capture of these packets, one each second from 0. */
  const times = (packets: readonly Uint8Array[]): number[] => {
    const records = packets.map((one, i) => pcapRecord(1_700_000_000 + i, 0, one));
    return fpdusOf(dissectOctets(concat(pcapHeader(1), ...records)).events).map(({ time }) => time);
  };

  it('a capture of one direction has the packet that completed each FPDU', () => {
    const wire = begun().send(0, send(1)).send(0, send(2)).send(0, send(3));
    expect(times(wire.packets.filter((_, i) => i !== 1 && i !== 4))).toEqual([3, 4, 5]);
  });

  it('so has a capture that begins within a connection without CRC', () => {
    const wire = new Wire().open();
    for (let i = 0; i < 4; i++) {
      const write = taggedUlpdu({ opcode: 0, stag: 5, to: BigInt(i * 100) }, new Uint8Array(100));
      wire.send(0, encodeFpdus([write], { crc: false, markers: false }));
    }
    expect(times(wire.packets.slice(3))).toEqual([0, 1, 2, 3]);
  });

  it('bytes behind a hole count from when it is filled, behind a lost segment from their own packet', () => {
    const wire = begun();
    const [one, two, three] = [send(1), send(2), send(3)];
    const at = wire.seq[0];
    wire.raw({ from: 0, seq: at + one.length, payload: two }).raw({ from: 0, seq: at, payload: one });
    wire.seq[0] = at + one.length + two.length + three.length; // the third is not captured
    wire.send(0, send(4)).raw({ from: 1, seq: wire.seq[1], ack: wire.seq[0] });
    expect(times(wire.packets)).toEqual([6, 6, 7]);
  });
});

describe('where little was captured', () => {
  it('the side that sends the MPA Request has opened the connection, whatever the ports', () => {
    const wire = begun().send(0, send(1));
    // The listener has the higher port: exchange them.
    const swapped = wire.packets.slice(2).map((one) => {
      const other = one.slice();
      for (const offset of [34, 36]) {
        const high = other[offset] === 0x9c;
        other.set(high ? [0x1c, 0x06] : [0x9c, 0x40], offset);
      }
      return other;
    });
    const { events } = dissectOctets(pcapOf(swapped));
    const { connection, event } = events.find((one) => one.event.kind === 'startup')!;
    expect([event.direction, connection.ends]).toEqual([0, ['10.0.0.1:7174', '10.0.0.2:40000']]);
    expect(connection.summary.directions.map(({ fpdus }) => fpdus)).toEqual([1, 0]);
  });

  it.each<[string, (i: number) => Uint8Array]>([
    ['Writes', (i) => taggedUlpdu({ opcode: 0, stag: 9, to: BigInt(1400 * i) }, new Uint8Array(1400))],
    ['Sends', (i) => untaggedUlpdu({ opcode: 3, qn: 0, msn: i + 1 }, new Uint8Array(1400))],
  ])('%s behind a lost packet are found under a short snap length', (_what, make) => {
    const wire = begun();
    const first = wire.packets.length;
    for (let i = 0; i < 6; i++) wire.send(0, encodeFpdus([make(i)], { crc: true, markers: false }));
    wire.packets.splice(first + 2, 1);
    const records = wire.packets.map((one, i) =>
      pcapRecord(1_700_000_000 + i, 0, one.subarray(0, 110), one.length),
    );
    expect(fpdusOf(dissectOctets(concat(pcapHeader(1), ...records)).events)).toHaveLength(5);
  });
});

it('packets that are not looked into are counted by name', () => {
  const ip = (protocol: number, body: readonly number[]): Uint8Array => {
    const made = ipv4(0, Uint8Array.from([...body, ...new Uint8Array(20)]));
    made[9] = protocol;
    return ethernet(made);
  };
  const mpls = ethernet(new Uint8Array(40), []);
  mpls.set([0x88, 0x47], 12);
  const { dissector } = dissectOctets(
    pcapOf([ip(17, [0x15, 0xb3, 0x12, 0xb5]), ip(17, [0, 53, 0, 53]), ip(47, []), ip(4, []), mpls, mpls]),
  );
  expect([...dissector.counts.otherKinds]).toEqual([
    ['UDP port 4789 (VXLAN)', 1],
    ['IP protocol 17 (UDP)', 1],
    ['IP protocol 47 (GRE)', 1],
    ['IP protocol 4 (IPv4 in IP)', 1],
    ['EtherType 0x8847 (MPLS)', 2],
  ]);
});
