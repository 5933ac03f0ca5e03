/**
 * Streams in worker threads, for a connection manager in this one: `Progress` over engines, and the mirror that keeps their STag tables.
 *
 * The real queue pairs stay here, with their checks, numbers and completion queues. A link hands what is posted on to its engine, as fast as
 * the ring takes it, and applies the completions that come back to the same queues. An engine that fails ends every link as a lost
 * connection does: whatever is left in the queues is flushed.
 */
import { IwarpError } from '../base/errors.ts';
import type { ConnectRequest, LinkHandler, ListenHandler, ListenRequest, Progress, StreamLink } from '../cm/link.ts';
import type { StagEntry } from '../ddp/stag-table.ts';
import type { DepthWishes } from '../mpa/negotiate.ts';
import { noCounters } from '../rdmap/counters.ts';
import type { LocalOperation } from '../rdmap/local-work.ts';
import type { StreamCounters, StreamEndpoint } from '../rdmap/stream-types.ts';
import type { ReceiveQueue, ReceiveWqe } from '../rdmap/work.ts';
import type { PortAddress, PortListener } from '../transport/port.ts';
import type { Device, StagMirror } from '../verbs/device.ts';
import { EngineHost, type EngineOptions, type EngineUser } from './host.ts';
import { unpackError, type Command, type EngineEvent, type EntryState, type OperationState } from './messages.ts';
import { RECEIVED, STATUSES, TO_ENGINE, writeReceive, writeSend } from './records.ts';

/** All engines of one device. */
export class WorkerProgress implements Progress, StagMirror {
  readonly engines: readonly Engine[];
  readonly #device: Device;
  #nextListener = 1;
  #lastEngine = 0;

  constructor(device: Device, count: number, options: EngineOptions) {
    this.#device = device;
    this.engines = Array.from({ length: count }, () => new Engine(this, device, options));
    device.mirror = this;
    device.onClose = () => {
      for (const engine of this.engines) engine.host.stop();
    };
  }

  connect(request: ConnectRequest, handler: LinkHandler): StreamLink {
    const engine = this.#choose(request.endpoint);
    return engine.connect(request, handler);
  }

  listen(request: ListenRequest, handler: ListenHandler, ready: (listener: PortListener | undefined, error?: Error) => void): void {
    this.#choose(null).listen(this.#nextListener++, request, handler, ready);
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

  /** One engine is gone, and with it the device: its regions and queues cannot be told from those of the others. */
  fail(error: IwarpError): void {
    this.#device.fail();
    for (const engine of this.engines) engine.end(error);
  }

  // ------------------------------------------------------------------------------------------------------ StagMirror

  put(entry: StagEntry): void {
    this.#put(entry, null);
  }

  change(entry: StagEntry): void {
    this.#put(entry, null);
    this.#fence(null);
  }

  drop(entry: StagEntry): void {
    for (const { host } of this.engines) host.command({ type: 'drop', stag: entry.stag });
    this.#fence(null);
  }

  /** `source` has changed the entry by itself: the others have to follow before anybody here learns of it. */
  spread(entry: StagEntry, source: Engine): void {
    if (this.engines.length === 1) return;
    this.#put(entry, source);
    this.#fence(source);
  }

  #put(entry: StagEntry, except: Engine | null): void {
    const command: Command = { type: 'entry', entry: entryState(entry) };
    for (const engine of this.engines) if (engine !== except) engine.host.command(command);
  }

  #fence(except: Engine | null): void {
    for (const engine of this.engines) if (engine !== except) engine.host.fence();
  }
}

function entryState(entry: StagEntry): EntryState {
  const { stag, kind, pd, qp, valid, access, baseHi, baseLo, zeroBased, shared, bytes, region } = entry;
  return {
    stag, kind, pd, qp, valid, access, baseHi, baseLo, zeroBased, shared,
    bytes: bytes.length === 0 ? null : bytes, region: region === null ? 0 : region.stag,
  };
}

/** A listener and what it is waiting for. */
interface Listening {
  readonly handler: ListenHandler;
  readonly ready: (listener: PortListener | undefined, error?: Error) => void;
  done: (() => void) | undefined;
}

/** One engine with its links and listeners. */
export class Engine implements EngineUser {
  readonly host: EngineHost;
  readonly #progress: WorkerProgress;
  readonly #device: Device;
  readonly #links = new Map<number, EngineLink>();
  readonly #listeners = new Map<number, Listening>();
  /** Links that wait for room in the ring. */
  readonly #stalled = new Set<{ forward(): boolean }>();
  readonly #shared = new Map<ReceiveQueue, SharedQueue>();
  #nextLink = 2;
  #error: IwarpError | null = null;

