/**
 * The interface between the connection manager and what drives streams. `inline/` drives them in the calling
 * thread over a transport; `proxy/` passes the calls to a worker thread, where the same inline engine drives
 * them.
 *
 * A link is one stream with its port. Calls on it are inputs of the stream, in the order of the calls. Its
 * outputs are stream events, in order, with `closed` as the last one.
 */
import type { DepthRequest } from '../mpa/negotiate.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import type { StreamCounters, StreamEvent } from '../stream/types.ts';
import type { ListenLimits, ListenRefusal } from './listener-limits.ts';
import type { ConnectTarget, ListenReady, ListenTarget, Port, PortAddress } from '../transport/port.ts';
import type { TlsInfo } from '../transport/tls-options.ts';

/** Receives the outputs of a link: the connection above it. */
export interface LinkHandler {
  /** Active side: the TCP connection is established and start-up begins. */
  opened(): void;
  /** Active side: no TCP connection could be made. Nothing follows. */
  failed(error: Error): void;
  event(event: StreamEvent): void;
}

/** One stream with its port. */
export interface StreamLink {
  /**
   * False while the TCP connection of the active side is being made. Until then only `cancel` and `kick` have
   * an effect.
   */
  readonly opened: boolean;
  readonly localAddress: PortAddress | undefined;
  readonly remoteAddress: PortAddress | undefined;
  /** MTU of the local interface, if it is known. */
  readonly mtu: number | undefined;
  /** Results of the TLS handshake with the peer; undefined without TLS. */
  readonly tls: TlsInfo | undefined;
  /** A start-up frame waits for the program's decision. */
  readonly deciding: boolean;
  /**
   * Another thread takes the work off the queues: posted requests may not be flushed by this one before
   * the stream is closed.
   */
  readonly offloaded: boolean;
  readonly ord: number;
  setOrd(ord: number): void;
  /** Give up before the link has opened; its handler is not called again. False if the link has opened. */
  cancel(): boolean;
  /** @throws ERR_NOT_SUPPORTED for an endpoint whose queues this link's engine cannot serve */
  checkEndpoint(endpoint: StreamEndpoint): void;
  accept(endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthRequest): void;
  reject(privateData: Uint8Array): void;
  /** Continue after a `response` event; with a code, send that Terminate as the first FPDU (ENH-046). */
  confirm(code?: number): void;
  close(): void;
  terminate(code: number): void;
  abort(): void;
  /** Passive side, in start-up: a newer connection needs its slot. It is reset, with `startup-failed`. */
  displace(): void;
  /** Work was posted, with `requests` Reads and atomics among it. */
  kick(requests: number): void;
  /** Set whether the open connection keeps the process alive. */
  setRef(on: boolean): void;
  /** Let the transport probe an idle connection. False if it cannot. */
  setKeepAlive(on: boolean, delay: number): boolean;
  counters(): StreamCounters;
}

/** Arguments of {@link Engine.connect}. */
export interface ConnectRequest {
  readonly target: ConnectTarget;
  readonly policy: ConnectionPolicy;
  /** Hold an accepting Reply for `confirm`. */
  readonly confirm: boolean;
  readonly endpoint: StreamEndpoint;
  readonly privateData: Uint8Array;
  readonly wishes: DepthRequest;
}

/** Arguments of {@link Engine.listen}. */
export interface ListenRequest {
  readonly target: ListenTarget;
  readonly policy: ConnectionPolicy;
  /** How many connections the listener may have (SEC-033). */
  readonly limits: ListenLimits;
}

/** Receives the outputs of a listener. */
export interface ListenHandler {
  /**
   * Make room for a connection from this address; null if there is some, else why it has to be refused.
   * `closed`: nothing is accepted here any longer.
   */
  refusal(remoteAddress: PortAddress): ListenRefusal | 'closed' | null;
  /** A connection was refused because of that. */
  turnedAway(reason: ListenRefusal | 'closed', remoteAddress?: PortAddress): void;
  /** A connection could not be accepted by the system. */
  acceptFailed(error: Error): void;
  /** A TCP connection has arrived. */
  incoming(link: StreamLink): LinkHandler;
}

/** Drives streams: makes a link for each connection. */
export interface Engine {
  /**
   * Begin an outbound connection. `handler` gets all that happens on it.
   *
   * @ignore
   */
  connect(request: ConnectRequest, handler: LinkHandler): StreamLink;
  /**
   * `ready` is called once, later, with the listener or an error.
   *
   * @ignore
   */
  listen(request: ListenRequest, handler: ListenHandler, ready: ListenReady): void;
  /**
   * Take an established byte stream as a connection that has come to a listener. Where the streams run in
   * another thread, the bytes are handed on to it.
   *
   * @throws ERR_ENGINE_FAILED, ERR_DESTROYED if that thread has ended
   *
   * @ignore
   */
  take(port: Port, policy: ConnectionPolicy, handler: ListenHandler): void;
}
