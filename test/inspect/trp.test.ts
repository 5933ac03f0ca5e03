// iWARP over UDP in captures: recognition, set-up, repeats, late datagrams, IPv6, and other datagrams.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CaptureDissector, type CaptureOptions, type CapturedConnection } from '../../src/inspect/index.ts';
import {
  renderEvent,
  renderLine,
  renderSummary,
  renderTree,
  type InspectEvent,
} from '../../src/inspect/index.ts';
import { captureOf, udpPacket, type Sent } from '../trp/capture.ts';
import { World } from '../trp/support.ts';
import { pcapOf } from './support.ts';

interface Golden {
  readonly name: string;
  readonly hex: string;
  readonly fields: { readonly opcode: string; readonly psn: number; readonly ackPsn: number } & {
    readonly ddp?: { readonly opcode: number; readonly payload: number; readonly [field: string]: unknown };
    readonly privateData?: string;
  };
}
const golden = JSON.parse(readFileSync(new URL('../trp/golden.json', import.meta.url), 'utf8')) as {
  readonly good: readonly Golden[];
};
const bytesOf = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));

function dissect(file: Uint8Array, options: CaptureOptions = {}) {
  const events: InspectEvent[] = [];
  const connections: CapturedConnection[] = [];
  const dissector = new CaptureDissector(
    {
      event: (connection, event) => {
        connections.push(connection);
        events.push(event);
      },
      remark: () => undefined,
    },
    options,
  );
  dissector.push(file);
  dissector.end();
  return { events, connections, dissector, lines: events.map((event) => renderLine(event)) };
}

const NAMES: Readonly<Record<string, string>> = {
  request: 'TRP Request',
  accept: 'TRP Accept',
  reject: 'TRP Reject',
  ack: 'TRP Ack',
  sack: 'TRP SACK',
  fin: 'TRP FIN',
  piece: 'TRP Piece',
};

describe('a datagram in a capture', () => {
  it.each(golden.good.map((one) => [one.name, one] as const))('has the fields of the page: %s', (_n, one) => {
    const sent: Sent = { bytes: bytesOf(one.hex), fromPort: 40_000, toPort: 7000, side: 0 };
    const { events } = dissect(pcapOf([udpPacket(sent)]), { wire: 'trp' });
    const { opcode, psn, ackPsn, ddp, privateData } = one.fields;
    expect(events).toHaveLength(1);
    const [event] = events;
    if (event?.kind !== 'trp') throw new Error('no datagram of TRP');
    expect([event.psn, event.ack, event.octets]).toEqual([psn, ackPsn, one.hex.length / 2]);
    if (ddp === undefined) expect(event.opcode).toBe(NAMES[opcode]);
    else {
      const { opcode: wanted, payload, to, ...rest } = ddp;
      expect([event.rdmap?.opcode, event.payloadLength]).toEqual([wanted, payload]);
      expect(event.ddp).toMatchObject(rest);
      if (event.ddp?.tagged === true) expect(event.ddp.to).toBe(BigInt(to as string));
    }
    if (privateData !== undefined) expect(event.setup?.privateData).toEqual(bytesOf(privateData));
    // Every octet has a field, and the views name them.
    expect(renderTree(event)).toContain('TRP');
    expect(renderEvent('octets', { number: 1, ends: ['a', 'b'] } as never, event)).toContain('0000  ');
    expect(() =>
      JSON.parse(renderEvent('json', { number: 1, ends: ['a', 'b'] } as never, event)),
    ).not.toThrow();
  });

  it.each([
    ['empty', ''],
    ['cut short', '000000010000'],
    ['of an unknown opcode', '00000001000000006000'],
  ])('is named where it is malformed: %s', (_name, hex) => {
    const request = bytesOf(golden.good[1]!.hex);
    const packets = [request, bytesOf(hex)].map((bytes) =>
      udpPacket({ bytes, fromPort: 40_000, toPort: 7000, side: 0 }),
    );
    const { events } = dissect(pcapOf(packets));
    expect(events.at(-1)).toMatchObject({ kind: 'note', octets: hex.length / 2 });
  });
});

