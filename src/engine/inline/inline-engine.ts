/**
 * The inline engine: streams are driven in the calling thread, over a transport and a clock. It uses nothing
 * of Node, so that it runs wherever the transport does.
 */
import type { Scheduler } from '../../base/clock.ts';
import { NO_BYTES } from '../../base/copy.ts';
import { IwarpError } from '../../base/errors.ts';
import { Interned } from '../../base/interned.ts';
import { isObserving } from '../../base/observed.ts';
import type { DepthRequest } from '../../mpa/negotiate.ts';
import type { ConnectionPolicy } from '../../mpa/policy.ts';
import type { StreamEndpoint } from '../../queues/endpoint.ts';
import { resolveEmss } from '../../mpa/emss.ts';
import { MpaLowerLayer, type MpaConfig } from '../../mpa/lower-layer.ts';
import type { MpaResources } from '../../mpa/resources.ts';
import { RdmaStream } from '../../stream/stream.ts';
import type { DrivenStream, StreamHost } from '../../stream/driven.ts';
import type { StreamConfig, StreamCounters } from '../../stream/types.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  Port,
  PortAddress,
  Transport,
} from '../../transport/port.ts';
import { refusalOf } from '../../transport/refusal.ts';
import type { TlsInfo } from '../../transport/tls-options.ts';
import type {
  ConnectRequest,
  Engine,
  LinkHandler,
  ListenHandler,
  ListenRequest,
  StreamLink,
} from '../engine.ts';
import { StreamDriver } from './driver.ts';
import { EarlyTasks } from './early-tasks.ts';

const NO_WISHES: DepthRequest = {};
const NOTHING = (): void => undefined;
/** Handler of a port that is turned away. */
const REFUSED = { onData: NOTHING, onEnd: NOTHING, onClose: NOTHING };

function errorOf(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new IwarpError('ERR_CONNECT', String(thrown));
}

/** The arguments for a stream of another wire than iWARP. */
interface StreamRequest {
  readonly role: 'initiator' | 'responder';
  readonly policy: ConnectionPolicy;
  readonly confirm: boolean;
  readonly port: Port;
  readonly host: StreamHost;
}

/** Makes the streams of another wire than iWARP. */
export type StreamMaker = (request: StreamRequest) => DrivenStream;

/** The part of a device that an inline engine uses. */
export interface EngineDevice {
  /** @internal */
  readonly resources: MpaResources;
  /** @internal */
  drive?: (() => void) | null;
}

/** Options for all streams of an engine. */
export interface InlineEngineOptions {
  /**
   * Message sequence number with which each queue of a connection begins, other than that of Terminates.
   * Default 1, as RFC 5041 says; tests of both sides may begin near the wrap.
   */
  readonly firstMsn?: number;
  /**
   * Makes the streams of another wire. Default: iWARP.
   *
   * @ignore
   */
  readonly make?: StreamMaker | undefined;
}

/**
 * Drives streams in the calling thread.
 *
 * @example
 * const engine = new InlineEngine(new TcpTransport(), realScheduler, device);
 * const cm = new ConnectionManager(device, engine);
 */
export class InlineEngine implements Engine {
  readonly #transport: Transport;
  readonly #scheduler: Scheduler;
  /** What the links defer, where a program that polls can have it done early. */
  readonly #early: EarlyTasks | null;
  readonly #resources: MpaResources;
  readonly #options: InlineEngineOptions;
  #looking = false;
  readonly #configs: Interned<StreamConfig & MpaConfig> = new Interned();

  /** Over a transport and a clock, with the CRC engine and buffers of the device. */
  constructor(
    transport: Transport,
    scheduler: Scheduler,
    device: EngineDevice,
    options: InlineEngineOptions = {},
  ) {
    this.#transport = transport;
    this.#scheduler = scheduler;
    this.#early = null;
    if (transport.look !== undefined) {
      const early = new EarlyTasks(scheduler);
      this.#early = early;
      device.drive = () => this.#look(early);
    }
    this.#resources = device.resources;
    this.#options = options;
  }

  /**
   * Begin an outbound connection; a transport that throws fails it in a later turn.
   *
   * @ignore
   */
  connect(request: ConnectRequest, handler: LinkHandler): StreamLink {
    const link = new InlineLink(this.#early ?? this.#scheduler);
    link.connecting(
      this.#dial(request.target, (port, error) => {
        link.connecting(null);
        if (port === undefined) {
          handler.failed(
            error ??
              new IwarpError('ERR_CONNECT', 'the transport has made no connection, and gives no reason'),
          );
          return;
        }
        link.drive(this.#stream('initiator', request.policy, request.confirm, port, link), port);
        link.listener = handler;
        handler.opened();
        link.stream.start(link.now(), request.endpoint, request.privateData, request.wishes);
        link.begin();
      }),
    );
    return link;
  }

