// Captures made to grow what the reader holds: limits.ts says what it may, and the process is measured
// against it.

import { describe, expect, it } from 'vitest';
import { CaptureDissector } from '../../src/inspect/decode/capture.ts';
import {
  MAX_CONNECTIONS,
  MAX_REMARKS,
  MAX_SUMMARIES,
  WAITING_OCTETS,
} from '../../src/inspect/capture/limits.ts';
import { LINK_TYPE } from '../../src/inspect/capture/pcap.ts';
import { encodeFpdus, encodeReadRequest, encodeStartup, untaggedUlpdu } from '../support/naive/encoder.ts';
import { FLAG, concat, ipv4, pcapHeader, pcapRecord, tcp, type SegmentInput } from './support.ts';

/** What limits.ts promises. */
const BOUND_OCTETS = 256 * 1024 * 1024;
/** Of IPv4 and TCP. */
const HEADER_OCTETS = 40;
/** Packets between two looks at the process. */
const LOOK_EVERY = 2000;

/** A packet of the connection numbered `who`: its number stands in the client's address. */
function packet(who: number, segment: SegmentInput): Uint8Array {
  const octets = ipv4(segment.from, tcp(segment));
  const client = segment.from === 0 ? 12 : 16;
  octets.set([11, who >>> 16, who >>> 8, who], client);
  return octets;
}

interface Strain {
  readonly dissector: CaptureDissector;
  readonly mostWaiting: number;
  /** Growth of heap and buffers at the worst look. */
  readonly mostOctets: number;
}

