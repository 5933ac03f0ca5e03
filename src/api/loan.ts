/**
 * Tickets that end: a registration of a part of memory under a separate key, for a time, for one use or until
 * revoked.
 */
import { MAX_TIME_LIMIT } from '../base/abort.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { rightsOf, type PeerAccess } from './local-memory.ts';
import { RemoteBuffer } from './remote-buffer.ts';

/** Options of {@link Connection.lend}. */
export interface LendOptions {
  /** First byte of the region that is lent. Default 0. */
  readonly offset?: number | undefined;
  /** Bytes that are lent. Default: to the end. */
  readonly length?: number | undefined;
  /** Milliseconds after which the ticket is of no use any longer. Default: until it is revoked. */
  readonly expires?: number | undefined;
  /**
   * The ticket is for one Write, Read or atomic, and ends with it: with the last segment of the Write, the
   * last byte of the Read's response. While one is under way no other may begin. Default: any number.
   */
  readonly uses?: 1 | undefined;
}

const NAMES: Names<LendOptions> = { offset: true, length: true, expires: true, uses: true };

/**
 * Why a loan has ended: the peer has used a ticket for one use, or invalidated it by a Send with Invalidate
 * of its `rkey`; its time was over; `revoke()`; the end of the connection.
 */
export type LoanEnd = 'used' | 'expired' | 'revoked' | 'closed';

/** Memory that is lent to the peer. */
export class Loan {
  /** The ticket for the peer. */
  readonly ticket: RemoteBuffer;
  /** Settles with the reason when the ticket is of no use any longer and nothing reads its memory. */
  readonly ended: Promise<LoanEnd>;
  readonly #region: MemoryRegion;
  readonly #alarm: Alarm;
  /** Null until the end. */
  #end: LoanEnd | null = null;
  #resolve!: (end: LoanEnd) => void;

  /** @internal */
  constructor(
    qp: QueuePair,
    scheduler: Scheduler,
    region: MemoryRegion,
    access: PeerAccess,
    options: LendOptions,
    owner: Set<MemoryRegion>,
  ) {
    checkOptions('options', options, NAMES);
    const { offset = 0, expires, uses } = options;
    checkInteger('options.offset', offset, 0, Number.MAX_SAFE_INTEGER);
    const { length = Math.max(0, region.length - offset) } = options;
    checkInteger('options.length', length, 0, 0xffff_ffff);
    if (expires !== undefined) checkInteger('options.expires', expires, 1, MAX_TIME_LIMIT);
    if (offset + length > region.length)
      throw new IwarpError(
        'ERR_OUT_OF_RANGE',
        `${length} bytes from ${offset} pass the region's ${region.length} bytes`,
      );
    if (!region.valid)
      throw new IwarpError('ERR_INVALID_REGION', 'region has been deregistered or invalidated');
    const bytes = region.bytes.subarray(offset, offset + length);
    const own = qp.pd.registerMemory(
      bytes,
      rightsOf(access),
      uses === undefined ? {} : { queuePair: qp, uses },
    );
    own.owner = owner;
    owner.add(own);
    this.#region = own;
    this.ticket = RemoteBuffer.of(own);
    this.ended = new Promise((resolve) => (this.#resolve = resolve));
    // The stream is in the middle of its work when it calls, and so is the connection that ends.
    own.entry.ended = (freed) => void Promise.resolve().then(() => this.#finish(freed ? 'closed' : 'used'));
    this.#alarm = new Alarm(scheduler);
    if (expires !== undefined) this.#alarm.set(expires, () => void this.#finish('expired'));
  }

  async #finish(end: LoanEnd): Promise<void> {
    if (this.#end === null) {
      this.#end = end;
      this.#alarm.stop();
      this.#region.entry.ended = null;
      // One that its connection has ended says the same once more.
      await this.#region.deregister();
      this.#resolve(end);
    }
    await this.ended;
  }

  /** The peer can use the ticket. */
  get active(): boolean {
    return this.#region.valid;
  }

  /**
   * End the peer's access at once. Resolves when the memory is no longer used by a response that is under
   * way. A peer that uses the ticket after this ends the connection with a Terminate. Again does nothing.
   */
  revoke(): Promise<void> {
    return this.#finish('revoked');
  }

  /** The same as `revoke()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.revoke();
  }
}
