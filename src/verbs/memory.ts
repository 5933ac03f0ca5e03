/**
 * Memory regions: registration, re-registration, shared and fast regions, and the check of scatter/gather elements. Verbs draft 7.2 to
 * 7.9; RFC 5042 6.
 *
 * What a queued request will do to a region (invalidate it, register it anew) counts for the requests posted after it, though it has not
 * happened yet. So a region with such work in a queue has a second face, {@link PostedRegion}: how it will stand once that is done.
 */
import { fixedView, NO_BYTES } from '../base/copy.ts';
import { checkBoolean, checkBytes, checkInteger, checkObject, checkOptions, IwarpError, show, type Names } from '../base/errors.ts';
import { checkU64, hi32, isU32, lo32, toBigInt } from '../base/u64.ts';
import { ACCESS, isAccess, REMOTE_ACCESS, type StagEntry } from '../ddp/stag-table.ts';
import type { SgeList } from '../rdmap/work.ts';
import type { ProtectionDomain } from './pd.ts';
import type { QueuePair } from './qp.ts';

export type { ProtectionDomain } from './pd.ts';

/** Options of {@link ProtectionDomain.registerMemory}. */
export interface RegisterOptions {
  /**
   * Tagged offset of the region's first octet, by which peers address it. Without it the region is zero-based: tagged offsets count from 0. With it
   * the region is addressed (VERBS-140), and windows can be bound to it.
   */
  readonly iova?: bigint | number | undefined;
  /** The only queue pair whose peer may use the STag (DDP-067, SEC-002). Default: every queue pair of the domain. */
  readonly queuePair?: QueuePair | undefined;
  /** Several streams use this STag, so none of their peers may invalidate it (SEC-008). Default false. */
  readonly shared?: boolean | undefined;
  /** Key of the STag, 0 to 255 (VERBS-138). Default: random. */
  readonly key?: number | undefined;
}

const OPTIONS: Names<RegisterOptions> = { iova: true, queuePair: true, shared: true, key: true };

/** Options of {@link ProtectionDomain.allocateFastRegion}. */
export interface FastRegionOptions {
  /** Whether the region may get remote rights (VERBS-147). Default true. */
  readonly remote?: boolean | undefined;
}

/** What {@link MemoryRegion.reregister} changes; fields that are absent stay as they are. */
export interface ReregisterOptions {
  /** New memory. */
  readonly memory?: ArrayBufferView | undefined;
  /** New rights: a union of {@link ACCESS}. */
  readonly access?: number | undefined;
  /** Move to another protection domain of the same device. */
  readonly pd?: ProtectionDomain | undefined;
  /** New tagged offset of the first octet. The region is then addressed, not zero-based. */
  readonly iova?: bigint | number | undefined;
}

const CHANGE: Names<ReregisterOptions> = { memory: true, access: true, pd: true, iova: true };

/** Result of {@link MemoryRegion.query} (VERBS-152). */
export interface RegionAttributes {
  /** The STag: 24 bits of index, 8 bits of key. */
  readonly stag: number;
  /** The low eight bits of the STag. */
  readonly key: number;
  /** Whether the STag can be used now. */
  readonly state: 'valid' | 'invalid';
  /** `shared`: several registrations or streams use the memory, and no peer can invalidate it. */
  readonly type: 'shared' | 'non-shared';
  /** Rights: a union of {@link ACCESS}. */
  readonly access: number;
  /** The region may have remote rights (VERBS-147). */
  readonly remote: boolean;
  /** Handle of the protection domain. */
  readonly pd: number;
  /** Tagged offsets count from 0 (VERBS-140). */
  readonly zeroBased: boolean;
  /** Tagged offset of the first octet: u64. */
  readonly addr: bigint;
  /** Octets registered. */
  readonly length: number;
  /** Largest memory, in octets, that a fast registration may give it. */
  readonly maxLength: number;
  /** Number of windows bound to the region. */
  readonly windows: number;
  /** The only queue pair whose peer may use the STag; undefined for all. */
  readonly queuePair: number | undefined;
}

