/**
 * One connection over UDP, without I/O: set-up and its repetitions, the reliable channel, and the way out.
 * Inside runs an `RdmaStream` over {@link TrpLowerLayer}, which knows nothing of datagrams; here its inputs
 * and outputs become those of the channel. Each chunk of a transmission is one datagram, and each call of
 * `handleBytes` brings one.
 *
 * Nothing that comes from the network is trusted: anything but a datagram of this connection in this state is
 * counted and dropped. Read the states in `states.ts` first.
 */
import { IwarpError } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import type { Transmission } from '../llp/lower-layer.ts';
import type { DepthRequest, Role } from '../llp/startup.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import type { DrivenStream } from '../stream/driven.ts';
import { RdmaStream } from '../stream/stream.ts';
import type { PortAction, StreamCounters, StreamEvent } from '../stream/types.ts';
import type { Channel, ChannelCounters, ChannelWrite } from './channel.ts';
import { TrpLowerLayer, type PlacementCounters } from './lower-layer.ts';
import { ARRIVAL } from './order.ts';
import { PieceStore } from './pieces.ts';
import { DEAD_PEER, PROFILES, sizesFor, type TrpOptions, type TrpProfile } from './profile.ts';
import { TRP_TABLE, type TrpInput, type TrpState } from './states.ts';
import type { WindowCounters } from './window.ts';
import { createTrpHeader, decodeTrpHeader, decodeTrpSetup, TRP_HEADER_OCTETS, TRP_OPCODE } from './wire.ts';

/** The first repetition of a set-up datagram, ms, and how much later each further one is. */
const RESEND_AFTER = 50;
const RESEND_FACTOR = 1.5;
/** Bytes sent for each byte received, before the peer's address is known to be its own (RFC 9000 8). */
const AMPLIFICATION = 3;
/** A FIN is sent this often at most; that of an abort is repeated, unless it is answered, this often. */
const MAX_FINS = 8;
const MORE_LAST_WORDS = 2;
/** How long late datagrams are answered after the end: this many time-outs, and in ms at least. */
const LINGER_TIMEOUTS = 3;
const LEAST_LINGER = 60;
/** An acknowledgement without news is answered if nothing was sent for this long, ms. */
const KEEP_ALIVE_SILENCE = 1_000;
/** How long a client may say nothing at its new port, ms. */
const ACCEPT_TIMEOUT = 5_000;
const NEVER = Number.POSITIVE_INFINITY;

/** What one connection is made with. */
interface TrpStreamConfig {
  readonly role: Role;
  readonly policy: ConnectionPolicy;
  readonly options: TrpOptions;
  /** Draws the first PSN. */
  readonly random: () => number;
  readonly mtu: number | undefined;
  readonly family: 'IPv4' | 'IPv6';
  readonly confirm: boolean;
  readonly firstMsn?: number | undefined;
}

/** Counts of one connection over UDP. */
export interface TrpCounters extends ChannelCounters, WindowCounters, PlacementCounters {
  /** Datagrams that are none, or none that this state has a use for. */
  dropped: number;
  /** Set-up datagrams sent again. */
  setupResent: number;
  /** Smoothed round trip, ms, and datagrams that may be out. */
  srtt: number;
  congestionWindow: number;
}

/**
 * Datagrams up to this length are handled in memory that has a view already: to make a view of each takes
 * longer than to copy them (`rows` of bench/trp.ts), and is garbage.
 */
const SHORT = 256;
const short = new Uint8Array(SHORT);

/** Events of a connection that has been established. */
const OF_ESTABLISHED: ReadonlySet<StreamEvent['type']> = new Set(['established', 'closing', 'terminate']);

const header = createTrpHeader();

export class TrpStream implements DrivenStream {
  readonly #config: TrpStreamConfig;
  readonly #profile: TrpProfile;
  readonly #layer: TrpLowerLayer;
  readonly #inner: RdmaStream;
  #state: TrpState = TRP_TABLE.initial;
  #now = 0;
  #action: PortAction = 'none';
  #dropped = 0;

