/**
 * The two atomic operations of RFC 7306 5.1 on a 64-bit word in a region. The value lives in the machine's
 * byte order (EXT-031); on shared memory the exchange is done with Atomics, so it is atomic towards the
 * application's own threads too. Within one thread JavaScript runs to completion, which makes it atomic among
 * all streams of the device (EXT-036).
 */
import { isShared } from '../base/copy.ts';
import { LITTLE_ENDIAN } from '../base/u64.ts';

const MASK_64 = (1n << 64n) - 1n;

/** One request's operands. */
interface AtomicOperands {
  readonly add: boolean;
  readonly data: bigint;
  readonly mask: bigint;
  readonly compare: bigint;
  readonly compareMask: bigint;
}

/** The new value. */
export function atomicResult(original: bigint, o: AtomicOperands): bigint {
  if (o.add) return maskedAdd(original, o.data, o.mask);
  if (((o.compare ^ original) & o.compareMask) !== 0n) return original; // EXT-029
  return (original & ~o.mask & MASK_64) | (o.data & o.mask); // EXT-028
}

/**
 * Sum with carries dropped out of every position whose mask bit is 1 (EXT-027). A field's top bit is added
 * without carry-out by hand: the other bits cannot carry past it once both top bits are cleared.
 */
function maskedAdd(a: bigint, b: bigint, mask: bigint): bigint {
  const low = (a & ~mask & MASK_64) + (b & ~mask & MASK_64);
  return (low ^ ((a ^ b) & mask)) & MASK_64;
}

/** True if the byte at `offset` of the region's memory is 64-bit aligned in its buffer (EXT-032). */
export function isAligned(bytes: Uint8Array, offset: number): boolean {
  return (bytes.byteOffset + offset) % 8 === 0;
}

/** Do the operation on the aligned word at `offset`; returns the original value. */
export function executeAtomic(bytes: Uint8Array, offset: number, operands: AtomicOperands): bigint {
  const { buffer } = bytes;
  if (isShared(bytes)) {
    const word = new BigUint64Array(buffer, bytes.byteOffset + offset, 1);
    for (;;) {
      const original = Atomics.load(word, 0);
      if (Atomics.compareExchange(word, 0, original, atomicResult(original, operands)) === original)
        return original;
    }
  }
  const view = new DataView(buffer as ArrayBuffer, bytes.byteOffset + offset, 8);
  const original = view.getBigUint64(0, LITTLE_ENDIAN);
  view.setBigUint64(0, atomicResult(original, operands), LITTLE_ENDIAN);
  return original;
}

/** Store the returned original in the requester's memory, in this machine's byte order. */
export function storeOriginal(bytes: Uint8Array, offset: number, hi: number, lo: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, 8);
  view.setUint32(LITTLE_ENDIAN ? 4 : 0, hi, LITTLE_ENDIAN);
  view.setUint32(LITTLE_ENDIAN ? 0 : 4, lo, LITTLE_ENDIAN);
}
