/**
 * The owner's side of the table: the only code that changes it. Each change keeps an order in which a reader
 * that looks at any moment finds an old value, the new one, or nothing whole: the old record dies first, then
 * the entry changes, between two odd moments of its sequence number.
 */
import { defaultCrc32cEngine, type Crc32cEngine } from '../crc32c/engine.ts';
import { IwarpError, orNoMemory } from '../base/errors.ts';
import {
  BUCKET_ENTRIES,
  BUCKET_OCTETS,
  ENTRY,
  ENTRY_OCTETS,
  geometryOf,
  hashKey,
  longestValue,
  MAX_KEY,
  RECORD_HEADER,
  UNIT,
  type Geometry,
  type Hashed,
  type Kind,
} from './layout.ts';
import { Pages } from './pages.ts';

/** A value with what belongs to it. */
export interface Item {
  /** The bytes, in memory that nothing else uses. */
  readonly value: Uint8Array;
  readonly kind: Kind;
  /** The client's flags, u32. */
  readonly flags: number;
  /** Milliseconds since 1970 at which it goes; 0 never. */
  readonly expiry: number;
  /** Changes with each change of the key, and never comes again. */
  readonly version: number;
}

/** What a change stores. */
interface Stored {
  readonly value: Uint8Array;
  readonly kind: Kind;
  readonly flags: number;
  readonly expiry: number;
}

/** What a table has done. */
interface TableCounters {
  keys: number;
  evicted: number;
  expired: number;
  hits: number;
  misses: number;
}

const WORDS = ENTRY_OCTETS / 4;

export class Table {
  readonly geometry: Geometry;
  readonly memory: Uint8Array;
  readonly counters: TableCounters = { keys: 0, evicted: 0, expired: 0, hits: 0, misses: 0 };
  /** Called for keys that go by themselves: expired or evicted. */
  onGone: ((key: Uint8Array) => void) | null = null;
  /** Called for a record that leaves, whatever the reason, with its kind and value. */
  onRelease: ((kind: Kind, value: Uint8Array) => void) | null = null;
  readonly #words: Int32Array;
  readonly #view: DataView;
  readonly #crc: Crc32cEngine = defaultCrc32cEngine();
  readonly #pages: Pages;
  readonly #evicts: boolean;
  readonly #now: () => number;
  readonly #hashed: Hashed = { first: 0, second: 0, tag: 0 };
  #version = 0;

