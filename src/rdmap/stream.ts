/**
 * One RDMA stream without I/O: start-up (`stream-startup.ts`), full operation (`stream-operation.ts`), and here what leads from one to the
 * other and to the end: states (`stream-states.ts`), deadlines, writes and events.
 *
 * **One input, then drain the outputs until quiet, then the next input.** Inputs: `start`, `accept`, `reject`, `confirm`, `close`,
 * `terminate`, `abort`, `handleBytes`, `handleEnd`, `handleTransmitted`, `handleTimeout`, `handleClose`, and `kick` after posts. Outputs:
 * `pollTransmit`, `pollClose`, `pollEvent`, `pollTimeout`. Time is an argument; nothing in here reads a clock, draws a random number or
 * touches a socket. Network input never throws.
 *
 * Read RFC 5044 7.1.2 (set-up), RFC 5040 6 (stream management) and 7 (errors), RFC 5041 6.2 and verbs draft 6.2 first.
 */
import { nextState } from '../base/fsm.ts';
import { LastEqual } from '../base/last-equal.ts';
import { FINE, TERM } from '../base/terminate-codes.ts';
import { WIDE_ZERO } from '../base/wide.ts';
import type { UlpduSink } from '../mpa/deframer.ts';
import type { DepthWishes } from '../mpa/negotiate.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import { messagesReceived, messagesSent } from './counters.ts';
import type { InputClock } from './read-bound.ts';
import { IN_TURN, type Requester } from './receiver.ts';
import { StreamOperation } from './stream-operation.ts';
import { StreamOutputs } from './stream-outputs.ts';
import { STREAM_TABLE, type StreamInput, type StreamState } from './stream-states.ts';
import { StreamStartup } from './stream-startup.ts';
import type { CloseCause, PortAction, StreamConfig, StreamCounters, StreamEndpoint, Transmission } from './stream-types.ts';
import { plainTerminate, type TerminateInfo } from './terminate.ts';

/** Code that stops the deframer without being an error: a Terminate has been received. */
const STOP = 0x10_0000;
const NEVER = Number.POSITIVE_INFINITY;
/** Streams in a row mostly settle the same. */
const lastOutcome = new LastEqual<Negotiated>();

export class RdmaStream extends StreamOutputs implements UlpduSink, Requester, InputClock {
  readonly #config: StreamConfig;
  #state: StreamState = STREAM_TABLE.initial;
  /** Until the stream is operational or on its way out. */
  #startup: StreamStartup | null = null;
  /** A start-up frame to be sent. */
  #frame: Uint8Array | null = null;
  #endpoint: StreamEndpoint | null = null;
  #negotiated: Negotiated | null = null;
  /** Once the stream is operational. */
  #operation: StreamOperation | null = null;
  #action: PortAction = 'none';
  #ended = false;
  #peerEnded = false;
  #cause: CloseCause | null = null;
  #now = 0;
  // Deadlines, each null when unarmed: an Infinity would be a number object of its own.
  /** For the peer's frame in start-up, for the close afterwards. */
  #deadline: number | null = null;
  /** Up to when progress may put off the deadline of the close; null before that. */
  #latest: number | null = null;
  #nudgeAt: number | null = null;
  #openAt: number | null = null;
  #nudgeArmed = false;
  #octetsIn: number = WIDE_ZERO;
  #nudges = 0;
  /** What was wrong with an FPDU: the first ends the stream. */
  #badFpdu = FINE;

