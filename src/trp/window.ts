/**
 * The sending side: which datagrams are out, which the peer has, which are lost, and how many may be out.
 *
 * Losses are found as in RACK (RFC 8985): a datagram is lost if one sent after it has arrived and it has had
 * a round trip and a little more, the reordering window. Time-outs are RFC 6298's, with a probe before the
 * first one (RFC 8985, 7). The congestion window grows as in RFC 5681; after a loss it falls to half as in
 * RFC 6582, but not below what the measured rate of acknowledgements needs in the shortest round trip (TCP
 * Westwood+, by Saverio Mascolo and others, 2001 and 2004): a link that loses at random loses no window.
 *
 * A profile that does not measure has a fixed time-out for each datagram and a number of tries.
 */
import { bufferOctets, PACKET, releasePacket, type Packet } from './packet.ts';
import type { TrpProfile } from './profile.ts';
import { serialDifference } from './order.ts';

/** RFC 6928. */
const INITIAL_WINDOW = 10;
const LEAST_WINDOW = 2;
/** Before the first measurement, and the bounds of a time-out, ms: twice the old fixed timer at least. */
const INITIAL_RTO = 250;
const MIN_RTO = 20;
const MAX_RTO = 2_000;
/** How long the peer may hold back an acknowledgement, ms. */
const ACK_DELAY = 1;
/**
 * A call of `expire` that is later than this, ms, comes from a thread that has stood still: its socket is
 * read within `READ_FIRST`, before datagrams count as lost.
 */
const STALL = 5;
const READ_FIRST = 1;
/** Round trips below this are not paced, ms: timers are no finer. */
const PACED_RTT = 2;
/** Datagrams that may leave at once whatever the rate. */
const BURST = 16;
/** Later datagrams that have arrived before one is lost at once, as long as no reordering has been seen. */
const THRESHOLD = 3;

const NEVER = Number.POSITIVE_INFINITY;

/** Counts of the sending side. */
export interface WindowCounters {
  /** Datagrams with a segment, the first time. */
  sent: number;
  /** Datagrams with a segment, each time after the first. */
  resent: number;
  /** Sent again although the first had arrived. */
  spurious: number;
  /** Time-outs. */
  timeouts: number;
}

export class SendWindow {
  readonly #profile: TrpProfile;
  readonly #first: number;
  readonly #limit: number;
  /** Bytes that the datagrams which are out may take in the peer's socket. */
  readonly #mostOctets: number;
  readonly #ring: (Packet | null)[];
  readonly #mask: number;
  /** Sequence numbers: the oldest unacknowledged, the first never sent, the one after the last. */
  una = 0;
  next = 0;
  tail = 0;
  readonly counters: WindowCounters = { sent: 0, resent: 0, spurious: 0, timeouts: 0 };
  /** Bytes of those that are out, and of all that have been added and not acknowledged. */
  #octetsOut = 0;
  #octetsHeld = 0;
  #flight = 0;
  #lost = 0;
  #sacked = 0;
  /** Where the first lost one can be. */
  #lostFrom = 0;
  #order = 0;

  // Measuring.
  #srtt = 0;
  #rttvar = 0;
  #minRtt = NEVER;
  #backoff = 1;
  /** The transmission sent last among those that have arrived, and its round trip. */
  #rackOrder = 0;
  #rackRtt = 0;
  #reordering: 'unseen' | 'seen' = 'unseen';
  #reorderSteps = 1;
  #probe: 'ready' | 'sent' = 'ready';

  // Congestion.
  #cwnd = INITIAL_WINDOW;
  #ssthresh = NEVER;
  /** No second reduction before this sequence number has been acknowledged. */
  #recovery = -1;
  /** RFC 6937: in recovery one may be sent again for each that arrives, whatever the window says. */
  #credit = 0;
  #rate = 0;
  #sampleFrom = 0;
  #sampleCount = 0;
  #limitedSince: 'window' | 'work' = 'work';
  #tokens = BURST;
  #tokensAt = 0;