describe('a connection over UDP in a capture', () => {
  const conversation = (lose = false, host = '127.0.0.1'): World => {
    const world = World.connected({ host, network: { latency: 1 } });
    if (lose) world.network.mayPass = ({ opcode, nth }) => opcode !== 0 || nth % 4 !== 3;
    const { client, server } = world;
    server.qp.postRecv({ wrId: 1, sges: [{ mr: server.memory, length: 60_000 }] });
    client.qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr: client.memory, length: 50_000 }] });
    world.run(5000);
    client.connection!.disconnect();
    world.run(5000);
    return world;
  };

  it.each([false, true])('is one from request to FIN, over the port that it moved to; IPv6 %s', (v6) => {
    const { connections, events, lines, dissector } = dissect(
      captureOf(conversation(false, v6 ? '::1' : '127.0.0.1'), v6),
    );
    expect(new Set(connections.map(({ number }) => number)).size).toBe(1);
    expect(connections[0]!.fromStart).toBe(true);
    expect(connections[0]!.ends[1]).not.toMatch(/:7000$/);
    expect(lines[0]).toMatch(/^→ .*TRP Req +IRD/);
    expect(lines[1]).toMatch(/^← .*TRP Acc +IRD/);
    expect(lines.filter((line) => / Send .* PSN \d+ ack/.test(line)).length).toBeGreaterThan(1);
    expect(lines.at(-1)).toContain('TRP FIN');
    expect(events.filter(({ kind }) => kind === 'note')).toEqual([]);
    expect(dissector.counts.udp).toBe(events.length);
    expect(events.flatMap(({ problems }) => problems)).toEqual([]);
  });

  it('names what is repeated and counts it', () => {
    const { connections, lines } = dissect(captureOf(conversation(true)));
    expect(connections[0]!.repeatedSegments).toBeGreaterThan(0);
    expect(lines.some((line) => line.endsWith('  repeated'))).toBe(true);
    expect(lines.some((line) => line.includes('TRP SACK'))).toBe(true);
    expect(renderSummary(connections[0]!)).toMatch(/over UDP, repeated → [1-9]/);
  });

  const data = bytesOf(golden.good.find(({ name }) => name === 'send')!.hex);
  const at = (psn: number, change = 0): Uint8Array => {
    const copy = data.slice();
    new DataView(copy.buffer).setUint32(0, psn);
    copy[copy.length - 1]! ^= change;
    return copy;
  };
  const remarks = (...datagrams: Uint8Array[]): (string | undefined)[] =>
    dissect(
      pcapOf(datagrams.map((bytes) => udpPacket({ bytes, fromPort: 40_000, toPort: 7000, side: 0 }))),
    ).events.map((event) => (event.kind === 'trp' ? event.remark : 'note'));

  it('says which datagram is late, and how many are missing before another', () => {
    expect(remarks(at(0xffff_ffff), at(2), at(0), at(1), at(3))).toEqual([
      undefined,
      '2 missing before it',
      'late',
      'late',
      undefined,
    ]);
  });

  it('compares a repeat with what was sent before', () => {
    expect(remarks(at(5), at(5), at(5, 1))).toEqual([undefined, 'repeated', 'repeated with other bytes']);
  });

  it('is recognised without its set-up by headers of DDP and RDMAP, and not by anything else', () => {
    const packet = (bytes: Uint8Array): Uint8Array =>
      udpPacket({ bytes, fromPort: 40_000, toPort: 7000, side: 0 });
    expect(dissect(pcapOf([packet(data)])).events).toHaveLength(1);
    const dns = bytesOf('abcd01000001000000000000076578616d706c6503636f6d0000010001');
    const { events, dissector } = dissect(pcapOf([packet(dns)]));
    expect(events).toEqual([]);
    expect(dissector.counts).toMatchObject({ udp: 0, other: 1 });
  });

  it('is left alone with the wire iwarp, and TCP with the wire trp', () => {
    const file = captureOf(conversation());
    expect(dissect(file, { wire: 'iwarp' }).events).toEqual([]);
    expect(dissect(file, { wire: 'trp' }).events.length).toBeGreaterThan(0);
  });
});
