/**
 * Streams in worker threads, for a connection manager in this one: `Engine` over worker threads, and the
 * mirror that keeps their STag tables.
 *
 * The real queue pairs stay here, with their checks, numbers and completion queues; links (`engine-link.ts`)
 * and shared queues (`shared-queue.ts`) hand on posted requests. An engine that fails ends every link as a
 * lost connection does: whatever is left in the queues is flushed.
 */
import { IwarpError } from '../../base/errors.ts';
import type {
  ConnectRequest,
  LinkHandler,
  ListenHandler,
  ListenRequest,
  Engine,
  StreamLink,
} from '../engine.ts';
import { stateOf, type StagEntry } from '../../ddp/stag-table.ts';
import { repeatLocal, type LocalOperation } from '../../queues/local-work.ts';
import type { ConnectionPolicy } from '../../mpa/policy.ts';
import type { ReceiveQueue } from '../../queues/work.ts';
import { BusyPoll } from '../../transport/busy-poll.ts';
import type { ConnectTarget, ListenReady, ListenTarget, Port, PortAddress } from '../../transport/port.ts';
import { postsSockets } from '../../transport/posted-socket.ts';
import { functionsIn } from '../../transport/tls-options.ts';
import type { Device, StagMirror } from '../../verbs/device.ts';
import { ProxyLink } from './proxy-link.ts';
import { EngineThread, type EngineUser } from './engine-thread.ts';
import {
  EngineListener,
  type EngineListenHandler,
  type EngineListenRequest,
  type ListeningEngine,
} from './listener.ts';
import {
  unpackError,
  type Command,
  type EngineEvent,
  type EngineOptions,
  type EnginePlace,
  type EngineSettings,
} from '../channel/messages.ts';
import { RECEIVED } from '../channel/records.ts';
import { relay } from '../channel/relay.ts';
import { SharedQueue } from './shared-queue.ts';
import type { StreamEndpoint } from '../../queues/endpoint.ts';

export type { EngineOptions, EngineSettings };

const NOTHING = (): void => undefined;
/** Handler of a port that is turned away. */
const REFUSED = { onData: NOTHING, onEnd: NOTHING, onClose: NOTHING };

function turnAway(port: Port): void {
  port.attach(REFUSED);
  port.reset();
}

/** All engines of one device. */
export class WorkerEngine implements Engine, StagMirror {
  readonly engines: readonly EngineProxy[];
  readonly offloaded = true;
  /** Called when bytes have arrived, if the option `arrivals` asks for it. */
  onArrival: () => void = () => undefined;
  readonly #device: Device;
  #nextListener = 1;
  #lastEngine = 0;

  constructor(device: Device, count: number, options: EngineOptions) {
    this.#device = device;
    const poll = new BusyPoll(options.busyPoll);
    const engines: EngineProxy[] = [];
    this.engines = engines;
    try {
      const loads = new Int32Array(new SharedArrayBuffer(count * Int32Array.BYTES_PER_ELEMENT));
      for (let number = 0; number < count; number++)
        engines.push(new EngineProxy(this, device, { ...options, number, loads }, poll));
    } catch (error) {
      this.retire(); // one thread too many: those before it are of no use
      throw error;
    }
    device.mirror = this;
    device.onClose = () => this.retire();
  }

  connect(request: ConnectRequest, handler: LinkHandler): StreamLink {
    const engine = this.#choose(request.endpoint);
    return engine.connect(request, handler);
  }

  listen(request: ListenRequest, handler: ListenHandler, ready: ListenReady): void {
    const first = this.#choose(null);
    const others = this.#spreads(request.target) ? this.engines.filter((engine) => engine !== first) : [];
    new EngineListener([first, ...others], this.#nextListener++, handler, ready).bind(request);
  }

  /**
   * Whether all engines take part in a listener. A shared receive queue is on one of them, and its
   * connections have to come there; sockets of paths and of UDP cannot be posted.
   */
  #spreads({ reusePort, path }: ListenTarget): boolean {
    if (reusePort === true) return true;
    const { wire } = this.#device;
    return path === undefined && wire !== 'trp' && this.#device.query().inUse.srq === 0 && postsSockets();
  }

  /** The byte stream stays in this thread, which hands its bytes on (`channel/relay.ts`). */
  take(port: Port, policy: ConnectionPolicy, handler: ListenHandler): void {
    const refusal = handler.refusal(port.remoteAddress);
    if (refusal === null) {
      this.#choose(null).take(port, policy, handler);
      return;
    }
    handler.turnedAway(refusal, port.remoteAddress);
    turnAway(port);
  }

