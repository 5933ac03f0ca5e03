/** Typed access to memory of the peer. */
import { checkInteger, checkObject, checkOneOf, IwarpError, show } from '../base/errors.ts';
import { LITTLE_ENDIAN } from '../base/u64.ts';
import type { Connection } from './connection.ts';
import type { OperationOptions } from './operations.ts';
import { checkRemote, MAX_TICKET, type RemoteBuffer } from './remote-buffer.ts';

interface Kind {
  readonly octets: number;
  readonly get: (view: DataView, at: number, littleEndian: boolean) => number | bigint;
  readonly set: (view: DataView, at: number, value: number | bigint, littleEndian: boolean) => void;
}

const FIELD_KINDS = ['u8', 'i8', 'u16', 'i16', 'u32', 'i32', 'u64', 'i64', 'f32', 'f64'] as const;
/** A kind of field: unsigned and signed integers by their bits, and floating-point numbers. */
export type FieldKind = 'u8' | 'i8' | 'u16' | 'i16' | 'u32' | 'i32' | 'u64' | 'i64' | 'f32' | 'f64';

/** A 64-bit integer, or ERR_INVALID_ARGUMENT. */
function checkBig(value: unknown, fit: (bits: number, value: bigint) => bigint): bigint {
  if (typeof value === 'bigint' && fit(64, value) === value) return value;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `value must be a bigint of 64 bits, got ${show(value)}`);
}

function checkFloat(value: unknown): number {
  if (typeof value === 'number') return value;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `value must be a number, got ${show(value)}`);
}

const unsigned = (value: number | bigint, bits: number): number =>
  checkInteger('value', value as number, 0, 2 ** bits - 1);
const signed = (value: number | bigint, bits: number): number =>
  checkInteger('value', value as number, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1);

/** Bytes of each kind, and how a DataView reads and writes it. */
const KINDS: Readonly<Record<FieldKind, Kind>> = {
  u8: {
    octets: 1,
    get: (view, at) => view.getUint8(at),
    set: (view, at, value) => view.setUint8(at, unsigned(value, 8)),
  },
  i8: {
    octets: 1,
    get: (view, at) => view.getInt8(at),
    set: (view, at, value) => view.setInt8(at, signed(value, 8)),
  },
  u16: {
    octets: 2,
    get: (view, at, little) => view.getUint16(at, little),
    set: (view, at, value, little) => view.setUint16(at, unsigned(value, 16), little),
  },
  i16: {
    octets: 2,
    get: (view, at, little) => view.getInt16(at, little),
    set: (view, at, value, little) => view.setInt16(at, signed(value, 16), little),
  },
  u32: {
    octets: 4,
    get: (view, at, little) => view.getUint32(at, little),
    set: (view, at, value, little) => view.setUint32(at, unsigned(value, 32), little),
  },
  i32: {
    octets: 4,
    get: (view, at, little) => view.getInt32(at, little),
    set: (view, at, value, little) => view.setInt32(at, signed(value, 32), little),
  },
  u64: {
    octets: 8,
    get: (view, at, little) => view.getBigUint64(at, little),
    set: (view, at, value, little) => view.setBigUint64(at, checkBig(value, BigInt.asUintN), little),
  },
  i64: {
    octets: 8,
    get: (view, at, little) => view.getBigInt64(at, little),
    set: (view, at, value, little) => view.setBigInt64(at, checkBig(value, BigInt.asIntN), little),
  },
  f32: {
    octets: 4,
    get: (view, at, little) => view.getFloat32(at, little),
    set: (view, at, value, little) => view.setFloat32(at, checkFloat(value), little),
  },
  f64: {
    octets: 8,
    get: (view, at, little) => view.getFloat64(at, little),
    set: (view, at, value, little) => view.setFloat64(at, checkFloat(value), little),
  },
};

/** An array of numbers in memory: any typed array. */
export type NumberArray =
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/** A class of typed arrays, such as `Uint32Array`. */
export interface NumberArrayClass<A extends NumberArray> {
  /** Makes an array over `length` numbers of `buffer`, from `byteOffset` on. */
  new (buffer: ArrayBuffer, byteOffset?: number, length?: number): A;
  /** Bytes of one number. */
  readonly BYTES_PER_ELEMENT: number;
}

const ARRAY_CLASSES: ReadonlySet<unknown> = new Set([
  ...[Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array],
  ...[Float32Array, Float64Array, BigInt64Array, BigUint64Array],
]);