  constructor(progress: WorkerProgress, device: Device, options: EngineOptions) {
    this.#progress = progress;
    this.#device = device;
    this.host = new EngineHost(options, this);
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
    if (this.#error !== null) {
      const error = this.#error;
      this.#device.defer(() => handler.failed(error));
      return link;
    }
    this.#links.set(id, link);
    this.host.ref();
    link.attach(endpoint, { type: 'connect', link: id, target, policy, confirm, privateData, wishes });
    return link;
  }

  listen(id: number, request: ListenRequest, handler: ListenHandler, ready: Listening['ready']): void {
    if (this.#error !== null) {
      const error = this.#error;
      this.#device.defer(() => ready(undefined, error));
      return;
    }
    this.#listeners.set(id, { handler, ready, done: undefined });
    this.host.ref();
    this.host.command({ type: 'listen', listener: id, ...request });
  }

  // ----------------------------------------------------------------------------------------------------- for links

  hasShared(queue: ReceiveQueue): boolean {
    return this.#shared.has(queue);
  }

  /** The engine's number for a shared receive queue, which belongs to the engine where it was used first. */
  sharedNumber(queue: ReceiveQueue): number {
    let shared = this.#shared.get(queue);
    if (shared === undefined) {
      if (queue.onPosted !== null) {
        throw new IwarpError('ERR_NOT_SUPPORTED', 'the shared receive queue is used on another engine: its queue pairs have to be on one');
      }
      shared = new SharedQueue(this, this.#shared.size + 1, queue);
      this.#shared.set(queue, shared);
    }
    return shared.number;
  }

  stall(link: { forward(): boolean }): void {
    this.#stalled.add(link);
    // If there is room after all, nobody will ring for it.
    if (!this.host.outbox.ring.waitForRoom(this.host.outbox.ring.maxRecord >> 1)) this.#device.defer(() => this.room());
  }

  forget(link: EngineLink): void {
    this.#stalled.delete(link);
    if (this.#links.delete(link.id)) this.host.unref();
  }

  /** An operation has gone well there: it holds here too, and on the other engines. */
  apply(operation: LocalOperation, run: () => unknown): void {
    run();
    this.#progress.spread(operation.entry, this);
  }

  invalidated(stag: number): void {
    const { stags } = this.#device;
    const entry = stags.find(stag);
    if (entry === null) return;
    stags.invalidate(entry);
    this.#progress.spread(entry, this);
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

  room(): void {
    for (const link of [...this.#stalled]) {
      this.#stalled.delete(link);
      if (!link.forward()) return;
    }
  }

  event(event: EngineEvent): void {
    switch (event.type) {
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
    this.host.ref();
    if (listening === undefined || listening.handler.full()) link.abort(); // closed meanwhile: the engine itself keeps the limit
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
    });
  }

  #endListener(id: number, error: Error | null): void {
    const listening = this.#listeners.get(id);
    if (!this.#listeners.delete(id) || listening === undefined) return;
    this.host.unref();
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
      listening.ready(undefined, error); // does nothing to one that is bound
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

/** A shared receive queue on its engine. */
class SharedQueue {
  readonly number: number;
  readonly #engine: Engine;
  readonly #queue: ReceiveQueue;
  #depth: number;

  constructor(engine: Engine, number: number, queue: ReceiveQueue) {
    this.#engine = engine;
    this.number = number;
    this.#queue = queue;
    this.#depth = queue.depth;
    engine.host.command({ type: 'shared-queue', srq: number, depth: queue.depth });
    queue.onPosted = () => void this.forward();
    this.forward();
  }

  forward(): boolean {
    const { host } = this.#engine;
    if (host.state !== 'running') return true;
    if (this.#queue.failed) host.command({ type: 'fail-shared', srq: this.number });
    if (this.#queue.depth > this.#depth) {
      this.#depth = this.#queue.depth;
      host.command({ type: 'resize-shared', srq: this.number, depth: this.#depth });
    }
    for (let wqe = this.#queue.handOn(); wqe !== null; wqe = this.#queue.handOn()) {
      if (host.outbox.open && writeReceive(host.outbox.ring, TO_ENGINE.SHARED_RECEIVE, this.number, wqe)) continue;
      this.#queue.handBack(false);
      host.outbox.publish();
      this.#engine.stall(this);
      return false;
    }
    host.outbox.publish();
    return true;
  }
}

/** One connection whose stream is in an engine. */
class EngineLink implements StreamLink {
  readonly id: number;
  readonly elsewhere = true;
  handler: LinkHandler | null;
  readonly #engine: Engine;
  #endpoint: StreamEndpoint | null = null;
  #state: 'connecting' | 'open' | 'gone' = 'connecting';
  #established = false;
  #local: PortAddress | undefined;
  #remote: PortAddress | undefined;
  #deciding = false;
  #ord = 0;
  #counters: StreamCounters | null = null;
  /** The receive of a shared queue that a message is filling. */
  #filling: ReceiveWqe | null = null;
  /** Behind a close nothing that is posted goes out. */
  #limit = Number.POSITIVE_INFINITY;
  /** Commands that wait behind requests which found no room. */
  readonly #behind: Command[] = [];
  #sendDepth = 0;
  #receiveDepth = 0;

  constructor(engine: Engine, id: number, handler: LinkHandler | null) {
    this.#engine = engine;
    this.id = id;
    this.handler = handler;
  }

  get opened(): boolean {
    return this.#local !== undefined;
  }

  get localAddress(): PortAddress | undefined {
    return this.#local;
  }

  get remoteAddress(): PortAddress | undefined {
    return this.#remote;
  }

  get deciding(): boolean {
    return this.#deciding;
  }

  get ord(): number {
    return this.#ord;
  }

  open(local: PortAddress, remote: PortAddress): void {
    this.#state = 'open';
    this.#local = local;
    this.#remote = remote;
  }

  // --------------------------------------------------------------------------------------------------------- calls

  /** Hand the queues over, and then say what they are for: nothing can come in before the receives are there. */
  attach(endpoint: StreamEndpoint, then: Command): void {
    const srq = endpoint.rqShared ? this.#engine.sharedNumber(endpoint.rq) : 0;
    this.#endpoint = endpoint;
    const { pd, qp, rights, extensions, maxOrd, sinkRight, sq, rq } = endpoint;
    this.#sendDepth = sq.depth;
    this.#receiveDepth = rq.depth;
    this.#engine.host.command({
      type: 'endpoint', link: this.id,
      endpoint: { pd, qp, sendDepth: sq.depth, receiveDepth: rq.depth, srq, rights, extensions, maxOrd, sinkRight },
    });
    this.#command(then);
  }

  cancel(): boolean {
    if (this.opened || this.#state === 'gone') return false;
    this.#engine.host.command({ type: 'cancel', link: this.id });
    this.#leave();
    return true;
  }

  accept(endpoint: StreamEndpoint, privateData: Uint8Array, wishes: Partial<DepthWishes>): void {
    this.#deciding = false;
    if (this.#state !== 'gone') this.attach(endpoint, { type: 'accept', link: this.id, privateData, wishes });
  }

  reject(privateData: Uint8Array): void {
    this.#deciding = false;
    this.#command({ type: 'reject', link: this.id, privateData });
  }

  confirm(_endpoint: StreamEndpoint, code?: number): void {
    this.#deciding = false;
    this.#command({ type: 'confirm', link: this.id, code });
  }

  close(): void {
    this.forward();
    this.#limit = Math.min(this.#limit, this.#endpoint?.sq.head ?? 0);
    this.#command({ type: 'close', link: this.id });
  }

  terminate(code: number): void {
    this.#command({ type: 'terminate', link: this.id, code });
  }

  abort(): void {
    if (this.#state !== 'gone') this.#engine.host.command({ type: 'abort', link: this.id });
  }

  setOrd(ord: number): void {
    this.#ord = ord;
    this.#command({ type: 'set-ord', link: this.id, ord });
  }

  presetMsn(qn: number, msn: number): void {
    this.#command({ type: 'preset-msn', link: this.id, qn, msn });
  }

  counters(): StreamCounters {
    if (this.#state === 'open') this.#counters = this.#engine.host.counters(this.id) ?? this.#counters;
    return this.#counters ?? noCounters();
  }

  #command(command: Command): void {
    if (this.#state === 'gone') return;
    if (this.#behind.length === 0 && this.forward()) this.#engine.host.command(command);
    else this.#behind.push(command);
  }

  kick(): void {
    this.forward();
  }

  /** Hand on what has been posted, receives first: an answer may come at once. False if the ring is full; then it goes on when there is room. */
  forward(): boolean {
    const endpoint = this.#endpoint;
    const { host } = this.#engine;
    if (endpoint === null || this.#state === 'gone' || host.state !== 'running') return true;
    const { outbox } = host;
    const { sq, rq, rqShared } = endpoint;
    this.#grow(endpoint);
    if (!rqShared) {
      for (let wqe = rq.handOn(); wqe !== null; wqe = rq.handOn()) {
        if (outbox.open && writeReceive(outbox.ring, TO_ENGINE.RECEIVE, this.id, wqe)) continue;
        rq.handBack(false);
        return this.#stall();
      }
    }
    for (; sq.next < sq.head && sq.next < this.#limit; sq.next++) {
      const wqe = sq.slot(sq.next);
      if (!outbox.open || !writeSend(outbox.ring, this.id, wqe)) return this.#stall();
      if (wqe.operation !== null) outbox.attach({ type: 'operation', operation: operationState(wqe.operation) } satisfies Command);
    }
    outbox.publish();
    if (this.#behind.length > 0) for (const command of this.#behind.splice(0)) host.command(command);
    return true;
  }

  #stall(): false {
    this.#engine.host.outbox.publish();
    this.#engine.stall(this);
    return false;
  }

  /** The engine's queues are never smaller than ours. */
  #grow({ sq, rq }: StreamEndpoint): void {
    if (sq.depth <= this.#sendDepth && rq.depth <= this.#receiveDepth) return;
    this.#sendDepth = Math.max(sq.depth, this.#sendDepth);
    this.#receiveDepth = Math.max(rq.depth, this.#receiveDepth);
    this.#engine.host.command({ type: 'resize', link: this.id, send: this.#sendDepth, receive: this.#receiveDepth });
  }

  // -------------------------------------------------------------------------------------------------- what comes back

  sent(status: number, count: number): void {
    const { sq, owner } = this.#endpoint!;
    for (let i = 0; i < count; i++) {
      const wqe = sq.slot(sq.tail);
      wqe.status = STATUSES[status]!;
      if (wqe.operation !== null && status === 0) this.#engine.apply(wqe.operation, wqe.local!);
      owner.sendCompleted(wqe);
    }
  }

  taken(): void {
    const { rq, owner } = this.#endpoint!;
    this.#filling = rq.take();
    if (this.#filling === null) return;
    this.#filling.taken = true;
    owner.receiveTaken();
  }

  received(flags: number, octets: number, invalidated: number, immediateHi: number, immediateLo: number): void {
    const { rq, rqShared, owner } = this.#endpoint!;
    const wqe = rqShared ? this.#filling : rq.take();
    this.#filling = null;
    if (wqe === null) return;
    wqe.status = STATUSES[flags & RECEIVED.STATUS]!;
    wqe.byteLength = octets;
    wqe.solicited = (flags & RECEIVED.SOLICITED) !== 0;
    wqe.invalidated = invalidated;
    wqe.hasImmediate = (flags & RECEIVED.IMMEDIATE) !== 0;
    if (wqe.hasImmediate) wqe.opcode = 'receive-immediate';
    wqe.immediateHi = immediateHi;
    wqe.immediateLo = immediateLo;
    if (!rqShared && (flags & RECEIVED.TAKEN) !== 0) {
      wqe.taken = true;
      owner.receiveTaken();
    }
    owner.receiveCompleted(wqe);
  }

  handle(event: Extract<EngineEvent, { link: number }>): void {
    const handler = this.handler;
    switch (event.type) {
      case 'opened':
        this.open(event.local, event.remote);
        handler?.opened();
        break;
      case 'failed':
        this.#leave();
        handler?.failed(unpackError(event.error));
        break;
      case 'stream': {
        this.#ord = event.ord;
        this.#deciding = event.deciding && (event.event.type === 'request' || event.event.type === 'response');
        if (event.event.type === 'established') this.#established = true;
        if (event.event.type === 'closed') {
          this.#counters = event.counters!;
          const { error } = event.event;
          this.#leave();
          handler?.event({ ...event.event, error: error === undefined ? undefined : unpackError(error) });
        } else {
          handler?.event(event.event);
        }
        break;
      }
      default:
    }
  }

  /** The engine has gone. */
  lose(error: IwarpError): void {
    const opened = this.opened;
    this.#counters ??= noCounters();
    this.#leave();
    if (opened) this.handler?.event({ type: 'closed', cause: 'lost', error });
    else this.handler?.failed(error);
  }

  /** The end of the link. What the engine has not completed is in our queues still, and counts as not handed on. */
  #leave(): void {
    this.#state = 'gone';
    this.#deciding = false;
    this.#behind.length = 0;
    this.#engine.forget(this);
    if (this.#endpoint === null) return;
    const { sq, rq, rqShared, owner } = this.#endpoint;
    if (!this.#established) sq.next = sq.tail;
    if (!rqShared) {
      rq.handBack(true);
    } else if (this.#filling !== null) {
      this.#filling.status = 'flushed';
      owner.receiveCompleted(this.#filling);
      this.#filling = null;
    }
  }
}

function operationState(operation: LocalOperation): OperationState {
  const index = operation.entry.stag;
  if (operation.type === 'bind') {
    const { entry: _entry, region: _region, binder: _binder, ...rest } = operation;
    return { ...rest, index };
  }
  const { entry: _entry, ...rest } = operation;
  return { ...rest, index } as OperationState;
}
