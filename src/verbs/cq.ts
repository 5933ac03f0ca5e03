/**
 * Completion queues: verbs draft 5.3, 8.2.4, 8.2.5. A ring of references to finished work entries; polling copies their results into
 * the caller's objects and gives the entries back to their queues. Nothing is allocated per completion.
 */
import { abortError, signalOf, type WaitOptions } from '../base/abort.ts';
import { checkInteger, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { toBigInt } from '../base/u64.ts';
import { ringPlaces } from '../base/wide.ts';
import { ReceiveWqe, type SendWqe, type WcOpcode, type WcStatus } from '../rdmap/work.ts';
import { Waiters } from '../base/waiters.ts';
import type { Device } from './device.ts';
import type { QueuePair } from './qp.ts';

/** One completion (VERBS-110). The caller owns the object, and each poll fills it again. */
export interface WorkCompletion {
  /** The number that the request was posted with. */
  wrId: bigint | number;
  /** `success`, or what went wrong. Unless it is `success`, only `wrId` and `qpNumber` have a meaning. */
  status: WcStatus;
  /** Kind of the request. */
  opcode: WcOpcode;
  /** Octets received or read; for Sends and Writes, octets of the message. */
  byteLength: number;
  /** Number of the queue pair of the request; with a shared receive queue, of the one that received the message. */
  qpNumber: number;
  /** The STag that a Send with Invalidate has invalidated, if any (VERBS-159). */
  invalidatedStag: number | undefined;
  /** The eight octets of Immediate Data as a big-endian number, if there were any. */
  immediate: bigint | undefined;
  /** The peer asked for a solicited event (Send with Solicited Event). */
  solicited: boolean;
}

/** Make an empty completion for {@link CompletionQueue.poll} to fill. */
export function createWorkCompletion(): WorkCompletion {
  return {
    wrId: 0, status: 'success', opcode: 'send', byteLength: 0, qpNumber: 0,
    invalidatedStag: undefined, immediate: undefined, solicited: false,
  };
}

/** Result of {@link CompletionQueue.query}. */
export interface CqAttributes {
  /** Number of the queue on its device. */
  readonly handle: number;
  /** Entries that fit. */
  readonly capacity: number;
  /** Completions waiting to be polled. */
  readonly length: number;
  /** Number of send and receive queues that report here. */
  readonly workQueues: number;
  /** Completions lost because the queue was full. */
  readonly overflows: number;
  /** The notification that was requested and has not been given yet. */
  readonly armed: NotifyKind | null;
  /** The notification handler. */
  readonly handler: ((cq: CompletionQueue) => void) | null;
}

/** Which completions trigger the next notification. */
export type NotifyKind = 'next' | 'solicited';
const NOTIFY_KINDS: readonly NotifyKind[] = ['next', 'solicited'];

/** Places that a ring begins with. */
const FIRST_ENTRIES = 16;

/**
 * A completion queue for send queues, receive queues or both, of any number of queue pairs.
 *
 * @example
 * const out = Array.from({ length: 16 }, createWorkCompletion);
 * const n = cq.poll(out);
 * for (let i = 0; i < n; i++) console.log(out[i].wrId, out[i].status);
 */
export class CompletionQueue {
  /** The device it belongs to; queue pairs of other devices cannot report here. */
  readonly device: Device;
  /** Number of the queue on its device. */
  readonly handle: number;
  #capacity: number;
  /** The ring, and beside each entry its queue pair. It grows with what waits in it: most queues are much larger than that ever is. */
  #entries: (SendWqe | ReceiveWqe | null)[] = [];
  #qps: (QueuePair | null)[] = [];
  #head = 0;
  #tail = 0;
  #armed: NotifyKind | null = null;
  #handler: ((cq: CompletionQueue) => void) | null = null;
  /** The handler as a task: one for all notifications that it gets. */
  #told: (() => void) | null = null;
  readonly #waiters = new Waiters<void>();
  #destroyed = false;
  /** @internal Work queues that report here. */
  users = 0;
  /** Completions lost because the queue was full; their queue pairs have been terminated. */
  overflows = 0;

  /** @internal Use {@link Device.createCq}. */
  constructor(device: Device, handle: number, entries: number) {
    this.device = device;
    this.handle = handle;
    this.#capacity = entries;
  }

  /** Entries that fit. */
  get capacity(): number {
    return this.#capacity;
  }

  /** Completions waiting to be polled. */
  get length(): number {
    return this.#head - this.#tail;
  }

  /** True after {@link CompletionQueue.destroy}. It stays true. */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  /**
   * Take up to `max` completions into `out`, oldest first, and return how many. Without `max`, as many as `out` has elements: none into an empty array.
   * With it, missing elements of `out` are created.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED
   */
  poll(out: WorkCompletion[], max?: number): number {
    if (!Array.isArray(out)) throw new IwarpError('ERR_INVALID_ARGUMENT', `out must be an array, got ${show(out)}`);
    const most = max === undefined ? out.length : checkInteger('max', max, 0, Number.MAX_SAFE_INTEGER);
    this.#checkAlive();
    let n = 0;
    while (n < most && this.#tail !== this.#head) {
      const at = this.#tail & (this.#entries.length - 1);
      const wqe = this.#entries[at]!;
      const qp = this.#qps[at]!;
      const wc = (out[n] ??= createWorkCompletion());
      wc.qpNumber = qp.number;
      fillCompletion(wc, wqe);
      this.#entries[at] = null;
      this.#qps[at] = null;
      this.#tail++;
      n++;
      if (wqe instanceof ReceiveWqe) {
        qp.receivePolled(wqe);
        wqe.queue.release(wqe);
      } else {
        wqe.queue.release(wqe);
      }
    }
    // An empty ring starts over: a large one would else be walked from end to end, and push everything else out of the cache.
    if (this.#tail === this.#head) this.#tail = this.#head = 0;
    return n;
  }

  /** Size, contents, notification and handler (VERBS-011). */
  query(): CqAttributes {
    const { handle, capacity, length, users, overflows } = this;
    return { handle, capacity, length, workQueues: users, overflows, armed: this.#armed, handler: this.#handler };
  }

  /** Set the one notification handler. It is called with the queue and polls it (VERBS-119). */
  setHandler(handler: ((cq: CompletionQueue) => void) | null): void {
    if (handler !== null && typeof handler !== 'function') {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `handler must be a function or null, got ${show(handler)}`);
    }
    this.#handler = handler;
    this.#told = handler === null ? null : () => handler(this);
  }

  /**
   * Request one notification, at the next completion (`next`) or at the next solicited or failed one (`solicited`). Completions that are already here
   * do not trigger it (VERBS-114): poll until empty, request, poll again. If both kinds are requested, `next` wins (VERBS-117).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED
   *
   * @example
   * cq.setHandler(() => {
   *   do {
   *     for (let n = cq.poll(out); n > 0; n = cq.poll(out)) handle(out, n);
   *     cq.requestNotify('next');
   *   } while (cq.length > 0);
   * });
   */
  requestNotify(kind: NotifyKind = 'next'): void {
    checkOneOf('kind', kind, NOTIFY_KINDS);
    this.#checkAlive();
    this.#armed = this.#armed === 'next' ? 'next' : kind;
  }

  /** Change the size and keep every completion. ERR_IN_USE if they would not fit (VERBS-012, VERBS-013). */
  resize(entries: number): void {
    checkInteger('entries', entries, 1, this.device.limits.maxCqe);
    this.#checkAlive();
    const { length } = this;
    if (entries < length) throw new IwarpError('ERR_IN_USE', `${length} completions do not fit in ${entries} entries`);
    this.#capacity = entries;
    const places = ringPlaces(entries);
    if (places < this.#entries.length) this.#move(places);
  }

  /** Into a ring with so many places, a power of two and at least as many as are taken. */
  #move(places: number): void {
    const { length } = this;
    const wqes = new Array<SendWqe | ReceiveWqe | null>(places).fill(null);
    const qps = new Array<QueuePair | null>(places).fill(null);
    for (let i = 0; i < length; i++) {
      const at = (this.#tail + i) & (this.#entries.length - 1);
      wqes[i] = this.#entries[at]!;
      qps[i] = this.#qps[at]!;
    }
    this.#entries = wqes;
    this.#qps = qps;
    this.#tail = 0;
    this.#head = length;
  }

  /** Destroy the queue. ERR_IN_USE while work queues report here (VERBS-014). Async iterations end. */
  destroy(): void {
    if (this.users > 0) throw new IwarpError('ERR_IN_USE', `${this.users} work queues still report to the completion queue`);
    if (this.#destroyed) return;
    this.#destroyed = true;
    this.#entries.fill(null);
    this.#qps.fill(null);
    this.#tail = this.#head = 0; // VERBS-015
    this.device.forget('cq', this);
    this.#wake();
  }

  /**
   * Completions one by one, each in a new object. Ends when the queue is destroyed. Completions that the loop has not been given when it ends
   * stay in the queue. When `signal` is aborted, the iteration throws ERR_ABORTED.
   */
  completions(options: WaitOptions = {}): AsyncGenerator<WorkCompletion, void, undefined> {
    return this.#iterate(signalOf(options));
  }

  async *#iterate(signal: AbortSignal | undefined): AsyncGenerator<WorkCompletion, void, undefined> {
    while (!this.#destroyed) {
      if (signal?.aborted === true) throw abortError(signal);
      const out: WorkCompletion[] = [];
      if (this.poll(out, 1) > 0) yield out[0]!;
      else await this.#waiters.wait(signal);
    }
  }

  /** The same as {@link CompletionQueue.completions}. */
  [Symbol.asyncIterator](): AsyncGenerator<WorkCompletion, void, undefined> {
    return this.completions();
  }

  /** @internal Add a finished entry. False if there is no room: the completion is lost, which terminates its queue pair. */
  push(wqe: SendWqe | ReceiveWqe, qp: QueuePair): boolean {
    if (this.#destroyed) return true; // VERBS-015: a destroyed queue returns nothing
    const { length } = this;
    if (length === this.#capacity) {
      this.overflows++;
      return false;
    }
    if (length === this.#entries.length) this.#move(Math.max(FIRST_ENTRIES, 2 * length));
    const at = this.#head & (this.#entries.length - 1);
    this.#entries[at] = wqe;
    this.#qps[at] = qp;
    this.#head++;
    this.#notify(wqe);
    return true;
  }

  #notify(wqe: SendWqe | ReceiveWqe): void {
    if (this.#waiters.size > 0) this.#wake();
    if (this.#armed === null) return;
    // VERBS-115: solicited means a Send that asked for it, or anything that failed.
    const solicited = wqe.status !== 'success' || (wqe instanceof ReceiveWqe && wqe.solicited);
    if (this.#armed === 'solicited' && !solicited) return;
    this.#armed = null; // one-shot (VERBS-113)
    if (this.#handler !== null) this.device.defer(this.#told!);
  }

  #wake(): void {
    while (this.#waiters.next());
  }

  #checkAlive(): void {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the completion queue has been destroyed');
  }
}

function fillCompletion(wc: WorkCompletion, wqe: SendWqe | ReceiveWqe): void {
  wc.wrId = wqe.wrId;
  wc.status = wqe.status;
  wc.opcode = wqe.opcode;
  if (wqe instanceof ReceiveWqe) {
    wc.byteLength = wqe.byteLength;
    wc.solicited = wqe.solicited;
    wc.invalidatedStag = wqe.invalidated === 0 ? undefined : wqe.invalidated;
    wc.immediate = wqe.hasImmediate ? toBigInt(wqe.immediateHi, wqe.immediateLo) : undefined;
  } else {
    wc.byteLength = wqe.total;
    wc.solicited = false;
    wc.invalidatedStag = undefined;
    wc.immediate = undefined;
  }
}
