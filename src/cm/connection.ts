/**
 * One connection of the connection manager, either side: rdma_connect, rdma_accept, rdma_reject, rdma_disconnect.
 */
import { checkBytes, checkInteger, IwarpError, show } from '../base/errors.ts';
import type { Scheduler } from '../base/clock.ts';
import { DEPTH_NOT_NEGOTIATED, type StartupFrame } from '../mpa/wire.ts';
import type { ConnectionPolicy, Negotiated } from '../mpa/policy.ts';
import { RdmaStream } from '../rdmap/stream.ts';
import type { StreamCounters, StreamEvent, StreamResources } from '../rdmap/stream-types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { Port, PortAddress } from '../transport/port.ts';
import { QueuePair, type QpController } from '../verbs/qp.ts';
import type { Census } from './census.ts';
import { StreamDriver } from './driver.ts';
import type { CmEvent, ConnectionParameters } from './events.ts';

const NO_DATA = new Uint8Array(0);

/** Connection parameters of the side that connects or accepts (rdma_conn_param). */
export interface ConnParam {
  /** Up to 512 octets on revision 1, 508 on revision 2 (ENH-004). */
  readonly privateData?: ArrayBufferView;
  /** Reads the peer may have outstanding here (IRD). */
  readonly responderResources?: number;
  /** Reads we may have outstanding there (ORD). */
  readonly initiatorDepth?: number;
}

/** @internal Check private data against the room in the frame it goes into (MPA-018, ENH-004). */
export function checkPrivateData(name: string, data: ArrayBufferView | undefined, max: number): Uint8Array {
  if (data === undefined) return NO_DATA;
  const bytes = checkBytes(name, data);
  if (bytes.length > max) throw new IwarpError('ERR_TOO_LARGE', `${name} has ${bytes.length} octets, above the limit of ${max}`);
  return bytes.slice();
}

/** @internal */
export function checkDepth(name: string, depth: number | undefined, limit: number): number | undefined {
  return depth === undefined ? undefined : checkInteger(name, depth, 0, Math.min(limit, DEPTH_NOT_NEGOTIATED - 1));
}

/** Octets of TCP header with the timestamp option, and of the IP header before it. */
const TCP_OCTETS = 32;
const IPV4_OCTETS = 20;
const IPV6_OCTETS = 40;
/** RFC 5044's own case, for where the interface does not tell. */
const ETHERNET_MTU = 1_500;
/** Over loopback a segment carries nearly 64 KiB whatever the headers. */
const LOOPBACK_EMSS = 65_483;
/** An EMSS fits in 16 bits, and below this FPDUs have their smallest size all the same (MPA-080). */
const MAX_EMSS = 65_535;
const MIN_EMSS = 128;

/**
 * TCP segment payload to fit FPDUs into (MPA-081): what the policy says, else what the interface's MTU leaves. Hardware is quick only with
 * one FPDU a segment.
 */
export function resolveEmss(policy: ConnectionPolicy, port: Pick<Port, 'localAddress' | 'mtu'>): number {
  if (policy.emss !== 'auto') return policy.emss;
  const { address, family } = port.localAddress;
  const mapped = address.startsWith('::ffff:');
  if (address === '::1' || /^(::ffff:)?127\./.test(address)) return LOOPBACK_EMSS;
  const ip = family === 'IPv6' && !mapped ? IPV6_OCTETS : IPV4_OCTETS;
  return Math.max(MIN_EMSS, Math.min(MAX_EMSS, (port.mtu ?? ETHERNET_MTU) - ip - TCP_OCTETS));
}

/** What both sides need to make a connection. */
export interface ConnectionContext {
  readonly scheduler: Scheduler;
  readonly resources: StreamResources;
  readonly policy: ConnectionPolicy;
  readonly defer: (task: () => void) => void;
  readonly census: Census;
}

/**
 * A connection: events to one handler, and the calls that the state allows.
 */
export abstract class CmConnection implements QpController {
  /** Which side of the connection this is. */
  abstract readonly role: 'active' | 'passive';
  /** @internal */
  protected readonly context: ConnectionContext;
  /** @internal */
  protected driver: StreamDriver | null = null;
  /** @internal */
  protected stream: RdmaStream | null = null;
  /** @internal */
  protected qpInUse: QueuePair | null = null;
  #handler: ((event: CmEvent) => void) | null = null;
  #waiting: CmEvent[] = [];
  #parameters: ConnectionParameters | undefined;
  #negotiated: Negotiated | undefined;
  #terminate: TerminateInfo | undefined;
  #established = false;
  #finished = false;

  /** @internal Made by {@link ConnectionManager.connect} and by a listener. */
  constructor(context: ConnectionContext) {
    this.context = context;
  }

  /** The queue pair that the connection carries; null before `accept`. */
  get qp(): QueuePair | null {
    return this.qpInUse;
  }

  /** What start-up settled; undefined before `established`. */
  get negotiated(): Negotiated | undefined {
    return this.#negotiated;
  }

  /** The peer's start-up parameters, once its frame has come. */
  get parameters(): ConnectionParameters | undefined {
    return this.#parameters;
  }

  /** Our end of the TCP connection; undefined while there is none. */
  get localAddress(): PortAddress | undefined {
    return this.driver?.port.localAddress;
  }

  /** The peer's end of the TCP connection; undefined while there is none. */
  get remoteAddress(): PortAddress | undefined {
    return this.driver?.port.remoteAddress;
  }

  /** True after the last event has been raised. */
  get finished(): boolean {
    return this.#finished;
  }

