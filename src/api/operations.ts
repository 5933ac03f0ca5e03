/**
 * The line of operations of one connection: started in the order of the calls, as queue and credits allow,
 * and settled by completions.
 */
import { abortError, whenAborted } from '../base/abort.ts';
import { endsConnection, type IwarpError } from '../base/errors.ts';
import type { Scheduler } from '../base/clock.ts';
import type { WorkCompletion } from '../verbs/cq.ts';
import type { SendWorkRequest } from '../verbs/post.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { FAREWELL_VALUE, type Credits } from './credits.ts';
import { OperationError, operationEnd, type ErrorContext, type TerminateError } from './errors.ts';
import { handled } from '../base/promised.ts';
import type { Cleanup } from './transient-registrar.ts';
import type { LatencyRecorder } from './latency.ts';
import { Waiters } from '../base/waiters.ts';

/** Options of every call that waits. */
export interface OperationOptions {
  /**
   * Stops waiting: the promise rejects with ERR_ABORTED. An operation that is still in line never starts. One
   * that has been posted cannot be recalled: its memory stays in use until `drain` resolves or the connection
   * ends.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * Milliseconds that the call may take: then the promise rejects with ERR_TIMEOUT, as with a signal.
   * Default: `operationTimeout` of the connection; calls that wait for the peer's program, such as
   * `receive`, have none.
   */
  readonly timeout?: number | undefined;
}

/**
 * A work request to which the line gives its number. A spread into one with a number would cost more than all
 * of posting (`send 64` of bench/micro/layers.ts).
 */
export type OperationRequest = SendWorkRequest & { wrId: number };

/** One operation, from the call to the completion; first in the line, then among the posted. */
class Operation {
  readonly request: OperationRequest;
  /** Costs a credit: it takes a receive at the peer. */
  readonly message: boolean;
  /** When the stack is done with the memory. */
  readonly cleanup: Cleanup | null;
  /** The value of the promise, or a function that returns it once the operation has succeeded. */
  readonly value: unknown;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  stopListening: (() => void) | null = null;
  /** The promise that the caller has. */
  promise: Promise<unknown> | null = null;
  /** Where it was called from; null unless that is recorded. */
  caller: { readonly stack?: string } | null = null;
  /** When it was posted, for the latency histograms; NaN if no call records latencies. */
  postedAt: number = Number.NaN;
  /** Its neighbours in the queue where it is. */
  previous: Operation | null = null;
  next: Operation | null = null;

