/**
 * One connection in the engine: its queues, and its stream through a link of `cm/`. What happens on it
 * becomes records and events for the application's thread.
 */
import type { ListenerLimits, ListenerSlot } from '../listener-limits.ts';
import type { LinkHandler, StreamLink } from '../engine.ts';
import type { WindowBinder } from '../../ddp/stag-table.ts';
import type { StreamEvent } from '../../stream/types.ts';
import { ReceiveQueue, SendQueue, type ReceiveWqe, type SendWqe, type WorkOwner } from '../../queues/work.ts';
import type { EngineWorker } from './engine-worker.ts';
import { packError, type Command, type EndpointState, type OperationState } from '../channel/messages.ts';
import { NUMBER_OF_STATUS, readReceive, readSend, RECEIVED } from '../channel/records.ts';
import type { RecordMemory } from '../channel/ring.ts';
import type { StreamEndpoint } from '../../queues/endpoint.ts';

/** One connection of an engine. */
export class WorkerLink implements LinkHandler, WorkOwner, WindowBinder {
  readonly id: number;
  readonly #engine: EngineWorker;
  /** Null until the application has said what its own one is for. */
  link: StreamLink | null = null;
  endpoint: StreamEndpoint | null = null;
  boundWindows = 0;
  /** Counts of the listener that accepted it, and its part in them; null for an outbound connection. */
  #limits: ListenerLimits | null = null;
  #slot: ListenerSlot | null = null;

  constructor(engine: EngineWorker, id: number) {
    this.#engine = engine;
    this.id = id;
  }

  /** Counts the link with the listener that it has come to. */
  admit(limits: ListenerLimits): void {
    this.#limits = limits;
    this.#slot = limits.take(this.link!);
  }

  attach(state: EndpointState, shared: ReceiveQueue | undefined): void {
    const { pd, qp, sendDepth, receiveDepth, srq: _srq, ...rest } = state;
    this.endpoint = {
      ...rest,
      pdHandle: pd,
      number: qp,
      stags: this.#engine.replica.table,
      sq: new SendQueue(sendDepth),
      rq: shared ?? new ReceiveQueue(receiveDepth),
      rqShared: shared !== undefined,
      owner: this,
    };
  }

  send(memory: RecordMemory, at: number, end: number, operation: OperationState | null): void {
    const { replica } = this.#engine;
    const wqe = readSend(memory, at, end, this.endpoint!.sq, replica);
    if (operation !== null) wqe.local = replica.work(operation, this);
    this.link?.kick(0); // the ring is emptied at a stretch: there is nothing to be gained by batches
  }

  receive(memory: RecordMemory, at: number, end: number): void {
    readReceive(memory, at, end, this.endpoint!.rq, this.#engine.replica);
  }

  obey(command: Extract<Command, { link: number }>): void {
    if (command.type === 'resize') {
      this.endpoint!.sq.resize(command.send);
      if (!this.endpoint!.rqShared) this.endpoint!.rq.resize(command.receive);
      return;
    }
    const { link } = this;
    if (link === null) {
      if (command.type === 'cancel') this.#end(); // given up before it was begun
      return;
    }
    switch (command.type) {
      case 'accept':
        if (this.#slot !== null) this.#limits!.accepted(this.#slot);
        link.accept(this.endpoint!, command.privateData, command.wishes);
        break;
      case 'reject':
        this.#answer();
        link.reject(command.privateData);
        break;
      case 'confirm':
        link.confirm(command.code);
        break;
      case 'set-ord':
        link.setOrd(command.ord);
        break;
      case 'set-keep-alive':
        link.setKeepAlive(command.on, command.delay);
        break;
      case 'cancel':
        if (!link.cancel() && link.opened) link.abort();
        if (!link.opened) this.#end();
        break;
      default:
        if (!link.opened) break;
        if (command.type === 'terminate') link.terminate(command.code);
        else if (command.type === 'close') link.close();
        else if (command.type === 'abort') link.abort();
        if (command.type === 'close' || command.type === 'abort') this.#leave();
    }
  }

  #answer(): void {
    if (this.#slot !== null) this.#limits!.answered(this.#slot);
  }

  /** The request will get no answer. */
  #leave(): void {
    if (this.#slot !== null) this.#limits!.leave(this.#slot);
  }

  /**
   * The link is over. A stream completes the requests that it has taken; for all others this settles only
   * their memory.
   */
  #end(): void {
    if (this.#slot !== null) this.#limits!.gone(this.#slot);
    if (this.endpoint !== null) {
      const { sq } = this.endpoint;
      for (let at = sq.tail; at < sq.head; at++) sq.slot(at).local?.memory?.settled();
    }
    this.#engine.forget(this);
  }

  // --------------------------------------------------------------------------------------------- LinkHandler

  opened(): void {
    this.#engine.tell({
      type: 'opened',
      link: this.id,
      local: this.link!.localAddress!,
      remote: this.link!.remoteAddress!,
      mtu: this.link!.mtu,
      tls: this.link!.tls,
    });
  }

  failed(error: Error): void {
    this.#engine.tell({ type: 'failed', link: this.id, error: packError(error) });
    this.#end();
  }

  event(event: StreamEvent): void {
    const link = this.link!;
    const closed = event.type === 'closed';
    const { ord, deciding } = link;
    this.#engine.tell({
      type: 'stream',
      link: this.id,
      event: closed
        ? { ...event, error: event.error === undefined ? undefined : packError(event.error) }
        : compact(event),
      ord,
      deciding,
      ...(event.type === 'request' ? { tls: link.tls } : {}),
      counters: closed ? link.counters() : undefined,
    });
    if (event.type === 'request' && this.#slot !== null) this.#limits!.requested(this.#slot);
    if (event.type === 'established') this.#answer();
    if (event.type === 'startup-failed') this.#leave();
    if (closed) this.#end();
  }

  // ----------------------------------------------------------------------------------------------- WorkOwner

  /** The program's side finds the request of a completion by its turn, and so needs the new order first. */
  sendAdvanced(places: number): void {
    this.#engine.advanced(this.id, places);
  }

  sendCompleted(wqe: SendWqe): void {
    const status = NUMBER_OF_STATUS.get(wqe.status)!;
    if (wqe.local !== null) {
      wqe.local.memory?.settled();
      wqe.local = null;
    }
    this.endpoint!.sq.complete(true); // the application's own entry waits to be polled; this one is free
    this.#engine.sent(this, status);
  }

  receiveTaken(): void {
    // A queue that is not shared is taken in order: its completion is enough.
    if (this.endpoint!.rqShared) this.#engine.taken(this.id);
  }

  receiveCompleted(wqe: ReceiveWqe): void {
    const flags =
      NUMBER_OF_STATUS.get(wqe.status)! |
      (wqe.taken ? RECEIVED.TAKEN : 0) |
      (wqe.solicited ? RECEIVED.SOLICITED : 0) |
      (wqe.hasImmediate ? RECEIVED.IMMEDIATE : 0);
    this.#engine.received(this.id, flags, wqe);
    wqe.queue.release(wqe);
  }
}

/** A copy of an event whose bytes do not carry the buffers around them through the message port. */
function compact<T>(value: T): T {
  if (value instanceof Uint8Array) return new Uint8Array(value) as T; // a Buffer's `slice` would be a view
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, field]) => [name, compact(field as unknown)]),
  ) as T;
}
