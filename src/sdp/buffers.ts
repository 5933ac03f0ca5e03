/**
 * Private buffers of one connection, in both directions. An idle connection has four small receive buffers in
 * memory that was never touched; more, and larger ones, come with traffic.
 */
import { Buffer } from '../base/host.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import type { MemoryRegion, ProtectionDomain } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import type { SendSlot } from './link.ts';
import { BSDH_OCTETS } from './wire.ts';

/** Buffers of a connection that has received nothing; A12: three would make updates answer each other. */
export const FIRST_BUFFERS = 4;
/** Bytes of each of them, at most. */
const FIRST_SIZE = 16_384;
const SEND_SLOTS = 8;

/** A receive buffer. */
interface ReceiveSlot {
  readonly region: MemoryRegion;
  readonly offset: number;
  readonly size: number;
  /** The region is this buffer alone, whose memory may be given to the program. */
  readonly own: boolean;
}

/** A place for one message. */
export interface RegionSlot extends SendSlot {
  readonly region: MemoryRegion;
  readonly offset: number;
}

export class PrivateBuffers {
  readonly #pd: ProtectionDomain;
  readonly #qp: QueuePair;
  readonly #count: number;
  readonly #regions: MemoryRegion[] = [];
  readonly #slots: ReceiveSlot[] = [];
  /** New receive buffers that wait for an old one to be used up. */
  readonly #fresh: number[] = [];
  #old = 0;
  #size: number;
  #grown = false;
  #sendSize = 0;
  /** Memory of the messages to the peer. */
  #sends: MemoryRegion | null = null;
  #freeSends: RegionSlot[] = [];
  #sendSlots = 0;

  /** `count` and `size` are what it may grow to. */
  constructor(pd: ProtectionDomain, qp: QueuePair, count: number, size: number) {
    this.#pd = pd;
    this.#qp = qp;
    this.#count = Math.max(count, FIRST_BUFFERS);
    this.#size = Math.min(size, FIRST_SIZE);
    this.#post(this.#addPart(FIRST_BUFFERS, this.#size));
  }

  /** Size of the receive buffers that have been added last. */
  get size(): number {
    return this.#size;
  }

  /** Receive buffers that are to be posted at a time. */
  get count(): number {
    return this.#grown ? this.#count : FIRST_BUFFERS;
  }

  #register(octets: number): MemoryRegion {
    const { connectionMemory } = this.#pd.device;
    const region = this.#pd.registerMemory(connectionMemory.take(octets, false), ACCESS.LOCAL_WRITE);
    this.#regions.push(region);
    return region;
  }

  /** Buffers in one region. */
  #addPart(count: number, size: number): number[] {
    const region = this.#register(count * size);
    return Array.from(
      { length: count },
      (_, at) => this.#slots.push({ region, offset: at * size, size, own: false }) - 1,
    );
  }

  /** In this thread each buffer has its memory, which the program gets without a copy when it is full. */
  #add(count: number, size: number): number[] {
    if (this.#pd.device.mirror.offloaded) return this.#addPart(count, size);
    return Array.from({ length: count }, () => {
      const region = this.#pd.registerMemory(newMemory(size), ACCESS.LOCAL_WRITE);
      return this.#slots.push({ region, offset: 0, size, own: true }) - 1;
    });
  }

  /** The memory of a buffer can be given away with these bytes: not much of it lies idle then. */
  canGive(slot: number, octets: number): boolean {
    const { own, size } = this.#slots[slot]!;
    return own && 2 * octets >= size;
  }

  /** The memory of a buffer, which is not posted, is the program's now: the buffer gets other memory. */
  replace(slot: number): void {
    const { region, size } = this.#slots[slot]!;
    region.lend(newMemory(size), ACCESS.LOCAL_WRITE);
  }

  #post(slots: readonly number[]): void {
    for (const slot of slots) {
      const { region, offset, size } = this.#slots[slot]!;
      this.#qp.postRecv({ wrId: -1 - slot + RECEIVE_IDS, sges: [{ mr: region, offset, length: size }] });
    }
  }

  /** The first `octets` bytes of a buffer. */
  bytes(slot: number, octets: number): Uint8Array {
    const { region, offset } = this.#slots[slot]!;
    return region.bytes.subarray(offset, offset + octets);
  }

  /** A buffer is free; returns how many are posted in its place. */
  release(slot: number): number {
    if (this.#qp.state !== 'rts') return 0;
    if (this.#slots[slot]!.size === this.#size) {
      this.#post([slot]);
      return 1;
    }
    this.#old--;
    const next = this.#fresh.shift();
    if (next === undefined) return 0;
    this.#post([next]);
    return 1;
  }

  /** More buffers of the present size, once a stream needs them; returns how many were posted. */
  grow(): number {
    if (this.#grown) return 0;
    this.#grown = true;
    const added = this.#add(this.#count - FIRST_BUFFERS, this.#size);
    this.#post(added);
    return added.length;
  }

  /** Larger buffers take the place of the present ones; returns how many were posted at once. */
  enlarge(size: number): number {
    if (size <= this.#size || this.#old > 0) return 0;
    const before = this.count;
    this.#old = before;
    this.#grown = true;
    this.#size = size;
    const added = this.#add(this.#count, size);
    const now = added.splice(0, this.#count - before);
    this.#fresh.push(...added);
    this.#post(now);
    return now.length;
  }

  /** Every buffer that the peer can use has the present size. */
  get uniform(): boolean {
    return this.#old === 0;
  }

  /** Messages to the peer have `size` bytes at most from now on. */
  setSendSize(size: number): void {
    this.#sendSize = size;
    this.#sends = null;
    this.#freeSends = [];
    this.#sendSlots = 0;
  }

  /** A place for one message; null if all are on their way. */
  takeSend(): RegionSlot | null {
    return this.#freeSends.shift() ?? (this.#sendSlots < SEND_SLOTS ? this.#makeSend() : null);
  }

  /** Many a connection needs one or two. */
  #makeSend(): RegionSlot {
    const region = (this.#sends ??= this.#register(SEND_SLOTS * this.#sendSize));
    const index = this.#sendSlots++;
    const offset = index * this.#sendSize;
    const bytes = region.bytes.subarray(offset + BSDH_OCTETS, offset + this.#sendSize);
    return { index, bytes, region, offset };
  }

  freeSend(slot: RegionSlot): void {
    if (slot.bytes.length === this.#sendSize - BSDH_OCTETS) this.#freeSends.push(slot);
  }

  /** The connection is gone; `untouched` says that nothing was received. */
  close(untouched: boolean): void {
    const { connectionMemory } = this.#pd.device;
    for (const region of this.#regions) {
      const { bytes } = region;
      region.deregister();
      connectionMemory.give(bytes, untouched && this.#regions.length === 1);
    }
    for (const { region, own } of this.#slots) if (own) region.deregister();
  }
}

function newMemory(octets: number): Uint8Array {
  return new Uint8Array(Buffer.allocUnsafeSlow(octets).buffer);
}

/** Numbers of receives: the last is that of slot 0. */
const RECEIVE_IDS = 0x1_0000_0000;

/** The slot of a receive's number; negative for other requests. */
export function slotOf(wrId: number): number {
  return wrId >= 0x8000_0000 ? RECEIVE_IDS - 1 - wrId : -1;
}
