/**
 * A whole capture: packets to TCP connections to FPDUs. Holds the connections, decides their directions,
 * and keeps to limits.ts whatever the file contains.
 */
import { CaptureFile, type CapturePacket } from '../capture/capture-file.ts';
import { DatagramConnection, DatagramFlows } from './datagrams.ts';
import { Connection, type Budgets, type CapturedConnection } from './captured-connection.ts';
import {
  HISTORY_BUDGET,
  MAX_CONNECTIONS,
  MAX_OTHER_KINDS,
  MAX_REMARKS,
  MAX_SUMMARIES,
  WAITING_OCTETS,
} from '../capture/limits.ts';
import { OctetBudget } from '../capture/octet-queue.ts';
import { TCP_FLAG, parsePacket, type TcpSegment, type UdpDatagram } from '../capture/packet.ts';
import type { InspectEvent } from './types.ts';

export type { CapturedConnection } from './captured-connection.ts';

/** The functions that a {@link CaptureDissector} calls while it decodes. */
export interface CaptureHandlers {
  /** An event of a connection; those of one connection come in the order of its streams. */
  event(connection: CapturedConnection, event: InspectEvent): void;
  /** Something about the file, with its offset there. */
  remark(offset: number, message: string): void;
}

/** How a {@link CaptureDissector} looks at packets. */
export interface CaptureOptions {
  /**
   * `iwarp` decodes TCP only, `trp` UDP only, and takes for iWARP whatever may be. Default: both, and of UDP
   * only what shows itself by its set-up or its headers.
   */
  readonly wire?: 'iwarp' | 'trp' | undefined;
}

/** Counts of packets by kind. */
export interface CaptureCounts {
  /** Packets in the file. */
  packets: number;
  /** Packets with a TCP segment. */
  tcp: number;
  /** Packets with a datagram of iWARP over UDP. */
  udp: number;
  /** Fragments of IP packets, which are not put together. */
  fragments: number;
  /** Packets of other protocols. */
  other: number;
  /** Packets whose headers contradict themselves. */
  malformed: number;
  /** Packets of a link type that is not decoded. */
  undecodedLinkType: number;
  /** The `other` packets by what they are, as far as 256 kinds go. */
  readonly otherKinds: Map<string, number>;
  /** TCP segments with text that belong to no connection, and those that a receiver does not accept. */
  unassigned: number;
  /** TCP segments from before the first byte of their stream that was decoded. */
  early: number;
  /** TCP segments with a wrong checksum, in directions where others are right. */
  damaged: number;
  /** Packets that the capture cut short. */
  truncated: number;
  /** TCP connections, and those of iWARP over UDP. */
  connections: number;
  /** Remarks about the file, given out or not. */
  remarks: number;
}

/**
 * Decodes a capture. Times of events count from the first packet.
 *
 * @example
 * const dissector = new CaptureDissector({
 *   event: (connection, event) => console.log(connection.number, renderLine(event)),
 *   remark: (offset, message) => console.error(offset, message),
 * });
 * dissector.push(fileOctets);
 * dissector.end();
 */
export class CaptureDissector {
  /** Counts of packets so far. */
  readonly counts: CaptureCounts = {
    packets: 0,
    tcp: 0,
    udp: 0,
    fragments: 0,
    other: 0,
    malformed: 0,
    undecodedLinkType: 0,
    otherKinds: new Map(),
    unassigned: 0,
    early: 0,
    damaged: 0,
    truncated: 0,
    connections: 0,
    remarks: 0,
  };
  private readonly handlers: CaptureHandlers;
  private readonly file: CaptureFile;
  private readonly budgets: Budgets = {
    waiting: new OctetBudget(WAITING_OCTETS),
    history: new OctetBudget(HISTORY_BUDGET),
  };
  /** In the order of their last packets. */
  private readonly live = new Map<string, Connection>();
  /**
   * Connections with iWARP, in the order in which it was seen, and the others: many others must not displace
   * the first.
   */
  private readonly listed = new Set<CapturedConnection>();
  private readonly others = new Set<CapturedConnection>();
  private readonly flows: DatagramFlows;
  private readonly wire: 'iwarp' | 'trp' | undefined;
  private origin: { seconds: number; nanos: number } | undefined;

  /** A decoder that reports to these handlers. */
  constructor(handlers: CaptureHandlers, { wire }: CaptureOptions = {}) {
    this.handlers = handlers;
    this.wire = wire;
    this.flows = new DatagramFlows(wire === 'trp' ? 'all' : 'careful', (ends, fromStart) => {
      const connection = new DatagramConnection(++this.counts.connections, ends, fromStart);
      if (this.listed.size < MAX_SUMMARIES) this.listed.add(connection);
      return connection;
    });
    this.file = new CaptureFile({
      packet: (packet) => this.takePacket(packet),
      remark: (offset, message) => this.remark(offset, message),
    });
  }

  /**
   * The connections seen so far by number: at most 4096 with iWARP in them, and as many
   * without.
   */
  get connections(): readonly CapturedConnection[] {
    return [...this.listed, ...this.others].sort((a, b) => a.number - b.number);
  }

  /** Bytes that wait for others, in all streams together. */
  get waitingOctets(): number {
    return this.budgets.waiting.taken;
  }

  /** When the first packet was captured, in milliseconds since 1970; undefined before it. */
  get began(): number | undefined {
    return this.origin === undefined ? undefined : this.origin.seconds * 1000 + this.origin.nanos / 1e6;
  }

