/**
 * The RDMA edge: clients read the table by themselves; what changes it comes here as messages. The tickets
 * that they get allow reading the table, and reading and adding to the counters, and nothing else.
 */
import { Buffer } from 'node:buffer';
import type { Rnic } from '../api/environment.ts';
import type { Connection } from '../api/connection.ts';
import { RemoteBuffer } from '../api/remote-buffer.ts';
import { IwarpError } from '../base/errors.ts';
import { ACCESS, type MemoryRegion } from '../verbs/index.ts';
import type { Counters } from './counters.ts';
import { Room } from './edge-memory.ts';
import { fitsInteger, parseInteger } from './keyspace.ts';
import { KIND, MAX_KEY } from './layout.ts';
import {
  decodeRequest,
  encodeFrame,
  executeBinary,
  requestLength,
  RESPONSE_MAGIC,
  STATUS,
  type BinaryAnswer,
  type BinaryRequest,
} from './memcached-binary.ts';
import { outcomeOf, type MemcachedStore } from './memcached-store.ts';
import { MessageEdge } from './message-edge.ts';
import { encodeSetup, KV_OP, MESSAGE_OCTETS, STORE_MODE } from './rdma-wire.ts';

/** Opcodes of ours that need more than the store: the connection, or numbers of all edges. */
const OWN: ReadonlySet<number> = new Set([KV_OP.HELLO, KV_OP.STORE_FROM, KV_OP.STATS]);
const INVALID: BinaryAnswer = { status: STATUS.INVALID };

/** Bytes of values that are being read from clients at a time, and how long one may take. */
const READ_OCTETS = 16 * 2 ** 20;
const READ_MS = 5000;

export class RdmaEdge extends MessageEdge {
  readonly #store: MemcachedStore;
  readonly #counters: Counters;
  readonly #table: MemoryRegion;
  readonly #words: MemoryRegion;
  readonly #stats: () => object;
  readonly #room = new Room(READ_OCTETS);

  /** `stats` gives what clients see of the store's numbers. */
  constructor(rnic: Rnic, store: MemcachedStore, counters: Counters, stats: () => object) {
    super(rnic, { maxMessageSize: MESSAGE_OCTETS });
    this.#stats = stats;
    this.#store = store;
    this.#counters = counters;
    const { table } = store.keys;
    this.#table = this.register(table.memory, ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ);
    const words = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_ATOMIC;
    this.#words = this.register(counters.memory, words);
  }

