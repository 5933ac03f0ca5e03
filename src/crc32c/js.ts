/**
 * CRC32c in JavaScript: slicing by 16 over a DataView. Read polynomial.ts first.
 *
 * Four little-endian 32-bit reads through a DataView beat sixteen byte reads and work at any alignment;
 * sixteen tables in constants beat one table with offsets, because V8 then knows each table's address and
 * length (bench/micro/crc32c.ts).
 */
import type { Crc32cEngine } from './types.ts';
import { JsRuns } from './js-runs.ts';
import { checkRange, OrdinaryMemory } from './memory.ts';
import { slicingTables } from './polynomial.ts';
import type { RunKernel } from './runs.ts';

const tables = slicingTables();
const slice = (k: number): Int32Array => tables.slice(256 * k, 256 * (k + 1));

const T0 = slice(0);
const T1 = slice(1);
const T2 = slice(2);
const T3 = slice(3);
const T4 = slice(4);
const T5 = slice(5);
const T6 = slice(6);
const T7 = slice(7);
const T8 = slice(8);
const T9 = slice(9);
const T10 = slice(10);
const T11 = slice(11);
const T12 = slice(12);
const T13 = slice(13);
const T14 = slice(14);
const T15 = slice(15);

/**
 * CRC32c of bytes[start..end) as a signed number, continuing the finished value `crc`. `view` covers the
 * whole buffer of `bytes`. The range is the caller's to check. Every index below is masked to 255, hence the
 * assertions on table reads.
 */
export function crc32cByTables(
  crc: number,
  bytes: Uint8Array,
  start: number,
  end: number,
  view: DataView,
): number {
  let register = ~crc;
  let at = bytes.byteOffset + start;
  const limit = bytes.byteOffset + end;
  for (; at + 16 <= limit; at += 16) {
    const a = view.getInt32(at, true) ^ register;
    const b = view.getInt32(at + 4, true);
    const c = view.getInt32(at + 8, true);
    const d = view.getInt32(at + 12, true);
    register =
      T15[a & 255]! ^
      T14[(a >>> 8) & 255]! ^
      T13[(a >>> 16) & 255]! ^
      T12[a >>> 24]! ^
      T11[b & 255]! ^
      T10[(b >>> 8) & 255]! ^
      T9[(b >>> 16) & 255]! ^
      T8[b >>> 24]! ^
      T7[c & 255]! ^
      T6[(c >>> 8) & 255]! ^
      T5[(c >>> 16) & 255]! ^
      T4[c >>> 24]! ^
      T3[d & 255]! ^
      T2[(d >>> 8) & 255]! ^
      T1[(d >>> 16) & 255]! ^
      T0[d >>> 24]!;
  }
  for (; at < limit; at++) register = T0[(register ^ view.getUint8(at)) & 255]! ^ (register >>> 8);
  return ~register;
}

/**
 * The DataView of the array used last: making one takes as long as the CRC of a hundred bytes. It keeps at
 * most that one array alive until another is used; arrays over larger buffers get a fresh view each time,
 * which their length pays for.
 */
export class ViewCache {
  #bytes: Uint8Array = new Uint8Array(0);
  #view: DataView = new DataView(this.#bytes.buffer);

  of(bytes: Uint8Array): DataView {
    // Comparing arrays, not buffers: reading `buffer` is a call out of compiled code.
    if (bytes === this.#bytes) return this.#view;
    const view = new DataView(bytes.buffer);
    if (view.byteLength <= MAX_CACHED_BUFFER) {
      this.#bytes = bytes;
      this.#view = view;
    }
    return view;
  }
}

/**
 * Far above every staging or read buffer of the stack, which come by all the time, and still a small thing to
 * keep alive.
 */
const MAX_CACHED_BUFFER = 16 << 20;

class JsEngine extends OrdinaryMemory implements Crc32cEngine {
  readonly name = 'js';
  readonly runs: RunKernel = new JsRuns();
  readonly #views = new ViewCache();

  update(crc: number, bytes: Uint8Array, start: number, end: number): number {
    return this.updateSigned(crc, bytes, start, end) >>> 0;
  }

  updateSigned(crc: number, bytes: Uint8Array, start: number, end: number): number {
    checkRange(bytes, start, end);
    return crc32cByTables(crc, bytes, start, end, this.#views.of(bytes));
  }
}

export function createJsEngine(): Crc32cEngine {
  return new JsEngine();
}
