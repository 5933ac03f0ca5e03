/**
 * Transmit buffers, each lent for the time of one write, so that idle connections hold none. The figures are
 * of `bulk` in bench/micro/datapath.ts.
 */
import { Pool } from '../base/pool.ts';
import { POOL_OCTETS, type MemorySource } from '../crc32c/memory.ts';
import { createTransmitBuffer, type TransmitBuffer } from './transmit-buffer.ts';

/**
 * Bytes of a transmit buffer, which is one write: two TCP segments of the loopback interface (65483 bytes
 * each), less the words that keep buffers apart. 64 KiB is one such segment and a little one after it, and
 * each write may have to wake the peer, which costs more than the bytes; at twice that 1 MiB Reads without
 * CRC gained 1.3 to 1.8, Writes with markers 1.2 to 1.4, and CRC on a little. Two buffers of 128 KiB still
 * stay in the second-level cache; four of 256 KiB, tried with the prototypes, fell out of it and cost a
 * quarter.
 */
export const TRANSMIT_BUFFER_OCTETS = 130_960;

/**
 * Bytes of a write with zero-copy payloads, unless one FPDU alone is longer. Nothing of it has to stay in a
 * cache; more would keep a Terminate or a message of the other kind waiting for longer.
 */
export const ZERO_COPY_WRITE_OCTETS = 262_144;

/** Lends transmit buffers. */
export interface TransmitBufferPool {
  acquire(): TransmitBuffer;
  release(buffer: TransmitBuffer): void;
}

/** A pool that keeps up to `keep` free buffers, and gives the memory of others back. */
export function transmitBufferPool(
  memory: MemorySource,
  keep: number = Math.floor(POOL_OCTETS / TRANSMIT_BUFFER_OCTETS),
): Pool<TransmitBuffer> {
  return new Pool({
    keep,
    make: () => createTransmitBuffer(memory.allocate(TRANSMIT_BUFFER_OCTETS)),
    reset: (buffer) => buffer.clear(),
    drop: ({ bytes }) => memory.release(bytes),
  });
}
