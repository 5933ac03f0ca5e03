/**
 * Memory regions: registration, re-registration, shared and fast regions, and the check of scatter/gather
 * elements. Verbs draft 7.2 to 7.9; RFC 5042 6.
 */
import { brand } from '../base/brand.ts';
import { fixedView, lengthNow, NO_BYTES, reaches } from '../base/copy.ts';
import {
  checkBoolean,
  checkBytes,
  checkInteger,
  checkObject,
  checkOptions,
  IwarpError,
  show,
  type Names,
} from '../base/errors.ts';
import { FieldNames } from '../base/field-names.ts';
import { checkU64, hi32, isU32, lo32, toBigInt } from '../base/u64.ts';
import { ACCESS, isAccess, REMOTE_ACCESS, USE, type StagEntry } from '../ddp/stag-table.ts';
import type { SgeList } from '../queues/work.ts';
import type { ProtectionDomain } from './pd.ts';
import type { ProjectedMemory } from './projected-memory.ts';
import type { QueuePair } from './qp.ts';

export type { ProtectionDomain } from './pd.ts';

/** Options of {@link ProtectionDomain.registerMemory}. */
export interface RegisterOptions {
  /**
   * Tagged offset of the region's first byte, by which peers address it. Without it the region is
   * zero-based: tagged offsets count from 0. With it the region is addressed (VERBS-140), and windows can be
   * bound to it.
   */
  readonly iova?: bigint | number | undefined;
  /**
   * The only queue pair whose peer may use the STag (DDP-067, SEC-002). Default: every queue pair of the
   * domain.
   */
  readonly queuePair?: QueuePair | undefined;
  /** Several streams use this STag, so none of their peers may invalidate it (SEC-008). Default false. */
  readonly shared?: boolean | undefined;
  /** Key of the STag, 0 to 255 (VERBS-138). Default: random. */
  readonly key?: number | undefined;
  /**
   * One message of the peer of `queuePair` may use the STag: a Write, a Read or an atomic. It is invalid from
   * the last segment of the Write on, from the last byte of the Read's response, or from the atomic. While a
   * message uses it no other may. Default: any number of messages.
   */
  readonly uses?: 1 | undefined;
}

const OPTIONS: Names<RegisterOptions> = { iova: true, queuePair: true, shared: true, key: true, uses: true };

/** Options of {@link ProtectionDomain.allocateFastRegion}. */
export interface FastRegionOptions {
  /** Whether the region may get remote rights (VERBS-147). Default true. */
  readonly remote?: boolean | undefined;
}

/** Changes by {@link MemoryRegion.reregister}; fields that are absent stay as they are. */
export interface ReregisterOptions {
  /** New memory. */
  readonly memory?: ArrayBufferView | undefined;
  /** New rights: a union of {@link ACCESS}. */
  readonly access?: number | undefined;
  /** Move to another protection domain of the same device. */
  readonly pd?: ProtectionDomain | undefined;
  /** New tagged offset of the first byte. The region is then addressed, not zero-based. */
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
  /** Bytes registered. */
  readonly length: number;
  /** Largest memory, in bytes, that a fast registration may give it. */
  readonly maxLength: number;
  /** Number of windows bound to the region. */
  readonly windows: number;
  /** The only queue pair whose peer may use the STag; undefined for all. */
  readonly queuePair: number | undefined;
}

/**
 * Registered memory; made by {@link ProtectionDomain.registerMemory}, `allocateFastRegion` or {@link
 * MemoryRegion.registerShared}.
 *
 * @example
 * const mr = pd.registerMemory(new Uint8Array(4096), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ);
 * tellPeer(mr.rkey, mr.addr, mr.length);
 * mr.deregister();
 */
export class MemoryRegion {
  static {
    brand(this, 'MemoryRegion');
  }

  /** @internal True for a region of this copy of the package. Each element of a request is asked. */
  static isOwn(value: unknown): value is MemoryRegion {
    return typeof value === 'object' && value !== null && #pd in value;
  }

