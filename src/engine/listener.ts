/**
 * A listener in one engine, or in all of them on one port (SO_REUSEPORT), where the system spreads the connections. The first engine binds, the
 * others join it where port 0 has led. Connections that come before the program has its listener in hand are kept back until then.
 */
// Held here, as in `transport/busy-poll.ts`.
import { setImmediate } from 'node:timers';
import type { LinkHandler, ListenHandler, ListenRequest, StreamLink } from '../cm/link.ts';
import type { StreamEvent } from '../rdmap/stream-types.ts';
import type { ListenReady, PortAddress, PortListener } from '../transport/port.ts';

/** What a listener needs of an engine. */
export interface ListeningEngine {
  listen(id: number, request: ListenRequest, handler: EngineListenHandler, ready: ListenReady): void;
}

/** A link whose handler can be changed. */
export type IncomingLink = StreamLink & { handler: LinkHandler | null };

/** What a listener hears from an engine. */
export interface EngineListenHandler extends ListenHandler {
  incoming(link: IncomingLink): LinkHandler;
}

/** A connection that is kept back, with what it has said. */
class EarlyArrival implements LinkHandler {
  readonly link: IncomingLink;
  readonly events: StreamEvent[] = [];

  constructor(link: IncomingLink) {
    this.link = link;
  }

  opened(): void {
    // Of the active side.
  }

  failed(): void {
    // Of the active side.
  }

  event(event: StreamEvent): void {
    this.events.push(event);
  }
}

/** See above; `handler` is the connection manager's. */
export class EngineListener implements PortListener, EngineListenHandler {
  readonly #engines: readonly ListeningEngine[];
  readonly #id: number;
  readonly #handler: ListenHandler;
  readonly #ready: ListenReady;
  readonly #bound: PortListener[] = [];
  readonly #early: EarlyArrival[] = [];
  #state: 'binding' | 'bound' | 'listening' | 'failed' | 'lost' = 'binding';

  constructor(engines: readonly ListeningEngine[], id: number, handler: ListenHandler, ready: ListenReady) {
    this.#engines = engines;
    this.#id = id;
    this.#handler = handler;
    this.#ready = ready;
  }

  /** Called once, with the port that was asked for; then it calls itself. */
  bind(request: ListenRequest): void {
    this.#engines[this.#bound.length]!.listen(this.#id, request, this, (listener, error) => {
      if (listener === undefined) {
        // An engine that fails says so to all its listeners, also to those that are bound.
        if (this.#state === 'binding') this.#fail(error);
        else this.#lose(error);
        return;
      }
      if (this.#state !== 'binding') return;
      this.#bound.push(listener);
      if (this.#bound.length < this.#engines.length) {
        this.bind({ ...request, target: { ...request.target, port: listener.address.port } });
        return;
      }
      this.#state = 'bound';
      this.#ready(this);
      // After the promise that `ready` settles, and what the program does then.
      setImmediate(() => this.#begin());
    });
  }

  #begin(): void {
    if (this.#state !== 'bound') return;
    this.#state = 'listening';
    for (const { link, events } of this.#early.splice(0)) {
      const handler = this.incoming(link);
      link.handler = handler;
      for (const event of events) handler.event(event);
    }
  }

  #fail(error: Error | undefined): void {
    this.#state = 'failed';
    for (const { link } of this.#early.splice(0)) link.abort();
    if (this.#bound.length === 0) this.#ready(undefined, error);
    else this.close(() => this.#ready(undefined, error));
  }

  /** Nothing comes in any more: the program hears of it as of a connection that could not be accepted. */
  #lose(error: Error | undefined): void {
    if (this.#state === 'failed' || this.#state === 'lost') return;
    this.#state = 'lost';
    for (const { link } of this.#early.splice(0)) link.abort();
    if (error !== undefined) this.#handler.acceptFailed(error);
  }

  // -------------------------------------------------------------------------------------------------- PortListener

  get address(): PortAddress {
    return this.#bound[0]!.address;
  }

  close(done?: () => void): void {
    const open = new Set(this.#bound);
    for (const listener of this.#bound) {
      listener.close(() => {
        if (open.delete(listener) && open.size === 0) done?.();
      });
    }
  }

  setRef(on: boolean): void {
    for (const listener of this.#bound) listener.setRef?.(on);
  }

  // ------------------------------------------------------------------------------------------- what engines tell it

  full(): boolean {
    return this.#state === 'failed' || this.#state === 'lost' || this.#handler.full();
  }

  turnedAway(remoteAddress?: PortAddress): void {
    this.#handler.turnedAway(remoteAddress);
  }

  acceptFailed(error: Error): void {
    this.#handler.acceptFailed(error);
  }

  /** Turned away here, and not where it came, is one too many of several engines: each keeps the limit for itself. */
  incoming(link: IncomingLink): LinkHandler {
    if (this.#state === 'binding' || this.#state === 'bound') {
      const early = new EarlyArrival(link);
      this.#early.push(early);
      return early;
    }
    if (!this.full()) return this.#handler.incoming(link);
    this.turnedAway(link.remoteAddress);
    link.abort();
    return NOBODY;
  }
}

const nothing = (): void => undefined;
/** Hears what is still to come from a link that nobody wants. */
const NOBODY: LinkHandler = { opened: nothing, failed: nothing, event: nothing };
