/**
 * Direct placement: a thread that Writes into shared memory of the other thread checks the place and copies
 * the octets there itself. No code of the other thread runs, and no octet goes through a ring.
 *
 * **Grants.** The first Write to an STag goes through the ring, and its sender asks for the memory. The owner
 * gives it to a peer that may write to all of it: bounds, rights, domain and queue pair are checked by the
 * table of STags, as for a segment. Later Writes are checked against the grant. One that does not fit it goes
 * through the ring, where the owner's check ends the connection as over any wire.
 *
 * **Order.** A Write never overtakes an earlier one: after each that goes through the ring, the ring has to
 * run empty before the next one that is placed directly. A Send behind a Write is put into the ring after the
 * copy.
 *
 * **The end of a grant.** The owner's word VALID goes to 0 first, and then it waits until nobody has the
 * memory pinned; the writer pins first, and looks at VALID then. So after the end of a registration nothing
 * is placed. A pin that stays for longer than copies take ends the connection, and the memory counts as
 * in use until the pin goes, the thread ends, or a limit of time has passed.
 */
import { performance } from 'node:perf_hooks';
import { setTimeout } from 'node:timers';
import { ChangingOctets, isShared } from '../base/copy.ts';
import { addWraps, distance } from '../base/u64.ts';
import {
  ACCESS,
  FAULT,
  memoryOf,
  memoryState,
  type MemoryLease,
  type MemoryState,
  USE,
  type StagEntry,
} from '../ddp/stag-table.ts';
import { PLACE, type DirectPlacement } from '../llp/lower-layer.ts';
import type { StreamEndpoint } from '../queues/endpoint.ts';
import type { ShmPort } from './port.ts';

/** Words of a grant that both threads see. */
const VALID = 0;
const PINS = 1;
const LEASE_WORDS = 2;

/** Octets that are copied under one pin. */
const PINNED_OCTETS = 1024 * 1024;
/** Octets that one stream places before the event loop gets a turn. */
const OCTETS_A_TURN = 16 * 1024 * 1024;
/** How long the end of a registration waits for a copy that is under way. */
const PATIENCE_MS = 100;
/** How often, and how long, the owner then looks for the end of the pin. */
const LOOK_MS = 10;
const LOOKS = 500;
/** A Write of fewer octets asks for its memory only the second time. */
const ASK_FROM = 4096;
/** STags that a writer remembers; with one more it forgets them all, and asks again. */
const MOST_STAGS = 4096;

/** Messages between the two ends. */
type PlacementMessage =
  | { readonly want: number }
  | { readonly gone: number }
  | {
      readonly have: number;
      readonly memory: MemoryState;
      readonly hi: number;
      readonly lo: number;
      readonly lease: Int32Array;
    }
  | { readonly refused: number };

/** The part of the port that placement needs. */
type PlacementPort = Pick<ShmPort, 'post' | 'later' | 'broken' | 'awaitRead'> & {
  drained: (() => void) | null;
};

// ----------------------------------------------------------------------------------------------------- owner

/** One entry of ours that the other thread may write to. */
class Grant implements MemoryLease {
  readonly entry: StagEntry;
  readonly stag: number;
  readonly lease: Int32Array = new Int32Array(
    new SharedArrayBuffer(LEASE_WORDS * Int32Array.BYTES_PER_ELEMENT),
  );
  readonly #owner: Grants;

  constructor(entry: StagEntry, owner: Grants) {
    this.entry = entry;
    this.stag = entry.stag;
    this.#owner = owner;
    this.lease[VALID] = 1;
  }

  revoke(): void {
    this.#owner.revoked(this);
    Atomics.store(this.lease, VALID, 0);
    const until = performance.now() + PATIENCE_MS;
    for (;;) {
      const pins = Atomics.load(this.lease, PINS);
      if (pins === 0) return;
      if (performance.now() >= until) break;
      Atomics.wait(this.lease, PINS, pins, 1);
    }
    this.#linger();
    this.#owner.stuck();
  }

  /** The connection is over: the other thread is not waited for here. */
  end(): void {
    this.entry.leases?.delete(this);
    Atomics.store(this.lease, VALID, 0);
    if (Atomics.load(this.lease, PINS) !== 0) this.#linger();
  }

