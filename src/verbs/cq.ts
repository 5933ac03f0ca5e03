/**
 * Completion queues: verbs draft 5.3, 8.2.4, 8.2.5. A ring of references to finished work entries; polling
 * copies their results into the caller's objects and gives the entries back to their queues. Nothing is
 * allocated per completion.
 */
import { performance } from '../base/host.ts';
import { abortError, signalOf, type WaitOptions } from '../base/abort.ts';
import { captureContext, type AsyncContext } from '../base/async-context.ts';
import { checkInteger, checkOneOf, checkOptions, IwarpError, show, type Names } from '../base/errors.ts';
import { toBigInt } from '../base/u64.ts';
import { Ring } from '../base/ring.ts';
import { ReceiveWqe, type SendWqe, type WcOpcode, type WcStatus } from '../queues/work.ts';
import { Waiters } from '../base/waiters.ts';
import type { PortAddress } from '../transport/port.ts';
import { CompletionChannel } from './completion-channel.ts';
import type { Device } from './device.ts';

/** One completion (VERBS-110). The caller owns the object, and each poll fills it again. */
export interface WorkCompletion {
  /** The number that the request was posted with. */
  wrId: bigint | number;
  /** `success`, or the kind of failure. Unless it is `success`, only `wrId` and `qpNumber` have a meaning. */
  status: WcStatus;
  /** Kind of the request. */
  opcode: WcOpcode;
  /** Bytes received or read; for Sends and Writes, bytes of the message. */
  byteLength: number;
  /**
   * Number of the queue pair of the request; with a shared receive queue, of the one that received the
   * message.
   */
  qpNumber: number;
  /** The STag that a Send with Invalidate has invalidated, if any (VERBS-159). */
  invalidatedStag: number | undefined;
  /** The eight bytes of Immediate Data as a big-endian number, if there were any. */
  immediate: bigint | undefined;
  /** The peer asked for a solicited event (Send with Solicited Event). */
  solicited: boolean;
  /**
   * With `remote-access-error` and `remote-operation-error`: why the peer refused the request, as in its
   * Terminate, packed as `layer << 12 | type << 8 | code` (`TERM` of `iwarp/wire`). Else 0. As `vendor_err`
   * of ibv_wc.
   */
  vendorError: number;
  /** Where a datagram came from; undefined for other completions. */
  from: PortAddress | undefined;
}

