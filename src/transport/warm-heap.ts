/**
 * Memory for octets that the program gets in memory of their own, by 'data' events or a Read without memory, while there are many of them.
 *
 * Such memory comes from malloc, and V8 gives it back in lots of some tens of megabytes, one for each garbage collection. glibc hands what is free at the end of
 * its heap to the system as soon as that is more than 128 KiB (mallopt(3), M_TRIM_THRESHOLD); then every page that is taken again costs a fault, and the system
 * clears it: half of all that a receiver of byte streams had to do. Free memory stays where something that is in use lies behind it. So while much comes, a block is
 * kept, and was taken after as much as V8 leaves lying about. Other C libraries do not mind it.
 */
import type { Scheduler } from '../base/clock.ts';
import { realScheduler } from './scheduler.ts';

/** V8 looks for garbage when 32 MiB of new buffers have come, and gives their memory back in another thread, some megabytes later. */
const ROOM_OCTETS = 48 << 20;
/** Part of the heap, whereas glibc asks the system for blocks of 128 KiB and more one by one (M_MMAP_THRESHOLD), and gives each back by itself. */
const BLOCK_OCTETS = 120 << 10;
const KEEP_ONE_OF = 16;
/** So much within a period is much. */
const BUSY_OCTETS = 32 << 20;
const PERIOD_MS = 1000;
/** After so many periods with less the system gets the memory back. */
const QUIET_PERIODS = 5;

/**
 * Takes blocks for the whole room and returns one of sixteen of them. What the others had is the room, as soon as V8 finds them unused. The last one alone does not
 * do: malloc fills the gaps that there are, in an order of its own, and the end of the heap may be none of the last.
 */
function blocksInRoom(): unknown {
  const blocks = Array.from({ length: Math.ceil(ROOM_OCTETS / BLOCK_OCTETS) }, () => Buffer.allocUnsafeSlow(BLOCK_OCTETS));
  return blocks.filter((_, index) => index % KEEP_ONE_OF === 0);
}

export class WarmHeap {
  readonly #scheduler: Scheduler;
  readonly #take: () => unknown;
  /** What is kept; null if nothing is. */
  #block: unknown = null;
  /** In the present period. */
  #octets = 0;
  #since = -Infinity;
  #quiet = 0;

  /** `take` gets the block that is kept, and may throw. */
  constructor(scheduler: Scheduler, take: () => unknown) {
    this.#scheduler = scheduler;
    this.#take = take;
  }

  /** Whether memory is being kept. */
  get warm(): boolean {
    return this.#block !== null;
  }

  /** The program has been given so many octets in new memory. Where that is no part of the heap, it does not count. */
  given(octets: number): void {
    if (octets > BLOCK_OCTETS) return;
    this.#octets += octets;
    if (this.#octets >= BUSY_OCTETS && this.#block === null) this.#much();
  }

  /** The clock is asked once for so many octets, and there is a timer only while a block is kept. */
  #much(): void {
    const now = this.#scheduler.now();
    const quick = now - this.#since <= PERIOD_MS;
    this.#octets = 0;
    this.#since = now;
    if (!quick) return;
    try {
      this.#block = this.#take();
    } catch {
      // There is no memory for more than the octets themselves. They have had theirs.
      return;
    }
    this.#quiet = 0;
    this.#scheduler.at(now + PERIOD_MS, () => this.#look());
  }

  #look(): void {
    this.#quiet = this.#octets >= BUSY_OCTETS ? 0 : this.#quiet + 1;
    this.#octets = 0;
    if (this.#quiet === QUIET_PERIODS) this.#block = null;
    else this.#scheduler.at(this.#scheduler.now() + PERIOD_MS, () => this.#look());
  }
}

const none = { given: (): void => undefined };

/** That of this thread. Linux is where glibc is. */
export const warmHeap: Pick<WarmHeap, 'given'> = process.platform === 'linux' ? new WarmHeap(realScheduler, blocksInRoom) : none;
