/**
 * Steering tags and the single protection check: RFC 5041 7.1, 8.1, 8.2; RFC 5042 6.1, 6.2; verbs draft 7.2,
 * 7.6.
 *
 * An STag is a 24-bit index, drawn at random (SEC-009), and an 8-bit key that moves on with every reuse and
 * invalidation. Every access from the network comes through {@link StagTable.check}; local work requests hold
 * the entry itself and look at its validity.
 */
import { ChangingOctets, NO_BYTES, reaches } from '../base/copy.ts';
import { IwarpError } from '../base/errors.ts';
import type { RandomU32 } from '../base/random.ts';
import type { LentMemory } from '../llp/lower-layer.ts';
import { addWraps, distance } from '../base/u64.ts';

/** Access rights, with libibverbs' values. Local read is always granted. */
export const ACCESS = {
  /** Receives and the responses of our Reads may write here. */
  LOCAL_WRITE: 1,
  /** The peer may write; needs LOCAL_WRITE. */
  REMOTE_WRITE: 2,
  /** The peer may read. */
  REMOTE_READ: 4,
  /** The peer may use atomics; needs LOCAL_WRITE. */
  REMOTE_ATOMIC: 8,
  /** Memory windows may be bound to the region. */
  MW_BIND: 16,
} as const;
const ALL_ACCESS = 31;

/** Any right a peer can use. */
export const REMOTE_ACCESS: number = ACCESS.REMOTE_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_ATOMIC;

/** True for a combination of known rights. */
export function isAccess(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= ALL_ACCESS;
}

/** Results of the protection check; each caller maps a fault onto the Terminate codes of its layer. */
export const FAULT = { NONE: 0, INVALID_STAG: 1, NOT_ASSOCIATED: 2, ACCESS: 3, WRAP: 4, BOUNDS: 5 } as const;

/**
 * How far the only use of an STag has come: values of {@link StagEntry.use} that are no offset. An offset is
 * where the Write that has begun goes on.
 */
export const USE = {
  /** Any number of messages may use it. */
  MANY: -3,
  /** A Read of it waits for its response, or has a part of it. */
  READ: -2,
  /** No message has used it. */
  NONE: -1,
} as const;

const MAX_IN_VIEW = 0xffff_ffff;

const INDEX_BITS = 24;
const INDEX_COUNT = 1 << INDEX_BITS;
/**
 * Freed indices rest this long before they can be drawn again (SEC-010): with random draws over 2^24 a value
 * stays away for long.
 */
const QUARANTINE = 4096;

/** Counts the windows that a queue pair has bound (VERBS-026). */
export interface WindowBinder {
  boundWindows: number;
}

/** Returned at the end of a registration whose memory no write uses. */
const RETURNED: PromiseLike<void> = Promise.resolve();

/** Reads bytes of the network straight into memory that a region covers. */
export interface MemoryLease {
  /** The region has ended or changed: nothing may be read into its memory after this call. */
  revoke(): void;
}

/** One registered region or bound window, and its memory: empty where it has none. */
export class StagEntry extends ChangingOctets implements LentMemory {
  stag: number;
  readonly kind: 'region' | 'window';
  /** Handle of the protection domain. */
  readonly pd: number;
  /**
   * Queue pair to which this STag is limited; 0 means every queue pair of the protection domain (DDP-067).
   */
  qp = 0;
  /** False from invalidation until the next bind or fast registration. */
  valid = true;
  access = 0;
  /** Tagged offset of the first byte. */
  baseHi = 0;
  baseLo = 0;
  /**
   * A region that was registered without an address: tagged offsets count from 0 and no window can be bound
   * to it (VERBS-140).
   */
  zeroBased = true;
  /** Several STags or streams share this one, so a peer cannot invalidate it (RDMAP-068, SEC-008). */
  shared = false;
  /** Windows bound to this region; a region with windows cannot be invalidated or deregistered. */
  windows = 0;
  /** A bound window's region, and the queue pair that bound it; null otherwise. */
  region: StagEntry | null = null;
  binder: WindowBinder | null = null;
  /**
   * Writes under way that read the memory in place. The STag can end meanwhile, and no new use begins; but
   * only when this is 0 again may the program change the memory without the peer getting the new bytes.
   */
  pins = 0;
  /** Called when `pins` is 0 again. */
  #waiting: (() => void)[] | null = null;

