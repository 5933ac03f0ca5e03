/** Protection domains: verbs draft 5.2. */
import { lengthNow } from '../base/copy.ts';
import { checkBoolean, checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { Interned } from '../base/interned.ts';
import { MAX_MESSAGE } from '../ddp/wire.ts';
import { REMOTE_ACCESS } from '../ddp/stag-table.ts';
import { DatagramQueuePair, type DatagramQpOptions } from './datagram-qp.ts';
import type { Device } from './device.ts';
import {
  checkAccess,
  checkMemory,
  checkRegister,
  fillEntry,
  MemoryRegion,
  type FastRegionOptions,
  type RegisterOptions,
} from './memory.ts';
import { QueuePair } from './qp.ts';
import type { CheckedQpOptions } from './qp-options.ts';
import type { QueuePairOptions } from './qp-types.ts';
import { SharedReceiveQueue, type SrqOptions } from './srq.ts';
import { MemoryWindow } from './window.ts';

const FAST_OPTIONS: Names<FastRegionOptions> = { remote: true };

/**
 * A protection domain. Regions, windows and queues work only with others of the same domain (VERBS-001).
 *
 * @example
 * const pd = device.allocatePd();
 * const mr = pd.registerMemory(new Uint8Array(4096), ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ);
 */
export class ProtectionDomain {
  /** The device it belongs to. */
  readonly device: Device;
  /** Unique on the device (VERBS-002). */
  readonly handle: number;
  /** @internal */
  readonly qpOptions: Interned<CheckedQpOptions> = new Interned();
  #users = 0;
  #deallocated = false;
  #abandoned = false;

  /** @internal Use {@link Device.allocatePd}. */
  constructor(device: Device, handle: number) {
    this.device = device;
    this.handle = handle;
  }

  /** True after `deallocate()`. It stays true. */
  get deallocated(): boolean {
    return this.#deallocated;
  }

  /** @internal Objects that belong to this domain. */
  get users(): number {
    return this.#users;
  }

  /** @internal */
  set users(count: number) {
    this.#users = count;
    if (count === 0 && this.#abandoned) this.deallocate();
  }

  /** @internal The maker of the domain no longer needs it: it goes with the last object in it. */
  abandon(): void {
    this.#abandoned = true;
    if (this.#users === 0) this.deallocate();
  }

  /** @internal */
  use(): void {
    if (this.#deallocated)
      throw new IwarpError('ERR_DESTROYED', 'the protection domain has been deallocated');
    this.users++;
  }

  /**
   * Register memory: any ArrayBufferView, over shared memory too. Do not detach its buffer while it is
   * registered. A buffer may grow; its new bytes are not registered. Overlapping regions are independent of
   * each other (VERBS-145).
   *
   * @param memory the bytes to register; nothing is copied
   * @param access a union of {@link ACCESS}; REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE (VERBS-141)
   * @throws ERR_INVALID_ARGUMENT, ERR_NOT_SHARED, ERR_LIMIT, ERR_WRONG_PD, ERR_DESTROYED
   *
   * @example
   * const mr = pd.registerMemory(new Uint8Array(64), ACCESS.REMOTE_READ);
   * tellPeer({ stag: mr.rkey, offset: mr.addr, length: mr.length });
   */
  registerMemory(memory: ArrayBufferView, access: number, options: RegisterOptions = {}): MemoryRegion {
    const bytes = checkMemory('memory', memory);
    checkAccess('access', access);
    const { iova, key, shared, qp, use } = checkRegister(this, options);
    this.device.checkMemory('memory', bytes);
    return this.#withUse(() => {
      const entry = this.device.stags.allocate('region', this.handle, key);
      fillEntry(entry, bytes, access, iova);
      entry.qp = qp;
      entry.shared = shared;
      entry.use = use;
      const region = new MemoryRegion(
        this,
        entry,
        options.iova === undefined,
        lengthNow(bytes),
        (access & REMOTE_ACCESS) !== 0,
      );
      this.device.mirror.put(entry);
      return region;
    });
  }

  /**
   * Allocate a region without memory. A `reg-mr` request on a queue pair gives it memory of up to `maxOctets`
   * bytes; `local-invalidate` or the peer's Send with Invalidate takes the memory away. That can be
   * repeated, each time with another key.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_DESTROYED
   *
   * @example
   * const mr = pd.allocateFastRegion(4096);
   * qp.postSend([
   *   { opcode: 'reg-mr', mr, memory: page, access: ACCESS.REMOTE_READ, signaled: false },
   *   { opcode: 'send', inline: encodeTicket(mr.rkey) },
   * ]);
   */
  allocateFastRegion(maxOctets: number, options: FastRegionOptions = {}): MemoryRegion {
    checkInteger('maxOctets', maxOctets, 1, MAX_MESSAGE);
    checkOptions('options', options, FAST_OPTIONS);
    const remote = checkBoolean('options.remote', options.remote ?? true);
    return this.#withUse(() => {
      const entry = this.device.stags.allocate('region', this.handle);
      entry.valid = false;
      const region = new MemoryRegion(this, entry, true, maxOctets, remote);
      this.device.mirror.put(entry);
      return region;
    });
  }

  /**
   * Allocate a memory window. It is not bound to anything (VERBS-160) until a `bind-mw` request binds it.
   *
   * @throws ERR_LIMIT, ERR_DESTROYED
   */
  allocateMw(): MemoryWindow {
    return this.#withUse(() => {
      const entry = this.device.stags.allocate('window', this.handle);
      entry.valid = false;
      const window = new MemoryWindow(this, entry);
      this.device.mirror.put(entry);
      return window;
    });
  }

  #withUse<T>(make: () => T): T {
    this.use();
    try {
      return make();
    } catch (error) {
      this.users--;
      throw error;
    }
  }

  /**
   * Create a queue pair in state Idle (VERBS-016, VERBS-019).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD for queues of another device, ERR_LIMIT, ERR_DESTROYED
   *
   * @example
   * const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 64, maxRecvWr: 64 });
   */
  createQp(options: QueuePairOptions): QueuePair {
    return new QueuePair(this, options);
  }

  /**
   * Create a datagram queue pair (UDP), on a device with the wire `qpip`. Its socket is in the calling
   * thread, whatever the engine.
   *
   * @throws ERR_NOT_SUPPORTED with another wire, ERR_INVALID_ARGUMENT, ERR_WRONG_PD, ERR_LIMIT, ERR_DESTROYED
   *
   * @example
   * const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq, maxRecvWr: 256 });
   * const { port } = await dqp.bind({ host: '127.0.0.1' });
   */
  createDatagramQp(options: DatagramQpOptions): DatagramQueuePair {
    if (this.device.datagrams === null)
      throw new IwarpError(
        'ERR_NOT_SUPPORTED',
        `the wire ${this.device.wire} of this device has no datagrams; openRnic({ wire: 'qpip' }) has`,
      );
    return new DatagramQueuePair(this, options);
  }

  /**
   * Create a receive queue that several queue pairs share.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_DESTROYED
   *
   * @example
   * const srq = pd.createSrq({ maxWr: 1024, limit: 128 });
   */
  createSrq(options: SrqOptions): SharedReceiveQueue {
    return new SharedReceiveQueue(this, options);
  }

  /**
   * Deallocate the domain. ERR_IN_USE while anything belongs to it (VERBS-003). A second call does nothing.
   */
  deallocate(): void {
    if (this.users > 0)
      throw new IwarpError('ERR_IN_USE', `the protection domain still has ${this.users} objects`);
    if (this.#deallocated) return;
    this.#deallocated = true;
    this.device.forget('pd', this);
  }
}
