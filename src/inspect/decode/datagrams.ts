/**
 * iWARP over UDP in a capture: datagrams to connections, and each to its TRP header and DDP segment. A flow
 * is known by its set-up, by a datagram that can hardly be anything else, or because the caller says so.
 * Order is not judged, since datagrams may come in any; a remark names repeated, late or impossible ones.
 */
import { copyOf } from '../../base/copy.ts';
import { OPCODE_TABLE, RDMAP_CONTROL } from '../../rdmap/wire.ts';
import {
  createTrpHeader,
  decodeTrpHeader,
  decodeTrpSetup,
  TRP_HEADER_OCTETS,
  TRP_OPCODE,
  TRP_PIECE_OCTETS,
} from '../../trp/wire.ts';
import { MAX_CONNECTIONS } from '../capture/limits.ts';
import type { UdpDatagram } from '../capture/packet.ts';
import type { CapturedConnection } from './captured-connection.ts';
import { emptySummary, summarize, type ConnectionSummary, type DatagramSummary } from './summary.ts';
import type { Direction, InspectEvent } from './types.ts';
import { decodeUlpdu } from './ulpdu.ts';

const NAMES: ReadonlyMap<number, string> = new Map([
  [TRP_OPCODE.DATA, 'TRP Ack'],
  [TRP_OPCODE.REQUEST, 'TRP Request'],
  [TRP_OPCODE.ACCEPT, 'TRP Accept'],
  [TRP_OPCODE.REJECT, 'TRP Reject'],
  [TRP_OPCODE.FIN, 'TRP FIN'],
  [TRP_OPCODE.SACK, 'TRP SACK'],
  [TRP_OPCODE.PIECE, 'TRP Piece'],
]);
/** Sequence numbers of a direction that are remembered, to know repeats and to compare their bytes. */
const REMEMBERED = 4096;
/** RDMAP version 1 in its place, and the DDP control octets that a sender may use. */
const RDMAP_VERSION_ONE = 0x40;
const DDP_VERSION_ONE = 1;
const DDP_TAGGED = 0x80;
const DDP_VERSION_AND_RESERVED = 0x3f;
const header = createTrpHeader();

/** Serial distance from one sequence number to another; negative if the second is older. */
function distance(from: number, to: number): number {
  return (to - from) | 0;
}

/** FNV-1a over the bytes behind the header, which a repeat has again. */
function fingerprint(bytes: Uint8Array): number {
  let hash = 0x811c_9dc5;
  for (let at = TRP_HEADER_OCTETS; at < bytes.length; at++) hash = Math.imul(hash ^ bytes[at]!, 0x0100_0193);
  return hash;
}

/** One direction: the PSN after the highest seen, and fingerprints of the last ones. */
interface Way {
  next: number | undefined;
  readonly seen: Map<number, number>;
}

