/**
 * The device: owns protection domains, STags, queues and limits (verbs draft 9.2.1).
 */
import { clearBytes, isShared } from '../base/copy.ts';
import { checkInteger, checkOptions, IwarpError, orNoMemory, show, type Names } from '../base/errors.ts';
import type { RandomU32 } from '../base/random.ts';
import { checkCrc32cName, createCrc32cEngine, defaultCrc32cEngine, type Crc32cEngineName } from '../crc32c/engine.ts';
import { TERM } from '../base/terminate-codes.ts';
import { StagTable, type StagEntry } from '../ddp/stag-table.ts';
import { resourcesOf } from '../rdmap/resources.ts';
import type { StreamResources } from '../rdmap/stream-types.ts';
import { CompletionQueue } from './cq.ts';
import type { AsyncEvent } from './events.ts';
import type { MemoryRegion } from './memory.ts';
import { ProtectionDomain } from './pd.ts';
import type { QueuePair } from './qp.ts';
import { SpareMemory } from './spare-memory.ts';
import type { SharedReceiveQueue } from './srq.ts';
import type { MemoryWindow } from './window.ts';

/** Limits of a device, as {@link Device.query} reports them (named after ibv_device_attr). Each bounds the memory that one process can be made to hold. */
export interface DeviceLimits {
  /** Queue pairs at a time. */
  readonly maxQp: number;
  /** Entries of one work queue. */
  readonly maxQpWr: number;
  /** Scatter/gather elements of a Send, Write or receive. A Read has one. */
  readonly maxSge: number;
  /** Completion queues at a time. */
  readonly maxCq: number;
  /** Entries of one completion queue. */
  readonly maxCqe: number;
  /** Memory regions and windows at a time. */
  readonly maxMr: number;
  /** Protection domains at a time. */
  readonly maxPd: number;
  /** Shared receive queues at a time. */
  readonly maxSrq: number;
  /** Entries of one shared receive queue. */
  readonly maxSrqWr: number;
  /** Largest IRD of one queue pair; also the largest depth, in either direction, that a connection may ask for. */
  readonly maxQpRdAtom: number;
  /** Reads and atomics that one queue pair may have outstanding at its peer (ORD). */
  readonly maxQpInitRdAtom: number;
  /** Largest inline data, octets. */
  readonly maxInline: number;
  /** Largest message, octets. */
  readonly maxMessage: number;
}

/** Octets of new memory at most: what a typed array can hold everywhere. */
const MAX_MEMORY = 0xffff_ffff;

/** Default limits: large for a process, and small enough that no single object takes gigabytes by a typing error. */
export const DEFAULT_LIMITS: DeviceLimits = {
  maxQp: 65_536,
  maxQpWr: 65_536,
  maxSge: 16,
  maxCq: 65_536,
  maxCqe: 4_194_304,
  maxMr: 1_048_576,
  maxPd: 65_536,
  maxSrq: 4_096,
  maxSrqWr: 65_536,
  maxQpRdAtom: 1_024,
  maxQpInitRdAtom: 1_024,
  maxInline: 4_096,
  maxMessage: 0xffff_ffff,
};

/** Objects of a device, by kind. */
export interface DeviceObjects {
  /** Protection domains. */
  readonly pd: Set<ProtectionDomain>;
  /** Completion queues. */
  readonly cq: Set<CompletionQueue>;
  /** Queue pairs. */
  readonly qp: Set<QueuePair>;
  /** Shared receive queues. */
  readonly srq: Set<SharedReceiveQueue>;
  /** Memory regions. */
  readonly mr: Set<MemoryRegion>;
  /** Memory windows. */
  readonly mw: Set<MemoryWindow>;
}