  /** The memory is in use while the pin stays and its thread may still be there. */
  #linger(): void {
    const { entry } = this;
    entry.pin();
    let looks = 0;
    const look = (): void => {
      if (Atomics.load(this.lease, PINS) === 0 || this.#owner.alone || ++looks > LOOKS) entry.unpin();
      else setTimeout(look, LOOK_MS);
    };
    setTimeout(look, LOOK_MS);
  }
}

/** What the other thread may write to, on one connection. */
class Grants {
  readonly #port: PlacementPort;
  readonly #byEntry = new Map<StagEntry, Grant>();
  /** The other thread has ended. */
  alone = false;
  /** Null until the queue pair is known, and after the end. */
  endpoint: StreamEndpoint | null = null;
  /** The stream is in full operation. */
  open = false;

  constructor(port: PlacementPort) {
    this.#port = port;
  }

  asked(stag: number): void {
    const entry = this.#allowed(stag);
    if (entry === null) {
      this.#port.post({ refused: stag } satisfies PlacementMessage);
      return;
    }
    let grant = this.#byEntry.get(entry);
    if (grant === undefined) {
      grant = new Grant(entry, this);
      this.#byEntry.set(entry, grant);
      (entry.leases ??= new Set()).add(grant);
    }
    const { bytes, baseHi: hi, baseLo: lo } = entry;
    const { lease } = grant;
    this.#port.post({ have: stag, memory: memoryState(bytes), hi, lo, lease } satisfies PlacementMessage);
  }

  /** The entry, if the peer may write to all of it, and it is memory that another thread can see. */
  #allowed(stag: number): StagEntry | null {
    const { endpoint } = this;
    if (endpoint === null || !this.open || !endpoint.rights.write) return null;
    const { stags, pdHandle, number } = endpoint;
    const entry = stags.find(stag);
    if (entry === null || entry.bytes.length === 0 || !entry.sharedMemory) return null;
    if (entry.use !== USE.MANY) return null; // this side has to see the one use
    const { baseHi, baseLo, bytes } = entry;
    const fault = stags.check(stag, baseHi, baseLo, bytes.length, ACCESS.REMOTE_WRITE, pdHandle, number);
    return fault === FAULT.NONE ? entry : null;
  }

  revoked(grant: Grant): void {
    this.#byEntry.delete(grant.entry);
    this.#port.post({ gone: grant.stag } satisfies PlacementMessage);
  }

  stuck(): void {
    this.#port.broken('it holds memory whose registration has ended');
  }

  end(): void {
    this.endpoint = null;
    for (const grant of this.#byEntry.values()) grant.end();
    this.#byEntry.clear();
  }
}

// ---------------------------------------------------------------------------------------------------- writer

/** Memory of the other thread under one STag. */
class Mapping extends ChangingOctets {
  readonly hi: number;
  readonly lo: number;
  readonly lease: Int32Array;

  constructor(memory: Uint8Array, hi: number, lo: number, lease: Int32Array) {
    super();
    this.bytes = memory;
    this.hi = hi;
    this.lo = lo;
    this.lease = lease;
  }
}

/** Both directions of one connection: our memory for the other thread, and its memory for us. */
export class SharedPlacement implements DirectPlacement {
  readonly #port: PlacementPort;
  readonly #wake: () => void;
  readonly #grants: Grants;
  /** By STag: `seen` once in a small Write, `asked` for, `refused`. */
  readonly #stags = new Map<number, Mapping | 'seen' | 'asked' | 'refused'>();
  #lastStag = 0;
  #last: Mapping | null = null;
  #octets = 0;
  /**
   * A Write may still be in the ring. Under whatever STag it goes: two regions, or a region and a window, may
   * be the same memory.
   */
  #settling = false;
  target!: Mapping;
  at = 0;

  /** `wake` has the stream go on. */
  constructor(port: ShmPort, wake: () => void) {
    this.#port = port;
    this.#wake = wake;
    this.#grants = new Grants(port);
    port.foreign = (message) => this.#message(message);
    port.left = () => {
      this.#grants.alone = true;
    };
  }

  /** The queue pair whose memory the other thread may ask for. */
  set endpoint(endpoint: StreamEndpoint) {
    this.#grants.endpoint = endpoint;
  }

  /** Full operation has begun: the other thread may ask for memory. */
  set allowed(open: boolean) {
    this.#grants.open = open;
  }

  /** Nothing is placed from now on, in either direction. */
  end(): void {
    if (this.#grants.endpoint === null) return;
    this.#grants.end();
    this.#forget();
  }

  #forget(): void {
    this.#stags.clear();
    this.#last = null;
  }

