/**
 * The FPDUs of a capture, for judging siw by one: pcap, IP and TCP taken apart here, MPA, DDP and RDMAP by
 * the suite's own codec. The stack's dissector reads octets as the stack does: with it, a mistake of ours
 * could pass for a fault of siw.
 */
import { FpduReader } from '../probe/fpdu.ts';
import type { ReceivedFpdu } from '../probe/fpdu.ts';
import { parseSegment } from '../probe/messages.ts';
import type { ParsedSegment } from '../probe/messages.ts';
import { parseStartup, startupLength } from '../probe/startup.ts';
import type { ParsedStartup } from '../probe/startup.ts';
import { REPLY_KEY, REQUEST_KEY } from '../probe/wire.ts';

/** The side that opened the connection, or the other. */
export type Side = 'client' | 'server';

/** An FPDU, and where it was seen. */
export interface CapturedFpdu extends ReceivedFpdu {
  /** Connections count from 1, in the order in which they begin. */
  readonly connection: number;
  readonly from: Side;
  /** Whether the two start-up frames put CRC in use. */
  readonly crcInUse: boolean;
  /** Null if the ULPDU is shorter than its header. */
  readonly segment: ParsedSegment | null;
}

/**
 * The FPDUs of a capture in the order in which they became whole. Throws if it is no capture, lacks octets of
 * a packet, or is not understood.
 */
export function* fpdusOf(capture: Uint8Array): Generator<CapturedFpdu> {
  const connections = new Map<string, CapturedConnection>();
  let count = 0;
  for (const segment of segmentsOf(capture)) {
    let connection = connections.get(segment.ends);
    // The sender of the first packet is the client: where the beginning was captured that packet is its SYN.
    if (connection === undefined || segment.flags === SYN)
      connections.set(segment.ends, (connection = new CapturedConnection(++count, segment.source)));
    yield* connection.take(segment);
  }
}

/** One TCP segment. */
interface Segment {
  /** Both ends, in sorted order. */
  readonly ends: string;
  readonly source: string;
  readonly sequence: number;
  /** SYN and ACK; the others are left out. */
  readonly flags: number;
  readonly payload: Uint8Array;
}

const FILE_HEADER_OCTETS = 24;
const RECORD_HEADER_OCTETS = 16;
/** Magic numbers of files with microseconds and with nanoseconds. */
const MAGICS: readonly number[] = [0xa1b2_c3d4, 0xa1b2_3c4d];
/** Octets in front of the IP header, by link type: Ethernet without tags, and raw IP. */
const LINK_HEADER_OCTETS: Readonly<Record<number, number>> = { 1: 14, 101: 0 };
const PROTOCOL_TCP = 6;
const SYN = 0x02;
const ACK = 0x10;

function* segmentsOf(capture: Uint8Array): Generator<Segment> {
  const view = new DataView(capture.buffer, capture.byteOffset, capture.byteLength);
  const littleEndian = MAGICS.includes(view.getUint32(0, true));
  if (!littleEndian && !MAGICS.includes(view.getUint32(0))) throw new Error('this is no pcap file');
  const linkHeader = LINK_HEADER_OCTETS[view.getUint32(20, littleEndian)];
  if (linkHeader === undefined) throw new Error('this link type is not known');
  for (let at = FILE_HEADER_OCTETS; at < capture.length; ) {
    const [held, length] = [view.getUint32(at + 8, littleEndian), view.getUint32(at + 12, littleEndian)];
    const end = at + RECORD_HEADER_OCTETS + held;
    if (held < length || end > capture.length) throw new Error('the capture lacks octets of a packet');
    const segment = segmentOf(capture.subarray(at + RECORD_HEADER_OCTETS + linkHeader, end));
    if (segment !== null) yield segment;
    at = end;
  }
}

/** The TCP segment in an IP packet (RFC 791 3.1, RFC 8200 3, RFC 9293 3.1); null for anything else. */
function segmentOf(packet: Uint8Array): Segment | null {
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength);
  const version = packet.length < 20 ? 0 : packet[0]! >>> 4;
  const [octets, addressOctets, protocol] =
    version === 4
      ? [(packet[0]! & 0xf) * 4, 4, packet[9]]
      : version === 6
        ? [40, 16, packet[6]]
        : [0, 0, null];
  if (protocol !== PROTOCOL_TCP) return null;
  const end = version === 4 ? view.getUint16(2) : octets + view.getUint16(4);
  const addresses = version === 4 ? 12 : 8;
  const place = (index: number): string => {
    const at = addresses + index * addressOctets;
    return `${packet.subarray(at, at + addressOctets).join('.')}:${view.getUint16(octets + index * 2)}`;
  };
  const [source, destination] = [place(0), place(1)];
  return {
    ends: [source, destination].sort().join(),
    source,
    sequence: view.getUint32(octets + 4),
    flags: packet[octets + 13]! & (SYN | ACK),
    payload: packet.subarray(octets + (packet[octets + 12]! >>> 4) * 4, end),
  };
}

/** Octets of one direction in the order of TCP's sequence numbers, each once. */
class Flow {
  /** The number that the next octet has; null before the first packet. */
  #next: number | null = null;
  #ahead: { readonly sequence: number; readonly payload: Uint8Array }[] = [];

