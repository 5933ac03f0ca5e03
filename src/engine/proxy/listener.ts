/**
 * A listener in one engine, or in several. The first engine binds. The others take the sockets that it has
 * accepted and posts to them; or they join it on its port (SO_REUSEPORT), where the system spreads the
 * connections. Connections that come before the program has its listener in hand are kept back until then.
 */
// Held here, as in `transport/busy-poll.ts`.
import { setImmediate } from 'node:timers';
import { MessageChannel } from 'node:worker_threads';
import { nextState } from '../../base/fsm.ts';
import type { Hand, Taking } from '../channel/messages.ts';
import { ENGINE_LISTENER_TABLE, type EngineListenerInput, type EngineListenerState } from './states.ts';
import type { ListenRefusal } from '../listener-limits.ts';
import type { LinkHandler, ListenHandler, ListenRequest, StreamLink } from '../engine.ts';
import type { StreamEvent } from '../../stream/types.ts';
import type { ListenReady, PortAddress, PortListener } from '../../transport/port.ts';

/** The part of an engine that a listener needs. */
export interface ListeningEngine {
  /** Its number among the engines of the device. */
  readonly number: number;
  listen(id: number, request: EngineListenRequest, handler: EngineListenHandler, ready: ListenReady): void;
}

/** A request of a listener, with the part of one engine in it. */
export interface EngineListenRequest extends ListenRequest {
  readonly hands?: readonly Hand[];
  readonly takes?: Taking;
}

/** A link whose handler can be changed. */
export type IncomingLink = StreamLink & { handler: LinkHandler | null };

/** Receives the events of a listener from an engine. */
export interface EngineListenHandler extends ListenHandler {
  incoming(link: IncomingLink): LinkHandler;
}

/** A connection that is kept back, with its events so far. */
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
  /** From the first engine to each of the others; none where all bind for themselves. */
  #channels: readonly MessageChannel[] = [];
  #state: EngineListenerState = ENGINE_LISTENER_TABLE.initial;

  constructor(engines: readonly ListeningEngine[], id: number, handler: ListenHandler, ready: ListenReady) {
    this.#engines = engines;
    this.#id = id;
    this.#handler = handler;
    this.#ready = ready;
  }

  /** Bind in the first engine, and then in the others. */
  bind(request: ListenRequest): void {
    const others = this.#engines.slice(1);
    if (request.target.reusePort !== true) this.#channels = others.map(() => new MessageChannel());
    const hands = this.#channels.map(({ port1: port }, i) => ({ engine: others[i]!.number, port }));
    this.#bind(hands.length === 0 ? request : { ...request, hands });
  }

  #bind(request: EngineListenRequest): void {
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
        this.#bind(this.#next(request));
        return;
      }
      this.#step('all-bound');
      this.#ready(this);
      // Begin after the promise that `ready` settles, and after the program's reaction to it.
      setImmediate(() => this.#begin());
    });
  }

  /** The request for the engine after those that have bound. */
  #next({ hands: _done, ...request }: EngineListenRequest): EngineListenRequest {
    const { address } = this;
    const port = this.#channels[this.#bound.length - 1]?.port2;
    const next = { ...request, target: { ...request.target, port: address.port } };
    return port === undefined ? next : { ...next, takes: { address, port } };
  }

  #begin(): void {
    if (this.#state !== 'bound') return;
    this.#step('begin');
    for (const { link, events } of this.#early.splice(0)) {
      const handler = this.incoming(link);
      link.handler = handler;
      for (const event of events) handler.event(event);
    }
  }

  #step(input: EngineListenerInput): void {
    this.#state = nextState(ENGINE_LISTENER_TABLE, this.#state, input, this);
  }

  #fail(error: Error | undefined): void {
    this.#step('error');
    for (const { link } of this.#early.splice(0)) link.abort();
    for (const { port2 } of this.#channels) port2.close();
    if (this.#bound.length === 0) this.#ready(undefined, error);
    else this.close(() => this.#ready(undefined, error));
  }

  /** No further connection arrives: reported like a connection that the system could not accept. */
  #lose(error: Error | undefined): void {
    if (this.#state === 'failed' || this.#state === 'lost') return;
    this.#step('error');
    for (const { link } of this.#early.splice(0)) link.abort();
    if (error !== undefined) this.#handler.acceptFailed(error);
  }

  // -------------------------------------------------------------------------------------------- PortListener

  get address(): PortAddress {
    return this.#bound[0]!.address;
  }

  /** Nothing may be under way to an engine that has stopped taking: the one that accepts stops before. */
  close(done?: () => void): void {
    const [first, ...others] = this.#bound;
    if (this.#channels.length === 0 || others.length === 0) closeAll(this.#bound, done);
    else first!.close(() => closeAll(others, done));
  }

  setRef(on: boolean): void {
    for (const listener of this.#bound) listener.setRef?.(on);
  }

  // ------------------------------------------------------------------------------------ calls of engines

  refusal(remoteAddress: PortAddress): ListenRefusal | 'closed' | null {
    if (this.#state === 'failed' || this.#state === 'lost') return 'closed';
    return this.#handler.refusal(remoteAddress);
  }

  turnedAway(reason: ListenRefusal | 'closed', remoteAddress?: PortAddress): void {
    this.#handler.turnedAway(reason, remoteAddress);
  }

  acceptFailed(error: Error): void {
    this.#handler.acceptFailed(error);
  }

  /**
   * Turned away here, and not where it came, is one too many of several engines: each keeps the limit for
   * itself.
   */
  incoming(link: IncomingLink): LinkHandler {
    if (this.#state === 'binding' || this.#state === 'bound') {
      const early = new EarlyArrival(link);
      this.#early.push(early);
      return early;
    }
    const refusal = this.refusal(link.remoteAddress!);
    if (refusal === null) return this.#handler.incoming(link);
    this.turnedAway(refusal, link.remoteAddress);
    link.abort();
    return REFUSED;
  }
}

function closeAll(listeners: readonly PortListener[], done: (() => void) | undefined): void {
  const open = new Set(listeners);
  for (const listener of listeners) {
    listener.close(() => {
      if (open.delete(listener) && open.size === 0) done?.();
    });
  }
}

const nothing = (): void => undefined;
/** Takes the remaining events of a link that was refused. */
const REFUSED: LinkHandler = { opened: nothing, failed: nothing, event: nothing };
