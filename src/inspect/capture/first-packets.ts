/**
 * The first packets of a TCP connection whose beginning the capture does not have: a capture from several
 * queues holds segments in the wrong order (RFC 9293 3.4 puts them in the right one), so that the first
 * segment in the file need not be the first of its stream. Some packets are looked at before that is decided.
 */
import { copyOf } from '../../base/copy.ts';
import { WAITING_COST } from './limits.ts';
import type { OctetBudget } from './octet-queue.ts';
import { TCP_FLAG, type TcpSegment } from './packet.ts';
import { MAX_LEFT_BEHIND, REORDER_PACKETS, type Stamp } from './tcp.ts';

/**
 * Seconds that separate packets out of order at most. Without this limit the lines of a connection that rests
 * would not be seen while a live capture goes on.
 */
const REORDER_SECONDS = 1;

/** A packet as it was captured, and the end that sent it. */
interface HeldPacket {
  readonly segment: TcpSegment;
  readonly from: string;
  readonly stamp: Stamp;
}

export class FirstPackets {
  private readonly budget: OctetBudget;
  private packets: HeldPacket[] = [];

  /** `budget` is for the bytes of the packets that are held. */
  constructor(budget: OctetBudget) {
    this.budget = budget;
  }

  /** True while packets are held. */
  get holds(): boolean {
    return this.packets.length > 0;
  }

  /** Hold a copy of a packet; false if the budget has no room for it. */
  hold(segment: TcpSegment, from: string, stamp: Stamp): boolean {
    const bytes = copyOf(segment.bytes, segment.start, segment.end);
    if (!this.budget.take(bytes.length + WAITING_COST)) return false;
    this.packets.push({ segment: { ...segment, bytes, start: 0, end: bytes.length }, from, stamp });
    return true;
  }

  /** Would a packet of this time come too late to be one of the first? */
  isOver(time: number): boolean {
    return time - this.packets[0]!.stamp.time > REORDER_SECONDS;
  }

  /** True if no more is waited for: enough packets, a reset, or the ends of both directions. */
  get isFull(): boolean {
    if (this.packets.length >= REORDER_PACKETS) return true;
    const ended = this.packets.filter(({ segment }) => (segment.flags & TCP_FLAG.FIN) !== 0);
    return (
      (this.packets.at(-1)!.segment.flags & TCP_FLAG.RST) !== 0 ||
      ended.some(({ from }) => from !== ended[0]!.from)
    );
  }

  /**
   * The lowest sequence number of text or FIN from this end, undefined if there is none. Numbers far below
   * the first one are of another time or connection. Where checksums are right, the others are not believed.
   */
  lowest(from: string): number | undefined {
    const all = this.packets.filter(({ from: sender, segment }) => sender === from && takesNumbers(segment));
    const isChecked = all.some(({ segment }) => segment.checksum === 'good');
    const sure = isChecked ? all.filter(({ segment }) => segment.checksum !== 'wrong') : all;
    const first = sure[0]?.segment.seq;
    if (first === undefined) return undefined;
    const back = sure.map(({ segment }) => (segment.seq - first) | 0).filter((by) => by >= -MAX_LEFT_BEHIND);
    return (first + Math.min(...back)) >>> 0;
  }

  /** The packets in the order of the capture; none are held any longer. */
  release(): readonly HeldPacket[] {
    const { packets } = this;
    this.packets = [];
    for (const { segment } of packets) this.budget.take(-segment.bytes.length - WAITING_COST);
    return packets;
  }
}

/** Does the segment have text or the end of the stream? A reset has neither, and a SYN counts by itself. */
export function takesNumbers({ length, flags }: TcpSegment): boolean {
  if ((flags & (TCP_FLAG.RST | TCP_FLAG.SYN)) !== 0) return false;
  return length > 0 || (flags & TCP_FLAG.FIN) !== 0;
}
