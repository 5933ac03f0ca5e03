/**
 * Streams in worker threads, for a connection manager in this one: `Progress` over engines, and the mirror that keeps their STag tables.
 *
 * The real queue pairs stay here, with their checks, numbers and completion queues; links (`engine-link.ts`) and shared queues
 * (`shared-queue.ts`) hand on what is posted. An engine that fails ends every link as a lost connection does: whatever is left in the
 * queues is flushed.
 */
import { IwarpError } from '../base/errors.ts';
import type { ConnectRequest, LinkHandler, ListenHandler, ListenRequest, Progress, StreamLink } from '../cm/link.ts';
import { stateOf, type StagEntry } from '../ddp/stag-table.ts';
import { repeatLocal, type LocalOperation } from '../rdmap/local-work.ts';
import type { StreamEndpoint } from '../rdmap/stream-types.ts';
import type { ReceiveQueue } from '../rdmap/work.ts';
import { BusyPoll } from '../transport/busy-poll.ts';
import type { ListenReady, PortAddress } from '../transport/port.ts';
import type { Device, StagMirror } from '../verbs/device.ts';
import { EngineLink } from './engine-link.ts';
import { EngineHost, type EngineUser } from './host.ts';
import { EngineListener, type EngineListenHandler, type ListeningEngine } from './listener.ts';
import { unpackError, type Command, type EngineEvent, type EngineOptions, type EngineSettings } from './messages.ts';
import { RECEIVED } from './records.ts';
import { SharedQueue } from './shared-queue.ts';

export type { EngineOptions, EngineSettings };

/** All engines of one device. */
export class WorkerProgress implements Progress, StagMirror {
  readonly engines: readonly Engine[];
  /** Told when octets have come, if the engines were asked to say so. */
  onArrival: () => void = () => undefined;
  readonly #device: Device;
  #nextListener = 1;
  #lastEngine = 0;

  constructor(device: Device, count: number, options: EngineOptions) {
    this.#device = device;
    const poll = new BusyPoll(options.busyPoll);
    const engines: Engine[] = [];
    this.engines = engines;
    try {
      while (engines.length < count) engines.push(new Engine(this, device, options, poll));
    } catch (error) {
      this.retire(); // one thread too many: those before it are of no use to anybody
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
    const engines = request.target.reusePort === true ? this.engines : [this.#choose(null)];
    new EngineListener(engines, this.#nextListener++, handler, ready).bind(request);
  }

  /** The engine that has a shared queue of the endpoint, else the one with the fewest connections, in turn. */
  #choose(endpoint: StreamEndpoint | null): Engine {
    const { engines } = this;
    if (endpoint?.rqShared === true) {
      const home = engines.find((engine) => engine.hasShared(endpoint.rq));
      if (home !== undefined) return home;
    }
    let best = engines[this.#lastEngine++ % engines.length]!;
    for (const engine of engines) if (engine.load < best.load) best = engine;
    return best;
  }

  /** Nothing new will be opened: the threads end with what is open on them, connections that are being reset and listeners. */
  retire(): void {
    for (const engine of this.engines) engine.host.retire();
  }

  /** One engine is gone, and with it the device: its regions and queues cannot be told from those of the others. */
  fail(error: IwarpError): void {
    this.#device.fail();
    for (const engine of this.engines) engine.end(error);
  }

  // ------------------------------------------------------------------------------------------------------ StagMirror

  put(entry: StagEntry): void {
    this.#tell({ type: 'entry', entry: stateOf(entry) }, null);
  }

  share(entry: StagEntry): void {
    this.#tell({ type: 'share', stag: entry.stag }, null);
  }

  settle(): void {
    for (const { host } of this.engines) host.settle();
  }

  change(entry: StagEntry): void {
    this.put(entry);
    this.#fence(null);
  }

  drop(entry: StagEntry): void {
    this.#tell({ type: 'drop', stag: entry.stag }, null);
    this.#fence(null);
  }

  /** `source` has changed an entry by itself: the others have to follow before anybody here learns of it. All of them if it is null. */
  spread(command: Command, source: Engine | null): void {
    if (this.engines.length === 1) return;
    this.#tell(command, source);
    this.#fence(source);
  }

  #tell(command: Command, except: Engine | null): void {
    for (const engine of this.engines) if (engine !== except) engine.host.command(command);
  }

  #fence(except: Engine | null): void {
    for (const engine of this.engines) if (engine !== except) engine.host.fence();
  }
}

/** A listener and what it is waiting for. */
interface Listening {
  readonly handler: EngineListenHandler;
  readonly ready: ListenReady;
  done: (() => void) | undefined;
  /** It keeps the process alive. */
  held: boolean;
}

/** One engine with its links and listeners. */
export class Engine implements EngineUser, ListeningEngine {
  readonly host: EngineHost;
  readonly #progress: WorkerProgress;
  readonly #device: Device;
  readonly #links = new Map<number, EngineLink>();
  readonly #listeners = new Map<number, Listening>();
  /** Links that wait for room in the ring. */
  readonly #stalled = new Set<{ forward(): boolean }>();
  readonly #shared = new Map<ReceiveQueue, SharedQueue>();
  #nextLink = 2;
  #nextShared = 1;
  #error: IwarpError | null = null;
  /** What the engine says it works with, as soon as it is up. */
  settings: EngineSettings | null = null;