  /**
   * The engine that has a shared queue of the endpoint, else the one with the fewest connections, in turn.
   */
  #choose(endpoint: StreamEndpoint | null): EngineProxy {
    const { engines } = this;
    if (endpoint?.rqShared === true) {
      const home = engines.find((engine) => engine.hasShared(endpoint.rq));
      if (home !== undefined) return home;
    }
    let best = engines[this.#lastEngine++ % engines.length]!;
    for (const engine of engines) if (engine.load < best.load) best = engine;
    return best;
  }

  /**
   * Nothing new will be opened: the threads end with the last thing that is open on them; connections that
   * are being reset and listeners count.
   */
  retire(): void {
    for (const engine of this.engines) engine.host.retire();
  }

  /**
   * One engine is gone, and with it the device: its regions and queues are not kept apart from those
   * of the others.
   */
  fail(error: IwarpError): void {
    this.#device.fail();
    for (const engine of this.engines) engine.end(error);
  }

  // ---------------------------------------------------------------------------------------------- StagMirror

  put(entry: StagEntry): void {
    this.#tell({ type: 'entry', entry: stateOf(entry) }, null);
  }

  share(entry: StagEntry): void {
    this.#tell({ type: 'share', stag: entry.stag }, null);
  }

  settle(): void {
    for (const { host } of this.engines) host.settle();
  }

  look(): void {
    for (const { host } of this.engines) host.look();
  }

  wait(ms: number): void {
    // Of several engines each gets a short turn: this thread can wait for one ring only.
    const slice = this.engines.length === 1 ? ms : Math.min(ms, 1);
    for (const { host } of this.engines) host.wait(slice);
  }

  change(entry: StagEntry): void {
    this.put(entry);
    this.#fence(null);
  }

  drop(entry: StagEntry): PromiseLike<void> | null {
    const { stag } = entry;
    this.#tell({ type: 'drop', stag }, null);
    this.#fence(null);
    const lent = this.engines.filter((engine) => engine.host.takeLent());
    return lent.length === 0 ? null : Promise.all(lent.map((engine) => engine.returned(stag))).then(NOTHING);
  }

  /**
   * `source` has changed an entry by itself: the others have to follow before the program learns of it. All
   * of them if it is null.
   */
  broadcast(command: Command, source: EngineProxy | null): void {
    if (this.engines.length === 1) return;
    this.#tell(command, source);
    this.#fence(source);
  }

  #tell(command: Command, except: EngineProxy | null): void {
    for (const engine of this.engines) if (engine !== except) engine.host.command(command);
  }

  #fence(except: EngineProxy | null): void {
    for (const engine of this.engines) if (engine !== except) engine.host.fence();
  }
}

/** A listener, with its handler and the callbacks that wait. */
interface Listening {
  readonly handler: EngineListenHandler;
  readonly ready: ListenReady;
  done: (() => void) | undefined;
  /** The listener holds the process. */
  held: boolean;
}

/** One engine with its links and listeners. */
export class EngineProxy implements EngineUser, ListeningEngine {
  readonly host: EngineThread;
  readonly number: number;
  readonly #engine: WorkerEngine;
  readonly #device: Device;
  readonly #links = new Map<number, ProxyLink>();
  readonly #listeners = new Map<number, Listening>();
  /** Links that wait for room in the ring. */
  readonly #stalled = new Set<{ forward(): boolean }>();
  readonly #shared = new Map<ReceiveQueue, SharedQueue>();
  /** STags dropped while a write on the engine reads their memory, each with its waiting call. */
  readonly #lent = new Map<number, () => void>();
  #nextLink = 2;
  #nextTaken = -1;
  #nextShared = 1;
  #error: IwarpError | null = null;
  /** The settings that the engine reports, as soon as it is up. */
  settings: EngineSettings | null = null;

  constructor(engine: WorkerEngine, device: Device, options: EngineOptions & EnginePlace, poll: BusyPoll) {
    this.number = options.number;
    this.#engine = engine;
    this.#device = device;
    this.host = new EngineThread(options, this, poll);
  }

  /** Connections. */
  get load(): number {
    return this.#links.size;
  }

