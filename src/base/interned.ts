/**
 * One object in the place of many that say the same. Connections of one listener, and queue pairs of one
 * kind, settle the same things again and again; a thousand idle ones hold such a record once.
 */

/**
 * Gives back the record of last time while the new one has equal fields. Records are frozen, since several
 * owners may hold one.
 */
export class Interned<T extends object> {
  #last: T | null = null;

  of(record: T): T {
    const last = this.#last;
    if (last !== null && haveEqualFields(last, record)) return last;
    this.#last = Object.freeze(record);
    return record;
  }
}

function haveEqualFields<T extends object>(a: T, b: T): boolean {
  for (const name in a) if (a[name] !== b[name]) return false;
  for (const name in b) if (!(name in a)) return false;
  return true;
}
