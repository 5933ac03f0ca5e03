/**
 * Middleware that tells when octets have arrived and been dealt with. An RDMA Write gives its target no completion; stock tools spin on
 * memory, and we look at it whenever something has come instead.
 */
import { PassingPort, type PortMiddleware } from '../../transport/middleware.ts';
import type { Port } from '../../transport/port.ts';

class ArrivalPort extends PassingPort {
  readonly #arrived: () => void;

  constructor(inner: Port, arrived: () => void) {
    super(inner);
    this.#arrived = arrived;
  }

  override onData(bytes: Uint8Array, start: number, end: number): void {
    super.onData(bytes, start, end);
    this.#arrived();
  }
}

/** Calls `arrived` behind each delivery of every port. */
export function arrivals(arrived: () => void): PortMiddleware {
  return (port) => new ArrivalPort(port, arrived);
}