  // Set-up.
  #frame: Uint8Array | null = null;
  #frameDue = false;
  #resendAt = NEVER;
  #resendAfter = RESEND_AFTER;
  /** A client that has its accept says so until it is heard: when next, and how long after that. */
  #confirmAt = NEVER;
  #confirmAfter = RESEND_AFTER;
  #setupResent = -1;
  #setupOctets = 0;
  /** Bytes of the peer, and ours to it, until its address is known to be its own. */
  #heard = 0;
  #said = 0;

  /** Of a server: whether its client has been heard at the new port. */
  #client: 'unheard' | 'heard';

  /** Segments of which a part has come. */
  #pieces: PieceStore | null = null;

  // The end.
  #own: 'open' | 'wanted' | 'sent' = 'open';
  /** The sequence number of the peer's FIN; null before it has come. */
  #peerFin: number | null = null;
  #peer: 'open' | 'ended' = 'open';
  #finDue = false;
  #fins = 0;
  #finAt = NEVER;
  #deadline = NEVER;
  #lingerUntil = NEVER;

  /** The FIN that is left to be said, as it was when the connection ended. */
  #lastWord: Uint8Array | null = null;
  /** Sequence numbers at that time: the oldest that the peer may lack, and the first that was never sent. */
  #unheard = 0;
  #unsaid = 0;
  /** How often it is still said unasked: an idle peer would not notice that it has missed it. */
  #wordsLeft = 0;
  /** Writes that the port has, oldest first: those of the channel, or null for others. */
  readonly #writes: (ChannelWrite | null)[] = [];

  /** Milliseconds of silence before a probe; null for none. */
  #keepAlive: number | null = null;

