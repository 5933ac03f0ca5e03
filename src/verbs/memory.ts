/**
 * Protection domains, memory regions and memory windows: verbs draft 5.2, 7; RFC 5042 6.
 */
import { checkBytes, checkInteger, IwarpError, show } from '../base/errors.ts';
import { checkU64, hi32, lo32, toBigInt } from '../base/u64.ts';
import { ACCESS, isAccess, type StagEntry } from '../ddp/stag-table.ts';
import type { Device } from './device.ts';
import { QueuePair, type QueuePairOptions } from './qp.ts';
import { SharedReceiveQueue, type SrqOptions } from './srq.ts';

/** Options of {@link ProtectionDomain.registerMemory}. */
export interface RegisterOptions {
  /** Tagged offset of the region's first octet, as peers address it. Zero-based (0) by default; an address-like base where a protocol wants one. */
  readonly iova?: bigint | number;
  /** Limit remote use to this queue pair (DDP-067, SEC-002). */
  readonly queuePair?: QueuePair;
}

/**
 * A protection domain: regions, windows and queues of one domain work together, and with nothing else (VERBS-001).
 *
 * @example
 * const pd = device.allocatePd();
 * const mr = pd.registerMemory(new Uint8Array(4096), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ);
 */
export class ProtectionDomain {
  readonly device: Device;
  /** Unique on the device (VERBS-002). */
  readonly handle: number;
  /** @internal Objects that belong to this domain. */
  users = 0;
  #destroyed = false;

  /** @internal Use {@link Device.allocatePd}. */
  constructor(device: Device, handle: number) {
    this.device = device;
    this.handle = handle;
  }

  /** @internal */
  use(): void {
    if (this.#destroyed) throw new IwarpError('ERR_DESTROYED', 'the protection domain has been deallocated');
    this.users++;
  }

  /**
   * Register memory: any ArrayBufferView, over shared memory too. The view must stay allocated while registered.
   *
   * @param memory the octets to register; nothing is copied
   * @param access a union of {@link ACCESS}; REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE (VERBS-141)
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_WRONG_PD, ERR_DESTROYED
   */
  registerMemory(memory: ArrayBufferView, access: number, options: RegisterOptions = {}): MemoryRegion {
    const bytes = checkBytes('memory', memory);
    checkAccess(access);
    const iova = checkU64('options.iova', options.iova ?? 0);
    const { queuePair } = options;
    if (queuePair !== undefined && queuePair.pd !== this) {
      throw new IwarpError('ERR_WRONG_PD', 'options.queuePair belongs to another protection domain');
    }
    this.use();
    try {
      const entry = this.device.stags.allocate('region', this.handle);
      entry.access = access;
      entry.bytes = bytes;
      entry.baseHi = hi32(iova);
      entry.baseLo = lo32(iova);
      entry.qp = queuePair?.number ?? 0;
      return new MemoryRegion(this, entry);
    } catch (error) {
      this.users--;
      throw error;
    }
  }

  /** A queue pair in state Idle (VERBS-016). */
  createQp(options: QueuePairOptions): QueuePair {
    return new QueuePair(this, options);
  }

  /** A receive queue that several queue pairs share. */
  createSrq(options: SrqOptions): SharedReceiveQueue {
    return new SharedReceiveQueue(this, options);
  }

  /** Give the domain back; ERR_IN_USE while anything belongs to it (VERBS-003). */
  deallocate(): void {
    if (this.users > 0) throw new IwarpError('ERR_IN_USE', `the protection domain still has ${this.users} objects`);
    this.#destroyed = true;
  }
}

function checkAccess(access: unknown): void {
  if (!isAccess(access)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `access must be a union of ACCESS flags, got ${show(access)}`);
  }
  if ((access & (ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) !== 0 && (access & ACCESS.LOCAL_WRITE) === 0) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'access: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well');
  }
}

/** Registered memory. */
export class MemoryRegion {
  readonly pd: ProtectionDomain;
  /** @internal */
  readonly entry: StagEntry;
  /** The registered octets. */
  readonly bytes: Uint8Array;

  /** @internal Use {@link ProtectionDomain.registerMemory}. */
  constructor(pd: ProtectionDomain, entry: StagEntry) {
    this.pd = pd;
    this.entry = entry;
    this.bytes = entry.bytes;
  }

  /** The STag, as peers name it. */
  get rkey(): number {
    return this.entry.stag;
  }

  /** The STag, as local work requests name it: the same on iWARP. */
  get lkey(): number {
    return this.entry.stag;
  }

  /** Tagged offset of the first octet. */
  get addr(): bigint {
    return toBigInt(this.entry.baseHi, this.entry.baseLo);
  }

  get length(): number {
    return this.bytes.length;
  }

  get access(): number {
    return this.entry.access;
  }

  /** False once invalidated or deregistered. */
  get valid(): boolean {
    return this.entry.valid;
  }

  /**
   * End the registration. From the return of this call on no octet is read or written through it; operations in flight end in a
   * protection error (VERBS-151, SEC-007). ERR_IN_USE while windows are bound to it.
   */
  deregister(): void {
    if (this.entry.windows > 0) throw new IwarpError('ERR_IN_USE', `${this.entry.windows} memory windows are bound to the region`);
    if (this.#gone) throw new IwarpError('ERR_INVALID_REGION', 'the memory region has been deregistered already');
    this.#gone = true;
    this.pd.device.stags.free(this.entry);
    this.pd.users--;
  }

  #gone = false;
}

/** One element of a scatter/gather list: `length` octets from `offset` of a region. Both default to the whole region. */
export interface Sge {
  readonly mr: MemoryRegion;
  readonly offset?: number;
  readonly length?: number;
}

/** @internal Check one element and return its offset and length through `into`. */
export function checkSge(name: string, sge: unknown, pd: ProtectionDomain, right: number, into: { offset: number; length: number }): MemoryRegion {
  const mr = (sge as Sge | null)?.mr;
  if (!(mr instanceof MemoryRegion)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.mr must be a MemoryRegion, got ${show(mr)}`);
  }
  if (mr.pd !== pd) throw new IwarpError('ERR_WRONG_PD', `${name}.mr belongs to another protection domain`); // VERBS-089
  const { offset = 0 } = sge as Sge;
  checkInteger(`${name}.offset`, offset, 0, Number.MAX_SAFE_INTEGER);
  const length = (sge as Sge).length ?? mr.length - offset;
  if (offset > mr.length) throw new IwarpError('ERR_OUT_OF_RANGE', `${name}.offset ${offset} is behind the region's ${mr.length} octets`);
  checkInteger(`${name}.length`, length, 0, 0xffff_ffff);
  if (offset + length > mr.length) {
    throw new IwarpError('ERR_OUT_OF_RANGE', `${name}: ${length} octets from ${offset} pass the region's ${mr.length} octets`);
  }
  into.offset = offset;
  into.length = length;
  if (length === 0) return mr; // VERBS-085: nothing else of a zero-length element is looked at
  if (!mr.valid) throw new IwarpError('ERR_INVALID_REGION', `${name}.mr has been deregistered or invalidated`);
  if ((mr.access & right) !== right) throw new IwarpError('ERR_ACCESS', `${name}.mr does not grant LOCAL_WRITE`); // VERBS-086
  return mr;
}
