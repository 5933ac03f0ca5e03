/**
 * The reliable channel between two ends, without sockets, clock or DDP: a send window, the order of what
 * arrives, and the policy of acknowledgements. An acknowledgement goes with a datagram that leaves anyway; at
 * once where something is missing, has come twice, or has filled a hole; else after a number of datagrams
 * that adapts to the peer's bursts, or after a millisecond.
 */
import type { Transmission } from '../llp/lower-layer.ts';
import { ARRIVAL, ReceiveOrder } from './order.ts';
import { bufferOctets, PACKET, releasePacket, type Packet } from './packet.ts';
import { cutPacket } from './pieces.ts';
import type { TrpProfile, TrpSizes } from './profile.ts';
import { SendWindow } from './window.ts';
import { encodeTrpHeader, TRP_ACK_OFFSET, TRP_HEADER_OCTETS, TRP_OPCODE, type TrpHeader } from './wire.ts';

/** Datagrams that one write hands to the port. */
const BATCH = 32;
/** Longer writes are not used again: their lists would keep the memory of all their packets. */
const MOST_SPARE = 4;
/** How long an acknowledgement may wait for company, ms. */
const ACK_DELAY = 1;
/**
 * Datagrams that one acknowledgement answers at most, and bytes of a receive buffer: half a window. Of
 * datagrams a quarter is enough, for an acknowledgement of 64 takes 1 % of the time that they take.
 */
const MOST_UNANSWERED = 64;
const MOST_OCTETS = 196_608;
/** Two datagrams within this many ms belong to one burst, or the second has waited for the answer. */
const BURST_GAP = 0.05;
/** Datagrams between two tries to answer more at once, for a peer that has waited each time. */
const MOST_PATIENT = 8192;
/**
 * Transmissions of a long datagram in vain before the path is suspected (MAX_PROBES of RFC 8899 5.1.2). It is
 * taken to carry less when the peer is heard after that, and the datagram has still not arrived.
 */
const SUSPECT_AFTER = 3;
const NEVER = Number.POSITIVE_INFINITY;

/** Counts of a channel. */
export interface ChannelCounters {
  /** Datagrams with a segment that were new. */
  received: number;
  /** Of those, above a hole. */
  above: number;
  /** Segments that have come before. */
  repeats: number;
  /** Segments outside of the window, or one range too many. */
  outside: number;
  /** Acknowledgements of datagrams never sent, or far behind; ranges that are empty or were never sent. */
  badAcks: number;
  /** Acknowledgements sent alone. */
  acks: number;
  /** Ranges sent. */
  ranges: number;
  /** Datagrams sent with a piece of a segment. */
  pieces: number;
}

/** One write: its datagrams, and those of the window among them, which are lent to the port. */
export class ChannelWrite implements Transmission {
  /** Datagrams, the first `count`. */
  readonly chunks: Uint8Array[] = [];
  count = 0;
  /** Packets lent, the first `lent`: those of the first chunks. */
  readonly packets: Packet[] = [];
  lent = 0;

  /** The port has done with it. */
  done(): void {
    for (let i = 0; i < this.lent; i++) {
      const packet = this.packets[i]!;
      if (--packet.lent === 0 && packet.state === PACKET.ACKED) releasePacket(packet);
    }
    this.count = this.lent = 0;
  }
}

export class Channel {
  readonly window: SendWindow;
  readonly order: ReceiveOrder;
  readonly counters: ChannelCounters = {
    received: 0,
    above: 0,
    repeats: 0,
    outside: 0,
    badAcks: 0,
    acks: 0,
    ranges: 0,
    pieces: 0,
  };
  readonly #reported: number;
  readonly #mostOctets: number;
  /**
   * An acknowledgement that is owed: at the next opportunity, also without data, which may be too long to
   * arrive; within a millisecond, or none.
   */
  #owed: 'no' | 'soon' | 'now' | 'alone' = 'no';
  /** New datagrams since the last acknowledgement, their bytes, and when the first of them came. */
  #unanswered = 0;
  #unansweredOctets = 0;
  #owedAt = 0;
  /** Datagrams after which an acknowledgement leaves at once. */
  #every = 2;
  #lastArrival = -1;
  /** Datagrams until the next try to answer more at once; twice as many after each that has failed. */
  #untilTry = 0;
  #nextTry = 1;
  /** The number that had come when the peer stopped and waited; 0 once more have come than that. */
  #stoppedAfter = 0;
  /** When an acknowledgement last left alone, of which datagrams would have taken care soon after. */
  #ackedAlone = Number.NEGATIVE_INFINITY;
  /** The program answers soon, so that acknowledgements had better wait. */
  #talk: 'one-way' | 'both-ways' = 'one-way';
  #ackTimer = NEVER;
  /** A write that the port has done with, to be used again. */
  #spare: ChannelWrite | null = null;
  /** Bytes of the longest ULPDU for a path that carries less; what it carries, as far as is known. */
  readonly #narrow: number;
  path: 'whole' | 'suspected' | 'narrow' = 'whole';
  #suspectAt = 0;
  /** When something was sent last, and when something was heard. */
  lastSent = 0;
  lastHeard = 0;

