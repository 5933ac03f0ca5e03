/**
 * Which fields an object of a kind may have. A misspelt field would be passed over, and its request would do
 * something else than its program means.
 *
 * Requests are checked as they are posted, and mostly the next one has the fields of the last in the same
 * order. So the names found last are kept by place and compared first, which compares addresses of strings;
 * only another name is looked up. To look up every name cost 64 ns of the 224 ns that a Write of 64 bytes
 * takes on the posting side (`rate` of bench/micro/datapath.ts).
 */
import type { Names } from './errors.ts';

export class FieldNames<T> {
  readonly #known: Readonly<Record<string, unknown>>;
  /** Known names, each at the place where it was found last. */
  readonly #seen: string[] = [];

  constructor(known: Names<T>) {
    this.#known = known;
  }

  /** The names, in a text for people. */
  get text(): string {
    return Object.keys(this.#known).join(', ');
  }

  /** The first field of `value` that is not known; null if there is none. */
  unknownIn(value: object): string | null {
    const seen = this.#seen;
    let at = 0;
    for (const field in value) {
      if (field !== seen[at]) {
        if (this.#known[field] !== true) return field;
        seen[at] = field;
      }
      at++;
    }
    return null;
  }
}