  /** @internal */
  entry: StagEntry;
  /** @internal Null unless work on the region is queued. */
  projected: ProjectedMemory | null = null;
  /** @internal Bytes that a fast registration may cover. */
  maxLength: number;
  /** @internal */
  remote: boolean;
  /** @internal Ends the registration unless the program has done so, and forgets the region at its end. */
  owner: Set<MemoryRegion> | null = null;
  #pd: ProtectionDomain;
  #gone = false;
  /** Ended by its owner, of which the program need not know. */
  #released = false;
  /** Of the deregistration by the owner. */
  #returned: PromiseLike<void> | null = null;

  /** @internal */
  constructor(
    pd: ProtectionDomain,
    entry: StagEntry,
    zeroBased: boolean,
    maxLength: number,
    remote: boolean,
  ) {
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
    return (this.projected ?? this.entry).bytes;
  }

  /**
   * The STag, for peers. While a `reg-mr` request is queued it is the STag that the request will give, so
   * that a later message can advertise it.
   */
  get rkey(): number {
    return (this.projected ?? this.entry).stag;
  }

  /** The STag, for local work requests. On iWARP it is the same as `rkey`. */
  get lkey(): number {
    return this.rkey;
  }

  /** Tagged offset of the first byte. */
  get addr(): bigint {
    const { baseHi, baseLo } = this.projected ?? this.entry;
    return toBigInt(baseHi, baseLo);
  }

  /** Bytes registered. */
  get length(): number {
    return lengthNow(this.bytes);
  }

  /** @internal Tagged offsets count from 0 and no windows can be bound. */
  get zeroBased(): boolean {
    return this.entry.zeroBased;
  }

  /** Rights: a union of {@link ACCESS}. Local read is always granted. */
  get access(): number {
    return (this.projected ?? this.entry).access;
  }

  /** False once invalidated or deregistered. */
  get valid(): boolean {
    return this.entry.valid;
  }

  /**
   * True after {@link MemoryRegion.deregister}, or after the end of the connection that it was registered
   * through. It stays true.
   */
  get deregistered(): boolean {
    return this.#gone;
  }