/** Keeps copies of the STag table where streams run in other threads. */
export interface StagMirror {
  /** The entry is new. */
  put(entry: StagEntry): void;
  /** The entry has become a shared one; nothing else of it has changed. */
  share(entry: StagEntry): void;
  /** From the return of this call on the table here shows what the streams have done to it so far. */
  settle(): void;
  /** A call has changed the entry: from its return on nobody uses it as it was (VERBS-149). */
  change(entry: StagEntry): void;
  /** The entry is about to leave the table: from the return of this call on nobody uses it (VERBS-151). */
  drop(entry: StagEntry): void;
}

/** What a device can do; the same for every device of this package. */
export interface DeviceCapabilities {
  /** Several queue pairs can take receives from one queue (VERBS-127). */
  readonly sharedReceiveQueues: boolean;
  /** Windows can be bound to regions. */
  readonly memoryWindows: boolean;
  /** Regions can be registered through a send queue (`reg-mr`). */
  readonly fastRegistration: boolean;
  /** Completion queues can be resized. */
  readonly resizeCq: boolean;
  /** Immediate Data, and atomics with masks (RFC 7306). */
  readonly immediateData: boolean;
  /** Scope of atomics: the streams of the device; or, on a SharedArrayBuffer, all threads of the process too. */
  readonly atomics: 'none' | 'device' | 'device-and-process';
}

/** Atomics reach as far as the process (all its threads) on a SharedArrayBuffer, else as far as the streams of the device. */
const CAPABILITIES: DeviceCapabilities = {
  sharedReceiveQueues: true, memoryWindows: true, fastRegistration: true, resizeCq: true, immediateData: true, atomics: 'device-and-process',
};

/** Result of {@link Device.query}. */
export interface DeviceAttributes {
  /** The name of the device. */
  readonly name: string;
  /** Nothing can be created on a device that is not `open`. */
  readonly state: 'open' | 'failed' | 'closed';
  /** Its limits. */
  readonly limits: DeviceLimits;
  /** Number of objects alive, by kind. */
  readonly inUse: Readonly<Record<keyof DeviceObjects, number>>;
  /** Its capabilities. */
  readonly capabilities: DeviceCapabilities;
}

/** Options of {@link Device}. */
export interface DeviceOptions {
  /** Name, to tell several devices apart. Default `iwarp0`. */
  readonly name?: string | undefined;
  /** Differences from {@link DEFAULT_LIMITS}. */
  readonly limits?: Partial<DeviceLimits> | undefined;
  /** CRC32c engine by name, or `auto`. */
  readonly crc32c?: Crc32cEngineName | 'auto' | undefined;
  /** Random numbers for STags. Default: the operating system's generator. Tests give a seeded one. */
  readonly random?: RandomU32 | undefined;
  /** Runs completion and event handlers after the current call stack. Default: `queueMicrotask`. */
  readonly defer?: ((task: () => void) => void) | undefined;
}

/**
 * A software RNIC.
 *
 * @example
 * const device = new Device();
 * const pd = device.allocatePd();
 * const cq = device.createCq(256);
 */
export class Device {
  /** The name of the device, for people and for `iwarp stat`. */
  readonly name: string;
  /** Limits of the device; they do not change. */
  readonly limits: DeviceLimits;
  /** @internal */
  readonly stags: StagTable;
  /** @internal */
  readonly resources: StreamResources;
  /** @internal */
  readonly defer: (task: () => void) => void;
  /** Objects alive, by kind. */
  readonly objects: DeviceObjects = { pd: new Set(), cq: new Set(), qp: new Set(), srq: new Set(), mr: new Set(), mw: new Set() };
  /** @internal Buffers of connections that are over. */
  readonly spare: SpareMemory = new SpareMemory();
  /** @internal Sees each asynchronous event when it is raised, beside the handler. */
  observer: ((device: Device, event: AsyncEvent) => void) | null = null;
  /** @internal Streams run in other threads, and see the table through this; registered memory then has to be shared memory. */
  mirror: StagMirror | null = null;
  /** @internal Told once, when the device is closed. */
  onClose: (() => void) | null = null;
  #state: 'open' | 'failed' | 'closed' = 'open';
  #handler: ((event: AsyncEvent) => void) | null = null;
  #nextHandle = 1;
  #nextQp: number;

