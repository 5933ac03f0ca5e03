/**
 * One direction of a TCP connection, put in order from captured segments: reordering, retransmission, overlaps, sequence numbers that
 * wrap, keep-alives, octets that the capture missed. RFC 9293 3.4 and 3.10. What can no longer come is given up as a gap. Where segments
 * overlap, the octets that the capture has first count; that others under the same numbers differ is told.
 */
import { copyOf } from '../base/copy.ts';
import { MAX_WAITING_OCTETS, MAX_WAITING_SEGMENTS, WAITING_COST } from './limits.ts';
import type { OctetBudget } from './octet-queue.ts';
import { TcpHistory } from './tcp-history.ts';

/** Segments further from the expected one than this belong to another time or connection. */
const MAX_DISTANCE = 0x3fff_ffff;
/**
 * Packets of the connection that may pass between an acknowledgement of octets not seen and those octets: a capture from several
 * queues is that much out of order. After that they count as lost to the capture, since nobody will send them again.
 */
const REORDER_PACKETS = 32;

interface TcpSink {
  octets(bytes: Uint8Array, start: number, end: number): void;
  gap(octets: number): void;
  /** The other side has received octets that were not seen: they may still come, late, or be given up as a gap. */
  hole(): void;
  /** `octets` that were sent again differ from those given out; the first of them stands `back` octets before the next one. */
  differs(octets: number, back: number): void;
  fin(): void;
}

interface Waiting {
  /** Distance from the stream's first octet, not wrapped. */
  readonly at: number;
  /** Octets on the wire; `bytes` holds fewer if the capture cut the packet. */
  readonly length: number;
  readonly bytes: Uint8Array;
}

export class TcpStream {
  private readonly sink: TcpSink;
  private readonly budget: OctetBudget;
  private readonly history: TcpHistory;
  /** Sequence number of the octet at distance 0. */
  private base: number | undefined;
  /** Distance of the next octet to give out. */
  private next = 0;
  private waiting: Waiting[] = [];
  private waitingOctets = 0;
  private finAt: number | undefined;
  private finished = false;
  private ackedTo = 0;
  private ackedFor = 0;
  /** Segments whose octets had all been seen: retransmissions, keep-alives, copies. */
  repeated = 0;
  /** Segments that waited for an earlier one. */
  reordered = 0;
  /** Segments too far away to belong here. */
  strange = 0;

  /** `budget` is for octets that wait, `historyBudget` for those kept to be compared. */
  constructor(sink: TcpSink, budget: OctetBudget, historyBudget: OctetBudget) {
    this.sink = sink;
    this.budget = budget;
    this.history = new TcpHistory(historyBudget);
  }

  /** True if the octet after SYN was captured or is known. */
  get started(): boolean {
    return this.base !== undefined;
  }

  /** The next octet has sequence number `seq`: told by SYN, by the acknowledgement of a SYN, or by the first segment captured. */
  start(seq: number): void {
    this.base ??= seq >>> 0;
  }

  /** Is `seq` the number after this stream's SYN? Tells a repeated SYN from that of a new connection. */
  beganAt(seq: number): boolean {
    return this.base === seq >>> 0;
  }

  private distance(seq: number): number {
    return this.next + ((seq - ((this.base! + this.next) >>> 0)) | 0);
  }

  /** A captured segment: `bytes[start..end)` of `length` octets on the wire. */
  segment(seq: number, bytes: Uint8Array, start: number, end: number, length: number, fin: boolean): void {
    if (this.finished) return;
    if (length > 0 || fin) this.start(seq);
    if (this.base === undefined) return;
    const at = this.distance(seq);
    if (Math.abs(at - this.next) > MAX_DISTANCE) {
      this.strange++;
      return;
    }
    if (fin && this.finAt === undefined && at + length >= this.next) this.finAt = at + length;
    if (length > 0) {
      this.compare(at, bytes, start, end);
      if (at + length <= this.next) this.repeated++;
      else if (at <= this.next) this.give(at, bytes, start, end, length);
      else this.keep(at, copyOf(bytes, start, end), length);
    }
    this.drain();
  }

