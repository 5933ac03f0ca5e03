/**
 * One queue pair's stream over a plain TCP connection, without I/O: the counterpart of `RdmaStream` for the
 * wire `qpip`. Not an octet is added to what the program sends, but for the lengths of framing `length`.
 *
 * **No receive posted: the port is paused**, so that the peer's window closes. Each direction ends by itself,
 * as TCP has it: after the peer's end Sends still go out, after our own the receives are still filled.
 *
 * Read the states in `states.ts` first.
 */
import { NO_BYTES, copyOf } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import type { Transmission } from '../llp/lower-layer.ts';
import type { DepthRequest, Negotiated, Role } from '../llp/startup.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import { noCounters } from '../rdmap/counters.ts';
import type { DrivenStream, StreamHost } from '../stream/driven.ts';
import { EventList } from '../stream/event-list.ts';
import type { CloseCause, PortAction, StreamCounters, StreamEvent } from '../stream/types.ts';
import type { Framing } from './framing.ts';
import { ReceiveHalf } from './receiver.ts';
import { SendHalf } from './sender.ts';
import { QPIP_TABLE, type QpipInput, type QpipState } from './states.ts';

/** The part of a connection's policy that such a stream has. */
interface QpipPolicy {
  readonly framing: Framing;
  readonly closeTimeout: number;
}

/** Nothing is negotiated: there is nobody to negotiate with. */
const OUTCOME: Omit<Negotiated, 'role'> = {
  revision: 0,
  enhanced: false,
  crc: false,
  sendMarkers: false,
  receiveMarkers: false,
  ird: 0,
  ord: 0,
  autoOrd: false,
  peerIrd: undefined,
  peerOrd: undefined,
  rtr: null,
  ddpVersion: 1,
};
const OUTCOMES: Readonly<Record<Role, Negotiated>> = {
  initiator: { role: 'initiator', ...OUTCOME },
  responder: { role: 'responder', ...OUTCOME },
};

const NEVER = Number.POSITIVE_INFINITY;

export class QpipStream implements DrivenStream {
  readonly #role: Role;
  readonly #policy: QpipPolicy;
  readonly #host: StreamHost;
  readonly #events = new EventList();
  #state: QpipState = QPIP_TABLE.initial;
  #endpoint: StreamEndpoint | null = null;
  #sender: SendHalf | null = null;
  #receiver: ReceiveHalf | null = null;
  /** The bytes that came before there was a queue pair: at most one read. */
  #early: Uint8Array | null = null;
  #action: PortAction = 'none';
  #flow: 'flowing' | 'paused' = 'flowing';
  /** The peer's end has come; what it sent before may still wait for receives. */
  #peerEnded = false;
  #cause: CloseCause | null = null;
  #error: Error | undefined;
  #deadline: number | null = null;
  #now = 0;
  #octetsIn = 0;
  readonly #wake = (): void => this.#host.wake();

  constructor(role: Role, policy: QpipPolicy, host: StreamHost) {
    this.#role = role;
    this.#policy = policy;
    this.#host = host;
  }

  get state(): QpipState {
    return this.#state;
  }

  /** There are no Reads here. */
  get ord(): number {
    return 0;
  }

  set ord(_value: number) {
    // Nor can their number be lowered.
  }

  counters(): StreamCounters {
    const counters = noCounters();
    counters.octetsIn = this.#octetsIn;
    counters.octetsOut = this.#sender?.octetsOut ?? 0;
    counters.payloadIn = this.#receiver?.payloadOctets ?? 0;
    counters.payloadOut = this.#sender?.payloadOctets ?? 0;
    counters.messagesIn.sends = this.#receiver?.messages ?? 0;
    counters.messagesOut.sends = this.#sender?.messages ?? 0;
    return counters;
  }