  constructor(options: DeviceOptions = {}) {
    checkDeviceOptions(options);
    this.name = options.name ?? 'iwarp0';
    this.limits = resolveLimits(options.limits ?? {});
    const random = options.random ?? systemRandom;
    this.stags = new StagTable(random, this.limits.maxMr);
    this.resources = resourcesOf(options.crc32c === undefined ? defaultCrc32cEngine() : createCrc32cEngine(options.crc32c));
    this.defer = options.defer ?? ((task) => queueMicrotask(task));
    // QP numbers are no secret; starting above 1 keeps 0 and 1 free, as on other devices.
    this.#nextQp = 2;
  }

  /** `failed` after {@link fail}, `closed` after {@link close}. Then nothing can be created on the device any more. */
  get state(): 'open' | 'failed' | 'closed' {
    return this.#state;
  }

  /**
   * Allocate a protection domain.
   *
   * @throws ERR_LIMIT, ERR_DESTROYED
   */
  allocatePd(): ProtectionDomain {
    this.#checkRoom('pd');
    const pd = new ProtectionDomain(this, this.#nextHandle++);
    this.objects.pd.add(pd);
    return pd;
  }

  /**
   * Create a completion queue of at least `entries` entries; `capacity` says how many it has (VERBS-006). If it is as large as all the work queues that
   * report to it together, it cannot overflow (SEC-031).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_DESTROYED
   */
  createCq(entries: number): CompletionQueue {
    checkInteger('entries', entries, 1, this.limits.maxCqe);
    this.#checkRoom('cq');
    const cq = new CompletionQueue(this, this.#nextHandle++, entries);
    this.objects.cq.add(cq);
    return cq;
  }

  /** Set the one handler of asynchronous events, in place of an earlier one. Without a handler the events are lost (VERBS-120). */
  setAsyncEventHandler(handler: ((event: AsyncEvent) => void) | null): void {
    if (handler !== null && typeof handler !== 'function') {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `handler must be a function or null, got ${show(handler)}`);
    }
    this.#handler = handler;
  }

  /** The limits, what is in use, and what the device can do. */
  query(): DeviceAttributes {
    const { pd, cq, qp, srq, mr, mw } = this.objects;
    return {
      name: this.name,
      state: this.#state,
      limits: this.limits,
      inUse: { pd: pd.size, cq: cq.size, qp: qp.size, srq: srq.size, mr: mr.size, mw: mw.size },
      capabilities: CAPABILITIES,
    };
  }

  /**
   * Close the device.
   *
   * @throws ERR_IN_USE while it has objects: destroy them first
   */
  close(): void {
    const alive = Object.entries(this.objects).filter(([, objects]) => objects.size > 0);
    if (alive.length > 0) {
      throw new IwarpError('ERR_IN_USE', `the device still has ${alive.map(([kind, objects]) => `${objects.size} ${kind}`).join(', ')}`);
    }
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.onClose?.();
  }

  /**
   * Take the device out of service, because it has failed or because the program wants so: every stream ends with Terminate 0/2/08, one
   * `device-fatal` event is raised, and nothing can be created on the device any more (VERBS-177).
   */
  fail(): void {
    if (this.#state !== 'open') return;
    this.#state = 'failed';
    this.raise({ type: 'device-fatal', device: this });
    for (const qp of this.objects.qp) qp.fail(TERM.RDMAP_GLOBAL_CATASTROPHIC);
  }

  /**
   * Allocate zeroed memory that can be registered on this device: over a SharedArrayBuffer if its streams run in other threads, else over an
   * ArrayBuffer.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT if the process has no memory for it
   *
   * @example
   * const mr = pd.registerMemory(device.newMemory(4096), ACCESS.LOCAL_WRITE);
   */
  newMemory(octets: number): Uint8Array {
    checkInteger('octets', octets, 0, MAX_MEMORY); // not what a message has at most: a region holds many
    return new Uint8Array(orNoMemory(octets, () => (this.mirror === null ? new ArrayBuffer(octets) : new SharedArrayBuffer(octets))));
  }

  /** @internal Memory for a connection, which may have been an earlier one's; `clear` if somebody could get to see what that left there. */
  connectionMemory(octets: number, clear: boolean): Uint8Array {
    const spare = this.spare.take(octets);
    if (spare === undefined) return this.newMemory(octets);
    if (clear) clearBytes(spare);
    return spare;
  }

  /** @internal Threads can only share memory that was made for it. */
  checkMemory(name: string, bytes: Uint8Array): void {
    if (this.mirror === null || bytes.length === 0 || isShared(bytes)) return;
    throw new IwarpError('ERR_NOT_SHARED', `${name} must be over a SharedArrayBuffer: the device works in other threads`);
  }

  /** @internal */
  takeQpNumber(): number {
    this.#checkRoom('qp');
    return this.#nextQp++;
  }

  /** @internal */
  take(kind: 'srq', object: SharedReceiveQueue): void {
    this.#checkRoom(kind);
    this.objects[kind].add(object);
  }

  /** @internal The object has been destroyed. */
  forget<K extends keyof DeviceObjects>(kind: K, object: DeviceObjects[K] extends Set<infer T> ? T : never): void {
    (this.objects[kind] as Set<unknown>).delete(object);
  }

  /** @internal Deliver an asynchronous event after the present call stack. */
  raise(event: AsyncEvent): void {
    this.observer?.(this, event);
    const handler = this.#handler;
    if (handler !== null) this.defer(() => handler(event));
  }

  #checkRoom(kind: 'pd' | 'cq' | 'qp' | 'srq'): void {
    if (this.#state !== 'open') throw new IwarpError('ERR_DESTROYED', `the device has ${this.#state === 'failed' ? 'failed' : 'been closed'}`);
    const limit = this.limits[LIMIT_NAMES[kind]];
    if (this.objects[kind].size >= limit) throw new IwarpError('ERR_LIMIT', `the device has its limit of ${limit} ${kind} objects`);
  }
}

const LIMIT_NAMES = { pd: 'maxPd', cq: 'maxCq', qp: 'maxQp', srq: 'maxSrq' } as const;

const OPTIONS: Names<DeviceOptions> = { name: true, limits: true, crc32c: true, random: true, defer: true };

function checkDeviceOptions(options: DeviceOptions): void {
  checkOptions('options', options, OPTIONS);
  const expect = (name: 'name' | 'random' | 'defer' | 'limits', type: 'string' | 'function' | 'object'): void => {
    const value: unknown = options[name];
    if (value === undefined || (typeof value === type && value !== null)) return;
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.${name} must be ${type === 'object' ? 'an' : 'a'} ${type}, got ${show(value)}`);
  };
  expect('name', 'string');
  expect('limits', 'object');
  expect('random', 'function');
  expect('defer', 'function');
  if (options.crc32c !== undefined) checkCrc32cName('options.crc32c', options.crc32c);
}

function resolveLimits(partial: Partial<DeviceLimits>): DeviceLimits {
  const limits = { ...DEFAULT_LIMITS } as Record<string, number>;
  for (const [name, value] of Object.entries(partial)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name)) throw new IwarpError('ERR_INVALID_ARGUMENT', `options.limits.${name} is not a known limit`);
    if (value !== undefined) limits[name] = checkInteger(`options.limits.${name}`, value, 1, 0xffff_ffff);
  }
  return limits as unknown as DeviceLimits;
}

/** A u32 from the operating system's generator (SEC-009), drawn in batches. */
const batch = new Uint32Array(256);
let left = 0;
function systemRandom(): number {
  if (left === 0) {
    globalThis.crypto.getRandomValues(batch);
    left = batch.length;
  }
  return batch[--left]!;
}
