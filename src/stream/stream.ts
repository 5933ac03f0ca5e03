/**
 * One RDMA stream without I/O: start-up (`llp/`), full operation (`operation.ts`), and here the way from one
 * to the other and to the end: states (`states.ts`), deadlines (`timers.ts`), writes and events.
 *
 * **One input, then drain the outputs until quiet, then the next input.** Inputs: `start`, `accept`,
 * `reject`, `confirm`, `close`,
 * `terminate`, `abort`, `handleBytes`, `handleEnd`, `handleTransmitted`, `handleTimeout`, `handleClose`, and
 * `kick` after posts. Outputs:
 * `pollTransmit`, `pollClose`, `pollEvent`, `pollTimeout`. Time is an argument; nothing in here reads a
 * clock, draws a random number or touches a socket. Network input never throws.
 *
 * Read RFC 5044 7.1.2 (set-up), RFC 5040 6 (stream management) and 7 (errors), RFC 5041 6.2 and verbs draft
 * 6.2 first.
 */
import { DOUBLE_ZERO } from '../base/double-zero.ts';
import { nextState } from '../base/fsm.ts';
import { Interned } from '../base/interned.ts';
import { FINE, TERM } from '../base/terminate-codes.ts';
import { isInTurn, isOfSegment, VERDICT } from '../base/verdict.ts';
import type { LowerLayer, Transmission } from '../llp/lower-layer.ts';
import type { DepthRequest, Negotiated, StartupFailure } from '../llp/startup.ts';
import { messagesReceived, messagesSent } from '../rdmap/counters.ts';
import type { DrivenStream } from './driven.ts';
import { StreamOperation, type OperationOwner } from './operation.ts';
import { EventList } from './event-list.ts';
import { STREAM_TABLE, type StreamInput, type StreamState } from './states.ts';
import { TimerTable, type Timer } from './timers.ts';
import type { CloseCause, PortAction, StreamConfig, StreamCounters, StreamEvent } from './types.ts';
import type { TerminateTurn } from '../rdmap/sender.ts';
import { plainTerminate, type TerminateInfo } from '../rdmap/terminate.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';

/** Streams in a row mostly settle the same. */
const lastOutcome = new Interned<Negotiated>();

export class RdmaStream implements DrivenStream, OperationOwner {
  readonly #config: StreamConfig;
  readonly #llp: LowerLayer;
  /** Null unless events wait. */
  #events: EventList | null = null;
  #state: StreamState = STREAM_TABLE.initial;
  #endpoint: StreamEndpoint | null = null;
  #negotiated: Negotiated | null = null;
  /** Once the stream is operational. */
  #operation: StreamOperation | null = null;
  #action: PortAction = 'none';
  #ended = false;
  #cause: CloseCause | null = null;
  #now = 0;
  /** Null while no deadline is armed. */
  #timers: TimerTable | null = null;
  /** Up to when progress may put off the deadline of the close; null before that. */
  #latest: number | null = null;
  /** When `closeLimit` is over, whatever is left to do; null before the close. */
  #closeBy: number | null = null;
  #nudgeArmed = false;
  #octetsIn: number = DOUBLE_ZERO;
  #nudges = 0;
  /** The fault of an FPDU: the first ends the stream. */
  #badFpdu = FINE;

  constructor(config: StreamConfig, llp: LowerLayer) {
    this.#config = config;
    this.#llp = llp;
  }

  get state(): StreamState {
    return this.#state;
  }

  /** When the input came that is being handled, or the last one. */
  get now(): number {
    return this.#now;
  }

  /** The ORD in force; a user may lower it (VERBS-024). */
  get ord(): number {
    return this.#operation?.sender.ord ?? 0;
  }

