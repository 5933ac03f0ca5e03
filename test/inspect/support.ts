// Captures made in memory: TCP segments in IPv4 or IPv6 packets after any link header, and whole
// conversations built with the naive codec (test/support/naive), which shares no code with the decoder under
// test.

import { ConnectionDecoder } from '../../src/inspect/decode/connection-decoder.ts';
import { CaptureDissector, type CapturedConnection } from '../../src/inspect/decode/capture.ts';
import { LINK_TYPE } from '../../src/inspect/capture/pcap.ts';
import type { DecodedFpdu, InspectEvent } from '../../src/inspect/decode/types.ts';
import {
  encodeFpdus,
  encodeReadRequest,
  encodeStartup,
  taggedUlpdu,
  untaggedUlpdu,
  type NaiveStartupInput,
} from '../support/naive/encoder.ts';

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export function bytesOf(length: number, first = 0): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => first + i * 7);
}

export const FLAG = { FIN: 1, SYN: 2, RST: 4, ACK: 16 } as const;

export interface SegmentInput {
  readonly from: 0 | 1;
  readonly seq: number;
  readonly ack?: number;
  readonly flags?: number;
  readonly payload?: Uint8Array;
}

const PORTS = [40_000, 7174] as const;

/** A TCP segment, header and payload. */
export function tcp({ from, seq, ack, flags, payload }: SegmentInput): Uint8Array {
  const header = new Uint8Array(20);
  const view = new DataView(header.buffer);
  view.setUint16(0, PORTS[from]);
  view.setUint16(2, PORTS[from ^ 1]!);
  view.setUint32(4, seq >>> 0);
  view.setUint32(8, (ack ?? 0) >>> 0);
  header[12] = 5 << 4;
  header[13] = flags ?? FLAG.ACK;
  view.setUint16(14, 0xffff);
  return concat(header, payload ?? new Uint8Array(0));
}

/** 10.0.0.1 and 10.0.0.2. `fragment` is the flags and offset field. */
export function ipv4(
  from: 0 | 1,
  segment: Uint8Array,
  fragment = 0,
  totalLength: number = 20 + segment.length,
): Uint8Array {
  const header = new Uint8Array(20);
  const view = new DataView(header.buffer);
  header[0] = 0x45;
  view.setUint16(2, totalLength);
  view.setUint16(6, fragment);
  header[8] = 64;
  header[9] = 6;
  header.set([10, 0, 0, 1 + from], 12);
  header.set([10, 0, 0, 2 - from], 16);
  let sum = 0;
  for (let i = 0; i < 20; i += 2) sum += view.getUint16(i);
  sum = (sum & 0xffff) + (sum >>> 16);
  view.setUint16(10, ~(sum + (sum >>> 16)) & 0xffff);
  return concat(header, segment);
}

/** fd00::1 and fd00::2, with `extensions` (whole headers) between; `first` names the first of them. */
export function ipv6(
  from: 0 | 1,
  segment: Uint8Array,
  first = 6,
  extensions: Uint8Array = new Uint8Array(0),
): Uint8Array {
  const header = new Uint8Array(40);
  const view = new DataView(header.buffer);
  header[0] = 0x60;
  view.setUint16(4, extensions.length + segment.length);
  header[6] = first;
  header[7] = 64;
  header.set([0xfd, 0], 8);
  header[23] = 1 + from;
  header.set([0xfd, 0], 24);
  header[39] = 2 - from;
  return concat(header, extensions, segment);
}

/** Ethernet with `tags` (EtherType and control pairs) in front of the payload. */
export function ethernet(payload: Uint8Array, tags: readonly number[] = []): Uint8Array {
  const type = payload[0]! >>> 4 === 6 ? 0x86dd : 0x0800;
  const words = [...tags, type];
  return concat(
    new Uint8Array(12),
    Uint8Array.from(words.flatMap((word) => [word >>> 8, word & 0xff])),
    payload,
  );
}

