/**
 * The receive buffers of one connection, numbered from 0.
 *
 * The buffers lie in pieces, each as large as all before it together. A connection whose peer keeps to
 * credits begins with the first piece and gets more as its peer uses them (`inbound-window.ts`). Nothing
 * keeps other peers from sending as many messages at once as there are receives: a connection whose stream
 * runs in this thread gets a further piece at the moment in which a message takes the last receive. With a
 * worker an accepted one has 64 buffers, and gets all others with its first message; one that has been asked
 * for, whose peer is not known before, has them all at once.
 */
import { lengthNow, NO_BYTES } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import { ACCESS, type ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { RESERVED_RECEIVES } from './credits.ts';
import { forbidTransfer } from './environment.ts';
import { asBuffer } from './local-memory.ts';
import { ReceiveSlots } from '../verbs/receive-slots.ts';

/** The first piece has this many buffers beside the reserved ones, or as many as fill `FIRST_BYTES`. */
const FIRST = 4;
const FIRST_BYTES = 1 << 16;

interface Piece {
  readonly mr: MemoryRegion;
  readonly slots: ReceiveSlots;
  readonly bytes: Uint8Array;
  /** The same as a Buffer, for messages. */
  readonly view: Uint8Array;
  /** Number of its first buffer. */
  readonly first: number;
  /** Messages in it that the program has not released. */
  lent: number;
  /** Numbers of buffers that are out of use until the window grows again. */
  readonly idle: number[];
}

/** The number of buffers in each piece, `count` in all. */
function layout(count: number, octets: number): number[] {
  const sizes: number[] = [];
  let size = Math.max(FIRST, Math.ceil(FIRST_BYTES / Math.max(octets, 1))) + RESERVED_RECEIVES;
  let left = count;
  // A rest of less than half a piece goes into the last.
  for (; left > size * 1.5; size = count - left) {
    sizes.push(size);
    left -= size;
  }
  return [...sizes, left];
}

/** @internal Messages that a connection can take before it makes room for more. */
export function firstWindow(receiveDepth: number, octets: number): number {
  return layout(receiveDepth + RESERVED_RECEIVES, octets)[0]! - RESERVED_RECEIVES;
}

/** @internal */
export class ReceiveBuffers {
  readonly #pd: ProtectionDomain;
  readonly #sizes: readonly number[];
  /** Null where there is no piece yet, or no longer. */
  readonly #pieces: (Piece | null)[];
  readonly #octets: number;
  #count = 0;
  #ended = false;

  /** For at most `most` buffers of `octets` bytes; none is there before {@link grow}. */
  constructor(pd: ProtectionDomain, most: number, octets: number) {
    this.#pd = pd;
    this.#octets = octets;
    this.#sizes = layout(most, octets);
    this.#pieces = this.#sizes.map(() => null);
  }

  /** Buffers of the first piece. */
  get first(): number {
    return this.#sizes[0]!;
  }

  /** Buffers that are posted or hold a message. */
  get count(): number {
    return this.#count;
  }

  /**
   * Post further buffers: those that were out of use, or a new piece. Returns their number, which is 0 when
   * all are in use.
   *
   * @throws ERR_LIMIT, with nothing changed
   */
  grow(qp: QueuePair): number {
    const at = this.#pieces.findIndex((piece) => piece === null || piece.idle.length > 0);
    if (at < 0) return 0;
    const piece = this.#pieces[at] ?? this.#make(at);
    const added = piece.idle.length;
    for (const index of piece.idle.splice(0)) piece.slots.post(qp, index, index - piece.first);
    this.#count += added;
    return added;
  }

  /**
   * Like `grow`, but returns 0 where a limit of the device is in the way: the connection goes on with the
   * buffers it has.
   */
  tryGrow(qp: QueuePair): number {
    try {
      return this.grow(qp);
    } catch (error) {
      if (error instanceof IwarpError && error.code === 'ERR_LIMIT') return 0;
      throw error;
    }
  }

  #make(at: number): Piece {
    const { device } = this.#pd;
    const size = this.#sizes[at]!;
    const first = this.#sizes.slice(0, at).reduce((sum, each) => sum + each, 0);
    // Need not be cleared: a message has come whole when it is delivered (DDP-034), and shows no octets but
    // its own.
    const bytes = device.connectionMemory.take(size * this.#octets, false);
    forbidTransfer(bytes); // other connections have their buffers there too
    let mr: MemoryRegion;
    try {
      mr = this.#pd.registerMemory(bytes, ACCESS.LOCAL_WRITE);
    } catch (error) {
      device.connectionMemory.give(bytes, true);
      throw error;
    }
    const piece: Piece = {
      mr,
      slots: new ReceiveSlots(mr, this.#octets),
      bytes,
      view: asBuffer(bytes),
      first,
      lent: 0,
      idle: Array.from({ length: size }, (_, index) => first + index),
    };
    this.#pieces[at] = piece;
    return piece;
  }

  /** Post a buffer. The receive has its number. */
  post(qp: QueuePair, index: number): void {
    const { slots, first } = this.#pieceOf(index);
    slots.post(qp, index, index - first);
  }

  /** The buffer lies in a piece that the connection can do without. */
  isExtra(index: number): boolean {
    return index >= this.first;
  }

  /** Take a buffer that is not posted out of use. A piece with nothing but such buffers is given back. */
  retire(index: number): void {
    const piece = this.#pieceOf(index);
    this.#count--;
    piece.idle.push(index);
    if (piece.idle.length < this.#sizes[this.#pieces.indexOf(piece)]!) return;
    this.#pieces[this.#pieces.indexOf(piece)] = null;
    piece.mr.deregister();
    this.#pd.device.connectionMemory.give(piece.bytes);
  }

  /** The first `octets` bytes of a buffer, which is lent until `release`. */
  lend(index: number, octets: number): Uint8Array {
    const piece = this.#pieceOf(index);
    piece.lent++;
    if (this.#isLost(piece)) return NO_BYTES;
    const start = (index - piece.first) * this.#octets;
    return piece.view.subarray(start, start + octets);
  }

  /**
   * The memory of a buffer has been transferred: a byte stream of the Web takes the whole block of a view
   * that is enqueued, whatever marks it has.
   */
  isLost(index: number): boolean {
    return this.#isLost(this.#pieceOf(index));
  }

  #isLost({ bytes }: Piece): boolean {
    return lengthNow(bytes) === 0 && this.#octets > 0;
  }

  /** The program no longer uses the lent bytes. */
  release(index: number): void {
    const piece = this.#pieceOf(index);
    piece.lent--;
    if (this.#ended && piece.lent === 0) this.#pd.device.connectionMemory.found(piece.bytes);
  }

  /**
   * The connection is gone: others may have each piece as soon as no message is shown in it. A second call
   * does nothing.
   */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    const { connectionMemory } = this.#pd.device;
    for (const piece of this.#pieces) {
      if (piece === null) continue;
      piece.mr.deregister();
      if (piece.lent > 0) connectionMemory.lose(piece.bytes);
      else connectionMemory.give(piece.bytes);
    }
  }

  #pieceOf(index: number): Piece {
    const pieces = this.#pieces;
    let at = pieces.length - 1;
    while ((pieces[at]?.first ?? Number.POSITIVE_INFINITY) > index) at--;
    return pieces[at]!;
  }
}
