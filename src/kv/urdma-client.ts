/**
 * A client of the paper's key-value store: of a store with the profile urdma, and of urdma's own server. It
 * remembers the place of each value that a reply names; then a `get` is one RDMA Read, and a longer value of
 * the same length is stored by an RDMA Write and a Send.
 */
import { Buffer } from 'node:buffer';
import { connect as connectRdma } from '../api/connect.ts';
import type { Connection } from '../api/connection.ts';
import { defaultRnic } from '../api/environment.ts';
import { RemoteBuffer } from '../api/remote-buffer.ts';
import {
  checkBoolean,
  checkBytes,
  checkInteger,
  checkOneOf,
  checkOptions,
  IwarpError,
  type Names,
} from '../base/errors.ts';
import type { MemoryRegion } from '../verbs/index.ts';
import { CONNECT_NAMES, type KvConnectOptions } from './client-options.ts';
import { latin1 } from './keyspace.ts';
import { OP, STATUS } from './memcached-binary.ts';
import {
  decodeUrdma,
  encodeUrdma,
  URDMA_KEY,
  URDMA_MESSAGE,
  URDMA_RECEIVES,
  URDMA_VALUE,
  type UrdmaMessage,
} from './urdma-wire.ts';

/** Options of {@link connectUrdma}. */
export interface UrdmaConnectOptions extends KvConnectOptions {
  /**
   * Whether a Write is followed by a Send that publishes the value, which a store of this package then takes
   * into its table. Default true; false for urdma's own server, whose clients only Write.
   */
  readonly publish?: boolean | undefined;
}

/** Options of {@link UrdmaClient.get}. */
export interface UrdmaGetOptions {
  /** Ask the owner, even if the value's place is known. Default false. */
  readonly fresh?: boolean | undefined;
}

/** Options of {@link UrdmaClient.set}. */
export interface UrdmaSetOptions {
  /** Milliseconds until the key goes, counted in whole seconds; 0, the default, is never. */
  readonly ttl?: number | undefined;
  /** `add`: only if the key is new; `replace`: only if it is there. */
  readonly when?: 'add' | 'replace' | undefined;
  /** A u32 that clients of memcached see. Default 0. */
  readonly flags?: number | undefined;
}

/** Counts of {@link UrdmaClient.stats}. */
export interface UrdmaClientStats {
  /** Values fetched by RDMA Read, without the owner. */
  reads: number;
  /** Values stored by RDMA Write and Send. */
  writes: number;
  /** Messages to the owner. */
  messages: number;
}

type Reply = Required<UrdmaMessage>;

interface Waiter {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

const CONNECT: Names<UrdmaConnectOptions> = { ...CONNECT_NAMES, publish: true };
const GET: Names<UrdmaGetOptions> = { fresh: true };
const SET: Names<UrdmaSetOptions> = { ttl: true, when: true, flags: true };
const OPCODES = { set: OP.SET, add: OP.ADD, replace: OP.REPLACE } as const;

/** Calls under way at a time: the server has as many receives, and each call has memory for a value. */
const MOST_CALLS = 32;
/** Shorter values go in the message: a separate Write would cost more than their bytes. */
const LEAST_WRITTEN = 1024;
/** Times above 30 days are moments, in the protocol of memcached. */
const MOST_RELATIVE = 60 * 60 * 24 * 30;

/** A connection to a store of the profile urdma; made by {@link connectUrdma}. */
export class UrdmaClient {
  readonly #connection: Connection;
  readonly #most: number;
  readonly #publishes: boolean;
  readonly #places = new Map<string, RemoteBuffer>();
  readonly #waiting = new Map<number, Waiter>();
  readonly #memory: MemoryRegion;
  /** Numbers of the parts of the memory that no call uses, and calls that wait for one. */
  readonly #free: number[] = [];
  readonly #line: ((part: number) => void)[] = [];
  readonly #stats: UrdmaClientStats = { reads: 0, writes: 0, messages: 0 };
  #next = 0;

  /** @internal */
  constructor(connection: Connection, places: number, publishes: boolean) {
    this.#connection = connection;
    this.#most = places;
    this.#publishes = publishes;
    this.#memory = connection.allocate(MOST_CALLS * URDMA_VALUE, 'write');
    for (let part = MOST_CALLS - 1; part >= 0; part--) this.#free.push(part);
    void this.#listen();
  }

  /** Resolves when the connection has ended; with the error, if any. */
  get closed(): Promise<IwarpError | undefined> {
    return this.#connection.closed.then(({ error }) => error);
  }