/** The file header of a pcap file with nanosecond stamps, little-endian. */
export function pcapHeader(linkType: number): Uint8Array {
  const header = new Uint8Array(24);
  const view = new DataView(header.buffer);
  view.setUint32(0, 0xa1b2_3c4d, true);
  view.setUint16(4, 2, true);
  view.setUint16(6, 4, true);
  view.setUint32(16, 0x4_0000, true);
  view.setUint32(20, linkType, true);
  return header;
}

/** The record of one packet, for a file that {@link pcapHeader} began. */
export function pcapRecord(
  seconds: number,
  nanos: number,
  packet: Uint8Array,
  originalLength: number = packet.length,
): Uint8Array {
  const record = new Uint8Array(16 + packet.length);
  const view = new DataView(record.buffer);
  view.setUint32(0, seconds, true);
  view.setUint32(4, nanos, true);
  view.setUint32(8, packet.length, true);
  view.setUint32(12, originalLength, true);
  record.set(packet, 16);
  return record;
}

/** A pcap file of packets a millisecond apart. */
export function pcapOf(packets: readonly Uint8Array[], linkType: number = LINK_TYPE.ETHERNET): Uint8Array {
  return concat(
    pcapHeader(linkType),
    ...packets.map((packet, i) => pcapRecord(1_700_000_000, i * 1_000_000, packet)),
  );
}

/** A conversation, put into segments by hand: keeps the sequence numbers. */
export class Wire {
  readonly packets: Uint8Array[] = [];
  readonly seq: [number, number];
  private readonly wrap: (from: 0 | 1, segment: Uint8Array) => Uint8Array;

  constructor(
    start: [number, number] = [1000, 5000],
    wrap: (from: 0 | 1, segment: Uint8Array) => Uint8Array = (from, segment) => ethernet(ipv4(from, segment)),
  ) {
    this.seq = start;
    this.wrap = wrap;
  }

  /** SYN, SYN and ACK, ACK. */
  open(): this {
    this.raw({ from: 0, seq: this.seq[0]++, flags: FLAG.SYN });
    this.raw({ from: 1, seq: this.seq[1]++, ack: this.seq[0], flags: FLAG.SYN | FLAG.ACK });
    return this.raw({ from: 0, seq: this.seq[0], ack: this.seq[1] });
  }

  raw(segment: SegmentInput): this {
    this.packets.push(this.wrap(segment.from, tcp(segment)));
    return this;
  }

  /** The octets of one side in segments of at most `size`. */
  send(from: 0 | 1, octets: Uint8Array, size = 1448): this {
    for (let at = 0; at < octets.length; at += size) {
      const payload = octets.subarray(at, at + size);
      this.raw({ from, seq: this.seq[from], ack: this.seq[from ^ 1]!, payload });
      this.seq[from] += payload.length;
    }
    return this;
  }

  /** FIN from both sides. */
  close(): this {
    for (const from of [0, 1] as const) {
      this.raw({ from, seq: this.seq[from], ack: this.seq[from ^ 1]!, flags: FLAG.FIN | FLAG.ACK });
      this.seq[from]++;
    }
    return this;
  }
}

const SEND = 3;
const WRITE = 0;

interface ConversationOptions {
  readonly request?: Partial<NaiveStartupInput>;
  readonly reply?: Partial<NaiveStartupInput>;
  readonly crc?: boolean;
  readonly markers?: readonly [boolean, boolean];
}

export interface Conversation {
  readonly request: Uint8Array;
  readonly reply: Uint8Array;
  readonly fromInitiator: Uint8Array;
  readonly fromResponder: Uint8Array;
}

