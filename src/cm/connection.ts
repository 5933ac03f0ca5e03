/**
 * One connection of the connection manager, either side: rdma_connect, rdma_accept, rdma_reject, rdma_disconnect.
 */
import { NO_BYTES } from '../base/copy.ts';
import { checkBytes, checkFunction, checkInteger, IwarpError, show, type Names } from '../base/errors.ts';
import { TERM } from '../base/terminate-codes.ts';
import { LastEqual } from '../base/last-equal.ts';
import { DEPTH_NOT_NEGOTIATED, type StartupFrame } from '../mpa/wire.ts';
import type { ConnectionPolicy, Negotiated } from '../mpa/policy.ts';
import { noCounters } from '../rdmap/counters.ts';
import type { StreamCounters, StreamEvent } from '../rdmap/stream-types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { PortAddress } from '../transport/port.ts';
import type { Device } from '../verbs/device.ts';
import { QueuePair } from '../verbs/qp.ts';
import type { Census } from './census.ts';
import type { CmEvent, ConnectionParameters } from './events.ts';
import type { StreamLink } from './link.ts';

/** Peers that say the same without private data of their own share a record. */
const lastParameters = new LastEqual<ConnectionParameters>();

/** Parameters for connecting or accepting (rdma_conn_param). */
export interface ConnParam {
  /** Up to 512 octets on revision 1, 508 on revision 2 (ENH-004). */
  readonly privateData?: ArrayBufferView | undefined;
  /** Reads that the peer may have outstanding here (IRD). */
  readonly responderResources?: number | undefined;
  /** Reads that we may have outstanding at the peer (ORD). */
  readonly initiatorDepth?: number | undefined;
}

/** @internal */
export const PARAM_NAMES: Names<ConnParam> = { privateData: true, responderResources: true, initiatorDepth: true };

/** @internal Check private data against the room in the frame it goes into (MPA-018, ENH-004). */
export function checkPrivateData(name: string, data: ArrayBufferView | undefined, max: number): Uint8Array {
  if (data === undefined) return NO_BYTES;
  const bytes = checkBytes(name, data);
  if (bytes.length > max) throw new IwarpError('ERR_TOO_LARGE', `${name} has ${bytes.length} octets, above the limit of ${max}`);
  return new Uint8Array(bytes); // a copy: `slice` of a Buffer is a view
}

/** @internal */
export function checkDepth(name: string, depth: number | undefined, limit: number): number | undefined {
  return depth === undefined ? undefined : checkInteger(name, depth, 0, Math.min(limit, DEPTH_NOT_NEGOTIATED - 1));
}

/** @internal Layer, type and code of a Terminate fill sixteen bits; the one name of TERM that has more stands for 0. */
export function checkTerminateCode(code: number): void {
  if (code !== TERM.LOCAL_CATASTROPHIC) checkInteger('code', code, 0, 0xffff);
}

function known(depth: number | undefined): number | undefined {
  return depth === DEPTH_NOT_NEGOTIATED ? undefined : depth;
}

/** What both sides need to make a connection. */
export interface ConnectionContext {
  readonly device: Device;
  readonly policy: ConnectionPolicy;
  readonly census: Census;
}

/**
 * A connection. Its events go to one handler; which calls are allowed depends on its state.
 */
export abstract class CmConnection {
  // A LinkHandler to its link, a QpController to its queue pair.
  /** Which side of the connection this is. */
  abstract readonly role: 'active' | 'passive';
  /** @internal */
  protected readonly context: ConnectionContext;
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
  #established = false;
  #finished = false;
  /** It keeps the process alive. */
  #held = true;

  /** @internal Made by {@link ConnectionManager.connect} and by a listener. */
  constructor(context: ConnectionContext) {
    this.context = context;
  }

  /** The queue pair that the connection carries; null before `accept`. */
  get qp(): QueuePair | null {
    return this.qpInUse;
  }

  /** What start-up negotiated; undefined before `established`. */
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

  /** True after the last event has been raised. */
  get finished(): boolean {
    return this.#finished;
  }