function strain(packets: Iterable<Uint8Array>): Strain {
  const used = (): number => {
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const before = used();
  let mostWaiting = 0;
  let mostOctets = 0;
  const dissector = new CaptureDissector({ event: () => undefined, remark: () => undefined });
  dissector.push(pcapHeader(LINK_TYPE.RAW));
  let count = 0;
  for (const each of packets) {
    dissector.push(pcapRecord(1, 1, each));
    if (++count % LOOK_EVERY !== 0) continue;
    mostWaiting = Math.max(mostWaiting, dissector.waitingOctets);
    mostOctets = Math.max(mostOctets, used() - before);
  }
  dissector.end();
  return { dissector, mostWaiting, mostOctets };
}

function expectBounded({ dissector, mostWaiting, mostOctets }: Strain): void {
  expect(mostWaiting).toBeLessThanOrEqual(WAITING_OCTETS);
  expect(mostOctets).toBeLessThan(BOUND_OCTETS);
  expect(dissector.waitingOctets).toBe(0);
}

describe('captures that want to grow', () => {
  it('many connections, each with a start-up frame and the front of an FPDU', { timeout: 120_000 }, () => {
    const request = encodeStartup({ kind: 'request', crc: true, markers: true });
    const front = Uint8Array.of(0xff, 0xff, 0xc1, 0x40, 1, 2, 3, 4);
    const count = 9000;
    const strained = strain(
      (function* () {
        for (let who = 0; who < count; who++) {
          yield packet(who, { from: 0, seq: 1, flags: FLAG.SYN });
          yield packet(who, { from: 0, seq: 2, payload: concat(request, front) });
        }
      })(),
    );
    expectBounded(strained);
    expect(strained.mostWaiting).toBeLessThanOrEqual(2 * MAX_CONNECTIONS * 4096);
    expect(strained.dissector.counts.connections).toBe(count);
    expect(strained.dissector.connections.filter(({ iwarp }) => iwarp).length).toBeGreaterThanOrEqual(
      MAX_SUMMARIES,
    );
    expect(strained.dissector.connections.length).toBeLessThanOrEqual(2 * MAX_SUMMARIES);
  });

  it('iWARP is listed however many other connections come before it', () => {
    const request = encodeStartup({ kind: 'request', crc: true, markers: true });
    const { dissector } = strain(
      (function* () {
        for (let who = 0; who < MAX_SUMMARIES + 5; who++)
          yield packet(who, { from: 0, seq: 1, payload: new Uint8Array(20) });
        yield packet(0xffffff, { from: 0, seq: 1, flags: FLAG.SYN });
        yield packet(0xffffff, { from: 0, seq: 2, payload: request });
      })(),
    );
    expect(dissector.connections).toHaveLength(MAX_SUMMARIES + 1);
    expect(dissector.connections.at(-1)).toMatchObject({ number: MAX_SUMMARIES + 6, iwarp: true });
  });

  it.each([
    [0, 'empty ones that the snap length cut'],
    [1400, 'full ones'],
  ])(
    'segments that wait for one that never comes, in all connections: %i octets, %s',
    { timeout: 120_000 },
    (octets) => {
      const rounds = octets === 1400 ? 45 : 260;
      const strained = strain(
        (function* () {
          for (let who = 0; who < MAX_CONNECTIONS; who++)
            yield packet(who, { from: 0, seq: 1, flags: FLAG.SYN });
          const whole = packet(0, { from: 0, seq: 0, payload: new Uint8Array(Math.max(octets, 9)) });
          const segment = octets === 0 ? whole.subarray(0, HEADER_OCTETS) : whole;
          const view = new DataView(segment.buffer);
          for (let round = 1; round <= rounds; round++) {
            for (let who = 0; who < MAX_CONNECTIONS; who++) {
              view.setUint16(14, who);
              view.setUint32(24, 5000 * round);
              yield segment;
            }
          }
        })(),
      );
      expect(strained.mostWaiting).toBeGreaterThan(0.9 * WAITING_OCTETS);
      expectBounded(strained);
    },
  );

  it('requests that nobody answers', { timeout: 120_000 }, () => {
    const read = encodeReadRequest({ sinkStag: 1, sinkTo: 2n, size: 3, sourceStag: 4, sourceTo: 5n });
    const open = encodeStartup({ kind: 'request', crc: true, markers: false });
    const answer = encodeStartup({ kind: 'reply', crc: true, markers: false });
    const burst = Array.from(
      { length: 20 },
      (_, k) => (msn: number) => untaggedUlpdu({ opcode: 1, qn: 1, msn: msn + k }, read),
    );
    const strained = strain(
      (function* () {
        for (let who = 0; who < 200; who++) {
          yield packet(who, { from: 0, seq: 1, flags: FLAG.SYN });
          yield packet(who, { from: 1, seq: 1, ack: 2, flags: FLAG.SYN | FLAG.ACK });
          yield packet(who, { from: 0, seq: 2, payload: open });
          yield packet(who, { from: 1, seq: 2, payload: answer });
        }
        for (let round = 0; round < 10; round++) {
          const octets = encodeFpdus(
            burst.map((make) => make(round * 20 + 1)),
            { crc: true, markers: false },
          );
          for (let who = 0; who < 200; who++)
            yield packet(who, { from: 0, seq: 2 + open.length + round * octets.length, payload: octets });
        }
      })(),
    );
    expectBounded(strained);
    expect(strained.mostWaiting).toBeGreaterThan(200 * 100 * 100);
  });

  it('sequence numbers that jump without end are gaps, not room', () => {
    const strained = strain(
      (function* () {
        for (let i = 0; i < 20_000; i++)
          yield packet(0, { from: 0, seq: (i * 0x2fff_0000) >>> 0, ack: 0, payload: new Uint8Array(100) });
      })(),
    );
    expectBounded(strained);
  });

  it('remarks about the file are bounded', () => {
    let remarks = 0;
    const dissector = new CaptureDissector({ event: () => undefined, remark: () => remarks++ });
    dissector.push(pcapHeader(LINK_TYPE.RAW));
    for (let i = 0; i < 5000; i++) dissector.push(pcapRecord(1, i, Uint8Array.of(0x45, 0, 0)));
    dissector.end();
    expect(remarks).toBe(MAX_REMARKS);
    expect(dissector.counts).toMatchObject({ malformed: 5000, remarks: 5000 });
  });

  it('a record of the largest size believed', () => {
    const dissector = new CaptureDissector({ event: () => undefined, remark: () => undefined });
    const before = process.memoryUsage().external;
    dissector.push(pcapHeader(LINK_TYPE.RAW));
    const piece = new Uint8Array(1 << 20);
    const head = pcapRecord(1, 1, new Uint8Array(0), 1 << 24);
    new DataView(head.buffer).setUint32(8, 1 << 24, true);
    dissector.push(head);
    for (let i = 0; i < 16; i++) dissector.push(piece);
    expect(process.memoryUsage().external - before).toBeLessThan(BOUND_OCTETS / 2);
    dissector.end();
    expect(dissector.counts.packets).toBe(1);
  });
});