  set ord(value: number) {
    if (this.#operation !== null) this.#operation.sender.ord = value;
  }

  counters(): StreamCounters {
    const operation = this.#operation;
    return {
      fpdusIn: operation?.receiver.segments ?? 0,
      fpdusOut: operation?.sender.fpdus ?? 0,
      // Plus 0, for DOUBLE_ZERO.
      payloadIn: (operation?.receiver.payloadOctets ?? 0) + 0,
      payloadOut: (operation?.sender.payloadOctets ?? 0) + 0,
      octetsIn: this.#octetsIn + 0,
      octetsOut: this.#llp.octetsOut,
      messagesIn: messagesReceived(operation?.receiver.messages),
      messagesOut: messagesSent(operation?.receiver.messages),
      crcErrors: this.#badFpdu === TERM.MPA_CRC ? 1 : 0,
      markerErrors: this.#badFpdu === TERM.MPA_MARKER ? 1 : 0,
      nudges: this.#nudges,
    };
  }

  // ----------------------------------------------------------------------------------------- start-up inputs

  /**
   * Begin. The initiator sends its Request with this private data and these depths, for this queue pair; the
   * responder waits for one, and gets its queue pair with `accept`.
   */
  start(now: number, endpoint: StreamEndpoint | null, privateData: Uint8Array, wishes: DepthRequest): void {
    this.#now = now;
    this.#step('start');
    this.#endpoint = endpoint;
    this.#arm('deadline', now + this.#llp.start(privateData, wishes));
  }

  /** Responder, after a `request` event: accept with this queue pair. */
  accept(now: number, endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthRequest): void {
    this.#now = now;
    if (this.state !== 'deciding') return; // the peer has gone meanwhile; a `closed` event says so
    const negotiated = this.#llp.accept(privateData, wishes);
    if (negotiated === null) {
      this.#leave('rejected');
      return;
    }
    this.#endpoint = endpoint;
    this.#establish(negotiated, FINE);
  }

  /**
   * Responder, after a `request` event: reject with private data. The Reply is delivered before the
   * connection closes (MPA-038).
   */
  reject(now: number, privateData: Uint8Array): void {
    this.#now = now;
    if (this.state !== 'deciding') return;
    this.#llp.reject(privateData);
    this.#leave('rejected');
  }

  /** Initiator with `confirm`, after a `response` event: go on. */
  confirm(now: number): void {
    this.#now = now;
    if (this.state !== 'deciding') return;
    this.#establish(this.#negotiated!, FINE);
  }

  // ------------------------------------------------------------------------------------------ closing inputs

  /** Graceful close: finish the work posted, then FIN (DDP-059, VERBS-041). */
  close(now: number): void {
    this.#now = now;
    const { state } = this;
    if (state === 'operational') {
      this.#step('close');
      this.#operation!.sender.refuseLaterPosts();
      this.#armClose('all-work');
      this.#raise({ type: 'closing', by: 'local' });
    } else if (state === 'startup' || state === 'deciding') {
      this.#leave('graceful');
    } else if (state === 'idle') {
      this.#abort('graceful');
    }
  }

  /** Modify to Terminate (VERBS-047): say so to the peer, then close. */
  terminate(now: number, code: number): void {
    this.#now = now;
    this.#terminateWith(plainTerminate(code), 'next');
  }

  /** Modify to Error: reset at once, without a Terminate (VERBS-054). */
  abort(now: number): void {
    this.#now = now;
    this.#abort('reset');
  }

  /** Responder in start-up: the listener needs its slot for a newer connection. Reset without an answer. */
  displace(now: number): void {
    this.#now = now;
    if (this.state !== 'startup') return;
    this.#disarm('deadline');
    this.#raise({ type: 'startup-failed', reason: 'displaced' });
    this.#abort('startup-failed');
  }

  /** Something was posted. */
  kick(now: number): void {
    this.#now = now;
  }

  // ------------------------------------------------------------------------------------------ network inputs

  /** `bytes[start..end)` arrived; borrowed. */
  handleBytes(bytes: Uint8Array, start: number, end: number, now: number): void {
    this.#now = now;
    // Aborted: nothing more is placed, though the port has not heard of it.
    if (this.#action === 'reset') return;
    this.#octetsIn += end - start;
    let at = start;
    if (this.state === 'startup') at = this.#handleStartup(bytes, start, end);
    if (at === end) return;
    switch (this.state) {
      case 'deciding':
        if (!this.#llp.keepEarly(bytes, at, end)) this.#failStartup('extra-octets', 'startup-failed');
        break;
      case 'operational':
        this.#receive(bytes, at, end);
        break;
      case 'draining':
        if (this.#operation!.sender.awaitsResponse) this.#putOffClose();
        this.#receive(bytes, at, end);
        break;
      case 'closing':
        // VERBS-043: after our FIN nothing more may arrive; after the peer's FIN nothing can.
        this.#abort('bad-close');
        break;
      // leaving, terminating, closed: drained, so that the kernel does not reset the connection and
      // discard our Terminate (VERBS-053, DDP-054)
      default:
    }
  }

  /**
   * Where the next octets had best be put before `handleBytes` gets them; undefined if it does not matter.
   */
  readTarget(): Uint8Array | undefined {
    return this.#llp.readTarget() ?? undefined;
  }

  /** The peer sent FIN (MPA-107, MPA-108). */
  handleEnd(now: number): void {
    this.#now = now;
    if (this.#action === 'reset') return; // an aborted connection does not end in order
    switch (this.state) {
      case 'startup':
      case 'deciding':
        this.#llp.lose();
        this.#failStartup('truncated', 'lost'); // MPA-021, ENH-047
        break;
      case 'operational':
      case 'draining':
        this.#handleFinInOperation();
        break;
      // our own FIN has gone out already, or follows the Terminate that is still to be sent (VERBS-051)
      default:
    }
  }

  /**
   * The port has copied the write just handed out: its memory serves the next one, also of another stream.
   * `handleTransmitted` still follows.
   */
  handleTaken(): void {
    this.#llp.handleTaken();
  }

  /** The oldest write handed out has been taken by the port, or (`ok` false) never will be. */
  handleTransmitted(ok: boolean, now: number): void {
    this.#now = now;
    this.#llp.handleTransmitted(ok);
  }

  /** The oldest transmission is done: a close goes on, and a silent peer is watched from here. */
  transmissionDone(): void {
    this.#putOffClose();
    this.#armNudge();
  }

  /** The port is gone; nothing else will come. */
  handleClose(error: Error | undefined, now: number): void {
    this.#now = now;
    if (this.state === 'closed') return;
    const before = this.state;
    this.#step('end-of-port');
    this.#timers = this.#latest = null;
    if (before === 'startup' || before === 'deciding' || before === 'idle') {
      this.#llp.lose();
      if (this.#cause === null)
        this.#raise({ type: 'startup-failed', reason: error === undefined ? 'truncated' : 'reset' });
      this.#cause ??= 'startup-failed';
    }
    // VERBS-044: a close that the port has failed under is none, and the octets that the system had not
    // sent are lost.
    if (before === 'closing' && error !== undefined && this.#cause === 'graceful') this.#cause = 'reset';
    // Without a cause neither side had begun to end it.
    const cause = this.#cause ?? (error === undefined ? 'lost' : 'reset');
    this.#llp.dispose();
    const operation = this.#operation;
    if (operation !== null) {
      operation.sender.flush();
      operation.receiver.flush(this.#endpoint!.rqShared);
    }
    this.#raise({ type: 'closed', cause, error });
  }

  handleTimeout(now: number): void {
    this.#now = now;
    for (let timer = this.#expire(); timer !== null; timer = this.#expire()) this.#handleTimer(timer);
  }

  #handleTimer(timer: Timer): void {
    switch (timer) {
      case 'deadline':
        this.#handleDeadline();
        break;
      case 'open':
        this.#operation!.sender.mayTransmit = true;
        break;
      case 'nudge':
        this.#nudges++;
        this.#operation!.sender.nudge();
    }
  }

  #handleDeadline(): void {
    const { state } = this;
    if (state === 'startup') {
      this.#llp.expire();
      this.#failStartup('timeout', 'timeout');
    } else {
      // VERBS-044, VERBS-045. A connection that was ending for another reason keeps that one.
      this.#abort(state === 'closing' ? 'timeout' : (this.#cause ?? 'timeout'));
    }
  }

  // ------------------------------------------------------------------------------------------------- outputs

  /** The next octets to write, or null. At most two writes are out at a time. */
  pollTransmit(): Transmission | null {
    const llp = this.#llp;
    const frame = llp.pollFrame();
    if (frame !== null) return frame;
    if (this.#ended) return null;
    if (this.state !== 'operational' && this.state !== 'draining' && this.state !== 'terminating')
      return null;
    if (llp.busy) return null;
    // Asked once or twice after every input, and mostly there is nothing: no buffer is taken for that.
    const { sender } = this.#operation!;
    if (sender.idle) return null;
    const buffer = llp.acquire();
    sender.fill(buffer);
    const { fault } = sender;
    if (fault !== null) {
      sender.fault = null;
      this.#terminateWith(fault, 'next');
      if (!this.#ended) sender.fill(buffer); // one that may not even say so does nothing more (VERBS-057)
    }
    if (buffer.octets === 0) {
      llp.release(buffer);
      sender.sweep(); // local operations may have completed without sending anything
      return null;
    }
    sender.handedOut();
    return llp.handOut(buffer);
  }

  /** Once `pollTransmit` is quiet: the action for the port, each once. */
  pollClose(): PortAction {
    this.#settle();
    const action = this.#action;
    this.#action = 'none';
    return action;
  }

  /** The next event, once. */
  pollEvent(): StreamEvent | null {
    const event = this.#events === null ? null : this.#events.take();
    if (event === null) this.#events = null;
    return event;
  }

  #raise(event: StreamEvent): void {
    (this.#events ??= new EventList()).add(event);
  }

  /** When `handleTimeout` wants to be called; Infinity for never. */
  pollTimeout(): number {
    return this.#timers === null ? Number.POSITIVE_INFINITY : this.#timers.next;
  }

  #arm(timer: Timer, at: number): void {
    (this.#timers ??= new TimerTable()).arm(timer, at);
  }

  #disarm(timer: Timer): void {
    if (this.#timers?.disarm(timer) === true) this.#timers = null;
  }

  /** The next deadline that has come; null if there is none. */
  #expire(): Timer | null {
    const timers = this.#timers;
    if (timers === null) return null;
    const timer = timers.expire(this.#now);
    if (timers.next === Number.POSITIVE_INFINITY) this.#timers = null;
    return timer;
  }

  #step(input: StreamInput): void {
    this.#state = nextState(STREAM_TABLE, this.#state, input, this);
  }

  // ------------------------------------------------------------------------------------------------ start-up

  #handleStartup(bytes: Uint8Array, start: number, end: number): number {
    const at = this.#llp.handleStartup(bytes, start, end);
    const { verdict } = this.#llp;
    if (verdict === null) return at;
    this.#disarm('deadline');
    switch (verdict.kind) {
      case 'request':
        this.#step('request');
        this.#raise({ type: 'request', request: verdict.request });
        break;
      case 'accepted':
        this.#handleAccepted(verdict.negotiated, verdict.privateData, verdict.terminate);
        break;
      case 'rejected':
        this.#raise({ type: 'rejected', ...verdict.rejection });
        this.#leave('rejected');
        break;
      default:
        this.#failStartup(verdict.reason, 'startup-failed');
    }
    return at;
  }

  #handleAccepted(negotiated: Negotiated, privateData: Uint8Array, terminate: number): void {
    // With a Terminate to be said there is nothing to confirm.
    if (this.#config.confirm !== true || terminate !== FINE) {
      this.#establish(negotiated, terminate);
      return;
    }
    this.#negotiated = negotiated;
    this.#step('request');
    this.#raise({ type: 'response', negotiated, privateData });
  }

  /**
   * Enter full operation (MPA-036, MPA-039, MPA-042): everything starts from its initial state (RDMAP-096).
   */
  #establish(outcome: Negotiated, terminate: number): void {
    const negotiated = lastOutcome.of(outcome);
    const { policy } = this.#config;
    const llp = this.#llp;
    const privateData = llp.peerPrivateData;
    this.#disarm('deadline');
    this.#negotiated = negotiated;
    llp.establish(negotiated);
    const operation = new StreamOperation(this.#config, negotiated, this.#endpoint!, llp, this);
    llp.deliverTo(operation);
    this.#operation = operation;
    this.#step('establish');
    // MPA-028: a strict responder waits for an FPDU. A relaxed one only lets the Reply arrive on its own.
    if (negotiated.role === 'responder' && policy.responder === 'relaxed')
      this.#arm('open', this.#now + policy.responderDelay);
    this.#raise({ type: 'established', negotiated, privateData });
    if (terminate !== FINE) {
      // ENH-022, ENH-040: said in the first FPDU, instead of the RTR message.
      operation.sender.rtr = null;
      this.#terminateWith(plainTerminate(terminate), 'next');
    }
    if (this.state === 'operational') this.#judge(llp.receiveEarly(), 0);
    else llp.abandon();
  }

  #failStartup(reason: StartupFailure, cause: CloseCause): void {
    this.#raise({ type: 'startup-failed', reason });
    this.#cause = cause;
    // protocol-notes 3.3: cxgb4 and irdma try again with revision 1 only after a reset. An initiator closes
    // in order (MPA-049).
    if (reason === 'unusable-revision' && this.#config.role === 'responder' && !this.#llp.frameWaits)
      this.#abort(cause);
    else this.#leave(cause);
  }

  /** Go without ever having been operational: send the frame that waits, then FIN (MPA-111: at once). */
  #leave(cause: CloseCause): void {
    this.#cause ??= cause;
    this.#llp.abandon();
    this.#arm('deadline', this.#now + this.#config.policy.closeTimeout);
    this.#step('leave');
    this.#endOnce();
  }

  // ----------------------------------------------------------------------------------------------- operation

  /** A response was the last thing that some entries waited for. */
  requestAnswered(): void {
    this.#operation!.sender.sweep();
  }

  #receive(bytes: Uint8Array, at: number, end: number): void {
    const before = this.#operation!.receiver.segments;
    const verdict = this.#llp.receive(bytes, at, end);
    this.#judge(verdict, before);
  }

  /** The verdict on octets received: on the frames, on a segment, or that a Terminate has come. */
  #judge(verdict: number, before: number): void {
    const { receiver } = this.#operation!;
    if (receiver.segments !== before) this.#heardPeer();
    if (verdict === FINE) return;
    if (isOfSegment(verdict)) this.#inboundFault(verdict);
    else if (verdict === VERDICT.STOP) this.#handleTerminate(receiver.terminate!);
    else {
      this.#badFpdu = verdict;
      this.#terminateWith(plainTerminate(verdict), 'next'); // MPA-074: MPA leaves the close to us
    }
  }

  /** A valid segment has come: the peer is not silent, now and later. */
  #heardPeer(): void {
    this.#disarm('nudge');
    this.#nudgeArmed = true;
  }

  /**
   * An error on an incoming segment: the first one is reported, everything after it is dropped (RDMAP-073,
   * RDMAP-075, DDP-054).
   */
  #inboundFault(code: number): void {
    const terminate = this.#operation!.terminateFor(code);
    if (terminate !== null) {
      this.#terminateWith(terminate, isInTurn(code) ? 'after-responses' : 'next');
      return;
    }
    this.#cause = 'terminated';
    this.#enterTerminating('nothing');
    this.#endOnce();
  }

  /** RDMAP-079, VERBS-050: delivered, never answered; then close. */
  #handleTerminate(terminate: TerminateInfo): void {
    this.#cause = 'terminated';
    this.#raise({ type: 'terminate', terminate });
    this.#operation!.blame(terminate);
    this.#enterTerminating('nothing');
    this.#endOnce();
  }

