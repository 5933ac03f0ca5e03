/**
 * The locks of copy-on-write. Each SrcAvail of one direction has a lock word at the side that Reads: slot
 * `ordinal mod slots`, generation `ordinal div slots`, where the ordinal counts the SrcAvails of that
 * direction from 0. The reader holds the lock while its Reads are under way. A sender that wants its memory
 * back takes it by a remote compare-and-swap, puts a copy in the place of the memory by UpdatedSrcAvail, and
 * leaves the lock to the reader, which gives it back when it acts on that message (protocol-notes 5.1). An
 * answered SrcAvail moves its lock on to the next generation: a late compare-and-swap changes nothing then.
 */
import { LOCK_OCTETS } from './wire.ts';

/** Low two bits of a lock word. */
export const OWNER = { FREE: 0, READER: 1, SENDER: 2 } as const;
const GENERATION = 4n;

/** A lock as a SrcAvail has it. */
export interface LockPlace {
  readonly slot: number;
  /** Modulo 2^32. */
  readonly generation: number;
}

export function lockPlace(ordinal: number, slots: number): LockPlace {
  return { slot: ordinal % slots, generation: Math.floor(ordinal / slots) >>> 0 };
}

export function lockWord(generation: number, owner: number): bigint {
  return BigInt(generation) * GENERATION + BigInt(owner);
}

/** The lock words of one receiving half, in this machine's byte order. */
export class Locks {
  readonly slots: number;
  readonly #words: BigUint64Array;

  /** `memory` is aligned to 8 bytes, and zero. */
  constructor(memory: Uint8Array) {
    this.slots = memory.length / LOCK_OCTETS;
    this.#words = new BigUint64Array(memory.buffer, memory.byteOffset, this.slots);
  }

  /** Take a lock for Reads: `sender` if the sender has it, `broken` if the word has no meaning. */
  take({ slot, generation }: LockPlace): 'taken' | 'sender' | 'broken' {
    const free = lockWord(generation, OWNER.FREE);
    const old = Atomics.compareExchange(this.#words, slot, free, lockWord(generation, OWNER.READER));
    if (old === free) return 'taken';
    return old === lockWord(generation, OWNER.SENDER) ? 'sender' : 'broken';
  }

  /** Give back the sender's lock, whose copy is known; false if the sender does not have it. */
  handOver({ slot, generation }: LockPlace): boolean {
    const held = lockWord(generation, OWNER.SENDER);
    return Atomics.compareExchange(this.#words, slot, held, lockWord(generation, OWNER.FREE)) === held;
  }

  /** No Read is under way. */
  release({ slot, generation }: LockPlace): void {
    Atomics.store(this.#words, slot, lockWord(generation, OWNER.FREE));
  }

  /** The SrcAvail has been answered, or dropped. */
  retire({ slot, generation }: LockPlace): void {
    Atomics.store(this.#words, slot, lockWord((generation + 1) >>> 0, OWNER.FREE));
  }
}