  /**
   * The region as it is now, without the effect of queued requests. ERR_INVALID_REGION after `deregister()`.
   */
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
      length: lengthNow(entry.bytes),
      maxLength: this.maxLength,
      windows: entry.windows,
      queuePair: entry.qp === 0 ? undefined : entry.qp,
    };
  }

  /**
   * Register the same memory again, with its own STag, rights, domain and base (VERBS-150). Both regions
   * become shared: they are always valid, and cannot be invalidated or registered by a work request.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_REGION, ERR_DESTROYED, ERR_LIMIT, ERR_WRONG_PD
   */
  registerShared(
    access: number,
    options: RegisterOptions & { readonly pd?: ProtectionDomain | undefined } = {},
  ): MemoryRegion {
    this.checkAlive('the memory region');
    if (!this.entry.valid) throw new IwarpError('ERR_INVALID_REGION', 'the memory region is invalid');
    checkObject('options', options);
    const { pd: other, ...rest } = options;
    const pd = other === undefined ? this.#pd : this.#checkPd(other);
    const region = pd.registerMemory(this.entry.bytes, access, { ...rest, shared: true });
    this.entry.shared = true;
    this.#pd.device.mirror.share(this.entry);
    return region;
  }

  /**
   * Change memory, rights, domain or base. The STag changes, so everything that uses the old one fails
   * (VERBS-149). If an argument is wrong, the region is deregistered or windows are bound, nothing changes. A
   * later failure deregisters the region.
   *
   * @returns settles when the old memory is no longer read, as after {@link MemoryRegion.deregister}
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_REGION, ERR_IN_USE, ERR_WRONG_PD, ERR_DESTROYED
   */
  reregister(change: ReregisterOptions): PromiseLike<void> {
    this.checkAlive('the memory region');
    checkOptions('change', change, CHANGE);
    this.#checkNoWindows();
    const bytes =
      change.memory === undefined ? this.entry.bytes : checkMemory('change.memory', change.memory);
    const access =
      change.access === undefined ? this.entry.access : checkAccess('change.access', change.access);
    const iova = change.iova === undefined ? undefined : checkU64('change.iova', change.iova);
    const pd = change.pd === undefined ? this.#pd : this.#checkPd(change.pd);
    this.#pd.device.checkMemory('change.memory', bytes);
    const returned = this.#move(pd);
    const { entry } = this;
    this.projected = null;
    fillEntry(entry, bytes, access, iova ?? toBigInt(entry.baseHi, entry.baseLo));
    entry.shared = false;
    if (iova !== undefined) entry.zeroBased = false;
    this.maxLength = lengthNow(bytes);
    this.remote = (access & REMOTE_ACCESS) !== 0;
    pd.device.mirror.change(entry);
    return returned;
  }

  /**
   * Under another index and a random key, perhaps in another domain. A peer that knows the old STag cannot
   * work out the new one (SEC-009), as it could if only the key were counted up.
   */
  #move(pd: ProtectionDomain): PromiseLike<void> {
    const { stags } = this.#pd.device;
    const old = this.entry;
    const once = old.use !== USE.MANY;
    const returned = endEntry(this.#pd, old);
    try {
      pd.use();
    } catch (error) {
      this.#end();
      throw error;
    }
    if (pd !== this.#pd) {
      this.owner?.delete(this); // the program has found it another place
      this.owner = null;
    }
    const { qp } = pd === this.#pd ? old : NO_QP;
    this.#pd = pd;
    this.entry = stags.allocate('region', pd.handle);
    this.entry.baseHi = old.baseHi;
    this.entry.baseLo = old.baseLo;
    this.entry.zeroBased = old.zeroBased;
    this.entry.qp = qp;
    if (once) this.entry.use = USE.NONE;
    return returned;
  }

  /**
   * End the registration. It ends at once: no later request or segment of a peer can use it, nothing is
   * written into the memory, and operations in flight end in a protection error (VERBS-151, SEC-007). It
   * works in every state and with every key.
   *
   * Bytes that have been handed to the socket may stand there for a while in the memory itself, without a
   * copy. Await the result before you put other data into the memory that the peer must not see.
   *
   * @example
   * await mr.deregister();
   * mr.bytes; // empty; the memory belongs to the program alone
   * @returns settles when no write reads the memory, mostly at once; it never rejects
   * @throws ERR_IN_USE while windows are bound to it; ERR_INVALID_REGION the second time
   */
  deregister(): PromiseLike<void> {
    if (this.#released) {
      this.#released = false;
      this.entry.bytes = NO_BYTES;
      return this.#returned ?? this.entry.returned();
    }
    this.checkAlive('the memory region');
    this.#checkNoWindows();
    const returned = endEntry(this.#pd, this.entry);
    this.#end();
    return returned;
  }

  /**
   * @internal The owner ends the registration. The program still sees the memory, which `allocate` has given
   *   to it in no other way, and may deregister once, if it has not heard. A region stays whose memory others
   *   have windows on.
   */
  release(): void {
    if (this.#hasWindows()) return;
    const { bytes } = this.entry;
    this.#returned = this.deregister();
    this.entry.bytes = bytes; // of an entry that is no longer in a table
    this.#released = true;
  }

  /**
   * @internal Give an idle registration other memory, under another key; of a device that works in this
   * thread.
   */
  lend(bytes: Uint8Array, access: number): void {
    this.#pd.device.stags.refresh(this.entry);
    fillEntry(this.entry, bytes, access, 0);
    this.maxLength = lengthNow(bytes);
  }

  /**
   * @internal End of the furthest byte that a peer's Write has put there since the memory was given. Only a
   *   device that works in this thread knows it, and not of shared memory, which other threads write to.
   */
  get written(): number {
    return this.entry.written;
  }

  /** @internal The registration stays, without memory, until the next `lend`. */
  takeBack(): void {
    const { entry } = this;
    this.#pd.device.stags.invalidate(entry);
    entry.bytes = NO_BYTES;
  }

  #end(): void {
    this.#gone = true;
    this.projected = null;
    this.owner?.delete(this);
    this.#pd.device.objects.mr.delete(this);
  }

  /** Streams in another thread may have bound one by now, whose completion is still on its way. */
  #hasWindows(): boolean {
    const access = this.entry.access | (this.projected?.access ?? 0);
    if ((access & ACCESS.MW_BIND) !== 0) this.#pd.device.mirror.settle();
    return this.entry.windows > 0;
  }

  #checkNoWindows(): void {
    if (this.#hasWindows())
      throw new IwarpError('ERR_IN_USE', `${this.entry.windows} memory windows are bound to the region`);
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
}

