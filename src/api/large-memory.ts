/**
 * Memory that large messages are read into. New memory costs as much as all the rest of a large message, for
 * the system clears each page at its first use; so the memory of a released message waits for the next one.
 */
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { ACCESS, type ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion } from '../verbs/memory.ts';

/**
 * Milliseconds without a large message after which the memory is given back. New memory costs twice as much
 * time as a message of 64 MiB in memory that is there, which takes a second on a busy machine.
 */
export const KEEP_MS = 5000;

/** @internal */
export class LargeMemory {
  readonly #pd: ProtectionDomain;
  readonly #most: number;
  readonly #idle: Alarm;
  #kept: MemoryRegion[] = [];
  #octets = 0;
  #ended = false;

  /** Keeps up to `most` bytes. */
  constructor(pd: ProtectionDomain, scheduler: Scheduler, most: number) {
    this.#pd = pd;
    this.#most = most;
    this.#idle = new Alarm(scheduler);
  }

  /** A region of at least this length, and at most twice it; its bytes are anything. */
  take(length: number): MemoryRegion {
    const at = this.#kept.findIndex((region) => region.length >= length && region.length <= 2 * length);
    if (at < 0) return this.make(length);
    const [region] = this.#kept.splice(at, 1);
    this.#octets -= region!.length;
    return region!;
  }

  /** A region of this length in new memory. */
  make(length: number): MemoryRegion {
    return this.#pd.registerMemory(this.#pd.device.allocateMemory(length), ACCESS.LOCAL_WRITE);
  }

  /** The program has let a region go. */
  give(region: MemoryRegion): void {
    if (this.#ended || this.#octets + region.length > this.#most) {
      this.abandon(region);
      return;
    }
    this.#kept.push(region);
    this.#octets += region.length;
    this.#idle.set(KEEP_MS, () => this.#drop());
  }

  /** The region is of no use any longer; its bytes stay with the program. */
  abandon(region: MemoryRegion): void {
    if (region.valid) region.release();
  }

  #drop(): void {
    for (const region of this.#kept) void region.deregister();
    this.#kept = [];
    this.#octets = 0;
  }

  /** The connection is gone. */
  close(): void {
    this.#ended = true;
    this.#idle.stop();
    this.#drop();
  }
}
