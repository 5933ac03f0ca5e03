/**
 * One connection of the connection manager, either side: rdma_connect, rdma_accept, rdma_reject,
 * rdma_disconnect.
 */
import { captureContext, type AsyncContext } from '../base/async-context.ts';
import { NO_BYTES } from '../base/copy.ts';
import {
  checkBoolean,
  checkBytes,
  checkFunction,
  checkInteger,
  IwarpError,
  show,
  type Names,
} from '../base/errors.ts';
import { TERM } from '../base/terminate-codes.ts';
import { Interned } from '../base/interned.ts';
import type { StartupFailure, StartupRequest } from '../llp/startup.ts';
import { resolveEmss } from '../mpa/emss.ts';
import { DEPTH_NOT_NEGOTIATED } from '../mpa/wire.ts';
import type { ConnectionPolicy, Negotiated } from '../mpa/policy.ts';
import { noCounters } from '../rdmap/counters.ts';
import type { StreamCounters, StreamEvent } from '../stream/types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { PortAddress } from '../transport/port.ts';
import type { TlsInfo } from '../transport/tls-options.ts';
import type { Device } from '../verbs/device.ts';
import { QueuePair } from '../verbs/qp.ts';
import { connectFailure, startupFailure } from './connect-failure.ts';
import type { ConnectionStats } from './connection-stats.ts';
import type { CmEvent, ConnectionParameters } from './events.ts';
import type { ActiveInput, ActiveState, PassiveInput, PassiveState } from './states.ts';
import type { StreamLink } from '../engine/engine.ts';

/** Peers with equal parameters and no private data share a record. */
const lastParameters = new Interned<ConnectionParameters>();

/** Parameters for connecting or accepting (rdma_conn_param). */
export interface ConnParam {
  /** Up to 512 bytes on revision 1, 508 on revision 2 (ENH-004). */
  readonly privateData?: ArrayBufferView | undefined;
  /** Reads that the peer may have outstanding here (IRD). */
  readonly responderResources?: number | undefined;
  /** Reads that we may have outstanding at the peer (ORD). */
  readonly initiatorDepth?: number | undefined;
}

/** @internal */
export const PARAM_NAMES: Names<ConnParam> = {
  privateData: true,
  responderResources: true,
  initiatorDepth: true,
};

