/** How sessions (`src/rpc`) reach the wire: batches as messages, large messages as Reads. */
import { Alarm } from '../base/alarm.ts';
import { isShared, putBytes } from '../base/copy.ts';
import { FreeList } from '../base/pool.ts';
import { warmHeap } from '../transport/warm-heap.ts';
import { checkBytes, type IwarpError } from '../base/errors.ts';
import type { Batch, Carrier, Offer, Pulled } from '../rpc/carrier.ts';
import { isBatch } from '../rpc/wire.ts';
import { ACCESS } from '../verbs/index.ts';
import { MemoryRegion } from '../verbs/memory.ts';
import type { Resources } from './endpoint.ts';
import { asBuffer, localMemory, sourceMemory, zeroedBuffer, type LocalMemory } from './local-memory.ts';
import { LargeMemory } from './large-memory.ts';
import { IN_LINE, type Operations } from './operations.ts';
import { RemoteBuffer } from './remote-buffer.ts';

/** Bytes of batches that are kept for their next use. */
const KEEP_BATCHES = 512 << 10;
/**
 * A large message is read in pieces of this size, this number at a time. Each Read Request is a system call
 * that also does TCP's work for what the sender has waiting: with pieces of 1 MiB the receiver had a fifth
 * more to do (bench/performance-log.md). Larger ones gain nothing, and other Reads of this side wait longer.
 */
const PIECE = 4 << 20;
const PIECES = 4;
/** Bytes of released large messages that wait for the next ones. */
const KEEP_OCTETS = 128 << 20;

/** A batch in memory that the device reaches. */
interface OwnBatch extends Batch {
  /** In worker engines, which reach only registered memory. */
  readonly region: MemoryRegion | null;
}

/** The parts of a connection that its carrier needs. */
interface CarrierOptions {
  readonly resources: Resources;
  readonly operations: Operations;
  readonly batchOctets: number;
  readonly violated: (words: string) => void;
  /** The peer does not deliver a large message. */
  readonly stalled: (words: string) => void;
  /** Bytes that have come from the peer so far. */
  readonly octetsIn: () => number;
  readonly ended: (operation: string) => IwarpError;
  readonly idle: () => void;
}

/** @internal */
export class SessionCarrier implements Carrier {
  readonly batchOctets: number;
  readonly violated: (words: string) => void;
  readonly ended: (operation: string) => IwarpError;
  readonly idle: () => void;
  readonly #r: Resources;
  readonly #operations: Operations;
  readonly #memory: LargeMemory;
  readonly #stalled: (words: string) => void;
  readonly #octetsIn: () => number;
  readonly #alarm: Alarm;
  /** Large messages that are being read. */
  #pulls = 0;
  readonly #spare: FreeList<OwnBatch>;

