/**
 * The parts of middleware over ports: a port that passes everything on, one that can hold deliveries back, and the way to put
 * middleware around every port of a transport.
 *
 * Read first: `port.ts`.
 */

import type { Scheduler } from '../base/clock.ts';
import { copyOf } from '../base/copy.ts';
import { checkFunction, IwarpError } from '../base/errors.ts';
import type { CancelConnect, ConnectTarget, ListenReady, ListenTarget, Port, PortAddress, PortHandler, Transport, WriteDone } from './port.ts';

/** Which end of the connection a port is: the end that connected, or the end that accepted. */
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
  const wrap = (port: Port, role: PortRole): Port => {
    let outer = port;
    for (let i = 0; i < layers.length; i++) outer = layers[i]!(outer, role);
    return outer;
  };
  return {
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

/** Passes calls down and events up. Middleware overrides what it wants to change. */
export class PassingPort implements Port, PortHandler {
  /** Our end. */
  readonly localAddress: PortAddress;
  /** The peer's end. */
  readonly remoteAddress: PortAddress;
  /** The port below. */
  protected readonly inner: Port;
  /** The user's handler, once it is attached. */
  protected handler: PortHandler | undefined;

  constructor(inner: Port) {
    this.inner = inner;
    this.localAddress = inner.localAddress;
    this.remoteAddress = inner.remoteAddress;
  }

  get mtu(): number | undefined {
    return this.inner.mtu;
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

  setRef(on: boolean): void {
    this.inner.setRef?.(on);
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
 * A port that may deliver later, or in other pieces, than the inner port. Octets that the handler cannot take yet (because it has paused
 * in the middle of a chunk, or because the subclass blocks) are copied and kept, and the end and an orderly close wait until they are delivered. A
 * close with an error overtakes them, as a reset does.
 */
export abstract class HoldingPort extends PassingPort {
  /** The clock for late deliveries. */
  protected readonly scheduler: Scheduler;
  #paused = false;
  #held: Uint8Array[] = [];
  #end: 'none' | 'held' | 'told' = 'none';
  #close: 'none' | 'held' | 'told' = 'none';
  #closeError: Error | undefined;

  constructor(inner: Port, scheduler: Scheduler) {
    super(inner);
    this.scheduler = scheduler;
  }

  /** Give the handler octets from the start of `bytes[start..end)`, as many as fit into one call. Returns where it stopped. */
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
    return this.#close === 'told';
  }

  override reset(): void {
    this.#held.length = 0;
    if (this.#end === 'held') this.#end = 'told';
    super.reset();
    // The port inside may have closed in order while its close was held here; for our user it ends in a reset all the same.
    if (this.#close === 'held') this.#closeError ??= new IwarpError('ERR_CONNECTION_RESET', 'the connection was reset from this side');
    this.scheduler.defer(() => this.drain());
  }

  override pause(): void {
    this.#paused = true;
    super.pause();
  }

  /** Restart delivery, beginning with the octets that were held back. */
  override resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    super.resume();
    this.scheduler.defer(() => this.drain());
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    if (this.#end !== 'none' || this.#close !== 'none') return;
    const rest = this.#held.length > 0 ? start : this.#feed(bytes, start, end);
    if (rest < end) this.#held.push(copyOf(bytes, rest, end));
  }

  override onEnd(): void {
    if (this.#end !== 'none') return;
    this.#end = 'held';
    this.drain();
  }

  override onClose(error?: Error): void {
    if (this.#close !== 'none') return;
    this.#close = 'held';
    this.#closeError = error;
    this.drain();
  }

  /** Deliver the octets held back, as far as possible. Subclasses call it when they unblock. */
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
      this.#end = 'told';
      this.handler?.onEnd();
    }
    if (this.#close === 'held' && !this.closeBlocked()) this.#tellClose();
  }

  /** End delivery here: later octets of the inner port are dropped, and the handler gets an end. */
  protected endEarly(): void {
    if (this.#end === 'told') return;
    this.#held.length = 0;
    this.#end = 'told';
    this.handler?.onEnd();
  }

  /** Report the close now; later events of the inner port are dropped. */
  protected closeEarly(error?: Error): void {
    if (this.#close === 'told') return;
    this.#closeError = error;
    this.#tellClose();
  }

  #flows(): boolean {
    return !this.#paused && !this.blocked() && this.#close !== 'told';
  }

  #feed(bytes: Uint8Array, start: number, end: number): number {
    let at = start;
    while (at < end && this.#flows()) at = this.deliver(bytes, at, end);
    return at;
  }

  #tellClose(): void {
    this.#close = 'told';
    this.#held.length = 0;
    this.handler?.onClose(this.#closeError);
  }
}
