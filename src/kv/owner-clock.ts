/**
 * The owner's clock, as a client knows it. The owner says once how late it is; between the client's question
 * and its hearing of the answer that was true. So the clock is known to lie between two bounds, as far apart
 * as the answer took to come: which of them counts depends on what a mistake would do.
 */
export class OwnerClock {
  readonly #least: number;
  readonly #most: number;

  /**
   * `said` is the owner's clock, `asked` and `heard` are ours, in milliseconds; each of the three leaves
   * out the part after the point.
   */
  constructor(said: number, asked: number, heard: number) {
    this.#least = said - (heard + 1);
    this.#most = said + 1 - asked;
  }

  /** The owner's clock stands here, or later. */
  get earliest(): number {
    return Date.now() + this.#least;
  }

  /** The owner's clock stands here, or earlier. */
  get latest(): number {
    return Date.now() + 1 + this.#most;
  }
}