  /** The one event handler. Events raised before it is set wait for it. */
  setHandler(handler: (event: CmEvent) => void): void {
    if (typeof handler !== 'function') throw new IwarpError('ERR_INVALID_ARGUMENT', `handler must be a function, got ${show(handler)}`);
    this.#handler = handler;
    for (const event of this.#waiting.splice(0)) this.#deliver(event);
  }

  /** Close in order: posted work is finished first, then FIN (rdma_disconnect). Nothing happens if the connection is gone. */
  disconnect(): void {
    this.close();
  }

  /** Drop the connection with a reset; outstanding work is flushed. */
  abort(): void {
    if (this.driver === null) {
      this.cancel();
      return;
    }
    this.stream!.abort(this.driver.now());
    this.driver.kick();
  }

  // ------------------------------------------------------------------------------------------------- QpController

  /** @internal There is something to send. */
  kick(): void {
    this.driver?.kick();
  }

  /** The same as {@link disconnect}, under the name that a queue pair calls. */
  close(): void {
    if (this.driver === null) {
      this.cancel();
      return;
    }
    this.stream!.close(this.driver.now());
    // The state change is the queue pair's at once; the wire follows.
    this.driver.drain();
  }

  /**
   * End the stream with a Terminate of this code, packed as `layer << 12 | type << 8 | code` (`TERM` of `iwarp/wire`). Nothing happens
   * without a connection.
   */
  terminate(code: number): void {
    if (this.driver === null) return;
    this.stream!.terminate(this.driver.now(), code);
    this.driver.drain();
  }

  /** Reads and atomics that may be outstanding at the peer; 0 without a connection. */
  get ord(): number {
    return this.stream?.ord ?? 0;
  }

  /** @internal For {@link QueuePair.modify}, which checks it. */
  setOrd(ord: number): void {
    if (this.stream !== null) this.stream.ord = ord;
  }

  /** Counts since the connection began; only while there is a TCP connection. */
  counters(): StreamCounters {
    return this.stream!.counters();
  }

  /** @internal Test hook: MSNs near their wrap (DDP-015). */
  presetMsn(qn: number, msn: number): void {
    this.stream!.presetMsn(qn, msn);
  }

  // ------------------------------------------------------------------------------------------------- for subclasses

  /** @internal Give up before there is a port. */
  protected abstract cancel(): void;

  /** @internal */
  protected run(role: 'initiator' | 'responder', port: Port, confirm: boolean): StreamDriver {
    this.stream = new RdmaStream({
      role,
      policy: this.context.policy,
      emss: resolveEmss(this.context.policy, port),
      resources: this.context.resources,
      confirm,
    });
    this.driver = new StreamDriver(this.stream, port, this.context.scheduler, (event) => this.#handleStream(event));
    this.context.census.begin(this);
    return this.driver;
  }

  /** @internal */
  protected raise(event: CmEvent): void {
    if (this.#finished) return;
    if (event.type === 'disconnected' || event.type === 'unreachable') this.#finished = true;
    this.context.census.note(this, event);
    if (this.#handler === null) this.#waiting.push(event);
    else this.#deliver(event);
  }

  /** The user's code runs behind the present stack, so that what it throws cannot leave the stack half done. */
  #deliver(event: CmEvent): void {
    this.context.defer(() => this.#handler!(event));
  }

  /** @internal */
  protected requestArrived(_request: StartupFrame): void {
    // Only the passive side gets requests.
  }

  /** @internal The stream has ended before the connection was established. */
  protected neverEstablished(): void {
    this.qpInUse?.detach();
  }

  /** @internal */
  protected setParameters(privateData: Uint8Array, ird: number | undefined, ord: number | undefined, revision: number): ConnectionParameters {
    const known = (depth: number | undefined): number | undefined => (depth === DEPTH_NOT_NEGOTIATED ? undefined : depth);
    this.#parameters = { privateData, responderResources: known(ird), initiatorDepth: known(ord), revision };
    return this.#parameters;
  }

  #handleStream(event: StreamEvent): void {
    if (event.type !== 'closed' || this.#established) this.qpInUse?.handleStreamEvent(event);
    switch (event.type) {
      case 'request': {
        const { request } = event;
        const depths = request.enhanced ?? request.legacyDepths;
        this.setParameters(request.privateData, depths?.ird, depths?.ord, request.revision);
        this.requestArrived(request);
        break;
      }
      case 'response': {
        const { negotiated } = event;
        const parameters = this.setParameters(event.privateData, negotiated.peerIrd, negotiated.peerOrd, negotiated.revision);
        this.raise({ type: 'connect-response', parameters });
        break;
      }
      case 'established': {
        const { negotiated } = event;
        this.#established = true;
        this.#negotiated = negotiated;
        const parameters = this.setParameters(event.privateData, negotiated.peerIrd, negotiated.peerOrd, this.#parameters?.revision ?? negotiated.revision);
        this.raise({ type: 'established', negotiated, parameters });
        break;
      }
      case 'rejected':
        this.raise({
          type: 'rejected',
          parameters: this.setParameters(event.privateData, event.peerIrd, event.peerOrd, event.revision),
          markersAsked: event.markersAsked,
        });
        break;
      case 'startup-failed':
        this.raise({ type: 'connect-error', reason: event.reason });
        break;
      case 'terminate':
        this.#terminate = event.terminate;
        this.raise({ type: 'terminate', terminate: event.terminate });
        break;
      case 'closing':
        this.raise({ type: 'closing', by: event.by });
        break;
      case 'closed':
        if (!this.#established) this.neverEstablished();
        this.raise({ type: 'disconnected', cause: event.cause, error: event.error, terminate: this.#terminate });
    }
  }
}

/** @internal */
export function checkQp(name: string, qp: unknown): QueuePair {
  if (!(qp instanceof QueuePair)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a QueuePair, got ${show(qp)}`);
  return qp;
}