  constructor(progress: WorkerProgress, device: Device, options: EngineOptions, poll: BusyPoll) {
    this.#progress = progress;
    this.#device = device;
    this.host = new EngineHost(options, this, poll);
  }

  /** Connections. */
  get load(): number {
    return this.#links.size;
  }

  connect(request: ConnectRequest, handler: LinkHandler): EngineLink {
    const id = this.#nextLink;
    this.#nextLink += 2;
    const link = new EngineLink(this, id, handler);
    const { endpoint, target, policy, confirm, privateData, wishes } = request;
    const error = this.#refusal();
    if (error !== null) {
      this.#device.defer(() => handler.failed(error));
      return link;
    }
    this.#links.set(id, link);
    this.host.opened();
    link.attach(endpoint, { type: 'connect', link: id, target, policy, confirm, privateData, wishes });
    return link;
  }

  listen(id: number, request: ListenRequest, handler: EngineListenHandler, ready: ListenReady): void {
    const error = this.#refusal();
    if (error !== null) {
      this.#device.defer(() => ready(undefined, error));
      return;
    }
    this.#listeners.set(id, { handler, ready, done: undefined, held: true });
    this.host.opened();
    this.host.command({ type: 'listen', listener: id, ...request });
  }

  /** Why nothing can be opened here, or null. */
  #refusal(): IwarpError | null {
    if (this.#error !== null || this.host.state === 'running') return this.#error;
    return new IwarpError('ERR_DESTROYED', 'the device has been closed, and its engine has stopped');
  }

  // ----------------------------------------------------------------------------------------------------- for links

  hasShared(queue: ReceiveQueue): boolean {
    return this.#shared.has(queue);
  }

  /** A shared receive queue belongs to the engine where it was used first. */
  checkShared(queue: ReceiveQueue): void {
    if (queue.forwarder === null || this.#shared.has(queue)) return;
    throw new IwarpError('ERR_NOT_SUPPORTED', 'the shared receive queue is used on another engine: its queue pairs have to be on one');
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

  stall(link: { forward(): boolean }): void {
    const { outbox } = this.host;
    this.#stalled.add(link);
    // If there is room after all, nobody will ring for it.
    if (!outbox.waitForRoom(outbox.ring.maxRecord)) this.#device.defer(() => this.room());
  }

  forget(link: EngineLink): void {
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
    this.#progress.spread({ type: 'entry', entry: stateOf(entry) }, this);
  }

  invalidated(stag: number): void {
    const { stags } = this.#device;
    const entry = stags.find(stag);
    if (entry === null) return;
    const windows = entry.windows > 0; // bound through another engine, before this one knew of it; now it does
    stags.invalidate(entry);
    this.#progress.spread({ type: 'invalidate', stag }, windows ? null : this);
  }

  // ---------------------------------------------------------------------------------------------------- EngineUser

  sent(link: number, status: number, count: number): void {
    this.#links.get(link)?.sent(status, count);
  }

  taken(link: number): void {
    this.#links.get(link)?.taken();
  }

  received(link: number, flags: number, octets: number, invalidated: number, immediateHi: number, immediateLo: number): void {
    if (invalidated !== 0 && (flags & RECEIVED.STATUS) === 0) this.invalidated(invalidated);
    this.#links.get(link)?.received(flags, octets, invalidated, immediateHi, immediateLo);
  }

  /** First what the ring had no room for, then the links: as long as something waits there they would only wait again. */
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
    this.#progress.onArrival();
  }

  event(event: EngineEvent): void {
    switch (event.type) {
      case 'up':
        this.settings = event.settings;
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
        this.#listeners.get(event.listener)?.handler.turnedAway(event.remote);
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

  #incoming({ listener, link: id, local, remote }: Extract<EngineEvent, { type: 'incoming' }>): void {
    const listening = this.#listeners.get(listener);
    const link = new EngineLink(this, id, null);
    link.open(local, remote);
    this.#links.set(id, link);
    this.host.opened();
    if (listening === undefined) link.abort(); // closed meanwhile
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
    this.#progress.fail(error);
  }

  /** The device has lost an engine: this one stops too, and everything on it ends. */
  end(error: IwarpError): void {
    if (this.#error !== null) return;
    this.#error = error;
    this.host.stop();
    for (const link of [...this.#links.values()]) link.lose(error);
    for (const listening of this.#listeners.values()) {
      listening.ready(undefined, error); // one that is bound hears of it too
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