  /** The other side has acknowledged everything before `ack`. */
  acknowledged(ack: number): void {
    if (this.base === undefined || this.finished) return;
    const to = this.distance(ack);
    if (Math.abs(to - this.next) > MAX_DISTANCE || to <= this.next) {
      this.ackedFor = 0;
      return;
    }
    // A FIN takes a sequence number of its own.
    this.ackedTo = Math.max(this.ackedTo, this.finAt === undefined ? to : Math.min(to, this.finAt));
    if (this.ackedTo <= this.next) return;
    if (this.ackedFor++ === 0) this.sink.hole();
    if (this.ackedFor > REORDER_PACKETS && this.waiting.length > 0) this.giveUp();
  }

  /** Nothing more comes: what waits is given out, with gaps. */
  flush(): void {
    while (this.waiting.length > 0) this.giveUp();
    if (this.finAt !== undefined && this.finAt > this.next && !this.finished) {
      this.sink.gap(this.finAt - this.next);
      this.next = this.finAt;
    }
    this.drain();
    this.history.release();
  }

  /** Were octets of this segment given out before, and were they others? */
  private compare(at: number, bytes: Uint8Array, start: number, end: number): void {
    // A keep-alive carries one octet of any value under the last number (RFC 9293 3.8.4).
    if (at >= this.next || (end - start <= 1 && at === this.next - 1)) return;
    const found = this.history.compare(at, bytes, start, end);
    if (found !== undefined) this.sink.differs(found.octets, this.next - found.at);
  }

  /** Give out `bytes[start..end)`, which stand at `at` <= next, without what was given before. */
  private give(at: number, bytes: Uint8Array, start: number, end: number, length: number): void {
    const old = this.next - at;
    const captured = end - start;
    // The distance grows first: a sink may look at this stream.
    this.next = at + length;
    if (old < captured) {
      this.history.remember(at + old, bytes, start + old, end);
      this.sink.octets(bytes, start + old, end);
    }
    const missing = length - Math.max(old, captured);
    if (missing > 0) this.sink.gap(missing);
  }

  private keep(at: number, bytes: Uint8Array, length: number): void {
    this.reordered++;
    let from = this.waiting.length;
    while (from > 0 && this.waiting[from - 1]!.at > at) from--;
    const before = this.waiting[from - 1];
    if (before !== undefined && before.at === at && before.length >= length && startsWith(before.bytes, bytes)) {
      this.repeated++;
      return;
    }
    const fits = this.budget.take(bytes.length + WAITING_COST);
    if (fits) {
      this.waiting.splice(from, 0, { at, length, bytes });
      this.waitingOctets += bytes.length;
    }
    if (!fits || this.waitingOctets > MAX_WAITING_OCTETS || this.waiting.length > MAX_WAITING_SEGMENTS) this.giveUp();
  }

  private drain(): void {
    for (let first = this.waiting[0]; first !== undefined && first.at <= this.next; first = this.waiting[0]) {
      this.waiting.shift();
      this.forget(first);
      this.compare(first.at, first.bytes, 0, first.bytes.length);
      if (first.at + first.length > this.next) this.give(first.at, first.bytes, 0, first.bytes.length, first.length);
    }
    if (this.finAt === undefined || this.next < this.finAt || this.finished) return;
    this.finished = true;
    for (const left of this.waiting) this.forget(left);
    this.waiting = [];
    this.history.release();
    this.sink.fin();
  }

  private forget(segment: Waiting): void {
    this.waitingOctets -= segment.bytes.length;
    this.budget.take(-segment.bytes.length - WAITING_COST);
  }

  /** The octets up to the first waiting segment will not come. */
  private giveUp(): void {
    const first = this.waiting[0];
    this.ackedFor = 0;
    if (first === undefined) return;
    const missing = first.at - this.next;
    this.next = first.at;
    this.sink.gap(missing);
    this.drain();
  }
}

/** Does `longer` begin with `shorter`? */
function startsWith(longer: Uint8Array, shorter: Uint8Array): boolean {
  return longer.length >= shorter.length && shorter.every((octet, i) => octet === longer[i]);
}
