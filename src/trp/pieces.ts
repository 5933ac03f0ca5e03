/**
 * Segments in pieces, for a path that carries less than its interface says. A segment that has been sent has
 * its sequence number, and those behind it have theirs, so it cannot be cut into more segments: one datagram
 * becomes several that have its number together. Only the profile `fixed` has them.
 *
 * A piece stands behind the header of its datagram: bytes of the whole segment (u16), number of the pieces
 * (u8), index of this one (u8), and then its bytes. All pieces but the last are equally long.
 */
import type { Packet } from './packet.ts';
import { TRP_HEADER_OCTETS, TRP_OPCODE, TRP_OPCODE_OFFSET, TRP_PIECE_OCTETS } from './wire.ts';

/** A segment of 65,535 bytes has this number of pieces for the least path. */
const MOST_PIECES = 128;
/** Segments that are put together at a time: the sender sends all pieces of one before the next one. */
const MOST_SEGMENTS = 4;

/** The datagrams of a packet; each has at most `most` bytes behind its header. */
export function cutPacket(packet: Packet, most: number): Uint8Array[] {
  const total = packet.length - TRP_HEADER_OCTETS;
  const count = Math.ceil(total / (most - TRP_PIECE_OCTETS));
  const step = Math.ceil(total / count);
  return Array.from({ length: count }, (_, index) => {
    const from = index * step;
    const to = Math.min(total, from + step);
    const bytes = new Uint8Array(TRP_HEADER_OCTETS + TRP_PIECE_OCTETS + to - from);
    bytes.set(packet.bytes.subarray(0, TRP_HEADER_OCTETS));
    const view = new DataView(bytes.buffer);
    view.setUint16(TRP_OPCODE_OFFSET, TRP_OPCODE.PIECE);
    view.setUint16(TRP_HEADER_OCTETS, total);
    view.setUint8(TRP_HEADER_OCTETS + 2, count);
    view.setUint8(TRP_HEADER_OCTETS + 3, index);
    const payload = packet.bytes.subarray(TRP_HEADER_OCTETS + from, TRP_HEADER_OCTETS + to);
    bytes.set(payload, TRP_HEADER_OCTETS + TRP_PIECE_OCTETS);
    return bytes;
  });
}

interface Collected {
  readonly bytes: Uint8Array;
  readonly have: boolean[];
  missing: number;
}

/** Segments of which some pieces have come. */
export class PieceStore {
  readonly #partial = new Map<number, Collected>();

  /**
   * The piece `bytes[start..end)` of the segment with this sequence number. The segment if that was the last
   * piece that it lacked; null if it lacks more; undefined if this is no piece of it.
   */
  take(sequence: number, bytes: Uint8Array, start: number, end: number): Uint8Array | null | undefined {
    const total = (bytes[start]! << 8) | bytes[start + 1]!;
    const count = bytes[start + 2]!;
    const index = bytes[start + 3]!;
    const length = end - start - TRP_PIECE_OCTETS;
    if (count < 2 || count > MOST_PIECES || index >= count) return undefined;
    const step = Math.ceil(total / count);
    const from = index * step;
    if (length <= 0 || length !== Math.min(total, from + step) - from) return undefined;
    const one = this.#partial.get(sequence) ?? this.#begin(sequence, total, count);
    if (one === null) return null;
    if (one.bytes.length !== total || one.have.length !== count) return undefined;
    if (one.have[index]!) return null;
    one.have[index] = true;
    one.bytes.set(bytes.subarray(start + TRP_PIECE_OCTETS, end), from);
    if (--one.missing > 0) return null;
    this.#partial.delete(sequence);
    return one.bytes;
  }

  /** Where there is no room the lowest ones are kept, for all others wait for them; null for no room. */
  #begin(sequence: number, total: number, count: number): Collected | null {
    if (this.#partial.size >= MOST_SEGMENTS) {
      const highest = Math.max(...this.#partial.keys());
      if (highest < sequence) return null;
      this.#partial.delete(highest);
    }
    const one = {
      bytes: new Uint8Array(total),
      have: new Array<boolean>(count).fill(false),
      missing: count,
    };
    this.#partial.set(sequence, one);
    return one;
  }

  /** Segments below have come. */
  forget(expected: number): void {
    for (const sequence of this.#partial.keys()) if (sequence < expected) this.#partial.delete(sequence);
  }
}