  protected override async answer(connection: Connection, frame: Buffer): Promise<void> {
    if (requestLength(frame, 0) !== frame.length) throw wrong('a message that is no request');
    const request = decodeRequest(frame);
    if (request === null) throw wrong('a request whose lengths disagree');
    for (const response of await this.#answer(connection, request)) await connection.send(response);
  }

  async #answer(connection: Connection, request: BinaryRequest): Promise<readonly Buffer[]> {
    const { opcode, opaque } = request;
    if (!OWN.has(opcode)) return executeMessage(this.#store, this.#counters, request);
    return [encodeFrame(RESPONSE_MAGIC, opcode, opaque, await this.#perform(connection, request))];
  }

  async #perform(connection: Connection, request: BinaryRequest): Promise<BinaryAnswer> {
    if (request.opcode === KV_OP.HELLO) {
      const { geometry } = this.#store.keys.table;
      const [table, counters] = [RemoteBuffer.of(this.#table), RemoteBuffer.of(this.#words)];
      return {
        status: STATUS.OK,
        value: encodeSetup({ geometry, now: this.#store.keys.now(), table, counters }),
      };
    }
    if (request.opcode === KV_OP.STATS)
      return { status: STATUS.OK, value: Buffer.from(JSON.stringify(this.#stats())) };
    if (!isKey(request.key)) return INVALID;
    return await this.#storeFrom(connection, request);
  }

  /** The value lies in the client's memory: the owner reads it from there. */
  async #storeFrom(connection: Connection, request: BinaryRequest): Promise<BinaryAnswer> {
    if (request.extras.length !== 32) return INVALID;
    const remote = RemoteBuffer.fromBytes(request.extras.subarray(16));
    if (remote.length > this.#store.keys.table.longestValue) return { status: STATUS.TOO_LARGE };
    await this.#room.take(remote.length);
    try {
      return await this.#readValue(connection, request, remote);
    } finally {
      this.#room.give(remote.length);
    }
  }

  /** A client that does not let its value be read ends its connection: others wait for the room. */
  async #readValue(
    connection: Connection,
    request: BinaryRequest,
    remote: RemoteBuffer,
  ): Promise<BinaryAnswer> {
    const options = { signal: AbortSignal.timeout(READ_MS) };
    const { buffer, byteOffset, length } = await connection.read(remote, undefined, options);
    const value = Buffer.from(buffer, byteOffset, length);
    return put(this.#store, { ...request, extras: request.extras.subarray(0, 16), value });
  }
}

const isKey = (key: Uint8Array): boolean => key.length > 0 && key.length <= MAX_KEY;

/** The answers to a request that needs the store alone: ours, and those of memcached. */
export function executeMessage(
  store: MemcachedStore,
  counters: Counters,
  request: BinaryRequest,
): readonly Buffer[] {
  const { opcode, opaque, key } = request;
  const run = HANDLERS.get(opcode);
  if (run !== undefined) {
    const answer = isKey(key) ? run(store, request, counters) : INVALID;
    return [encodeFrame(RESPONSE_MAGIC, opcode, opaque, answer)];
  }
  // A value that no message holds is read from the table.
  return executeBinary(store, request).responses.map((response) =>
    response.length <= MESSAGE_OCTETS
      ? response
      : encodeFrame(RESPONSE_MAGIC, opcode, opaque, { status: STATUS.TOO_LARGE }),
  );
}

function wrong(what: string): IwarpError {
  return new IwarpError('ERR_PROTOCOL', `${what} has come from a client of the store`);
}

/** A moment from milliseconds that a client counts from now; null if they are none. */
function expiryOf(store: MemcachedStore, milliseconds: number): number | null {
  if (!(milliseconds >= 0 && milliseconds <= Number.MAX_SAFE_INTEGER / 2)) return null;
  return milliseconds === 0 ? 0 : store.keys.now() + milliseconds;
}

const MODES = ['set', 'add', 'replace', 'cas'] as const;

function put(store: MemcachedStore, { extras, key, value, version }: BinaryRequest): BinaryAnswer {
  if (extras.length !== 16) return INVALID;
  const expiry = expiryOf(store, extras.readDoubleBE(0));
  const mode = MODES[extras.readUInt32BE(12)];
  if (expiry === null || mode === undefined) return INVALID;
  const isCas = mode === MODES[STORE_MODE.CAS];
  const flags = extras.readUInt32BE(8);
  const done = store.store(key, { mode, value, flags, expiry, version: isCas ? version : 0 });
  const statuses = {
    ok: STATUS.OK,
    'not-found': STATUS.NOT_FOUND,
    exists: STATUS.EXISTS,
    'not-stored': STATUS.NOT_STORED,
    'too-large': STATUS.TOO_LARGE,
    'no-memory': STATUS.NO_MEMORY,
    'not-a-number': STATUS.NOT_A_NUMBER,
  };
  return { status: statuses[done.outcome], version: done.version };
}

type Handler = (store: MemcachedStore, request: BinaryRequest, counters: Counters) => BinaryAnswer;

/** Add to a number, in its own word or in decimal; a value that is no number is refused. */
const add: Handler = (store, { extras, key }) => {
  if (extras.length !== 8) return INVALID;
  const by = extras.readBigInt64BE(0);
  const { keys } = store;
  const answer = Buffer.alloc(8);
  const inPlace = keys.addToCounter(key, by);
  if (inPlace !== null) {
    answer.writeBigInt64BE(inPlace);
    return { status: STATUS.OK, value: answer };
  }
  const item = keys.get(key);
  const old = item === null ? 0n : item.kind === KIND.STRING ? parseInteger(item.value) : null;
  if (old === null || !fitsInteger(old + by)) return { status: STATUS.NOT_A_NUMBER };
  answer.writeBigInt64BE(old + by);
  const digits = Buffer.from((old + by).toString());
  return guarded(() => {
    const version = keys.put(key, digits, KIND.STRING, item?.expiry ?? 0, item?.flags ?? 0);
    return { status: STATUS.OK, version, value: answer };
  });
};

const expire: Handler = (store, { extras, key }) => {
  const expiry = extras.length === 8 ? expiryOf(store, extras.readDoubleBE(0)) : null;
  if (expiry === null) return INVALID;
  const item = store.keys.table.peek(key);
  if (item === null) return { status: STATUS.NOT_FOUND };
  if (item.kind === KIND.COUNTER) return { status: STATUS.NOT_A_NUMBER };
  return guarded(() => {
    store.keys.put(key, item.value, item.kind, expiry, item.flags);
    return { status: STATUS.OK };
  });
};

const counter: Handler = (store, { key }) =>
  guarded(() => {
    const index = store.keys.counter(key);
    if (index === null) return { status: STATUS.NOT_A_NUMBER };
    const value = Buffer.alloc(4);
    value.writeUInt32BE(index);
    return { status: STATUS.OK, value };
  });

/** Limits of the table are answers. */
function guarded(run: () => BinaryAnswer): BinaryAnswer {
  try {
    return run();
  } catch (error) {
    return { status: outcomeOf(error) === 'too-large' ? STATUS.TOO_LARGE : STATUS.NO_MEMORY };
  }
}

const HANDLERS: ReadonlyMap<number, Handler> = new Map<number, Handler>([
  [KV_OP.STORE, put],
  [KV_OP.ADD, add],
  [KV_OP.EXPIRE, expire],
  [KV_OP.COUNTER, counter],
]);