  constructor(
    request: OperationRequest,
    message: boolean,
    cleanup: Cleanup | null,
    value: unknown,
    resolve: (value: unknown) => void,
    reject: (error: Error) => void,
  ) {
    this.request = request;
    this.message = message;
    this.cleanup = cleanup;
    this.value = value;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/**
 * Operations, first come first, linked to each other: one leaves from the middle at once, and none costs an
 * object.
 */
class OperationQueue {
  first: Operation | null = null;
  #last: Operation | null = null;
  size = 0;

  add(operation: Operation): void {
    operation.previous = this.#last;
    if (this.#last === null) this.first = operation;
    else this.#last.next = operation;
    this.#last = operation;
    this.size++;
  }

  remove(operation: Operation): void {
    const { previous, next } = operation;
    if (previous === null) this.first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    operation.previous = operation.next = null;
    this.size--;
  }

  /** Take the first. */
  shift(): Operation | null {
    const { first } = this;
    if (first !== null) this.remove(first);
    return first;
  }
}

type Outcome = Pick<WorkCompletion, 'opcode' | 'status'>;

/** The number of an operation that has not been posted. */
export const IN_LINE = -1;
/**
 * Operations number from 4 and begin again; these mark a grant of credits, the farewell and a heartbeat. 0 is
 * the number of a request of the program on the queue pair.
 */
const GRANT_ID = 1;
const FAREWELL_ID = 2;
const HEARTBEAT_ID = 3;
const FIRST_ID = 4;
/** A number above 2^31 would be a separate heap object. */
const LAST_ID = 0x3fff_ffff;

/** The settings of a connection's operations. */
interface OperationsOptions {
  /** Operations posted at a time. */
  readonly max: number;
  readonly credits: Credits | null;
  readonly scheduler: Scheduler;
  /** Peer and side, for errors. */
  readonly context: ErrorContext;
  /** Record the stack of each call for the errors. */
  readonly callers: boolean;
}

export class Operations {
  readonly #qp: QueuePair;
  readonly #max: number;
  readonly #credits: Credits | null;
  readonly #scheduler: Scheduler;
  readonly #context: ErrorContext;
  /** Record the stack of each call for the errors. */
  readonly #callers: boolean;
  /** Not posted yet. */
  readonly #line = new OperationQueue();
  /** In the order in which they complete (RDMAP-094). */
  readonly #posted = new OperationQueue();
  /** Failed or flushed: the reason comes with the Terminate, or with the end of the connection. */
  readonly #failed: { readonly operation: Operation; readonly wc: Outcome }[] = [];
  readonly #idle = new Waiters<void>();
  #granting = false;
  #quiet = false;
  /** The farewell has still to be said. */
  #parting = false;
  /** Waiting for requests that are not ours. */
  #stalled = false;
  #nextId = FIRST_ID;
  /** To be called when the heartbeat under way has its answer. */
  #answered: (() => void) | null = null;
  /** Operations called so far. */
  started = 0;
  /** Reads posted so far, heartbeats included. */
  readsPosted = 0;
  /** The connection is gone. */
  #ended = false;
  /** A Terminate has crossed: whatever fails from now on fails because of it. */
  #reason: TerminateError | null = null;
  latency: LatencyRecorder | null = null;

  constructor(qp: QueuePair, { max, credits, scheduler, context, callers }: OperationsOptions) {
    this.#qp = qp;
    this.#max = max;
    this.#credits = credits;
    this.#scheduler = scheduler;
    this.#context = context;
    this.#callers = callers;
  }

  /** A farewell has been said or heard: nothing new may start. */
  get quiet(): boolean {
    return this.#quiet;
  }

  /** Operations under way or in line. */
  get size(): number {
    return this.#line.size + this.#posted.size + this.#failed.length;
  }

  /** Operations in line. */
  get waiting(): number {
    return this.#line.size;
  }

  /**
   * Start an operation, at once or when its turn comes, and resolve with `value`. An abort takes it out of
   * the line; once posted it can only be left alone.
   */
  submit<T>(
    request: OperationRequest,
    message: boolean,
    cleanup: Cleanup | null,
    signal: AbortSignal | undefined,
    value: T | (() => T),
  ): Promise<T> {
    if (signal?.aborted === true) {
      cleanup?.(false);
      return Promise.reject(abortError(signal));
    }
    this.started++;
    let operation!: Operation;
    const promise = new Promise<T>((resolve, reject) => {
      operation = new Operation(
        request,
        message,
        cleanup,
        value,
        resolve as (value: unknown) => void,
        reject,
      );
    });
    operation.promise = promise;
    if (this.#callers) operation.caller = new Error();
    if (signal !== undefined) this.#listen(operation, signal);
    if (this.#line.size === 0 && this.#mayPost(operation)) {
      this.#post(operation);
    } else {
      this.#line.add(operation);
      this.#waitForRoom();
    }
    return promise;
  }

  #listen(operation: Operation, signal: AbortSignal): void {
    operation.stopListening = whenAborted(signal, () => {
      operation.reject(abortError(signal));
      // posted: memory belongs to the stack until the completion
      if (operation.request.wrId !== IN_LINE) return;
      this.#line.remove(operation);
      operation.cleanup?.(false);
      this.pump();
    });
  }

  #mayPost(operation: Operation): boolean {
    if (this.#posted.size >= this.#max || this.#qp.sq.room === 0) return false;
    return !operation.message || this.#credits === null || this.#credits.available > 0;
  }

  #post(operation: Operation): void {
    const { request } = operation;
    request.wrId = this.#takeId();
    try {
      this.#qp.postSend(request);
    } catch (error) {
      this.#fail(operation, error as IwarpError);
      return;
    }
    if (operation.message) this.#credits?.spend();
    if (request.opcode === 'rdma-read') this.readsPosted++;
    if (this.latency !== null) operation.postedAt = this.#scheduler.now();
    this.#posted.add(operation);
  }

  #takeId(): number {
    const id = this.#nextId;
    this.#nextId = id === LAST_ID ? FIRST_ID : id + 1;
    return id;
  }

  /** Post what may be posted: a grant that is due, then the head of the line and on. */
  pump(): void {
    if (this.#ended) return;
    this.#grant();
    for (
      let operation = this.#line.first;
      operation !== null && this.#mayPost(operation);
      operation = this.#line.first
    ) {
      this.#line.remove(operation);
      this.#post(operation);
    }
    this.#part();
    this.#waitForRoom();
    if (this.size === 0) while (this.#idle.next());
  }

  /**
   * Waits while requests that the program posted on the queue pair itself hold all entries left. Such
   * requests may give no completion to move this line, so it goes on once the queue has drained. Requests of
   * this layer always give one.
   */
  #waitForRoom(): void {
    const { sq } = this.#qp;
    if (sq.room > 0 || this.#stalled || this.#posted.size > 0 || this.#granting || sq.outstanding === 0)
      return;
    this.#stalled = true;
    void this.#qp.drainSend().then(() => {
      this.#stalled = false;
      this.pump();
    });
  }

  /** Posts one grant at a time; the next one announces all buffers that have come back meanwhile. */
  #grant(): void {
    const credits = this.#credits;
    if (credits === null || this.#granting || this.#quiet || !credits.due || !this.#takesMore) return;
    this.#granting = true;
    this.#qp.postSend({ opcode: 'immediate', immediate: credits.announce(), wrId: GRANT_ID });
  }

  /**
   * Post a Read of zero length, in front of all that waits in line; `answered` is called on its answer. False
   * if it cannot be posted now. One at a time.
   */
  postHeartbeat(answered: () => void): boolean {
    if (this.#answered !== null || this.#quiet || this.#ended || !this.#takesMore) return false;
    this.#answered = answered;
    this.readsPosted++;
    this.#qp.postSend({ opcode: 'rdma-read', wrId: HEARTBEAT_ID, sges: [], rkey: 0, remoteAddr: 0 });
    return true;
  }

  /** Post a Write of zero length, which makes TCP send, and has no answer. */
  postSign(): void {
    if (this.#quiet || this.#ended || !this.#takesMore) return;
    this.#qp.postSend({ opcode: 'rdma-write', wrId: 0, sges: [], rkey: 0, remoteAddr: 0 });
  }

  /** After everything else, and nothing after it: the peer closes when it has read this. */
  sayFarewell(): void {
    this.#quiet = true;
    this.#parting = true;
    this.pump();
  }

  #part(): void {
    if (!this.#parting || !this.#takesMore) return;
    this.#parting = false;
    this.#qp.postSend({ opcode: 'immediate', immediate: FAREWELL_VALUE, wrId: FAREWELL_ID });
  }

  get #takesMore(): boolean {
    return this.#qp.state === 'rts' && this.#qp.sq.room > 0;
  }

  /** Start nothing more: operations in line end with this error, and posted ones go on. */
  stop(error: () => IwarpError): void {
    this.#quiet = true;
    for (let operation = this.#line.shift(); operation !== null; operation = this.#line.shift())
      this.#fail(operation, error());
    this.pump();
  }

  /** A completion of the send queue. */
  complete(wc: WorkCompletion): void {
    const id = Number(wc.wrId);
    if (id === GRANT_ID && wc.opcode === 'immediate') {
      this.#granting = false;
      return;
    }
    if (id === HEARTBEAT_ID && wc.opcode === 'rdma-read' && this.#answered !== null) {
      const answered = this.#answered;
      this.#answered = null;
      if (wc.status === 'success') answered();
      return;
    }
    const operation = this.#posted.first;
    // Posted by the program, on the queue pair itself; perhaps under the number of ours that comes next, but
    // then it is of another kind.
    if (operation === null || operation.request.wrId !== id || operation.request.opcode !== wc.opcode) return;
    this.#posted.remove(operation);
    if (wc.status !== 'success') {
      const { opcode, status } = wc;
      this.#failed.push({ operation, wc: { opcode, status } });
      if (this.#reason !== null) this.#settleFailed(() => this.#reason!);
      return;
    }
    if (operation.postedAt >= 0) this.latency?.record(wc.opcode, this.#scheduler.now() - operation.postedAt);
    succeed(operation);
  }

  /** A Terminate has been sent or received: it says why operations fail. */
  terminated(reason: TerminateError): void {
    this.#reason = reason;
    this.#settleFailed(() => reason);
  }

  /**
   * The refused operation reports its own status; the others end with the error that ended the connection.
   */
  #settleFailed(reason: () => IwarpError): void {
    for (const {
      operation,
      wc: { opcode, status },
    } of this.#failed.splice(0)) {
      if (status === 'flushed') this.#fail(operation, reason());
      else reject(operation, new OperationError(opcode, status, reason(), this.#context));
    }
  }

  /** Rejects the operation; when the connection has ended, with a separate error that names the operation. */
  #fail(operation: Operation, reason: IwarpError): void {
    reject(
      operation,
      endsConnection(reason) ? operationEnd(operation.request.opcode, reason, this.#context) : reason,
    );
  }

  /** Settles when nothing is under way or in line. */
  async whenIdle(signal: AbortSignal | undefined): Promise<void> {
    if (signal?.aborted === true) throw abortError(signal);
    while (this.size > 0) await this.#idle.wait(signal);
  }

  /** The connection is gone: all operations left end with this error. */
  end(error: () => IwarpError): void {
    this.#ended = true;
    this.#settleFailed(error);
    for (const queue of [this.#posted, this.#line]) {
      for (let operation = queue.shift(); operation !== null; operation = queue.shift())
        this.#fail(operation, error());
    }
    while (this.#idle.next());
  }
}

function succeed(operation: Operation): void {
  operation.stopListening?.();
  const failure = operation.cleanup?.(true) ?? null;
  const { value } = operation;
  if (failure === null) operation.resolve(typeof value === 'function' ? (value as () => unknown)() : value);
  else operation.reject(failure);
}

/** An operation that the program does not await must not end the process when the peer makes it fail. */
function reject(operation: Operation, error: Error): void {
  operation.stopListening?.();
  operation.cleanup?.(false);
  const stack = operation.caller?.stack;
  if (stack !== undefined) error.stack = `${error.name}: ${error.message}${stack.slice(stack.indexOf('\n'))}`;
  if (endsConnection(error)) void handled(operation.promise!);
  operation.reject(error);
}