/** The bytes of each number in the other order. */
function reverseEach(bytes: Uint8Array, octets: number): void {
  for (let at = 0; at < bytes.length; at += octets) bytes.subarray(at, at + octets).reverse();
}

/** A table of fields: for each name its kind and the offset of its first byte. */
export type StructLayout = Readonly<Record<string, readonly [kind: FieldKind, offset: number]>>;

/** The values of a table of fields: 64-bit integers are bigints, the others numbers. */
export type StructValues<L extends StructLayout> = {
  -readonly [K in keyof L]: L[K][0] extends 'u64' | 'i64' ? bigint : number;
};

/** Options of a {@link RemoteView}. */
export interface RemoteViewOptions {
  /** Byte order of the peer's memory. Default `little`, that of nearly every machine. */
  readonly endian?: 'little' | 'big' | undefined;
}

/**
 * Numbers, arrays and structures in memory of the peer, by RDMA Reads and Writes. An array or a structure is
 * read by one Read; that is not atomic as a whole (use `fetchAdd` and `compareSwap` for words that several
 * sides change).
 *
 * @example
 * const view = new RemoteView(connection, await connection.lookup('status'));
 * const { jobs, bytes } = await view.readStruct({ jobs: ['u32', 0], bytes: ['u64', 8] });
 * const samples = await view.readArray(Float64Array, 64, 100);
 */
export class RemoteView {
  /** The memory that it shows. */
  readonly remote: RemoteBuffer;
  readonly #connection: Connection;
  readonly #little: boolean;