  /** How far its use has come, if it is for one message: see {@link USE}. */
  use: number = USE.MANY;
  /** End of the furthest byte that a Write has put there since this registration, lending or bind. */
  written = 0;
  /**
   * Called once when it becomes unusable: because it has been taken out, or by a peer or the queues. It may
   * call nothing of the stream.
   */
  ended: ((freed: boolean) => void) | null = null;

  /** The receivers that read from a port into its memory now; null if there has never been one. */
  leases: Set<MemoryLease> | null = null;

  constructor(stag: number, kind: 'region' | 'window', pd: number) {
    super();
    this.stag = stag;
    this.kind = kind;
    this.pd = pd;
  }

  pin(): void {
    this.pins++;
  }

  unpin(): void {
    if (--this.pins > 0 || this.#waiting === null) return;
    const waiting = this.#waiting;
    this.#waiting = null;
    for (const done of waiting) done();
  }

  /** Call `done` once when the last pin goes; there has to be one. The same function waits only once. */
  whenUnpinned(done: () => void): void {
    if (this.#waiting === null) this.#waiting = [done];
    else if (!this.#waiting.includes(done)) this.#waiting.push(done);
  }

  /** Settles when no write reads the memory. */
  returned(): PromiseLike<void> {
    return this.pins === 0 ? RETURNED : new Promise((resolve) => this.whenUnpinned(resolve));
  }
}

/**
 * Memory as data. Null for none: a view of no bytes would take its whole buffer along, or no longer
 * have one. A view that goes beyond 4 GiB of its buffer goes in parts, for structured copies of views cut
 * their numbers to 32 bits (V8 12).
 */
export type MemoryState =
  | Uint8Array
  | { readonly buffer: ArrayBufferLike; readonly from: number; readonly octets: number }
  | null;

/** The memory as data. */
export function memoryState(bytes: Uint8Array): MemoryState {
  const { buffer, byteOffset: from, length: octets } = bytes;
  if (octets === 0) return null;
  return from + octets > MAX_IN_VIEW ? { buffer, from, octets } : bytes;
}

/** The memory again. */
export function memoryOf(state: MemoryState): Uint8Array {
  if (state === null) return NO_BYTES;
  return 'octets' in state ? new Uint8Array(state.buffer, state.from, state.octets) : state;
}

/** An entry as data, for a copy of the table in another thread. */
export interface StagState {
  readonly stag: number;
  readonly kind: 'region' | 'window';
  readonly pd: number;
  readonly qp: number;
  readonly valid: boolean;
  readonly access: number;
  readonly baseHi: number;
  readonly baseLo: number;
  readonly zeroBased: boolean;
  readonly shared: boolean;
  /** One message may use it, and none has. */
  readonly once: boolean;
  readonly memory: MemoryState;
  /** STag of the region that a bound window belongs to; 0 for none. */
  readonly region: number;
}

/** The entry as it stands. */
export function stateOf(entry: StagEntry): StagState {
  const { stag, kind, pd, qp, valid, access, baseHi, baseLo, zeroBased, shared, bytes, region, use } = entry;
  return {
    stag,
    kind,
    pd,
    qp,
    valid,
    access,
    baseHi,
    baseLo,
    zeroBased,
    shared,
    once: use === USE.NONE,
    memory: memoryState(bytes),
    region: region === null ? 0 : region.stag,
  };
}

/** All STags of one device. */
export class StagTable {
  readonly #byIndex = new Map<number, StagEntry>();
  readonly #random: RandomU32;
  readonly #limit: number;
  readonly #resting = new Set<number>();
  /** The same in the order of their end, in a ring: a Set whose first goes again and again grows slow. */
  readonly #rested: number[] = [];
  #oldest = 0;
  #last: StagEntry | null = null;
  /** The entry that the last successful `check` found. */
  entry: StagEntry | null = null;
  /** Where in `entry.bytes` the checked range starts. */
  offset = 0;

  constructor(random: RandomU32, limit: number) {
    this.#random = random;
    this.#limit = limit;
  }

  /**
   * A new entry under a fresh, unpredictable STag, with the caller's key if there is one (VERBS-138);
   * ERR_LIMIT when the table is full. Index 0 is never given out (VERBS-139).
   */
  allocate(kind: 'region' | 'window', pd: number, wantedKey?: number): StagEntry {
    if (this.#byIndex.size >= this.#limit)
      throw new IwarpError('ERR_LIMIT', `the device has its limit of ${this.#limit} STags in use`);
    let index: number;
    do index = this.#random() % INDEX_COUNT;
    while (index === 0 || this.#byIndex.has(index) || this.#resting.has(index));
    const key = wantedKey ?? this.#random() & 0xff;
    const entry = new StagEntry(((index << 8) | key) >>> 0, kind, pd);
    this.#byIndex.set(index, entry);
    return entry;
  }

  /**
   * Take the entry out: no access through it begins after this call (VERBS-151, SEC-007). Writes under way
   * that have pinned its memory go on: `returned` waits for them.
   */
  free(entry: StagEntry): void {
    const index = entry.stag >>> 8;
    const { ended } = entry;
    entry.ended = null;
    this.invalidate(entry);
    entry.bytes = NO_BYTES;
    this.#byIndex.delete(index);
    if (this.#last === entry) this.#last = null;
    this.#rest(index);
    ended?.(true);
  }

  #rest(index: number): void {
    this.#resting.add(index);
    if (this.#rested.length < QUARANTINE) {
      this.#rested.push(index);
      return;
    }
    this.#resting.delete(this.#rested[this.#oldest]!);
    this.#rested[this.#oldest] = index;
    this.#oldest = (this.#oldest + 1) % QUARANTINE;
  }

  /**
   * Make the entry unusable until its next registration or bind (VERBS-157). The key stays, so that
   * invalidating once more does no harm (VERBS-154); the next use gives another one. A window belongs to its
   * protection domain again (VERBS-166). Windows on a region end with it: the caller does not ask for that,
   * but one may have been bound in another thread of which the caller has not heard.
   */
  invalidate(entry: StagEntry): void {
    const { ended } = entry;
    entry.ended = null;
    ended?.(false);
    entry.valid = false;
    entry.use = USE.MANY;
    if (entry.leases !== null) revokeAll(entry.leases);
    if (entry.windows > 0)
      for (const other of this.#byIndex.values()) if (other.region === entry) this.invalidate(other);
    if (entry.region === null) return;
    entry.region.windows--;
    entry.binder!.boundWindows--;
    entry.region = null;
    entry.binder = null;
    entry.qp = 0;
    entry.bytes = NO_BYTES;
  }

  /**
   * Hold an entry as another table has it. Work that is queued on a region that was here before
   * finds other memory.
   */
  restore(state: StagState): void {
    let entry = this.withIndex(state.stag);
    if (entry === undefined || entry.kind !== state.kind || entry.pd !== state.pd) {
      entry = new StagEntry(state.stag, state.kind, state.pd);
      this.#byIndex.set(state.stag >>> 8, entry);
      this.#last = null;
    }
    entry.ended = null;
    this.invalidate(entry);
    this.rekey(entry, state.stag & 0xff);
    entry.qp = state.qp;
    entry.valid = state.valid;
    entry.access = state.access;
    entry.baseHi = state.baseHi;
    entry.baseLo = state.baseLo;
    entry.zeroBased = state.zeroBased;
    entry.shared = state.shared;
    entry.use = state.once ? USE.NONE : USE.MANY;
    entry.bytes = memoryOf(state.memory);
    const region = state.region === 0 ? undefined : this.withIndex(state.region);
    if (region === undefined) return;
    entry.region = region;
    entry.binder = { boundWindows: 1 }; // the queue pair that has bound it counts there
    region.windows++;
  }

  /** The entry with the index of this STag, whatever its key. */
  withIndex(stag: number): StagEntry | undefined {
    return this.#byIndex.get(stag >>> 8);
  }

  /** True while the entry stands in the table: neither deregistered nor deallocated. */
  holds(entry: StagEntry): boolean {
    return this.#byIndex.get(entry.stag >>> 8) === entry;
  }

  /** Give the entry another key, for a bind or fast registration (VERBS-138, VERBS-168). */
  rekey(entry: StagEntry, key: number = (entry.stag + 1) & 0xff): void {
    entry.stag = ((entry.stag & 0xffff_ff00) | (key & 0xff)) >>> 0;
  }

  /** Give the entry another key, which cannot be worked out from the present one (SEC-009). */
  refresh(entry: StagEntry): void {
    this.rekey(entry, (entry.stag & 0xff) + 1 + (this.#random() % 0xff));
  }

  /** The entry with this index and key, valid or not. */
  find(stag: number): StagEntry | null {
    if (this.#last !== null && this.#last.stag === stag) return this.#last;
    const entry = this.#byIndex.get(stag >>> 8);
    if (entry === undefined || entry.stag !== stag) return null; // VERBS-138: all 32 bits count
    this.#last = entry;
    return entry;
  }

  /**
   * May queue pair `qp` of protection domain `pd` use `length` (> 0) bytes at tagged offset (toHi, toLo) of
   * `stag` with `right`? Checks in the order of protocol-notes 1.2: STag, association, right, wrap, bounds.
   * On FAULT.NONE `entry` and `offset` are the place.
   */
  check(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    right: number,
    pd: number,
    qp: number,
  ): number {
    const entry = this.find(stag);
    if (entry === null || !entry.valid) return FAULT.INVALID_STAG; // DDP-045
    // DDP-046, SEC-001, SEC-002
    if (entry.pd !== pd || (entry.qp !== 0 && entry.qp !== qp)) return FAULT.NOT_ASSOCIATED;
    if ((entry.access & right) !== right) return FAULT.ACCESS; // DDP-047
    if (addWraps(toHi, toLo, length)) return FAULT.WRAP; // DDP-050
    const offset = distance(toHi, toLo, entry.baseHi, entry.baseLo);
    // DDP-048, DDP-049, SEC-004
    if (offset < 0 || !reaches(entry.bytes, offset + length)) return FAULT.BOUNDS;
    this.entry = entry;
    this.offset = offset;
    return FAULT.NONE;
  }

  /**
   * A Write may go to the place that `check` has found, of an STag for one use. It takes the segments of one
   * message, each behind the last: so no byte is written twice, whatever the peer calls a message.
   */
  mayWrite(): boolean {
    const { use } = this.entry!;
    return use === USE.NONE || use === this.offset;
  }

  /** `length` bytes of a Write have been put there; with the last segment the STag ends. */
  written(length: number, last: boolean): void {
    const entry = this.entry!;
    if (last) this.invalidate(entry);
    else entry.use = this.offset + length;
  }

  /** A Write ends with a segment without payload, for which nothing is checked. */
  endWrite(stag: number, qp: number): void {
    const entry = this.find(stag);
    if (entry !== null && entry.use >= 0 && entry.qp === qp) this.invalidate(entry);
  }

  /** A request uses the place that `check` has found, until `answered`. */
  mayRequest(): boolean {
    const entry = this.entry!;
    if (entry.use === USE.MANY) return true;
    if (entry.use !== USE.NONE) return false;
    entry.use = USE.READ;
    return true;
  }

  /** The response has all that it wants of the place that `check` has found. */
  answered(): void {
    const entry = this.entry!;
    if (entry.use !== USE.MANY) this.invalidate(entry);
  }
}

function revokeAll(leases: Set<MemoryLease>): void {
  const all = [...leases];
  leases.clear();
  for (const lease of all) lease.revoke();
}
