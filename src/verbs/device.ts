/**
 * The device: home of protection domains, STags, queues and limits (verbs draft 9.2.1).
 */
import { checkInteger, IwarpError, show } from '../base/errors.ts';
import type { RandomU32 } from '../base/random.ts';
import { createCrc32cEngine, defaultCrc32cEngine, type Crc32cEngine, type Crc32cEngineName } from '../crc32c/engine.ts';
import { StagTable } from '../ddp/stag-table.ts';
import { FreeListSlabPool } from '../mpa/deframer.ts';
import { FreeListStagePool } from '../rdmap/stages.ts';
import type { StreamResources } from '../rdmap/stream-types.ts';
import { CompletionQueue } from './cq.ts';
import type { AsyncEvent } from './events.ts';
import { ProtectionDomain } from './memory.ts';

/** Limits of a device, told by {@link Device.query} (names after ibv_device_attr). Each bounds what one process can be made to hold. */
export interface DeviceLimits {
  /** Queue pairs at a time. */
  readonly maxQp: number;
  /** Entries of one work queue. */
  readonly maxQpWr: number;
  /** Scatter/gather elements of a Send, Write or receive. A Read has one. */
  readonly maxSge: number;
  readonly maxCq: number;
  /** Entries of one completion queue. */
  readonly maxCqe: number;
  /** Memory regions and windows at a time. */
  readonly maxMr: number;
  readonly maxPd: number;
  readonly maxSrq: number;
  readonly maxSrqWr: number;
  /** Inbound and outbound read depth of one queue pair. */
  readonly maxQpRdAtom: number;
  readonly maxQpInitRdAtom: number;
  /** Largest inline data. */
  readonly maxInline: number;
  /** Largest message, octets. */
  readonly maxMessage: number;
}

/** Generous for a process, small enough that no single object can take gigabytes by a typing error. */
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

/** Options of {@link Device}. */
export interface DeviceOptions {
  readonly name?: string;
  readonly limits?: Partial<DeviceLimits>;
  /** CRC32c engine by name, or `auto`. */
  readonly crc32c?: Crc32cEngineName | 'auto';
  /** Source of STags; the operating system's generator by default. Tests give a seeded one. */
  readonly random?: RandomU32;
  /** Runs completion and event handlers behind the present call stack; `queueMicrotask` by default. */
  readonly defer?: (task: () => void) => void;
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
  readonly name: string;
  readonly limits: DeviceLimits;
  /** @internal */
  readonly stags: StagTable;
  /** @internal */
  readonly resources: StreamResources;
  /** @internal */
  readonly defer: (task: () => void) => void;
  /** @internal Objects alive, by kind. */
  readonly live = { pd: 0, cq: 0, qp: 0, srq: 0 };
  #handler: ((event: AsyncEvent) => void) | null = null;
  #nextHandle = 1;
  #nextQp: number;

  constructor(options: DeviceOptions = {}) {
    if (typeof options !== 'object' || options === null) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options must be an object, got ${show(options)}`);
    }
    this.name = options.name ?? 'iwarp0';
    this.limits = resolveLimits(options.limits ?? {});
    const random = options.random ?? systemRandom;
    this.stags = new StagTable(random, this.limits.maxMr);
    const crc: Crc32cEngine = options.crc32c === undefined ? defaultCrc32cEngine() : createCrc32cEngine(options.crc32c);
    const allocate = (octets: number): Uint8Array => crc.allocate(octets);
    this.resources = { crc, slabs: new FreeListSlabPool(allocate), stages: new FreeListStagePool(allocate) };
    this.defer = options.defer ?? ((task) => queueMicrotask(task));
    // QP numbers are no secret; starting above 1 keeps 0 and 1 free, as on other devices.
    this.#nextQp = 2;
  }

  allocatePd(): ProtectionDomain {
    this.#count('pd', this.limits.maxPd);
    return new ProtectionDomain(this, this.#nextHandle++);
  }

  /** A completion queue of at least `entries` entries (VERBS-006). */
  createCq(entries: number): CompletionQueue {
    checkInteger('entries', entries, 1, this.limits.maxCqe);
    this.#count('cq', this.limits.maxCq);
    return new CompletionQueue(this, this.#nextHandle++, entries);
  }

  /** The one handler of asynchronous events; a later registration replaces it, and without one events are lost (VERBS-120). */
  setAsyncEventHandler(handler: ((event: AsyncEvent) => void) | null): void {
    if (handler !== null && typeof handler !== 'function') {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `handler must be a function or null, got ${show(handler)}`);
    }
    this.#handler = handler;
  }

  /** The limits and what is in use. */
  query(): { readonly name: string; readonly limits: DeviceLimits; readonly inUse: Readonly<Record<'pd' | 'cq' | 'qp' | 'srq' | 'mr', number>> } {
    return { name: this.name, limits: this.limits, inUse: { ...this.live, mr: this.stags.size } };
  }

  /** @internal */
  takeQpNumber(): number {
    this.#count('qp', this.limits.maxQp);
    return this.#nextQp++;
  }

  /** @internal */
  count(kind: 'srq', limit: number): void {
    this.#count(kind, limit);
  }

  /** @internal Deliver an asynchronous event behind the present call stack. */
  raise(event: AsyncEvent): void {
    const handler = this.#handler;
    if (handler !== null) this.defer(() => handler(event));
  }

  #count(kind: 'pd' | 'cq' | 'qp' | 'srq', limit: number): void {
    if (this.live[kind] >= limit) throw new IwarpError('ERR_LIMIT', `the device has its limit of ${limit} ${kind} objects`);
    this.live[kind]++;
  }
}

function resolveLimits(partial: Partial<DeviceLimits>): DeviceLimits {
  const limits = { ...DEFAULT_LIMITS } as Record<string, number>;
  for (const [name, value] of Object.entries(partial)) {
    if (!(name in DEFAULT_LIMITS)) throw new IwarpError('ERR_INVALID_ARGUMENT', `options.limits.${name} is not a known limit`);
    limits[name] = checkInteger(`options.limits.${name}`, value, 1, 0xffff_ffff);
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
