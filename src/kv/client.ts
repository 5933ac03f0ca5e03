/**
 * A client of a store. A `get` is one RDMA Read if the key's place is known from an earlier one, else two,
 * and no code of the owner runs; changes are messages.
 */
import { Buffer } from 'node:buffer';
import { connect as connectRdma } from '../api/connect.ts';
import type { Connection } from '../api/connection.ts';
import { defaultRnic } from '../api/environment.ts';
import { checkBytes, checkInteger, checkOptions, IwarpError, show, type Names } from '../base/errors.ts';
import type { RemoteBuffer } from '../api/remote-buffer.ts';
import type { MemoryRegion } from '../verbs/index.ts';
import { CONNECT_NAMES, type KvConnectOptions } from './client-options.ts';
import { BUCKET_OCTETS, hashKey, KIND, MAX_KEY, RECORD_HEADER, UNIT, type Hashed } from './layout.ts';
import { latin1 } from './keyspace.ts';
import { OP, STATUS } from './memcached-binary.ts';
import { OwnerClock } from './owner-clock.ts';
import { decodeSetup, KV_OP, MESSAGE_OCTETS, MESSAGE_VALUE, STORE_MODE, type Setup } from './rdma-wire.ts';
import { readBucket, readRecord, type Location, type WholeRecord } from './reader.ts';
import { RemoteCounter, RemoteLock, type LockOptions } from './remote-words.ts';
import { checkAnswer, Rpc } from './rpc.ts';
import type { StoreStats } from './store.ts';

/** Options of {@link KvClient.set}. */
export interface SetOptions {
  /** Milliseconds until the key goes; 0, the default, is never. */
  readonly ttl?: number | undefined;
  /** `add`: only if the key is new; `replace`: only if it is there. */
  readonly when?: 'add' | 'replace' | undefined;
  /** Only if the key still has this version, of {@link Versioned}. */
  readonly version?: number | undefined;
  /** A u32 that clients of memcached see. Default 0. */
  readonly flags?: number | undefined;
}

/** A value and the version that it had. */
export interface Versioned {
  /** The value, in memory that nothing else uses. */
  readonly value: Uint8Array;
  /** A number that the key never has again after a change. */
  readonly version: number;
  /** The flags that it was stored with. */
  readonly flags: number;
}

/** Counts of {@link KvClient.stats}. */
export interface KvClientStats {
  /** RDMA Reads posted. */
  reads: number;
  /** Gets that found the place remembered. */
  remembered: number;
  /** Bytes that were not whole, or a place that was dead: each costs another read. */
  torn: number;
  /** Gets that had to ask the owner. */
  asked: number;
  /** Messages to the owner. */
  messages: number;
}

const SET: Names<SetOptions> = { ttl: true, when: true, version: true, flags: true };

/** Tries before the owner is asked. */
const TRIES = 3;
/** Scratch places of a connection, and bytes of each: larger reads have separate memory. */
const SLOTS = 64;
const SLOT_OCTETS = 8192;

/** Registered memory for a read. */
interface Slot {
  readonly bytes: Uint8Array;
  readonly mr: MemoryRegion;
  readonly offset: number;
}

/** A place that is remembered, with what the next read of it needs. */
interface Known extends Location {
  readonly key: Uint8Array;
  readonly remote: RemoteBuffer;
}

/** A connection to a store; made by {@link connect}. Any number of calls may be under way. */
export class KvClient {
  readonly #connection: Connection;
  readonly #rpc: Rpc;
  readonly #setup: Setup;
  readonly #clock: OwnerClock;
  readonly #most: number;
  /** Places by the bytes of their keys, as a string with a character for each. */
  readonly #locations = new Map<string, Known>();
  readonly #free: Slot[] = [];
  readonly #stats: KvClientStats = { reads: 0, remembered: 0, torn: 0, asked: 0, messages: 0 };