  connect(request: ConnectRequest, handler: LinkHandler): ProxyLink {
    const id = this.#nextLink;
    this.#nextLink += 2;
    const link = new ProxyLink(this, id, handler);
    const { endpoint, target, policy, confirm, privateData, wishes } = request;
    const { over, ...rest } = target;
    const error = this.#refusal(target);
    if (error !== null) {
      if (over !== undefined) turnAway(over);
      this.#device.defer(() => handler.failed(error));
      return link;
    }
    this.#links.set(id, link);
    this.host.opened();
    const connect = {
      type: 'connect',
      link: id,
      target: rest,
      policy,
      confirm,
      privateData,
      wishes,
    } as const;
    link.attach(endpoint, over === undefined ? connect : { ...connect, relay: relay(over) });
    return link;
  }

  /** Links of byte streams that have come to this thread have negative odd numbers. */
  take(port: Port, policy: ConnectionPolicy, handler: ListenHandler): void {
    const error = this.#refusal({});
    if (error !== null) {
      turnAway(port);
      throw error;
    }
    const id = this.#nextTaken;
    this.#nextTaken -= 2;
    const link = new ProxyLink(this, id, null);
    const path = relay(port);
    link.open(path);
    this.#links.set(id, link);
    this.host.opened();
    link.handler = handler.incoming(link);
    this.host.command({ type: 'take', link: id, policy, relay: path });
  }

  listen(id: number, request: EngineListenRequest, handler: EngineListenHandler, ready: ListenReady): void {
    const error = this.#refusal(request.target);
    if (error !== null) {
      this.#device.defer(() => ready(undefined, error));
      return;
    }
    this.#listeners.set(id, { handler, ready, done: undefined, held: true });
    this.host.opened();
    this.host.command({ type: 'listen', listener: id, ...request });
  }

  /** Why nothing can be opened here, or null. */
  #refusal(target: ConnectTarget | ListenTarget): IwarpError | null {
    const functions = target.tls === undefined ? [] : functionsIn(target.tls);
    if (functions.length > 0)
      return new IwarpError(
        'ERR_NOT_SUPPORTED',
        `options.tls.${functions[0]} is a function, which cannot pass to an engine in another thread`,
      );
    if (this.#error !== null || this.host.state === 'running') return this.#error;
    return new IwarpError('ERR_DESTROYED', 'the device has been closed, and its engine has stopped');
  }