/** How a region will stand when the work queued so far has been done. Same fields as the entry, so that one check serves both. */
interface PostedRegion {
  stag: number;
  valid: boolean;
  access: number;
  bytes: Uint8Array;
  baseHi: number;
  baseLo: number;
}

/**
 * Registered memory; made by {@link ProtectionDomain.registerMemory}, `allocateFastRegion` or {@link MemoryRegion.registerShared}.
 *
 * @example
 * const mr = pd.registerMemory(new Uint8Array(4096), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ);
 * tellPeer(mr.rkey, mr.addr, mr.length);
 * mr.deregister();
 */
export class MemoryRegion {
  // PostedMemory to the work that is queued for it.
  /** @internal */
  entry: StagEntry;
  /** @internal Null unless work on the region is queued. */
  posted: PostedRegion | null = null;
  /** @internal Octets that a fast registration may cover. */
  maxLength: number;
  /** @internal */
  remote: boolean;
  /** @internal Who ends the registration if nobody does before: is told when it has ended. */
  keeper: Set<MemoryRegion> | null = null;
  #pd: ProtectionDomain;
  #queued = 0;
  #gone = false;
  /** Ended by its keeper, of which the program need not know. */
  #released = false;

  /** @internal */
  constructor(pd: ProtectionDomain, entry: StagEntry, zeroBased: boolean, maxLength: number, remote: boolean) {
    this.#pd = pd;
    this.entry = entry;
    entry.zeroBased = zeroBased;
    this.maxLength = maxLength;
    this.remote = remote;
    pd.device.objects.mr.add(this);
  }

  /** The protection domain; only its queue pairs can use the region. */
  get pd(): ProtectionDomain {
    return this.#pd;
  }

  /** The registered memory; empty while the region has no registration. */
  get bytes(): Uint8Array {
    return (this.posted ?? this.entry).bytes;
  }

  /** The STag, for peers. While a `reg-mr` request is queued it is the STag that the request will give, so that a later message can advertise it. */
  get rkey(): number {
    return (this.posted ?? this.entry).stag;
  }

  /** The STag, for local work requests. On iWARP it is the same as `rkey`. */
  get lkey(): number {
    return this.rkey;
  }

  /** Tagged offset of the first octet. */
  get addr(): bigint {
    const { baseHi, baseLo } = this.posted ?? this.entry;
    return toBigInt(baseHi, baseLo);
  }

  /** Octets registered. */
  get length(): number {
    return this.bytes.length;
  }

  /** @internal Tagged offsets count from 0 and no windows can be bound. */
  get zeroBased(): boolean {
    return this.entry.zeroBased;
  }

  /** Rights: a union of {@link ACCESS}. Local read is always granted. */
  get access(): number {
    return (this.posted ?? this.entry).access;
  }

  /** False once invalidated or deregistered. */
  get valid(): boolean {
    return this.entry.valid;
  }

  /** True after {@link MemoryRegion.deregister}, or after the end of the connection that it was registered through. It stays true. */
  get deregistered(): boolean {
    return this.#gone;
  }

  /** The region as it is now, without the effect of queued requests. ERR_INVALID_REGION after `deregister()`. */
  query(): RegionAttributes {
    this.checkAlive('the memory region');
    const { entry } = this;
    return {
      stag: entry.stag,
      key: entry.stag & 0xff,
      state: entry.valid ? 'valid' : 'invalid',
      type: entry.shared ? 'shared' : 'non-shared',
      access: entry.access,
      remote: this.remote,
      pd: entry.pd,
      zeroBased: this.zeroBased,
      addr: toBigInt(entry.baseHi, entry.baseLo),
      length: entry.bytes.length,
      maxLength: this.maxLength,
      windows: entry.windows,
      queuePair: entry.qp === 0 ? undefined : entry.qp,
    };
  }