/** Start-up, three Writes and Sends, a read of 3000 octets answered in three segments, a Send back. */
export function conversation(options: ConversationOptions = {}): Conversation {
  const crc = options.crc ?? true;
  const [there, back] = options.markers ?? [false, false];
  const fpdus: Uint8Array[] = [];
  for (let i = 1; i <= 3; i++) {
    fpdus.push(
      taggedUlpdu({ opcode: WRITE, stag: 0x11223344, to: BigInt(4096 * i), last: false }, bytesOf(700, i)),
    );
    fpdus.push(taggedUlpdu({ opcode: WRITE, stag: 0x11223344, to: BigInt(4096 * i + 700) }, bytesOf(33, i)));
    fpdus.push(untaggedUlpdu({ opcode: SEND, qn: 0, msn: i }, bytesOf(17 * i, i)));
  }
  const read = {
    sinkStag: 0xaabbcc00,
    sinkTo: 0x10000n,
    size: 3000,
    sourceStag: 0x11223344,
    sourceTo: 0x2000n,
  };
  fpdus.push(untaggedUlpdu({ opcode: 1, qn: 1, msn: 1 }, encodeReadRequest(read)));
  const answers = [0, 1, 2].map((i) =>
    taggedUlpdu(
      { opcode: 2, stag: read.sinkStag, to: read.sinkTo + BigInt(i * 1000), last: i === 2 },
      bytesOf(1000, i),
    ),
  );
  return {
    request: encodeStartup({ kind: 'request', crc, markers: back, ...options.request }),
    reply: encodeStartup({ kind: 'reply', crc, markers: there, ...options.reply }),
    fromInitiator: encodeFpdus(fpdus, { crc, markers: there }),
    fromResponder: encodeFpdus([...answers, untaggedUlpdu({ opcode: SEND, qn: 0, msn: 1 }, bytesOf(9))], {
      crc,
      markers: back,
    }),
  };
}

/** The packets of a conversation from SYN to FIN. */
export function wireOf(talk: Conversation, wire: Wire = new Wire(), size?: number): Wire {
  return wire
    .open()
    .send(0, talk.request)
    .send(1, talk.reply)
    .send(0, talk.fromInitiator, size)
    .send(1, talk.fromResponder, size)
    .close();
}

interface Dissected {
  readonly events: { readonly connection: CapturedConnection; readonly event: InspectEvent }[];
  readonly remarks: string[];
  readonly dissector: CaptureDissector;
}

/** Dissect a whole file, pushed in pieces of `piece` octets. */
export function dissectOctets(file: Uint8Array, piece: number = file.length): Dissected {
  const events: Dissected['events'] = [];
  const remarks: string[] = [];
  const dissector = new CaptureDissector({
    event: (connection, event) => events.push({ connection, event }),
    remark: (offset, message) => remarks.push(`${offset}: ${message}`),
  });
  for (let at = 0; at < file.length; at += piece) dissector.push(file.subarray(at, at + piece));
  dissector.end();
  return { events, remarks, dissector };
}

export function fpdusOf(events: readonly (InspectEvent | { readonly event: InspectEvent })[]): DecodedFpdu[] {
  return events.map((one) => ('event' in one ? one.event : one)).filter((event) => event.kind === 'fpdu');
}

/** Problem ids of all events, in order. */
export function problemIds(events: readonly (InspectEvent | { readonly event: InspectEvent })[]): string[] {
  return events.flatMap((one) => ('event' in one ? one.event : one).problems.map(({ id }) => id));
}

/** Decode one conversation without TCP, cut into pieces of `piece` octets. */
export function decodeConversation(talk: Conversation, piece: number = 1 << 20): InspectEvent[] {
  const events: InspectEvent[] = [];
  const decoder = new ConnectionDecoder({ emit: (event) => events.push(event) });
  const push = (direction: 0 | 1, octets: Uint8Array): void => {
    for (let at = 0; at < octets.length; at += piece)
      decoder.push(direction, octets, at, Math.min(octets.length, at + piece), 0);
  };
  push(0, talk.request);
  push(1, talk.reply);
  push(0, talk.fromInitiator);
  push(1, talk.fromResponder);
  decoder.close(0);
  return events;
}
