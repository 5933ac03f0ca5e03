/** Shared receive queues: verbs draft 6.3. */
import { checkInteger, IwarpError } from '../base/errors.ts';
import { ReceiveQueue, type ReceiveWqe } from '../rdmap/work.ts';
import type { ProtectionDomain } from './memory.ts';
import { fillReceive, type ReceiveWorkRequest } from './post.ts';

/** Options of {@link ProtectionDomain.createSrq}. */
export interface SrqOptions {
  /** Entries. */
  readonly maxWr: number;
  /** Scatter elements of an entry. */
  readonly maxSge?: number;
  /** Raise one `srq-limit` event when fewer entries than this are posted; 0 for none (VERBS-133). */
  readonly limit?: number;
}

/** Receives for many queue pairs. Every one of them can use all its entries (VERBS-129). */
export class SharedReceiveQueue {
  readonly pd: ProtectionDomain;
  readonly maxWr: number;
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
    this.maxWr = checkInteger('options.maxWr', options?.maxWr, 1, limits.maxSrqWr);
    this.maxSge = checkInteger('options.maxSge', options.maxSge ?? 4, 1, limits.maxSge);
    this.#limit = checkInteger('options.limit', options.limit ?? 0, 0, this.maxWr); // VERBS-135
    pd.use();
    pd.device.count('srq', limits.maxSrq);
    this.pd = pd;
    this.queue = new LimitedQueue(this.maxWr, (posted) => this.#taken(posted));
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
    this.#limit = checkInteger('limit', limit, 0, this.maxWr);
  }

  /** Post receives; see {@link QueuePair.postRecv}. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): number {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the shared receive queue has been destroyed');
    const list = Array.isArray(requests) ? (requests as readonly ReceiveWorkRequest[]) : [requests as ReceiveWorkRequest];
    list.forEach((request, i) => fillReceive(list.length > 1 ? `requests[${i}]` : 'request', request, this.queue, this.pd, this.maxSge));
    return list.length;
  }

  /** ERR_IN_USE while queue pairs are attached; posted entries do not matter (VERBS-136). */
  destroy(): void {
    if (this.users > 0) throw new IwarpError('ERR_IN_USE', `${this.users} queue pairs use the shared receive queue`);
    if (this.#destroyed) return;
    this.#destroyed = true;
    this.pd.users--;
    this.pd.device.live.srq--;
  }

  #taken(posted: number): void {
    if (this.#limit === 0 || posted >= this.#limit) return;
    this.#limit = 0;
    this.pd.device.raise({ type: 'srq-limit', srq: this });
  }
}

/** A receive queue that tells how many entries are left after each take. */
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