  constructor(
    profile: TrpProfile,
    first: number,
    peerFirst: number,
    sizes: Pick<TrpSizes, 'window' | 'octets' | 'narrow'>,
  ) {
    this.#narrow = sizes.narrow;
    this.#reported = profile.reportedRanges;
    this.#mostOctets = Math.min(MOST_OCTETS, sizes.octets / 2);
    this.window = new SendWindow(profile, first, sizes.window, sizes.octets);
    this.order = new ReceiveOrder(peerFirst, profile.maxRanges);
  }

  // ------------------------------------------------------------------------------------------------- hearing

  /** The acknowledgement in a data datagram or FIN. False if no honest peer has sent it. */
  hearAck(header: TrpHeader, now: number): boolean {
    const { window } = this;
    const sequence = window.sequence(header.ack);
    if (sequence > window.next || sequence < window.una - MAX_OLD) {
      this.counters.badAcks++;
      return false;
    }
    window.acknowledge(sequence, now); // an older one says nothing
    this.lastHeard = now;
    return true;
  }

  /** A range that the peer has. */
  hearRange(header: TrpHeader, now: number): void {
    const { window } = this;
    const start = window.sequence(header.psn);
    const end = window.sequence(header.ack);
    const old = end > start && end <= window.una && start >= window.una - MAX_OLD;
    if (old) return;
    if (end > window.next || !window.acknowledgeRange(start, end, now)) this.counters.badAcks++;
    else this.lastHeard = now;
  }

  /** What a segment with this number is. */
  judge(psn: number): number {
    return this.order.judge(this.order.sequence(psn));
  }

