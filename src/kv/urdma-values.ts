/**
 * The values that clients of the profile urdma read and write in place: copies beside the table, in memory
 * that every client of the profile may write. What a client has written is taken into the table when the key
 * is asked for or published by message; what changes in the table is copied here.
 */
import { Buffer } from 'node:buffer';
import { IwarpError, orNoMemory } from '../base/errors.ts';
import { latin1, type Keyspace } from './keyspace.ts';
import { KIND, UNIT } from './layout.ts';
import { Pages } from './pages.ts';
import type { Item } from './table.ts';
import { URDMA_VALUE } from './urdma-wire.ts';

/** Where a value lies: in bytes from the start of the memory. */
export interface Place {
  readonly offset: number;
  readonly length: number;
}

/** Bytes of a page: the longest value fits. */
export const URDMA_PAGE = 32_768;

export class UrdmaValues {
  readonly memory: Buffer;
  readonly #keys: Keyspace;
  readonly #pages: Pages;
  /** Places by key, as a string with a character for each byte; the one used longest ago is the first. */
  readonly #places = new Map<string, Place>();

  /** `octets` is a multiple of 32 KiB. */
  constructor(octets: number, keys: Keyspace) {
    this.memory = Buffer.from(orNoMemory(octets, () => new SharedArrayBuffer(octets)));
    this.#pages = new Pages(0, URDMA_PAGE, octets / URDMA_PAGE, () => undefined);
    this.#keys = keys;
    keys.onChange((key, item) => this.#changed(key, item));
  }

  /** Where the value of a key lies; its copy is made if there is none. Null for values above the limit. */
  place(key: Uint8Array, item: Item): Place | null {
    const name = latin1(key);
    const place = this.#places.get(name);
    if (place === undefined || place.length !== item.value.length) return this.#fill(name, item.value);
    this.#places.delete(name);
    this.#places.set(name, place);
    return place;
  }

  /** Whether the value of a key lies there. */
  isPlace(key: Uint8Array, offset: bigint, length: number): boolean {
    const place = this.#places.get(latin1(key));
    return place !== undefined && BigInt(place.offset) === offset && place.length === length;
  }

  /** A copy of what lies there now. */
  copy({ offset, length }: Place): Buffer {
    return Buffer.from(this.memory.subarray(offset, offset + length));
  }

  /** Take into the table what clients have written to the place of a key. */
  collect(key: Uint8Array): void {
    const place = this.#places.get(latin1(key));
    const item = this.#keys.table.peek(key);
    if (place === undefined || item === null || item.kind !== KIND.STRING) return;
    if (item.value.length !== place.length || item.value.length === 0) return;
    const written = this.copy(place);
    if (written.equals(item.value)) return;
    try {
      this.#keys.put(key, written, KIND.STRING, item.expiry, item.flags);
    } catch (error) {
      // A table that may not evict and is full keeps what it has.
      if (!(error instanceof IwarpError && error.code === 'ERR_LIMIT')) throw error;
    }
  }

  #changed(key: Uint8Array, item: Omit<Item, 'version'> | null): void {
    const name = latin1(key);
    if (!this.#places.has(name)) return;
    if (item === null || item.kind === KIND.HASH) this.#drop(name);
    else this.#fill(name, item.value);
  }

  #fill(name: string, value: Uint8Array): Place | null {
    let place = this.#places.get(name);
    if (place?.length !== value.length) {
      this.#drop(name);
      if (value.length > URDMA_VALUE) return null;
      place = { offset: this.#allocate(value.length), length: value.length };
    }
    this.#places.delete(name);
    this.#places.set(name, place);
    this.memory.set(value, place.offset);
    return place;
  }

  #drop(name: string): void {
    const place = this.#places.get(name);
    if (place === undefined) return;
    this.#places.delete(name);
    this.#pages.give(place.offset / UNIT);
  }

  /** Room for a value; the value used longest ago loses its place. */
  #allocate(length: number): number {
    const sizeClass = this.#pages.classOf(Math.max(1, length));
    for (;;) {
      const unit = this.#pages.take(sizeClass);
      if (unit >= 0) return unit * UNIT;
      const [oldest] = this.#places.keys();
      this.collect(Buffer.from(oldest!, 'latin1'));
      this.#drop(oldest!);
    }
  }
}