  /** @internal */
  constructor(connection: Connection, rpc: Rpc, setup: Setup, clock: OwnerClock, locations: number) {
    this.#connection = connection;
    this.#rpc = rpc;
    this.#setup = setup;
    this.#clock = clock;
    this.#most = locations;
    const mr = connection.allocate(SLOTS * SLOT_OCTETS, 'none');
    for (let i = 0; i < SLOTS; i++) {
      const offset = i * SLOT_OCTETS;
      this.#free.push({ mr, offset, bytes: mr.bytes.subarray(offset, offset + SLOT_OCTETS) });
    }
  }

  /** Resolves when the connection has ended; with the error, if any. */
  get closed(): Promise<IwarpError | undefined> {
    return this.#connection.closed.then(({ error }) => error);
  }

  /** What this client has done. */
  stats(): Readonly<KvClientStats> {
    return { ...this.#stats };
  }

  /**
   * The value of a key, in memory that nothing else uses, or null.
   *
   * Rejects with ERR_INVALID_STATE for a hash, and with the connection's error.
   */
  get(key: string | Uint8Array): Promise<Uint8Array | null> {
    return this.#fetch(key, ({ value }) => value);
  }

  /** As {@link KvClient.get}, with version and flags, for a later `set` of that version. */
  getVersioned(key: string | Uint8Array): Promise<Versioned | null> {
    return this.#fetch(key, (found) => found);
  }

  /**
   * Read a value into `memory`; the result is its length, or -1 if there is none.
   *
   * Rejects with ERR_OUT_OF_RANGE if it does not fit.
   */
  async getInto(key: string | Uint8Array, memory: Uint8Array): Promise<number> {
    checkBytes('memory', memory);
    const value = await this.get(key);
    if (value === null) return -1;
    if (value.length > memory.length)
      throw new IwarpError(
        'ERR_OUT_OF_RANGE',
        `the value has ${value.length} bytes, and memory ${memory.length}`,
      );
    memory.set(value);
    return value.length;
  }

  /** Values of several keys, read at the same time; null for those that are not there. */
  getMany(keys: readonly (string | Uint8Array)[]): Promise<(Uint8Array | null)[]> {
    return Promise.all(keys.map((key) => this.get(key)));
  }

  /**
   * Store a value. Resolves with its version once the owner has stored it, or with null if the condition of
   * the options is not met.
   *
   * Rejects with ERR_TOO_LARGE, ERR_LIMIT if the store is full and does not evict, and the connection's
   * error.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  async set(
    key: string | Uint8Array,
    value: string | Uint8Array,
    options: SetOptions = {},
  ): Promise<number | null> {
    checkOptions('options', options, SET);
    const bytes = keyOf(key);
    const payload = typeof value === 'string' ? Buffer.from(value) : checkBytes('value', value);
    const { ttl = 0, when, version, flags = 0 } = options;
    const extras = Buffer.alloc(16);
    extras.writeDoubleBE(checkInteger('options.ttl', ttl, 0, Number.MAX_SAFE_INTEGER / 2), 0);
    extras.writeUInt32BE(checkInteger('options.flags', flags, 0, 0xffff_ffff), 8);
    extras.writeUInt32BE(modeOf(when, version), 12);
    const call = { key: bytes, extras, version: version ?? 0 };
    this.#stats.messages++;
    const answer = await (payload.length <= MESSAGE_VALUE
      ? this.#rpc.call({ opcode: KV_OP.STORE, ...call, value: payload })
      : this.#storeFrom(call, payload));
    const refused = [STATUS.NOT_FOUND, STATUS.EXISTS, STATUS.NOT_STORED];
    return checkAnswer(answer, refused).status === STATUS.OK ? answer.version : null;
  }

  /** Remove a key; true if it was there. */
  async delete(key: string | Uint8Array): Promise<boolean> {
    this.#stats.messages++;
    const answer = await this.#rpc.call({ opcode: OP.DELETE, key: keyOf(key) });
    return checkAnswer(answer, [STATUS.NOT_FOUND]).status === STATUS.OK;
  }

  /**
   * Add to the integer of a key, which is 0 if there is none; the result is the sum. The owner adds: see
   * {@link KvClient.counter} for counters that cost it nothing.
   *
   * Rejects with ERR_INVALID_STATE if the key holds no integer or the sum is none of 64 bits.
   */
  async increment(key: string | Uint8Array, by: bigint | number = 1): Promise<bigint> {
    const extras = Buffer.alloc(8);
    extras.writeBigInt64BE(BigInt(by));
    this.#stats.messages++;
    const answer = checkAnswer(await this.#rpc.call({ opcode: KV_OP.ADD, key: keyOf(key), extras }));
    return answer.value.readBigInt64BE(0);
  }

  /** Give a key a time, in milliseconds from now; 0: it stays for ever. False if there is no such key. */
  async expire(key: string | Uint8Array, ttl: number): Promise<boolean> {
    const extras = Buffer.alloc(8);
    extras.writeDoubleBE(checkInteger('ttl', ttl, 0, Number.MAX_SAFE_INTEGER / 2));
    this.#stats.messages++;
    const answer = await this.#rpc.call({ opcode: KV_OP.EXPIRE, key: keyOf(key), extras });
    return checkAnswer(answer, [STATUS.NOT_FOUND]).status === STATUS.OK;
  }

  /**
   * A counter of the store that clients add to by FetchAdd, without any code of the owner. Other clients see
   * it as a key with an integer. It wraps at 64 bits.
   */
  async counter(key: string | Uint8Array): Promise<RemoteCounter> {
    return new RemoteCounter(this.#connection, this.#setup.counters, await this.#word(key));
  }

  /** A lock of the store, taken by CmpSwap; a holder that dies loses it when its lease is over. */
  async lock(key: string | Uint8Array, options: LockOptions = {}): Promise<RemoteLock> {
    const word = await this.#word(key);
    return new RemoteLock(this.#connection, this.#setup.counters, word, this.#clock, options);
  }

  /** The numbers of the store, as its owner counts them. */
  async storeStats(): Promise<StoreStats> {
    this.#stats.messages++;
    const { value } = checkAnswer(await this.#rpc.call({ opcode: KV_OP.STATS }));
    return JSON.parse(value.toString()) as StoreStats;
  }

  /** Close in order. */
  async close(): Promise<void> {
    await this.#connection.close();
  }

  // ------------------------------------------------------------------------------------------------- reading

  /** One function as far as a remembered place goes: each more that is awaited costs a turn of the queue. */
  async #fetch<T>(key: string | Uint8Array, pick: (found: Versioned) => T): Promise<T | null> {
    const name = nameOf(key);
    const known = this.#locations.get(name);
    const bytes = known?.key ?? keyOf(key);
    let remembered: { slot: Slot; record: WholeRecord } | null = null;
    if (known !== undefined) {
      const { remote, length } = known;
      const slot = this.#take(length);
      this.#stats.reads++;
      await this.#connection.read(remote, { mr: slot.mr, offset: slot.offset, length });
      remembered = this.#recall(known, name, slot);
    }
    const found = remembered === null ? await this.#find(bytes, name) : this.#alive(remembered, name);
    const versioned = found === 'ask' ? await this.#ask(bytes) : found;
    if (versioned === null) return null;
    if (!('slot' in versioned)) return pick(versioned);
    const { slot, record } = versioned;
    const value = new Uint8Array(record.to - record.from);
    value.set(slot.bytes.subarray(record.from, record.to));
    this.#give(slot);
    if (record.kind !== KIND.COUNTER) return pick({ value, version: record.version, flags: record.flags });
    return pick(await this.#counted(value, record));
  }

  /** The record at a remembered place; null, and the place is forgotten, if it is there no longer. */
  #recall(known: Known, name: string, slot: Slot): { slot: Slot; record: WholeRecord } | null {
    const { key, length } = known;
    const record = readRecord(slot.bytes, length, key, this.#setup.geometry.seed);
    if (typeof record === 'object') {
      this.#stats.remembered++;
      return { slot, record };
    }
    this.#give(slot);
    if (this.#locations.get(name) === known) this.#locations.delete(name);
    this.#stats.torn++;
    return null;
  }

  /**
   * The record of a key, in a slot to give back; null if there is none; `ask` if reading does not settle it.
   */
  async #find(key: Uint8Array, name: string): Promise<{ slot: Slot; record: WholeRecord } | null | 'ask'> {
    const hashed: Hashed = { first: 0, second: 0, tag: 0 };
    hashKey(key, this.#setup.geometry, hashed);
    for (let i = 0; i < TRIES; i++) {
      const found = await this.#lookUp(hashed, key, name);
      if (found === null) return null;
      if (found !== 'unsettled') return this.#alive(found, name);
      this.#stats.torn++;
    }
    return 'ask';
  }

  #alive(
    found: { slot: Slot; record: WholeRecord },
    name: string,
  ): { slot: Slot; record: WholeRecord } | null {
    const { record, slot } = found;
    if (record.kind === KIND.HASH) {
      this.#give(slot);
      throw new IwarpError('ERR_INVALID_STATE', 'the key holds a hash, which clients of Redis read');
    }
    if (record.expiry === 0 || record.expiry > this.#clock.earliest) return found;
    this.#give(slot);
    this.#locations.delete(name);
    return null;
  }

  async #lookUp(
    hashed: Hashed,
    key: Uint8Array,
    name: string,
  ): Promise<{ slot: Slot; record: WholeRecord } | null | 'unsettled'> {
    for (const bucket of [hashed.first, hashed.second]) {
      const remote = this.#setup.table.slice(bucket * BUCKET_OCTETS, BUCKET_OCTETS);
      const slot = await this.#read(remote, BUCKET_OCTETS);
      const bytes = new DataView(slot.bytes.buffer, slot.bytes.byteOffset, BUCKET_OCTETS);
      const { candidates, isUnsettled, hasSpilled } = readBucket(bytes, hashed.tag);
      this.#give(slot);
      for (const location of candidates) {
        const found = await this.#readAt(location, key);
        // Another key's record: the tags are equal by chance, or the place has been given to that key since
        // the bucket was read. Only another look, or the owner, can tell the two apart.
        if (typeof found === 'string') return 'unsettled';
        this.#remember(name, location, key);
        return found;
      }
      if (isUnsettled) return 'unsettled';
      if (!hasSpilled) return null;
    }
    return null;
  }

  async #readAt(
    { place, length }: Location,
    key: Uint8Array,
  ): Promise<{ slot: Slot; record: WholeRecord } | 'other' | 'torn'> {
    const { octets, seed, page } = this.#setup.geometry;
    if (length < RECORD_HEADER || length > page || place * UNIT + length > octets) return 'torn';
    const slot = await this.#read(this.#setup.table.slice(place * UNIT, length), length);
    const record = readRecord(slot.bytes, length, key, seed);
    if (typeof record === 'object') return { slot, record };
    this.#give(slot);
    return record;
  }

  async #read(remote: RemoteBuffer, length: number): Promise<Slot> {
    const slot = this.#take(length);
    this.#stats.reads++;
    await this.#connection.read(remote, { mr: slot.mr, offset: slot.offset, length });
    return slot;
  }

  #take(length: number): Slot {
    const slot = length <= SLOT_OCTETS ? this.#free.pop() : undefined;
    if (slot !== undefined) return slot;
    const mr = this.#connection.allocate(length, 'none');
    return { mr, offset: 0, bytes: mr.bytes };
  }

  #give(slot: Slot): void {
    if (slot.bytes.length === SLOT_OCTETS && this.#free.length < SLOTS) this.#free.push(slot);
    else if (slot.bytes.length === slot.mr.length) slot.mr.deregister();
  }

  #remember(name: string, { place, length }: Location, key: Uint8Array): void {
    if (this.#most === 0) return;
    if (this.#locations.size >= this.#most) {
      // The oldest one: a Map keeps the order of insertion.
      for (const oldest of this.#locations.keys()) {
        this.#locations.delete(oldest);
        break;
      }
    }
    const remote = this.#setup.table.slice(place * UNIT, length);
    this.#locations.set(name, { place, length, key, remote });
  }

  /** Reading has not settled it: the owner knows. */
  async #ask(key: Uint8Array): Promise<Versioned | null> {
    this.#stats.asked++;
    this.#stats.messages++;
    const answer = checkAnswer(await this.#rpc.call({ opcode: OP.GET, key }), [STATUS.NOT_FOUND]);
    if (answer.status === STATUS.NOT_FOUND) return null;
    return {
      value: new Uint8Array(answer.value),
      version: answer.version,
      flags: answer.extras.readUInt32BE(0),
    };
  }

  async #counted(value: Uint8Array, { version, flags }: WholeRecord): Promise<Versioned> {
    const index = new DataView(value.buffer).getUint32(0, true);
    const now = await new RemoteCounter(this.#connection, this.#setup.counters, index).get();
    return { value: Buffer.from(now.toString()), version, flags };
  }

  // ------------------------------------------------------------------------------------------------ changing

  async #storeFrom(
    call: { key: Uint8Array; extras: Buffer; version: number },
    value: Uint8Array,
  ): ReturnType<Rpc['call']> {
    const mr = this.#connection.allocate(value.length, 'read');
    try {
      mr.bytes.set(value);
      const extras = Buffer.concat([call.extras, this.#connection.share(mr).toBytes()]);
      return await this.#rpc.call({ opcode: KV_OP.STORE_FROM, ...call, extras });
    } finally {
      if (!mr.deregistered) mr.deregister();
    }
  }

  async #word(key: string | Uint8Array): Promise<number> {
    this.#stats.messages++;
    const answer = checkAnswer(await this.#rpc.call({ opcode: KV_OP.COUNTER, key: keyOf(key) }));
    return answer.value.readUInt32BE(0);
  }
}

/** One byte for each character. */
const ASCII = /^[\0-\x7f]*$/;

/** The bytes of a key as a string with a character for each. */
function nameOf(key: string | Uint8Array): string {
  const isName = typeof key === 'string' && key.length > 0 && key.length <= MAX_KEY && ASCII.test(key);
  return isName ? key : latin1(keyOf(key));
}

function keyOf(key: string | Uint8Array): Uint8Array {
  const bytes = typeof key === 'string' ? Buffer.from(key) : checkBytes('key', key);
  if (bytes.length === 0 || bytes.length > MAX_KEY)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `key must have 1 to ${MAX_KEY} bytes, got ${bytes.length}`);
  return bytes;
}

function modeOf(when: SetOptions['when'], version: number | undefined): number {
  if (version !== undefined) {
    checkInteger('options.version', version, 1, Number.MAX_SAFE_INTEGER);
    if (when !== undefined)
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.when: a version is a condition already');
    return STORE_MODE.CAS;
  }
  if (when === undefined) return STORE_MODE.SET;
  if (when !== 'add' && when !== 'replace')
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.when must be add or replace, got ${show(when)}`);
  return when === 'add' ? STORE_MODE.ADD : STORE_MODE.REPLACE;
}

/**
 * Connect to a store.
 *
 * Rejects with ERR_CONNECT, ERR_REJECTED, ERR_STARTUP, ERR_TIMEOUT, ERR_PROTOCOL if it is no store.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const kv = await connect({ host: '192.0.2.7', port: 7480 });
 * await kv.set('colour', 'blue', { ttl: 60_000 });
 * console.log(await kv.get('colour'));
 */
export async function connect(options: KvConnectOptions): Promise<KvClient> {
  checkOptions('options', options, CONNECT_NAMES);
  const { host = '127.0.0.1', port, locations = 65_536, engine, rnic } = options;
  checkInteger('options.locations', locations, 0, 10_000_000);
  if (rnic !== undefined && engine !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engine: the device in options.rnic has its own');
  const device = rnic ?? defaultRnic(engine);
  const connection = await connectRdma({ host, port, rnic: device, maxMessageSize: MESSAGE_OCTETS });
  const rpc = new Rpc(connection);
  try {
    const asked = Date.now();
    const hello = checkAnswer(await rpc.call({ opcode: KV_OP.HELLO }));
    const setup = decodeSetup(hello.value);
    return new KvClient(connection, rpc, setup, new OwnerClock(setup.now, asked, Date.now()), locations);
  } catch (error) {
    connection.destroy();
    throw error;
  }
}