  /**
   * A view of `remote`, read and written through `connection`.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  constructor(connection: Connection, remote: RemoteBuffer, options: RemoteViewOptions = {}) {
    checkObject('options', options);
    this.remote = checkRemote('remote', remote);
    this.#connection = connection;
    this.#little = checkOneOf('options.endian', options.endian ?? 'little', ['little', 'big']) === 'little';
  }

  /** Read a signed 8-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readInt8(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['i8', offset], options)) as number;
  }

  /** Read an unsigned 8-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readUint8(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['u8', offset], options)) as number;
  }

  /** Read a signed 16-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readInt16(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['i16', offset], options)) as number;
  }

  /** Read an unsigned 16-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readUint16(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['u16', offset], options)) as number;
  }

  /** Read a signed 32-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readInt32(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['i32', offset], options)) as number;
  }

  /** Read an unsigned 32-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readUint32(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['u32', offset], options)) as number;
  }

  /** Read a signed 64-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readBigInt64(offset: number, options?: OperationOptions): Promise<bigint> {
    return (await this.#read(['i64', offset], options)) as bigint;
  }

  /** Read an unsigned 64-bit integer at `offset`, in bytes. @throws as {@link Connection.read} */
  async readBigUint64(offset: number, options?: OperationOptions): Promise<bigint> {
    return (await this.#read(['u64', offset], options)) as bigint;
  }

  /** Read a 32-bit floating-point number at `offset`, in bytes. @throws as {@link Connection.read} */
  async readFloat32(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['f32', offset], options)) as number;
  }

  /** Read a 64-bit floating-point number at `offset`, in bytes. @throws as {@link Connection.read} */
  async readFloat64(offset: number, options?: OperationOptions): Promise<number> {
    return (await this.#read(['f64', offset], options)) as number;
  }

  /** Write a signed 8-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeInt8(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('i8', offset, value, options);
  }

  /** Write an unsigned 8-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeUint8(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('u8', offset, value, options);
  }

  /** Write a signed 16-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeInt16(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('i16', offset, value, options);
  }

  /** Write an unsigned 16-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeUint16(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('u16', offset, value, options);
  }

  /** Write a signed 32-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeInt32(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('i32', offset, value, options);
  }

  /** Write an unsigned 32-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeUint32(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('u32', offset, value, options);
  }

  /** Write a signed 64-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeBigInt64(offset: number, value: bigint, options?: OperationOptions): Promise<void> {
    return this.#write('i64', offset, value, options);
  }

  /** Write an unsigned 64-bit integer at `offset`, in bytes. @throws as {@link Connection.write} */
  writeBigUint64(offset: number, value: bigint, options?: OperationOptions): Promise<void> {
    return this.#write('u64', offset, value, options);
  }

  /** Write a 32-bit floating-point number at `offset`, in bytes. @throws as {@link Connection.write} */
  writeFloat32(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('f32', offset, value, options);
  }

  /** Write a 64-bit floating-point number at `offset`, in bytes. @throws as {@link Connection.write} */
  writeFloat64(offset: number, value: number, options?: OperationOptions): Promise<void> {
    return this.#write('f64', offset, value, options);
  }

  async #write(
    kind: FieldKind,
    offset: number,
    value: number | bigint,
    options?: OperationOptions,
  ): Promise<void> {
    const { octets, set } = KINDS[kind];
    const bytes = new Uint8Array(octets);
    set(new DataView(bytes.buffer), 0, value, this.#little);
    await this.#connection.write(bytes, this.remote.slice(offset, octets), options);
  }

  /**
   * Read `length` numbers from `offset` on, in bytes, by one RDMA Read into a new typed array. The offset
   * need not be a multiple of their size.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE, and as {@link Connection.read}
   *
   * @example
   * const samples = await view.readArray(Float64Array, 64, 100);
   */
  async readArray<A extends NumberArray>(
    type: NumberArrayClass<A>,
    offset: number,
    length: number,
    options?: OperationOptions,
  ): Promise<A> {
    if (!ARRAY_CLASSES.has(type))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `type must be a class of typed arrays, got ${show(type)}`);
    checkInteger('length', length, 0, MAX_TICKET);
    const octets = type.BYTES_PER_ELEMENT;
    const bytes = await this.#connection.read(this.remote.slice(offset, length * octets), undefined, options);
    if (this.#little !== LITTLE_ENDIAN && octets > 1) reverseEach(bytes, octets);
    return new type(bytes.buffer as ArrayBuffer, bytes.byteOffset, length);
  }

  /**
   * Write the numbers of a typed array at `offset`, in bytes, by one RDMA Write. The array must not change
   * until the promise is settled.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE, and as {@link Connection.write}
   *
   * @example
   * await view.writeArray(64, Float64Array.of(1.5, 2.5));
   */
  async writeArray(offset: number, values: NumberArray, options?: OperationOptions): Promise<void> {
    if (!ArrayBuffer.isView(values) || !('BYTES_PER_ELEMENT' in values))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `values must be a typed array, got ${show(values)}`);
    const { buffer, byteOffset, byteLength, BYTES_PER_ELEMENT: octets } = values;
    let bytes = new Uint8Array(buffer, byteOffset, byteLength);
    if (this.#little !== LITTLE_ENDIAN && octets > 1) {
      bytes = bytes.slice();
      reverseEach(bytes, octets);
    }
    await this.#connection.write(bytes, this.remote.slice(offset, byteLength), options);
  }

  async #read([kind, offset]: StructLayout[string], options?: OperationOptions): Promise<number | bigint> {
    const { field } = await this.readStruct({ field: [kind, offset] }, options);
    return field!;
  }

  /**
   * Read the fields of a table by one RDMA Read from the first byte of the first to the last byte of the
   * last.
   *
   * @throws ERR_INVALID_ARGUMENT for a wrong table, ERR_OUT_OF_RANGE, and as {@link Connection.read}
   */
  async readStruct<L extends StructLayout>(layout: L, options?: OperationOptions): Promise<StructValues<L>> {
    const fields = fieldsOf(layout);
    const start = Math.min(...fields.map(({ offset }) => offset));
    const end = Math.max(...fields.map(({ offset, kind }) => offset + kind.octets));
    const bytes = await this.#connection.read(this.remote.slice(start, end - start), undefined, options);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    return Object.fromEntries(
      fields.map(({ name, kind, offset }) => [name, kind.get(view, offset - start, this.#little)]),
    ) as StructValues<L>;
  }
}

interface Field {
  readonly name: string;
  readonly kind: Kind;
  readonly offset: number;
}

function fieldsOf(layout: StructLayout): Field[] {
  checkObject('layout', layout);
  const fields = Object.entries(layout).map(([name, [kind, offset]]) => ({
    name,
    kind: KINDS[checkOneOf(`layout.${name}[0]`, kind, FIELD_KINDS)],
    offset: checkInteger(`layout.${name}[1]`, offset, 0, 0xffff_ffff),
  }));
  if (fields.length > 0) return fields;
  throw new IwarpError('ERR_INVALID_ARGUMENT', 'layout must have a field');
}
