/**
 * A whole capture: packets to TCP connections to FPDUs. Holds the connections, tells the directions apart, and keeps to limits.ts
 * whatever the file contains.
 */
import { CaptureFile, readCaptureFile, type CapturePacket, type CaptureSink } from './capture-file.ts';
import { ConnectionDecoder } from './connection-decoder.ts';
import { HISTORY_BUDGET, MAX_CONNECTIONS, MAX_REMARKS, MAX_SUMMARIES, WAITING_OCTETS } from './limits.ts';
import { OctetBudget } from './octet-queue.ts';
import { TCP_FLAG, parsePacket, type TcpSegment } from './packet.ts';
import type { ConnectionSummary } from './summary.ts';
import { TcpStream } from './tcp.ts';
import type { Direction, InspectEvent } from './types.ts';

/** One TCP connection of a capture. */
export interface CapturedConnection {
  /** Counted from 1 in the order of their first packets. */
  readonly number: number;
  /** `address:port`; the first opened the connection, as far as the capture tells. */
  readonly ends: readonly [string, string];
  /** Whether the capture holds the connection from its first packet. */
  readonly fromStart: boolean;
  readonly summary: ConnectionSummary;
  /** Whether anything of iWARP was seen in it. */
  readonly iwarp: boolean;
  readonly repeatedSegments: number;
  readonly reorderedSegments: number;
  /** The packet of the capture file, counted from 1, that completed the present event; undefined where there is no file. */
  readonly packet?: number;
}

interface CaptureHandlers {
  event(connection: CapturedConnection, event: InspectEvent): void;
  /** Something about the file, with its offset there. */
  remark(offset: number, message: string): void;
}

/** What the packets were. */
interface CaptureCounts {
  packets: number;
  tcp: number;
  fragments: number;
  other: number;
  malformed: number;
  undecodedLinkType: number;
  /** Packets that the capture cut short. */
  truncated: number;
  connections: number;
  remarks: number;
}

interface Budgets {
  readonly waiting: OctetBudget;
  readonly history: OctetBudget;
}

class Connection implements CapturedConnection {
  readonly number: number;
  readonly ends: readonly [string, string];
  readonly fromStart: boolean;
  readonly decoder: ConnectionDecoder;
  readonly streams: readonly [TcpStream, TcpStream];
  time = 0;
  packet = 0;
  closed = false;

  constructor(
    number: number, ends: [string, string], fromStart: boolean, budgets: Budgets, emit: (connection: Connection, event: InspectEvent) => void,
  ) {
    this.number = number;
    this.ends = ends;
    this.fromStart = fromStart;
    this.decoder = new ConnectionDecoder({
      begin: fromStart ? 'startup' : 'unknown', budget: budgets.waiting, emit: (event) => emit(this, event),
    });
    const stream = (direction: Direction): TcpStream =>
      new TcpStream(
        {
          octets: (bytes, start, end) => this.decoder.push(direction, bytes, start, end, this.time),
          gap: (octets) => this.decoder.gap(direction, octets, this.time),
          hole: () => this.decoder.doubt(direction),
          differs: (octets, back) => this.decoder.differs(direction, octets, back, this.time),
          fin: () => this.decoder.end(direction, 'fin', this.time),
        },
        budgets.waiting, budgets.history,
      );
    this.streams = [stream(0), stream(1)];
  }

  get summary(): ConnectionSummary {
    return this.decoder.summary;
  }

  get iwarp(): boolean {
    return this.decoder.found;
  }

  get repeatedSegments(): number {
    return this.streams[0].repeated + this.streams[1].repeated;
  }

  get reorderedSegments(): number {
    return this.streams[0].reordered + this.streams[1].reordered;
  }

  close(how: 'rst' | 'capture'): void {
    if (this.closed) return;
    this.closed = true;
    for (const direction of [0, 1] as const) {
      this.streams[direction].flush();
      this.decoder.end(direction, how, this.time);
    }
  }
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
  readonly counts: CaptureCounts = {
    packets: 0, tcp: 0, fragments: 0, other: 0, malformed: 0, undecodedLinkType: 0, truncated: 0, connections: 0, remarks: 0,
  };
  private readonly handlers: CaptureHandlers;
  private readonly file: CaptureFile;
  private readonly budgets: Budgets = { waiting: new OctetBudget(WAITING_OCTETS), history: new OctetBudget(HISTORY_BUDGET) };
  /** In the order of their last packets. */
  private readonly live = new Map<string, Connection>();
  /** Those with iWARP, in the order in which it was seen, and the others: many others must not push out what is looked for. */
  private readonly listed = new Set<Connection>();
  private readonly others = new Set<Connection>();
  private origin: { seconds: number; nanos: number } | undefined;

  constructor(handlers: CaptureHandlers) {
    this.handlers = handlers;
    this.file = new CaptureFile(this.sink());
  }

  /** The connections seen so far by number: at most {@link MAX_SUMMARIES} with iWARP in them, and as many without. */
  get connections(): readonly CapturedConnection[] {
    return [...this.listed, ...this.others].sort((a, b) => a.number - b.number);
  }

  /** Octets that wait for others, in all streams together. */
  get waitingOctets(): number {
    return this.budgets.waiting.taken;
  }

