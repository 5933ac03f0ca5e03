/**
 * One TCP connection of a capture: its segments as a receiver takes them (RFC 9293 3.10.7), its directions
 * decoded.
 */
import { FirstPackets, takesNumbers } from '../capture/first-packets.ts';
import type { OctetBudget } from '../capture/octet-queue.ts';
import { TCP_FLAG, type TcpSegment } from '../capture/packet.ts';
import { TcpStream, type Stamp } from '../capture/tcp.ts';
import { ConnectionDecoder } from './connection-decoder.ts';
import { matchKey } from './startup.ts';
import type { ConnectionSummary } from './summary.ts';
import type { Direction, InspectEvent } from './types.ts';

/** One TCP connection of a capture. */
export interface CapturedConnection {
  /** Counted from 1 in the order of their first packets. */
  readonly number: number;
  /** `address:port`; the first opened the connection, as far as the capture shows. */
  readonly ends: readonly [string, string];
  /** Whether the capture holds the connection from its first packet. */
  readonly fromStart: boolean;
  /** Counts of decoded frames, segments and faults. */
  readonly summary: ConnectionSummary;
  /** Whether anything of iWARP was seen in it. */
  readonly iwarp: boolean;
  /** TCP segments whose bytes had all been seen before. */
  readonly repeatedSegments: number;
  /** TCP segments that came before an earlier one. */
  readonly reorderedSegments: number;
  /** TCP segments from before the first byte that was decoded, which came too late to be put in order. */
  readonly earlySegments: number;
  /**
   * The packet of the capture file, counted from 1, that completed the present event; undefined where there
   * is no file.
   */
  readonly packet?: number;
}

/** Limits that all connections share. */
export interface Budgets {
  readonly waiting: OctetBudget;
  readonly history: OctetBudget;
}

/**
 * The relation of a segment to the connection with its ports: a member of it, a stray, or the first segment
 * of another connection, opened by the end with address `opener` where that is known.
 */
type Belonging =
  | { readonly kind: 'member' | 'stray' }
  | { readonly kind: 'successor'; readonly opener?: string };

const MEMBER: Belonging = { kind: 'member' };
const STRAY: Belonging = { kind: 'stray' };

export class Connection implements CapturedConnection {
  readonly number: number;
  ends: readonly [string, string];
  readonly fromStart: boolean;
  readonly decoder: ConnectionDecoder;
  readonly streams: [TcpStream, TcpStream];
  packet = 0;
  closed = false;
  private readonly first: FirstPackets;
  private time = 0;
  /** Directions of which a good checksum was seen: there a wrong one is no matter of offload. */
  private readonly checksums: [boolean, boolean] = [false, false];
  /** The shift of each side's window, once its SYN was seen. */
  private readonly shifts: [number | undefined, number | undefined] = [undefined, undefined];
  /** A SYN within the connection: the segments after it show whether it began another one. */
  private syn: { readonly from: string; readonly next: number } | undefined;
  private ignored = 0;

