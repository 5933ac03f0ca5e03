/**
 * The parts of middleware over ports: a port that passes everything on, one that can hold deliveries back,
 * and the way to put middleware around every port of a transport.
 *
 * Read first: `port.ts`.
 */

import type { Scheduler } from '../base/clock.ts';
import { copyOf } from '../base/copy.ts';
import { checkFunction, IwarpError } from '../base/errors.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  PortHandler,
  Transport,
  WriteDone,
} from './port.ts';
import type { TlsInfo } from './tls-options.ts';

/** The end of the connection that a port is: the end that connected, or the end that accepted. */
export type PortRole = 'active' | 'passive';

/** Wraps a port. */
export type PortMiddleware = (port: Port, role: PortRole) => Port;

/**
 * A transport that wraps every port of `transport` in `layers`. The first layer is next to the network.
 *
 * @throws ERR_INVALID_ARGUMENT
 */
export function wrapTransport(transport: Transport, ...layers: readonly PortMiddleware[]): Transport {
  for (const [i, layer] of layers.entries()) checkFunction(`layers[${i}]`, layer);
  const wrap = (port: Port, role: PortRole): Port => wrapPort(port, role, layers);
  return {
    tls: transport.tls,
    paths: transport.paths,
    ...(transport.look !== undefined && { look: () => transport.look!() }),
    connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
      return transport.connect(target, (port, error) => {
        if (port === undefined) done(undefined, error);
        else done(wrap(port, 'active'));
      });
    },
    listen(
      target: ListenTarget,
      accept: (port: Port) => void,
      ready: ListenReady,
      failed?: (error: Error) => void,
    ): void {
      transport.listen(target, (port) => accept(wrap(port, 'passive')), ready, failed);
    },
  };
}

/** `port` in `layers`, the first of which is next to the network. */
export function wrapPort(port: Port, role: PortRole, layers: readonly PortMiddleware[]): Port {
  let outer = port;
  for (let i = 0; i < layers.length; i++) outer = layers[i]!(outer, role);
  return outer;
}

/** Passes calls down and events up. Middleware overrides the methods that it wants to change. */
export class PassingPort implements Port, PortHandler {
  /** The port below. */
  protected readonly inner: Port;
  /** The user's handler, once it is attached. */
  protected handler: PortHandler | undefined;

  /** Middleware in front of this port. */
  constructor(inner: Port) {
    this.inner = inner;
  }

  /** Our end. */
  get localAddress(): PortAddress {
    return this.inner.localAddress;
  }

  /** The peer's end; over UDP a client learns its port late. */
  get remoteAddress(): PortAddress {
    return this.inner.remoteAddress;
  }

  get mtu(): number | undefined {
    return this.inner.mtu;
  }

  get tls(): TlsInfo | undefined {
    return this.inner.tls;
  }

  get copies(): boolean | undefined {
    return this.inner.copies;
  }

  attach(handler: PortHandler): void {
    this.handler ??= handler;
    this.inner.attach(this);
  }

  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    return this.inner.write(chunks, count, done);
  }

  end(): void {
    this.inner.end();
  }

  reset(): void {
    this.inner.reset();
  }

  pause(): void {
    this.inner.pause();
  }

  /** Restart delivery. */
  resume(): void {
    this.inner.resume();
  }

  retarget(): void {
    this.inner.retarget?.();
  }

  setRef(on: boolean): void {
    this.inner.setRef?.(on);
  }

  setKeepAlive(on: boolean, delay: number): boolean {
    return this.inner.setKeepAlive?.(on, delay) === true;
  }

  onData(bytes: Uint8Array, start: number, end: number): void {
    this.handler?.onData(bytes, start, end);
  }

  onEnd(): void {
    this.handler?.onEnd();
  }

  onClose(error?: Error): void {
    this.handler?.onClose(error);
  }
}

/**
 * A port that may deliver later, or in other pieces, than the inner port. Bytes that the handler cannot take
 * yet (because it has paused in the middle of a chunk, or because the subclass blocks) are copied and kept,
 * and the end and an orderly close wait until they are delivered. A close with an error overtakes them, as a
 * reset does.
 */
