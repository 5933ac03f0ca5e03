/**
 * One direction of a TCP connection, put in order from captured segments: reordering, retransmission,
 * overlaps, sequence numbers that wrap, keep-alives, bytes that the capture missed. RFC 9293 3.4 and 3.10.
 * Bytes that can no longer come are given up as a gap. Where segments overlap, the bytes that the capture
 * has first count; bytes that differ under the same numbers are reported.
 */
import { copyOf } from '../../base/copy.ts';
import { MAX_WAITING_OCTETS, MAX_WAITING_SEGMENTS, WAITING_COST } from './limits.ts';
import type { OctetBudget } from './octet-queue.ts';
import { TcpHistory } from './tcp-history.ts';

/** Segments further from the expected one than this belong to another time or connection. */
const MAX_DISTANCE = 0x3fff_ffff;
/**
 * Packets of the connection that may pass between an acknowledgement of bytes not seen and those octets: a
 * capture from several queues is that much out of order. After that they count as lost to the capture, since
 * no side will send them again.
 */
export const REORDER_PACKETS = 32;
/** Segments of a stream that has ended may come this much behind its end: what a network may hold back. */
export const MAX_LEFT_BEHIND = 0xff_ffff;

/** Window assumed until a SYN gives the scale: the largest possible with one, 1 GiB (RFC 7323). */
const LARGEST_SHIFT = 14;

/** When bytes were captured. */
export interface Stamp {
  /** Seconds. */
  readonly time: number;
  /** Packet of the file. */
  readonly packet: number;
}

interface TcpSink {
  /** The next bytes, and when the receiver had all up to them: they may have waited for earlier ones. */
  octets(bytes: Uint8Array, start: number, end: number, stamp: Stamp): void;
  gap(octets: number): void;
  /**
   * The other side has received bytes that were not seen: they may still come, late, or be given up as a
   * gap.
   */
  hole(): void;
  /**
   * `octets` that were sent again differ from those given out; the first of them stands `back` bytes before
   * the next one.
   */
  differs(octets: number, back: number): void;
  fin(): void;
}

/** A captured segment: `bytes[start..end)` of `length` bytes on the wire. */
interface SegmentText {
  readonly seq: number;
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly end: number;
  readonly length: number;
  readonly fin: boolean;
  /** The receiver dropped it, as far as its checksum shows: it counts only if no good copy comes. */
  readonly damaged: boolean;
}

interface Waiting {
  /** Distance from the stream's first byte, not wrapped. */
  readonly at: number;
  /** Bytes on the wire; `bytes` holds fewer if the capture cut the packet. */
  readonly length: number;
  readonly bytes: Uint8Array;
  readonly stamp: Stamp;
  /** Set until the receiver acknowledges it: a good copy may come instead. */
  damaged: boolean;
}

/** A FIN: `acceptable` if it lies in the window, so that bytes before it count as missing. */
interface Fin {
  readonly at: number;
  readonly acceptable: boolean;
}

export class TcpStream {
  private readonly sink: TcpSink;
  private readonly budget: OctetBudget;
  private readonly history: TcpHistory;
  /** Sequence number of the byte at distance 0. */
  private base: number | undefined;
  /** Distance of the next byte to give out. */
  private next = 0;
  /** When all bytes before the next one were there. */
  private nextStamp: Stamp = { time: 0, packet: 0 };
  private waiting: Waiting[] = [];
  private waitingOctets = 0;
  private finAt: Fin | undefined;
  private finished = false;
  private ackedTo = 0;
  private ackedFor = 0;
  /** Distance up to which the receiver accepts bytes. */
  private edge = 0;
  /** Segments whose bytes had all been seen: retransmissions, keep-alives, copies. */
  repeated = 0;
  /** Segments that came too late for all of their bytes: some stand before the first of the stream. */
  early = 0;
  /** Segments that waited for an earlier one. */
  reordered = 0;
  /** Segments that the receiver does not accept: too far away, or with a flag that is not its turn. */
  strange = 0;
  /** Segments with a wrong checksum that are not decoded. */
  damaged = 0;

  /** `budget` is for bytes that wait, `historyBudget` for those kept to be compared. */
  constructor(sink: TcpSink, budget: OctetBudget, historyBudget: OctetBudget) {
    this.sink = sink;
    this.budget = budget;
    this.history = new TcpHistory(historyBudget);
  }

  /** True if the byte after SYN was captured or is known. */
  get started(): boolean {
    return this.base !== undefined;
  }

