/**
 * Queue pairs: verbs draft 6 (states), 8.1 and 8.2 (posting, order), 9.2.5. The state table is in
 * `qp-states.ts`.
 */
import { signalOf, type WaitOptions } from '../base/abort.ts';
import {
  checkBoolean,
  checkInteger,
  checkOneOf,
  checkOptions,
  IwarpError,
  type Names,
} from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import { TERM } from '../base/terminate-codes.ts';
import { Waiters } from '../base/waiters.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StreamCounters, StreamEvent } from '../stream/types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import { flushReceives, flushSends, isRequest, type ReceiveWqe, type SendWqe } from '../queues/work.ts';
import type { CompletionQueue } from './cq.ts';
import type { ProtectionDomain } from './pd.ts';
import { fillReceive, fillSend, postList, type ReceiveWorkRequest, type SendWorkRequest } from './post.ts';
import { QpEndpoint } from './qp-endpoint.ts';
import { checkQpOptions } from './qp-options.ts';
import { MODIFY_TABLE, QP_STATES, QP_TABLE, type QpInput, type QpState } from './qp-states.ts';
import type { QpAttributes, QpChange, QpController, QueuePairOptions } from './qp-types.ts';

const CHANGE: Names<QpChange> = { state: true, ord: true, maxSendWr: true, maxRecvWr: true, rqLimit: true };

/**
 * A queue pair.
 *
 * @example
 * qp.postRecv({ wrId: 1, sges: [{ mr }] });
 * qp.postSend({ wrId: 2, opcode: 'send', sges: [{ mr, length: 5 }] });
 */
export class QueuePair extends QpEndpoint {
  // A WindowBinder to the windows bound through it.
  /** @internal False if the peer is known to lack RFC 7306. */
  peerExtensions: boolean | undefined = undefined;
  /** The program's own value, from the options; the stack does not use it. */
  context: unknown;
  #state: QpState = QP_TABLE.initial;
  #controller: QpController | null = null;
  #flushing = false;
  /** The connection has closed in order, and the events raised before that are still to be delivered. */
  #ending = false;
  #terminate: TerminateInfo | undefined;
  #negotiated: Negotiated | undefined;
  #destroyed = false;
  #overflowed = false;
  /** @internal May be lowered (VERBS-024). */
  override maxOrd: number;
  #rqLimit: number;
  /** Receives: taken by messages, taken and not polled, posted and completed on this queue pair. */
  #recvTaken = 0;
  #recvInProgress = 0;
  #recvPosted = 0;
  /** Reads and atomics that the present call has posted. */
  #requests = 0;
  #recvCompleted = 0;
  #drains: Waiters<void> | null = null;
  /**
   * @internal A message has taken a receive, and `left` are posted. Where the stream runs in this thread, a
   *   receive that is posted in the call serves the next message.
   */
  onReceiveTaken: ((left: number) => void) | null = null;
  /** @internal The protocol above it, for `iwarp stat`; null for the program's own. */
  carries: 'messages' | 'rsocket' | 'sdp' | null = null;
  /** @internal Memory windows bound through this queue pair. */
  boundWindows = 0;

  /** @internal Use {@link ProtectionDomain.createQp}. */
  constructor(pd: ProtectionDomain, options: QueuePairOptions) {
    const checked = pd.qpOptions.of(checkQpOptions(pd, options));
    super(pd, checked, takeNumber(pd));
    this.context = options.context;
    this.maxOrd = checked.ord;
    this.#rqLimit = checked.rqLimit;
    this.sendCq.users++;
    this.recvCq.users++;
    if (this.srq !== null) this.srq.users++;
    pd.device.objects.qp.add(this);
  }

  /**
   * State (verbs draft 6.2): `idle` before and after a connection, `rts` with one. After an orderly close it
   * stays `closing` until the events raised before have been delivered, so that a handler that posts never
   * finds a queue pair whose connection has ended without a report.
   */
  get state(): QpState {
    return this.#ending ? 'closing' : this.#state;
  }