  /** Set the one event handler. Events raised before that are kept for it. */
  setHandler(handler: (event: CmEvent) => void): void {
    checkFunction('handler', handler);
    this.#handler = handler;
    const waiting = this.#waiting;
    this.#waiting = null;
    if (waiting !== null) for (const event of waiting) this.#deliver(event);
  }

  /** Close in order: posted work is finished first, then FIN (rdma_disconnect). Nothing happens if the connection is gone. */
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

  /** Let the process end although the connection is open, as `unref` of `net.Socket` does. While it is being made, it keeps the process alive all the same. */
  unref(): void {
    this.#setRef(false);
  }

  #setRef(on: boolean): void {
    this.#held = on;
    if (this.link?.opened === true) this.link.setRef(on);
  }

  // ------------------------------------------------------------------------------------------------- QpController

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
    if (link.elsewhere) this.#anticipate('llp-close');
  }

  /**
   * End the stream with a Terminate of this code, packed as `layer << 12 | type << 8 | code` (`TERM` of `iwarp/wire`). Does nothing
   * without a connection.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  terminate(code: number): void {
    checkTerminateCode(code);
    const { link } = this;
    if (link?.opened !== true) return;
    link.terminate(code);
    if (link.elsewhere) this.#anticipate('terminate');
  }

  /** A queue pair whose connection has ended may have another one. */
  #anticipate(input: 'llp-close' | 'terminate'): void {
    if (!this.#finished) this.qpInUse?.anticipate(input);
  }

  /** Reads and atomics that may be outstanding at the peer; 0 without a connection. */
  get ord(): number {
    return this.link?.ord ?? 0;
  }

  /** @internal For {@link QueuePair.modify}, which checks it. */
  setOrd(ord: number): void {
    this.link?.setOrd(ord);
  }

  /** @internal */
  get elsewhere(): boolean {
    return this.link?.elsewhere ?? false;
  }

  /** Counters since the connection began; all zero before there is a TCP connection. */
  counters(): StreamCounters {
    return this.link?.opened === true ? this.link.counters() : noCounters();
  }

  /** @internal Test hook: MSNs near their wrap (DDP-015). */
  presetMsn(qn: number, msn: number): void {
    this.link!.presetMsn(qn, msn);
  }

  // -------------------------------------------------------------------------------------------------- LinkHandler

  /** @internal */
  opened(): void {
    this.context.census.begin(this);
    if (!this.#held) this.link!.setRef(false);
  }

  /** @internal */
  failed(error: Error): void {
    this.qpInUse?.detach();
    this.raise({ type: 'unreachable', error });
  }

  // ------------------------------------------------------------------------------------------------- for subclasses

  /** @internal Give up before there is a port. */
  protected abstract cancel(): void;

  /** @internal */
  protected raise(event: CmEvent): void {
    if (this.#finished) return;
    if (event.type === 'disconnected' || event.type === 'unreachable') this.#finished = true;
    this.context.census.note(this, event);
    if (this.#handler === null) (this.#waiting ??= []).push(event);
    else this.#deliver(event);
  }

  /** The user's code runs after the present stack, so that what it throws cannot leave the stack half done. */
  #deliver(event: CmEvent): void {
    this.context.device.defer(() => {
      this.heard(event);
      this.#handler!(event);
    });
  }

  /** @internal The program hears of this now. */
  protected heard(_event: CmEvent): void {
    // Only the active side has something to decide.
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
    this.#parameters = lastParameters.of({ privateData, responderResources: known(ird), initiatorDepth: known(ord), revision });
    return this.#parameters;
  }

  /** @internal */
  event(event: StreamEvent): void {
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

/** @internal A queue pair of this device: with another one's the stream would be judged by STags and protection domains that are not its own. */
export function checkQp(name: string, qp: unknown, device: Device): QueuePair {
  if (!(qp instanceof QueuePair)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a QueuePair, got ${show(qp)}`);
  if (qp.pd.device !== device) throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another device`);
  return qp;
}