  /** What this client has done. */
  stats(): Readonly<UrdmaClientStats> {
    return { ...this.#stats };
  }

  /**
   * The value of a key, in separate memory, or null. With a known place it is whatever lies there: nothing
   * says whether the value is whole, has been replaced by one of another length, or has gone.
   *
   * Rejects with the connection's error.
   */
  async get(key: string | Uint8Array, options: UrdmaGetOptions = {}): Promise<Uint8Array | null> {
    checkOptions('options', options, GET);
    const bytes = keyOf(key);
    const place = options.fresh === true ? undefined : this.#places.get(latin1(bytes));
    return await this.#withPart(async (part) => {
      const offset = part * URDMA_VALUE;
      const memory = this.#memory.bytes.subarray(offset, offset + URDMA_VALUE);
      if (place !== undefined && place.length > 0 && place.length <= URDMA_VALUE) {
        this.#stats.reads++;
        const local = { mr: this.#memory, offset, length: place.length };
        await this.#connection.read(place, local);
        return new Uint8Array(memory.subarray(0, place.length));
      }
      const sink = this.#connection.share(this.#memory, offset, URDMA_VALUE);
      const reply = await this.#call({ opcode: OP.GET, key: bytes, place: sink });
      if (reply.status === STATUS.NOT_FOUND) return this.#forget(bytes);
      check(reply);
      const length = Buffer.from(reply.extras).readUInt32BE(4);
      this.#remember(bytes, reply.place);
      return new Uint8Array(memory.subarray(0, length));
    });
  }

  /**
   * Store a value; true, or false if the condition of the options is not met. A value of 1 KiB and more goes
   * by an RDMA Write, and a Send that publishes it, if the key's place is known and has its length; any other
   * in the message.
   *
   * Rejects with ERR_TOO_LARGE, and the connection's error.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  async set(
    key: string | Uint8Array,
    value: string | Uint8Array,
    options: UrdmaSetOptions = {},
  ): Promise<boolean> {
    checkOptions('options', options, SET);
    const bytes = keyOf(key);
    const payload = typeof value === 'string' ? Buffer.from(value) : checkBytes('value', value);
    if (payload.length > URDMA_VALUE)
      throw new IwarpError(
        'ERR_TOO_LARGE',
        `value has ${payload.length} bytes, the profile takes ${URDMA_VALUE}`,
      );
    const { ttl = 0, when, flags = 0 } = options;
    if (when !== undefined) checkOneOf('options.when', when, ['add', 'replace']);
    const extras = Buffer.alloc(8);
    extras.writeUInt32BE(checkInteger('options.flags', flags, 0, 0xffff_ffff), 0);
    extras.writeUInt32BE(secondsOf(checkInteger('options.ttl', ttl, 0, Number.MAX_SAFE_INTEGER / 2)), 4);
    const call = { opcode: OPCODES[when ?? 'set'], key: bytes, extras };
    return await this.#withPart(async (part) => {
      const place = when === undefined ? this.#places.get(latin1(bytes)) : undefined;
      if (place?.length === payload.length && payload.length >= LEAST_WRITTEN) {
        const published = await this.#writeTo(place, part, payload, call);
        if (published) return true;
        this.#forget(bytes);
      }
      const reply = await this.#call({ ...call, value: payload });
      if (reply.status === STATUS.NOT_STORED && when !== undefined) return false;
      check(reply);
      this.#remember(bytes, reply.place);
      return true;
    });
  }

  /** Remove a key; true if it was there. urdma's own server does not know this: ERR_PROTOCOL. */
  async delete(key: string | Uint8Array): Promise<boolean> {
    const bytes = keyOf(key);
    return await this.#withPart(async () => {
      const reply = await this.#call({ opcode: OP.DELETE, key: bytes });
      this.#forget(bytes);
      if (reply.status === STATUS.NOT_FOUND) return false;
      check(reply);
      return true;
    });
  }

  /** Close in order. */
  async close(): Promise<void> {
    await this.#connection.close();
  }

  /** The Write of a PUT, and the Send that publishes it; false if the place is no longer that of the key. */
  async #writeTo(
    place: RemoteBuffer,
    part: number,
    value: Uint8Array,
    call: Omit<UrdmaMessage, 'opaque'>,
  ): Promise<boolean> {
    const local = { mr: this.#memory, offset: part * URDMA_VALUE, length: value.length };
    this.#memory.bytes.set(value, local.offset);
    this.#stats.writes++;
    const written = this.#connection.write(local, place);
    if (!this.#publishes) {
      await written;
      return true;
    }
    const [reply] = await Promise.all([this.#call({ ...call, place }), written]);
    return reply.status === STATUS.OK;
  }

  async #call(request: Omit<UrdmaMessage, 'opaque'>): Promise<Reply> {
    const opaque = this.#next;
    this.#next = (this.#next + 1) >>> 0;
    this.#stats.messages++;
    const reply = new Promise<Reply>((resolve, reject) => this.#waiting.set(opaque, { resolve, reject }));
    reply.catch(() => undefined); // `send` may fail first
    await this.#connection.send(encodeUrdma('request', { ...request, opaque }));
    return await reply;
  }

  async #listen(): Promise<void> {
    let cause: unknown;
    try {
      for await (const message of this.#connection.messages()) {
        const reply = decodeUrdma('reply', Buffer.from(message.data));
        message.release();
        const waiter = reply === null ? undefined : this.#waiting.get(reply.opaque);
        if (reply === null || waiter === undefined)
          throw new IwarpError('ERR_PROTOCOL', 'a message of the store is no reply');
        this.#waiting.delete(reply.opaque);
        waiter.resolve(reply);
      }
    } catch (error) {
      cause = error;
    }
    this.#connection.destroy();
    const { error } = await this.#connection.closed;
    const reason =
      cause ?? error ?? new IwarpError('ERR_CONNECTION_CLOSED', 'the store has closed the connection');
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }

  /** Run with a part of the memory; calls beyond the limit wait in line. */
  async #withPart<T>(run: (part: number) => Promise<T>): Promise<T> {
    const part = this.#free.pop() ?? (await new Promise<number>((resolve) => this.#line.push(resolve)));
    try {
      return await run(part);
    } finally {
      const waiting = this.#line.shift();
      if (waiting === undefined) this.#free.push(part);
      else waiting(part);
    }
  }

  #remember(key: Uint8Array, place: RemoteBuffer): void {
    if (this.#most === 0 || place.length === 0) return void this.#forget(key);
    const name = latin1(key);
    this.#places.delete(name);
    this.#places.set(name, place);
    if (this.#places.size <= this.#most) return;
    const [oldest] = this.#places.keys();
    this.#places.delete(oldest!);
  }

  #forget(key: Uint8Array): null {
    this.#places.delete(latin1(key));
    return null;
  }
}

