/**
 * The device: owns protection domains, STags, queues and limits (verbs draft 9.2.1).
 */
import { queueMicrotask } from '../base/host.ts';
import { captureContext, type AsyncContext } from '../base/async-context.ts';
import { isShared, lengthNow } from '../base/copy.ts';
import {
  checkInteger,
  checkOneOf,
  checkOptions,
  IwarpError,
  orNoMemory,
  show,
  type Names,
} from '../base/errors.ts';
import { systemRandom, type RandomU32 } from '../base/random.ts';
import { countShared } from '../base/shared-memory.ts';
import { WIRES, type WireName } from '../base/wires.ts';
import {
  checkCrc32cName,
  createCrc32cEngine,
  defaultCrc32cEngine,
  type Crc32cEngineName,
} from '../crc32c/engine.ts';
import { TERM } from '../base/terminate-codes.ts';
import { StagTable, type StagEntry } from '../ddp/stag-table.ts';
import { resourcesOf, type MpaResources } from '../mpa/resources.ts';
import type { DatagramNetwork } from '../transport/datagram.ts';
import { CompletionChannel } from './completion-channel.ts';
import { CompletionQueue, type CqOptions } from './cq.ts';
import type { DatagramQueuePair } from './datagram-qp.ts';
import type { AsyncEvent } from './events.ts';
import type { MemoryRegion } from './memory.ts';
import { ProtectionDomain } from './pd.ts';
import type { QueuePair } from './qp.ts';
import { ConnectionMemory } from './connection-memory.ts';
import type { SharedReceiveQueue } from './srq.ts';
import type { MemoryWindow } from './window.ts';

/**
 * Limits of a device, as {@link Device.query} reports them (named after ibv_device_attr). Each bounds the
 * memory that one process can be made to hold.
 */
export interface DeviceLimits {
  /** Queue pairs at a time. Default 65,536. */
  readonly maxQp: number;
  /** Entries of one work queue. Default 65,536. */
  readonly maxQpWr: number;
  /** Scatter/gather elements of a Send, Write or receive. A Read has one. Default 16. */
  readonly maxSge: number;
  /** Completion queues at a time. Default 65,536. */
  readonly maxCq: number;
  /** Entries of one completion queue. Default 4,194,304. */
  readonly maxCqe: number;
  /** Memory regions and windows at a time. Default 1,048,576. */
  readonly maxMr: number;
  /** Protection domains at a time. Default 65,536. */
  readonly maxPd: number;
  /** Shared receive queues at a time. Default 4,096. */
  readonly maxSrq: number;
  /** Entries of one shared receive queue. Default 65,536. */
  readonly maxSrqWr: number;
  /**
   * Largest IRD of one queue pair; also the largest depth, in either direction, that a connection may ask
   * for. Default 1,024.
   */
  readonly maxQpRdAtom: number;
  /** Reads and atomics that one queue pair may have outstanding at its peer (ORD). Default 1,024. */
  readonly maxQpInitRdAtom: number;
  /** Largest inline data, bytes. Default 4,096. */
  readonly maxInline: number;
  /** Largest message, bytes. Default 2^32 - 1. */
  readonly maxMessage: number;
}

/** Bytes of new memory at most: as many as a typed array can hold everywhere. */
const MAX_MEMORY = 0xffff_ffff;

/**
 * Default limits: large for a process, and small enough that no single object takes gigabytes by a typing
 * error.
 */
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

/** Asynchronous events kept for the first handler. */
const EARLY_EVENTS = 256;

/** Objects of a device, by kind. */
export interface DeviceObjects {
  /** Protection domains. */
  readonly pd: Set<ProtectionDomain>;
  /** Completion queues. */
  readonly cq: Set<CompletionQueue>;
  /** Queue pairs. */
  readonly qp: Set<QueuePair>;
  /** Datagram queue pairs. */
  readonly datagramQp: Set<DatagramQueuePair>;
  /** Shared receive queues. */
  readonly srq: Set<SharedReceiveQueue>;
  /** Memory regions. */
  readonly mr: Set<MemoryRegion>;
  /** Memory windows. */
  readonly mw: Set<MemoryWindow>;
}

