/**
 * Both directions of one connection: pairs the start-up frames, so that each direction knows its CRC and
 * markers (RFC 5044 7.1.1: CRC if either asks, markers if the receiver asks), and judges what needs both
 * (order.ts). Never throws on input.
 */
import type { StartupFrame } from '../../mpa/wire.ts';
import { OPCODE } from '../../rdmap/wire.ts';
import type { ExpectedVersions } from './ulpdu.ts';
import type { OctetBudget } from '../capture/octet-queue.ts';
import { NbdTracker } from './nbd.ts';
import { SdpTracker } from './sdp.ts';
import { OrderChecker } from './order.ts';
import { problem } from './problems.ts';
import { judgeReply } from './startup.ts';
import { StreamDecoder } from './stream-decoder.ts';
import { emptySummary, summarize, type ConnectionSummary } from './summary.ts';
import type { DecodedStartup, Direction, InspectEvent } from './types.ts';

const REQUESTS: ReadonlySet<number> = new Set([OPCODE.READ_REQUEST, OPCODE.ATOMIC_REQUEST]);

/** How a {@link ConnectionDecoder} works. */
export interface ConnectionDecoderOptions {
  /** Called for every event, with the packet that completed it: the number given to `push`, else 0. */
  readonly emit: (event: InspectEvent, packet: number) => void;
  /** `startup` if the connection was captured from its first byte, the default; `unknown` if not. */
  readonly begin?: 'startup' | 'unknown';
  /** Shared limit of waiting bytes; see limits.ts. */
  readonly budget?: OctetBudget;
}

/**
 * Decodes one connection.
 *
 * @example
 * const decoder = new ConnectionDecoder({ emit: (event) => console.log(renderLine(event)) });
 * decoder.push(0, fromInitiator, 0, fromInitiator.length, seconds);
 * decoder.push(1, fromResponder, 0, fromResponder.length, seconds);
 * decoder.close(seconds);
 */
export class ConnectionDecoder {
  /** Counts so far. */
  readonly summary: ConnectionSummary = emptySummary();
  private readonly emit: (event: InspectEvent, packet: number) => void;
  private readonly streams: [StreamDecoder, StreamDecoder];
  private readonly order: OrderChecker;
  private readonly nbd: NbdTracker;
  private readonly sdp = new SdpTracker();
  private readonly startups: [StartupFrame | undefined, StartupFrame | undefined] = [undefined, undefined];
  private readonly ended: [boolean, boolean] = [false, false];
  private paired = false;

  /** A decoder of both directions of one connection. */
  constructor(options: ConnectionDecoderOptions) {
    this.emit = options.emit;
    this.order = new OrderChecker(options.budget);
    this.nbd = new NbdTracker(options.budget);
    const begin = options.begin ?? 'startup';
    const make = (direction: Direction): StreamDecoder =>
      new StreamDecoder({
        direction,
        begin,
        emit: (event, packet) => this.handle(event, packet),
        ...(options.budget === undefined ? {} : { budget: options.budget }),
      });
    this.streams = [make(0), make(1)];
  }

  /** True once anything of iWARP was seen. */
  get found(): boolean {
    return this.streams[0].found || this.streams[1].found;
  }

  /** The next bytes of one direction, `time` in seconds; `packet` is given back with the events. */
  push(
    direction: Direction,
    bytes: Uint8Array,
    start: number,
    end: number,
    time: number,
    packet?: number,
  ): void {
    if (!this.ended[direction]) this.streams[direction].push(bytes, start, end, time, packet);
  }

  /** The directions were taken for each other. Allowed until something of iWARP was found. */
  turn(): void {
    this.streams.reverse();
    this.ended.reverse();
    this.summary.directions.reverse();
    this.streams.forEach((stream, direction) => (stream.direction = direction as Direction));
    this.order.turn();
  }

  /** `octets` of one direction were not captured. */
  gap(direction: Direction, octets: number, time: number): void {
    if (this.ended[direction]) return;
    if (!this.streams[direction].gap(octets, time)) return;
    this.order.gap(direction);
    this.nbd.gap();
  }

  /**
   * `octets` of one direction were sent again with other values; the first stands `back` bytes before the
   * next one.
   */
  differs(direction: Direction, octets: number, back: number, time: number): void {
    if (!this.ended[direction]) this.streams[direction].differs(octets, back, time);
  }