  constructor(
    number: number,
    ends: [string, string],
    fromStart: boolean,
    budgets: Budgets,
    emit: (connection: Connection, event: InspectEvent) => void,
  ) {
    this.number = number;
    this.ends = ends;
    this.fromStart = fromStart;
    this.first = new FirstPackets(budgets.waiting);
    this.decoder = new ConnectionDecoder({
      begin: fromStart ? 'startup' : 'unknown',
      budget: budgets.waiting,
      emit: (event, packet) => {
        this.packet = packet;
        emit(this, event);
      },
    });
    const stream = (): TcpStream => {
      // The direction is looked up: turn() may change it.
      const made: TcpStream = new TcpStream(
        {
          octets: (bytes, start, end, { time, packet }) =>
            this.decoder.push(this.directionOf(made), bytes, start, end, time, packet),
          gap: (octets) => this.decoder.gap(this.directionOf(made), octets, this.time),
          hole: () => this.decoder.doubt(this.directionOf(made)),
          differs: (octets, back) => this.decoder.differs(this.directionOf(made), octets, back, this.time),
          fin: () => this.decoder.end(this.directionOf(made), 'fin', this.time),
        },
        budgets.waiting,
        budgets.history,
      );
      return made;
    };
    this.streams = [stream(), stream()];
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

  get earlySegments(): number {
    return this.streams[0].early + this.streams[1].early;
  }

  /** Segments that a receiver does not accept. */
  get strangeSegments(): number {
    return this.streams[0].strange + this.streams[1].strange + this.ignored;
  }

  /** Segments whose checksum is wrong, where others are right. */
  get damagedSegments(): number {
    return this.streams[0].damaged + this.streams[1].damaged;
  }

  private directionOf(stream: TcpStream): Direction {
    return stream === this.streams[0] ? 0 : 1;
  }

  /** Does this segment continue the connection? Asked before {@link take}. */
  judge(segment: TcpSegment, from: string): Belonging {
    const stream = this.streams[this.ends[0] === from ? 0 : 1];
    const over = this.closed || (this.streams[0].ended && this.streams[1].ended);
    if ((segment.flags & TCP_FLAG.SYN) !== 0) {
      this.settle();
      return this.judgeSyn(segment, from, stream, over);
    }
    const reset = (segment.flags & TCP_FLAG.RST) !== 0;
    const { syn } = this;
    if (syn !== undefined && !reset && continues(segment, from, syn))
      return { kind: 'successor', opener: syn.from };
    if (over && segment.length > 0 && !reset && !stream.belongs(segment.seq, segment.length))
      return { kind: 'successor' };
    return this.closed ? STRAY : MEMBER;
  }

  /**
   * A SYN with another initial sequence number is not accepted while the connection lives (RFC 5961 4): the
   * segments after it show whether its ends have begun anew.
   */
  private judgeSyn(
    { seq, ack, flags }: TcpSegment,
    from: string,
    stream: TcpStream,
    over: boolean,
  ): Belonging {
    const next = (seq + 1) >>> 0;
    if (this.closed || (over && !stream.beganAt(next))) return { kind: 'successor' };
    if (!stream.started || stream.beganAt(next)) return MEMBER;
    const { syn } = this;
    const answers =
      (flags & TCP_FLAG.ACK) !== 0 && syn !== undefined && syn.from !== from && ack === syn.next;
    if (answers) return { kind: 'successor', opener: syn.from };
    this.syn = { from, next };
    this.ignored++;
    return STRAY;
  }

  /**
   * A segment that belongs here. While the first byte of a direction is not known, segments are held for a
   * while: an earlier one may follow.
   */
  take(segment: TcpSegment, from: string, stamp: Stamp): void {
    if (this.first.holds && this.first.isOver(stamp.time)) this.settle();
    const stream = this.streams[this.ends[0] === from ? 0 : 1];
    const holds = this.first.holds || (!stream.started && takesNumbers(segment));
    if (!holds || this.closed) {
      this.takeNow(segment, from, stamp);
      return;
    }
    const held = this.first.hold(segment, from, stamp);
    if (!held || this.first.isFull) this.settle();
    if (!held) this.takeNow(segment, from, stamp);
  }

  /** The streams begin with the lowest of the segments that are held, which are taken now. */
  private settle(): void {
    if (!this.first.holds) return;
    for (const direction of [0, 1] as const) {
      const seq = this.first.lowest(this.ends[direction]);
      if (seq !== undefined) this.streams[direction].start(seq);
    }
    for (const { segment, from, stamp } of this.first.release()) this.takeNow(segment, from, stamp);
  }

  private takeNow(segment: TcpSegment, from: string, stamp: Stamp): void {
    this.time = stamp.time;
    if (this.closed) return;
    this.orient(segment, from);
    const direction: Direction = this.ends[0] === from ? 0 : 1;
    const sender = this.streams[direction];
    const receiver = this.streams[direction ^ 1]!;
    if (segment.checksum === 'good') this.checksums[direction] = true;
    const damaged = segment.checksum === 'wrong' && this.checksums[direction];
    const has = (flag: number): boolean => !damaged && (segment.flags & flag) !== 0;
    const seq = has(TCP_FLAG.SYN) ? (segment.seq + 1) >>> 0 : segment.seq;
    if (has(TCP_FLAG.SYN)) {
      this.shifts[direction] = segment.windowShift;
      sender.start(seq);
      // SYN with ACK acknowledges the other side's SYN, captured or not.
      if (has(TCP_FLAG.ACK)) receiver.start(segment.ack);
    }
    // The acknowledgement first: what this segment says may answer octets of the other side that were not
    // captured.
    if (has(TCP_FLAG.ACK))
      receiver.acknowledged(segment.ack, segment.window, has(TCP_FLAG.SYN) ? 0 : this.shifts[direction]);
    if (has(TCP_FLAG.RST)) {
      // The text of a RST is a message to people (RFC 9293 3.5.3) and not of the stream.
      if (sender.acceptsReset(seq)) this.close('rst');
      else this.ignored++;
      return;
    }
    const { bytes, start, end, length } = segment;
    sender.segment({ seq, bytes, start, end, length, fin: has(TCP_FLAG.FIN), damaged }, stamp);
  }

  /** Without a SYN only the MPA Request shows which side opened the connection. */
  private orient({ bytes, start, end }: TcpSegment, from: string): void {
    if (this.fromStart || this.iwarp || start === end) return;
    const key = matchKey(bytes, start, end - start);
    if (key?.exact !== true || (key.kind === 'request') === (this.ends[0] === from)) return;
    this.ends = [this.ends[1], this.ends[0]];
    for (const pair of [this.streams, this.checksums, this.shifts]) pair.reverse();
    this.decoder.turn();
  }

  close(how: 'rst' | 'capture'): void {
    this.settle();
    if (this.closed) return;
    this.closed = true;
    for (const direction of [0, 1] as const) {
      this.streams[direction].flush();
      this.decoder.end(direction, how, this.time);
    }
  }
}

/** Does a segment go on from a SYN: its sender's next byte, or the other side's acknowledgement? */
function continues(
  { seq, ack, flags }: TcpSegment,
  from: string,
  syn: { readonly from: string; readonly next: number },
): boolean {
  return from === syn.from ? seq === syn.next : (flags & TCP_FLAG.ACK) !== 0 && ack === syn.next;
}
