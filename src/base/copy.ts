/**
 * Copying bytes without an object for each copy. A `subarray` with its `set` costs 35 ns at any length up to
 * some hundred bytes, and an object; a loop over a short run costs less, by words half of what it costs by
 * bytes. `rate` of bench/micro/datapath.ts shows it: each of its messages has three short copies.
 *
 * Memory shared between threads is slow to `set`: V8 moves it word by word, at 3.6 GB/s here. Node's
 * `Buffer.fill` with a pattern as long as the place to fill is one memcpy (94 GB/s), whatever the memory: the
 * rows with workers in `bulk` of the same program.
 */

/**
 * Up to here the loop by bytes wins over subarray + set (measured on V8 11: 23 ns at 32 bytes, 83 at 64).
 */
const LOOP_MAX = 32;
/** Up to here a loop by words of four bytes through two views wins (20 ns at 64 bytes, 37 at 128). */
const WORDS_MAX = 128;

/** No octets: the memory of an object that has none yet. */
export const NO_BYTES: Uint8Array = new Uint8Array(0);

type Fill = (this: Uint8Array, pattern: Uint8Array, from: number, to: number) => unknown;

/** Null where there is no Node, or one that wants more than a Uint8Array. */
const fill = ((): Fill | null => {
  const found = (globalThis as { Buffer?: { prototype: { fill: Fill } } }).Buffer?.prototype.fill;
  if (found === undefined) return null;
  const probe = new Uint8Array(new SharedArrayBuffer(4));
  try {
    found.call(probe, new Uint8Array(new SharedArrayBuffer(2)).fill(7), 1, 3);
  } catch {
    return null;
  }
  return probe.join() === '0,7,7,0' ? found : null;
})();

/**
 * True over memory that threads share, also if it is another realm's: a context of node:vm, where test
 * runners run tests, has its own classes.
 */
export function isShared({ buffer }: ArrayBufferView): boolean {
  if (buffer instanceof ArrayBuffer) return false;
  return (
    buffer instanceof SharedArrayBuffer ||
    Object.prototype.toString.call(buffer) === '[object SharedArrayBuffer]'
  );
}

/**
 * Bytes of a view of the program's memory: none once that has been transferred away. Its `length` alone does
 * not do: compiled code that has seen views of fixed and of resizable memory goes on giving the old one, in
 * the V8 of Node 20 and 22. `byteLength` does not, and takes seven times as long as a look at a byte.
 */
export function lengthNow(bytes: Uint8Array): number {
  const { length } = bytes;
  return length > 0 && bytes[0] === undefined ? 0 : length;
}

/** `bytes` has `end` bytes (> 0) or more, as {@link lengthNow} counts; of them the last is looked at. */
export function reaches(bytes: Uint8Array, end: number): boolean {
  return end <= bytes.length && bytes[end - 1] !== undefined;
}

/**
 * The bytes that `bytes` shows now, and no others: a view that was made without a length grows with its
 * buffer.
 */
export function fixedView(bytes: Uint8Array): Uint8Array {
  const { resizable, growable } = bytes.buffer as {
    readonly resizable?: boolean;
    readonly growable?: boolean;
  };
  return resizable === true || growable === true ? bytes.subarray(0, bytes.length) : bytes;
}

/** Bytes, and a view of the same ones. */
export interface Octets {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** The memory is a SharedArrayBuffer's. */
  readonly sharedMemory?: boolean;
}

/** Bytes that may be exchanged for others; the view is made when it is first asked for. */
export class ChangingOctets implements Octets {
  #bytes: Uint8Array = NO_BYTES;
  #view: DataView | null = null;
  #sharedMemory: boolean | null = null;

  get bytes(): Uint8Array {
    return this.#bytes;
  }

  set bytes(bytes: Uint8Array) {
    if (this.#bytes === bytes) return;
    this.#bytes = bytes;
    this.#view = this.#sharedMemory = null;
  }

  /** Ask for it only where there are octets: memory that was transferred away has no view. */
  get view(): DataView {
    return (this.#view ??= viewOf(this.#bytes));
  }

  get sharedMemory(): boolean {
    return (this.#sharedMemory ??= isShared(this.#bytes));
  }
}

/**
 * A view of the same bytes. One over memory that can shrink goes to its end, for a view of some length is of
 * no use at all once that is gone.
 */
function viewOf(bytes: Uint8Array): DataView {
  const { buffer, byteOffset, byteLength } = bytes;
  const resizable = (buffer as { resizable?: boolean }).resizable === true;
  return resizable ? new DataView(buffer, byteOffset) : new DataView(buffer, byteOffset, byteLength);
}

/**
 * `bytes[start..end)` in new memory. The `slice` of a Buffer does not do that: it is a view of the
 * same bytes.
 */
export function copyOf(bytes: Uint8Array, start: number, end: number): Uint8Array {
  return new Uint8Array(bytes.subarray(start, end));
}

/** Copy `length` bytes from `source[from]` to `target[to]`. Bounds are the caller's duty. */
export function copyBytes(
  source: Uint8Array,
  from: number,
  target: Uint8Array,
  to: number,
  length: number,
): void {
  if (length > LOOP_MAX) {
    target.set(source.subarray(from, from + length), to);
    return;
  }
  let i = 0;
  for (; i + 4 <= length; i += 4) {
    target[to + i] = source[from + i]!;
    target[to + i + 1] = source[from + i + 1]!;
    target[to + i + 2] = source[from + i + 2]!;
    target[to + i + 3] = source[from + i + 3]!;
  }
  for (; i < length; i++) target[to + i] = source[from + i]!;
}

/** Copy bytes where views of both memories are at hand. */
export function copyOctets(source: Octets, from: number, target: Octets, to: number, length: number): void {
  if (length <= WORDS_MAX) copyWords(source.view, from, target.view, to, length);
  else if (source.sharedMemory === true || target.sharedMemory === true)
    copyShared(source.bytes.subarray(from, from + length), target.bytes, to);
  else target.bytes.set(source.bytes.subarray(from, from + length), to);
}

/**
 * Copy all of `source` to `target[to]`, which has room for it, whatever memory the two are. They do not
 * overlap.
 */
export function putBytes(source: Uint8Array, target: Uint8Array, to: number): void {
  if (source.length > WORDS_MAX && (isShared(source) || isShared(target))) copyShared(source, target, to);
  else target.set(source, to);
}

const ZERO = new Uint8Array(1);

/** Zeros over all of it, whatever memory it is. */
export function clearBytes(bytes: Uint8Array): void {
  if (fill === null || !isShared(bytes)) bytes.fill(0);
  else fill.call(bytes, ZERO, 0, bytes.length);
}

function copyShared(source: Uint8Array, target: Uint8Array, to: number): void {
  if (fill === null) target.set(source, to);
  else fill.call(target, source, to, to + source.length);
}

function copyWords(source: DataView, from: number, target: DataView, to: number, length: number): void {
  const whole = length & ~15;
  let i = 0;
  for (; i < whole; i += 16) {
    target.setUint32(to + i, source.getUint32(from + i, true), true);
    target.setUint32(to + i + 4, source.getUint32(from + i + 4, true), true);
    target.setUint32(to + i + 8, source.getUint32(from + i + 8, true), true);
    target.setUint32(to + i + 12, source.getUint32(from + i + 12, true), true);
  }
  for (; i < length; i++) target.setUint8(to + i, source.getUint8(from + i));
}
