/** How messages of a queue pair lie in a byte stream that is not ours. */
import type { ConnectionPolicy } from '../mpa/policy.ts';

/**
 * - `none`: there are no messages on the wire. A receive completes with the bytes that have come.
 * - `length`: a big-endian u32 in front of each message says how long it is.
 * - `segment`: each Send is one write, and a receive completes with what one read has brought. That keeps
 *   messages apart as long as the systems on both sides do, which they need not.
 */
export type Framing = ConnectionPolicy['framing'];

/** Octets of the length in front of a message. */
export const PREFIX_OCTETS = 4;

/** Write the length of a message at `bytes[at]`. */
export function putPrefix(bytes: Uint8Array, at: number, length: number): void {
  bytes[at] = length >>> 24;
  bytes[at + 1] = length >>> 16;
  bytes[at + 2] = length >>> 8;
  bytes[at + 3] = length;
}
