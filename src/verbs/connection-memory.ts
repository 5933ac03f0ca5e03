/**
 * Memory for the buffers of connections, cut from slabs.
 *
 * Connections come and go, and each needs buffers of the same few sizes. Memory of one allocation each did
 * not go back to the system: the C library keeps freed blocks of up to 32 MiB for the process and clears them
 * for the next use, which makes every page resident. After four rounds of 4,000 idle connections 9 GB were
 * resident with no connection left, 20 GB with an engine in a worker. A slab of more than 32 MiB is mapped by
 * itself: its pages become resident when they are first written, and all of it goes back when it is
 * collected.
 */
import { clearBytes, lengthNow } from '../base/copy.ts';

/** Smaller pieces are allocated one by one: they cost little, and would take the places of large ones. */
const LEAST_PIECE = 1 << 16;
/** Larger pieces are allocated one by one too. */
const LARGEST_PIECE = 16 << 20;
/** Bytes of a full-grown slab: more than the C library ever keeps for itself. */
const SLAB = 34 << 20;
/** Bytes of slabs without a piece in use that are kept. */
const KEEP = 16 << 20;

/** Pieces of one size, side by side. */
interface Slab {
  readonly bytes: Uint8Array;
  readonly size: number;
  readonly count: number;
  /** Numbers of the pieces that can be taken. The last one to come back is the first to go. */
  readonly free: number[];
  /** Pieces that have held something. */
  readonly used: Set<number>;
  /** Pieces that stay with the program, which may still look at them. */
  lost: number;
}

/** @internal */
export class ConnectionMemory {
  readonly #allocate: (octets: number) => Uint8Array;
  /** Slabs by the size of their pieces, oldest first. */
  readonly #shelves = new Map<number, Slab[]>();
  readonly #slabs = new Map<ArrayBufferLike, Slab>();
  /** Bytes of slabs without a piece in use. */
  #idle = 0;

  /** `allocate` returns zeroed memory. */
  constructor(allocate: (octets: number) => Uint8Array) {
    this.#allocate = allocate;
  }

  /** Bytes of all slabs. */
  get reserved(): number {
    let sum = 0;
    for (const { size, count } of this.#slabs.values()) sum += size * count;
    return sum;
  }

  /**
   * Memory of `octets` bytes, which an earlier connection may have used; `clear` zeroes what that has left in
   * it.
   *
   * @throws ERR_LIMIT
   */
  take(octets: number, clear: boolean): Uint8Array {
    if (octets < LEAST_PIECE || octets > LARGEST_PIECE) return this.#allocate(octets);
    const slab = this.#withRoom(octets);
    if (isUnused(slab)) this.#idle -= octets * slab.count;
    const number = slab.free.pop()!;
    const piece = slab.bytes.subarray(number * octets, (number + 1) * octets);
    if (clear && slab.used.delete(number)) clearBytes(piece);
    return piece;
  }

  /** A slab with a free piece: the oldest, so that later ones become empty and go. */
  #withRoom(size: number): Slab {
    let pieces = 0;
    for (const slab of [...(this.#shelves.get(size) ?? [])]) {
      // A program can detach the buffer of a view that it has.
      if (lengthNow(slab.bytes) === 0) this.#forget(slab);
      else if (slab.free.length > 0) return slab;
      else pieces += slab.count;
    }
    // As many pieces as exist already, so that a few connections cost little and many cost few allocations.
    const count = Math.max(1, Math.min(pieces, Math.ceil(SLAB / size)));
    const bytes = this.#allocate(size * count);
    const free = Array.from({ length: count }, (_, at) => count - 1 - at);
    const slab = { bytes, size, count, free, used: new Set<number>(), lost: 0 };
    this.#add(slab);
    this.#idle += size * count;
    return slab;
  }

  #add(slab: Slab): void {
    const shelf = this.#shelves.get(slab.size);
    if (shelf === undefined) this.#shelves.set(slab.size, [slab]);
    else shelf.push(slab);
    this.#slabs.set(slab.bytes.buffer, slab);
  }

  /** Nothing uses the piece any longer. `clean`: nothing has been written into it. */
  give(piece: Uint8Array, clean: boolean = false): void {
    const slab = this.#slabs.get(piece.buffer);
    if (slab === undefined) return; // no piece of a slab, or of one that is forgotten
    if (piece.length === 0) {
      this.#forget(slab);
      return;
    }
    this.#free(slab, piece, clean);
    this.#settle(slab);
  }

  #free(slab: Slab, piece: Uint8Array, clean: boolean): void {
    const number = piece.byteOffset / slab.size;
    if (!clean) slab.used.add(number);
    slab.free.push(number);
  }

  /** The program may still look at the piece: it is not taken again unless it is {@link found}. */
  lose(piece: Uint8Array): void {
    const slab = this.#slabs.get(piece.buffer);
    if (slab === undefined) return;
    slab.lost++;
    this.#settle(slab);
  }

  /** The program has given up a piece that was lost. */
  found(piece: Uint8Array): void {
    const { buffer, length: size } = piece;
    const slab = this.#slabs.get(buffer);
    if (slab !== undefined && size > 0) {
      const counted = isUnused(slab);
      slab.lost--;
      this.#free(slab, piece, false);
      if (!counted) this.#settle(slab);
    } else if (size >= LEAST_PIECE && size <= LARGEST_PIECE && size === buffer.byteLength) {
      // The only piece of a slab that has been let go.
      const whole = { bytes: piece, size, count: 1, free: [0], used: new Set([0]), lost: 0 };
      this.#add(whole);
      this.#settle(whole);
    }
  }

  /**
   * Let a slab go that no connection uses, if there are enough of them, or if the program keeps all of it.
   */
  #settle(slab: Slab): void {
    if (!isUnused(slab)) return;
    this.#idle += slab.size * slab.count;
    if (this.#idle > KEEP || slab.free.length === 0) this.#forget(slab);
  }

  #forget(slab: Slab): void {
    if (!this.#slabs.delete(slab.bytes.buffer)) return;
    if (isUnused(slab)) this.#idle -= slab.size * slab.count;
    const shelf = this.#shelves.get(slab.size)!;
    shelf.splice(shelf.indexOf(slab), 1);
    if (shelf.length === 0) this.#shelves.delete(slab.size);
  }
}

/** No connection uses a piece of it. */
function isUnused({ free, lost, count }: Slab): boolean {
  return free.length + lost === count;
}