export abstract class HoldingPort extends PassingPort {
  /** The clock for late deliveries. */
  protected readonly scheduler: Scheduler;
  #paused = false;
  #held: Uint8Array[] = [];
  #end: 'none' | 'held' | 'reported' = 'none';
  #close: 'none' | 'held' | 'reported' = 'none';
  #closeError: Error | undefined;

  /** Middleware in front of this port, whose delays pass in the time of `scheduler`. */
  constructor(inner: Port, scheduler: Scheduler) {
    super(inner);
    this.scheduler = scheduler;
  }

  /**
   * Give the handler bytes from the start of `bytes[start..end)`, as many as fit into one call. Returns
   * where it stopped.
   */
  protected abstract deliver(bytes: Uint8Array, start: number, end: number): number;

  /** Whether the subclass holds all deliveries back. */
  protected blocked(): boolean {
    return false;
  }

  /** Whether an orderly close has to wait for anything besides the deliveries. */
  protected closeBlocked(): boolean {
    return false;
  }

  /** Whether the user has paused delivery. */
  protected get paused(): boolean {
    return this.#paused;
  }

  /** Whether the user's `onClose` has been called: no other call may follow. */
  protected get closed(): boolean {
    return this.#close === 'reported';
  }

  /** Drop the held events and reset the port. */
  override reset(): void {
    this.#held.length = 0;
    if (this.#end === 'held') this.#end = 'reported';
    super.reset();
    // The port inside may have closed in order while its close was held here; for our user it ends in a reset
    // all the same.
    if (this.#close === 'held')
      this.#closeError ??= new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side');
    this.scheduler.defer(() => this.drain());
  }

  /** Stop deliveries, of held events too. */
  override pause(): void {
    this.#paused = true;
    super.pause();
  }

  /** Restart delivery, beginning with the bytes that were held back. */
  override resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    super.resume();
    this.scheduler.defer(() => this.drain());
  }

  /** Hold or pass on bytes. */
  override onData(bytes: Uint8Array, start: number, end: number): void {
    if (this.#end !== 'none' || this.#close !== 'none') return;
    const rest = this.#held.length > 0 ? start : this.#feed(bytes, start, end);
    if (rest < end) this.#held.push(copyOf(bytes, rest, end));
  }

  /** Hold or pass on the end. */
  override onEnd(): void {
    if (this.#end !== 'none') return;
    this.#end = 'held';
    this.drain();
  }

  /** Hold or pass on the close. */
  override onClose(error?: Error): void {
    if (this.#close !== 'none') return;
    this.#close = 'held';
    this.#closeError = error;
    this.drain();
  }

  /** Deliver the bytes held back, as far as possible. Subclasses call it when they unblock. */
  protected drain(): void {
    if (this.#close === 'held' && this.#closeError !== undefined) {
      this.#tellClose();
      return;
    }
    while (this.#flows()) {
      const bytes = this.#held[0];
      if (bytes === undefined) break;
      const rest = this.#feed(bytes, 0, bytes.length);
      // The handler may have reset the connection, which empties the queue.
      if (this.#held[0] !== bytes) continue;
      if (rest === bytes.length) this.#held.shift();
      else this.#held[0] = bytes.subarray(rest);
    }
    if (this.#held.length > 0 || !this.#flows()) return;
    if (this.#end === 'held') {
      this.#end = 'reported';
      this.handler?.onEnd();
    }
    if (this.#close === 'held' && !this.closeBlocked()) this.#tellClose();
  }

  /** End delivery here: later bytes of the inner port are dropped, and the handler gets an end. */
  protected endEarly(): void {
    if (this.#end === 'reported') return;
    this.#held.length = 0;
    this.#end = 'reported';
    this.handler?.onEnd();
  }

  /** Report the close now; later events of the inner port are dropped. */
  protected closeEarly(error?: Error): void {
    if (this.#close === 'reported') return;
    this.#closeError = error;
    this.#tellClose();
  }

  #flows(): boolean {
    return !this.#paused && !this.blocked() && this.#close !== 'reported';
  }

  #feed(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    while (at < end && this.#flows()) at = this.deliver(bytes, at, end);
    return at;
  }

  #tellClose(): void {
    this.#close = 'reported';
    this.#held.length = 0;
    this.handler?.onClose(this.#closeError);
  }
}
