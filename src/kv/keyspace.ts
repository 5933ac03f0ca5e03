/**
 * Keys as the edges see them: strings, hashes and counters over the table. Every change of a key goes through
 * here, so that the log of changes and the watchers of transactions miss none.
 */
import { Buffer } from 'node:buffer';
import type { Table, Item } from './table.ts';
import { KIND, type Kind } from './layout.ts';
import type { Counters } from './counters.ts';

/** Receives each change for the log: a key as it is now, or null for a key that is gone. */
type ChangeListener = (key: Uint8Array, item: Omit<Item, 'version'> | null) => void;

/** A hash: fields as Latin-1 strings of their bytes, in the order of their first setting. */
export type Fields = Map<string, Uint8Array>;

export class Keyspace {
  readonly table: Table;
  readonly now: () => number;
  readonly #counters: Counters;
  readonly #changed: ChangeListener[] = [];

  constructor(table: Table, counters: Counters, now: () => number) {
    this.table = table;
    this.#counters = counters;
    this.now = now;
    table.onGone = (key) => this.#report(key, null);
    table.onRelease = (kind, value) => {
      if (kind === KIND.COUNTER) counters.release(indexOf(value));
    };
  }

  onChange(listener: ChangeListener): void {
    this.#changed.push(listener);
  }

  /** The item; counters are given as the decimal digits of their value, of kind string. */
  get(key: Uint8Array): Item | null {
    return this.#shown(this.table.get(key));
  }

  peek(key: Uint8Array): Item | null {
    return this.#shown(this.table.peek(key));
  }

  #shown(item: Item | null): Item | null {
    if (item === null || item.kind !== KIND.COUNTER) return item;
    const value = Buffer.from(this.#counters.read(indexOf(item.value)).toString());
    return { ...item, kind: KIND.STRING, value };
  }

  /** Store, and return the new version. Throws as the table does. */
  put(key: Uint8Array, value: Uint8Array, kind: Kind, expiry = 0, flags = 0): number {
    const stored = { value, kind, flags, expiry };
    const version = this.table.set(key, stored);
    this.#report(key, stored);
    return version;
  }

  delete(key: Uint8Array): boolean {
    const was = this.table.delete(key);
    if (was) this.#report(key, null);
    return was;
  }

  clear(): void {
    for (let bucket = 0; bucket < this.table.geometry.buckets; bucket++)
      for (const key of this.table.keysOf(bucket)) this.delete(key);
  }

  /**
   * The place of the counter of a key, as a number of its word; made if there is none, with the key's present
   * integer. Null if the key holds something else.
   */
  counter(key: Uint8Array): number | null {
    const item = this.table.get(key);
    if (item?.kind === KIND.COUNTER) return indexOf(item.value);
    let start = 0n;
    if (item !== null) {
      const parsed = item.kind === KIND.STRING ? parseInteger(item.value) : null;
      if (parsed === null) return null;
      start = parsed;
    }
    const index = this.#counters.take(start);
    const value = new Uint8Array(4);
    new DataView(value.buffer).setUint32(0, index, true);
    try {
      this.put(key, value, KIND.COUNTER, item?.expiry ?? 0, item?.flags ?? 0);
    } catch (error) {
      this.#counters.release(index);
      throw error;
    }
    return index;
  }

  /** Add to a counter that has its own word; null if the key has none. */
  addToCounter(key: Uint8Array, by: bigint): bigint | null {
    const item = this.table.get(key);
    return item?.kind === KIND.COUNTER ? this.#counters.add(indexOf(item.value), by) : null;
  }

  #report(key: Uint8Array, item: Omit<Item, 'version'> | null): void {
    for (const listener of this.#changed) listener(key, this.#logged(item));
  }

  /** The log keeps the value of a counter, not the place of its word. */
  #logged(item: Omit<Item, 'version'> | null): Omit<Item, 'version'> | null {
    if (item?.kind !== KIND.COUNTER) return item;
    return { ...item, value: Buffer.from(this.#counters.read(indexOf(item.value)).toString()) };
  }
}

function indexOf(value: Uint8Array): number {
  return new DataView(value.buffer, value.byteOffset).getUint32(0, true);
}

const LEAST = -(2n ** 63n);
const MOST = 2n ** 63n - 1n;

/** A signed 64-bit integer in its one spelling (no sign +, no zeros in front), or null. */
export function parseInteger(octets: Uint8Array): bigint | null {
  if (octets.length === 0 || octets.length > 20) return null;
  const text = Buffer.from(octets).toString('latin1');
  if (!/^(?:0|-?[1-9]\d*)$/.test(text)) return null;
  const value = BigInt(text);
  return value < LEAST || value > MOST ? null : value;
}

/** True if a sum still is a signed 64-bit integer. */
export function fitsInteger(value: bigint): boolean {
  return value >= LEAST && value <= MOST;
}

/** Fields of a hash's record. */
export function decodeFields(value: Uint8Array): Fields {
  const fields: Fields = new Map();
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  for (let at = 0; at < value.length; ) {
    const [name, length] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
    const start = at + 8 + name;
    fields.set(latin1(value.subarray(at + 8, start)), value.subarray(start, start + length));
    at = start + length;
  }
  return fields;
}

/** A hash's record: for each field its length u32, the value's length u32, both little-endian, and both. */
export function encodeFields(fields: Fields): Uint8Array {
  let octets = 0;
  for (const [name, value] of fields) octets += 8 + name.length + value.length;
  const out = Buffer.alloc(octets);
  let at = 0;
  for (const [name, value] of fields) {
    out.writeUInt32LE(name.length, at);
    out.writeUInt32LE(value.length, at + 4);
    at += 8 + out.write(name, at + 8, 'latin1');
    out.set(value, at);
    at += value.length;
  }
  return out;
}

/** Bytes as a string with a character each, for keys of maps. */
export function latin1(octets: Uint8Array): string {
  return Buffer.from(octets.buffer, octets.byteOffset, octets.byteLength).toString('latin1');
}
