/** The binary protocol of memcached: one request in, its responses out. Also the messages of RDMA clients. */
import { Buffer } from 'node:buffer';
import { MAX_KEY } from './layout.ts';
import { MEMCACHED_VERSION, type MemcachedStore, type Mode, type Outcome } from './memcached-store.ts';
import type { Item } from './table.ts';

export const BINARY_HEADER = 24;
export const REQUEST_MAGIC = 0x80;
export const RESPONSE_MAGIC = 0x81;

export const OP = {
  GET: 0x00,
  SET: 0x01,
  ADD: 0x02,
  REPLACE: 0x03,
  DELETE: 0x04,
  INCREMENT: 0x05,
  DECREMENT: 0x06,
  QUIT: 0x07,
  FLUSH: 0x08,
  GETQ: 0x09,
  NOOP: 0x0a,
  VERSION: 0x0b,
  GETK: 0x0c,
  GETKQ: 0x0d,
  APPEND: 0x0e,
  PREPEND: 0x0f,
  STAT: 0x10,
  VERBOSITY: 0x1b,
  TOUCH: 0x1c,
  GAT: 0x1d,
  GATQ: 0x1e,
} as const;

/** Quiet opcodes, and the one that each is a quiet form of. */
const QUIET: ReadonlyMap<number, number> = new Map([
  [OP.GETQ, OP.GET],
  [OP.GETKQ, OP.GETK],
  [0x11, OP.SET],
  [0x12, OP.ADD],
  [0x13, OP.REPLACE],
  [0x14, OP.DELETE],
  [0x15, OP.INCREMENT],
  [0x16, OP.DECREMENT],
  [0x17, OP.QUIT],
  [0x18, OP.FLUSH],
  [0x19, OP.APPEND],
  [0x1a, OP.PREPEND],
  [OP.GATQ, OP.GAT],
]);

export const STATUS = {
  OK: 0,
  NOT_FOUND: 1,
  EXISTS: 2,
  TOO_LARGE: 3,
  INVALID: 4,
  NOT_STORED: 5,
  NOT_A_NUMBER: 6,
  UNKNOWN: 0x81,
  NO_MEMORY: 0x82,
} as const;

const TEXTS: ReadonlyMap<number, string> = new Map([
  [STATUS.NOT_FOUND, 'Not found'],
  [STATUS.EXISTS, 'Data exists for key.'],
  [STATUS.TOO_LARGE, 'Too large.'],
  [STATUS.INVALID, 'Invalid arguments'],
  [STATUS.NOT_STORED, 'Not stored.'],
  [STATUS.NOT_A_NUMBER, 'Non-numeric server-side value for incr or decr'],
  [STATUS.UNKNOWN, 'Unknown command'],
  [STATUS.NO_MEMORY, 'Out of memory'],
]);

const OUTCOMES: Readonly<Record<Outcome, number>> = {
  ok: STATUS.OK,
  'not-found': STATUS.NOT_FOUND,
  exists: STATUS.EXISTS,
  'not-stored': STATUS.NOT_STORED,
  'too-large': STATUS.TOO_LARGE,
  'no-memory': STATUS.NO_MEMORY,
  'not-a-number': STATUS.NOT_A_NUMBER,
};

/** A request taken apart. */
export interface BinaryRequest {
  readonly opcode: number;
  readonly opaque: number;
  readonly version: number;
  readonly extras: Buffer;
  readonly key: Buffer;
  readonly value: Buffer;
}

/** What a response says beside its request's opcode and opaque. */
export interface BinaryAnswer {
  readonly status: number;
  readonly version?: number;
  readonly extras?: Uint8Array;
  readonly key?: Uint8Array;
  readonly value?: Uint8Array;
}

/** Length of the request that begins here; null if its header is not there yet, -1 if it is none. */
export function requestLength(bytes: Buffer, at: number): number | null {
  if (bytes.length > at && bytes[at] !== REQUEST_MAGIC) return -1;
  return bytes.length < at + BINARY_HEADER ? null : BINARY_HEADER + bytes.readUInt32BE(at + 8);
}