/** One connection over UDP: give it datagrams in the order of their capture. */
export class DatagramConnection implements CapturedConnection {
  readonly number: number;
  ends: readonly [string, string];
  readonly fromStart: boolean;
  readonly iwarp = true;
  readonly summary: ConnectionSummary = emptySummary();
  packet = 0;
  /** A datagram is decoded by itself, whichever came before it. */
  readonly earlySegments = 0;
  readonly #counts: DatagramSummary = { acknowledgements: 0, ranges: 0, repeated: [0, 0], late: [0, 0] };
  readonly #ways: readonly [Way, Way] = [
    { next: undefined, seen: new Map() },
    { next: undefined, seen: new Map() },
  ];

  constructor(number: number, ends: readonly [string, string], fromStart: boolean) {
    this.number = number;
    this.ends = ends;
    this.fromStart = fromStart;
    this.summary.crc = 'off';
    this.summary.trp = this.#counts;
  }

  /** Datagrams whose PSN had been seen before. */
  get repeatedSegments(): number {
    return this.#counts.repeated[0] + this.#counts.repeated[1];
  }

  /** Datagrams that came after a higher PSN. */
  get reorderedSegments(): number {
    return this.#counts.late[0] + this.#counts.late[1];
  }

  /** Decode the datagram `bytes[start..end)`, which was `length` bytes long on the wire. */
  take(
    bytes: Uint8Array,
    start: number,
    end: number,
    direction: Direction,
    time: number,
    length: number = end - start,
  ): InspectEvent {
    const raw = copyOf(bytes, start, end);
    const event = this.#decode(raw, direction, time, length);
    summarize(this.summary, event);
    return event;
  }

  #decode(raw: Uint8Array, direction: Direction, time: number, length: number): InspectEvent {
    const cut = length > raw.length ? `, of which ${raw.length} were captured` : '';
    const none = (): InspectEvent => ({
      kind: 'note',
      direction,
      time,
      position: 0,
      octets: raw.length,
      message: `a datagram of ${length} bytes${cut} that is none of TRP`,
      problems: [],
    });
    if (!decodeTrpHeader(header, raw, 0, raw.length)) return none();
    const { psn, ack, opcode } = header;
    const base = { kind: 'trp', direction, time, octets: length, raw, psn, ack } as const;
    const name = NAMES.get(opcode)!;
    if (opcode === TRP_OPCODE.DATA && raw.length > TRP_HEADER_OCTETS) {
      const remark = this.#follow(direction, psn, raw) ?? this.#impossible(direction, ack);
      const captured = raw.length - TRP_HEADER_OCTETS;
      const ulpdu = decodeUlpdu(raw, TRP_HEADER_OCTETS, length - TRP_HEADER_OCTETS, undefined, captured);
      return { ...base, ...ulpdu, ...(remark === undefined ? {} : { remark }) };
    }
    const plain = { ...base, opcode: name, payloadLength: 0, problems: [] };
    if (opcode === TRP_OPCODE.DATA || opcode === TRP_OPCODE.FIN || opcode === TRP_OPCODE.SACK) {
      const remark =
        opcode === TRP_OPCODE.SACK ? this.#badRange(direction) : this.#impossible(direction, ack);
      if (opcode === TRP_OPCODE.SACK) this.#counts.ranges++;
      else this.#counts.acknowledgements++;
      return { ...plain, ...(remark === undefined ? {} : { remark }) };
    }
    if (opcode === TRP_OPCODE.PIECE)
      return { ...plain, payloadLength: length - TRP_HEADER_OCTETS - TRP_PIECE_OCTETS };
    const setup = decodeTrpSetup(raw, 0, raw.length);
    if (setup === null) return none();
    const { ird, ord, privateData } = setup;
    if (opcode !== TRP_OPCODE.REJECT) this.#ways[direction].next ??= psn;
    return { ...plain, payloadLength: privateData.length, setup: { ird, ord, privateData } };
  }

  /** Counts repeats and late ones; says what a receiver would want to know. */
  #follow(direction: Direction, psn: number, raw: Uint8Array): string | undefined {
    const way = this.#ways[direction];
    const print = fingerprint(raw);
    const before = way.seen.get(psn);
    if (before !== undefined) {
      this.#counts.repeated[direction]++;
      return before === print ? 'repeated' : 'repeated with other bytes';
    }
    way.seen.set(psn, print);
    if (way.seen.size > REMEMBERED) way.seen.delete(way.seen.keys().next().value!);
    const ahead = way.next === undefined ? 0 : distance(way.next, psn);
    if (ahead < 0) {
      this.#counts.late[direction]++;
      return 'late';
    }
    way.next = (psn + 1) >>> 0;
    return ahead === 0 ? undefined : `${ahead} missing before it`;
  }

  /** An acknowledgement of packets never seen: the capture lacks it, or the sender errs. */
  #impossible(direction: Direction, ack: number): string | undefined {
    const { next } = this.#ways[direction ^ 1]!;
    if (next === undefined || distance(next, ack) <= 0) return undefined;
    return `acknowledges ${distance(next, ack)} that were not seen`;
  }

  #badRange(direction: Direction): string | undefined {
    if (distance(header.psn, header.ack) <= 0) return 'an empty range';
    return this.#impossible(direction, header.ack);
  }
}

