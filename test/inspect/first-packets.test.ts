// A capture that begins inside a connection, its first packets in any order: the first in the file need not
// be the first of its stream (RFC 9293 3.4).

import { describe, expect, it } from 'vitest';
import { FirstPackets } from '../../src/inspect/capture/first-packets.ts';
import { OctetBudget } from '../../src/inspect/capture/octet-queue.ts';
import { parsePacket } from '../../src/inspect/capture/packet.ts';
import { LINK_TYPE } from '../../src/inspect/capture/pcap.ts';
import { CaptureDissector } from '../../src/inspect/decode/capture.ts';
import type { InspectEvent } from '../../src/inspect/decode/types.ts';
import { renderLine } from '../../src/inspect/render/text.ts';
import { renderSummary, renderSummaryJson } from '../../src/inspect/render/views.ts';
import { encodeFpdus, untaggedUlpdu } from '../support/naive/encoder.ts';
import { Draw } from '../model/draw.ts';
import {
  FLAG,
  Wire,
  bytesOf,
  concat,
  conversation,
  dissectOctets,
  ethernet,
  fpdusOf,
  pcapHeader,
  pcapOf,
  pcapRecord,
  problemIds,
  wireOf,
} from './support.ts';

/** Both directions pass 2^32 within the conversation. */
const NEAR_WRAP = [0xffff_ff00, 0xffff_fe00] as const;

/** One Send as an FPDU. */
const message = (msn: number): Uint8Array =>
  encodeFpdus([untaggedUlpdu({ opcode: 3, qn: 0, msn }, bytesOf(40, msn))], { crc: true, markers: false });

/** Packets of side 0, each with one Send, their numbers from 1. */
function sends(count: number, wire: Wire = new Wire([...NEAR_WRAP])): Uint8Array[] {
  for (let msn = 1; msn <= count; msn++) wire.send(0, message(msn));
  return wire.packets;
}

const numbers = (file: Uint8Array): (number | undefined)[] =>
  fpdusOf(dissectOctets(file).events).map(({ ddp }) => (ddp?.tagged === false ? ddp.msn : undefined));

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

/** A file of packets at these seconds. */
const fileAt = (packets: readonly (readonly [number, Uint8Array])[]): Uint8Array =>
  concat(pcapHeader(1), ...packets.map(([second, packet]) => pcapRecord(1000 + second, 0, packet)));

describe('the first packets of a stream in the wrong order', () => {
  it.each([[[1, 0, 2, 3]], [[2, 0, 1, 3]], [[3, 2, 1, 0]], [[1, 2, 3, 0]]])('%j', (order) => {
    const packets = sends(4);
    expect(numbers(pcapOf(order.map((i) => packets[i]!)))).toEqual(upTo(4));
  });

  it('the last of 32 is the first', () => {
    const [first, ...rest] = sends(32);
    expect(numbers(pcapOf([...rest, first!]))).toEqual(upTo(32));
  });

  it('any order in both directions gives what the same packets behind a SYN give', () => {
    const draw = new Draw(47);
    const { packets } = wireOf(conversation(), new Wire([...NEAR_WRAP]), 200);
    const seen = (file: Uint8Array): unknown => {
      const { events, dissector } = dissectOctets(file);
      expect(dissector.waitingOctets).toBe(0);
      const { ends, earlySegments, summary } = dissector.connections[0]!;
      return [ends, earlySegments, summary.directions, events.map(({ event }) => renderLine(event))];
    };
    // From the Request on: it and the Reply are among the packets that change their places.
    const [opening, after] = [packets.slice(0, 3), packets.slice(3)];
    for (let round = 0; round < 200; round++) {
      const mixed = [...after];
      for (let i = 27; i > 0; i--) {
        const j = draw.below(i + 1);
        [mixed[i], mixed[j]] = [mixed[j]!, mixed[i]!];
      }
      const same = opening.map(() => ethernet(new Uint8Array(40)));
      expect(seen(pcapOf([...same, ...mixed])), `round ${round}`).toEqual(
        seen(pcapOf([...opening, ...mixed])),
      );
    }
  });

  it('in the direction whose SYN was not captured', () => {
    const wire = new Wire([...NEAR_WRAP]).open();
    wire.packets.splice(1, 2);
    const { request, reply, fromInitiator } = conversation();
    wire.send(0, request).send(1, reply.subarray(0, 10)).send(1, reply.subarray(10)).send(0, fromInitiator);
    const [a, b] = wire.packets.splice(2, 2);
    wire.packets.splice(2, 0, b!, a!);
    const { events } = dissectOctets(pcapOf(wire.packets));
    expect(events.map(({ event }) => event.kind)).toEqual(['startup', 'startup', ...Array(10).fill('fpdu')]);
    expect(problemIds(events)).toEqual([]);
  });

  it('events keep the times and the packets that completed them', () => {
    const [one, two, three] = sends(3);
    const { events } = dissectOctets(pcapOf([two!, one!, three!]));
    expect(
      events.flatMap(({ event }) => (event.kind === 'fpdu' ? [Math.round(event.time * 1e3)] : [])),
    ).toEqual([1, 1, 2]);
  });
});

