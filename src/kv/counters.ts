/**
 * 64-bit words that clients add to by atomic RDMA operations. They lie in separate memory, because
 * writers need rights there that readers of the table must not have. Words are in the machine's byte order,
 * as RFC 7306 has it.
 */
import { IwarpError } from '../base/errors.ts';

export class Counters {
  readonly memory: Uint8Array;
  readonly #words: BigInt64Array;
  readonly #free: number[] = [];
  #next = 0;

  /** Room for `count` words. */
  constructor(count: number) {
    const buffer = new SharedArrayBuffer(8 * count);
    this.memory = new Uint8Array(buffer);
    this.#words = new BigInt64Array(buffer);
  }

  /** A word that begins with `value`. @throws ERR_LIMIT */
  take(value: bigint): number {
    const index = this.#free.pop() ?? (this.#next < this.#words.length ? this.#next++ : -1);
    if (index < 0)
      throw new IwarpError('ERR_LIMIT', `all ${this.#words.length} counters of the store are in use`);
    Atomics.store(this.#words, index, value);
    return index;
  }

  release(index: number): void {
    this.#free.push(index);
  }

  read(index: number): bigint {
    return Atomics.load(this.#words, index);
  }

  /** The value after adding. */
  add(index: number, by: bigint): bigint {
    return BigInt.asIntN(64, Atomics.add(this.#words, index, by) + by);
  }
}
