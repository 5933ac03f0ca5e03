/** Shared receive queues: verbs draft 6.3. */
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { ReceiveQueue, type ReceiveWqe } from '../queues/work.ts';
import type { ProtectionDomain } from './pd.ts';
import { fillReceive, postList, type ReceiveWorkRequest } from './post.ts';

/** Options of {@link ProtectionDomain.createSrq}. */
export interface SrqOptions {
  /** Number of entries. */
  readonly maxWr: number;
  /** Scatter/gather elements of an entry. Default 4. */
  readonly maxSge?: number | undefined;
  /** Raise one `srq-limit` event when fewer entries than this are left. Default 0: never (VERBS-133). */
  readonly limit?: number | undefined;
}

/** Result of {@link SharedReceiveQueue.query}. */
export interface SrqAttributes {
  /** Entries that fit. */
  readonly maxWr: number;
  /** Scatter/gather elements of an entry. */
  readonly maxSge: number;
  /** Receives posted and not taken by a message. */
  readonly posted: number;
  /** The armed limit; 0 if it has fired or none is set. */
  readonly limit: number;
  /** Queue pairs that take receives from here. */
  readonly queuePairs: number;
  /** Handle of the protection domain. */
  readonly pd: number;
}

const OPTIONS: Names<SrqOptions> = { maxWr: true, maxSge: true, limit: true };
const CHANGE: Names<Pick<SrqOptions, 'maxWr' | 'limit'>> = { maxWr: true, limit: true };

const DEFAULT_SGE = 4;

/**
 * Receives for many queue pairs. Each of them can use all entries (VERBS-129).
 *
 * @example
 * const srq = pd.createSrq({ maxWr: 256 });
 * for (let i = 0; i < 256; i++) srq.postRecv({ wrId: i, sges: [{ mr, offset: i * 4096, length: 4096 }] });
 * const qp = pd.createQp({ sendCq: cq, recvCq: cq, srq });
 */
export class SharedReceiveQueue {
  /** The protection domain of the memory of its receives. */
  readonly pd: ProtectionDomain;
  /** Scatter/gather elements of an entry. */
  readonly maxSge: number;
  /** @internal */
  readonly queue: ReceiveQueue;
  /** @internal Queue pairs attached. */
  users = 0;
  #limit = 0;
  #destroyed = false;

  /** @internal Use {@link ProtectionDomain.createSrq}. */
  constructor(pd: ProtectionDomain, options: SrqOptions) {
    const { limits } = pd.device;
    checkOptions('options', options, OPTIONS);
    const maxWr = checkInteger('options.maxWr', options.maxWr, 1, limits.maxSrqWr);
    this.maxSge = checkInteger(
      'options.maxSge',
      options.maxSge ?? Math.min(DEFAULT_SGE, limits.maxSge),
      1,
      limits.maxSge,
    );
    this.#limit = checkInteger('options.limit', options.limit ?? 0, 0, maxWr); // VERBS-135
    pd.use();
    try {
      pd.device.take('srq', this);
    } catch (error) {
      pd.users--;
      throw error;
    }
    this.pd = pd;
    this.queue = new LimitedQueue(maxWr, (posted) => this.#taken(posted));
  }

  /** Number of entries. */
  get maxWr(): number {
    return this.queue.depth;
  }

  /** True after `destroy()`. It stays true. */
  get destroyed(): boolean {
    return this.#destroyed;
  }

  /** Sizes, the armed limit, the receives posted and the queue pairs attached. */
  query(): SrqAttributes {
    const { maxWr, maxSge, posted, limit, users, pd } = this;
    return { maxWr, maxSge, posted, limit, queuePairs: users, pd: pd.handle };
  }

  /**
   * Change the size or arm the limit (VERBS-133). A refused change changes nothing.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_IN_USE if the entries in use do not fit, ERR_DESTROYED
   */
  modify(change: { readonly maxWr?: number | undefined; readonly limit?: number | undefined }): void {
    this.#checkAlive();
    checkOptions('change', change, CHANGE);
    const { maxWr, limit } = change;
    if (maxWr !== undefined) checkInteger('change.maxWr', maxWr, 1, this.pd.device.limits.maxSrqWr);
    if (limit !== undefined) checkInteger('change.limit', limit, 0, maxWr ?? this.maxWr); // VERBS-135
    if (maxWr !== undefined && !this.queue.resize(maxWr)) {
      throw new IwarpError(
        'ERR_IN_USE',
        `change.maxWr: more than ${maxWr} entries of the shared receive queue are in use`,
      );
    }
    if (limit !== undefined) this.#limit = limit;
  }

  /** Entries posted and not taken. */
  get posted(): number {
    return this.queue.posted;
  }

  /** The armed limit; 0 when it has fired or none is set. */
  get limit(): number {
    return this.#limit;
  }

  /** Arm the limit again (VERBS-133: one event, then silent). */
  setLimit(limit: number): void {
    this.#checkAlive();
    this.#limit = checkInteger('limit', limit, 0, this.maxWr);
  }

  /**
   * @internal Fault injection: the queue fails, and each queue pair that next wants an entry is terminated
   * with 0/2/07 (VERBS-137).
   */
  fail(): void {
    this.queue.failed = true;
    this.pd.device.raise({ type: 'srq-catastrophic', srq: this });
  }

  /** Post receives; see {@link QueuePair.postRecv}. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): number {
    this.#checkAlive();
    const list = Array.isArray(requests)
      ? (requests as readonly ReceiveWorkRequest[])
      : [requests as ReceiveWorkRequest];
    const posted = postList(
      this,
      Array.isArray(requests) ? 'requests' : 'request',
      list,
      this.#postOne,
      this.#afterPost,
    );
    this.#afterPost();
    return posted;
  }

  #afterPost(): void {
    this.queue.forwarder?.posted();
  }

  #postOne(name: string, request: ReceiveWorkRequest): void {
    fillReceive(name, request, this.queue, this.pd, this.maxSge); // VERBS-124
  }

  #checkAlive(): void {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the shared receive queue has been destroyed');
  }

  /** ERR_IN_USE while queue pairs are attached; posted entries do not matter (VERBS-136). */
  destroy(): void {
    if (this.users > 0)
      throw new IwarpError('ERR_IN_USE', `${this.users} queue pairs use the shared receive queue`);
    if (this.#destroyed) return;
    this.#destroyed = true;
    this.queue.forwarder?.destroyed();
    this.pd.users--;
    this.pd.device.forget('srq', this);
  }

  #taken(posted: number): void {
    if (this.#limit === 0 || posted >= this.#limit) return;
    this.#limit = 0;
    this.pd.device.raise({ type: 'srq-limit', srq: this });
  }
}

/** A receive queue that reports how many entries are left after each take. */
class LimitedQueue extends ReceiveQueue {
  readonly #taken: (posted: number) => void;

  constructor(depth: number, taken: (posted: number) => void) {
    super(depth);
    this.#taken = taken;
  }

  override take(): ReceiveWqe | null {
    const wqe = super.take();
    if (wqe !== null) this.#taken(this.posted);
    return wqe;
  }
}