  /** True once the FIN and all bytes before it were given out. */
  get ended(): boolean {
    return this.finished;
  }

  /**
   * The next byte has sequence number `seq`, which a SYN, the acknowledgement of a SYN or the lowest of the
   * first captured segments gives.
   */
  start(seq: number): void {
    this.base ??= seq >>> 0;
  }

  /** Is `seq` the number after this stream's SYN? Separates a repeated SYN from one of a new connection. */
  beganAt(seq: number): boolean {
    return this.base === seq >>> 0;
  }

  /** Does the receiver act on a RST with this number? Only on the one expected next (RFC 9293 3.10.7.4). */
  acceptsReset(seq: number): boolean {
    if (this.base === undefined) return true;
    const at = this.distance(seq);
    const last = this.waiting.at(-1);
    // Octets that the capture missed may have moved what the receiver expects.
    return (
      at === this.next ||
      at === this.ackedTo ||
      (last !== undefined && at === last.at + last.length) ||
      (this.finAt !== undefined && at === this.finAt.at + 1)
    );
  }

  /**
   * Can a segment with text be of this stream, which has ended? If not, the ports are in use again. A reset
   * stream may still have segments under way, up to its window's edge.
   */
  belongs(seq: number, length: number): boolean {
    if (this.base === undefined) return false;
    const at = this.distance(seq);
    const last = this.finished ? this.next + 1 : Math.max(this.edge, this.next);
    return at + length <= last && at >= this.next - MAX_LEFT_BEHIND;
  }

  private distance(seq: number): number {
    return this.next + ((seq - ((this.base! + this.next) >>> 0)) | 0);
  }

  /** The next captured segment. */
  segment(text: SegmentText, stamp: Stamp): void {
    const { seq, bytes, start, end, length, fin, damaged } = text;
    if (this.finished) {
      if (length > 0) this.countLate(seq, length);
      return;
    }
    if (length > 0 || (fin && !damaged)) this.start(seq);
    if (this.base === undefined) return;
    const at = this.distance(seq);
    if (Math.abs(at - this.next) > MAX_DISTANCE) {
      this.strange++;
      return;
    }
    if (fin && !damaged) this.takeFin(at + length);
    if (length > 0) {
      if (!damaged) this.compare(at, bytes, start, end);
      const isOld = at + length <= this.next;
      // A keep-alive carries the byte before the next one, or none.
      if (at < 0 && length > 1) this.early++;
      else if (isOld) this.repeated++;
      if (!isOld && at <= this.next && !damaged) this.give(at, bytes, start, end, length, stamp);
      else if (!isOld) this.keep({ at, bytes: copyOf(bytes, start, end), length, stamp, damaged });
    }
    this.drain();
  }

  /** A segment of a stream that has ended: sent again, or of no use to the receiver. */
  private countLate(seq: number, length: number): void {
    const at = this.distance(seq);
    if (at < 0 && length > 1) this.early++;
    else if (at + length <= this.next + 1) this.repeated++;
    else this.strange++;
  }

  private takeFin(at: number): void {
    if (at < this.next || this.finAt?.acceptable === true) return;
    const acceptable = at <= Math.max(this.edge, this.next);
    if (!acceptable) this.strange++;
    this.finAt = { at, acceptable };
  }

  /** The other side has acknowledged everything before `ack`, and takes `window` bytes more. */
  acknowledged(ack: number, window: number, shift: number = LARGEST_SHIFT): void {
    if (this.base === undefined || this.finished) return;
    const to = this.distance(ack);
    if (Math.abs(to - this.next) > MAX_DISTANCE) return;
    this.edge = Math.max(this.edge, to + window * 2 ** shift);
    this.acceptDamaged(to);
    if (to <= this.next) {
      this.ackedFor = 0;
      return;
    }
    // A FIN takes one sequence number.
    this.ackedTo = Math.max(this.ackedTo, this.finAt === undefined ? to : Math.min(to, this.finAt.at));
    if (this.ackedTo <= this.next) return;
    if (this.ackedFor++ === 0) this.sink.hole();
    if (this.ackedFor > REORDER_PACKETS && this.waiting.length > 0) this.giveUp();
  }

  /** The receiver took bytes captured with a wrong checksum: the capture errs, or lacks the good copy. */
  private acceptDamaged(to: number): void {
    const first = this.waiting[0];
    if (first?.damaged !== true || first.at + first.length > to) return;
    for (const segment of this.waiting) if (segment.at + segment.length <= to) segment.damaged = false;
    this.drain();
  }