describe('what comes too late for the first place', () => {
  it.each([
    ['behind 32 packets', (early: Uint8Array, rest: readonly Uint8Array[]) => pcapOf([...rest, early])],
    [
      'more than a second later',
      (early: Uint8Array, [first, ...rest]: readonly Uint8Array[]) =>
        fileAt([[0, first!], [2, early], ...rest.map((packet) => [3, packet] as const)]),
    ],
    [
      'after both FINs',
      (early: Uint8Array, rest: readonly Uint8Array[]) => {
        const fins = new Wire([0xffff_ff00 + 68 * 41, NEAR_WRAP[1]]).close().packets;
        return pcapOf([...rest.slice(20), ...fins, early]);
      },
    ],
  ])('%s is left out, and said to be', (_name, order) => {
    const [early, ...rest] = sends(41);
    const { events, dissector } = dissectOctets(order(early!, rest));
    const found = fpdusOf(events).map(({ ddp }) => (ddp?.tagged === false ? ddp.msn : undefined));
    expect(found[0]).toBeGreaterThan(1);
    const [connection] = dissector.connections;
    expect(connection!.earlySegments).toBe(1);
    expect(connection!.repeatedSegments).toBe(0);
    expect(dissector.counts.early).toBe(1);
    expect(renderSummary(connection!)).toContain('left out: 1 segment from before the first decoded byte');
    expect(JSON.parse(renderSummaryJson(connection!))).toMatchObject({ earlySegments: 1 });
    expect(dissector.waitingOctets).toBe(0);
  });

  it('a keep-alive before the first message is none', () => {
    const wire = new Wire([...NEAR_WRAP]).send(0, message(1));
    wire.raw({ from: 0, seq: NEAR_WRAP[0] + 1, payload: bytesOf(0) });
    const { dissector } = dissectOctets(pcapOf(wire.packets));
    expect(dissector.connections[0]).toMatchObject({ earlySegments: 0, iwarp: true });
  });
});

describe('the end of the look ahead', () => {
  it('a segment of another time does not move the beginning', () => {
    const packets = sends(40);
    const far = new Wire([NEAR_WRAP[0] - 0x0200_0000, 0]).send(0, bytesOf(50)).packets[0]!;
    packets.splice(3, 0, far);
    expect(numbers(pcapOf(packets))).toEqual(upTo(40));
  });

  it('a reset ends the connection at once', () => {
    const wire = new Wire([...NEAR_WRAP]).send(0, message(1));
    wire.raw({ from: 0, seq: wire.seq[0], flags: FLAG.RST | FLAG.ACK });
    const { events, dissector } = dissectOctets(pcapOf(wire.packets));
    expect(fpdusOf(events)).toHaveLength(1);
    expect(dissector.waitingOctets).toBe(0);
  });

  it('a SYN behind a few packets of an old connection begins a new one', () => {
    const old = sends(3, new Wire([70, 90]));
    const { packets } = wireOf(conversation(), new Wire([...NEAR_WRAP]));
    const { events, dissector } = dissectOctets(pcapOf([...old, ...packets]));
    expect(fpdusOf(events)).toHaveLength(3 + 14);
    expect(dissector.connections).toHaveLength(2);
    expect(problemIds(events)).toEqual([]);
  });

  it('a live capture shows a resting connection with the first packet a second later', () => {
    const [one, two] = sends(2);
    const events: InspectEvent[] = [];
    const dissector = new CaptureDissector({ event: (_, event) => events.push(event), remark: () => {} });
    dissector.push(concat(pcapHeader(1), pcapRecord(1000, 0, one!)));
    expect(events).toEqual([]);
    dissector.push(pcapRecord(1002, 0, two!));
    expect(fpdusOf(events)).toHaveLength(2);
  });

  it('packets are held within the budget, which gets their room back', () => {
    const budget = new OctetBudget(2000);
    const [packet] = sends(1);
    const segment = parsePacket(packet!, 0, packet!.length, LINK_TYPE.ETHERNET);
    if (segment.kind !== 'tcp') throw new Error(segment.kind);
    const first = new FirstPackets(budget);
    const holds = Array.from({ length: 8 }, (_, i) => first.hold(segment, 'a', { time: 0, packet: i }));
    // A packet counts with its text of 68 bytes and 256 for the objects around it.
    expect(holds).toEqual([true, true, true, true, true, true, false, false]);
    expect(first.release().map(({ stamp }) => stamp.packet)).toEqual([0, 1, 2, 3, 4, 5]);
    expect([first.holds, budget.taken]).toEqual([false, 0]);
  });
});