/** A whole request; null if its lengths disagree. */
export function decodeRequest(frame: Buffer): BinaryRequest | null {
  const [keyLength, extrasLength] = [frame.readUInt16BE(2), frame.readUInt8(4)];
  const body = frame.subarray(BINARY_HEADER);
  const start = extrasLength + keyLength;
  if (start > body.length || body.length !== frame.readUInt32BE(8)) return null;
  return {
    opcode: frame.readUInt8(1),
    opaque: frame.readUInt32BE(12),
    version: Number(frame.readBigUInt64BE(16)),
    extras: body.subarray(0, extrasLength),
    key: body.subarray(extrasLength, start),
    value: body.subarray(start),
  };
}

/** A request or a response as bytes. */
export function encodeFrame(
  magic: number,
  opcode: number,
  opaque: number,
  { status, version = 0, extras = NONE, key = NONE, value = NONE }: BinaryAnswer,
): Buffer {
  const body = extras.length + key.length + value.length;
  const frame = Buffer.allocUnsafe(BINARY_HEADER + body);
  frame.writeUInt8(magic, 0);
  frame.writeUInt8(opcode, 1);
  frame.writeUInt16BE(key.length, 2);
  frame.writeUInt16BE(extras.length << 8, 4);
  frame.writeUInt16BE(status, 6);
  frame.writeUInt32BE(body, 8);
  frame.writeUInt32BE(opaque, 12);
  frame.writeBigUInt64BE(BigInt(version), 16);
  frame.set(extras, BINARY_HEADER);
  frame.set(key, BINARY_HEADER + extras.length);
  frame.set(value, BINARY_HEADER + extras.length + key.length);
  return frame;
}

const NONE = new Uint8Array(0);

/** Lengths that an opcode has: extras (several are allowed), key, value. */
interface Shape {
  readonly extras: readonly number[];
  readonly key: boolean;
  readonly value: boolean;
}

const shape = (extras: readonly number[], key: boolean, value = false): Shape => ({ extras, key, value });
const NOTHING = shape([0], false);
const SHAPES: ReadonlyMap<number, Shape> = new Map([
  [OP.GET, shape([0], true)],
  [OP.GETK, shape([0], true)],
  [OP.SET, shape([8], true, true)],
  [OP.ADD, shape([8], true, true)],
  [OP.REPLACE, shape([8], true, true)],
  [OP.DELETE, shape([0], true)],
  [OP.INCREMENT, shape([20], true)],
  [OP.DECREMENT, shape([20], true)],
  [OP.QUIT, NOTHING],
  [OP.FLUSH, shape([0, 4], false)],
  [OP.NOOP, NOTHING],
  [OP.VERSION, NOTHING],
  [OP.APPEND, shape([0], true, true)],
  [OP.PREPEND, shape([0], true, true)],
  [OP.VERBOSITY, shape([4], false)],
  [OP.TOUCH, shape([4], true)],
  [OP.GAT, shape([4], true)],
]);

/** What became of a request. */
interface BinaryResult {
  readonly responses: readonly Buffer[];
  readonly ends: boolean;
}

/** Carry a request out. A request whose lengths disagree is answered, and the connection goes on. */
export function executeBinary(store: MemcachedStore, request: BinaryRequest): BinaryResult {
  const loud = QUIET.get(request.opcode);
  const opcode = loud ?? request.opcode;
  const respond = (answer: BinaryAnswer): Buffer => {
    const text = answer.status === STATUS.OK ? undefined : Buffer.from(TEXTS.get(answer.status) ?? '');
    const shown = text === undefined ? answer : { status: answer.status, value: text };
    return encodeFrame(RESPONSE_MAGIC, request.opcode, request.opaque, shown);
  };
  const one = (answer: BinaryAnswer, ends = false): BinaryResult => ({ responses: [respond(answer)], ends });
  if (opcode === OP.STAT) return statistics(store, request, respond);
  const form = SHAPES.get(opcode);
  if (form === undefined) return one({ status: STATUS.UNKNOWN });
  const { extras, key, value } = request;
  if (
    !form.extras.includes(extras.length) ||
    key.length > 0 !== form.key ||
    key.length > MAX_KEY ||
    (value.length > 0 && !form.value)
  )
    return one({ status: STATUS.INVALID });
  const answer = perform(store, opcode, request);
  const isMiss = opcode === OP.GET || opcode === OP.GETK || opcode === OP.GAT;
  // A quiet read does not say that a key is missing; other quiet requests do not say that they succeeded.
  const isQuiet =
    loud !== undefined && (isMiss ? answer.status === STATUS.NOT_FOUND : answer.status === STATUS.OK);
  return { responses: isQuiet ? [] : [respond(answer)], ends: opcode === OP.QUIT };
}