  /** Nothing more comes: what waits is given out, with gaps. */
  flush(): void {
    while (this.waiting.length > 0) this.giveUp();
    const { finAt } = this;
    if (finAt?.acceptable === true && finAt.at > this.next && !this.finished) {
      this.sink.gap(finAt.at - this.next);
      this.next = finAt.at;
    }
    this.drain();
    this.history.release();
  }

  /** Were bytes of this segment given out before with other values? */
  private compare(at: number, bytes: Uint8Array, start: number, end: number): void {
    // A keep-alive carries one octet of any value under the last number (RFC 9293 3.8.4).
    if (at >= this.next || (end - start <= 1 && at === this.next - 1)) return;
    const found = this.history.compare(at, bytes, start, end);
    if (found !== undefined) this.sink.differs(found.octets, this.next - found.at);
  }

  /** Give out `bytes[start..end)`, which stand at `at` <= next, without those given before. */
  private give(
    at: number,
    bytes: Uint8Array,
    start: number,
    end: number,
    length: number,
    stamp: Stamp,
  ): void {
    const old = this.next - at;
    const captured = end - start;
    // The distance grows first: a sink may look at this stream.
    this.next = at + length;
    if (stamp.packet >= this.nextStamp.packet) this.nextStamp = stamp;
    if (old < captured) {
      this.history.remember(at + old, bytes, start + old, end);
      this.sink.octets(bytes, start + old, end, this.nextStamp);
    }
    const missing = length - Math.max(old, captured);
    if (missing > 0) this.sink.gap(missing);
  }

  private keep(segment: Waiting): void {
    const { at, bytes, length, damaged } = segment;
    if (damaged) this.damaged++;
    else this.reordered++;
    let from = this.waiting.length;
    while (from > 0 && this.waiting[from - 1]!.at > at) from--;
    const before = this.waiting[from - 1];
    if (
      before !== undefined &&
      before.at === at &&
      before.length >= length &&
      before.damaged === damaged &&
      startsWith(before.bytes, bytes)
    ) {
      this.repeated++;
      return;
    }
    const fits = this.budget.take(bytes.length + WAITING_COST);
    if (fits) {
      this.waiting.splice(from, 0, segment);
      this.waitingOctets += bytes.length;
    }
    if (!fits || this.waitingOctets > MAX_WAITING_OCTETS || this.waiting.length > MAX_WAITING_SEGMENTS)
      this.giveUp();
  }

  private drain(): void {
    for (let first = this.waiting[0]; first !== undefined && first.at <= this.next; first = this.waiting[0]) {
      const { at, length, bytes, stamp, damaged } = first;
      const over = at + length <= this.next;
      if (damaged && !over) {
        if (!this.overtakes(first)) return;
        continue;
      }
      this.waiting.shift();
      this.forget(first);
      if (!damaged) this.compare(at, bytes, 0, bytes.length);
      if (!over) this.give(at, bytes, 0, bytes.length, length, stamp);
    }
    if (this.finAt === undefined || this.next < this.finAt.at || this.finished) return;
    this.finished = true;
    for (const left of this.waiting) this.forget(left);
    this.waiting = [];
    this.history.release();
    this.sink.fin();
  }

  /** A good segment behind a damaged one that reaches the next byte goes first; true if there is one. */
  private overtakes(first: Waiting): boolean {
    const good = this.waiting.findIndex(({ at, damaged }) => !damaged && at <= this.next);
    if (good < 0) return false;
    this.waiting.splice(0, 1);
    this.waiting.splice(good, 0, first);
    return this.waiting[0] !== first;
  }

  private forget(segment: Waiting): void {
    this.waitingOctets -= segment.bytes.length;
    this.budget.take(-segment.bytes.length - WAITING_COST);
  }

  /** The bytes up to the first waiting segment will not come. */
  private giveUp(): void {
    const first = this.waiting[0];
    this.ackedFor = 0;
    if (first === undefined) return;
    first.damaged = false;
    const missing = first.at - this.next;
    if (missing > 0) {
      this.next = first.at;
      // Segments after the gap did not wait for the missing octets: they keep their own time.
      this.nextStamp = first.stamp;
      this.sink.gap(missing);
    }
    this.drain();
  }
}

/** Does `longer` begin with `shorter`? */
function startsWith(longer: Uint8Array, shorter: Uint8Array): boolean {
  return longer.length >= shorter.length && shorter.every((octet, i) => octet === longer[i]);
}