  #terminateWith(info: TerminateInfo, when: TerminateTurn): void {
    if (this.state !== 'operational' && this.state !== 'draining') return;
    this.#cause = 'terminated';
    this.#enterTerminating(when === 'after-responses' ? 'responses' : 'nothing');
    this.#raise({ type: 'terminate', terminate: info });
    const { sender } = this.#operation!;
    if (sender.mayTransmit || this.#config.policy.responder === 'relaxed') {
      sender.mayTransmit = true;
      sender.requestTerminate(info, when);
    } else {
      this.#endOnce(); // MPA-028: not even a Terminate before the first valid FPDU
    }
  }

  #enterTerminating(left: 'responses' | 'nothing'): void {
    this.#step('terminate');
    this.#armClose(left);
    this.#disarm('nudge');
  }

  /**
   * The end begins, and this is still to be done before our FIN. It may take as long as it goes on (DDP-059,
   * RDMAP-074), but a peer that only trickles does not hold the connection for ever (VERBS-045):
   * `closeShares` bounds each stage of the close, and `closeLimit` all of them together.
   */
  #armClose(left: 'all-work' | 'responses' | 'nothing'): void {
    const { closeTimeout, closeLimit } = this.#config.policy;
    this.#closeBy ??= this.#now + closeLimit;
    const latest = this.#now + closeTimeout * this.#operation!.sender.closeShares(left);
    this.#latest = Math.min(latest, this.#closeBy);
    this.#putOffClose();
  }

  /** A write has been taken, or a response that we wait for goes on. */
  #putOffClose(): void {
    if (this.#latest !== null)
      this.#arm('deadline', Math.min(this.#now + this.#config.policy.closeTimeout, this.#latest));
  }

  #handleFinInOperation(): void {
    if (!this.#llp.betweenUlpdus) {
      this.#abort('lost'); // MPA-107: the partial FPDU has no effect
      return;
    }
    const verdict = this.#operation!.sender.closeVerdict();
    if (verdict !== FINE) {
      this.#terminateWith(plainTerminate(verdict), 'next'); // VERBS-040: Bad LLP Close
      return;
    }
    if (this.state === 'operational') this.#raise({ type: 'closing', by: 'peer' });
    this.#finish(); // VERBS-039
  }

  /** Everything is said: FIN, and the receives are flushed (VERBS-042). */
  #finish(): void {
    this.#step('finish');
    this.#cause = 'graceful';
    this.#disarm('nudge');
    this.#armClose('nothing');
    this.#operation!.receiver.flush(this.#endpoint!.rqShared);
    this.#endOnce();
  }

  /** Called when nothing more can be transmitted now. */
  #settle(): void {
    if (this.#ended) return; // also where an abort has ended a close that was under way
    const sender = this.#operation?.sender;
    if (this.state === 'draining' && !sender!.unfinished) this.#finish();
    else if (this.state === 'terminating' && sender!.terminateSent) this.#endOnce();
  }

  #endOnce(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#action = 'end';
  }

  #abort(cause: CloseCause): void {
    if (this.state === 'closed') return;
    this.#cause ??= cause;
    if (cause === 'bad-close' || cause === 'timeout') this.#cause = cause;
    this.#ended = true;
    this.#action = 'reset';
  }

  /**
   * Watch for a silent responder: Linux siw can miss the first FPDUs after its Reply, and any later octet
   * wakes it (protocol-notes 3.6). Armed once, by the first FPDU that has left.
   */
  #armNudge(): void {
    const { silentPeerNudge } = this.#config.policy;
    if (this.#nudgeArmed || silentPeerNudge === 0 || this.#negotiated!.role !== 'initiator') return;
    if (this.state !== 'operational' && this.state !== 'draining') return; // its silence no longer matters
    this.#nudgeArmed = true;
    this.#arm('nudge', this.#now + silentPeerNudge);
  }
}