  /** Settles when the engine no longer reads the memory of an STag that has been dropped. */
  returned(stag: number): Promise<void> {
    // An engine that has failed reads memory until its thread is gone.
    return Promise.race([new Promise<void>((resolve) => this.#lent.set(stag, resolve)), this.host.gone]);
  }

  // ----------------------------------------------------------------------------------------------- for links

  hasShared(queue: ReceiveQueue): boolean {
    return this.#shared.has(queue);
  }

  /** A shared receive queue belongs to the engine where it was used first. */
  checkShared(queue: ReceiveQueue): void {
    if (queue.forwarder === null || this.#shared.has(queue)) return;
    throw new IwarpError(
      'ERR_NOT_SUPPORTED',
      'the shared receive queue is used on another engine: its queue pairs have to be on one',
    );
  }

  /** The engine's number for a shared receive queue, which {@link checkShared} takes. */
  sharedNumber(queue: ReceiveQueue): number {
    let shared = this.#shared.get(queue);
    if (shared === undefined) {
      shared = new SharedQueue(this, this.#nextShared++, queue);
      this.#shared.set(queue, shared);
    }
    return shared.number;
  }

  forgetShared(shared: SharedQueue, queue: ReceiveQueue): void {
    this.#stalled.delete(shared);
    this.#shared.delete(queue);
  }

  /**
   * Receives alone need not wake the engine, which reads its ring before it takes anything from the network.
   * Without a receive a plain TCP connection takes nothing at all: there they do.
   */
  publishReceives(): void {
    if (this.#device.wire !== 'qpip') this.host.outbox.publishQuietly();
    else this.host.outbox.publish();
  }

  stall(link: { forward(): boolean }): void {
    const { outbox } = this.host;
    this.#stalled.add(link);
    // If there is room after all, no bell will come for it.
    if (!outbox.waitForRoom(outbox.ring.maxRecord)) this.#device.defer(() => this.room());
  }

  forget(link: ProxyLink): void {
    this.#stalled.delete(link);
    if (this.#links.delete(link.id)) this.host.closed(link.held);
  }

  /** An operation has been done there: it holds here too, and on the other engines. */
  apply(operation: LocalOperation): void {
    if (operation.type === 'invalidate') {
      this.invalidated(operation.stag);
      return;
    }
    const { stags } = this.#device;
    const { entry } = operation;
    if (!stags.holds(entry)) return;
    repeatLocal(stags, operation);
    this.#engine.broadcast({ type: 'entry', entry: stateOf(entry) }, this);
  }

  invalidated(stag: number): void {
    const { stags } = this.#device;
    const entry = stags.find(stag);
    if (entry === null) return;
    // bound through another engine, before this one knew of it; now it does
    const windows = entry.windows > 0;
    stags.invalidate(entry);
    this.#engine.broadcast({ type: 'invalidate', stag }, windows ? null : this);
  }

  // ---------------------------------------------------------------------------------------------- EngineUser

  sent(link: number, status: number, count: number): void {
    this.#links.get(link)?.sent(status, count);
  }

  taken(link: number): void {
    this.#links.get(link)?.taken();
  }

  advanced(link: number, places: number): void {
    this.#links.get(link)?.advanced(places);
  }

  received(
    link: number,
    flags: number,
    octets: number,
    invalidated: number,
    immediateHi: number,
    immediateLo: number,
  ): void {
    if (invalidated !== 0 && (flags & RECEIVED.STATUS) === 0) this.invalidated(invalidated);
    this.#links.get(link)?.received(flags, octets, invalidated, immediateHi, immediateLo);
  }

  /**
   * Writes the records that the ring had no room for, and then lets the links go on: while a record waits,
   * they would only wait again.
   */
  room(): void {
    const { outbox } = this.host;
    if (!outbox.flush()) return; // it is rung for
    for (const link of [...this.#stalled]) {
      this.#stalled.delete(link);
      if (!link.forward()) return;
    }
    outbox.publish();
  }

  arrived(): void {
    this.#engine.onArrival();
  }

  event(event: EngineEvent): void {
    switch (event.type) {
      case 'up':
        this.settings = event.settings;
        break;
      case 'returned':
        this.#lent.get(event.stag)?.();
        this.#lent.delete(event.stag);
        break;
      case 'used':
        this.invalidated(event.stag);
        break;
      case 'incoming':
        this.#incoming(event);
        break;
      case 'listening':
        this.#listening(event.listener, event.address);
        break;
      case 'listen-failed':
        this.#endListener(event.listener, unpackError(event.error));
        break;
      case 'turned-away':
        this.#listeners.get(event.listener)?.handler.turnedAway(event.reason, event.remote);
        break;
      case 'accept-failed':
        this.#listeners.get(event.listener)?.handler.acceptFailed(unpackError(event.error));
        break;
      case 'unlistened':
        this.#endListener(event.listener, null);
        break;
      default:
        this.#links.get(event.link)?.handle(event);
    }
  }

  #incoming(event: Extract<EngineEvent, { type: 'incoming' }>): void {
    const { listener, link: id } = event;
    const listening = this.#listeners.get(listener);
    const link = new ProxyLink(this, id, null);
    link.open(event);
    this.#links.set(id, link);
    this.host.opened();
    if (listening === undefined)
      link.abort(); // closed meanwhile
    else link.handler = listening.handler.incoming(link);
  }

  #listening(id: number, address: PortAddress): void {
    const listening = this.#listeners.get(id);
    listening?.ready({
      address,
      close: (done) => {
        listening.done = done;
        if (this.#error === null) this.host.command({ type: 'unlisten', listener: id });
        else this.#whenGone(done);
      },
      setRef: (on) => {
        if (listening.held === on || !this.#listeners.has(id)) return;
        listening.held = on;
        this.host.setRef(on);
      },
    });
  }

  #endListener(id: number, error: Error | null): void {
    const listening = this.#listeners.get(id);
    if (!this.#listeners.delete(id) || listening === undefined) return;
    this.host.closed(listening.held);
    if (error !== null) listening.ready(undefined, error);
    else listening.done?.();
  }

  failed(error: IwarpError): void {
    this.#engine.fail(error);
  }

  /** The device has lost an engine: this one stops too, and everything on it ends. */
  end(error: IwarpError): void {
    if (this.#error !== null) return;
    this.#error = error;
    this.host.stop();
    for (const link of [...this.#links.values()]) link.lose(error);
    for (const listening of this.#listeners.values()) {
      listening.ready(undefined, error); // reported to a bound listener too
      if (listening.done !== undefined) this.#whenGone(listening.done);
    }
    this.#listeners.clear();
  }

  /** An address is free when the thread that had it is. */
  #whenGone(done: (() => void) | undefined): void {
    if (done === undefined) return;
    this.host.worker.ref();
    void this.host.gone.then(done);
  }
}
