/**
 * Where streams are worked off: the seam between the connection manager and what drives a stream. `ThreadProgress` drives it in the thread
 * of the caller, over a transport; the room `engine/` has one that drives it in a worker thread, over shared memory.
 *
 * A link is one stream with its port. Calls on it are inputs of the stream, in the order of the calls; what it has to say comes as stream
 * events, in order, `closed` last.
 */
import type { Scheduler } from '../base/clock.ts';
import { NO_BYTES } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { LastEqual } from '../base/last-equal.ts';
import type { DepthWishes } from '../mpa/negotiate.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import { RdmaStream } from '../rdmap/stream.ts';
import type { StreamConfig, StreamCounters, StreamEndpoint, StreamEvent, StreamResources } from '../rdmap/stream-types.ts';
import type { CancelConnect, ConnectTarget, ListenReady, ListenTarget, Port, PortAddress, Transport } from '../transport/port.ts';
import { StreamDriver } from './driver.ts';

/** What a link tells its connection. */
export interface LinkHandler {
  /** Active side: TCP is there, start-up begins. */
  opened(): void;
  /** Active side: no TCP connection could be made. Nothing follows. */
  failed(error: Error): void;
  event(event: StreamEvent): void;
}

/** One stream with its port. */
export interface StreamLink {
  /** False while the TCP connection of the active side is being made: then only `cancel` and `kick` mean anything. */
  readonly opened: boolean;
  readonly localAddress: PortAddress | undefined;
  readonly remoteAddress: PortAddress | undefined;
  /** A start-up frame waits for the ULP's word. */
  readonly deciding: boolean;
  /** Another thread takes the work off the queues: what is posted there may not be flushed by this one before the stream is closed. */
  readonly elsewhere: boolean;
  readonly ord: number;
  setOrd(ord: number): void;
  /** Give up before the link has opened; its handler hears nothing more. False if it is too late for that. */
  cancel(): boolean;
  /** @throws ERR_NOT_SUPPORTED for an endpoint that cannot be worked off where this link is */
  checkEndpoint(endpoint: StreamEndpoint): void;
  accept(endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthWishes): void;
  reject(privateData: Uint8Array): void;
  /** Go on after a `response` event; with a code only to say that Terminate as the first FPDU (ENH-046). */
  confirm(code?: number): void;
  close(): void;
  terminate(code: number): void;
  abort(): void;
  /** Something was posted, with so many Reads and atomics among it. */
  kick(requests: number): void;
  /** Whether the connection, once it is open, keeps the process alive. */
  setRef(on: boolean): void;
  counters(): StreamCounters;
  presetMsn(qn: number, msn: number): void;
}

/** What the active side asks for. */
export interface ConnectRequest {
  readonly target: ConnectTarget;
  readonly policy: ConnectionPolicy;
  /** Hold an accepting Reply for `confirm`. */
  readonly confirm: boolean;
  readonly endpoint: StreamEndpoint;
  readonly privateData: Uint8Array;
  readonly wishes: DepthWishes;
}

/** What a listener asks for. */
export interface ListenRequest {
  readonly target: ListenTarget;
  readonly policy: ConnectionPolicy;
  /** Connections that may be in start-up or waiting for an answer at a time (SEC-033). */
  readonly maxPending: number;
}

/** What a listener hears. */
export interface ListenHandler {
  /** Whether a further connection would be one too many. */
  full(): boolean;
  /** One was turned away because of that. */
  turnedAway(remoteAddress?: PortAddress): void;
  /** A connection could not be accepted by the system. */
  acceptFailed(error: Error): void;
  /** A TCP connection has come. */
  incoming(link: StreamLink): LinkHandler;
}

/** Makes links. */
export interface Progress {
  connect(request: ConnectRequest, handler: LinkHandler): StreamLink;
  /** `ready` is called once, later, with the listener or an error. */
  listen(request: ListenRequest, handler: ListenHandler, ready: ListenReady): void;
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
function resolveEmss(policy: ConnectionPolicy, port: Pick<Port, 'localAddress' | 'mtu'>): number {
  if (policy.emss !== 'auto') return policy.emss;
  const { address, family } = port.localAddress;
  const mapped = address.startsWith('::ffff:');
  if (address === '::1' || /^(::ffff:)?127\./.test(address)) return LOOPBACK_EMSS;
  const ip = family === 'IPv6' && !mapped ? IPV6_OCTETS : IPV4_OCTETS;
  return Math.max(MIN_EMSS, Math.min(MAX_EMSS, (port.mtu ?? ETHERNET_MTU) - ip - TCP_OCTETS));
}

const NO_WISHES: DepthWishes = {};
const NOTHING = (): void => undefined;
/** Handler of a port that is turned away. */
const REFUSED = { onData: NOTHING, onEnd: NOTHING, onClose: NOTHING };

function errorOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new IwarpError('ERR_CONNECT', String(thrown));
}