/** @internal Check private data against the room in the frame it goes into (MPA-018, ENH-004). */
export function checkPrivateData(
  name: string,
  data: ArrayBufferView | undefined,
  max: number,
  { wire, privateDataRoom }: Device,
): Uint8Array {
  if (data === undefined) return NO_BYTES;
  const bytes = checkBytes(name, data);
  if (wire === 'qpip' && bytes.length > 0)
    throw new IwarpError(
      'ERR_NOT_SUPPORTED',
      `${name}: the wire ${wire} has no set-up to carry private data`,
    );
  if (bytes.length > privateDataRoom)
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name} has ${bytes.length} bytes, above the limit of ${privateDataRoom} of this wire`,
    );
  if (bytes.length > max)
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `${name} has ${bytes.length} bytes, above the limit of ${max} (maxPrivateData of the policy)`,
    );
  return new Uint8Array(bytes); // a copy: `slice` of a Buffer is a view
}

/** @internal */
export function checkDepth(name: string, depth: number | undefined, limit: number): number | undefined {
  return depth === undefined
    ? undefined
    : checkInteger(name, depth, 0, Math.min(limit, DEPTH_NOT_NEGOTIATED - 1));
}

/**
 * @internal Layer, type and code of a Terminate fill sixteen bits; the one name of TERM that has more stands
 * for 0.
 */
export function checkTerminateCode(code: number): void {
  if (code !== TERM.LOCAL_CATASTROPHIC) checkInteger('code', code, 0, 0xffff);
}

/** A depth that a peer has named, as far as this device takes it: a program may hand it to `accept`. */
function known(depth: number | undefined, limit: number): number | undefined {
  return depth === undefined || depth === DEPTH_NOT_NEGOTIATED ? undefined : Math.min(depth, limit);
}

/** TCP's probes of an idle connection. */
export interface KeepAliveOptions {
  /**
   * Let TCP probe the peer's system while the connection is idle, so that one whose path is dead ends with a
   * time-out. Default false: an idle connection lasts until something is sent on it. See
   * {@link CmConnection.setKeepAlive}.
   */
  readonly keepAlive?: boolean | undefined;
  /** Milliseconds without bytes before the first probe, in whole seconds. Default 0: as the system is set. */
  readonly keepAliveInitialDelay?: number | undefined;
}

/** @internal */
export const KEEP_ALIVE_NAMES: Names<KeepAliveOptions> = { keepAlive: true, keepAliveInitialDelay: true };

/** A timer of Node takes no more. */
const MAX_KEEP_ALIVE_DELAY = 0x7fff_ffff;

/** @internal The delay of the probes, or null for none. */
export function checkKeepAlive({ keepAlive, keepAliveInitialDelay }: KeepAliveOptions): number | null {
  const delay =
    keepAliveInitialDelay === undefined
      ? 0
      : checkInteger('options.keepAliveInitialDelay', keepAliveInitialDelay, 0, MAX_KEEP_ALIVE_DELAY);
  return keepAlive !== undefined && checkBoolean('options.keepAlive', keepAlive) ? delay : null;
}

/**
 * The states of a connection that is being made: it keeps the process alive, whatever the program has said of
 * it, as one of `node:net` does.
 */
const BEING_MADE: ReadonlySet<ActiveState | PassiveState> = new Set<ActiveState | PassiveState>([
  ...(['connecting', 'requesting', 'deciding', 'confirming'] as const),
  ...(['starting', 'requested', 'accepting'] as const),
]);

/** The local end of a connection, as ibv_query_port has it (ibv_port_attr). */
export interface PortAttributes {
  /** `active` while there is a TCP connection, `down` after its end. */
  readonly state: 'active' | 'down';
  /** MTU of the local interface in bytes, IP header included; undefined if the system does not say. */
  readonly activeMtu: number | undefined;
  /** Bytes of a TCP segment into which FPDUs are fitted: as the policy says, or as the MTU allows. */
  readonly emss: number;
  /** Largest message in bytes (max_msg_sz). */
  readonly maxMessage: number;
}

/** The settings that either side needs to make a connection. */
export interface ConnectionContext {
  readonly device: Device;
  /** Delay of TCP's probes, or null for none. */
  readonly keepAlive: number | null;
  readonly policy: ConnectionPolicy;
  readonly census: ConnectionStats;
}

/**
 * A connection. Its events go to one handler; which calls are allowed depends on its state.
 */
export abstract class CmConnection {
  // A LinkHandler to its link, a QpController to its queue pair.
  /** The side of the connection that this object is. */
  abstract readonly role: 'active' | 'passive';
  /** @internal A state of ACTIVE_TABLE or PASSIVE_TABLE. */
  abstract readonly state: ActiveState | PassiveState;
  /** The program's own value, as the context of an rdma_cm_id; the stack does not use it. */
  context: unknown = undefined;
  /** @internal That of the program's call that connects or listens: its events are handled there. */
  readonly asyncContext: AsyncContext = captureContext('IWARP_CONNECTION');
  /** @internal */
  protected readonly shared: ConnectionContext;
  /** @internal */
  link: StreamLink | null = null;
  /** @internal */
  protected qpInUse: QueuePair | null = null;
  #handler: ((event: CmEvent) => void) | null = null;
  /** Events raised before there was a handler. */
  #waiting: CmEvent[] | null = null;
  #parameters: ConnectionParameters | undefined;
  #negotiated: Negotiated | undefined;
  #terminate: TerminateInfo | undefined;
  /** The connection is to hold the process: `unref` has not been called. */
  #held = true;

  /** @internal Made by {@link ConnectionManager.connect} and by a listener. */
  constructor(context: ConnectionContext) {
    this.shared = context;
  }

  /** The queue pair that the connection carries; null before `accept`. */
  get qp(): QueuePair | null {
    return this.qpInUse;
  }

  /** Results of start-up; undefined before `established`. */
  get negotiated(): Negotiated | undefined {
    return this.#negotiated;
  }

  /** The peer's start-up parameters, once its frame has arrived. */
  get parameters(): ConnectionParameters | undefined {
    return this.#parameters;
  }

  /** Our end of the TCP connection; undefined while there is none. */
  get localAddress(): PortAddress | undefined {
    return this.link?.localAddress;
  }

  /** The peer's end of the TCP connection; undefined while there is none. */
  get remoteAddress(): PortAddress | undefined {
    return this.link?.remoteAddress;
  }

  /** Results of the TLS handshake with the peer; undefined without TLS, and before the handshake. */
  get tls(): TlsInfo | undefined {
    return this.link?.tls;
  }

  /**
   * MTU and state of the local interface (ibv_query_port); undefined while there is no TCP connection.
   */
  queryPort(): PortAttributes | undefined {
    const { link, shared } = this;
    if (link?.opened !== true || link.localAddress === undefined) return undefined;
    const { localAddress, mtu } = link;
    return {
      state: this.finished ? 'down' : 'active',
      activeMtu: mtu,
      emss: resolveEmss(shared.policy, { localAddress, mtu }),
      maxMessage: shared.device.limits.maxMessage,
    };
  }

  /** True after the last event has been raised. */
  get finished(): boolean {
    return this.state === 'ended' || this.state === 'expired';
  }

  get #established(): boolean {
    return this.state === 'established' || this.state === 'closing';
  }

  /** Set the one event handler. Events raised before that are kept for it. */
  setHandler(handler: (event: CmEvent) => void): void {
    checkFunction('handler', handler);
    this.#handler = handler;
    const waiting = this.#waiting;
    this.#waiting = null;
    if (waiting !== null) for (const event of waiting) this.#deliver(event);
  }

  /**
   * Close in order: posted work is finished first, then FIN (rdma_disconnect). Nothing happens if the
   * connection is gone.
   */
  disconnect(): void {
    this.close();
  }

  /** Drop the connection with a reset; outstanding work is flushed. */
  abort(): void {
    if (this.link?.opened === true) this.link.abort();
    else this.cancel();
  }

  /** Keep the process alive while the connection is open, as it does unless {@link unref} has been called. */
  ref(): void {
    this.#setRef(true);
  }

  /**
   * Let the process end although the connection is open, as `unref` of `net.Socket` does. While it is being
   * made, it keeps the process alive all the same.
   */
  unref(): void {
    this.#setRef(false);
  }

  /**
   * Let TCP probe the peer after `delay` ms without bytes (0: as the system is set), or stop that. False if
   * the transport cannot, or the connection has not been made.
   */
  setKeepAlive(on: boolean, delay: number): boolean {
    checkBoolean('on', on);
    checkInteger('delay', delay, 0, MAX_KEEP_ALIVE_DELAY);
    return this.link?.opened === true && this.link.setKeepAlive(on, delay);
  }

  #setRef(on: boolean): void {
    this.#held = on;
    if (this.link?.opened === true && !BEING_MADE.has(this.state)) this.link.setRef(on);
  }

  /**
   * @internal A step has led on from `before`. From the end of start-up, good or bad, the connection holds
   * the process as the program wants.
   */
  protected ledFrom(before: ActiveState | PassiveState): void {
    if (this.#held || !BEING_MADE.has(before) || BEING_MADE.has(this.state) || this.finished) return;
    if (this.link?.opened === true) this.link.setRef(false);
  }

  // -------------------------------------------------------------------------------------------- QpController

  /** @internal There is something to send. */
  kick(requests: number): void {
    this.link?.kick(requests);
  }

  /** The same as {@link disconnect}, for the queue pair. */
  close(): void {
    const { link } = this;
    if (link?.opened !== true) {
      this.cancel();
      return;
    }
    link.close();
    if (link.offloaded) this.#anticipate('llp-close');
  }

  /**
   * End the stream with a Terminate of this code, packed as `layer << 12 | type << 8 | code` (`TERM` of
   * `iwarp/wire`). Does nothing without a connection.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  terminate(code: number): void {
    checkTerminateCode(code);
    const { link } = this;
    if (link?.opened !== true) return;
    link.terminate(code);
    if (link.offloaded) this.#anticipate('terminate');
  }

  /** A queue pair whose connection has ended may have another one. */
  #anticipate(input: 'llp-close' | 'terminate'): void {
    if (!this.finished) this.qpInUse?.anticipate(input);
  }

  /** Reads and atomics that may be outstanding at the peer; 0 without a connection. */
  get ord(): number {
    return this.link?.ord ?? 0;
  }

  /** @internal For {@link QueuePair.modify}, which checks it. */
  setOrd(ord: number): void {
    this.link?.setOrd(ord);
  }

  /** Counters since the connection began; all zero before there is a TCP connection. */
  counters(): StreamCounters {
    return this.link?.opened === true ? this.link.counters() : noCounters();
  }

  // --------------------------------------------------------------------------------------------- LinkHandler

  /** @internal */
  opened(): void {
    this.begin();
  }

  /** @internal There is a TCP connection. */
  protected begin(): void {
    this.shared.census.begin(this);
    const { keepAlive } = this.shared;
    if (keepAlive !== null) this.link!.setKeepAlive(true, keepAlive);
  }

  /** @internal */
  failed(error: Error): void {
    if (this.finished) return; // cancelled while the failure was on its way
    this.qpInUse?.detach();
    this.step('startup-failed');
    this.raise(connectFailure(error));
    this.step('ended');
    this.raise({ type: 'disconnected', cause: 'startup-failed', error, terminate: undefined });
  }

  // ------------------------------------------------------------------------------------------ for subclasses

  /** @internal Give up before there is a port. */
  protected abstract cancel(): void;

  /** @internal Take an input that the tables of both sides know. */
  protected abstract step(input: ActiveInput & PassiveInput): void;

  /** @internal */
  protected raise(event: CmEvent): void {
    this.shared.census.note(this, event);
    if (this.#handler === null) (this.#waiting ??= []).push(event);
    else this.#deliver(event);
  }

  /**
   * The user's code runs after the present stack, so that an error which it throws cannot leave the stack
   * half done.
   */
  #deliver(event: CmEvent): void {
    this.shared.device.defer(() => {
      this.heard(event);
      this.asyncContext.runInAsyncScope(this.#handler!, undefined, event);
    });
  }

  /** @internal The handler of the program is about to be called with this event. */
  protected heard(_event: CmEvent): void {
    // Only the active side has to know.
  }

  /** @internal */
  protected requestArrived(_request: StartupRequest): void {
    // Only the passive side gets requests.
  }

  /** @internal An accepting Reply waits for the program. */
  protected responseArrived(): void {
    // Only the active side gets responses.
  }

  /** @internal The peer has rejected the request. */
  protected requestRejected(): void {
    // Only the active side is rejected.
  }

  /** @internal Nothing has come from a server that was spoken to without TLS. */
  get mayWantTls(): boolean {
    return false;
  }

  /** @internal Start-up has failed over a TCP connection. */
  protected startupFailed(reason: StartupFailure): void {
    this.step('startup-failed');
    this.raise(startupFailure(reason, this.role, this.mayWantTls));
  }

  /** @internal Start-up is over. */
  protected established(): void {
    // Only a listener counts.
  }

  /** @internal The stream has ended. */
  protected streamEnded(): void {
    if (!this.#established) this.qpInUse?.detach();
    this.step('ended');
  }

  /** @internal */
  protected setParameters(
    privateData: Uint8Array,
    peerIrd: number | undefined,
    peerOrd: number | undefined,
    revision: number,
  ): ConnectionParameters {
    const { limits } = this.shared.device;
    this.#parameters = lastParameters.of({
      privateData,
      // rdma_get_cm_event(3): each matches the other field of the remote node, so that both can be mirrored.
      responderResources: known(peerOrd, limits.maxQpRdAtom),
      initiatorDepth: known(peerIrd, limits.maxQpInitRdAtom),
      revision,
    });
    return this.#parameters;
  }

  /** Start-up has come to an agreement, which the program has still to confirm or which is in force. */
  #agreed({
    type,
    negotiated,
    privateData,
  }: Extract<StreamEvent, { type: 'response' | 'established' }>): void {
    const { peerIrd, peerOrd } = negotiated;
    if (type === 'response') {
      const parameters = this.setParameters(privateData, peerIrd, peerOrd, negotiated.revision);
      this.responseArrived();
      this.raise({ type: 'connect-response', parameters });
      return;
    }
    this.step('establish');
    this.established();
    this.#negotiated = negotiated;
    const revision = this.#parameters?.revision ?? negotiated.revision;
    const parameters = this.setParameters(privateData, peerIrd, peerOrd, revision);
    this.raise({ type: 'established', negotiated, parameters });
  }

  /** @internal */
  event(event: StreamEvent): void {
    if (event.type !== 'closed' || this.#established) this.qpInUse?.handleStreamEvent(event);
    switch (event.type) {
      case 'request': {
        const { request } = event;
        this.setParameters(request.privateData, request.peerIrd, request.peerOrd, request.revision);
        this.requestArrived(request);
        break;
      }
      case 'response':
      case 'established':
        this.#agreed(event);
        break;
      case 'rejected':
        this.requestRejected();
        this.raise({
          type: 'rejected',
          parameters: this.setParameters(event.privateData, event.peerIrd, event.peerOrd, event.revision),
          markersAsked: event.markersAsked,
          reason: undefined,
          status: 'ECONNREFUSED',
          error: undefined,
        });
        break;
      case 'startup-failed':
        this.startupFailed(event.reason);
        break;
      case 'terminate':
        this.#terminate = event.terminate;
        this.step('close');
        this.raise({ type: 'terminate', terminate: event.terminate });
        break;
      case 'closing':
        this.step('close');
        this.raise({ type: 'closing', by: event.by });
        break;
      case 'closed':
        this.streamEnded();
        this.raise(this.#disconnected(event));
    }
  }

  #disconnected({ cause, error }: Extract<StreamEvent, { type: 'closed' }>): CmEvent {
    return { type: 'disconnected', cause, error, terminate: this.#terminate };
  }
}

/**
 * @internal A queue pair of this device: with another one's the stream would be judged by STags and
 * protection domains that are not its own.
 */
export function checkQp(name: string, qp: unknown, device: Device): QueuePair {
  if (!(qp instanceof QueuePair))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a QueuePair, got ${show(qp)}`);
  if (qp.pd.device !== device) throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another device`);
  return qp;
}