  /** @ignore */
  listen(request: ListenRequest, handler: ListenHandler, ready: ListenReady): void {
    const plain = refusalOf(this.#transport, request.target);
    if (plain !== null) {
      this.#scheduler.defer(() => ready(undefined, plain));
      return;
    }
    const accept = (port: Port): void => this.take(port, request.policy, handler);
    try {
      this.#transport.listen(request.target, accept, ready, (error) => handler.acceptFailed(error));
    } catch (error) {
      this.#scheduler.defer(() => ready(undefined, errorOf(error)));
    }
  }

  /** @ignore */
  take(port: Port, policy: ConnectionPolicy, handler: ListenHandler): void {
    const refusal = handler.refusal(port.remoteAddress);
    if (refusal !== null) {
      handler.turnedAway(refusal, port.remoteAddress);
      port.attach(REFUSED);
      port.reset();
      return;
    }
    const link = new InlineLink(this.#early ?? this.#scheduler);
    // The port comes first: the handler reads the addresses of the link.
    link.drive(this.#stream('responder', policy, false, port, link), port);
    link.listener = handler.incoming(link);
    link.stream.start(link.now(), null, NO_BYTES, NO_WISHES);
    link.begin();
  }

  /**
   * Send posted work and take in arrived bytes, up to a limit, in a call of a program that polls. No code of
   * the program runs in this but its watchers, for its handlers are deferred; and for a watcher that polls,
   * in the middle of other work, nothing is done.
   */
  #look(early: EarlyTasks): void {
    if (this.#looking || isObserving()) return;
    this.#looking = true;
    early.stop();
    try {
      early.run();
      this.#transport.look!();
    } finally {
      early.goOn();
      this.#looking = false;
    }
  }

  /** A transport that throws cannot connect: it must not end other work in this thread. */
  #dial(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
    const { over } = target;
    if (over !== undefined) return this.#established(over, done);
    try {
      const plain = refusalOf(this.#transport, target);
      if (plain !== null) throw plain;
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

  /** As a transport would have it, in a later turn. */
  #established(over: Port, done: (port: Port) => void): CancelConnect {
    let state: 'pending' | 'settled' = 'pending';
    this.#scheduler.defer(() => {
      if (state === 'settled') return;
      state = 'settled';
      done(over);
    });
    return () => {
      if (state === 'settled') return;
      state = 'settled';
      over.attach(REFUSED);
      over.reset();
    };
  }

  #stream(
    role: 'initiator' | 'responder',
    policy: ConnectionPolicy,
    confirm: boolean,
    port: Port,
    host: StreamHost,
  ): DrivenStream {
    const { make, ...iwarp } = this.#options;
    if (make !== undefined) return make({ role, policy, confirm, port, host });
    // One object for the stream and its lower layer: connections in a row mostly have the same.
    const config = this.#configs.of({
      role,
      policy,
      emss: resolveEmss(policy, port),
      resources: this.#resources,
      confirm,
      ...(port.copies === true && { copies: true }),
      ...iwarp,
    });
    return new RdmaStream(config, new MpaLowerLayer(config));
  }
}

/** A stream and its driver in this thread: one object, for each idle connection has it. */
class InlineLink extends StreamDriver implements StreamLink {
  #cancel: (() => void) | null = null;

  /** The attempt that `cancel` ends; null when it is over. */
  connecting(cancel: (() => void) | null): void {
    this.#cancel = cancel;
  }

  get offloaded(): boolean {
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

  get mtu(): number | undefined {
    return this.port?.mtu;
  }

  get tls(): TlsInfo | undefined {
    return this.port?.tls;
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

  accept(endpoint: StreamEndpoint, privateData: Uint8Array, wishes: DepthRequest): void {
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

  displace(): void {
    this.stream.displace(this.now());
    this.drain();
  }

  setRef(on: boolean): void {
    this.port?.setRef?.(on);
  }

  setKeepAlive(on: boolean, delay: number): boolean {
    if (this.opened && this.stream.setKeepAlive !== undefined) {
      this.stream.setKeepAlive(on, delay, this.now());
      this.drain();
      return true;
    }
    return this.port?.setKeepAlive?.(on, delay) === true;
  }

  counters(): StreamCounters {
    return this.stream.counters();
  }
}
