/**
 * The receive buffers of one connection, numbered from 0, and whose their memory is in the end.
 *
 * They lie in pieces, small ones first: of what a program has received and not released nothing can be used again. Many a program receives one message, a
 * ticket to memory say, and closes without another thought; with all buffers in one piece each such connection left two megabytes to the garbage collector,
 * which was busy for half of the time then.
 */
import { ACCESS, type ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { ReceiveSlots } from '../verbs/receive-slots.ts';

/** Buffers of the first piece, unless more are needed for as many octets as are worth keeping; each piece has so many times as many as the one before. */
const FIRST = 4;
const GROWTH = 4;
const LEAST_OCTETS = 1 << 16;

interface Piece {
  readonly mr: MemoryRegion;
  readonly slots: ReceiveSlots;
  readonly bytes: Uint8Array;
  /** Number of its first buffer. */
  readonly first: number;
  /** Messages in it that the program, or who keeps them for the program, has not released. */
  lent: number;
}

/** How many buffers lie in each piece: what is left when the next one would be larger than all before it goes into the last. */
function layout(count: number, octets: number): number[] {
  const sizes: number[] = [];
  let size = Math.max(FIRST, Math.ceil(LEAST_OCTETS / Math.max(octets, 1)));
  let left = count;
  for (; left > GROWTH * size; size *= GROWTH) {
    sizes.push(size);
    left -= size;
  }
  return [...sizes, left];
}

/** @internal */
export class ReceiveBuffers {
  readonly #pieces: Piece[] = [];
  readonly #octets: number;
  #ended = false;

  /** `count` buffers of `octets` octets. @throws ERR_LIMIT, with nothing left behind */
  constructor(pd: ProtectionDomain, count: number, octets: number) {
    this.#octets = octets;
    let first = 0;
    try {
      for (const size of layout(count, octets)) {
        // Need not be cleared: a message has come whole when it is delivered (DDP-034), and shows no octets but its own.
        const bytes = pd.device.connectionMemory(size * octets, false);
        const mr = pd.registerMemory(bytes, ACCESS.LOCAL_WRITE);
        this.#pieces.push({ mr, slots: new ReceiveSlots(mr, octets), bytes, first, lent: 0 });
        first += size;
      }
    } catch (error) {
      this.end();
      throw error;
    }
  }

  /** Post a buffer. The receive has its number. */
  post(qp: QueuePair, index: number): void {
    const { slots, first } = this.#pieceOf(index);
    slots.post(qp, index, index - first);
  }

  /** The first octets of a buffer, which is lent until `release`. */
  lend(index: number, octets: number): Uint8Array {
    const piece = this.#pieceOf(index);
    piece.lent++;
    const start = (index - piece.first) * this.#octets;
    return piece.bytes.subarray(start, start + octets);
  }

  /** What was lent is not used any more. */
  release(index: number): void {
    const piece = this.#pieceOf(index);
    piece.lent--;
    if (this.#ended) this.#give(piece);
  }

  /** The connection is gone: the next one may have each piece as soon as no message is shown in it. A second call does nothing. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    for (const piece of this.#pieces) {
      piece.mr.deregister();
      this.#give(piece);
    }
  }

  #give({ mr, bytes, lent }: Piece): void {
    if (lent === 0) mr.pd.device.spare.give(bytes);
  }

  #pieceOf(index: number): Piece {
    const pieces = this.#pieces;
    let at = pieces.length - 1;
    while (pieces[at]!.first > index) at--;
    return pieces[at]!;
  }
}
