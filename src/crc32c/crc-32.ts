/**
 * CRC32c by the `crc-32` package: the portable fallback of last resort and the oracle that the other engines
 * are tested against.
 */
import crc32c from 'crc-32/crc32c.js';
import type { Crc32cEngine } from './types.ts';
import { JsRuns } from './js-runs.ts';
import { checkRange, OrdinaryMemory } from './memory.ts';
import type { RunKernel } from './runs.ts';

class Crc32PackageEngine extends OrdinaryMemory implements Crc32cEngine {
  readonly name = 'crc-32';
  readonly runs: RunKernel = new JsRuns();

  update(crc: number, bytes: Uint8Array, start: number, end: number): number {
    return this.updateSigned(crc, bytes, start, end) >>> 0;
  }

  updateSigned(crc: number, bytes: Uint8Array, start: number, end: number): number {
    checkRange(bytes, start, end);
    // The package takes and returns finished values, but as signed numbers.
    return crc32c.buf(bytes.subarray(start, end), crc);
  }
}

export function createCrc32PackageEngine(): Crc32cEngine {
  return new Crc32PackageEngine();
}