  /**
   * Register the same memory again, with its own STag, rights, domain and base (VERBS-150). Both regions become shared: they are
   * always valid, and cannot be invalidated or registered by a work request.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_REGION, ERR_DESTROYED, ERR_LIMIT, ERR_WRONG_PD
   */
  registerShared(access: number, options: RegisterOptions & { readonly pd?: ProtectionDomain | undefined } = {}): MemoryRegion {
    this.checkAlive('the memory region');
    if (!this.entry.valid) throw new IwarpError('ERR_INVALID_REGION', 'the memory region is invalid');
    checkObject('options', options);
    const { pd: other, ...rest } = options;
    const pd = other === undefined ? this.#pd : this.#checkPd(other);
    const region = pd.registerMemory(this.entry.bytes, access, { ...rest, shared: true });
    this.entry.shared = true;
    this.#pd.device.mirror?.share(this.entry);
    return region;
  }

  /**
   * Change memory, rights, domain or base. The STag changes, so everything that uses the old one fails (VERBS-149). If an argument is wrong,
   * the region is deregistered or windows are bound, nothing changes. A later failure deregisters the region.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_REGION, ERR_IN_USE, ERR_WRONG_PD, ERR_DESTROYED
   */
  reregister(change: ReregisterOptions): void {
    this.checkAlive('the memory region');
    checkOptions('change', change, CHANGE);
    this.#checkNoWindows();
    const bytes = change.memory === undefined ? this.entry.bytes : checkMemory('change.memory', change.memory);
    const access = change.access === undefined ? this.entry.access : checkAccess('change.access', change.access);
    const iova = change.iova === undefined ? undefined : checkU64('change.iova', change.iova);
    const pd = change.pd === undefined ? this.#pd : this.#checkPd(change.pd);
    this.#pd.device.checkMemory('change.memory', bytes);
    if (pd === this.#pd) this.#pd.device.stags.rekey(this.entry);
    else this.#move(pd);
    const { entry } = this;
    this.posted = null;
    fillEntry(entry, bytes, access, iova ?? toBigInt(entry.baseHi, entry.baseLo));
    entry.shared = false;
    if (iova !== undefined) entry.zeroBased = false;
    this.maxLength = bytes.length;
    this.remote = (access & REMOTE_ACCESS) !== 0;
    pd.device.mirror?.change(entry);
  }

  /** To another domain, under another index. */
  #move(pd: ProtectionDomain): void {
    const { stags } = this.#pd.device;
    const old = this.entry;
    this.#pd.device.mirror?.drop(old);
    stags.free(old);
    this.#pd.users--;
    try {
      pd.use();
    } catch (error) {
      this.#end();
      throw error;
    }
    this.#pd = pd;
    this.keeper?.delete(this); // the program has found it another place
    this.keeper = null;
    this.entry = stags.allocate('region', pd.handle);
    this.entry.baseHi = old.baseHi;
    this.entry.baseLo = old.baseLo;
    this.entry.zeroBased = old.zeroBased;
  }

  /**
   * End the registration. From the return of this call on no octet is read or written through it, and operations in flight end in a
   * protection error (VERBS-151, SEC-007). It works in every state and with every key.
   *
   * @throws ERR_IN_USE while windows are bound to it; ERR_INVALID_REGION the second time
   */
  deregister(): void {
    if (this.#released) {
      this.#released = false;
      this.entry.bytes = NO_BYTES;
      return;
    }
    this.checkAlive('the memory region');
    this.#checkNoWindows();
    const { device } = this.#pd;
    device.mirror?.drop(this.entry);
    device.stags.free(this.entry);
    this.#pd.users--;
    this.#end();
  }