  /** Bytes of one direction are missing so far: what the other side answers to them cannot be judged. */
  doubt(direction: Direction): void {
    this.order.doubt(direction);
    this.nbd.gap();
  }

  /** One direction is over. */
  end(direction: Direction, how: 'fin' | 'rst' | 'capture', time: number): void {
    if (this.ended[direction]) return;
    this.ended[direction] = true;
    this.streams[direction].end(how, time);
    if (!this.ended[0] || !this.ended[1]) return;
    this.order.release();
    this.nbd.release();
  }

  /** The capture is over. */
  close(time: number): void {
    this.end(0, 'capture', time);
    this.end(1, 'capture', time);
  }

  /** Take an event of one direction. */
  private handle(event: InspectEvent, packet: number): void {
    if (event.kind === 'startup') this.handleStartup(event);
    else if (event.kind === 'fpdu') {
      // FPDUs from a side whose start-up frame was missed: its peer need not wait for that frame any longer.
      const other = (event.direction ^ 1) as Direction;
      this.order.check(event);
      // A request whose fields were not captured: what answers it cannot be judged.
      if (event.captured !== undefined && event.rdmap !== undefined && REQUESTS.has(event.rdmap.opcode))
        this.order.doubt(event.direction);
      const nbd = this.nbd.fpdu(event);
      if (nbd !== undefined) this.summary.nbd = this.nbd.counts!;
      summarize(this.summary, event);
      const sdp = this.sdp.fpdu(event);
      const above = { ...(nbd !== undefined && { nbd }), ...(sdp !== undefined && { sdp }) };
      this.emit(nbd === undefined && sdp === undefined ? event : { ...event, ...above }, packet);
      if (!this.paired && this.startups[event.direction] === undefined) this.streams[other].giveUpWaiting();
      return;
    } else if (event.kind === 'note' && event.sdp !== undefined) this.sdp.note(event);
    else if (event.kind === 'note' && (event.octets > 0 || event.missing !== undefined)) {
      this.order.gap(event.direction);
      this.nbd.gap();
    }
    summarize(this.summary, event);
    const nbd = event.kind === 'startup' ? this.nbd.startup(event) : undefined;
    if (event.kind !== 'startup') {
      this.emit(event, packet);
      return;
    }
    const sdp = this.sdp.startup(event);
    this.emit({ ...event, ...(nbd !== undefined && { nbd }), ...(sdp !== undefined && { sdp }) }, packet);
    this.pair();
  }

  /** Take a start-up frame. */
  private handleStartup(event: DecodedStartup): void {
    const peer = this.startups[event.direction ^ 1];
    this.startups[event.direction] = event.frame;
    if (peer === undefined) return;
    if (peer.kind === event.frame.kind) {
      event.problems.push(problem('MPA-006', `both sides send a ${event.opcode} frame`));
      return;
    }
    if (event.frame.kind === 'reply') event.problems.push(...judgeReply(peer, event.frame));
  }

  /** Both frames are there: tell both directions how they are framed. */
  private pair(): void {
    const [zero, one] = this.startups;
    if (this.paired || zero === undefined || one === undefined || zero.kind === one.kind) return;
    this.paired = true;
    const initiator: Direction = zero.kind === 'request' ? 0 : 1;
    const request = initiator === 0 ? zero : one;
    const reply = initiator === 0 ? one : zero;
    if (reply.reject) {
      for (const stream of this.streams) stream.ignore();
      return;
    }
    this.order.begin(initiator, request, reply);
    // MPA-050: with revision 0 both ends use markers and CRC, and version 0 of DDP and RDMAP.
    const old = request.revision === 0 && reply.revision === 0;
    const versions: ExpectedVersions = old ? { ddp: 0, rdmap: 0 } : { ddp: 1, rdmap: 1 };
    const crc = old || request.crc || reply.crc ? 'on' : 'off';
    this.summary.crc = crc;
    this.summary.initiator = initiator;
    const markers: [boolean, boolean] = [one.markers || old, zero.markers || old];
    this.summary.markers = markers;
    // The initiator first: MPA-028 lets the responder speak only after it.
    for (const direction of [initiator, (initiator ^ 1) as Direction]) {
      this.streams[direction].setFraming({ markers: markers[direction], markerPhase: 0, crc }, versions);
    }
  }
}
