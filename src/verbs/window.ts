/**
 * Memory windows (type 2): verbs draft 7.10. A window gives remote access to part of a region, through the
 * queue pair that bound it. Binding and invalidating cost no system call and send nothing.
 */
import { lengthNow } from '../base/copy.ts';
import { brand } from '../base/brand.ts';
import { IwarpError } from '../base/errors.ts';
import { toBigInt } from '../base/u64.ts';
import type { StagEntry } from '../ddp/stag-table.ts';
import { endEntry } from './memory.ts';
import type { ProtectionDomain } from './pd.ts';
import type { ProjectedMemory } from './projected-memory.ts';

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
  /** Bytes bound; 0 while unbound. */
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
  static {
    brand(this, 'MemoryWindow');
  }

  /** The protection domain that the window, its region and the queue pair share. */
  readonly pd: ProtectionDomain;
  /** @internal */
  readonly entry: StagEntry;
  /** @internal STag and base that queued binds will give; null with none queued. */
  projected: ProjectedMemory | null = null;
  #gone = false;

  /** @internal */
  constructor(pd: ProtectionDomain, entry: StagEntry) {
    this.pd = pd;
    this.entry = entry;
    pd.device.objects.mw.add(this);
  }

  /**
   * The STag, for peers. While a bind is queued it is the STag that the bind will give, so that a later
   * message can advertise it.
   */
  get rkey(): number {
    return (this.projected ?? this.entry).stag;
  }

  /** Tagged offset of the first byte. */
  get addr(): bigint {
    const { baseHi, baseLo } = this.projected ?? this.entry;
    return toBigInt(baseHi, baseLo);
  }

  /** Bytes bound; 0 while unbound. */
  get length(): number {
    return lengthNow(this.entry.bytes);
  }

  /** True while bound. */
  get valid(): boolean {
    return this.entry.valid;
  }

  /** True after `deallocate()`. It stays true. */
  get deallocated(): boolean {
    return this.#gone;
  }

  /**
   * The window as it is now, without the effect of queued requests. ERR_INVALID_REGION after `deallocate()`.
   */
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
      length: lengthNow(entry.bytes),
      region: entry.region?.stag,
      queuePair: entry.qp === 0 ? undefined : entry.qp,
    };
  }

  /**
   * Deallocate the window, bound or not. No access through it begins after this call (VERBS-167).
   *
   * @returns settles when no write reads the memory through it, as with {@link MemoryRegion.deregister}
   * @throws ERR_INVALID_REGION the second time
   */
  deallocate(): PromiseLike<void> {
    this.checkAlive('the memory window');
    this.#gone = true;
    this.projected = null;
    const returned = endEntry(this.pd, this.entry);
    this.pd.device.objects.mw.delete(this);
    return returned;
  }

  /** @internal */
  checkAlive(name: string): void {
    if (this.#gone) throw new IwarpError('ERR_INVALID_REGION', `${name} has been deallocated`);
  }
}