  /**
   * @internal The keeper ends the registration. The program still sees the memory, which `allocate` has given to it in no other way, and may
   * deregister once, if it has not heard. A region stays whose memory others have windows on.
   */
  release(): void {
    if (this.#hasWindows()) return;
    const { bytes } = this.entry;
    this.deregister();
    this.entry.bytes = bytes; // of an entry that is in no table any more
    this.#released = true;
  }

  /** @internal Give an idle registration other memory, under another key; of a device that works in this thread. */
  lend(bytes: Uint8Array, access: number): void {
    this.#pd.device.stags.rekey(this.entry);
    fillEntry(this.entry, bytes, access, 0);
    this.maxLength = bytes.length;
  }

  /** @internal The registration stays, without memory, until the next `lend`. */
  takeBack(): void {
    const { entry } = this;
    this.#pd.device.stags.invalidate(entry);
    entry.bytes = NO_BYTES;
  }

  #end(): void {
    this.#gone = true;
    this.posted = null;
    this.keeper?.delete(this);
    this.#pd.device.objects.mr.delete(this);
  }

  /** Streams in another thread may have bound one by now, whose completion is still on its way. */
  #hasWindows(): boolean {
    const access = this.entry.access | (this.posted?.access ?? 0);
    if ((access & ACCESS.MW_BIND) !== 0) this.#pd.device.mirror?.settle();
    return this.entry.windows > 0;
  }

  #checkNoWindows(): void {
    if (this.#hasWindows()) throw new IwarpError('ERR_IN_USE', `${this.entry.windows} memory windows are bound to the region`);
  }

  #checkPd(pd: ProtectionDomain): ProtectionDomain {
    const own = this.#pd;
    if (!(pd instanceof own.constructor)) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `pd must be a ProtectionDomain, got ${show(pd)}`);
    }
    if (pd.device !== own.device) throw new IwarpError('ERR_WRONG_PD', 'pd belongs to another device');
    return pd;
  }

  /** @internal */
  checkAlive(name: string): void {
    if (this.#gone) throw new IwarpError('ERR_INVALID_REGION', `${name} has been deregistered`);
  }

  /** @internal Work that changes the region has been queued: the posted face, to be changed as the work will change the region. */
  queue(): PostedRegion {
    const { stag, valid, access, bytes, baseHi, baseLo } = this.entry;
    this.posted ??= { stag, valid, access, bytes, baseHi, baseLo };
    this.#queued++;
    return this.posted;
  }

  /** @internal One such work request is through, done or flushed. */
  settled(): void {
    this.#queued--;
    if (this.#queued === 0) this.posted = null;
  }
}

/** @internal */
export function fillEntry(entry: StagEntry, bytes: Uint8Array, access: number, iova: bigint | number): void {
  entry.bytes = bytes;
  entry.access = access;
  entry.baseHi = hi32(iova);
  entry.baseLo = lo32(iova);
  entry.valid = true;
}

/** @internal Memory to register: what is not there yet is not registered, and no peer gets to it when the buffer grows (SEC-004). */
export function checkMemory(name: string, memory: unknown): Uint8Array {
  return fixedView(checkBytes(name, memory));
}

/** @internal VERBS-141; local read is always granted, as in libibverbs. */
export function checkAccess(name: string, access: unknown): number {
  if (!isAccess(access)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a union of ACCESS flags, got ${show(access)}`);
  if ((access & (ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) !== 0 && (access & ACCESS.LOCAL_WRITE) === 0) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well`);
  }
  return access;
}

/** @internal */
export function checkKey(name: string, key: unknown): number {
  return checkInteger(name, key, 0, 0xff);
}

