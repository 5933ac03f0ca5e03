/** Octets that wait to be sent, in the pieces that the program wrote them in. */
import { putBytes } from '../base/copy.ts';

export class Pieces {
  #list: readonly Uint8Array[];
  /** The piece that is next, and how much of it has been taken. */
  #index = 0;
  #at = 0;
  #left = 0;
  #taken = 0;

  constructor(list: readonly Uint8Array[]) {
    this.#list = list;
    for (const piece of list) this.#left += piece.length;
  }

  /** Octets that have not been taken. */
  get left(): number {
    return this.#left;
  }

  /** Octets that have been taken. */
  get taken(): number {
    return this.#taken;
  }

  /** Copy the next `octets`, at most {@link left}, to `target`, from `at` on. */
  take(octets: number, target: Uint8Array, at: number): void {
    this.#left -= octets;
    this.#taken += octets;
    for (const end = at + octets; at < end;) {
      const piece = this.#list[this.#index]!;
      const run = Math.min(end - at, piece.length - this.#at);
      putBytes(run === piece.length ? piece : piece.subarray(this.#at, this.#at + run), target, at);
      at += run;
      this.#at += run;
      if (this.#at < piece.length) return;
      this.#at = 0;
      this.#index++;
    }
  }
}