/**
 * @internal Take the entry of a region or window out of the table. Settles when the streams no longer read
 * its memory.
 */
export function endEntry(pd: ProtectionDomain, entry: StagEntry): PromiseLike<void> {
  const { device } = pd;
  const returned = device.mirror.drop(entry);
  device.stags.free(entry);
  pd.users--;
  return returned ?? entry.returned();
}

/** In another domain, a region belongs to no queue pair. */
const NO_QP = { qp: 0 } as const;

/** @internal */
export function fillEntry(entry: StagEntry, bytes: Uint8Array, access: number, iova: bigint | number): void {
  entry.bytes = bytes;
  entry.access = access;
  entry.baseHi = hi32(iova);
  entry.baseLo = lo32(iova);
  entry.written = 0;
  entry.valid = true;
}

/**
 * @internal Memory to register, as long as it is now: no peer gets to the part by which the buffer grows
 * later (SEC-004).
 */
export function checkMemory(name: string, memory: unknown): Uint8Array {
  return fixedView(checkBytes(name, memory));
}

/** @internal VERBS-141; local read is always granted, as in libibverbs. */
export function checkAccess(name: string, access: unknown): number {
  if (!isAccess(access))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must be a union of ACCESS flags, got ${show(access)}`,
    );
  if ((access & (ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC)) !== 0 && (access & ACCESS.LOCAL_WRITE) === 0) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well`,
    );
  }
  return access;
}

/** @internal */
export function checkKey(name: string, key: unknown): number {
  return checkInteger(name, key, 0, 0xff);
}