/** @internal The parts of {@link RegisterOptions}, checked. */
export function checkRegister(pd: ProtectionDomain, options: RegisterOptions): { iova: bigint | number; key: number | undefined; shared: boolean; qp: number } {
  checkOptions('options', options, OPTIONS);
  const { queuePair, key } = options;
  const owner = queuePair as { readonly number?: unknown; readonly pd?: unknown } | null | undefined;
  if (owner !== undefined && (owner === null || typeof owner !== 'object' || typeof owner.number !== 'number')) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.queuePair must be a QueuePair, got ${show(queuePair)}`);
  }
  if (queuePair !== undefined && queuePair.pd !== pd) {
    throw new IwarpError('ERR_WRONG_PD', 'options.queuePair belongs to another protection domain');
  }
  if (queuePair?.destroyed === true) throw new IwarpError('ERR_DESTROYED', 'options.queuePair has been destroyed');
  return {
    iova: checkU64('options.iova', options.iova ?? 0),
    key: key === undefined ? undefined : checkKey('options.key', key),
    shared: checkBoolean('options.shared', options.shared ?? false),
    qp: queuePair?.number ?? 0,
  };
}

/** A scatter/gather element: `length` octets from `offset` of a region. Default: the whole region. */
export interface Sge {
  /** Region of the queue pair's protection domain. Receives and Reads into it need LOCAL_WRITE. */
  readonly mr: MemoryRegion;
  /** First octet, relative to the start of the region. Default 0. */
  readonly offset?: number | undefined;
  /** Length in octets. Default: to the end of the region. */
  readonly length?: number | undefined;
}

/** @internal In the place of an element's index: the caller has given one element by itself, or a region for all of it. */
export const ELEMENT = -1;
/** @internal */
export const WHOLE_REGION = -2;

/** What the caller calls an element. */
function elementName(name: string, index: number): string {
  return index < 0 ? name : `${name}.sges[${index}]`;
}

/**
 * @internal Check an element of a work request and put it into a queue entry's list. What it refers to is the region as it will be when the work
 * queued so far has been done. A window is not a region (VERBS-088, VERBS-160).
 */
export function addSge(name: string, index: number, sge: unknown, pd: ProtectionDomain, right: number, list: SgeList): void {
  const mr = (sge as Sge | null | undefined)?.mr;
  if (!(mr instanceof MemoryRegion)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${elementName(name, index)}.mr must be a MemoryRegion, got ${show(mr)}`);
  }
  const { entry } = mr;
  const face = mr.posted ?? entry;
  const { bytes } = face;
  const size = bytes.length;
  const { offset = 0 } = sge as Sge;
  const { length = typeof offset === 'number' ? size - offset : 0 } = sge as Sge;
  const inside = isU32(offset) && isU32(length) && offset + length <= size;
  const usable = inside && face.valid && mr.pd === pd && (face.access & right) === right;
  if (!usable) explainSge(elementName(name, index), index === WHOLE_REGION ? name : `${elementName(name, index)}.mr`, mr, sge as Sge, pd, right);
  list.add(entry, bytes, offset, length, face.stag);
}

/** What is wrong with an element that is not plainly right; returns if it may be used all the same. */
function explainSge(name: string, region: string, mr: MemoryRegion, sge: Sge, pd: ProtectionDomain, right: number): void {
  if (mr.pd !== pd) throw new IwarpError('ERR_WRONG_PD', `${region} belongs to another protection domain`); // VERBS-089
  const face = mr.posted ?? mr.entry;
  const size = face.bytes.length;
  const { offset = 0 } = sge;
  checkInteger(`${name}.offset`, offset, 0, Number.MAX_SAFE_INTEGER);
  if (sge.length === 0) return; // VERBS-085: nothing else of a zero-length element is looked at
  if (!face.valid) throw new IwarpError('ERR_INVALID_REGION', `${region} has been deregistered or invalidated`);
  if (offset > size) throw new IwarpError('ERR_OUT_OF_RANGE', `${name}.offset ${offset} is beyond the region's ${size} octets`);
  const { length = size - offset } = sge;
  checkInteger(`${name}.length`, length, 0, 0xffff_ffff);
  if (offset + length > size) {
    throw new IwarpError('ERR_OUT_OF_RANGE', `${name}: ${length} octets from ${offset} pass the region's ${size} octets`);
  }
  if ((face.access & right) !== right) throw new IwarpError('ERR_ACCESS', `${region} does not grant LOCAL_WRITE`); // VERBS-086
}
