// CRC32c for the probe: RFC 5044 4.4, RFC 3720 12.1. This is the `crc-32` package, which is not the engine the product picks by
// default, so that a mistake in the one cannot hide a mistake in the other.

import crc32 from 'crc-32';
import crc32c from 'crc-32/crc32c.js';

/** CRC32c (Castagnoli) as the usual reflected 32-bit number. */
export function castagnoli(bytes: Uint8Array): number {
  return crc32c.buf(bytes) >>> 0;
}

/** CRC-32 (IEEE 802.3): the polynomial an implementer takes by mistake. */
export function ieee(bytes: Uint8Array): number {
  return crc32.buf(bytes) >>> 0;
}