const MODES: ReadonlyMap<number, Mode> = new Map([
  [OP.SET, 'set'],
  [OP.ADD, 'add'],
  [OP.REPLACE, 'replace'],
  [OP.APPEND, 'append'],
  [OP.PREPEND, 'prepend'],
]);

function perform(store: MemcachedStore, opcode: number, request: BinaryRequest): BinaryAnswer {
  const { extras, key, value, version } = request;
  const mode = MODES.get(opcode);
  if (mode !== undefined) {
    const expiry = extras.length === 8 ? store.expiryOf(extras.readInt32BE(4)) : 0;
    const flags = extras.length === 8 ? extras.readUInt32BE(0) : 0;
    const done = store.store(key, { mode, value, flags, expiry, version });
    return { status: OUTCOMES[done.outcome], version: done.version };
  }
  switch (opcode) {
    case OP.GET:
    case OP.GETK:
      return shown(store.get(key), opcode === OP.GETK ? key : NONE);
    case OP.DELETE:
      return { status: OUTCOMES[store.delete(key, version)] };
    case OP.INCREMENT:
    case OP.DECREMENT:
      return count(store, opcode === OP.DECREMENT, request);
    case OP.FLUSH:
      store.flush(extras.length === 4 ? extras.readUInt32BE(0) : 0);
      return { status: STATUS.OK };
    case OP.TOUCH:
    case OP.GAT: {
      const item = store.touch(key, store.expiryOf(extras.readInt32BE(0)));
      if (opcode === OP.GAT) return shown(item, NONE);
      return { status: item === null ? STATUS.NOT_FOUND : STATUS.OK };
    }
    case OP.VERSION:
      return { status: STATUS.OK, value: Buffer.from(MEMCACHED_VERSION) };
    default: // NOOP, QUIT, VERBOSITY
      return { status: STATUS.OK };
  }
}

function shown(item: Item | null, key: Uint8Array): BinaryAnswer {
  if (item === null) return { status: STATUS.NOT_FOUND };
  const extras = Buffer.alloc(4);
  extras.writeUInt32BE(item.flags);
  return { status: STATUS.OK, version: item.version, extras, key, value: item.value };
}

/** The time of a counter that is not to be made. */
const NEVER_MADE = 0xffff_ffff;

function count(store: MemcachedStore, down: boolean, { extras, key }: BinaryRequest): BinaryAnswer {
  const [by, initial, seconds] = [
    extras.readBigUInt64BE(0),
    extras.readBigUInt64BE(8),
    extras.readUInt32BE(16),
  ];
  let done = store.count(key, by, down);
  if (done.outcome === 'not-found' && seconds !== NEVER_MADE) {
    const expiry = store.expiryOf(seconds);
    const value = Buffer.from(initial.toString());
    const made = store.store(key, { mode: 'add', value, flags: 0, expiry, version: 0 });
    done = { outcome: made.outcome, value: initial, version: made.version };
  }
  const value = Buffer.alloc(8);
  value.writeBigUInt64BE(done.value);
  return { status: OUTCOMES[done.outcome], version: done.version, value };
}

function statistics(
  store: MemcachedStore,
  { key }: BinaryRequest,
  respond: (answer: BinaryAnswer) => Buffer,
): BinaryResult {
  const rows = key.length === 0 ? store.statistics() : [];
  const responses = rows.map(([name, value]) =>
    respond({ status: STATUS.OK, key: Buffer.from(name), value: Buffer.from(value) }),
  );
  return { responses: [...responses, respond({ status: STATUS.OK })], ends: false };
}