  #step(input: QpInput): void {
    this.#state = nextState(QP_TABLE, this.#state, input, this);
  }

  #accepts(input: QpInput): boolean {
    return QP_TABLE.transitions[this.#state][input] !== undefined;
  }

  // ------------------------------------------------------------------------------------------------- posting

  /**
   * Post one request or several, in order, and return how many. The first mistake throws a {@link PostError};
   * requests before it in the list stay posted, and its `posted` counts them (VERBS-090). Returns at once;
   * the memory belongs to the stack until completion (VERBS-093).
   *
   * In state Idle requests wait for the connection (VERBS-031). In Closing, Terminate and Error they complete
   * as flushed (VERBS-058).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE, ERR_ACCESS, ERR_WRONG_PD, ERR_INVALID_REGION,
   *   ERR_INVALID_STATE, ERR_TOO_LARGE, ERR_QUEUE_FULL, ERR_NOT_SUPPORTED, ERR_DESTROYED
   *
   * @example
   * qp.postSend({ wrId: 1, opcode: 'rdma-write', sges: [{ mr, length: 64 }], rkey, remoteAddr: 0n, immediate:
   * 7n });
   */
  postSend(requests: SendWorkRequest | readonly SendWorkRequest[]): number {
    this.#checkAlive();
    if (!Array.isArray(requests))
      return this.#postAll('request', [requests as SendWorkRequest], this.#postOneSend);
    return this.#postAll('requests', requests as readonly SendWorkRequest[], this.#postOneSend);
  }

  /**
   * Post receives, in order (VERBS-095). Errors as in {@link postSend}; ERR_INVALID_STATE with a shared
   * receive queue (VERBS-126).
   *
   * @example
   * qp.postRecv([{ wrId: 1, sges: [{ mr, length: 4096 }] }, { wrId: 2, sges: [{ mr, offset: 4096 }] }]);
   */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): number {
    this.#checkAlive();
    if (this.srq !== null)
      throw new IwarpError(
        'ERR_INVALID_STATE',
        'receives of this queue pair are posted to its shared receive queue',
      );
    if (!Array.isArray(requests))
      return this.#postAll('request', [requests as ReceiveWorkRequest], this.#postOneReceive);
    return this.#postAll('requests', requests as readonly ReceiveWorkRequest[], this.#postOneReceive);
  }

  #postAll<T>(
    name: string,
    list: readonly T[],
    post: (this: QueuePair, name: string, request: T) => void,
  ): number {
    const posted = postList(this, name, list, post, this.#afterPost);
    this.#afterPost();
    return posted;
  }

  #postOneSend(name: string, request: SendWorkRequest): void {
    const wqe = this.sq.peekFree();
    if (wqe === null)
      throw new IwarpError(
        'ERR_QUEUE_FULL',
        `${name}: the send queue has its ${this.sq.depth} entries in use`,
      ); // VERBS-091
    fillSend(name, request, wqe, this);
    this.sq.push();
    if (isRequest(wqe)) this.#requests++;
  }

  #postOneReceive(name: string, request: ReceiveWorkRequest): void {
    fillReceive(name, request, this.rq, this.pd, this.options.maxRecvSge);
    this.#recvPosted++;
  }

  /**
   * In Idle, posts wait. With a connection they go to its engine; in Closing the stream still finishes
   * earlier requests, so receives stay posted until it has closed (VERBS-042). Without a connection, in Error
   * and until the end of a connection has been reported, posts are flushed at once.
   */
  #afterPost(): void {
    const { state } = this;
    if (this.#controller !== null) {
      this.#controller.kick(this.#requests);
      this.#requests = 0;
    } else if (state === 'error' || this.#ending) {
      this.#flushAll();
    }
  }

  // ---------------------------------------------------------------------------------------- modify and query

  /**
   * Modify the queue pair (VERBS-022). States: `closing` finishes the posted work and closes; `terminate`
   * sends the peer a Terminate 0/0/00 and closes; `error` resets the connection; `idle` makes a queue pair in
   * Error usable again. A refused change changes nothing (VERBS-021). In Closing and Terminate every change
   * is refused (VERBS-023).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE, ERR_IN_USE, ERR_DESTROYED
   *
   * @example
   * qp.modify({ state: 'closing' }); // rdma_disconnect
   * await qp.drainSend();
   */
  modify(change: QpChange): void {
    this.#checkAlive();
    checkOptions('change', change, CHANGE);
    const { state: target, ord, maxSendWr, maxRecvWr, rqLimit } = change;
    const { limits } = this.pd.device;
    if (target !== undefined) checkOneOf('change.state', target, QP_STATES);
    if (ord !== undefined) checkInteger('change.ord', ord, 0, this.#controller?.ord ?? this.maxOrd);
    if (maxSendWr !== undefined) checkInteger('change.maxSendWr', maxSendWr, 1, limits.maxQpWr);
    if (maxRecvWr !== undefined) checkInteger('change.maxRecvWr', maxRecvWr, 1, limits.maxQpWr);
    if (rqLimit !== undefined) checkInteger('change.rqLimit', rqLimit, 0, this.rq.depth);
    this.#checkTransition(target ?? this.state);
    this.#resize(maxSendWr, maxRecvWr);
    if (rqLimit !== undefined) this.#rqLimit = rqLimit;
    if (ord !== undefined) this.#setOrd(ord);
    if (target !== undefined && target !== this.state) this.#enter(target);
  }

  /** The 5 x 5 matrix; Idle to RTS needs a stream, which only connecting or accepting gives (VERBS-033). */
  #checkTransition(target: QpState): void {
    const { state } = this;
    const legal = MODIFY_TABLE[state].includes(target);
    // VERBS-059
    const flushing = state === 'error' && target === 'idle' && (this.#flushing || this.#controller !== null);
    if (!legal || flushing)
      throw new IwarpError('ERR_INVALID_STATE', `change.state: ${state} to ${target} is not allowed`);
  }

  #enter(target: QpState): void {
    switch (target) {
      case 'closing':
        this.#controller!.close();
        return;
      case 'terminate':
        this.#controller!.terminate(TERM.LOCAL_CATASTROPHIC);
        return;
      case 'error':
        this.#step('modify-error');
        if (this.#controller !== null) this.#controller.abort();
        else this.#flushAll();
        return;
      default: // idle
        this.#step('reset');
        this.#terminate = undefined;
        this.#overflowed = false;
    }
  }

  #resize(send: number | undefined, receive: number | undefined): void {
    if (receive !== undefined && this.srq !== null) {
      throw new IwarpError('ERR_INVALID_STATE', 'change.maxRecvWr: the receive queue is a shared one');
    }
    const before = this.sq.depth;
    if (send !== undefined && !this.sq.resize(send)) {
      throw new IwarpError(
        'ERR_IN_USE',
        `change.maxSendWr: more than ${send} entries of the send queue are in use`,
      );
    }
    if (receive === undefined || this.rq.resize(receive)) return;
    this.sq.resize(before);
    throw new IwarpError(
      'ERR_IN_USE',
      `change.maxRecvWr: more than ${receive} entries of the receive queue are in use`,
    );
  }

  /** @internal Reads and atomics of the peer that it was made for; the device's limit if nothing was said. */
  get maxIrd(): number {
    return this.options.ird;
  }

  #setOrd(ord: number): void {
    if (this.#controller === null) this.maxOrd = ord;
    else this.#controller.setOrd(ord);
  }

  /**
   * Say whether the peer supports RFC 7306, once the two programs know. With `false` those operations throw
   * ERR_NOT_SUPPORTED when posted.
   */
  setPeerExtensions(supported: boolean | undefined): void {
    if (supported !== undefined) checkBoolean('supported', supported);
    this.peerExtensions = supported;
  }

  /** Attributes, queue contents, and the results of the connection's start-up (VERBS-029). */
  query(): QpAttributes {
    return {
      number: this.number,
      state: this.state,
      maxSendWr: this.sq.depth,
      maxRecvWr: this.rq.depth,
      maxSendSge: this.options.maxSge,
      maxRecvSge: this.options.maxRecvSge,
      maxInline: this.options.maxInline,
      ird: this.#negotiated?.ird ?? this.options.ird,
      ord: this.#negotiated === undefined ? this.maxOrd : (this.#controller?.ord ?? this.#negotiated.ord),
      sendOutstanding: this.sq.outstanding,
      recvPosted: this.rq.posted,
      recvTaken: this.#recvTaken,
      recvInProgress: this.#recvInProgress,
      rqLimit: this.#rqLimit,
      signalAll: this.options.signalAll,
      inboundWrite: this.options.rights.write,
      inboundRead: this.options.rights.read,
      extensions: this.options.extensions,
      peerExtensions: this.peerExtensions,
      boundWindows: this.boundWindows,
      terminate: this.#terminate,
      negotiated: this.#negotiated,
    };
  }

  /**
   * Resolves when every send-side request posted so far has completed or been flushed. Its completions may
   * still have to be polled. Posting can go on meanwhile. For requests posted in Idle that takes a
   * connection, or Error.
   */
  drainSend(options: WaitOptions = {}): Promise<void> {
    this.#checkAlive();
    const target = this.sq.head;
    return this.#wait(() => this.sq.tail >= target, signalOf(options));
  }

  /**
   * Resolves when every receive posted so far has completed or been flushed. With a shared receive queue:
   * when the connection has ended, so that no message can take another receive.
   */
  drainRecv(options: WaitOptions = {}): Promise<void> {
    this.#checkAlive();
    if (this.srq !== null) return this.#wait(() => this.#controller === null, signalOf(options));
    const target = this.#recvPosted;
    return this.#wait(() => this.#recvCompleted >= target, signalOf(options));
  }

  #wait(done: () => boolean, signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted !== true && done()) return Promise.resolve();
    return (this.#drains ??= new Waiters<void>()).wait(signal, done);
  }

  /** Counters of the current connection; undefined without one. */
  counters(): StreamCounters | undefined {
    return this.#controller?.counters();
  }

  /**
   * Destroy the queue pair, in any state. A connection is reset, and no further completion is produced
   * (VERBS-026, VERBS-027). ERR_IN_USE while memory windows are bound through it.
   */
  destroy(): void {
    if (this.#destroyed) return;
    if (this.boundWindows > 0)
      throw new IwarpError(
        'ERR_IN_USE',
        `${this.boundWindows} memory windows are bound through the queue pair`,
      );
    this.#destroyed = true;
    const controller = this.#controller;
    if (controller === null) {
      this.#flushAll();
    } else {
      controller.abort();
      // From the return of this call on the memory of its receives is the caller's.
      this.pd.device.mirror.settle();
    }
    this.sendCq.users--;
    this.recvCq.users--;
    if (this.srq !== null) this.srq.users--;
    this.pd.users--;
    this.pd.device.forget('qp', this);
  }

  /** True after {@link QueuePair.destroy}. It stays true. */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  // ------------------------------------------------------------------------------ for the connection manager

  /**
   * @internal The connection that will carry this queue pair; ERR_INVALID_STATE if it has one or is not Idle.
   */
  attach(controller: QpController): void {
    this.#checkAlive();
    if (this.#controller !== null || this.state !== 'idle') {
      throw new IwarpError(
        'ERR_INVALID_STATE',
        `qp is ${this.#controller === null ? `in state ${this.state}` : 'already used by a connection'}`,
      );
    }
    this.#controller = controller;
    this.peerExtensions = undefined;
  }

  /** @internal Before a connection has been established: give the queue pair back as it was. */
  detach(): void {
    this.#controller = null;
    if (this.state === 'error' || this.#destroyed) this.#flushAll();
    this.#drains?.settle();
  }

  /**
   * @internal A call has asked another thread for this: the state changes with the call (VERBS-023), the
   * events follow when it is done.
   */
  anticipate(input: 'llp-close' | 'terminate'): void {
    if (this.#state === 'rts') this.#step(input);
  }

  /** @internal What happened on the stream. */
  handleStreamEvent(event: StreamEvent): void {
    const { device } = this.pd;
    switch (event.type) {
      case 'established':
        this.#negotiated = event.negotiated;
        // In Error, where Modify has led meanwhile, the reset is on its way: what `closed` finds is flushed
        // then.
        if (this.#accepts('attach')) this.#step('attach');
        break;
      case 'terminate':
        this.#terminate = event.terminate;
        if (this.#accepts('terminate')) this.#step('terminate');
        device.raise(
          event.terminate.origin === 'remote'
            ? { type: 'terminate-received', qp: this, terminate: event.terminate }
            : { type: 'terminate-sent', qp: this, terminate: event.terminate },
        );
        break;
      case 'closing':
        if (this.#accepts('llp-close')) this.#step('llp-close');
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
    this.peerExtensions = undefined;
    if (cause === 'graceful' && this.#accepts('llp-closed')) {
      this.#step('llp-closed');
      this.#ending = true;
      device.defer(() => {
        this.#ending = false;
      });
      device.raise({ type: 'llp-close-complete', qp: this });
    } else {
      const closing = this.state === 'closing';
      this.#step('fail');
      if (cause === 'bad-close') device.raise({ type: 'bad-close', qp: this });
      else if (cause === 'reset' && !closing) device.raise({ type: 'llp-connection-reset', qp: this, error });
      else if (cause === 'reset' || cause === 'lost' || cause === 'timeout')
        device.raise({ type: 'llp-connection-lost', qp: this, error }); // VERBS-044
    }
    this.#negotiated = undefined;
    this.#flushAll();
    if (this.srq !== null) device.raise({ type: 'last-wqe-reached', qp: this });
  }

  /** Complete everything that is left in the queues as flushed (VERBS-037, VERBS-056). */
  #flushAll(): void {
    this.#flushing = true;
    flushSends(this.sq, this);
    if (this.srq === null) flushReceives(this.rq, this);
    this.#flushing = false;
    this.#drains?.settle();
  }

  // ------------------------------------------------------------------------------------------ for the stream

  /** @internal */
  override sendCompleted(wqe: SendWqe): void {
    if (wqe.local !== null) {
      wqe.local.memory?.settled();
      wqe.local = null;
    }
    const silent = this.#destroyed || (!wqe.signaled && wqe.status === 'success'); // VERBS-027, VERBS-106
    this.sq.complete(silent);
    if (!silent && !this.sendCq.push(wqe, this)) {
      this.sq.release(wqe);
      this.#overflow(this.sendCq);
    }
    this.#drains?.settle();
  }

  /** @internal */
  override receiveTaken(): void {
    this.#recvTaken++;
    this.#recvInProgress++;
    if (this.onReceiveTaken !== null) this.onReceiveTaken(this.rq.posted);
    if (this.#rqLimit === 0 || this.#recvInProgress <= this.#rqLimit) return;
    this.#rqLimit = 0; // one-shot (VERBS-134)
    this.pd.device.raise({ type: 'rq-limit', qp: this });
  }

  /** @internal */
  override receiveCompleted(wqe: ReceiveWqe): void {
    this.#recvCompleted++;
    if (this.#destroyed) {
      wqe.queue.release(wqe);
    } else if (!this.recvCq.push(wqe, this)) {
      wqe.queue.release(wqe);
      this.receivePolled(wqe);
      this.#overflow(this.recvCq);
    }
    this.#drains?.settle();
  }

  /** @internal The last Terminate, packed as in TERM; 0 if there was none. */
  get terminateCode(): number {
    const info = this.#terminate;
    return info === undefined ? 0 : (info.layer << 12) | (info.type << 8) | info.code;
  }

  /** @internal Its completion has been polled, or lost. */
  receivePolled(wqe: ReceiveWqe): void {
    if (wqe.taken) this.#recvInProgress--;
  }

  /** VERBS-010, SEC-012: the queue pair that overflowed is terminated; others are not touched. */
  #overflow(cq: CompletionQueue): void {
    if (this.#overflowed) return;
    this.#overflowed = true;
    const { device } = this.pd;
    device.raise({ type: 'cq-overflow', cq, qp: this });
    // After the present input: the stream is in the middle of one.
    device.defer(() => this.#controller?.terminate(TERM.RDMAP_STREAM_CATASTROPHIC));
  }

  /** @internal The device or a queue has failed: say so to the peer and end (VERBS-177). */
  fail(code: number): void {
    this.#controller?.terminate(code);
  }

  #checkAlive(): void {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the queue pair has been destroyed');
  }
}

/** One object of the domain more, and its number on the device. */
function takeNumber(pd: ProtectionDomain): number {
  pd.use();
  try {
    return pd.device.takeQpNumber();
  } catch (error) {
    pd.users--;
    throw error;
  }
}