  #step(input: QpipInput): void {
    this.#state = nextState(QPIP_TABLE, this.#state, input, this);
  }

  #accepts(input: QpipInput): boolean {
    return QPIP_TABLE.transitions[this.#state][input] !== undefined;
  }

  // ------------------------------------------------------------------------------------------ program inputs

  start(now: number, endpoint: StreamEndpoint | null, _privateData: Uint8Array, _wishes: DepthRequest): void {
    this.#now = now;
    if (endpoint === null) {
      this.#step('incoming');
      const request = { revision: 0, privateData: NO_BYTES, peerIrd: undefined, peerOrd: undefined };
      this.#events.add({ type: 'request', request });
      return;
    }
    this.#step('connected');
    this.#establish(endpoint);
  }

  accept(now: number, endpoint: StreamEndpoint, _privateData: Uint8Array, _wishes: DepthRequest): void {
    this.#now = now;
    if (this.#state !== 'deciding') return; // the peer has gone meanwhile; a `closed` event says so
    this.#step('accept');
    this.#establish(endpoint);
  }

  #establish(endpoint: StreamEndpoint): void {
    const { framing } = this.#policy;
    this.#endpoint = endpoint;
    this.#sender = new SendHalf(endpoint, framing);
    const receiver = new ReceiveHalf(endpoint, framing, this.#host);
    this.#receiver = receiver;
    this.#events.add({ type: 'established', negotiated: OUTCOMES[this.#role], privateData: NO_BYTES });
    const early = this.#early;
    this.#early = null;
    if (early !== null) receiver.handleBytes(early, 0, early.length);
  }

  /** There is no way to say no but a reset. */
  reject(now: number): void {
    this.#now = now;
    if (this.#state === 'deciding') this.#abort('rejected', undefined);
  }

  confirm(now: number): void {
    this.#now = now; // there is no reply that could be held
  }

  /** Write the posted messages, then end our direction. */
  close(now: number): void {
    this.#now = now;
    if (this.#state === 'operational' || this.#state === 'half-open') {
      const first = this.#state === 'operational';
      this.#step('close');
      this.#sender!.refuseLaterPosts();
      this.#armClose();
      if (first) this.#events.add({ type: 'closing', by: 'local' });
    } else if (this.#state === 'deciding' || this.#state === 'idle') {
      this.#abort('graceful', undefined);
    }
  }

  /** End without a reason for the peer: this protocol cannot carry one. */
  terminate(now: number): void {
    this.abort(now);
  }

  abort(now: number): void {
    this.#now = now;
    this.#abort('reset', undefined);
  }

  displace(now: number): void {
    this.#now = now; // no peer is waited for in start-up: there is nothing to displace
  }

  kick(now: number): void {
    this.#now = now;
    if (this.#state === 'half-open') this.#armClose(); // the program goes on
    if (this.#receives) this.#receiver!.consumeHeld();
    else if (this.#receiver !== null) this.#receiver.flush();
  }

  /** Octets of the peer can still arrive, or wait here. */
  get #receives(): boolean {
    return this.#state === 'operational' || this.#state === 'draining' || this.#state === 'ended';
  }

  // ------------------------------------------------------------------------------------------ network inputs

  handleBytes(bytes: Uint8Array, start: number, end: number, now: number): void {
    this.#now = now;
    this.#octetsIn += end - start;
    if (this.#receives) {
      if (this.#state !== 'operational') this.#armClose(); // progress
      this.#receiver!.handleBytes(bytes, start, end);
    } else if (this.#state === 'deciding') {
      const more = copyOf(bytes, start, end);
      this.#early = this.#early === null ? more : joined(this.#early, more);
    }
  }

  readTarget(): Uint8Array | undefined {
    return this.#receives ? this.#receiver!.readTarget() : undefined;
  }

  handleEnd(now: number): void {
    this.#now = now;
    this.#peerEnded = true;
  }

  handleTaken(): void {
    this.#sender?.handleTaken();
  }

  handleTransmitted(ok: boolean, now: number): void {
    this.#now = now;
    this.#sender?.handleTransmitted(ok);
    if (this.#deadline !== null) this.#armClose(); // progress
  }

  handleClose(error: Error | undefined, now: number): void {
    this.#now = now;
    if (this.#state === 'closed') return;
    const before = this.#state;
    this.#step('end-of-port');
    this.#deadline = null;
    const { rq } = this.#endpoint ?? {};
    rq?.stopWaiting(this.#wake);
    if ((before === 'idle' || before === 'deciding') && this.#cause === null) {
      this.#events.add({ type: 'startup-failed', reason: error === undefined ? 'truncated' : 'reset' });
      this.#cause = 'startup-failed';
    }
    this.#sender?.flush();
    this.#receiver?.flush();
    const clean = before === 'closing' && error === undefined;
    const cause = this.#cause ?? (clean ? 'graceful' : error === undefined ? 'lost' : 'reset');
    this.#events.add({ type: 'closed', cause, error: this.#error ?? error });
  }

  handleTimeout(now: number): void {
    this.#now = now;
    if (this.#deadline === null || now < this.#deadline) return;
    this.#deadline = null;
    // The program has had its time to answer a peer that has ended.
    if (this.#state === 'half-open') this.close(now);
    else this.#abort('timeout', new IwarpError('ERR_TIMEOUT', 'the peer has not ended the connection'));
  }

  // ------------------------------------------------------------------------------------------------- outputs

  pollTransmit(): Transmission | null {
    switch (this.#state) {
      case 'operational':
      case 'draining':
      case 'half-open':
      case 'finishing':
        return this.#sender!.pollTransmit();
      default:
        return null;
    }
  }

  pollClose(): PortAction {
    this.#settle();
    const action = this.#action;
    if (action !== 'none') {
      this.#action = 'none';
      return action;
    }
    if (this.#state === 'aborting' || this.#state === 'closed') return 'none';
    const flow = this.#wantsOctets ? 'flowing' : 'paused';
    if (flow === this.#flow) return 'none';
    this.#flow = flow;
    return flow === 'flowing' ? 'resume' : 'pause';
  }

  pollEvent(): StreamEvent | null {
    return this.#events.take();
  }

  pollTimeout(): number {
    return this.#deadline ?? NEVER;
  }

  get #wantsOctets(): boolean {
    switch (this.#state) {
      case 'idle':
      case 'deciding':
        return false;
      case 'operational':
      case 'draining':
        return !this.#receiver!.starved;
      case 'ended':
        // Read on without a receive too: the next event is most likely the peer's end.
        return !this.#receiver!.holds;
      default:
        return true;
    }
  }

  /** Called when nothing more can be written now. */
  #settle(): void {
    const sender = this.#sender;
    const receiver = this.#receiver;
    if (sender === null || receiver === null) return;
    const fault = receiver.fault ?? sender.fault;
    if (fault !== null && this.#accepts('abort')) this.#abort('reset', fault);
    if (this.#peerEnded && !receiver.holds && this.#accepts('peer-end')) this.#handlePeerEnd(receiver);
    if ((this.#state === 'draining' || this.#state === 'finishing') && !sender.unfinished) {
      this.#step('drained');
      this.#action = 'end';
      this.#armClose();
    }
    // Whatever is posted to a queue that waits is looked at: it is filled, or flushed.
    if (this.#state !== 'aborting' && (receiver.starved || !this.#receives))
      this.#endpoint!.rq.whenPosted(this.#wake);
  }

  #handlePeerEnd(receiver: ReceiveHalf): void {
    if (receiver.withinMessage) {
      this.#abort('lost', new IwarpError('ERR_CONNECTION_CLOSED', 'the peer ended within a message'));
      return;
    }
    const first = this.#state === 'operational';
    this.#step('peer-end');
    this.#armClose();
    receiver.flush();
    if (first) this.#events.add({ type: 'closing', by: 'peer' });
  }

  #armClose(): void {
    this.#deadline = this.#now + this.#policy.closeTimeout;
  }

  #abort(cause: CloseCause, error: Error | undefined): void {
    if (!this.#accepts('abort')) return;
    this.#step('abort');
    this.#cause = cause;
    this.#error = error;
    this.#deadline = null;
    this.#action = 'reset';
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(a.length + b.length);
  bytes.set(a);
  bytes.set(b, a.length);
  return bytes;
}
