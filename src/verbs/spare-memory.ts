/** Memory of connections that are over, for those that come. */

/** Octets kept. */
const KEEP_OCTETS = 16 << 20;
/** Smaller ones cost little to make, and would take the places of large ones. */
const WORTH_OCTETS = 1 << 16;

interface Piece {
  readonly bytes: Uint8Array;
  /** What it had when it came: a program can still detach the buffer by a view that it kept. */
  readonly octets: number;
}

/**
 * Where connections come and go, the buffers of each were most of what a connection cost. V8 collects all garbage after some tens of megabytes of new
 * buffers, however small the heap is, so for every few dozen connections; and the system gives, clears and takes back the pages each time.
 */
export class SpareMemory {
  /** In the order in which they came. */
  readonly #pieces: Piece[] = [];
  #octets = 0;

  /** Keep memory that nobody uses any more, in place of what has been kept for longest. */
  give(bytes: Uint8Array): void {
    const octets = bytes.length;
    if (octets < WORTH_OCTETS || octets > KEEP_OCTETS) return;
    this.#pieces.push({ bytes, octets });
    this.#octets += octets;
    while (this.#octets > KEEP_OCTETS) this.#octets -= this.#pieces.shift()!.octets;
  }

  /** Memory of exactly so many octets, with what stood in it before; undefined if there is none. */
  take(octets: number): Uint8Array | undefined {
    for (let index = this.#pieces.length - 1; index >= 0; index--) {
      const piece = this.#pieces[index]!;
      if (piece.octets !== octets) continue;
      this.#pieces.splice(index, 1);
      this.#octets -= octets;
      if (piece.bytes.length === octets) return piece.bytes;
    }
    return undefined;
  }
}