  constructor(octets: number, options: { seed: number; evicts: boolean; now: () => number }) {
    this.geometry = geometryOf(octets, options.seed);
    this.#evicts = options.evicts;
    this.#now = options.now;
    const buffer = orNoMemory(octets, () => new SharedArrayBuffer(octets));
    this.memory = new Uint8Array(buffer);
    this.#words = new Int32Array(buffer, 0, Math.floor(octets / 4));
    this.#view = new DataView(buffer);
    const { buckets, page, pages } = this.geometry;
    this.#pages = new Pages(buckets * BUCKET_OCTETS, page, pages, (place) => {
      const word = (place * UNIT) / 4;
      Atomics.store(this.#words, word, this.#words[word]! | 1);
    });
  }

  get longestValue(): number {
    return longestValue(this.geometry);
  }

  /** The item of a key, or null. A key whose time is over goes. */
  get(key: Uint8Array): Item | null {
    const entry = this.#find(key);
    if (entry < 0) {
      this.counters.misses++;
      return null;
    }
    this.counters.hits++;
    this.#words[entry * WORDS + ENTRY.USED] = 1;
    return this.#item(entry);
  }

  /** Like `get`, without counting as a use. */
  peek(key: Uint8Array): Item | null {
    const entry = this.#find(key);
    return entry < 0 ? null : this.#item(entry);
  }

  has(key: Uint8Array): boolean {
    return this.#find(key) >= 0;
  }

  /**
   * Store; the result is the new version.
   *
   * @throws ERR_TOO_LARGE for key or value, ERR_LIMIT if there is no room and nothing may be evicted
   */
  set(key: Uint8Array, stored: Stored): number {
    this.#checkSize(key, stored.value);
    const length = RECORD_HEADER + key.length + stored.value.length;
    const place = this.#allocate(length);
    let entry = this.#find(key);
    if (entry < 0) {
      entry = this.#freeEntry(key);
      if (entry < 0) {
        this.#pages.give(place);
        throw noRoom();
      }
      this.counters.keys++;
    } else {
      this.#killRecord(entry);
    }
    const version = this.#write(place, entry, key, stored);
    this.#point(entry, place, length);
    return version;
  }

  delete(key: Uint8Array): boolean {
    const entry = this.#find(key);
    if (entry < 0) return false;
    this.#remove(entry);
    return true;
  }

  /** Forget everything. */
  clear(): void {
    for (let entry = 0; entry < this.#entries; entry++) if (this.#isUsed(entry)) this.#remove(entry);
  }

  get #entries(): number {
    return this.geometry.buckets * BUCKET_ENTRIES;
  }

  /** The keys of one bucket: all keys that stay from first to last bucket are met exactly once. */
  keysOf(bucket: number): Uint8Array[] {
    const keys: Uint8Array[] = [];
    for (let i = 0; i < BUCKET_ENTRIES; i++) {
      const entry = bucket * BUCKET_ENTRIES + i;
      if (this.#isUsed(entry) && !this.#expire(entry)) keys.push(this.#keyOf(entry));
    }
    return keys;
  }

  /** Let keys of one bucket go whose time is over. */
  sweep(bucket: number): void {
    for (let i = 0; i < BUCKET_ENTRIES; i++) {
      const entry = bucket * BUCKET_ENTRIES + i;
      if (this.#isUsed(entry)) this.#expire(entry);
    }
  }

  // ------------------------------------------------------------------------------------------------ entries

  #isUsed(entry: number): boolean {
    return this.#words[entry * WORDS + ENTRY.SEQUENCE] !== 0;
  }

  /** The entry of a key that is there, or -1. */
  #find(key: Uint8Array): number {
    hashKey(key, this.geometry, this.#hashed);
    const { first, second, tag } = this.#hashed;
    const entry = this.#findIn(first, tag, key);
    const found = entry >= 0 || second === first ? entry : this.#findIn(second, tag, key);
    return found >= 0 && this.#expire(found) ? -1 : found;
  }

  #findIn(bucket: number, tag: number, key: Uint8Array): number {
    for (let i = 0; i < BUCKET_ENTRIES; i++) {
      const entry = bucket * BUCKET_ENTRIES + i;
      const at = entry * WORDS;
      if (this.#words[at + ENTRY.SEQUENCE] === 0 || this.#words[at + ENTRY.TAG] !== (tag | 0)) continue;
      if (this.#isKey(this.#placeOf(entry), key)) return entry;
    }
    return -1;
  }

  #isKey(place: number, key: Uint8Array): boolean {
    const at = place * UNIT;
    if (this.#view.getUint16(at + 20, true) !== key.length) return false;
    for (let i = 0; i < key.length; i++) if (this.memory[at + RECORD_HEADER + i] !== key[i]) return false;
    return true;
  }

  #placeOf(entry: number): number {
    return this.#words[entry * WORDS + ENTRY.PLACE]! >>> 0;
  }

  /**
   * A free entry for the key that was looked for last; -1 if both buckets are full and may not lose a key.
   */
  #freeEntry(key: Uint8Array): number {
    hashKey(key, this.geometry, this.#hashed);
    const { first, second, tag } = this.#hashed;
    for (const bucket of [first, second]) {
      for (let i = 0; i < BUCKET_ENTRIES; i++) {
        const entry = bucket * BUCKET_ENTRIES + i;
        if (this.#isUsed(entry) && !this.#expire(entry)) continue;
        if (bucket !== first) this.#spill(first, 1);
        this.#words[entry * WORDS + ENTRY.TAG] = tag | 0;
        return entry;
      }
    }
    if (!this.#evicts) return -1;
    const victim = this.#unused(first);
    this.#evict(victim);
    this.#words[victim * WORDS + ENTRY.TAG] = tag | 0;
    return victim;
  }

  /** An entry of a full bucket that was not used lately. */
  #unused(bucket: number): number {
    for (let i = 0; i < BUCKET_ENTRIES; i++) {
      const entry = bucket * BUCKET_ENTRIES + i;
      if (this.#words[entry * WORDS + ENTRY.USED] === 0) return entry;
      this.#words[entry * WORDS + ENTRY.USED] = 0;
    }
    return bucket * BUCKET_ENTRIES + (this.#version % BUCKET_ENTRIES);
  }

  #spill(bucket: number, by: number): void {
    Atomics.add(this.#words, bucket * BUCKET_ENTRIES * WORDS + ENTRY.SPILLED, by);
  }

  /** Let the entry point to a record that is whole. */
  #point(entry: number, place: number, length: number): void {
    const at = entry * WORDS;
    const words = this.#words;
    const before = words[at + ENTRY.SEQUENCE]!;
    const odd = (before | 1) >>> 0;
    Atomics.store(words, at + ENTRY.SEQUENCE, odd | 0);
    words[at + ENTRY.PLACE] = place | 0;
    words[at + ENTRY.LENGTH] = length;
    words[at + ENTRY.USED] = 1;
    // 0 means free.
    Atomics.store(words, at + ENTRY.SEQUENCE, ((odd + 1) | 0) === 0 ? 2 : (odd + 1) | 0);
  }

  #remove(entry: number): void {
    this.#killRecord(entry);
    const at = entry * WORDS;
    const words = this.#words;
    const key = this.#lastKey;
    Atomics.store(words, at + ENTRY.SEQUENCE, words[at + ENTRY.SEQUENCE]! | 1);
    words[at + ENTRY.TAG] = 0;
    words[at + ENTRY.PLACE] = 0;
    words[at + ENTRY.LENGTH] = 0;
    Atomics.store(words, at + ENTRY.SEQUENCE, 0);
    this.counters.keys--;
    const hashed: Hashed = { first: 0, second: 0, tag: 0 };
    hashKey(key, this.geometry, hashed);
    if (Math.floor(entry / BUCKET_ENTRIES) !== hashed.first) this.#spill(hashed.first, -1);
  }

  /** True if the entry's time was over: it is gone. */
  #expire(entry: number): boolean {
    const expiry = this.#view.getFloat64(this.#placeOf(entry) * UNIT + 8, true);
    if (expiry === 0 || expiry > this.#now()) return false;
    this.counters.expired++;
    this.#goes(entry);
    return true;
  }

  #evict(entry: number): void {
    this.counters.evicted++;
    this.#goes(entry);
  }

  #goes(entry: number): void {
    const { first, second, tag } = this.#hashed;
    this.#remove(entry);
    this.onGone?.(this.#lastKey);
    Object.assign(this.#hashed, { first, second, tag });
  }

  // ------------------------------------------------------------------------------------------------ records

  /** Copy of the key whose record died last. */
  #lastKey: Uint8Array = new Uint8Array(0);

  #keyOf(entry: number): Uint8Array {
    const at = this.#placeOf(entry) * UNIT;
    const start = at + RECORD_HEADER;
    return this.memory.slice(start, start + this.#view.getUint16(at + 20, true));
  }

  #item(entry: number): Item {
    const at = this.#placeOf(entry) * UNIT;
    const view = this.#view;
    const start = at + RECORD_HEADER + view.getUint16(at + 20, true);
    return {
      value: new Uint8Array(this.memory.subarray(start, start + view.getUint32(at + 4, true))),
      kind: view.getUint8(at + 22) as Kind,
      flags: view.getUint32(at + 16, true),
      expiry: view.getFloat64(at + 8, true),
      version: view.getFloat64(at + 24, true),
    };
  }

  /** From now on a reader that knows the place finds a dead record. */
  #killRecord(entry: number): void {
    const place = this.#placeOf(entry);
    this.#lastKey = this.#keyOf(entry);
    if (this.onRelease !== null) {
      const { kind, value } = this.#item(entry);
      this.onRelease(kind, value);
    }
    const word = (place * UNIT) / 4;
    Atomics.store(this.#words, word, this.#words[word]! | 1);
    this.#pages.give(place);
  }

  #write(place: number, entry: number, key: Uint8Array, { value, kind, flags, expiry }: Stored): number {
    const at = place * UNIT;
    const { memory } = this;
    const view = this.#view;
    const word = at / 4;
    const odd = this.#words[word]! | 1;
    Atomics.store(this.#words, word, odd);
    view.setUint32(at + 4, value.length, true);
    view.setFloat64(at + 8, expiry, true);
    view.setUint32(at + 16, flags, true);
    view.setUint16(at + 20, key.length, true);
    view.setUint16(at + 22, kind, true);
    const version = ++this.#version;
    view.setFloat64(at + 24, version, true);
    view.setUint32(at + 36, entry, true);
    memory.set(key, at + RECORD_HEADER);
    memory.set(value, at + RECORD_HEADER + key.length);
    // The CRC is over the sequence number that the record will have.
    const even = (odd + 1) | 0;
    const head = memory.slice(at, at + 32);
    new DataView(head.buffer).setInt32(0, even, true);
    const end = at + RECORD_HEADER + key.length + value.length;
    const begin = this.#crc.update(this.geometry.seed, head, 0, 32);
    const crc = this.#crc.update(begin, memory, at + RECORD_HEADER, end);
    view.setUint32(at + 32, crc, true);
    Atomics.store(this.#words, word, even);
    return version;
  }

  #isLive = (place: number): boolean => {
    const word = this.#words[(place * UNIT) / 4]!;
    return word !== 0 && (word & 1) === 0;
  };

  /** A place for a record; keys that were not used lately make room, perhaps the very key that is stored. */
  #allocate(length: number): number {
    const sizeClass = this.#pages.classOf(length);
    let place = this.#pages.take(sizeClass);
    if (place >= 0) return place;
    if (!this.#evicts) throw noRoom();
    for (let i = 0; i < 64 && place < 0; i++) {
      this.#makeRoom(sizeClass);
      place = this.#pages.take(sizeClass);
    }
    if (place < 0) throw noRoom();
    return place;
  }

  #makeRoom(sizeClass: number): void {
    // The hand may come from anywhere, and its first full round may only clear what it passes.
    for (let rounds = 0; rounds < 3; ) {
      const place = this.#pages.advance(sizeClass);
      if (place < 0) rounds++;
      if (place < 0 || !this.#isLive(place)) continue;
      const entry = this.#view.getUint32(place * UNIT + 36, true);
      if (this.#words[entry * WORDS + ENTRY.USED] === 0) return this.#evict(entry);
      this.#words[entry * WORDS + ENTRY.USED] = 0;
    }
    // No page of that size, or none that can give: another size loses a page.
    for (const place of this.#pages.cheapest(sizeClass, this.#isLive)) {
      if (this.#isLive(place)) this.#evict(this.#view.getUint32(place * UNIT + 36, true));
    }
  }

  #checkSize(key: Uint8Array, value: Uint8Array): void {
    if (key.length === 0 || key.length > MAX_KEY)
      throw new IwarpError('ERR_TOO_LARGE', `a key has 1 to ${MAX_KEY} bytes, got ${key.length}`);
    if (value.length > this.longestValue)
      throw new IwarpError(
        'ERR_TOO_LARGE',
        `a value of this table has at most ${this.longestValue} bytes, got ${value.length}: give it ` +
          'more memory',
      );
  }
}

function noRoom(): IwarpError {
  return new IwarpError('ERR_LIMIT', 'the table is full, and may not evict keys: give it more memory');
}