/** Keeps copies of the STag table where streams run in other threads. */
export interface StagMirror {
  /** Streams run in other threads, so registered memory has to be shared memory. */
  readonly offloaded: boolean;
  /** The entry is new. */
  put(entry: StagEntry): void;
  /** The entry has become a shared one; nothing else of it has changed. */
  share(entry: StagEntry): void;
  /** When this call returns, the table here shows all changes that the streams have made so far. */
  settle(): void;
  /** Take in the reports of the streams so far, so that a program that polls sees its completions. */
  look(): void;
  /** Block the thread until they report something, at most this long, and take it in. */
  wait(ms: number): void;
  /** A call has changed the entry: after its return no use sees the former entry (VERBS-149). */
  change(entry: StagEntry): void;
  /**
   * The entry is about to leave the table: after this call no use of it begins (VERBS-151). Returns what
   * settles when the streams no longer read its memory, or null if the entry itself knows.
   */
  drop(entry: StagEntry): PromiseLike<void> | null;
}

/** The event names this object. */
function isAbout(event: AsyncEvent, object: unknown): boolean {
  const { qp, cq, srq } = event as { qp?: unknown; cq?: unknown; srq?: unknown };
  return object === qp || object === cq || object === srq;
}

function nothing(): void {
  // The streams use the table itself.
}

/** The mirror of a device whose streams run in the calling thread: there is no copy to update. */
const NO_MIRROR: StagMirror = {
  offloaded: false,
  put: nothing,
  share: nothing,
  settle: nothing,
  look: nothing,
  wait: nothing,
  change: nothing,
  drop: () => null,
};

/** Abilities of a device; the same for every device of this package. */
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
  /**
   * Scope of atomics: the streams of the device; or, on a SharedArrayBuffer, all threads of the process too.
   */
  readonly atomics: 'none' | 'device' | 'device-and-process';
}

/**
 * Atomics reach as far as the process (all its threads) on a SharedArrayBuffer, else as far as the streams of
 * the device.
 */
const CAPABILITIES: DeviceCapabilities = {
  sharedReceiveQueues: true,
  memoryWindows: true,
  fastRegistration: true,
  resizeCq: true,
  immediateData: true,
  atomics: 'device-and-process',
};