  /** A segment that has come: taken, or of no use. */
  took(arrival: number, filledHole: boolean, octets: number, now: number): void {
    const { counters } = this;
    if (arrival === ARRIVAL.OUTSIDE) {
      counters.outside++;
      return;
    }
    if (arrival === ARRIVAL.REPEAT) counters.repeats++;
    else counters.received++;
    if (arrival === ARRIVAL.ABOVE) counters.above++;
    if (arrival !== ARRIVAL.NEXT || filledHole) {
      this.#owed = 'now';
      return;
    }
    if (now - this.#lastArrival < BURST_GAP) this.#seeBurst();
    this.#lastArrival = now;
    if (this.#unanswered++ === 0) {
      this.#owedAt = now;
      this.#unansweredOctets = 0;
    }
    this.#unansweredOctets += bufferOctets(octets);
    const enough = this.#talk === 'both-ways' ? Math.max(2, this.#every) : this.#every;
    if (this.#unanswered > this.#stoppedAfter) this.#stoppedAfter = 0;
    if (this.#unanswered >= enough || this.#unansweredOctets >= this.#mostOctets) this.#owed = 'now';
    else if (this.#owed === 'no') {
      this.#owed = 'soon';
      if (this.#ackTimer === NEVER) this.#ackTimer = now + ACK_DELAY;
    }
  }

  #seeBurst(): void {
    if (this.#untilTry > 0) {
      this.#untilTry--;
      return;
    }
    this.#every = Math.min(2 * this.#every, MOST_UNANSWERED);
    if (this.#stoppedAfter === 0) this.#nextTry = 1;
  }

  /** Acknowledge at the next opportunity. */
  oweAck(): void {
    this.#owed = 'now';
  }

  // ------------------------------------------------------------------------------------------------- sending

  /** Datagrams to be written now; null for none. `returned` has to follow. */
  poll(now: number): ChannelWrite | null {
    const { window } = this;
    let sequence = window.poll(now);
    if (sequence < 0 && !this.#owesNow()) return null;
    const write = this.#spare ?? new ChannelWrite();
    this.#spare = null;
    for (; sequence >= 0; sequence = write.count < BATCH ? window.poll(now) : -1) {
      const packet = window.sent(sequence, now);
      packet.view.setUint32(TRP_ACK_OFFSET, this.order.wire(this.order.expected));
      packet.lent++;
      if (this.path === 'narrow' && this.#isLong(packet)) this.#addPieces(write, packet);
      else write.chunks[write.count++] = packet.datagram;
      write.packets[write.lent++] = packet;
    }
    if (write.lent > 0) this.#carried(now);
    if (this.#owesNow()) this.#acknowledge(write, now);
    this.lastSent = now;
    return write;
  }

  #owesNow(): boolean {
    return this.#owed === 'now' || this.#owed === 'alone';
  }

  #isLong({ length }: Packet): boolean {
    return length - TRP_HEADER_OCTETS > this.#narrow;
  }

  #addPieces(write: ChannelWrite, packet: Packet): void {
    for (const piece of cutPacket(packet, this.#narrow)) {
      write.chunks[write.count++] = piece;
      this.counters.pieces++;
    }
  }

  /** The port has done with this write. */
  returned(write: ChannelWrite): void {
    write.done();
    if (write.chunks.length <= MOST_SPARE) this.#spare = write;
  }

  /** Data has taken the acknowledgement along; ranges it cannot carry. */
  #carried(now: number): void {
    const since = this.#unanswered > 0 ? this.#owedAt : this.#ackedAlone;
    if (now - since < ACK_DELAY) this.#talk = 'both-ways';
    this.#unanswered = 0;
    if (this.order.starts.length === 0 && this.#owed !== 'alone') this.#owed = 'no';
  }

  #acknowledge(write: ChannelWrite, now: number): void {
    const { order, window, counters } = this;
    const expected = order.wire(order.expected);
    write.chunks[write.count++] = encodeTrpHeader(window.wire(window.next), expected, TRP_OPCODE.DATA);
    counters.acks++;
    for (const i of order.reported(this.#reported)) {
      const [start, end] = [order.wire(order.starts[i]!), order.wire(order.ends[i]!)];
      write.chunks[write.count++] = encodeTrpHeader(start, end, TRP_OPCODE.SACK);
      counters.ranges++;
    }
    if (this.#unanswered > 0) this.#ackedAlone = now;
    this.#owed = 'no';
    this.#unanswered = 0;
    this.lastSent = now;
  }

  /** A FIN: nothing comes from `sequence` on. */
  fin(sequence: number): Uint8Array {
    const { window, order } = this;
    return encodeTrpHeader(window.wire(sequence), order.wire(order.expected), TRP_OPCODE.FIN);
  }

  // -------------------------------------------------------------------------------------------------- timers

  get timeout(): number {
    return Math.min(this.window.timeout, this.#ackTimer);
  }

  /**
   * Short datagrams pass and long ones do not: a black hole (RFC 8899 4.3). No router has to say so, and a
   * thread that stood still is not taken for one, for the long datagrams in its socket come first.
   */
  #watchPath(now: number): void {
    if (!this.window.isStuck(this.#narrow + TRP_HEADER_OCTETS, SUSPECT_AFTER)) {
      this.path = 'whole';
      return;
    }
    if (this.path === 'whole') {
      this.path = 'suspected';
      this.#suspectAt = now;
    } else if (this.lastHeard > this.#suspectAt) {
      this.path = 'narrow';
    }
    this.#owed = 'alone'; // a peer that has been silent answers
  }

  expire(now: number, deadPeer: number): void {
    this.window.expire(now, deadPeer);
    if (this.path !== 'narrow') this.#watchPath(now);
    if (now < this.#ackTimer) return;
    this.#ackTimer = NEVER;
    if (this.#owed !== 'soon' || this.#unanswered === 0) return;
    const due = this.#owedAt + ACK_DELAY;
    if (due > now) {
      this.#ackTimer = due;
      return;
    }
    // The peer has stopped after this number: it waits for this acknowledgement, or has no more to say.
    this.#every = this.#stoppedAfter = Math.min(this.#every, this.#unanswered);
    this.#untilTry = this.#nextTry = Math.min(2 * this.#nextTry, MOST_PATIENT);
    this.#talk = 'one-way';
    this.#owed = 'now';
  }
}

/** How far behind an acknowledgement can be that was overtaken on its way. */
const MAX_OLD = 8_192;