  open(stag: number, toHi: number, toLo: number, octets: number, first: boolean): number {
    const placed = this.#place(stag, toHi, toLo, octets, first);
    if (placed === PLACE.SEGMENTS) this.#settling = true;
    return placed;
  }

  #place(stag: number, toHi: number, toLo: number, octets: number, first: boolean): number {
    const mapping = stag === this.#lastStag && this.#last !== null ? this.#last : this.#find(stag, octets);
    if (mapping === null) return PLACE.SEGMENTS;
    if (this.#settling) {
      if (!first) return PLACE.LATER;
      if (this.#port.awaitRead()) {
        this.#port.drained = this.#wake;
        return PLACE.LATER;
      }
      this.#settling = false;
    }
    if (addWraps(toHi, toLo, octets)) return PLACE.SEGMENTS;
    const offset = distance(toHi, toLo, mapping.hi, mapping.lo);
    if (offset < 0 || offset + octets > mapping.bytes.length) return PLACE.SEGMENTS;
    if (this.#octets >= OCTETS_A_TURN) return PLACE.LATER;
    const { lease } = mapping;
    Atomics.add(lease, PINS, 1);
    if (Atomics.load(lease, VALID) !== 1) {
      this.#unpin(lease);
      this.#drop(stag);
      return PLACE.SEGMENTS;
    }
    this.target = mapping;
    this.at = offset;
    const taken = Math.min(octets, PINNED_OCTETS);
    this.#count(taken);
    return taken;
  }

  close(): void {
    this.#unpin(this.target.lease);
  }

  #unpin(lease: Int32Array): void {
    Atomics.sub(lease, PINS, 1);
    if (Atomics.load(lease, VALID) !== 1) Atomics.notify(lease, PINS);
  }

  #count(octets: number): void {
    const before = this.#octets;
    this.#octets += octets;
    if (before > 0) return;
    this.#port.later(() => {
      const waits = this.#octets >= OCTETS_A_TURN;
      this.#octets = 0;
      if (waits) this.#wake();
    });
  }

  /** The memory of an STag, if the other thread has given it; else it is asked for. */
  #find(stag: number, octets: number): Mapping | null {
    const known = this.#stags.get(stag);
    if (known instanceof Mapping) {
      this.#lastStag = stag;
      this.#last = known;
      return known;
    }
    if (known === 'asked' || known === 'refused') return null;
    if (this.#stags.size >= MOST_STAGS) this.#forget();
    const ask = known === 'seen' || octets >= ASK_FROM;
    this.#stags.set(stag, ask ? 'asked' : 'seen');
    if (ask) this.#port.post({ want: stag } satisfies PlacementMessage);
    return null;
  }

  #drop(stag: number): void {
    this.#stags.delete(stag);
    if (stag === this.#lastStag) this.#last = null;
  }

  /** A message of the other thread; false if it is none of these. */
  #message(message: unknown): boolean {
    if (typeof message !== 'object' || message === null) return false;
    const { want, have, refused, gone, ...rest } = message as Readonly<Record<string, unknown>>;
    if (typeof want === 'number') this.#grants.asked(want >>> 0);
    else if (typeof gone === 'number') this.#drop(gone >>> 0);
    else if (typeof refused === 'number') {
      if (this.#stags.get(refused >>> 0) === 'asked') this.#stags.set(refused >>> 0, 'refused');
    } else if (typeof have === 'number') return this.#given(have >>> 0, rest);
    else return false;
    return true;
  }

  #given(stag: number, { memory, hi, lo, lease }: Readonly<Record<string, unknown>>): boolean {
    if (!(lease instanceof Int32Array) || !isShared(lease) || lease.length !== LEASE_WORDS) return false;
    if (typeof hi !== 'number' || typeof lo !== 'number' || typeof memory !== 'object') return false;
    let bytes: Uint8Array;
    try {
      bytes = memoryOf(memory as MemoryState);
    } catch {
      return false; // no numbers, or beyond its buffer
    }
    if (!(bytes instanceof Uint8Array) || !isShared(bytes)) return false;
    if (this.#stags.get(stag) !== 'asked') return true; // its answer has come too late, or is none
    this.#stags.set(stag, new Mapping(bytes, hi >>> 0, lo >>> 0, lease));
    return true;
  }
}
