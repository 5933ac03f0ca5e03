/**
 * Connections that one engine accepts and another one serves: the engine that listens posts the socket of
 * each to the engine with the fewest connections, before anything has been read from it.
 *
 * The counts are in shared memory. A socket counts from the moment when it is posted, or a burst would go to
 * one engine whole.
 */
import type { Socket } from 'node:net';
// Held here, as in `transport/busy-poll.ts`.
import { setImmediate } from 'node:timers';
import { receiveMessageOnPort, type MessagePort } from 'node:worker_threads';
import type { PortAddress, PortListener } from '../../transport/port.ts';
import { postedSocket, postSocket } from '../../transport/posted-socket.ts';
import type { EnginePlace, Hand } from '../channel/messages.ts';

/** What posts the next connection to the engine with the fewest; null if that is this one. */
export function leastLoaded(
  { number, loads }: EnginePlace,
  hands: readonly Hand[],
): ((socket: Socket) => void) | null {
  let best: Hand | null = null;
  let least = Atomics.load(loads, number);
  for (const hand of hands) {
    const load = Atomics.load(loads, hand.engine);
    if (load >= least) continue;
    least = load;
    best = hand;
  }
  if (best === null) return null;
  const { engine, port } = best;
  return (socket) => {
    Atomics.add(loads, engine, 1);
    if (!postSocket(port, socket)) Atomics.sub(loads, engine, 1);
  };
}

/** The part of a listener in an engine that takes what another one has accepted. */
export class TakingListener implements PortListener {
  readonly address: PortAddress;
  readonly #port: MessagePort;
  readonly #place: EnginePlace;

  /**
   * `take` gets each socket, whose peer may have left by then. True if the connection counts from now on in
   * the place of its socket: were one taken off and the other put on, the engine would look emptier between.
   */
  constructor(
    address: PortAddress,
    port: MessagePort,
    place: EnginePlace,
    take: (socket: Socket) => boolean,
  ) {
    this.address = address;
    this.#port = port;
    this.#place = place;
    port.on('message', (message) => {
      const socket = postedSocket(message);
      if (socket === null || !take(socket)) this.#discount();
    });
    // A socket that this thread cannot make something of is closed by Node.
    port.on('messageerror', () => this.#discount());
    port.unref();
  }

  #discount(): void {
    Atomics.sub(this.#place.loads, this.#place.number, 1);
  }

  /** The engine that accepts has stopped: whatever it has posted is there. */
  close(done?: () => void): void {
    for (let next = receiveMessageOnPort(this.#port); next !== undefined; ) {
      postedSocket(next.message)?.destroy();
      this.#discount();
      next = receiveMessageOnPort(this.#port);
    }
    this.#port.close();
    if (done !== undefined) setImmediate(done);
  }
}
