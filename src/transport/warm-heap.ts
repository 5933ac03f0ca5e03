/**
 * Memory for bytes that the program gets in new memory, by 'data' events or a Read without memory,
 * once there are many of them.
 *
 * Such memory comes from malloc, and V8 gives it back in lots of some tens of megabytes, one for each garbage
 * collection. glibc hands free memory at the end of its heap to the system as soon as that is more than 128
 * KiB (mallopt(3), M_TRIM_THRESHOLD); then every page that is taken again costs a fault, and the system
 * clears it: half of all that a receiver of byte streams had to do (`stream write` of bench/micro/layers.ts).
 * Free memory stays where something that is in use lies behind it. So once much comes, some blocks are kept
 * for good, spread over as much memory as V8 leaves lying about. Other C libraries do not mind it.
 *
 * To give the blocks back in quiet times would gain nothing: what lies behind the memory by then keeps it as
 * well (measured).
 */
import { Buffer } from 'node:buffer';
import { performance } from 'node:perf_hooks';

/**
 * V8 looks for garbage when 32 MiB of new buffers have come, and gives their memory back in another thread,
 * later. Newer ones leave more lying about.
 */
const ROOM_OCTETS = (Number.parseInt(process.versions.v8, 10) < 12 ? 48 : 80) << 20;
/**
 * Part of the heap, whereas glibc asks the system for blocks of 128 KiB and more one by one
 * (M_MMAP_THRESHOLD), and gives each back by itself.
 */
const BLOCK_OCTETS = 120 << 10;
const KEEP_ONE_OF = 16;
/** So much within a period is much. */
const BUSY_OCTETS = 32 << 20;
const PERIOD_MS = 1000;

/**
 * Takes blocks for the whole room and returns one of sixteen of them. What the others had is the room, as
 * soon as V8 finds them unused. The last one alone does not do: malloc fills the gaps that there are, in its
 * order, and the end of the heap may be none of the last.
 */
function blocksInRoom(): unknown {
  const blocks = Array.from({ length: Math.ceil(ROOM_OCTETS / BLOCK_OCTETS) }, () =>
    Buffer.allocUnsafeSlow(BLOCK_OCTETS),
  );
  return blocks.filter((_, index) => index % KEEP_ONE_OF === 0);
}

export class WarmHeap {
  readonly #now: () => number;
  readonly #take: () => unknown;
  /** Only held. */
  #blocks: unknown = null;
  #warm = false;
  /** Since the time below. */
  #octets = 0;
  #since = -Infinity;

  /** `now` in milliseconds; `take` makes the memory to keep, and may throw. */
  constructor(now: () => number, take: () => unknown) {
    this.#now = now;
    this.#take = take;
  }

  /**
   * The program has been given this many bytes in new memory. Where that is no part of the heap, it does not
   * count.
   */
  given(octets: number): void {
    if (this.#warm || octets > BLOCK_OCTETS) return;
    this.#octets += octets;
    if (this.#octets >= BUSY_OCTETS) this.#much();
  }

  /** Bytes for which the clock is read once. */
  #much(): void {
    const now = this.#now();
    this.#warm = now - this.#since <= PERIOD_MS;
    this.#since = now;
    this.#octets = 0;
    if (!this.#warm) return;
    try {
      this.#blocks = this.#take();
    } catch {
      // There is no memory for more than the bytes themselves. They have had theirs.
    }
  }

  /** The kept memory; null if there is none. */
  get kept(): unknown {
    return this.#blocks;
  }
}

const nothing = { given: (): void => undefined };

/** That of this thread. Linux is where glibc is. */
export const warmHeap: Pick<WarmHeap, 'given'> =
  process.platform === 'linux' ? new WarmHeap(() => performance.now(), blocksInRoom) : nothing;
