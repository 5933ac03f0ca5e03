/**
 * Taps on the connections of the whole process: null by default, and then they cost one comparison a
 * connection and nothing a frame. A tap sees the connections that begin while it is there.
 */
import { queueMicrotask } from '../base/host.ts';
import type { Scheduler } from '../base/clock.ts';
import { observed } from '../base/observed.ts';
import { wrapTransport, type PortRole } from '../transport/middleware.ts';
import type { Port, Transport } from '../transport/port.ts';
import { tap, type TapInfo, type TapSink } from '../transport/tap.ts';

/** Makes a sink for each connection. `epoch`: milliseconds since 1970 at time 0 of the connection's clock. */
type TapMaker = (info: TapInfo, epoch: number) => TapSink;

const makers = new Set<TapMaker>();

/** Tap every connection that begins from now on, until the function returned is called. */
export function tapConnections(maker: TapMaker): () => void {
  makers.add(maker);
  return () => void makers.delete(maker);
}

/** The transport of a device, with room for taps. */
export function tappable(transport: Transport, scheduler: Scheduler): Transport {
  return wrapTransport(transport, (port, role) => (makers.size === 0 ? port : tapped(port, role, scheduler)));
}

function tapped(port: Port, role: PortRole, scheduler: Scheduler): Port {
  const epoch = Date.now() - scheduler.now();
  return [...makers].reduce(
    (inner, maker) => tap(scheduler, (info) => maker(info, epoch))(inner, role),
    port,
  );
}

/**
 * A look that fails must not break the stack under it: its error is thrown at the process, after the stack.
 */
export function guarded(look: () => void): void {
  try {
    observed(look);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