  constructor(config: TrpStreamConfig) {
    const { role, policy, options, random, mtu, family, confirm, firstMsn } = config;
    const { profile: name = 'fixed', receiver = 'placing', reads = 'ordered' } = options;
    this.#config = config;
    this.#profile = PROFILES[name];
    this.#client = role === 'responder' ? 'unheard' : 'heard';
    this.#layer = new TrpLowerLayer({
      role,
      profile: this.#profile,
      receiver,
      sizes: sizesFor(this.#profile, options, mtu, family),
      ird: policy.ird,
      ord: policy.ord === 'auto' ? policy.ird : policy.ord,
      firstPsn: options.firstPsn ?? (this.#profile.randomFirst ? random() : 0),
    });
    this.#inner = new RdmaStream(
      {
        role,
        policy: { ...policy, silentPeerNudge: 0 },
        confirm,
        placedReads: reads === 'placed',
        ...(firstMsn !== undefined && { firstMsn }),
      },
      this.#layer,
    );
  }

  get state(): string {
    return this.#inner.state;
  }

  get ord(): number {
    return this.#inner.ord;
  }

  set ord(value: number) {
    this.#inner.ord = value;
  }

  counters(): StreamCounters {
    const counters = this.#inner.counters();
    counters.octetsOut += this.#setupOctets;
    return counters;
  }

  /** Counts below the segments: datagrams, acknowledgements, placement. */
  get trp(): TrpCounters {
    const channel = this.#layer.channel;
    return {
      received: 0,
      above: 0,
      repeats: 0,
      outside: 0,
      badAcks: 0,
      acks: 0,
      ranges: 0,
      pieces: 0,
      sent: 0,
      resent: 0,
      spurious: 0,
      timeouts: 0,
      ...channel?.counters,
      ...channel?.window.counters,
      ...this.#layer.placement,
      dropped: this.#dropped,
      setupResent: Math.max(0, this.#setupResent),
      srtt: channel?.window.srtt ?? 0,
      congestionWindow: channel?.window.congestionWindow ?? 0,
    };
  }

  #step(input: TrpInput): void {
    this.#state = nextState(TRP_TABLE, this.#state, input, this);
  }

  // ------------------------------------------------------------------------------------------ program inputs

  start(now: number, endpoint: StreamEndpoint | null, privateData: Uint8Array, wishes: DepthRequest): void {
    this.#now = now;
    this.#inner.start(now, endpoint, privateData, wishes);
    if (this.#config.role === 'responder') {
      this.#step('listen');
      return;
    }
    this.#step('connect');
    this.#sendFrame();
  }

  accept(now: number, endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthRequest): void {
    this.#now = now;
    if (this.#state !== 'req-rcvd') return;
    this.#inner.accept(now, endpoint, privateData, wishes);
    this.#step('accept');
    this.#deadline = now + ACCEPT_TIMEOUT;
    this.#sendFrame();
  }

  reject(now: number, privateData: Uint8Array): void {
    this.#now = now;
    this.#inner.reject(now, privateData);
    if (this.#state === 'req-rcvd') this.#sendFrame();
  }

  /** The set-up datagram of the layer, now and again until it is answered. */
  #sendFrame(): void {
    this.#frame = this.#layer.frame;
    this.#frameDue = this.#frame !== null;
  }

  confirm(now: number): void {
    this.#now = now;
    this.#inner.confirm(now);
  }

  close(now: number): void {
    this.#now = now;
    this.#inner.close(now);
  }

  terminate(now: number, code: number): void {
    this.#now = now;
    this.#inner.terminate(now, code);
  }

  abort(now: number): void {
    this.#now = now;
    this.#inner.abort(now);
  }

  displace(now: number): void {
    this.#now = now;
    this.#inner.displace(now);
  }

  kick(now: number): void {
    this.#now = now;
    this.#inner.kick(now);
  }

  /** Probe a silent peer after `delay` ms, a second at least. */
  setKeepAlive(on: boolean, delay: number, now: number): void {
    this.#now = now;
    this.#keepAlive = on ? Math.max(delay || KEEP_ALIVE_SILENCE, KEEP_ALIVE_SILENCE) : null;
  }

  // ------------------------------------------------------------------------------------------ network inputs

  /** One datagram. */
  handleBytes(bytes: Uint8Array, start: number, end: number, now: number): void {
    this.#now = now;
    if (this.#client === 'unheard') this.#heard += end - start;
    if (!decodeTrpHeader(header, bytes, start, end)) {
      this.#dropped++;
      return;
    }
    const { opcode } = header;
    if (opcode === TRP_OPCODE.REQUEST || opcode === TRP_OPCODE.ACCEPT || opcode === TRP_OPCODE.REJECT)
      this.#handleSetup(opcode, bytes, start, end);
    else if (this.#state === 'closing') this.#answerLate(opcode);
    else if (this.#state === 'established' || (this.#state === 'accepting' && this.#isClient()))
      this.#handleChannel(this.#layer.channel!, bytes, start, end);
    else this.#dropped++;
  }

  /** The first datagram at the new port: its numbers say that the client has had our accept. */
  #isClient(): boolean {
    const { window, order } = this.#layer.channel!;
    const sequence = order.sequence(header.psn);
    if (header.opcode === TRP_OPCODE.SACK || window.sequence(header.ack) !== 0 || sequence < 0) return false;
    this.#step('heard');
    this.#client = 'heard';
    this.#frame = null;
    this.#resendAt = this.#deadline = NEVER;
    // The client repeats its acknowledgement until it hears that it was heard.
    if (this.#profile.validates && header.bodyLength === 0) this.#layer.channel!.oweAck();
    return true;
  }

  #handleSetup(opcode: number, bytes: Uint8Array, start: number, end: number): void {
    const setup = decodeTrpSetup(bytes, start, end);
    const mine =
      this.#config.role === 'responder' ? opcode === TRP_OPCODE.REQUEST : opcode !== TRP_OPCODE.REQUEST;
    const profile = this.#profile;
    const zero = profile.randomFirst || (setup?.psn === 0 && setup.ack === 0);
    if (setup === null || !mine || !zero || setup.privateData.length > profile.maxPrivateData) {
      this.#dropped++;
      return;
    }
    switch (this.#state) {
      case 'waiting':
        this.#step('request');
        this.#inner.handleBytes(bytes, start, end, this.#now);
        break;
      case 'req-sent':
        this.#handleAnswer(opcode, setup.ack, bytes, start, end);
        break;
      case 'established':
        // The client's acknowledgement of the accept, or the accept, was lost.
        if (opcode === TRP_OPCODE.ACCEPT) this.#layer.channel!.oweAck();
        break;
      case 'accepting':
        this.#frameDue = true;
        break;
      default: // closing, or the program still decides: the first request counts
    }
  }

  #handleAnswer(opcode: number, ack: number, bytes: Uint8Array, start: number, end: number): void {
    if (this.#profile.randomFirst && ack !== this.#firstPsn()) {
      this.#dropped++; // an answer to some other request
      return;
    }
    this.#frame = null;
    this.#resendAt = NEVER;
    if (opcode === TRP_OPCODE.ACCEPT) this.#step('accepted');
    this.#inner.handleBytes(bytes, start, end, this.#now);
    this.#layer.channel?.oweAck();
    if (opcode !== TRP_OPCODE.ACCEPT || !this.#profile.validates) return;
    // A server that has said three times what it has heard is silent until it hears this (RFC 9002 6.2.2.1).
    this.#confirmAt = this.#now + RESEND_AFTER;
  }

  #firstPsn(): number {
    const frame = this.#layer.frame!;
    return new DataView(frame.buffer, frame.byteOffset).getUint32(0);
  }

  #handleChannel(channel: Channel, bytes: Uint8Array, start: number, end: number): void {
    const { opcode, psn, bodyLength } = header;
    const now = this.#now;
    this.#confirmAt = NEVER; // this client was heard
    if (opcode === TRP_OPCODE.SACK) {
      channel.hearRange(header, now);
      this.#completeSent();
      return;
    }
    const silent = now - channel.lastSent;
    if (!channel.hearAck(header, now)) return;
    this.#completeSent();
    if (opcode === TRP_OPCODE.FIN) this.#handleFin(channel, psn);
    else if (opcode === TRP_OPCODE.PIECE)
      this.#handlePiece(channel, psn, bytes, start + TRP_HEADER_OCTETS, end);
    else if (bodyLength > 0) this.#handleSegment(channel, psn, bytes, start + TRP_HEADER_OCTETS, end);
    else if (silent > KEEP_ALIVE_SILENCE && this.#layer.channel === channel) channel.oweAck();
  }

  /** Work that the peer has acknowledged. */
  #completeSent(): void {
    while (this.#layer.acknowledged) this.#inner.handleTransmitted(true, this.#now);
  }

  /** A piece of a segment: the segment comes with its last one. */
  #handlePiece(channel: Channel, psn: number, bytes: Uint8Array, at: number, end: number): void {
    const { order } = channel;
    const sequence = order.sequence(psn);
    const arrival = order.judge(sequence);
    const news = arrival === ARRIVAL.NEXT || arrival === ARRIVAL.ABOVE;
    if (!this.#profile.adaptive || !this.#takesSegments()) this.#dropped++;
    else if (!news) channel.took(arrival, false, end - at, this.#now);
    else {
      const pieces = (this.#pieces ??= new PieceStore());
      pieces.forget(order.expected);
      const whole = pieces.take(sequence, bytes, at, end);
      if (whole === undefined) this.#dropped++;
      else if (whole !== null) this.#handleSegment(channel, psn, whole, 0, whole.length);
    }
  }

  #handleSegment(channel: Channel, psn: number, bytes: Uint8Array, at: number, end: number): void {
    if (!this.#takesSegments()) {
      this.#dropped++;
      return;
    }
    const { order } = channel;
    const sequence = order.sequence(psn);
    let arrival = order.judge(sequence);
    const holes = order.starts.length > 0;
    this.#layer.now = this.#now;
    if (arrival === ARRIVAL.NEXT) {
      order.advance();
      channel.took(arrival, holes, end - at, this.#now);
      let octets = bytes;
      if (bytes.length <= SHORT) {
        octets = short;
        octets.set(bytes);
      }
      this.#inner.handleBytes(octets, at, end, this.#now);
      this.#settlePeerFin(channel);
      return;
    }
    if (arrival === ARRIVAL.ABOVE) {
      const { state } = this.#inner;
      const operates = state === 'operational' || state === 'draining';
      if (operates && this.#layer.takeEarly(sequence, bytes, at, end)) order.insert(sequence);
      else arrival = ARRIVAL.OUTSIDE;
    }
    channel.took(arrival, false, end - at, this.#now);
  }

  /**
   * Nothing is taken, and so acknowledged, that the stream has no place for yet. No getter: V8 asks its
   * runtime for a private one at each use.
   */
  #takesSegments(): boolean {
    const { state } = this.#inner;
    return state !== 'deciding' && state !== 'startup' && this.#peer === 'open';
  }

  // ------------------------------------------------------------------------------------------------- the end

  #handleFin(channel: Channel, psn: number): void {
    const sequence = channel.order.sequence(psn);
    // Nothing follows a FIN: one below the data that has come is of another time, or forged.
    if (sequence < channel.order.expected || sequence - channel.order.expected > MAX_FIN_DISTANCE) {
      this.#dropped++;
      return;
    }
    if (this.#peer === 'ended') {
      if (this.#own === 'sent') this.#finDue = true;
      return;
    }
    if (this.#peerFin === null) this.#deadline = this.#now + this.#deadPeer;
    // A peer that has given up says so again, with the number that our acknowledgement has named.
    const last = sequence === channel.order.expected;
    this.#peerFin = last ? sequence : Math.max(this.#peerFin ?? 0, sequence);
    if (!last) channel.oweAck();
    this.#settlePeerFin(channel);
  }

  /** The peer's direction ends when nothing is missing below its FIN. */
  #settlePeerFin(channel: Channel): void {
    if (this.#peerFin === null || this.#peer === 'ended' || channel.order.expected < this.#peerFin) return;
    this.#peer = 'ended';
    this.#deadline = NEVER;
    this.#inner.handleEnd(this.#now);
    // A peer that has ended takes nothing more; it has said with its FIN how much it has.
    if (this.#state === 'established' && channel.window.outstanding > 0)
      this.#leave(
        new IwarpError('ERR_CONNECTION_RESET', 'the peer has ended before it had all datagrams'),
        LEAST_LINGER,
      );
  }

  /**
   * A datagram after the end. The peer hears again that there is nothing here; and if this side has given up,
   * a FIN with the number that the peer expects: above a hole it would wait for the missing datagrams.
   */
  #answerLate(opcode: number): void {
    if (this.#lastWord !== null && opcode === TRP_OPCODE.DATA) {
      const channel = this.#layer.channel!;
      const heard = channel.window.sequence(header.ack);
      if (heard >= this.#unheard && heard < this.#unsaid) {
        this.#lastWord = channel.fin(heard);
        this.#unheard = heard + 1;
        this.#finAt = this.#now;
      }
    }
    if (this.#fins < MAX_FINS && this.#now >= this.#finAt && this.#layer.channel !== null) {
      this.#finDue = true;
      this.#finAt = this.#now + this.#rto;
    }
    if (opcode !== TRP_OPCODE.FIN) this.#dropped++;
  }

  get #rto(): number {
    return this.#layer.channel?.window.rto ?? RESEND_AFTER;
  }

  get #deadPeer(): number {
    return this.#config.options.deadPeer ?? DEAD_PEER;
  }

  /** What the inner stream wants of its port. */
  #handleAction(action: PortAction): void {
    if (this.#state === 'closing' || this.#state === 'closed') return;
    const established = this.#state === 'established' || this.#state === 'accepting';
    if (action === 'reset') {
      this.#abandon(new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side'));
    } else if (action === 'end' && established) {
      if (this.#own === 'open') this.#own = 'wanted';
    } else if (action === 'end') {
      this.#leave(undefined, 0);
    }
  }

  /** FIN when all our data is at the peer; over when both have said it. */
  #settleEnd(): void {
    const { channel } = this.#layer;
    if (this.#state !== 'established' || channel === null) return;
    if (this.#own === 'wanted' && channel.window.outstanding === 0) {
      this.#own = 'sent';
      this.#finDue = true;
      this.#finAt = this.#now + (this.#profile.repeatsFin ? 1 : LINGER_TIMEOUTS) * this.#rto;
    }
    if (this.#own === 'sent' && this.#peer === 'ended') {
      this.#leave(undefined, Math.max(LEAST_LINGER, LINGER_TIMEOUTS * this.#rto));
    }
  }

  /** No word of ours gets through any longer, or none shall: say so once, and go. */
  #abandon(error: IwarpError): void {
    const known =
      this.#layer.channel !== null && (this.#state === 'established' || this.#state === 'accepting');
    this.#finDue = known;
    this.#wordsLeft = known ? MORE_LAST_WORDS : 0;
    const roundTrip = this.#layer.channel?.window.srtt ?? 0;
    this.#leave(error, known ? Math.max(LEAST_LINGER, LINGER_TIMEOUTS * roundTrip) : 0);
    this.#finAt = this.#now + this.#rto;
  }

  #leave(error: Error | undefined, linger: number): void {
    this.#step('leave');
    this.#frame = this.#frameDue ? this.#frame : null;
    this.#resendAt = this.#confirmAt = NEVER;
    this.#deadline = NEVER;
    this.#finAt = this.#now;
    this.#lingerUntil = this.#now + linger;
    if (this.#finDue) {
      const channel = this.#layer.channel!;
      this.#unheard = channel.window.una;
      this.#unsaid = channel.window.next;
      this.#lastWord = channel.fin(this.#unsaid);
    }
    this.#inner.handleClose(error, this.#now);
    if (linger === 0 && !this.#frameDue) this.#action = 'end';
  }

  handleEnd(now: number): void {
    this.#now = now; // a socket for datagrams has no end
  }

  readTarget(): undefined {
    return undefined;
  }

  /** The port has copied the write handed out last, and reports it no further. */
  handleTaken(): void {
    this.#return(this.#writes.pop());
  }

  handleTransmitted(_ok: boolean, now: number): void {
    this.#now = now;
    this.#return(this.#writes.shift());
  }

  #return(write: ChannelWrite | null | undefined): void {
    if (write) this.#layer.channel!.returned(write);
  }

  /** The socket is gone. */
  handleClose(error: Error | undefined, now: number): void {
    this.#now = now;
    if (this.#state === 'closed') return;
    this.#step('gone');
    this.#inner.handleClose(error, now);
    this.#layer.dispose();
  }

  // -------------------------------------------------------------------------------------------------- timers

  handleTimeout(now: number): void {
    this.#now = now;
    if (this.#inner.pollTimeout() <= now) this.#inner.handleTimeout(now);
    if (now >= this.#resendAt) {
      this.#resendAt = NEVER;
      this.#frameDue = this.#frame !== null;
    }
    if (now >= this.#confirmAt) this.#repeatConfirmation();
    if (now >= this.#lingerUntil) {
      this.#lingerUntil = NEVER;
      this.#action = 'end';
    }
    if (this.#wordsLeft > 0 && this.#state === 'closing' && now >= this.#finAt) {
      this.#wordsLeft--;
      this.#finDue = true;
      this.#finAt = now + this.#rto;
    }
    if (this.#state !== 'established' && this.#state !== 'accepting') return;
    const channel = this.#layer.channel!;
    const { path } = channel;
    channel.expire(now, this.#config.options.deadPeer ?? this.#profile.deadPeer);
    if (channel.path === 'narrow' && path !== 'narrow') this.#layer.user?.mulpduFell?.(this.#layer);
    if (channel.window.exhausted || now >= this.#deadline) {
      this.#abandon(new IwarpError('ERR_TIMEOUT', 'the peer has not acknowledged any datagram for too long'));
      return;
    }
    if (this.#own === 'sent' && this.#peer === 'open' && now >= this.#finAt) this.#repeatFin();
    this.#probeSilence(channel);
  }

  #repeatConfirmation(): void {
    this.#confirmAt = NEVER;
    this.#confirmAfter *= RESEND_FACTOR;
    if (this.#state !== 'established' || this.#confirmAfter >= ACCEPT_TIMEOUT) return;
    this.#layer.channel!.oweAck();
    this.#confirmAt = this.#now + this.#confirmAfter;
  }

  #repeatFin(): void {
    if (!this.#profile.repeatsFin || this.#fins >= MAX_FINS) {
      // Silence after a FIN is an end: all our data has been acknowledged.
      this.#peer = 'ended';
      this.#inner.handleEnd(this.#now);
      return;
    }
    this.#finDue = true;
    this.#finAt = this.#now + this.#rto * 2;
  }

  #probeSilence(channel: Channel): void {
    if (this.#keepAlive === null) return;
    const silence = this.#now - channel.lastHeard;
    if (silence >= this.#keepAlive + this.#deadPeer) {
      this.#abandon(new IwarpError('ERR_TIMEOUT', `the peer has said nothing for ${Math.round(silence)} ms`));
    } else if (silence >= this.#keepAlive && this.#now - channel.lastSent >= this.#keepAlive) {
      channel.oweAck();
    }
  }

  pollTimeout(): number {
    const channel = this.#layer.channel;
    let at = Math.min(this.#inner.pollTimeout(), this.#resendAt, this.#confirmAt);
    at = Math.min(at, this.#lingerUntil, this.#deadline);
    if (this.#state === 'closing' && this.#wordsLeft > 0) return Math.min(at, this.#finAt);
    if (this.#state !== 'established' || channel === null) return at;
    at = Math.min(at, channel.timeout);
    if (this.#own === 'sent' && this.#peer === 'open') at = Math.min(at, this.#finAt);
    if (this.#keepAlive !== null)
      at = Math.min(at, Math.max(channel.lastHeard, channel.lastSent) + this.#keepAlive);
    return at;
  }

  // ------------------------------------------------------------------------------------------------- outputs

  /** The next datagrams, each a chunk. */
  pollTransmit(): Transmission | null {
    if (this.#frameDue) {
      const frame = this.#pollFrame();
      if (frame !== null) return frame;
    }
    const channel = this.#layer.channel;
    if (channel === null) {
      this.#handleAction(this.#inner.pollClose());
      return null;
    }
    const operates = this.#state === 'established' || this.#state === 'accepting';
    if (operates) {
      while (!this.#layer.busy && this.#inner.pollTransmit() !== null);
      this.#handleAction(this.#inner.pollClose());
    } else {
      this.#handleAction(this.#inner.pollClose());
    }
    if (this.#state === 'established') {
      const write = channel.poll(this.#now);
      if (write !== null) {
        this.#writes.push(write);
        return write;
      }
      this.#settleEnd();
    }
    return this.#pollFin(channel);
  }

  /** One datagram that is not the window's. */
  #writeOne(datagram: Uint8Array): Transmission {
    this.#writes.push(null);
    return { chunks: [datagram], count: 1 };
  }

  #pollFin(channel: Channel): Transmission | null {
    if (!this.#finDue) return null;
    this.#finDue = false;
    this.#fins++;
    const { next } = channel.window;
    const word = this.#state === 'established' ? channel.fin(next) : (this.#lastWord ?? channel.fin(next));
    return this.#maySay(word.length) ? this.#writeOne(word) : null;
  }

  /** Whether the peer has said enough to be sent that much; asked of a client until it has been heard. */
  #maySay(octets: number): boolean {
    if (this.#client === 'heard' || !this.#profile.validates) return true;
    if (this.#said + octets > AMPLIFICATION * this.#heard) return false;
    this.#said += octets;
    return true;
  }

  /** The set-up datagram, if it may be sent. */
  #pollFrame(): Transmission | null {
    const frame = this.#frame;
    this.#frameDue = false;
    if (frame === null) return null;
    if (!this.#maySay(frame.length)) {
      this.#armResend();
      return null;
    }
    this.#setupResent++;
    this.#setupOctets += frame.length;
    if (this.#state === 'closing') {
      this.#frame = null;
      if (this.#lingerUntil <= this.#now) this.#action = 'end';
    } else {
      this.#armResend();
    }
    return this.#writeOne(frame);
  }

  #armResend(): void {
    this.#resendAt = this.#now + this.#resendAfter;
    this.#resendAfter *= RESEND_FACTOR;
  }

  pollClose(): PortAction {
    const action = this.#action;
    this.#action = 'none';
    return action;
  }

  /**
   * A server's connection is established when its client has been heard at the new port: before that anyone
   * may have sent the request, in another's name.
   */
  pollEvent(): StreamEvent | null {
    if (this.#state === 'accepting') return null;
    let event = this.#inner.pollEvent();
    while (this.#client === 'unheard' && event !== null && OF_ESTABLISHED.has(event.type))
      event = this.#inner.pollEvent();
    return event;
  }
}

/** A FIN is at most a window away from the expected number. */
const MAX_FIN_DISTANCE = 4096;
