/**
 * Memory windows (type 2): verbs draft 7.10. A window gives remote access to part of a region, through the queue pair that bound it.
 * Binding and invalidating cost no system call and send nothing.
 */
import { IwarpError } from '../base/errors.ts';
import { toBigInt } from '../base/u64.ts';
import type { StagEntry } from '../ddp/stag-table.ts';
import type { ProtectionDomain } from './pd.ts';

/** Result of {@link MemoryWindow.query}. */
export interface WindowAttributes {
  /** The STag: 24 bits of index, 8 bits of key. */
  readonly stag: number;
  /** The low eight bits of the STag. */
  readonly key: number;
  /** `valid` while bound. */
  readonly state: 'valid' | 'invalid';
  /** Rights of the current bind. */
  readonly access: number;
  /** Handle of the protection domain. */
  readonly pd: number;
  /** Tagged offset of the first octet: u64. */
  readonly addr: bigint;
  /** Octets bound; 0 while unbound. */
  readonly length: number;
  /** STag of the region that it is bound to; undefined while unbound. */
  readonly region: number | undefined;
  /** Number of the queue pair that bound it; only that queue pair's peer can use the window. */
  readonly queuePair: number | undefined;
}

/**
 * A memory window, made by {@link ProtectionDomain.allocateMw} and bound by a `bind-mw` request.
 *
 * @example
 * const mw = pd.allocateMw();
 * qp.postSend({ opcode: 'bind-mw', mw, mr, offset: 4096, length: 512, access: ACCESS.REMOTE_WRITE });
 * tellPeer(mw.rkey, mw.addr);
 * // later: the peer's Send with Invalidate, or
 * qp.postSend({ opcode: 'local-invalidate', target: mw });
 */
export class MemoryWindow {
  // PostedMemory to the work that is queued for it.
  /** The protection domain that the window, its region and the queue pair share. */
  readonly pd: ProtectionDomain;
  /** @internal */
  readonly entry: StagEntry;
  /** @internal STag and base that queued binds will give; null with none queued. */
  posted: { stag: number; baseHi: number; baseLo: number } | null = null;
  #queued = 0;
  #gone = false;

  /** @internal */
  constructor(pd: ProtectionDomain, entry: StagEntry) {
    this.pd = pd;
    this.entry = entry;
    pd.device.objects.mw.add(this);
  }

  /** The STag, for peers. While a bind is queued it is the STag that the bind will give, so that a later message can advertise it. */
  get rkey(): number {
    return (this.posted ?? this.entry).stag;
  }

  /** Tagged offset of the first octet. */
  get addr(): bigint {
    const { baseHi, baseLo } = this.posted ?? this.entry;
    return toBigInt(baseHi, baseLo);
  }

  /** Octets bound; 0 while unbound. */
  get length(): number {
    return this.entry.bytes.length;
  }

  /** True while bound. */
  get valid(): boolean {
    return this.entry.valid;
  }

  /** True after `deallocate()`. It stays true. */
  get deallocated(): boolean {
    return this.#gone;
  }

  /** The window as it is now, without the effect of queued requests. ERR_INVALID_REGION after `deallocate()`. */
  query(): WindowAttributes {
    this.checkAlive('the memory window');
    const { entry } = this;
    return {
      stag: entry.stag,
      key: entry.stag & 0xff,
      state: entry.valid ? 'valid' : 'invalid',
      access: entry.access,
      pd: entry.pd,
      addr: toBigInt(entry.baseHi, entry.baseLo),
      length: entry.bytes.length,
      region: entry.region?.stag,
      queuePair: entry.qp === 0 ? undefined : entry.qp,
    };
  }

  /**
   * Deallocate the window, bound or not. From the return of this call on no access through it succeeds (VERBS-167).
   *
   * @throws ERR_INVALID_REGION the second time
   */
  deallocate(): void {
    this.checkAlive('the memory window');
    this.#gone = true;
    this.posted = null;
    this.pd.device.mirror?.drop(this.entry);
    this.pd.device.stags.free(this.entry);
    this.pd.users--;
    this.pd.device.objects.mw.delete(this);
  }

  /** @internal */
  checkAlive(name: string): void {
    if (this.#gone) throw new IwarpError('ERR_INVALID_REGION', `${name} has been deallocated`);
  }

  /** @internal Work that changes the window has been queued. */
  queue(): { stag: number; baseHi: number; baseLo: number } {
    const { stag, baseHi, baseLo } = this.entry;
    this.posted ??= { stag, baseHi, baseLo };
    this.#queued++;
    return this.posted;
  }

  /** @internal One such work request is through, done or flushed. */
  settled(): void {
    this.#queued--;
    if (this.#queued === 0) this.posted = null;
  }
}
