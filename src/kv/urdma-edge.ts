/**
 * The edge of the profile urdma: the server of the paper's key-value store. A GET names memory of the client;
 * the owner Writes the value there and answers with the value's own place, so that the client can Read and
 * Write it after that. A client is not notified when a place has gone to another value: that is the paper's
 * protocol, and docs/kv.md says what it means.
 */
import { Buffer } from 'node:buffer';
import type { Rnic } from '../api/environment.ts';
import type { Connection } from '../api/connection.ts';
import { RemoteBuffer } from '../api/remote-buffer.ts';
import { IwarpError } from '../base/errors.ts';
import { ACCESS } from '../verbs/index.ts';
import { OP, STATUS } from './memcached-binary.ts';
import type { MemcachedStore, Mode } from './memcached-store.ts';
import { MessageEdge } from './message-edge.ts';
import {
  decodeUrdma,
  encodeUrdma,
  URDMA_KEY,
  URDMA_MESSAGE,
  URDMA_RECEIVES,
  URDMA_VALUE,
  type UrdmaMessage,
} from './urdma-wire.ts';
import type { Place, UrdmaValues } from './urdma-values.ts';

/** What a request comes to: a reply, and with a GET bytes to Write into the client's memory before it. */
interface UrdmaAnswer {
  readonly status: number;
  readonly version?: number;
  readonly extras?: Uint8Array;
  readonly place?: Place;
  readonly written?: Uint8Array;
}

type Request = Required<UrdmaMessage>;

const MODES: ReadonlyMap<number, Mode> = new Map([
  [OP.SET, 'set'],
  [OP.ADD, 'add'],
  [OP.REPLACE, 'replace'],
]);

export class UrdmaEdge extends MessageEdge {
  readonly #store: MemcachedStore;
  readonly #values: UrdmaValues;
  /** The memory of the values, as clients reach it. */
  readonly #whole: RemoteBuffer;

  constructor(rnic: Rnic, store: MemcachedStore, values: UrdmaValues) {
    // The paper's program has no private data.
    super(rnic, { credits: false, receiveDepth: URDMA_RECEIVES, maxMessageSize: URDMA_MESSAGE });
    this.#store = store;
    this.#values = values;
    const rights = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE;
    this.#whole = RemoteBuffer.of(this.register(values.memory, rights));
  }

  protected override async answer(connection: Connection, frame: Buffer): Promise<void> {
    const whole = this.#whole;
    const request = decodeUrdma('request', frame);
    if (request === null)
      throw new IwarpError('ERR_PROTOCOL', 'a message that is no request has come from a client');
    const { place, written, version = 0, ...rest } = answerUrdma(this.#store, this.#values, whole, request);
    const reply = encodeUrdma('reply', {
      ...rest,
      opcode: request.opcode,
      opaque: request.opaque,
      version: BigInt(version),
      ...(place !== undefined && { place: whole.slice(place.offset, place.length) }),
    });
    // The Write goes first on the same stream, so the value is in place when the reply is delivered.
    const value =
      written !== undefined && written.length > 0 ? connection.write(written, request.place) : null;
    await Promise.all([value, connection.send(reply)]);
  }
}

/** Carry a request out; `whole` is the memory of the values, as clients reach it. */
export function answerUrdma(
  store: MemcachedStore,
  values: UrdmaValues,
  whole: RemoteBuffer,
  request: Request,
): UrdmaAnswer {
  const { opcode, key, extras } = request;
  if (key.length === 0 || key.length > URDMA_KEY) return { status: STATUS.INVALID };
  values.collect(key);
  if (opcode === OP.GET) return get(store, values, request);
  const mode = MODES.get(opcode);
  if (mode !== undefined)
    return extras.length === 8 ? put(store, values, whole, request, mode) : { status: STATUS.INVALID };
  if (opcode !== OP.DELETE) return { status: STATUS.UNKNOWN };
  return { status: store.delete(key) === 'ok' ? STATUS.OK : STATUS.NOT_FOUND };
}

function get(store: MemcachedStore, values: UrdmaValues, { key, place: sink }: Request): UrdmaAnswer {
  const item = store.get(key);
  if (item === null) return { status: STATUS.NOT_FOUND };
  const place = values.place(key, item);
  if (place === null) return { status: STATUS.TOO_LARGE };
  const extras = Buffer.alloc(8);
  extras.writeUInt32BE(item.flags, 0);
  extras.writeUInt32BE(item.value.length, 4);
  const written = item.value.subarray(0, Math.min(sink.length, item.value.length));
  return { status: STATUS.OK, version: item.version, extras, place, written };
}

/** A SET with a place and without a value publishes what the client has Written there. */
function put(
  store: MemcachedStore,
  values: UrdmaValues,
  whole: RemoteBuffer,
  { key, extras, value, version, place: written }: Request,
  mode: Mode,
): UrdmaAnswer {
  if (value.length > URDMA_VALUE) return { status: STATUS.TOO_LARGE };
  let stored: Uint8Array = value;
  if (value.length === 0 && written.length > 0) {
    const offset = written.address - whole.address;
    // The place has gone to another value, or to none: the client has to send the value.
    if (written.rkey !== whole.rkey || !values.isPlace(key, offset, written.length))
      return { status: STATUS.NOT_STORED };
    stored = values.copy({ offset: Number(offset), length: written.length });
  }
  const buffer = Buffer.from(extras);
  const done = store.store(key, {
    mode,
    value: stored,
    flags: buffer.readUInt32BE(0),
    expiry: store.expiryOf(buffer.readInt32BE(4)),
    version: Number(version),
  });
  const item = done.outcome === 'ok' ? store.get(key) : null;
  if (item !== null) {
    const place = values.place(key, item);
    return { status: STATUS.OK, version: done.version, ...(place !== null && { place }) };
  }
  // urdma's program knows two failures of a SET; a version that does not fit is memcached's.
  if (done.outcome === 'too-large') return { status: STATUS.TOO_LARGE };
  return { status: version !== 0n && done.outcome === 'exists' ? STATUS.EXISTS : STATUS.NOT_STORED };
}