  // Deadlines; `#timerAt` may be earlier than what it stands for.
  #progressAt = 0;
  #raceAt = NEVER;
  #paceAt = NEVER;
  #timerAt = NEVER;
  #stall: 'unseen' | 'seen' = 'unseen';
  /** The peer has let all its tries or all its time pass. */
  exhausted = false;

  /** `limit` datagrams may be out, and as many as take `octets` of the peer's receive buffer. */
  constructor(profile: TrpProfile, first: number, limit: number, octets: number = Number.POSITIVE_INFINITY) {
    this.#profile = profile;
    this.#first = first;
    this.#limit = limit;
    this.#mostOctets = octets;
    let places = 8;
    while (places < 2 * limit) places *= 2;
    this.#ring = new Array<Packet | null>(places).fill(null);
    this.#mask = places - 1;
  }

  wire(sequence: number): number {
    return (this.#first + sequence) >>> 0;
  }

  sequence(wire: number): number {
    return this.una + serialDifference(wire, this.wire(this.una));
  }

  /** Datagrams that may still be added: as many wait as may be out. */
  get room(): number {
    return this.#octetsHeld >= 2 * this.#mostOctets ? 0 : 2 * this.#limit - (this.tail - this.una);
  }

  /** Datagrams added that have not been acknowledged. */
  get outstanding(): number {
    return this.tail - this.una;
  }

  /** The oldest datagram is longer than this, has been sent this often, and no other long one has arrived. */
  isStuck(octets: number, sends: number): boolean {
    if (this.una === this.next) return false;
    const oldest = this.#at(this.una);
    if (oldest.length <= octets || oldest.sends < sends) return false;
    for (let sequence = this.una + 1; this.#sacked > 0 && sequence < this.next; sequence++) {
      const packet = this.#at(sequence);
      if (packet.state === PACKET.SACKED && packet.length > octets) return false;
    }
    return true;
  }

  /** Milliseconds of the retransmission time-out as it stands. */
  get rto(): number {
    if (!this.#profile.adaptive) return this.#profile.fixedTimeout;
    if (this.#srtt === 0) return Math.min(INITIAL_RTO * this.#backoff, MAX_RTO);
    const rto = Math.max(MIN_RTO, this.#srtt + Math.max(1, 4 * this.#rttvar) + ACK_DELAY);
    return Math.min(rto * this.#backoff, MAX_RTO);
  }

  /** Smoothed round trip, ms; 0 before the first measurement. */
  get srtt(): number {
    return this.#srtt;
  }

  get congestionWindow(): number {
    return Math.floor(this.#cwnd);
  }

  /** A datagram to be sent in its turn. */
  add(packet: Packet): void {
    this.#ring[this.tail & this.#mask] = packet;
    this.#octetsHeld += bufferOctets(packet.length);
    this.tail++;
  }

  #at(sequence: number): Packet {
    return this.#ring[sequence & this.#mask]!;
  }

  // ------------------------------------------------------------------------------------------------- sending

  /** The sequence number of the datagram to be sent now; -1 for none. `sent` has to follow. */
  poll(now: number): number {
    this.#paceAt = NEVER;
    if (this.#lost === 0 && this.next === this.tail) {
      if (this.#flight < this.#cwnd) this.#limitedSince = 'work';
      return -1;
    }
    const adaptive = this.#profile.adaptive;
    const limit = adaptive ? Math.min(this.#cwnd, this.#limit) : this.#limit;
    const out = adaptive ? this.#flight : this.next - this.una;
    if (this.#lost > 0 && (!adaptive || this.#flight < limit || this.#credit > 0))
      return this.#paced(this.#firstLost(), now);
    if (this.next === this.tail || out >= limit || this.next - this.una >= this.#limit) return -1;
    if (this.#octetsOut >= this.#mostOctets) return -1;
    return this.#paced(this.next, now);
  }

  #firstLost(): number {
    let sequence = Math.max(this.#lostFrom, this.una);
    while (this.#at(sequence).state !== PACKET.LOST) sequence++;
    this.#lostFrom = sequence;
    return sequence;
  }

  /** Spread a window over its round trip. */
  #paced(sequence: number, now: number): number {
    if (!this.#profile.adaptive || this.#srtt < PACED_RTT) return sequence;
    const rate = ((this.#cwnd < this.#ssthresh ? 2 : 1.25) * this.#cwnd) / this.#srtt;
    this.#tokens = Math.min(Math.max(BURST, 2 * rate), this.#tokens + (now - this.#tokensAt) * rate);
    this.#tokensAt = now;
    if (this.#tokens >= 1) {
      this.#tokens--;
      return sequence;
    }
    this.#paceAt = now + Math.max(1, (1 - this.#tokens) / rate);
    this.#arm(this.#paceAt);
    return -1;
  }

  /** The datagram of `poll` leaves now. */
  sent(sequence: number, now: number): Packet {
    const packet = this.#at(sequence);
    if (packet.state === PACKET.LOST) {
      this.#lost--;
      if (this.#credit > 0) this.#credit--;
    }
    if (sequence === this.next) {
      if (sequence === this.una) this.#progressAt = now;
      this.next++;
      this.#octetsOut += bufferOctets(packet.length);
      this.counters.sent++;
    } else {
      this.counters.resent++;
    }
    packet.sends++;
    packet.state = PACKET.FLIGHT;
    packet.sentAt = now;
    packet.order = ++this.#order;
    this.#flight++;
    if (this.#sampleFrom === 0) this.#sampleFrom = now;
    this.#arm(now + (this.#profile.adaptive ? this.#patience() : this.#profile.fixedTimeout));
    return packet;
  }

  // ------------------------------------------------------------------------------------------------- hearing

  /** All below `sequence` has reached the peer. False if it is below the known one, or was never sent. */
  acknowledge(sequence: number, now: number): boolean {
    if (sequence > this.next || sequence < this.una) return false;
    if (sequence === this.una) return true;
    const before = this.#delivered();
    while (this.una < sequence) {
      const packet = this.#at(this.una);
      this.#ring[this.una & this.#mask] = null;
      if (packet.state === PACKET.SACKED) this.#sacked--;
      else this.#arrived(packet, now);
      packet.state = PACKET.ACKED;
      this.una++;
      const octets = bufferOctets(packet.length);
      this.#octetsOut -= octets;
      this.#octetsHeld -= octets;
      if (packet.lent === 0) releasePacket(packet);
    }
    this.#progressed(now, this.#delivered() - before);
    return true;
  }

  /** The peer has this range too. False if it is empty or was not sent. */
  acknowledgeRange(start: number, end: number, now: number): boolean {
    if (end <= start || end > this.next || end <= this.una) return false;
    const before = this.#delivered();
    for (let sequence = Math.max(start, this.una); sequence < end; sequence++) {
      const packet = this.#at(sequence);
      if (packet.state === PACKET.SACKED) continue;
      this.#arrived(packet, now);
      packet.state = PACKET.SACKED;
      this.#sacked++;
    }
    const fresh = this.#delivered() - before;
    if (fresh > 0) this.#progressed(now, fresh);
    return true;
  }

  #delivered(): number {
    return this.una + this.#sacked;
  }

  /** One that was not known to be at the peer. */
  #arrived(packet: Packet, now: number): void {
    if (packet.state === PACKET.LOST) this.#lost--;
    else this.#flight--;
    const took = now - packet.sentAt;
    if (packet.sends === 1) {
      this.#measure(took);
    } else if (took < 0.9 * this.#minRtt || packet.state === PACKET.LOST) {
      // The acknowledgement is of an earlier transmission.
      this.counters.spurious++;
      this.#reorderSteps = Math.min(this.#reorderSteps + 1, 64);
      return;
    }
    if (packet.order < this.#rackOrder) {
      if (packet.sends === 1) this.#reordering = 'seen';
    } else {
      this.#rackOrder = packet.order;
      this.#rackRtt = took;
    }
  }

  /** RFC 6298 2. */
  #measure(rtt: number): void {
    this.#minRtt = Math.min(this.#minRtt, rtt);
    if (this.#srtt === 0) {
      this.#srtt = Math.max(rtt, 0.001);
      this.#rttvar = rtt / 2;
    } else {
      this.#rttvar = 0.75 * this.#rttvar + 0.25 * Math.abs(this.#srtt - rtt);
      this.#srtt = 0.875 * this.#srtt + 0.125 * rtt;
    }
  }

  #progressed(now: number, fresh: number): void {
    this.#progressAt = now;
    this.#backoff = 1;
    this.#probe = 'ready';
    this.#grow(fresh, now);
    if (this.#sacked > 0 || this.#lost > 0) this.#findLosses(now);
    else this.#raceAt = NEVER;
  }

  // ---------------------------------------------------------------------------------------------- congestion

  #grow(fresh: number, now: number): void {
    this.#sampleCount += fresh;
    const span = now - this.#sampleFrom;
    if (span >= Math.max(this.#srtt, 1)) {
      const sample = this.#sampleCount / span;
      // A sender with nothing to send says nothing about the path.
      if (sample > this.#rate) this.#rate += (sample - this.#rate) / 2;
      else if (this.#limitedSince === 'window') this.#rate += (sample - this.#rate) / 8;
      this.#sampleFrom = now;
      this.#sampleCount = 0;
      this.#limitedSince = 'window';
    }
    if (this.una <= this.#recovery) this.#credit += fresh;
    else this.#credit = 0;
    if (this.una <= this.#recovery || this.#flight + fresh < this.#cwnd / 2) return;
    this.#cwnd += this.#cwnd < this.#ssthresh ? fresh : fresh / this.#cwnd;
    this.#cwnd = Math.min(this.#cwnd, this.#limit);
  }

  /** Once for each window in which something was lost. */
  #shrink(): void {
    if (this.una <= this.#recovery) return;
    this.#recovery = this.next - 1;
    this.#credit = 1;
    const needed = this.#minRtt === NEVER ? 0 : this.#rate * this.#minRtt;
    this.#ssthresh = Math.max(LEAST_WINDOW, Math.min(this.#cwnd, Math.max(this.#cwnd / 2, needed)));
    this.#cwnd = this.#ssthresh;
  }

  // -------------------------------------------------------------------------------------------------- losses

  #reorderWindow(): number {
    if (this.#reordering === 'unseen' && this.#sacked >= THRESHOLD) return 0;
    return Math.min((this.#reorderSteps * this.#minRtt) / 4, this.#srtt);
  }

  /** RFC 8985 6.2: datagrams sent before one that has arrived, and that have had their time. */
  #findLosses(now: number): void {
    if (!this.#profile.adaptive) return;
    const allowed = this.#rackRtt + this.#reorderWindow();
    let earliest = NEVER;
    for (let sequence = this.una; sequence < this.next; sequence++) {
      const packet = this.#at(sequence);
      if (packet.state !== PACKET.FLIGHT || packet.order >= this.#rackOrder) continue;
      const due = packet.sentAt + allowed;
      if (due <= now) this.#lose(packet, sequence);
      else earliest = Math.min(earliest, due);
    }
    this.#raceAt = earliest;
    if (earliest !== NEVER) this.#arm(earliest);
  }

  #lose(packet: Packet, sequence: number): void {
    packet.state = PACKET.LOST;
    this.#flight--;
    this.#lostFrom = this.#lost === 0 ? sequence : Math.min(this.#lostFrom, sequence);
    this.#lost++;
    if (this.#profile.adaptive) this.#shrink();
  }

  // -------------------------------------------------------------------------------------------------- timers

  /** How long nothing may be heard before something is done about it. */
  #patience(): number {
    return this.#probe === 'ready' && this.#srtt > 0 && this.#backoff === 1 ? this.#probeAfter() : this.rto;
  }

  #probeAfter(): number {
    return Math.min(this.rto, Math.max(3, 2 * this.#srtt + ACK_DELAY));
  }

  #arm(at: number): void {
    if (at < this.#timerAt) this.#timerAt = at;
  }

  /** When `expire` wants to be called: never later than something is due, perhaps earlier. */
  get timeout(): number {
    return this.#timerAt;
  }

  /** Time has come. `deadPeer`: milliseconds without progress after which the peer is dead. */
  expire(now: number, deadPeer: number): void {
    if (now < this.#timerAt) return;
    if (now - this.#timerAt > STALL && this.#stall === 'unseen') {
      this.#stall = 'seen';
      this.#timerAt = now + READ_FIRST;
      return;
    }
    this.#stall = 'unseen';
    this.#timerAt = NEVER;
    if (this.#paceAt > now) this.#arm(this.#paceAt);
    if (this.outstanding === 0) return;
    if (this.#profile.adaptive) this.#expireMeasured(now, deadPeer);
    else this.#expireFixed(now, deadPeer);
  }

  #expireMeasured(now: number, deadPeer: number): void {
    if (this.#raceAt <= now) this.#findLosses(now);
    else this.#arm(this.#raceAt);
    if (this.una === this.next) return;
    if (now - this.#progressAt >= deadPeer) {
      this.exhausted = true;
      return;
    }
    const quiet = Math.max(this.#progressAt, this.#flight > 0 ? this.#lastSent() : 0);
    const due = quiet + this.#patience();
    if (due > now) {
      this.#arm(due);
      return;
    }
    if (this.#probe === 'ready' && this.#backoff === 1 && this.#srtt > 0) this.#sendProbe();
    else this.#timeOut();
    this.#arm(now + this.#patience());
  }

  /** When the datagram in flight that was sent last was sent. */
  #lastSent(): number {
    for (let sequence = this.next - 1; sequence >= this.una; sequence--) {
      const packet = this.#at(sequence);
      if (packet.state === PACKET.FLIGHT) return packet.sentAt;
    }
    return 0;
  }

  /** RFC 8985 7: send the last datagram again, so that the peer reports the missing ones. */
  #sendProbe(): void {
    this.#probe = 'sent';
    for (let sequence = this.next - 1; sequence >= this.una; sequence--) {
      const packet = this.#at(sequence);
      if (packet.state !== PACKET.FLIGHT) continue;
      packet.state = PACKET.LOST;
      this.#flight--;
      this.#lostFrom = this.#lost === 0 ? sequence : Math.min(this.#lostFrom, sequence);
      this.#lost++;
      return;
    }
  }

  /** RFC 6298 5: everything that is out counts as lost. */
  #timeOut(): void {
    this.counters.timeouts++;
    this.#backoff = Math.min(2 * this.#backoff, 64);
    this.#reordering = 'unseen';
    for (let sequence = this.una; sequence < this.next; sequence++) {
      const packet = this.#at(sequence);
      if (packet.state === PACKET.FLIGHT) this.#lose(packet, sequence);
    }
    this.#cwnd = LEAST_WINDOW;
    this.#tokens = Math.max(this.#tokens, LEAST_WINDOW);
  }

  #expireFixed(now: number, deadPeer: number): void {
    const { fixedTimeout, maxTransmissions } = this.#profile;
    let earliest = NEVER;
    for (let sequence = this.una; sequence < this.next; sequence++) {
      const packet = this.#at(sequence);
      if (packet.state !== PACKET.FLIGHT) continue;
      const due = packet.sentAt + fixedTimeout;
      if (due > now) {
        earliest = Math.min(earliest, due);
      } else if (packet.sends >= maxTransmissions && now - this.#progressAt >= deadPeer) {
        this.exhausted = true;
        return;
      } else {
        this.#lose(packet, sequence);
      }
    }
    if (earliest !== NEVER) this.#arm(earliest);
  }

  /** The connection is over: give the memory back. */
  dispose(): void {
    for (; this.una < this.tail; this.una++) {
      const packet = this.#at(this.una);
      this.#ring[this.una & this.#mask] = null;
      packet.state = PACKET.ACKED;
      if (packet.lent === 0) releasePacket(packet);
    }
    this.next = this.tail;
    this.#flight = this.#lost = this.#sacked = this.#octetsOut = this.#octetsHeld = 0;
    this.#timerAt = NEVER;
  }
}