/**
 * How datagrams are recognised: only set-up and datagrams that can hardly be anything else, or all that may
 * be TRP.
 */
type Recognition = 'careful' | 'all';

/** Finds the connections over UDP among the datagrams of a capture. */
export class DatagramFlows {
  readonly #recognition: Recognition;
  readonly #open: (ends: readonly [string, string], fromStart: boolean) => DatagramConnection;
  readonly #flows = new Map<string, DatagramConnection>();
  /** Connections of which only the request was seen, by the client's end. */
  readonly #asked = new Map<string, DatagramConnection>();

  constructor(
    recognition: Recognition,
    open: (ends: readonly [string, string], fromStart: boolean) => DatagramConnection,
  ) {
    this.#recognition = recognition;
    this.#open = open;
  }

  /** The connection of a datagram and its direction; undefined if it is not of iWARP. */
  find(
    datagram: UdpDatagram,
    from: string,
    to: string,
  ): { connection: DatagramConnection; direction: Direction } | undefined {
    const { bytes, start, end, sourcePort, destinationPort } = datagram;
    const known = this.#flows.get(keyOf(from, to));
    const decoded = decodeTrpHeader(header, bytes, start, end);
    const request = decoded && header.opcode === TRP_OPCODE.REQUEST && this.#setup(datagram);
    if (request && (known === undefined || known.ends[1] !== to)) return this.#ask(from, to);
    if (known !== undefined) return { connection: known, direction: known.ends[0] === from ? 0 : 1 };
    const asked = decoded ? this.#asked.get(to) : undefined;
    if (asked !== undefined && this.#setup(datagram)) {
      // The server answers from another port: the connection goes on there.
      asked.ends = [to, from];
      this.#keep(from, to, asked);
      return { connection: asked, direction: 1 };
    }
    if (!decoded || !(this.#recognition === 'all' || this.#setup(datagram) || looksLikeData(datagram)))
      return undefined;
    const ends: [string, string] = sourcePort > destinationPort ? [from, to] : [to, from];
    const connection = this.#open(ends, false);
    this.#keep(from, to, connection);
    return { connection, direction: ends[0] === from ? 0 : 1 };
  }

  #ask(client: string, server: string): { connection: DatagramConnection; direction: Direction } {
    const pending = this.#asked.get(client);
    const connection = pending ?? this.#open([client, server], true);
    if (pending === undefined) {
      bounded(this.#asked);
      this.#asked.set(client, connection);
    }
    this.#keep(client, server, connection);
    return { connection, direction: 0 };
  }

  #keep(from: string, to: string, connection: DatagramConnection): void {
    bounded(this.#flows);
    this.#flows.set(keyOf(from, to), connection);
  }

  #setup({ bytes, start, end }: UdpDatagram): boolean {
    return decodeTrpSetup(bytes, start, end) !== null;
  }
}

/** A header of DDP and RDMAP that agree, behind a header of TRP. */
function looksLikeData({ bytes, start, end }: UdpDatagram): boolean {
  if (header.opcode !== TRP_OPCODE.DATA || end - start < TRP_HEADER_OCTETS + 14) return false;
  const ddp = bytes[start + TRP_HEADER_OCTETS]!;
  const rdmap = bytes[start + TRP_HEADER_OCTETS + 1]!;
  const row = OPCODE_TABLE[rdmap & RDMAP_CONTROL.OPCODE];
  return (
    (ddp & DDP_VERSION_AND_RESERVED) === DDP_VERSION_ONE &&
    (rdmap & ~RDMAP_CONTROL.OPCODE) === RDMAP_VERSION_ONE &&
    row !== undefined &&
    row.tagged === ((ddp & DDP_TAGGED) !== 0)
  );
}

function keyOf(from: string, to: string): string {
  return from < to ? `${from} ${to}` : `${to} ${from}`;
}

/** Room for one more. */
function bounded(map: Map<string, unknown>): void {
  if (map.size >= MAX_CONNECTIONS) map.delete(map.keys().next().value!);
}