/** Make an empty completion for {@link CompletionQueue.poll} to fill. */
export function createWorkCompletion(): WorkCompletion {
  return {
    wrId: 0,
    status: 'success',
    opcode: 'send',
    byteLength: 0,
    qpNumber: 0,
    invalidatedStag: undefined,
    immediate: undefined,
    solicited: false,
    vendorError: 0,
    from: undefined,
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

/** A queue pair, as a completion queue knows it. */
interface CompletionOwner {
  readonly number: number;
  /** Of the Terminate with which the peer has refused a request; 0 if there is none. */
  readonly terminateCode: number;
  /** The completion has been polled. */
  receivePolled(wqe: ReceiveWqe): void;
}

/** Options of {@link Device.createCq}. */
export interface CqOptions {
  /** Where notifications go while the queue has no handler: a channel that several queues share. */
  readonly channel?: CompletionChannel | undefined;
  /** Anything the program wants to find at the queue again (cq_context). */
  readonly context?: unknown;
}

const OPTIONS: Names<CqOptions> = { channel: true, context: true };

/** Completions that trigger the next notification. */
export type NotifyKind = 'next' | 'solicited';
const NOTIFY_KINDS: readonly NotifyKind[] = ['next', 'solicited'];

/** Polls in one turn of the event loop that found nothing: far more than a program that goes on makes. */
const TIGHT_LOOP = 1_000_000;

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
  /** The channel of its notifications, if it has one. */
  readonly channel: CompletionChannel | null;
  /** The program's own value, from the options; the stack does not use it. */
  context: unknown;
  #capacity: number;
  /**
   * The ring, and beside each entry its queue pair. It grows with the entries that wait in it: most queues
   * have far more room than they ever need.
   */
  #entries: Ring<SendWqe | ReceiveWqe> | null = null;
  #qps: Ring<CompletionOwner> | null = null;
  /** Terminate codes of requests that peers have refused, of which a connection has one at most. */
  #refusals: Map<SendWqe | ReceiveWqe, number> | null = null;
  #head = 0;
  #tail = 0;
  /** Polls that found nothing, in this turn of the event loop once they are many. */
  #emptyPolls = 0;
  /** The last poll has found nothing, and no notification has been requested since. */
  #foundNothing = false;
  #armed: NotifyKind | null = null;
  #handler: ((cq: CompletionQueue) => void) | null = null;
  /** A notification found neither handler nor channel: it is kept for the first handler. */
  #missed: 'no' | 'yes' | 'handled' = 'no';
  /** The handler as a task: one for all notifications that it gets. */
  #notifyHandler: (() => void) | null = null;
  readonly #waiters = new Waiters<void>();
  #destroyed = false;
  /** @internal Work queues that report here. */
  users = 0;
  /** Completions lost because the queue was full; their queue pairs have been terminated. */
  overflows = 0;

  /** @internal Use {@link Device.createCq}. */
  constructor(device: Device, handle: number, entries: number, options: CqOptions) {
    checkOptions('options', options, OPTIONS);
    const { context } = options;
    const channel = options.channel === undefined ? null : checkChannel(options.channel, device);
    this.channel = channel;
    this.context = context;
    if (channel !== null) channel.users++;
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
   * Take up to `max` completions into `out`, oldest first, and return how many. Without `max`, as many as
   * `out` has elements: none into an empty array. With it, missing elements of `out` are created.
   *
   * On a device of the wire `shm` a program may poll in a loop without a turn of the event loop: a poll that
   * finds nothing, after one that has found nothing, sends posted work and takes in the bytes of other
   * threads, up to a limit. Handlers of the program are called later as ever.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED
   */
  poll(out: WorkCompletion[], max?: number): number {
    if (!Array.isArray(out))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `out must be an array, got ${show(out)}`);
    const most = max === undefined ? out.length : checkInteger('max', max, 0, Number.MAX_SAFE_INTEGER);
    this.#checkAlive();
    if (this.#tail !== this.#head) this.#foundNothing = false;
    else if (most > 0) this.#pollEmpty();
    let n = 0;
    while (n < most && this.#tail !== this.#head) {
      const wqe = this.#entries!.take(this.#tail);
      const qp = this.#qps!.take(this.#tail);
      const wc = (out[n] ??= createWorkCompletion());
      wc.qpNumber = qp.number;
      fillCompletion(wc, wqe);
      wc.vendorError = this.#refusals === null ? 0 : this.#takeRefusal(wqe);
      this.#tail++;
      n++;
      if (wqe instanceof ReceiveWqe) {
        qp.receivePolled(wqe);
        wqe.queue.release(wqe);
      } else {
        wqe.queue.release(wqe);
      }
    }
    // An empty ring starts over: a large one would else be walked from end to end, and push everything else
    // out of the cache.
    if (this.#tail === this.#head) this.#tail = this.#head = 0;
    return n;
  }

  #takeRefusal(wqe: SendWqe | ReceiveWqe): number {
    const code = this.#refusals!.get(wqe) ?? 0;
    this.#refusals!.delete(wqe);
    if (this.#refusals!.size === 0) this.#refusals = null;
    return code;
  }

  /** Look where completions come from; in a loop that no completion can end, say so once. */
  #pollEmpty(): void {
    const { mirror, drive } = this.device;
    if (mirror.offloaded) {
      mirror.look();
      return;
    }
    if (drive !== null) {
      // A handler ends with a poll that finds nothing. Driven by that one it would never end, if the other
      // thread sends all the time, and nothing else in this thread would go on.
      if (this.#foundNothing) drive();
      this.#foundNothing = this.#tail === this.#head;
      return;
    }
    const polls = ++this.#emptyPolls;
    if (polls === 1_000) this.device.defer(() => (this.#emptyPolls = 0));
    if (polls === TIGHT_LOOP)
      console.warn(
        `iwarp: ${TIGHT_LOOP} polls found the completion queue empty without a turn of the event loop, in ` +
          'which completions arrive. Await cq.completions(), use requestNotify with a handler, or open the ' +
          "device with engine: 'worker'",
      );
  }

  /**
   * Block the thread until a completion can be polled, at most `ms` milliseconds, and return how many wait.
   * Only on a device with workers, and not in the main thread of a browser.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_NOT_SUPPORTED, ERR_DESTROYED
   *
   * @example
   * while (cq.wait(1000) === 0) console.log('still waiting');
   */
  wait(ms: number): number {
    checkInteger('ms', ms, 0, 0x7fff_ffff);
    this.#checkAlive();
    const { mirror, drive } = this.device;
    if (!mirror.offloaded)
      throw new IwarpError(
        'ERR_NOT_SUPPORTED',
        drive === null
          ? 'the streams of the device run in this thread, and completions arrive only in its event loop: ' +
              "await cq.completions(), or open the device with engine: 'worker'"
          : 'the streams of the device run in this thread: await cq.completions(), or poll in a loop',
      );
    const end = performance.now() + ms;
    mirror.look();
    for (let left = ms; this.length === 0 && left > 0; left = end - performance.now()) mirror.wait(left);
    return this.length;
  }

  /** Size, contents, notification and handler (VERBS-011). */
  query(): CqAttributes {
    const { handle, capacity, length, users, overflows } = this;
    return {
      handle,
      capacity,
      length,
      workQueues: users,
      overflows,
      armed: this.#armed,
      handler: this.#handler,
    };
  }

  /**
   * Set the one notification handler. It is called with the queue and polls it (VERBS-119). A notification
   * that was given before the first handler was set is kept for it. It runs in the asynchronous context of
   * this call.
   */
  setHandler(handler: ((cq: CompletionQueue) => void) | null): void {
    if (handler !== null && typeof handler !== 'function') {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `handler must be a function or null, got ${show(handler)}`,
      );
    }
    this.handleIn(handler === null ? null : captureContext('IWARP_CQ'), handler);
  }

  /** @internal Set the handler, which runs in this context; in that of a connection, say. */
  handleIn(context: AsyncContext | null, handler: ((cq: CompletionQueue) => void) | null): void {
    this.#handler = handler;
    if (handler === null) this.#notifyHandler = null;
    else if (context === null) this.#notifyHandler = () => handler(this);
    else this.#notifyHandler = () => context.runInAsyncScope(handler, undefined, this);
    const missed = this.#missed === 'yes';
    this.#missed = 'handled';
    if (missed && handler !== null) this.device.defer(this.#notifyHandler!);
  }

  /**
   * Request one notification, at the next completion (`next`) or at the next solicited or failed one
   * (`solicited`). Completions that are already here do not trigger it (VERBS-114): poll until empty,
   * request, poll again. If both kinds are requested, `next` wins (VERBS-117).
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
    this.#foundNothing = false;
    this.#armed = this.#armed === 'next' ? 'next' : kind;
  }

  /** Change the size and keep every completion. ERR_IN_USE if they would not fit (VERBS-012, VERBS-013). */
  resize(entries: number): void {
    checkInteger('entries', entries, 1, this.device.limits.maxCqe);
    this.#checkAlive();
    const { length } = this;
    if (entries < length)
      throw new IwarpError('ERR_IN_USE', `${length} completions do not fit in ${entries} entries`);
    this.#capacity = entries;
    if (this.#entries !== null && entries < this.#entries.size) this.#resizeRings(entries);
  }

  #resizeRings(entries: number): void {
    this.#entries!.resize(entries, this.#tail, this.#head);
    this.#qps!.resize(entries, this.#tail, this.#head);
  }

  /** Destroy the queue. ERR_IN_USE while work queues report here (VERBS-014). Async iterations end. */
  destroy(): void {
    if (this.users > 0)
      throw new IwarpError('ERR_IN_USE', `${this.users} work queues still report to the completion queue`);
    if (this.#destroyed) return;
    this.#destroyed = true;
    this.#entries = this.#qps = null;
    this.#tail = this.#head = 0; // VERBS-015
    this.device.forget('cq', this);
    this.channel?.forget(this);
    this.#wake();
  }

  /**
   * Completions one by one, each in a new object. Ends when the queue is destroyed. Completions that the loop
   * has not been given when it ends stay in the queue. When `signal` is aborted, the iteration throws
   * ERR_ABORTED.
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

  /**
   * @internal Add a finished entry. False if there is no room: the completion is lost, which terminates its
   * queue pair.
   */
  push(wqe: SendWqe | ReceiveWqe, qp: CompletionOwner): boolean {
    if (this.#destroyed) return true; // VERBS-015: a destroyed queue returns nothing
    const { length } = this;
    if (length === this.#capacity) {
      this.overflows++;
      return false;
    }
    if (this.#entries === null) {
      this.#entries = new Ring(FIRST_ENTRIES);
      this.#qps = new Ring(FIRST_ENTRIES);
    } else if (length === this.#entries.size) {
      this.#resizeRings(2 * length);
    }
    this.#entries.put(this.#head, wqe);
    this.#qps!.put(this.#head, qp);
    this.#head++;
    if (wqe.status === 'remote-access-error' || wqe.status === 'remote-operation-error')
      (this.#refusals ??= new Map()).set(wqe, qp.terminateCode);
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
    if (this.#handler !== null) this.device.defer(this.#notifyHandler!);
    else if (this.channel !== null) this.channel.notify(this);
    else if (this.#missed === 'no') this.#missed = 'yes';
  }

  #wake(): void {
    while (this.#waiters.next());
  }

  #checkAlive(): void {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the completion queue has been destroyed');
  }
}

function checkChannel(channel: unknown, device: Device): CompletionChannel {
  if (!(channel instanceof CompletionChannel))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.channel must be a CompletionChannel, got ${show(channel)}`,
    );
  if (channel.device !== device)
    throw new IwarpError('ERR_WRONG_PD', 'options.channel belongs to another device');
  if (channel.destroyed) throw new IwarpError('ERR_DESTROYED', 'options.channel has been destroyed');
  return channel;
}

function fillCompletion(wc: WorkCompletion, wqe: SendWqe | ReceiveWqe): void {
  wc.wrId = wqe.wrId;
  wc.status = wqe.status;
  wc.opcode = wqe.opcode;
  if (wqe instanceof ReceiveWqe) {
    wc.byteLength = wqe.byteLength;
    wc.solicited = wqe.solicited;
    wc.from = wqe.from;
    wc.invalidatedStag = wqe.invalidated === 0 ? undefined : wqe.invalidated;
    wc.immediate = wqe.hasImmediate ? toBigInt(wqe.immediateHi, wqe.immediateLo) : undefined;
  } else {
    wc.byteLength = wqe.total;
    wc.solicited = false;
    wc.from = undefined;
    wc.invalidatedStag = undefined;
    wc.immediate = undefined;
  }
}