/** @internal The parts of {@link RegisterOptions}, checked. */
export function checkRegister(
  pd: ProtectionDomain,
  options: RegisterOptions,
): { iova: bigint | number; key: number | undefined; shared: boolean; qp: number; use: number } {
  checkOptions('options', options, OPTIONS);
  const { queuePair, key, uses } = options;
  const owner = queuePair as { readonly number?: unknown; readonly pd?: unknown } | null | undefined;
  if (
    owner !== undefined &&
    (owner === null || typeof owner !== 'object' || typeof owner.number !== 'number')
  ) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.queuePair must be a QueuePair, got ${show(queuePair)}`,
    );
  }
  if (queuePair !== undefined && queuePair.pd !== pd) {
    throw new IwarpError('ERR_WRONG_PD', 'options.queuePair belongs to another protection domain');
  }
  if (queuePair?.destroyed === true)
    throw new IwarpError('ERR_DESTROYED', 'options.queuePair has been destroyed');
  return {
    iova: checkU64('options.iova', options.iova ?? 0),
    key: key === undefined ? undefined : checkKey('options.key', key),
    shared: checkBoolean('options.shared', options.shared ?? false),
    qp: queuePair?.number ?? 0,
    use: uses === undefined ? USE.MANY : checkUses(uses, options),
  };
}

/** Streams in several threads could each take the only use, and do for an STag of several streams. */
function checkUses(uses: unknown, { queuePair, shared }: RegisterOptions): number {
  if (uses !== 1) throw new IwarpError('ERR_INVALID_ARGUMENT', `options.uses must be 1, got ${show(uses)}`);
  if (queuePair === undefined || shared === true)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      'options.uses is for one queue pair: give options.queuePair, and not options.shared',
    );
  return USE.NONE;
}

/** A scatter/gather element: `length` bytes from `offset` of a region. Default: the whole region. */
export interface Sge {
  /** Region of the queue pair's protection domain. Receives and Reads into it need LOCAL_WRITE. */
  readonly mr: MemoryRegion;
  /** First byte, relative to the start of the region. Default 0. */
  readonly offset?: number | undefined;
  /** Length in bytes. Default: to the end of the region. */
  readonly length?: number | undefined;
}

/**
 * @internal In the place of an element's index: the caller has given one element by itself, or a region for
 * all of it.
 */
export const ELEMENT = -1;
/** @internal */
export const WHOLE_REGION = -2;

const SGE_FIELDS = new FieldNames<Sge>({ mr: true, offset: true, length: true });

/** The name that the caller knows an element by. */
function elementName(name: string, index: number): string {
  return index < 0 ? name : `${name}.sges[${index}]`;
}

/**
 * @internal Check an element of a work request and put it into a queue entry's list. What it refers to is the
 *   region as it will be when the work queued so far has been done. A window is not a region (VERBS-088,
 *   VERBS-160).
 */
export function addSge(
  name: string,
  index: number,
  sge: unknown,
  pd: ProtectionDomain,
  right: number,
  list: SgeList,
): void {
  const mr = (sge as Sge | null | undefined)?.mr;
  if (index !== WHOLE_REGION && SGE_FIELDS.unknownIn(sge as object) !== null)
    throw unknownSgeField(elementName(name, index), sge as object);
  if (!MemoryRegion.isOwn(mr)) throw notOwnRegion(elementName(name, index), mr);
  const { entry } = mr;
  const state = mr.projected ?? entry;
  const { bytes } = state;
  const size = bytes.length;
  const { offset = 0 } = sge as Sge;
  const { length = typeof offset === 'number' ? size - offset : 0 } = sge as Sge;
  const inside = isU32(offset) && isU32(length) && offset + length <= size;
  const usable = inside && state.valid && mr.pd === pd && (state.access & right) === right;
  // A region may have lost its memory.
  const isThere = length === 0 ? size > 0 : usable && reaches(bytes, offset + length);
  if (!usable || !isThere) explainSge(name, index, mr, sge as Sge, pd, right);
  list.add(entry, bytes, offset, length, state.stag);
}

/** Whether the memory of a view has been transferred; `detached` of an ArrayBuffer came after Node 20. */
function isDetached({ buffer }: Uint8Array): boolean {
  try {
    return new Uint8Array(buffer).buffer !== buffer;
  } catch {
    return true;
  }
}

/** Throws the reason why an element cannot be used; returns if it can after all. */
function explainSge(
  caller: string,
  index: number,
  mr: MemoryRegion,
  sge: Sge,
  pd: ProtectionDomain,
  right: number,
): void {
  const name = elementName(caller, index);
  const region = index === WHOLE_REGION ? caller : `${name}.mr`;
  // VERBS-085: nothing else of a zero-length element is looked at, neither its domain nor its key.
  if (sge.length === 0) {
    if (sge.offset !== undefined) checkInteger(`${name}.offset`, sge.offset, 0, Number.MAX_SAFE_INTEGER);
    return;
  }
  // VERBS-089
  if (mr.pd !== pd) throw new IwarpError('ERR_WRONG_PD', `${region} belongs to another protection domain`);
  const state = mr.projected ?? mr.entry;
  const size = lengthNow(state.bytes);
  const { offset = 0 } = sge;
  checkInteger(`${name}.offset`, offset, 0, Number.MAX_SAFE_INTEGER);
  if (!state.valid)
    throw new IwarpError('ERR_INVALID_REGION', `${region} has been deregistered or invalidated`);
  if (size === 0 && isDetached(state.bytes))
    throw new IwarpError(
      'ERR_INVALID_REGION',
      `${region} has no memory any longer: its ArrayBuffer has been transferred; register memory that stays`,
    );
  if (offset > size)
    throw new IwarpError('ERR_OUT_OF_RANGE', `${name}.offset ${offset} is beyond the region's ${size} bytes`);
  const { length = size - offset } = sge;
  checkInteger(`${name}.length`, length, 0, 0xffff_ffff);
  if (offset + length > size) {
    throw new IwarpError(
      'ERR_OUT_OF_RANGE',
      `${name}: ${length} bytes from ${offset} pass the region's ${size} bytes`,
    );
  }
  if ((state.access & right) !== right)
    throw new IwarpError('ERR_ACCESS', `${region} does not grant LOCAL_WRITE`); // VERBS-086
}

function unknownSgeField(name: string, sge: object): IwarpError {
  const field = SGE_FIELDS.unknownIn(sge);
  return new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `${name}.${field} is not a field of an element: ${SGE_FIELDS.text}`,
  );
}

function notOwnRegion(name: string, value: unknown): IwarpError {
  return value instanceof MemoryRegion
    ? new IwarpError('ERR_WRONG_PD', `${name}.mr belongs to another copy of the package`)
    : new IwarpError('ERR_INVALID_ARGUMENT', `${name}.mr must be a MemoryRegion, got ${show(value)}`);
}