  /** When the first packet was captured, in milliseconds since 1970; undefined before it. */
  get began(): number | undefined {
    return this.origin === undefined ? undefined : this.origin.seconds * 1000 + this.origin.nanos / 1e6;
  }

  /** The next octets of the capture file. Throws ERR_INVALID_ARGUMENT if it is no capture file. */
  push(bytes: Uint8Array): void {
    this.file.push(bytes);
  }

  /** The file is over. Throws ERR_INVALID_ARGUMENT if it was no capture file. */
  end(): void {
    this.file.end();
    this.finish();
  }

  /** Read the file at `path` (`-` is standard input) from beginning to end, instead of `push` and `end`; `piece` is called after each piece. */
  readFile(path: string, piece?: () => void): void {
    readCaptureFile(path, this.sink(), piece);
    this.finish();
  }

  private sink(): CaptureSink {
    return { packet: (packet) => this.takePacket(packet), remark: (offset, message) => this.remark(offset, message) };
  }

  private finish(): void {
    for (const connection of this.live.values()) connection.close('capture');
    this.live.clear();
  }

  private remark(offset: number, message: string): void {
    if (this.counts.remarks++ < MAX_REMARKS) this.handlers.remark(offset, message);
  }

  private takePacket(packet: CapturePacket): void {
    this.counts.packets++;
    this.origin ??= { seconds: packet.seconds, nanos: packet.nanos };
    if (packet.originalLength > packet.end - packet.start) this.counts.truncated++;
    const segment = parsePacket(packet.bytes, packet.start, packet.end, packet.linkType, packet.originalLength);
    if (segment.kind === 'tcp') {
      this.counts.tcp++;
      const time = packet.seconds - this.origin.seconds + (packet.nanos - this.origin.nanos) / 1e9;
      this.takeSegment(segment, time);
      return;
    }
    if (segment.kind === 'other') this.counts.other++;
    else {
      if (segment.kind === 'fragment') this.counts.fragments++;
      else if (segment.kind === 'malformed') this.counts.malformed++;
      else this.counts.undecodedLinkType++;
      this.remark(packet.offset, `packet ${this.counts.packets}: ${segment.message}`);
    }
  }

  private takeSegment(segment: TcpSegment, time: number): void {
    const from = endText(segment.source, segment.sourcePort);
    const to = endText(segment.destination, segment.destinationPort);
    const connection = this.find(segment, from, to);
    connection.time = time;
    connection.packet = this.counts.packets;
    if (connection.closed) return;
    const direction: Direction = connection.ends[0] === from ? 0 : 1;
    const sender = connection.streams[direction];
    const receiver = connection.streams[direction ^ 1]!;
    const syn = (segment.flags & TCP_FLAG.SYN) !== 0;
    const seq = syn ? (segment.seq + 1) >>> 0 : segment.seq;
    if (syn) {
      sender.start(seq);
      // SYN with ACK acknowledges the other side's SYN, captured or not.
      if ((segment.flags & TCP_FLAG.ACK) !== 0) receiver.start(segment.ack);
    }
    // The acknowledgement first: what this segment says may answer octets of the other side that were not captured.
    if ((segment.flags & TCP_FLAG.ACK) !== 0) receiver.acknowledged(segment.ack);
    sender.segment(seq, segment.bytes, segment.start, segment.end, segment.length, (segment.flags & TCP_FLAG.FIN) !== 0);
    if ((segment.flags & TCP_FLAG.RST) !== 0) connection.close('rst');
  }

  /** The connection of a segment: the one followed, or a new one. */
  private find(segment: TcpSegment, from: string, to: string): Connection {
    const key = from < to ? `${from} ${to}` : `${to} ${from}`;
    const syn = (segment.flags & TCP_FLAG.SYN) !== 0;
    let connection = this.live.get(key);
    if (connection !== undefined) {
      this.live.delete(key);
      if (syn && this.isNew(connection, segment, from)) {
        connection.close('capture');
        connection = undefined;
      }
    }
    connection ??= this.open(segment, from, to, syn);
    this.live.set(key, connection);
    return connection;
  }

  /** A SYN with another initial sequence number: the ports are used again. */
  private isNew(connection: Connection, segment: TcpSegment, from: string): boolean {
    const stream = connection.streams[connection.ends[0] === from ? 0 : 1];
    return connection.closed || (stream.started && !stream.beganAt((segment.seq + 1) >>> 0));
  }

  private open(segment: TcpSegment, from: string, to: string, syn: boolean): Connection {
    if (this.live.size >= MAX_CONNECTIONS) {
      const [key, oldest] = this.live.entries().next().value!;
      oldest.close('capture');
      this.live.delete(key);
    }
    this.counts.connections++;
    const answers = syn && (segment.flags & TCP_FLAG.ACK) !== 0;
    // Without SYN the side with the lower port is taken for the listener.
    const opensHere = syn ? !answers : segment.sourcePort > segment.destinationPort;
    const ends: [string, string] = opensHere ? [from, to] : [to, from];
    const connection = new Connection(this.counts.connections, ends, syn, this.budgets, (from, event) => this.emit(from, event));
    if (this.others.size < MAX_SUMMARIES) this.others.add(connection);
    return connection;
  }

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
