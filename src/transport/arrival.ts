/**
 * Middleware that reports when bytes have arrived and been handled. An RDMA Write gives its target no
 * completion; stock tools spin on memory, and we look at it whenever something has come instead.
 */
import { PassingPort, type PortMiddleware } from './middleware.ts';
import type { Port } from './port.ts';

class ArrivalPort extends PassingPort {
  readonly #arrived: () => void;

  constructor(inner: Port, arrived: () => void) {
    super(inner);
    this.#arrived = arrived;
  }

  readTarget(): Uint8Array | undefined {
    return this.handler?.readTarget?.();
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    super.onData(bytes, start, end);
    this.#arrived();
  }
}

/** Calls `arrived` after each delivery of every port. */
export function arrivals(arrived: () => void): PortMiddleware {
  return (port) => new ArrivalPort(port, arrived);
}