  /** The next bytes of the capture file. Throws ERR_INVALID_ARGUMENT if it is no capture file. */
  push(bytes: Uint8Array): void {
    this.file.push(bytes);
  }

  /** The file is over. Throws ERR_INVALID_ARGUMENT if it was no capture file. */
  end(): void {
    this.file.end();
    for (const connection of this.live.values()) this.close(connection);
    this.live.clear();
  }

  /** Report a fault of the file. */
  private remark(offset: number, message: string): void {
    if (this.counts.remarks++ < MAX_REMARKS) this.handlers.remark(offset, message);
  }

  /** Take one packet of the file. */
  private takePacket(packet: CapturePacket): void {
    this.counts.packets++;
    this.origin ??= { seconds: packet.seconds, nanos: packet.nanos };
    if (packet.originalLength > packet.end - packet.start) this.counts.truncated++;
    const segment = parsePacket(
      packet.bytes,
      packet.start,
      packet.end,
      packet.linkType,
      packet.originalLength,
    );
    const time = packet.seconds - this.origin.seconds + (packet.nanos - this.origin.nanos) / 1e9;
    if (segment.kind === 'tcp') {
      this.counts.tcp++;
      if (this.wire !== 'trp') this.takeSegment(segment, time);
      return;
    }
    if (segment.kind === 'udp') {
      if (this.wire === 'iwarp' || !this.takeDatagram(segment, time)) this.countOther(segment.name);
      return;
    }
    if (segment.kind === 'other') this.countOther(segment.message);
    else {
      if (segment.kind === 'fragment') this.counts.fragments++;
      else if (segment.kind === 'malformed') this.counts.malformed++;
      else this.counts.undecodedLinkType++;
      this.remark(packet.offset, `packet ${this.counts.packets}: ${segment.message}`);
    }
  }

  /** Count traffic that is not looked into. */
  private countOther(what: string): void {
    const { otherKinds } = this.counts;
    this.counts.other++;
    if (otherKinds.has(what) || otherKinds.size < MAX_OTHER_KINDS)
      otherKinds.set(what, (otherKinds.get(what) ?? 0) + 1);
  }

  /** False if the datagram is not of iWARP. */
  private takeDatagram(datagram: UdpDatagram, time: number): boolean {
    const from = endText(datagram.source, datagram.sourcePort);
    const to = endText(datagram.destination, datagram.destinationPort);
    const found = this.flows.find(datagram, from, to);
    if (found === undefined) return false;
    const { connection, direction } = found;
    const { bytes, start, end, length } = datagram;
    this.counts.udp++;
    connection.packet = this.counts.packets;
    this.handlers.event(connection, connection.take(bytes, start, end, direction, time, length));
    return true;
  }

  /** Take one TCP segment. */
  private takeSegment(segment: TcpSegment, time: number): void {
    const from = endText(segment.source, segment.sourcePort);
    const to = endText(segment.destination, segment.destinationPort);
    const key = from < to ? `${from} ${to}` : `${to} ${from}`;
    const known = this.live.get(key);
    const belonging = known?.judge(segment, from) ?? { kind: 'successor' };
    if (belonging.kind === 'stray') {
      if (known!.closed && segment.length > 0) this.counts.unassigned++;
      return;
    }
    this.live.delete(key);
    if (known !== undefined && belonging.kind === 'successor') this.close(known);
    const connection =
      known === undefined || belonging.kind === 'successor'
        ? this.open(segment, from, to, 'opener' in belonging ? belonging.opener : undefined)
        : known;
    this.live.set(key, connection);
    connection.take(segment, from, { time, packet: this.counts.packets });
  }

  /** The capture has no more of this connection. */
  private close(connection: Connection): void {
    connection.close('capture');
    this.counts.unassigned += connection.strangeSegments;
    this.counts.damaged += connection.damagedSegments;
    this.counts.early += connection.earlySegments;
  }

  /** Begin a connection. */
  private open(segment: TcpSegment, from: string, to: string, opener: string | undefined): Connection {
    if (this.live.size >= MAX_CONNECTIONS) {
      const [key, oldest] = this.live.entries().next().value!;
      this.close(oldest);
      this.live.delete(key);
    }
    this.counts.connections++;
    const syn = (segment.flags & TCP_FLAG.SYN) !== 0;
    const answers = syn && (segment.flags & TCP_FLAG.ACK) !== 0;
    // Without SYN the side with the lower port is taken for the listener, until an MPA Request shows more.
    const opensHere =
      opener === undefined
        ? syn
          ? !answers
          : segment.sourcePort > segment.destinationPort
        : opener === from;
    const ends: [string, string] = opensHere ? [from, to] : [to, from];
    const fromStart = syn || opener !== undefined;
    const connection = new Connection(this.counts.connections, ends, fromStart, this.budgets, (one, event) =>
      this.emit(one, event),
    );
    if (this.others.size < MAX_SUMMARIES) this.others.add(connection);
    return connection;
  }

  /** Report an event of a connection. */
  private emit(connection: Connection, event: InspectEvent): void {
    if (connection.iwarp && this.listed.size < MAX_SUMMARIES && !this.listed.has(connection)) {
      this.listed.add(connection);
      this.others.delete(connection);
    }
    this.handlers.event(connection, event);
  }
}

function endText(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}