  *take({ sequence, flags, payload }: Segment): Generator<Uint8Array> {
    this.#next ??= sequence;
    if ((flags & SYN) !== 0) this.#next = (sequence + 1) >>> 0;
    if (payload.length > 0) this.#ahead.push({ sequence, payload });
    for (let found = this.#due(); found !== undefined; found = this.#due()) {
      this.#ahead = this.#ahead.filter((one) => one !== found);
      const fresh = found.payload.subarray((this.#next - found.sequence) >>> 0);
      this.#next = (this.#next + fresh.length) >>> 0;
      if (fresh.length > 0) yield fresh;
    }
  }

  /** A segment that begins at the next octet or before it. */
  #due(): { readonly sequence: number; readonly payload: Uint8Array } | undefined {
    return this.#ahead.find(({ sequence }) => ((this.#next! - sequence) | 0) >= 0);
  }
}

/** The octets that one side sends: its start-up frame, then FPDUs. */
class CapturedSide {
  readonly flow = new Flow();
  frame: ParsedStartup | null = null;
  /** Null until it is known how the side frames. */
  reader: FpduReader | null = null;
  /** Octets in front of the first FPDU that was found, where the start-up frame was not captured. */
  passedOver = 0;
  /** Octets that no reader has had yet. */
  waiting: Uint8Array = new Uint8Array(0);

  push(octets: Uint8Array): void {
    const joined = new Uint8Array(this.waiting.length + octets.length);
    joined.set(this.waiting);
    joined.set(octets, this.waiting.length);
    this.waiting = joined;
  }

  /** Take the start-up frame off the front, once it is whole. */
  takeFrame(key: Uint8Array): void {
    const length = startupLength(this.waiting);
    if (
      this.frame !== null ||
      length === null ||
      this.waiting.length < length ||
      !beginsWith(this.waiting, key)
    )
      return;
    this.frame = parseStartup(this.waiting.slice(0, length));
    this.waiting = this.waiting.slice(length);
  }
}

const OTHER = { client: 'server', server: 'client' } as const;
const KEYS = { client: REQUEST_KEY, server: REPLY_KEY } as const;

class CapturedConnection {
  readonly #number: number;
  readonly #client: string;
  readonly #sides = { client: new CapturedSide(), server: new CapturedSide() };

  constructor(number: number, client: string) {
    this.#number = number;
    this.#client = client;
  }

  /** Take a segment; the FPDUs that it completes. */
  *take(segment: Segment): Generator<CapturedFpdu> {
    const from = segment.source === this.#client ? 'client' : 'server';
    for (const octets of this.#sides[from].flow.take(segment)) {
      this.#sides[from].push(octets);
      this.#sides[from].takeFrame(KEYS[from]);
      // The Reply settles how the client's octets are to be read as well.
      yield* this.#read(from);
      if (this.#sides[OTHER[from]].reader === null) yield* this.#read(OTHER[from]);
    }
  }

  *#read(from: Side): Generator<CapturedFpdu> {
    const side = this.#sides[from];
    side.reader ??= this.#readerFor(from);
    if (side.reader === null) {
      if (side.waiting.length > MOST_UNREAD_OCTETS)
        throw new Error(`no FPDU is found in what the ${from} of connection ${this.#number} sent`);
      return;
    }
    side.reader.push(side.waiting);
    side.waiting = new Uint8Array(0);
    const { client, server } = this.#sides;
    const crcInUse = client.frame === null || server.frame === null || client.frame.crc || server.frame.crc;
    for (let fpdu = side.reader.next(); fpdu !== null; fpdu = side.reader.next()) {
      yield {
        ...fpdu,
        start: fpdu.start + side.passedOver,
        connection: this.#number,
        from,
        crcInUse,
        segment: parseSegment(fpdu.ulpdu),
      };
    }
  }

  /**
   * With both frames, the side that asked for markers gets them. Where this side's frame was not captured,
   * from the first FPDU whose CRC is good.
   */
  #readerFor(from: Side): FpduReader | null {
    const side = this.#sides[from];
    const other = this.#sides[OTHER[from]];
    if (side.frame !== null && other.frame !== null) return new FpduReader(other.frame.markers);
    if (side.frame !== null || side.waiting.length < 16 || beginsWith(side.waiting, KEYS[from])) return null;
    const start = firstGoodFpdu(side.waiting);
    if (start === null) return null;
    side.waiting = side.waiting.slice(start);
    side.passedOver = start;
    return new FpduReader(false);
  }
}

function beginsWith(octets: Uint8Array, key: Uint8Array): boolean {
  return octets.length >= key.length && key.every((octet, i) => octets[i] === octet);
}

/** How far into a stream a first FPDU is looked for: as many octets as a packet of Ethernet has. */
const SEARCHED_OCTETS = 1500;

/** With this number of octets a first FPDU would be whole, wherever it begins. */
const MOST_UNREAD_OCTETS = 128 * 1024;

/** Where the first whole FPDU with a good CRC begins; null if none is there, or not yet. */
function firstGoodFpdu(octets: Uint8Array): number | null {
  for (let start = 0; start < Math.min(octets.length, SEARCHED_OCTETS); start++) {
    const length = 2 + ((octets[start]! << 8) | octets[start + 1]!);
    const end = start + length + (-length & 3) + 4;
    if (end > octets.length) continue;
    const reader = new FpduReader(false);
    reader.push(octets.slice(start, end));
    if (reader.next()?.crcGood === true) return start;
  }
  return null;
}