  constructor(config: StreamConfig) {
    super();
    this.#config = config;
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
      fpdusIn: operation?.receiver.segments ?? 0, fpdusOut: operation?.sender.fpdus ?? 0,
      // Plus 0, for WIDE_ZERO.
      payloadIn: (operation?.receiver.payloadOctets ?? 0) + 0, payloadOut: (operation?.sender.payloadOctets ?? 0) + 0,
      octetsIn: this.#octetsIn + 0, octetsOut: this.octetsOut + 0,
      messagesIn: messagesReceived(operation?.receiver.messages), messagesOut: messagesSent(operation?.receiver.messages),
      crcErrors: this.#badFpdu === TERM.MPA_CRC ? 1 : 0,
      markerErrors: this.#badFpdu === TERM.MPA_MARKER ? 1 : 0,
      nudges: this.#nudges,
    };
  }

  /** Preset the next MSN of a queue in both directions: a test hook for the wrap (DDP-015). */
  presetMsn(qn: number, msn: number): void {
    this.#operation?.presetMsn(qn, msn);
  }

  // ------------------------------------------------------------------------------------------------ start-up inputs

  /**
   * Begin. The initiator sends its Request with this private data and these depths, for this queue pair; the responder waits for one, and gets its
   * queue pair with `accept`.
   */
  start(now: number, endpoint: StreamEndpoint | null, privateData: Uint8Array, wishes: DepthWishes): void {
    this.#now = now;
    this.#step('start');
    const { role, policy } = this.#config;
    this.#startup = new StreamStartup(role, policy, privateData, wishes);
    this.#frame = this.#startup.begin();
    this.#endpoint = endpoint;
    this.#deadline = now + (role === 'initiator' ? policy.replyTimeout : policy.requestTimeout); // MPA-008, MPA-007
  }

  /** Responder, after a `request` event: accept with this queue pair. */
  accept(now: number, endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthWishes): void {
    this.#now = now;
    if (this.state !== 'deciding') return; // the peer has gone meanwhile; a `closed` event says so
    const { reply, negotiated } = this.#startup!.accept(privateData, wishes);
    this.#frame = reply;
    if (negotiated === null) {
      this.#leave('rejected');
      return;
    }
    this.#endpoint = endpoint;
    this.#establish(negotiated, FINE);
  }

  /** Responder, after a `request` event: reject with private data. The Reply is delivered before the connection closes (MPA-038). */
  reject(now: number, privateData: Uint8Array): void {
    this.#now = now;
    if (this.state !== 'deciding') return;
    this.#frame = this.#startup!.reject(privateData);
    this.#leave('rejected');
  }

  /** Initiator with `confirm`, after a `response` event: go on. */
  confirm(now: number): void {
    this.#now = now;
    if (this.state !== 'deciding') return;
    this.#establish(this.#negotiated!, FINE);
  }

  // ------------------------------------------------------------------------------------------------- closing inputs

  /** Graceful close: finish the work posted, then FIN (DDP-059, VERBS-041). */
  close(now: number): void {
    this.#now = now;
    const { state } = this;
    if (state === 'operational') {
      this.#step('close');
      this.#operation!.sender.refuseLaterPosts();
      this.#armClose('all-work');
      this.raise({ type: 'closing', by: 'local' });
    } else if (state === 'startup' || state === 'deciding') {
      this.#leave('graceful');
    } else if (state === 'idle') {
      this.#abort('graceful');
    }
  }

  /** Modify to Terminate (VERBS-047): say so to the peer, then close. */
  terminate(now: number, code: number): void {
    this.#now = now;
    if (this.state === 'operational' || this.state === 'draining') this.#terminateWith(plainTerminate(code), false);
  }

  /** Modify to Error: reset at once, without a Terminate (VERBS-054). */
  abort(now: number): void {
    this.#now = now;
    this.#abort('reset');
  }

  /** Something was posted. */
  kick(now: number): void {
    this.#now = now;
  }

  // ------------------------------------------------------------------------------------------------ network inputs

  /** `bytes[start..end)` arrived; borrowed. */
  handleBytes(bytes: Uint8Array, start: number, end: number, now: number): void {
    this.#now = now;
    if (this.#action === 'reset') return; // aborted: nothing is placed any more, though the port has not heard of it
    this.#octetsIn += end - start;
    let at = start;
    if (this.state === 'startup') at = this.#handleStartup(bytes, start, end);
    if (at === end) return;
    switch (this.state) {
      case 'deciding':
        if (!this.#startup!.keepEarly(bytes, at, end)) this.#failStartup('extra-octets', 'startup-failed');
        break;
      case 'operational':
        this.#handleFpdus(bytes, at, end);
        break;
      case 'draining':
        if (this.#operation!.sender.awaitsResponse) this.#putOffClose();
        this.#handleFpdus(bytes, at, end);
        break;
      case 'closing':
        // VERBS-043: after our FIN nothing may arrive any more; after the peer's FIN nothing can.
        this.#abort('bad-close');
        break;
      default: // leaving, terminating, closed: read and dropped, so that no reset destroys our last words (VERBS-053, DDP-054)
    }
  }

  /** Where the next octets had best be put before `handleBytes` gets them; undefined if it does not matter. */
  readTarget(): Uint8Array | undefined {
    return this.#operation?.deframer.readTarget() ?? undefined;
  }

  /** The peer sent FIN (MPA-107, MPA-108). */
  handleEnd(now: number): void {
    this.#now = now;
    this.#peerEnded = true;
    if (this.#action === 'reset') return; // what we have aborted does not end in order
    switch (this.state) {
      case 'startup':
      case 'deciding':
        this.#startup?.lose();
        this.#failStartup('truncated', 'lost'); // MPA-021, ENH-047
        break;
      case 'operational':
      case 'draining':
        this.#handleFinInOperation();
        break;
      default: // our own FIN has gone out already, or follows the Terminate that is still to be sent (VERBS-051)
    }
  }

  /** The port has copied the write just handed out: its memory serves the next one, also of another stream. `handleTransmitted` still follows. */
  handleTaken(): void {
    this.freeLastWrite(this.#config.resources.stages);
  }

  /** The oldest write handed out has been taken by the port, or (`ok` false) never will be. */
  handleTransmitted(ok: boolean, now: number): void {
    this.#now = now;
    const work = this.confirmWrite(this.#config.resources.stages);
    if (!ok || !work) return; // a start-up frame, or given up by `handleClose`
    this.#operation!.sender.transmitted();
    this.#putOffClose();
    this.#armNudge();
  }

  /** The port is gone; nothing else will come. */
  handleClose(error: Error | undefined, now: number): void {
    this.#now = now;
    if (this.state === 'closed') return;
    const before = this.state;
    this.#step('end-of-port');
    this.#deadline = this.#latest = this.#nudgeAt = this.#openAt = null;
    if (before === 'startup' || before === 'deciding' || before === 'idle') {
      this.#startup?.lose();
      this.#startup = null;
      if (this.#cause === null) this.raise({ type: 'startup-failed', reason: error === undefined ? 'truncated' : 'reset' });
      this.#cause ??= 'startup-failed';
    }
    // VERBS-044: a close that the port has failed under is none, and what the system had not yet sent is lost.
    if (before === 'closing' && error !== undefined && this.#cause === 'graceful') this.#cause = 'reset';
    const clean = error === undefined && (before === 'closing' || before === 'leaving');
    const cause = this.#cause ?? (clean ? 'graceful' : error === undefined ? 'lost' : 'reset');
    this.giveUpWrites(this.#config.resources.stages);
    const operation = this.#operation;
    if (operation !== null) {
      operation.deframer.dispose();
      operation.sender.flush();
      operation.receiver.flush(this.#endpoint!.rqShared);
    }
    this.raise({ type: 'closed', cause, error });
  }

  handleTimeout(now: number): void {
    this.#now = now;
    if (this.#deadline !== null && now >= this.#deadline) {
      this.#deadline = null;
      const { state } = this;
      if (state === 'startup') {
        this.#startup!.expire();
        this.#failStartup('timeout', 'timeout');
      } else {
        // VERBS-044, VERBS-045. A connection that was ending for a reason of its own keeps that reason.
        this.#abort(state === 'closing' || state === 'draining' ? 'timeout' : (this.#cause ?? 'timeout'));
      }
    }
    if (this.#openAt !== null && now >= this.#openAt) {
      this.#openAt = null;
      this.#operation!.sender.mayTransmit = true;
    }
    if (this.#nudgeAt !== null && now >= this.#nudgeAt) {
      this.#nudgeAt = null;
      this.#nudges++;
      this.#operation!.sender.nudge();
    }
  }

  // -------------------------------------------------------------------------------------------------------- outputs

  /** The next octets to write, or null. At most two writes are out at a time. */
  pollTransmit(): Transmission | null {
    const frame = this.#frame;
    if (frame !== null) {
      this.#frame = null;
      return this.handOut({ chunks: [frame], count: 1 }, frame.length);
    }
    const operation = this.#operation;
    if (operation === null || this.#ended || this.writing) return null;
    if (this.state !== 'operational' && this.state !== 'draining' && this.state !== 'terminating') return null;
    // Asked once or twice after every input, and mostly there is nothing: a stage is not taken for that.
    const { sender } = operation;
    if (sender.idle) return null;
    const stage = this.#config.resources.stages.acquire();
    sender.fill(stage);
    const { fault } = sender;
    if (fault !== null) {
      sender.fault = null;
      this.#terminateWith(fault, false);
      if (!this.#ended) sender.fill(stage); // one that may not even say so does nothing more (VERBS-057)
    }
    if (stage.end === 0) {
      this.#config.resources.stages.release(stage);
      sender.sweep(); // local operations may have completed without sending anything
      return null;
    }
    stage.seal();
    sender.handOut();
    return this.handOut(stage, stage.octets);
  }

  /** Once `pollTransmit` is quiet: what to do with the port. Each action is told once. */
  pollClose(): PortAction {
    if (this.#action === 'none') this.#settle();
    const action = this.#action;
    if (action === 'none') return 'none';
    this.#action = 'none';
    return action;
  }

  /** When `handleTimeout` wants to be called; Infinity for never. */
  pollTimeout(): number {
    return Math.min(this.#deadline ?? NEVER, this.#nudgeAt ?? NEVER, this.#openAt ?? NEVER);
  }

  #step(input: StreamInput): void {
    this.#state = nextState(STREAM_TABLE, this.#state, input, this);
  }

  // -------------------------------------------------------------------------------------------------------- start-up

  #handleStartup(bytes: Uint8Array, start: number, end: number): number {
    const startup = this.#startup!;
    const at = startup.handleBytes(bytes, start, end);
    const { verdict } = startup;
    if (verdict === null) return at;
    this.#deadline = null;
    switch (verdict.kind) {
      case 'request':
        this.#step('request');
        this.raise({ type: 'request', request: verdict.request });
        break;
      case 'accepted':
        this.#handleAccepted(verdict.negotiated, verdict.privateData, verdict.terminate);
        break;
      case 'rejected':
        this.raise(verdict.event);
        this.#leave('rejected');
        break;
      default:
        this.#frame = verdict.farewell;
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
    this.raise({ type: 'response', negotiated, privateData });
  }

  /** Enter full operation (MPA-036, MPA-039, MPA-042): everything starts from its initial state (RDMAP-096). */
  #establish(outcome: Negotiated, terminate: number): void {
    const negotiated = lastOutcome.of(outcome);
    const { policy } = this.#config;
    const startup = this.#startup!;
    this.#startup = null;
    this.#deadline = null;
    this.#negotiated = negotiated;
    const operation = new StreamOperation(this.#config, negotiated, this.#endpoint!, this);
    this.#operation = operation;
    this.#step('establish');
    // MPA-028: a strict responder waits for an FPDU. A relaxed one only lets the Reply arrive on its own.
    if (negotiated.role === 'responder' && policy.responder === 'relaxed') this.#openAt = this.#now + policy.responderDelay;
    this.raise({ type: 'established', negotiated, privateData: startup.peerPrivateData });
    if (terminate !== FINE) {
      // ENH-022, ENH-040: said in the first FPDU, instead of the RTR message.
      operation.sender.rtr = null;
      this.#terminateWith(plainTerminate(terminate), false);
    }
    const early = startup.takeEarly();
    if (early !== null && this.state === 'operational') this.#handleFpdus(early, 0, early.length);
    if (this.#peerEnded && this.state === 'operational') this.#handleFinInOperation();
  }

  #failStartup(reason: StartupFailure, cause: CloseCause): void {
    if (this.state !== 'startup' && this.state !== 'deciding') return;
    this.raise({ type: 'startup-failed', reason });
    this.#cause = cause;
    // protocol-notes 3.3: cxgb4 and irdma try again with revision 1 only after a reset. An initiator closes in order (MPA-049).
    if (reason === 'unusable-revision' && this.#config.role === 'responder' && this.#frame === null) this.#abort(cause);
    else this.#leave(cause);
  }

  /** Go without ever having been operational: say what is in `#frame`, then FIN (MPA-111: at once). */
  #leave(cause: CloseCause): void {
    this.#cause ??= cause;
    this.#startup = null;
    this.#deadline = this.#now + this.#config.policy.closeTimeout;
    this.#step('leave');
    this.#endOnce();
  }

  // ------------------------------------------------------------------------------------------------------ operation

  /** The deframer's sink: one ULPDU whose FPDU is valid. */
  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    if (this.state !== 'operational' && this.state !== 'draining') return STOP;
    const operation = this.#operation!;
    operation.sender.mayTransmit = true; // MPA-028, MPA-029: any valid FPDU opens the responder's direction
    this.#nudgeAt = null;
    this.#nudgeArmed = true;
    const code = operation.ddp.handleUlpdu(bytes, start, length);
    if (code !== FINE) {
      this.#inboundFault(code);
      return STOP;
    }
    const { terminate } = operation.receiver;
    if (terminate === null) return FINE;
    this.#handleTerminate(terminate);
    return STOP;
  }

  /** A response was the last thing that some entries waited for. */
  requestAnswered(): void {
    this.#operation!.sender.sweep();
  }

  #handleFpdus(bytes: Uint8Array, at: number, end: number): void {
    const code = this.#operation!.deframer.handleBytes(bytes, at, end);
    if (code === FINE || code === STOP) return;
    this.#badFpdu = code;
    this.#terminateWith(plainTerminate(code), false); // MPA-074: MPA leaves the close to us
  }

  /** An error on an incoming segment: the first one is reported, everything after it is dropped (RDMAP-073, RDMAP-075, DDP-054). */
  #inboundFault(code: number): void {
    const terminate = this.#operation!.terminateFor(code);
    if (terminate !== null) {
      this.#terminateWith(terminate, (code & IN_TURN) !== 0);
      return;
    }
    this.#cause = 'terminated';
    this.#enterTerminating('nothing');
    this.#endOnce();
  }

  /** RDMAP-079, VERBS-050: delivered, never answered; then close. */
  #handleTerminate(terminate: TerminateInfo): void {
    this.#cause = 'terminated';
    this.raise({ type: 'terminate', terminate });
    this.#operation!.blame(terminate);
    this.#enterTerminating('nothing');
    this.#endOnce();
  }

  #terminateWith(info: TerminateInfo, afterResponses: boolean): void {
    if (this.state !== 'operational' && this.state !== 'draining') return;
    this.#cause = 'terminated';
    this.#enterTerminating(afterResponses ? 'responses' : 'nothing');
    this.raise({ type: 'terminate', terminate: info });
    const { sender } = this.#operation!;
    if (sender.mayTransmit || this.#config.policy.responder === 'relaxed') {
      sender.mayTransmit = true;
      sender.requestTerminate(info, afterResponses);
    } else {
      this.#endOnce(); // MPA-028: not even a Terminate before the first valid FPDU
    }
  }

  #enterTerminating(left: 'responses' | 'nothing'): void {
    this.#step('terminate');
    this.#armClose(left);
    this.#nudgeAt = null;
  }

  /**
   * The end begins, and this is still to be done before our FIN. It may take as long as it goes on (DDP-059, RDMAP-074), but a peer that only
   * trickles does not hold the connection for ever (VERBS-045): `closeShares` bounds it.
   */
  #armClose(left: 'all-work' | 'responses' | 'nothing'): void {
    const { closeTimeout } = this.#config.policy;
    this.#deadline = this.#now + closeTimeout;
    this.#latest = this.#now + closeTimeout * this.#operation!.sender.closeShares(left);
  }

  /** A write has been taken, or a response that we wait for goes on. */
  #putOffClose(): void {
    if (this.#latest !== null) this.#deadline = Math.min(this.#now + this.#config.policy.closeTimeout, this.#latest);
  }

  #handleFinInOperation(): void {
    if (!this.#operation!.deframer.atBoundary) {
      this.#abort('lost'); // MPA-107: the partial FPDU has no effect
      return;
    }
    const verdict = this.#operation!.sender.closeVerdict();
    if (verdict !== FINE) {
      this.#terminateWith(plainTerminate(verdict), false); // VERBS-040: Bad LLP Close
      return;
    }
    if (this.state === 'operational') this.raise({ type: 'closing', by: 'peer' });
    this.#finish(); // VERBS-039
  }

  /** Everything is said: FIN, and the receives are flushed (VERBS-042). */
  #finish(): void {
    this.#step('finish');
    this.#cause = 'graceful';
    this.#nudgeAt = null;
    this.#armClose('nothing');
    this.#operation!.receiver.flush(this.#endpoint!.rqShared);
    this.#endOnce();
  }

  /** Called when nothing more can be transmitted now. */
  #settle(): void {
    const sender = this.#operation?.sender;
    if (this.state === 'draining' && !sender!.unfinished) this.#finish();
    else if (this.state === 'terminating' && sender!.terminateSent) this.#endOnce();
  }

  #endOnce(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#action === 'none') this.#action = 'end';
  }

  #abort(cause: CloseCause): void {
    if (this.state === 'closed') return;
    this.#cause ??= cause;
    if (cause === 'bad-close' || cause === 'timeout') this.#cause = cause;
    this.#ended = true;
    this.#action = 'reset';
  }

  /**
   * Watch for a silent responder: Linux siw can miss the first FPDUs after its Reply, and any later octet wakes it (protocol-notes 3.6). Armed
   * once, by the first FPDU that has left.
   */
  #armNudge(): void {
    const { silentPeerNudge } = this.#config.policy;
    if (this.#nudgeArmed || silentPeerNudge === 0 || this.#negotiated!.role !== 'initiator') return;
    if (this.state !== 'operational' && this.state !== 'draining') return; // nobody is waited for any more
    this.#nudgeArmed = true;
    this.#nudgeAt = this.#now + silentPeerNudge;
  }
}