  constructor(options: CarrierOptions) {
    const { resources, operations, batchOctets, violated, stalled, octetsIn, ended, idle } = options;
    this.#r = resources;
    this.#operations = operations;
    this.batchOctets = batchOctets;
    this.#spare = new FreeList(
      Math.ceil(KEEP_BATCHES / batchOctets),
      ({ region }) => void region?.deregister(),
    );
    this.violated = violated;
    this.#stalled = stalled;
    this.#octetsIn = octetsIn;
    this.ended = ended;
    this.idle = idle;
    const { rnic, largeMessageMemory } = resources.endpoint;
    this.#alarm = new Alarm(rnic.scheduler);
    this.#memory = new LargeMemory(resources.pd, rnic.scheduler, Math.min(largeMessageMemory, KEEP_OCTETS));
  }

  takeBatch(): Batch {
    return this.#spare.take() ?? this.#makeBatch();
  }

  #makeBatch(): OwnBatch {
    const { pd, registrar } = this.#r;
    const bytes = pd.device.allocateMemory(this.batchOctets);
    const region = registrar.inThread ? null : pd.registerMemory(bytes, ACCESS.LOCAL_WRITE);
    return { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length), region };
  }

  sendBatch(batch: Batch, length: number, sent: () => void): void {
    const { bytes, region } = batch as OwnBatch;
    const memory = region === null ? bytes.subarray(0, length) : { mr: region, offset: 0, length };
    const operations = this.#operations;
    if (operations.quiet) return; // the connection ends, and all that waits with it
    const { sges, inline, cleanup } = sourceMemory(this.#r, 'batch', memory);
    const left = operations.submit(
      { opcode: 'send', wrId: IN_LINE, sges, inline, solicited: true },
      true,
      cleanup,
      undefined,
      undefined,
    );
    left.then(
      () => {
        this.#spare.put(batch as OwnBatch);
        sent();
      },
      () => undefined, // the connection has ended
    );
  }

  defer(task: () => void): void {
    this.#r.endpoint.rnic.scheduler.defer(task);
  }

  copy(bytes: Uint8Array): Uint8Array {
    const copy = zeroedBuffer(bytes.length);
    copy.set(bytes);
    return copy;
  }

  allocate(length: number): Uint8Array {
    return zeroedBuffer(length);
  }

  offer(memory: Uint8Array): Offer {
    const { pd, registrar } = this.#r;
    let bytes = memory;
    if (!registrar.inThread && !isShared(memory)) {
      bytes = pd.device.allocateMemory(memory.length);
      putBytes(memory, bytes, 0);
    }
    const region = pd.registerMemory(bytes, ACCESS.REMOTE_READ);
    return {
      ticket: RemoteBuffer.of(region).toBytes(),
      withdraw: () => void (pd.deallocated || !region.valid || region.deregister()),
    };
  }

  async pull(ticket: Uint8Array, use: 'lent' | 'given'): Promise<Pulled> {
    const remote = RemoteBuffer.fromBytes(ticket);
    const { length } = remote;
    const memory = this.#memory;
    const region = use === 'lent' ? memory.take(length) : memory.make(length);
    if (use === 'given') warmHeap.given(length);
    if (this.#pulls++ === 0) this.#watch();
    try {
      let at = 0;
      const reader = async (): Promise<void> => {
        while (at < length) {
          const offset = at;
          const piece = Math.min(PIECE, length - offset);
          at += piece;
          await this.#read(region, offset, piece, remote.address + BigInt(offset), remote.rkey);
        }
      };
      await Promise.all(Array.from({ length: PIECES }, reader));
    } catch (error) {
      memory.abandon(region);
      throw error;
    } finally {
      if (--this.#pulls === 0) this.#alarm.stop();
    }
    const bytes = asBuffer(region.bytes.subarray(0, length));
    if (use === 'lent') return { bytes, release: () => memory.give(region) };
    memory.abandon(region);
    return { bytes, release: () => undefined };
  }

  /** While large messages are being read, bytes of the peer come. */
  #watch(): void {
    const before = this.#octetsIn();
    const limit = this.#r.endpoint.largeMessageTimeout;
    this.#alarm.setForSilence(limit, () => {
      if (this.#octetsIn() !== before) this.#watch();
      else this.#stalled(`the peer has announced a large message, and no byte came for ${limit} ms`);
    });
  }

  #read(mr: MemoryRegion, offset: number, length: number, remoteAddr: bigint, rkey: number): Promise<void> {
    return this.#operations.submit(
      { opcode: 'rdma-read', wrId: IN_LINE, sges: [{ mr, offset, length }], rkey, remoteAddr },
      false,
      null,
      undefined,
      undefined,
    );
  }

  /** The connection is gone. */
  close(): void {
    this.#alarm.stop();
    this.#spare.close();
    this.#memory.close();
  }
}

/** @internal The bytes of `memory` if a solicited message of them would be taken for a batch, else null. */
export function batchLike(own: Resources, memory: LocalMemory): Uint8Array | null {
  const bytes = ArrayBuffer.isView(memory)
    ? checkBytes('data', memory)
    : localMemory(own, 'data', memory, 0).bytes;
  return isBatch(bytes) ? bytes : null;
}

/** @internal The bytes of `memory` if they are more than `most`; null if they go into a message. */
export function largeBytes(own: Resources, memory: LocalMemory, most: number): Uint8Array | null {
  if (ArrayBuffer.isView(memory)) return memory.byteLength > most ? checkBytes('data', memory) : null;
  if (memory instanceof MemoryRegion && memory.length <= most) return null;
  const { bytes } = localMemory(own, 'data', memory, 0);
  return bytes.length > most ? bytes : null;
}