function keyOf(key: string | Uint8Array): Uint8Array {
  const bytes = typeof key === 'string' ? Buffer.from(key) : checkBytes('key', key);
  if (bytes.length === 0 || bytes.length > URDMA_KEY)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `key must have 1 to ${URDMA_KEY} bytes, got ${bytes.length}`,
    );
  return bytes;
}

function secondsOf(ttl: number): number {
  const seconds = Math.ceil(ttl / 1000);
  const counted = seconds > MOST_RELATIVE ? Math.ceil((Date.now() + ttl) / 1000) : seconds;
  return Math.min(counted, 2 ** 31 - 1);
}

function check({ status, opcode, extras }: Reply): void {
  if (status === STATUS.TOO_LARGE)
    throw new IwarpError('ERR_TOO_LARGE', 'the store does not take values of this length');
  if (status !== STATUS.OK) throw new IwarpError('ERR_PROTOCOL', `the store answers with status ${status}`);
  if (opcode === OP.GET && extras.length !== 8)
    throw new IwarpError('ERR_PROTOCOL', 'the store answers a GET without the length of the value');
}

/**
 * Connect to a store of the profile urdma. It is not the protocol of {@link connect}.
 *
 * Rejects with ERR_CONNECT, ERR_REJECTED, ERR_STARTUP, ERR_TIMEOUT.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const kv = await connectUrdma({ host: '192.0.2.7', port: 10000 });
 * await kv.set('colour', 'blue');
 * console.log(await kv.get('colour')); // an RDMA Read
 */
export async function connectUrdma(options: UrdmaConnectOptions): Promise<UrdmaClient> {
  checkOptions('options', options, CONNECT);
  const { host = '127.0.0.1', port, locations = 65_536, engine, rnic, publish = true } = options;
  checkInteger('options.locations', locations, 0, 10_000_000);
  checkBoolean('options.publish', publish);
  if (rnic !== undefined && engine !== undefined)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.engine: the device in options.rnic has its own');
  const connection = await connectRdma({
    host,
    port,
    rnic: rnic ?? defaultRnic(engine),
    credits: false,
    receiveDepth: URDMA_RECEIVES,
    maxMessageSize: URDMA_MESSAGE,
  });
  return new UrdmaClient(connection, locations, publish);
}
