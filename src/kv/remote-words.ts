/** Counters and locks in a store's words: atomic RDMA operations, no code of the owner. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Connection } from '../api/connection.ts';
import type { RemoteBuffer } from '../api/remote-buffer.ts';
import { checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import type { OwnerClock } from './owner-clock.ts';

/** A signed 64-bit counter; made by {@link KvClient.counter}. */
export class RemoteCounter {
  readonly #connection: Connection;
  readonly #word: RemoteBuffer;

  /** @internal */
  constructor(connection: Connection, words: RemoteBuffer, index: number) {
    this.#connection = connection;
    this.#word = words.slice(8 * index, 8);
  }

  /** Add, and resolve with the value after that. Each counts exactly once, even while others add. */
  async add(by: bigint | number = 1): Promise<bigint> {
    const amount = BigInt(by);
    const before = await this.#connection.fetchAdd(this.#word, BigInt.asUintN(64, amount));
    return BigInt.asIntN(64, before + amount);
  }

  /** The present value. */
  async get(): Promise<bigint> {
    return BigInt.asIntN(64, await this.#connection.fetchAdd(this.#word, 0n));
  }
}

/** Options of {@link KvClient.lock}. */
export interface LockOptions {
  /**
   * Milliseconds after which others may take the lock from a holder that does not extend it. Default 10000.
   */
  readonly lease?: number | undefined;
}

const OPTIONS: Names<LockOptions> = { lease: true };
/** A word of a lock is 0, or the end of its lease in milliseconds and 20 bits of its holder. */
const HOLDER_BITS = 20n;

/**
 * A lock with a lease; made by {@link KvClient.lock}. Clients that take it must have clocks that run alike;
 * they need not agree, for the owner's clock counts.
 */
export class RemoteLock {
  readonly #connection: Connection;
  readonly #word: RemoteBuffer;
  readonly #clock: OwnerClock;
  readonly #lease: number;
  readonly #holder: bigint = BigInt(1 + Math.floor(Math.random() * (2 ** 20 - 1)));
  /** The word as it stands while we hold the lock; 0 if we do not. */
  #held = 0n;

  /** @internal */
  constructor(
    connection: Connection,
    words: RemoteBuffer,
    index: number,
    clock: OwnerClock,
    options: LockOptions,
  ) {
    checkOptions('options', options, OPTIONS);
    this.#lease = checkInteger('options.lease', options.lease ?? 10_000, 1, 86_400_000);
    this.#connection = connection;
    this.#word = words.slice(8 * index, 8);
    this.#clock = clock;
  }

  /** Whether this object holds the lock, and its lease is not over: nobody else can have taken it by now. */
  get isHeld(): boolean {
    return this.#held !== 0n && Number(this.#held >> HOLDER_BITS) > this.#clock.latest;
  }

  /** Take the lock if it is free, or if its holder's lease is over; true if it is ours now. */
  async tryAcquire(): Promise<boolean> {
    if (this.isHeld) throw new IwarpError('ERR_INVALID_STATE', 'this object holds the lock already');
    const mine = this.#fresh();
    let seen = await this.#connection.compareSwap(this.#word, 0n, mine);
    if (seen !== 0n && Number(seen >> HOLDER_BITS) <= this.#clock.earliest) {
      const stale = seen;
      seen = await this.#connection.compareSwap(this.#word, stale, mine);
      if (seen === stale) seen = 0n;
    }
    this.#held = seen === 0n ? mine : 0n;
    return seen === 0n;
  }

  /** Take the lock, waiting up to `timeout` milliseconds. Rejects with ERR_TIMEOUT. */
  async acquire(timeout: number = 30_000): Promise<void> {
    checkInteger('timeout', timeout, 0, 2 ** 31 - 1);
    const end = performance.now() + timeout;
    for (let pause = 0; !(await this.tryAcquire()); pause = Math.min(50, 2 * pause + 1)) {
      if (performance.now() >= end)
        throw new IwarpError('ERR_TIMEOUT', `the lock was not free within ${timeout} ms`);
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }

  /** Begin the lease anew; false if the lock was lost meanwhile. */
  async extend(): Promise<boolean> {
    return await this.#change(this.#fresh());
  }

  /** Give the lock back; false if it was lost meanwhile. */
  async release(): Promise<boolean> {
    return await this.#change(0n);
  }

  #fresh(): bigint {
    return (BigInt(Math.ceil(this.#clock.latest + this.#lease)) << HOLDER_BITS) | this.#holder;
  }

  async #change(to: bigint): Promise<boolean> {
    const held = this.#held;
    if (held === 0n) return false;
    const seen = await this.#connection.compareSwap(this.#word, held, to);
    this.#held = seen === held ? to : 0n;
    return seen === held;
  }
}
