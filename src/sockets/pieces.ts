/** Bytes that wait to be sent, in the pieces that the program wrote them in. */
import { lengthNow, putBytes } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';

export class Pieces {
  readonly #list: readonly Uint8Array[];
  /** The lengths that the pieces had when they were given. */
  readonly #lengths: readonly number[];
  /** The next piece, and how much of it has been taken. */
  #index = 0;
  #at = 0;
  #left = 0;
  #taken = 0;

  constructor(list: readonly Uint8Array[]) {
    this.#list = list;
    this.#lengths = list.map(({ length }) => length);
    for (const length of this.#lengths) this.#left += length;
  }

  /** Bytes that have not been taken. */
  get left(): number {
    return this.#left;
  }

  /** Bytes that have been taken. */
  get taken(): number {
    return this.#taken;
  }

  /**
   * Copy the next `octets`, at most {@link left}, to `target`, from `at` on. Throws ERR_INVALID_REGION if
   * their memory has been detached or resized: then no byte can be taken.
   */
  take(octets: number, target: Uint8Array, at: number): void {
    this.#left -= octets;
    this.#taken += octets;
    for (const end = at + octets; at < end; ) {
      const piece = this.#list[this.#index]!;
      if (lengthNow(piece) !== this.#lengths[this.#index]) throw goneError('chunk');
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

/** The error for memory that was detached or resized before it was sent. */
export function goneError(name: string): IwarpError {
  return new IwarpError(
    'ERR_INVALID_REGION',
    `${name}: the memory has been transferred away or resized before all of it was sent`,
  );
}
