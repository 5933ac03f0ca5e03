/**
 * Shows the two streams of a connection to an observer, without changing them.
 *
 * Read first: `port.ts`, `middleware.ts`. `pcap-tap.ts` is an observer that writes capture files.
 */

import type { Scheduler } from '../base/clock.ts';
import { checkFunction } from '../base/errors.ts';
import { PassingPort } from './middleware.ts';
import type { PortMiddleware, PortRole } from './middleware.ts';
import type { Port, PortAddress, WriteDone } from './port.ts';

/** Direction as seen from the tapped port: arriving or sent. */
export type TapDirection = 'in' | 'out';

/** The connection that is observed. */
export interface TapInfo {
  /** Our end. */
  readonly localAddress: PortAddress;
  /** The peer's end. */
  readonly remoteAddress: PortAddress;
  /** The side of the connection that the tapped port is. */
  readonly role: PortRole;
  /** When the tap was attached, on the scheduler's clock. */
  readonly time: number;
}

/** An observer of one connection. Times are milliseconds on the scheduler's clock. */
export interface TapSink {
  /** First call. */
  open(info: TapInfo): void;
  /**
   * `bytes[start..end)` has arrived, or was given to the port. Borrowed: a sink that keeps them must copy
   * them. One write of several chunks is one call, so that bytes sent together are seen together.
   */
  data(direction: TapDirection, bytes: Uint8Array, start: number, end: number, time: number): void;
  /** One direction has ended (FIN). */
  end(direction: TapDirection, time: number): void;
  /**
   * Last call. With an error the connection was broken off, by our side (`out`) or by the peer or the network
   * (`in`).
   */
  close(error: Error | undefined, time: number, direction: TapDirection): void;
}

/**
 * Middleware that shows each connection to its own sink.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const transport = wrapTransport(network, tap(time, () => ({
 *   open: () => undefined,
 *   data: (direction, bytes, start, end) => console.log(direction, end - start),
 *   end: () => undefined,
 *   close: () => undefined,
 * })));
 */
export function tap(scheduler: Scheduler, makeSink: (info: TapInfo) => TapSink): PortMiddleware {
  checkFunction('makeSink', makeSink);
  return (port, role) => {
    const info: TapInfo = {
      localAddress: port.localAddress,
      remoteAddress: port.remoteAddress,
      role,
      time: scheduler.now(),
    };
    return new TapPort(port, scheduler, makeSink(info), info);
  };
}

class TapPort extends PassingPort {
  readonly #scheduler: Scheduler;
  readonly #sink: TapSink;
  #out: 'open' | 'ended' | 'reset' | 'closed' = 'open';
  /** Where the chunks of a write are joined; grows to the largest write. */
  #joint = new Uint8Array(0);

  constructor(inner: Port, scheduler: Scheduler, sink: TapSink, info: TapInfo) {
    super(inner);
    this.#scheduler = scheduler;
    this.#sink = sink;
    sink.open(info);
  }

  override write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    if (this.#out === 'open') this.#showWrite(chunks, count);
    return this.inner.write(chunks, count, done);
  }

  override end(): void {
    if (this.#out === 'open') {
      this.#out = 'ended';
      this.#sink.end('out', this.#scheduler.now());
    }
    this.inner.end();
  }

  override reset(): void {
    if (this.#out !== 'closed') this.#out = 'reset';
    this.inner.reset();
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    this.#sink.data('in', bytes, start, end, this.#scheduler.now());
    this.handler?.onData(bytes, start, end);
  }

  override onEnd(): void {
    this.#sink.end('in', this.#scheduler.now());
    this.handler?.onEnd();
  }

  override onClose(error?: Error): void {
    const direction: TapDirection = this.#out === 'reset' ? 'out' : 'in';
    this.#out = 'closed';
    this.#sink.close(error, this.#scheduler.now(), direction);
    this.handler?.onClose(error);
  }

  #showWrite(chunks: readonly Uint8Array[], count: number): void {
    const time = this.#scheduler.now();
    const first = chunks[0];
    if (count === 1 && first !== undefined) {
      if (first.length > 0) this.#sink.data('out', first, 0, first.length, time);
      return;
    }
    let octets = 0;
    for (let i = 0; i < count; i++) octets += chunks[i]?.length ?? 0;
    if (octets === 0) return;
    if (octets > this.#joint.length) this.#joint = new Uint8Array(octets);
    let at = 0;
    for (let i = 0; i < count; i++) {
      const chunk = chunks[i];
      if (chunk === undefined) continue;
      this.#joint.set(chunk, at);
      at += chunk.length;
    }
    this.#sink.data('out', this.#joint, 0, octets, time);
  }
}