/** Streams driven in the thread of the caller. */
export class ThreadProgress implements Progress {
  readonly #transport: Transport;
  readonly #scheduler: Scheduler;
  readonly #resources: StreamResources;
  readonly #configs: LastEqual<StreamConfig> = new LastEqual();

  constructor(transport: Transport, scheduler: Scheduler, resources: StreamResources) {
    this.#transport = transport;
    this.#scheduler = scheduler;
    this.#resources = resources;
  }

  connect(request: ConnectRequest, handler: LinkHandler): StreamLink {
    const link = new ThreadLink(this.#scheduler);
    link.connecting(this.#dial(request.target, (port, error) => {
      link.connecting(null);
      if (port === undefined) {
        handler.failed(error ?? new IwarpError('ERR_CONNECT', 'the transport has made no connection, and gives no reason'));
        return;
      }
      link.drive(this.#stream('initiator', request.policy, request.confirm, port), port);
      link.listener = handler;
      handler.opened();
      link.stream.start(link.now(), request.endpoint, request.privateData, request.wishes);
      link.begin();
    }));
    return link;
  }

  listen(request: ListenRequest, handler: ListenHandler, ready: ListenReady): void {
    const accept = (port: Port): void => {
      if (handler.full()) {
        handler.turnedAway(port.remoteAddress);
        port.attach(REFUSED);
        port.reset();
        return;
      }
      const link = new ThreadLink(this.#scheduler);
      // With its port first: whoever is told of the link asks it for its addresses.
      link.drive(this.#stream('responder', request.policy, false, port), port);
      link.listener = handler.incoming(link);
      link.stream.start(link.now(), null, NO_BYTES, NO_WISHES);
      link.begin();
    };
    try {
      this.#transport.listen(request.target, accept, ready, (error) => handler.acceptFailed(error));
    } catch (error) {
      this.#scheduler.defer(() => ready(undefined, errorOf(error)));
    }
  }

  /** A transport that throws cannot connect: it must not end what else goes on in this thread. */
  #dial(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
    try {
      return this.#transport.connect(target, done);
    } catch (error) {
      let state: 'pending' | 'cancelled' = 'pending';
      this.#scheduler.defer(() => {
        if (state === 'pending') done(undefined, errorOf(error));
      });
      return () => {
        state = 'cancelled';
      };
    }
  }

  #stream(role: 'initiator' | 'responder', policy: ConnectionPolicy, confirm: boolean, port: Port): RdmaStream {
    return new RdmaStream(this.#configs.of({ role, policy, emss: resolveEmss(policy, port), resources: this.#resources, confirm }));
  }
}

/** A stream and its driver in this thread: one object, for each idle connection has it. */
class ThreadLink extends StreamDriver implements StreamLink {
  #cancel: (() => void) | null = null;

  /** The attempt that `cancel` ends; null when it is over. */
  connecting(cancel: (() => void) | null): void {
    this.#cancel = cancel;
  }

  get elsewhere(): boolean {
    return false;
  }

  get opened(): boolean {
    return this.port !== null;
  }

  get localAddress(): PortAddress | undefined {
    return this.port?.localAddress;
  }

  get remoteAddress(): PortAddress | undefined {
    return this.port?.remoteAddress;
  }

  get deciding(): boolean {
    return this.opened && this.stream.state === 'deciding';
  }

  get ord(): number {
    return this.opened ? this.stream.ord : 0;
  }

  setOrd(ord: number): void {
    if (this.opened) this.stream.ord = ord;
  }

  cancel(): boolean {
    if (this.#cancel === null) return false;
    this.#cancel();
    this.#cancel = null;
    return true;
  }

  checkEndpoint(_endpoint: StreamEndpoint): void {
    // This thread takes them all.
  }

  accept(endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthWishes): void {
    this.stream.accept(this.now(), endpoint, privateData, wishes);
    this.drain();
  }

  reject(privateData: Uint8Array): void {
    this.stream.reject(this.now(), privateData);
    this.drain();
  }

  confirm(code?: number): void {
    const now = this.now();
    this.stream.confirm(now);
    if (code !== undefined) this.stream.terminate(now, code);
    this.drain();
  }

  close(): void {
    this.stream.close(this.now());
    // The state change is the queue pair's at once; the wire follows.
    this.drain();
  }

  terminate(code: number): void {
    this.stream.terminate(this.now(), code);
    this.drain();
  }

  abort(): void {
    this.stream.abort(this.now());
    this.kick(0);
  }

  setRef(on: boolean): void {
    this.port?.setRef?.(on);
  }

  counters(): StreamCounters {
    return this.stream.counters();
  }

  presetMsn(qn: number, msn: number): void {
    this.stream.presetMsn(qn, msn);
  }
}
