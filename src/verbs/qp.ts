/**
 * Queue pairs: verbs draft 6 (states), 8.1 and 8.2 (posting, order), 9.2.5. The state table is requirements annex B; every change of
 * state is one line of it.
 */
import { checkBoolean, checkInteger, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { Machine, type MachineTable } from '../base/fsm.ts';
import { TERM } from '../base/terminate-codes.ts';
import type { StagEntry } from '../ddp/stag-table.ts';
import type { Negotiated } from '../mpa/policy.ts';
import { flushReceives } from '../rdmap/receiver.ts';
import type { StreamCounters, StreamEndpoint, StreamEvent } from '../rdmap/stream-types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import { ReceiveQueue, SendQueue, type ReceiveWqe, type SendWqe, type WorkOwner } from '../rdmap/work.ts';
import { CompletionQueue } from './cq.ts';
import type { ProtectionDomain } from './memory.ts';
import { fillReceive, fillSend, type ReceiveWorkRequest, type SendWorkRequest } from './post.ts';
import { SharedReceiveQueue } from './srq.ts';

/** States of the verbs draft (6.2). */
export type QpState = 'idle' | 'rts' | 'closing' | 'terminate' | 'error';
export type QpInput =
  | 'attach' | 'llp-close' | 'terminate' | 'fail' | 'llp-closed' | 'reset' | 'modify-error';

/** Requirements annex B, with Modify and network events as inputs. */
export const QP_TABLE: MachineTable<QpState, QpInput> = {
  name: 'queue pair',
  initial: 'idle',
  transitions: {
    idle: { attach: 'rts', 'modify-error': 'error', fail: 'error' },
    rts: { 'llp-close': 'closing', terminate: 'terminate', fail: 'error', 'modify-error': 'error' },
    // A Terminate found while closing ends in Error when the connection is gone.
    closing: { 'llp-closed': 'idle', fail: 'error', terminate: 'terminate' },
    terminate: { fail: 'error' },
    error: { fail: 'error', reset: 'idle' },
  },
};

/** Options of {@link ProtectionDomain.createQp}. */
export interface QueuePairOptions {
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  /** Entries of each queue; with `srq` the receive queue is the shared one (VERBS-127). */
  readonly maxSendWr?: number;
  readonly maxRecvWr?: number;
  readonly maxSendSge?: number;
  readonly maxRecvSge?: number;
  /** Largest inline data, octets. */
  readonly maxInline?: number;
  readonly srq?: SharedReceiveQueue;
  /** Whether a request without `signaled` gives a completion on success. Default true. */
  readonly signalAll?: boolean;
  /** Let the peer write, read (VERBS-142). Both default to true: regions grant, queue pairs may forbid. */
  readonly inboundWrite?: boolean;
  readonly inboundRead?: boolean;
  /** Accept RFC 7306 opcodes. Default true. */
  readonly extensions?: boolean;
}

/** What a queue pair asks of the connection that carries it. */
export interface QpController {
  kick(): void;
  close(): void;
  terminate(code: number): void;
  abort(): void;
  readonly ord: number;
  setOrd(ord: number): void;
  counters(): StreamCounters;
}

/** The answer of {@link QueuePair.query}. */
export interface QpAttributes {
  readonly number: number;
  readonly state: QpState;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  readonly maxInline: number;
  readonly ird: number;
  readonly ord: number;
  /** Requests posted and not completed. */
  readonly sendOutstanding: number;
  readonly recvPosted: number;
  /** The Terminate sent or received, in states Terminate and Error (VERBS-029). */
  readonly terminate: TerminateInfo | undefined;
  readonly negotiated: Negotiated | undefined;
}

const DEFAULT_WR = 128;
const DEFAULT_SGE = 4;
const DEFAULT_INLINE = 256;

/**
 * A queue pair.
 *
 * @example
 * qp.postRecv({ wrId: 1, sges: [{ mr }] });
 * qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr, length: 5 }] });
 */
export class QueuePair implements WorkOwner {
  readonly pd: ProtectionDomain;
  readonly number: number;
  readonly sendCq: CompletionQueue;
  readonly recvCq: CompletionQueue;
  readonly srq: SharedReceiveQueue | null;
  /** @internal */
  readonly sq: SendQueue;
  /** @internal */
  readonly rq: ReceiveQueue;
  /** @internal The queue pair as a stream sees it. */
  readonly endpoint: StreamEndpoint;
  readonly #limits: { readonly maxSge: number; readonly maxRecvSge: number; readonly maxInline: number; readonly signalAll: boolean };
  readonly #machine = new Machine(QP_TABLE);
  #controller: QpController | null = null;
  #flushing = false;
  #terminate: TerminateInfo | undefined;
  #negotiated: Negotiated | undefined;
  #destroyed = false;
  #overflowed = false;
  /** @internal Memory windows bound through this queue pair. */
  boundWindows = 0;

  /** @internal Use {@link ProtectionDomain.createQp}. */
  constructor(pd: ProtectionDomain, options: QueuePairOptions) {
    if (typeof options !== 'object' || options === null) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options must be an object, got ${show(options)}`);
    }
    const { limits } = pd.device;
    const sendCq = checkCq('options.sendCq', options.sendCq, pd);
    const recvCq = checkCq('options.recvCq', options.recvCq, pd);
    const { srq = null } = options;
    if (srq !== null && !(srq instanceof SharedReceiveQueue)) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options.srq must be a SharedReceiveQueue, got ${show(srq)}`);
    }
    if (srq !== null && srq.pd.device !== pd.device) throw new IwarpError('ERR_WRONG_PD', 'options.srq belongs to another device');
    const depth = (name: 'maxSendWr' | 'maxRecvWr'): number => checkInteger(`options.${name}`, options[name] ?? DEFAULT_WR, 1, limits.maxQpWr);
    const sges = (name: 'maxSendSge' | 'maxRecvSge'): number => checkInteger(`options.${name}`, options[name] ?? DEFAULT_SGE, 1, limits.maxSge);
    const sendDepth = depth('maxSendWr');
    const recvDepth = depth('maxRecvWr');
    this.#limits = {
      maxSge: sges('maxSendSge'),
      maxRecvSge: sges('maxRecvSge'),
      maxInline: checkInteger('options.maxInline', options.maxInline ?? DEFAULT_INLINE, 0, limits.maxInline),
      signalAll: checkBoolean('options.signalAll', options.signalAll ?? true),
    };
    const rights = {
      write: checkBoolean('options.inboundWrite', options.inboundWrite ?? true),
      read: checkBoolean('options.inboundRead', options.inboundRead ?? true),
    };
    const extensions = checkBoolean('options.extensions', options.extensions ?? true);
    pd.use();
    try {
      this.number = pd.device.takeQpNumber();
    } catch (error) {
      pd.users--;
      throw error;
    }
    this.pd = pd;
    this.sendCq = sendCq;
    this.recvCq = recvCq;
    this.srq = srq;
    this.sq = new SendQueue(sendDepth);
    this.rq = srq === null ? new ReceiveQueue(recvDepth) : srq.queue;
    this.endpoint = {
      stags: pd.device.stags,
      pd: pd.handle,
      qp: this.number,
      sq: this.sq,
      rq: this.rq,
      rqShared: srq !== null,
      rights,
      extensions,
      owner: this,
      invalidate: (entry) => this.invalidate(entry),
    };
    sendCq.users++;
    recvCq.users++;
    if (srq !== null) srq.users++;
  }

  get state(): QpState {
    return this.#machine.state;
  }

  // ------------------------------------------------------------------------------------------------------- posting

  /**
   * Post one request or several, in order. Returns how many were posted; the first mistake throws, and what stood before it in the list
   * stays posted, as `posted` of the error's cause tells (VERBS-090). Returns at once; the memory belongs to the stack until completion.
   *
   * In Idle requests wait for the connection (VERBS-031); in Closing, Terminate and Error they complete as flushed (VERBS-058).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE, ERR_ACCESS, ERR_WRONG_PD, ERR_INVALID_REGION, ERR_TOO_LARGE, ERR_QUEUE_FULL, ERR_DESTROYED
   */
  postSend(requests: SendWorkRequest | readonly SendWorkRequest[]): number {
    this.#checkAlive();
    if (!Array.isArray(requests)) {
      this.#postOne('request', requests as SendWorkRequest);
    } else {
      for (let i = 0; i < requests.length; i++) this.#postOne(`requests[${i}]`, requests[i] as SendWorkRequest);
    }
    this.#afterPost();
    return Array.isArray(requests) ? requests.length : 1;
  }

  #postOne(name: string, request: SendWorkRequest): void {
    const wqe = this.sq.peekFree();
    if (wqe === null) {
      this.#afterPost();
      throw new IwarpError('ERR_QUEUE_FULL', `${name}: the send queue has its ${this.sq.depth} entries in use`); // VERBS-091
    }
    try {
      fillSend(name, request, wqe, this.pd, this.#limits);
    } catch (error) {
      this.#afterPost();
      throw error;
    }
    this.sq.push();
  }

  /** Post receives, in order (VERBS-095). ERR_INVALID_STATE on a queue pair with a shared receive queue (VERBS-126). */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): number {
    this.#checkAlive();
    if (this.srq !== null) throw new IwarpError('ERR_INVALID_STATE', 'receives of this queue pair are posted to its shared receive queue');
    const list = Array.isArray(requests) ? (requests as readonly ReceiveWorkRequest[]) : [requests as ReceiveWorkRequest];
    const { pd } = this;
    try {
      list.forEach((request, i) => fillReceive(list.length > 1 ? `requests[${i}]` : 'request', request, this.rq, pd, this.#limits.maxRecvSge));
    } finally {
      this.#afterPost();
    }
    return list.length;
  }

  /** In Idle posts wait; with a connection the sender is told; without one, in Error, they are flushed. */
  #afterPost(): void {
    const { state } = this;
    if (this.#controller !== null) {
      this.#controller.kick();
      // VERBS-042: the receive queue has been flushed already when a close is under way.
      if (state === 'closing' && this.srq === null) flushReceives(this.rq, this);
    } else if (state === 'error') {
      this.#flushAll();
    }
  }

  // ------------------------------------------------------------------------------------------------ modify and query

  /**
   * Modify the queue pair (VERBS-022): `closing` finishes the posted work and closes, `terminate` tells the peer 0/0/00 and closes,
   * `error` resets, `idle` makes a queue pair in Error usable again. `ord` may be lowered (VERBS-024).
   *
   * @throws ERR_INVALID_STATE for a transition that the table does not have; nothing has changed then (VERBS-021)
   */
  modify(change: { readonly state?: 'idle' | 'closing' | 'terminate' | 'error'; readonly ord?: number }): void {
    this.#checkAlive();
    if (typeof change !== 'object' || change === null) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `change must be an object, got ${show(change)}`);
    }
    const { state: target, ord } = change;
    if (ord !== undefined) checkInteger('change.ord', ord, 0, this.#controller?.ord ?? this.pd.device.limits.maxQpInitRdAtom);
    if (target !== undefined) this.#modifyState(target);
    if (ord !== undefined) this.#controller?.setOrd(ord);
  }

  #modifyState(target: 'idle' | 'closing' | 'terminate' | 'error'): void {
    checkOneOf('change.state', target, ['idle', 'closing', 'terminate', 'error']);
    const { state } = this;
    const refuse = (): never => {
      throw new IwarpError('ERR_INVALID_STATE', `change.state: ${state} to ${target} is not allowed`);
    };
    switch (target) {
      case 'idle':
        if (state === 'idle') return;
        if (state !== 'error' || this.#flushing || this.#controller !== null) refuse(); // VERBS-059
        this.#machine.step('reset');
        this.#terminate = undefined;
        return;
      case 'closing':
        if (state !== 'rts') refuse();
        this.#controller!.close();
        return;
      case 'terminate':
        if (state !== 'rts') refuse();
        this.#controller!.terminate(TERM.LOCAL_CATASTROPHIC);
        return;
      case 'error':
        if (state !== 'rts' && state !== 'idle') refuse();
        this.#machine.step('modify-error');
        if (this.#controller !== null) this.#controller.abort();
        else this.#flushAll();
    }
  }

  query(): QpAttributes {
    return {
      number: this.number,
      state: this.state,
      maxSendWr: this.sq.depth,
      maxRecvWr: this.rq.depth,
      maxSendSge: this.#limits.maxSge,
      maxRecvSge: this.#limits.maxRecvSge,
      maxInline: this.#limits.maxInline,
      ird: this.#negotiated?.ird ?? 0,
      ord: this.#controller?.ord ?? this.#negotiated?.ord ?? 0,
      sendOutstanding: this.sq.outstanding,
      recvPosted: this.rq.posted,
      terminate: this.#terminate,
      negotiated: this.#negotiated,
    };
  }

  /** Counts of the present connection; undefined without one. */
  counters(): StreamCounters | undefined {
    return this.#controller?.counters();
  }

  /**
   * Destroy the queue pair in any state; a connection is reset and no further completion is produced (VERBS-026, VERBS-027).
   * ERR_IN_USE while memory windows are bound through it.
   */
  destroy(): void {
    if (this.#destroyed) return;
    if (this.boundWindows > 0) throw new IwarpError('ERR_IN_USE', `${this.boundWindows} memory windows are bound through the queue pair`);
    this.#destroyed = true;
    this.#controller?.abort();
    this.sendCq.users--;
    this.recvCq.users--;
    if (this.srq !== null) this.srq.users--;
    this.pd.users--;
    this.pd.device.live.qp--;
  }

  get destroyed(): boolean {
    return this.#destroyed;
  }

  // --------------------------------------------------------------------------------------- for the connection manager

  /** @internal The connection that will carry this queue pair; ERR_INVALID_STATE if it has one or is not Idle. */
  attach(controller: QpController): void {
    this.#checkAlive();
    if (this.#controller !== null || this.state !== 'idle') {
      throw new IwarpError('ERR_INVALID_STATE', `qp is ${this.#controller === null ? `in state ${this.state}` : 'already used by a connection'}`);
    }
    this.#controller = controller;
  }

  /** @internal Before a connection has been established: give the queue pair back as it was. */
  detach(): void {
    this.#controller = null;
    if (this.state === 'error') this.#flushAll();
  }

  /** @internal What happened on the stream. */
  handleStreamEvent(event: StreamEvent): void {
    const { device } = this.pd;
    switch (event.type) {
      case 'established':
        this.#negotiated = event.negotiated;
        this.#machine.step('attach');
        break;
      case 'terminate':
        this.#terminate = event.terminate;
        if (this.#machine.accepts('terminate')) this.#machine.step('terminate');
        device.raise(
          event.terminate.origin === 'remote'
            ? { type: 'terminate-received', qp: this, terminate: event.terminate }
            : { type: 'terminate-sent', qp: this, terminate: event.terminate },
        );
        break;
      case 'closing':
        if (this.#machine.accepts('llp-close')) this.#machine.step('llp-close');
        device.raise({ type: 'llp-closing', qp: this, by: event.by });
        break;
      case 'closed':
        this.#handleClosed(event);
        break;
      default: // start-up events do not concern the queue pair
    }
  }

  #handleClosed(event: Extract<StreamEvent, { type: 'closed' }>): void {
    const { device } = this.pd;
    const { cause, error } = event;
    this.#controller = null;
    if (this.state === 'idle' && this.#negotiated === undefined) return; // never attached
    if (cause === 'graceful' && this.#machine.accepts('llp-closed')) {
      this.#machine.step('llp-closed');
      device.raise({ type: 'llp-close-complete', qp: this });
    } else {
      this.#machine.step('fail');
      if (cause === 'bad-close') device.raise({ type: 'bad-close', qp: this });
      else if (cause === 'reset') device.raise({ type: 'llp-connection-reset', qp: this, error });
      else if (cause === 'lost' || cause === 'timeout') device.raise({ type: 'llp-connection-lost', qp: this, error });
    }
    this.#negotiated = undefined;
    this.#flushAll();
  }

  /** Complete everything that is left in the queues as flushed (VERBS-037, VERBS-056). */
  #flushAll(): void {
    this.#flushing = true;
    while (this.sq.tail !== this.sq.head) {
      const wqe = this.sq.slot(this.sq.tail);
      if (wqe.status === 'success') wqe.status = 'flushed';
      if (this.sq.next === this.sq.tail) this.sq.next++;
      this.sendCompleted(wqe);
    }
    if (this.srq === null) flushReceives(this.rq, this);
    this.#flushing = false;
  }

  // ------------------------------------------------------------------------------------------------ for the stream

  /** @internal */
  sendCompleted(wqe: SendWqe): void {
    const silent = !wqe.signaled && wqe.status === 'success'; // VERBS-106
    this.sq.complete(silent || this.#destroyed);
    if (silent || this.#destroyed) return; // VERBS-027
    if (!this.sendCq.push(wqe, this)) this.#overflow(this.sendCq);
  }

  /** @internal */
  receiveCompleted(wqe: ReceiveWqe): void {
    if (this.#destroyed) {
      wqe.queue.release(wqe);
      return;
    }
    if (!this.recvCq.push(wqe, this)) {
      wqe.queue.release(wqe);
      this.#overflow(this.recvCq);
    }
  }

  /** @internal */
  invalidate(entry: StagEntry): void {
    entry.valid = false;
  }

  /** VERBS-010, SEC-012: the queue pair that overflowed is terminated; others are not touched. */
  #overflow(cq: CompletionQueue): void {
    if (this.#overflowed) return;
    this.#overflowed = true;
    const { device } = this.pd;
    device.raise({ type: 'cq-overflow', cq, qp: this });
    // Behind the present input: the stream is in the middle of one.
    device.defer(() => this.#controller?.terminate(TERM.RDMAP_STREAM_CATASTROPHIC));
  }

  #checkAlive(): void {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the queue pair has been destroyed');
  }
}

function checkCq(name: string, cq: unknown, pd: ProtectionDomain): CompletionQueue {
  if (!(cq instanceof CompletionQueue)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a CompletionQueue, got ${show(cq)}`);
  if (cq.device !== pd.device) throw new IwarpError('ERR_WRONG_PD', `${name} belongs to another device`);
  if (cq.destroyed) throw new IwarpError('ERR_DESTROYED', `${name} has been destroyed`);
  return cq;
}
