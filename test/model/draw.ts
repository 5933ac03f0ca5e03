/** Choices from a seed. */
import { seededRandom } from '../../src/base/random.ts';

export class Draw {
  readonly #random: () => number;

  constructor(seed: number) {
    this.#random = seededRandom(seed);
  }

  /** 0 to n - 1. */
  below(n: number): number {
    return this.#random() % n;
  }

  /** True once in n times. */
  oneIn(n: number): boolean {
    return this.#random() % n === 0;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.#random() % list.length]!;
  }

  octets(n: number): Uint8Array {
    return Uint8Array.from({ length: n }, () => this.#random() & 0xff);
  }

  u64(): bigint {
    return (BigInt(this.#random()) << 32n) | BigInt(this.#random());
  }
}