/** Of a device whose wire has no header to say more than Send in. */
const SENDS_ONLY: DeviceCapabilities = {
  ...CAPABILITIES,
  memoryWindows: false,
  immediateData: false,
  atomics: 'none',
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
  /**
   * The protocol that carries the work of its queue pairs. With `qpip` they have Sends and Receives only.
   * Default `iwarp`.
   */
  readonly wire?: WireName | undefined;
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
  /** The protocol that carries the work of its queue pairs. */
  readonly wire: WireName;
  /** @internal */
  readonly stags: StagTable;
  /** @internal */
  readonly resources: MpaResources;
  /** @internal */
  readonly defer: (task: () => void) => void;
  /** Objects alive, by kind. */
  readonly objects: DeviceObjects = {
    pd: new Set(),
    cq: new Set(),
    qp: new Set(),
    datagramQp: new Set(),
    srq: new Set(),
    mr: new Set(),
    mw: new Set(),
  };
  /** @internal Buffers of connections that are over. */
  readonly connectionMemory: ConnectionMemory = new ConnectionMemory((octets) => this.allocateMemory(octets));
  /** @internal Sees each asynchronous event when it is raised, beside the handler. */
  observer: ((device: Device, event: AsyncEvent) => void) | null = null;
  /** @internal Updates the copies of the STag table that streams in other threads use. */
  mirror: StagMirror = NO_MIRROR;
  /**
   * @internal Drives the streams in a call of the program that polls; null where only turns of the event loop
   *   do, or another thread does.
   */
  drive: (() => void) | null = null;
  /** @internal Where datagram queue pairs are bound; null where there are none. */
  datagrams: DatagramNetwork | null = null;
  /** @internal Bytes of private data that the wire's start-up has room for. */
  privateDataRoom: number = Number.POSITIVE_INFINITY;
  /** @internal Called once, when the device is closed. */
  onClose: (() => void) | null = null;
  #state: 'open' | 'failed' | 'closed' = 'open';
  #handler: ((event: AsyncEvent) => void) | null = null;
  /** That of the call that set the handler. */
  #asyncContext: AsyncContext | null = null;
  /** Events raised before there was a handler; null after the first call that sets one. */
  #early: AsyncEvent[] | null = [];
  #nextHandle = 1;
  #nextQp: number;

  /** A device without connections; its limits do not change later. */
  constructor(options: DeviceOptions = {}) {
    checkDeviceOptions(options);
    this.name = options.name ?? 'iwarp0';
    this.wire = options.wire ?? 'iwarp';
    this.limits = resolveLimits(options.limits ?? {});
    const random = options.random ?? systemRandom;
    this.stags = new StagTable(random, this.limits.maxMr);
    this.resources = resourcesOf(
      options.crc32c === undefined ? defaultCrc32cEngine() : createCrc32cEngine(options.crc32c),
    );
    this.defer = options.defer ?? ((task) => queueMicrotask(task));
    // QP numbers are no secret; starting above 1 keeps 0 and 1 free, as on other devices.
    this.#nextQp = 2;
  }

  /**
   * `failed` after {@link fail}, `closed` after {@link close}. Then nothing more can be created on the
   * device.
   */
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
   * Create a completion queue of at least `entries` entries; `capacity` says how many it has (VERBS-006). If
   * it is as large as all the work queues that report to it together, it cannot overflow (SEC-031).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_DESTROYED
   */
  createCq(entries: number, options: CqOptions = {}): CompletionQueue {
    checkInteger('entries', entries, 1, this.limits.maxCqe);
    this.#checkRoom('cq');
    const cq = new CompletionQueue(this, this.#nextHandle++, entries, options);
    this.objects.cq.add(cq);
    return cq;
  }

  /**
   * Create a channel for the notifications of several completion queues (ibv_create_comp_channel).
   *
   * @throws ERR_DESTROYED
   */
  createCompletionChannel(): CompletionChannel {
    this.#checkOpen();
    return new CompletionChannel(this);
  }

  /**
   * Set the one handler of asynchronous events, in place of an earlier one. Events that were raised before
   * the first handler was set are kept for it, the latest 256 of them. After `null` the events are lost
   * (VERBS-120). The handler runs in the asynchronous context of this call.
   */
  setAsyncEventHandler(handler: ((event: AsyncEvent) => void) | null): void {
    if (handler !== null && typeof handler !== 'function') {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        `handler must be a function or null, got ${show(handler)}`,
      );
    }
    this.#handler = handler;
    this.#asyncContext = handler === null ? null : captureContext('IWARP_DEVICE');
    const early = this.#early;
    this.#early = null;
    if (early !== null && handler !== null) for (const event of early) this.#deliver(event, handler);
  }

  /** The limits, the objects in use, and the capabilities of the device. */
  query(): DeviceAttributes {
    const inUse = {} as Record<keyof DeviceObjects, number>;
    for (const [kind, objects] of Object.entries(this.objects))
      inUse[kind as keyof DeviceObjects] = (objects as Set<unknown>).size;
    return {
      name: this.name,
      state: this.#state,
      limits: this.limits,
      inUse,
      capabilities: this.wire === 'qpip' ? SENDS_ONLY : CAPABILITIES,
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
      throw new IwarpError(
        'ERR_IN_USE',
        `the device still has ${alive.map(([kind, objects]) => `${objects.size} ${kind}`).join(', ')}`,
      );
    }
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    this.onClose?.();
  }

  /**
   * Take the device out of service, because it has failed or because the program wants so: every stream ends
   * with Terminate 0/2/08, one
   * `device-fatal` event is raised, and nothing more can be created on the device (VERBS-177).
   */
  fail(): void {
    if (this.#state !== 'open') return;
    this.#state = 'failed';
    this.raise({ type: 'device-fatal', device: this });
    for (const qp of this.objects.qp) qp.fail(TERM.RDMAP_GLOBAL_CATASTROPHIC);
  }

  /**
   * Allocate zeroed memory that can be registered on this device: over a SharedArrayBuffer if its streams run
   * in other threads, or lead there (wire `shm`), else over an ArrayBuffer.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT if the process has no memory for it
   *
   * @example
   * const mr = pd.registerMemory(device.allocateMemory(4096), ACCESS.LOCAL_WRITE);
   */
  allocateMemory(octets: number): Uint8Array {
    checkInteger('octets', octets, 0, MAX_MEMORY); // not what a message has at most: a region holds many
    if (!this.mirror.offloaded && this.wire !== 'shm')
      return new Uint8Array(orNoMemory(octets, () => new ArrayBuffer(octets)));
    countShared(octets);
    return new Uint8Array(orNoMemory(octets, () => new SharedArrayBuffer(octets)));
  }

  /** @deprecated The former name of {@link Device.allocateMemory}. */
  newMemory(octets: number): Uint8Array {
    return this.allocateMemory(octets);
  }

  /** @internal Threads can only share memory that was made for it. */
  checkMemory(name: string, bytes: Uint8Array): void {
    if (!this.mirror.offloaded || lengthNow(bytes) === 0 || isShared(bytes)) return;
    throw new IwarpError(
      'ERR_NOT_SHARED',
      `${name} must be over a SharedArrayBuffer, because the streams of the device run in another thread: ` +
        'allocate it by connection.allocate() or device.allocateMemory(), which suit every engine',
    );
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
  forget<K extends keyof DeviceObjects>(
    kind: K,
    object: DeviceObjects[K] extends Set<infer T> ? T : never,
  ): void {
    (this.objects[kind] as Set<unknown>).delete(object);
    // An event about it would keep it, and through a queue pair all that its connection had.
    if (kind !== 'pd' && this.#early !== null && this.#early.length > 0)
      this.#early = this.#early.filter((event) => !isAbout(event, object));
  }

  /** @internal Deliver an asynchronous event after the present call stack. */
  raise(event: AsyncEvent): void {
    this.observer?.(this, event);
    const handler = this.#handler;
    if (handler !== null) {
      this.#deliver(event, handler);
    } else if (this.#early !== null) {
      this.#early.push(event);
      if (this.#early.length > EARLY_EVENTS) this.#early = this.#early.slice(1);
    }
  }

  #deliver(event: AsyncEvent, handler: (event: AsyncEvent) => void): void {
    const context = this.#asyncContext!;
    this.defer(() => context.runInAsyncScope(handler, undefined, event));
  }

  #checkOpen(): void {
    if (this.#state === 'open') return;
    throw new IwarpError(
      'ERR_DESTROYED',
      `the device has ${this.#state === 'failed' ? 'failed' : 'been closed'}`,
    );
  }

  #checkRoom(kind: 'pd' | 'cq' | 'qp' | 'srq'): void {
    this.#checkOpen();
    const limit = this.limits[LIMIT_NAMES[kind]];
    if (this.objects[kind].size >= limit)
      throw new IwarpError('ERR_LIMIT', `the device has its limit of ${limit} ${kind} objects`);
  }
}

const LIMIT_NAMES = { pd: 'maxPd', cq: 'maxCq', qp: 'maxQp', srq: 'maxSrq' } as const;

const OPTIONS: Names<DeviceOptions> = {
  name: true,
  limits: true,
  crc32c: true,
  random: true,
  wire: true,
  defer: true,
};

function checkDeviceOptions(options: DeviceOptions): void {
  checkOptions('options', options, OPTIONS);
  const expect = (
    name: 'name' | 'random' | 'defer' | 'limits',
    type: 'string' | 'function' | 'object',
  ): void => {
    const value: unknown = options[name];
    if (value === undefined || (typeof value === type && value !== null)) return;
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `options.${name} must be ${type === 'object' ? 'an' : 'a'} ${type}, got ${show(value)}`,
    );
  };
  expect('name', 'string');
  expect('limits', 'object');
  expect('random', 'function');
  expect('defer', 'function');
  if (options.wire !== undefined) checkOneOf('options.wire', options.wire, WIRES);
  if (options.crc32c !== undefined) checkCrc32cName('options.crc32c', options.crc32c);
}

function resolveLimits(partial: Partial<DeviceLimits>): DeviceLimits {
  const limits = { ...DEFAULT_LIMITS } as Record<string, number>;
  for (const [name, value] of Object.entries(partial)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options.limits.${name} is not a known limit`);
    if (value !== undefined) limits[name] = checkInteger(`options.limits.${name}`, value, 1, 0xffff_ffff);
  }
  return limits as unknown as DeviceLimits;
}
