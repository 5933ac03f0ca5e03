/**
 * A queue pair as client and server of NBD use it: one completion queue, receives in one region, memory for
 * copies, and one function for each request under way.
 */
import { closeError } from '../api/errors.ts';
import type { Rnic } from '../api/environment.ts';
import { IwarpError } from '../base/errors.ts';
import { FreeList, SizedPool } from '../base/pool.ts';
import type { CmConnection, CmEvent } from '../cm/index.ts';
import {
  ACCESS,
  createWorkCompletion,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type Sge,
  type WorkCompletion,
} from '../verbs/index.ts';
import { viewOf } from './wire.ts';

/** Sizes of a port. */
interface QpPortOptions {
  /** Receives. */
  readonly receives: number;
  /** Send-side requests that may be under way. */
  readonly sends: number;
}

/** What a port reports to its owner. */
export interface QpPortOwner {
  /**
   * A message has come; its receive stays taken until `QpPort.repost`. `view` begins where it begins, and may
   * be longer.
   */
  received(index: number, bytes: Uint8Array, view: DataView): void;
  /** The connection has ended; all its memory is free again. */
  ended(error: Error | undefined): void;
}

/** Numbers of send-side requests lie above those of receives; the first is for all that report nothing. */
const FIRST_SEND = 1 << 20;
/** Completions of one poll. */
const BATCH = 32;
/** Longest request that is copied when it is posted. */
const INLINE_BYTES = 64;

type Done = (succeeded: boolean) => void;

/** A receive: the list with the request that posts it, and its memory. */
interface Receive {
  readonly requests: readonly [{ readonly wrId: number; readonly sges: readonly Sge[] }];
  readonly bytes: Uint8Array;
  readonly view: DataView;
}

const NO_BYTES = new Uint8Array(0);
const NO_SGES: readonly Sge[] = [];
/** Memory of a peer: its STag, and the tagged offset there. */
interface PeerMemory {
  readonly stag: number;
  readonly to: bigint | number;
}

/** Registrations without memory that a connection keeps. */
const KEPT_REGIONS = 64;

/**
 * Requests that are filled in again for each post, which keeps nothing of them but the numbers: objects of
 * always the same form, and none made per message, take a third of the time for a READ of 4 KiB
 * (bench/nbd.ts).
 */
const REQUESTS = {
  inline: { opcode: 'send' as const, wrId: FIRST_SEND, signaled: false, inline: NO_BYTES as Uint8Array },
  send: { opcode: 'send' as const, wrId: 0, signaled: true, sges: NO_SGES },
  write: {
    opcode: 'rdma-write' as const,
    wrId: 0,
    signaled: true,
    sges: NO_SGES,
    rkey: 0,
    remoteAddr: 0n as bigint | number,
  },
  read: {
    opcode: 'rdma-read' as const,
    wrId: 0,
    signaled: true,
    sges: NO_SGES,
    rkey: 0,
    remoteAddr: 0n as bigint | number,
  },
};
/** A Write that reports nothing, of one element, and a Send: one call posts both. */
const ELEMENT = { mr: null as unknown as MemoryRegion, offset: 0, length: 0 };
const QUIET_WRITE = {
  opcode: 'rdma-write' as const,
  wrId: FIRST_SEND,
  signaled: false,
  sges: [ELEMENT],
  rkey: 0,
  remoteAddr: 0 as bigint | number,
};
const QUIET_SEND = {
  opcode: 'send' as const,
  wrId: FIRST_SEND,
  signaled: false,
  inline: NO_BYTES as Uint8Array,
};
const WRITE_AND_SEND = [QUIET_WRITE, QUIET_SEND];

export class QpPort {
  readonly pd: ProtectionDomain;
  readonly qp: QueuePair;
  readonly pool: CopyPool;
  /** Memory to register has to be shared between threads. */
  readonly isShared: boolean;
  readonly #rnic: Rnic;
  readonly #cq: CompletionQueue;
  readonly #owner: QpPortOwner;
  readonly #out: WorkCompletion[] = Array.from({ length: BATCH }, createWorkCompletion);
  /** Functions of requests under way, by their numbers above FIRST_SEND, and numbers that are free. */
  readonly #done: (Done | null)[] = [null];
  readonly #free: number[] = [];
  readonly #regions = new Set<MemoryRegion>();
  readonly #idle = new FreeList<MemoryRegion>(KEPT_REGIONS, (region) => this.deregister(region));
  #connection: CmConnection | null = null;
  #receives: readonly Receive[] = [];
  #ended = false;

  constructor(rnic: Rnic, { receives, sends }: QpPortOptions, owner: QpPortOwner, poolAccess: number) {
    this.#rnic = rnic;
    this.#owner = owner;
    const { device } = rnic;
    this.isShared = device.allocateMemory(0).buffer instanceof SharedArrayBuffer;
    this.pd = device.allocatePd();
    this.#cq = device.createCq(receives + sends);
    this.qp = this.pd.createQp({
      sendCq: this.#cq,
      recvCq: this.#cq,
      maxSendWr: sends,
      maxRecvWr: receives,
      maxInline: INLINE_BYTES,
    });
    this.pool = new CopyPool(this, poolAccess);
    this.#cq.setHandler(() => this.#poll());
    this.#cq.requestNotify('next');
  }

  /** Post all receives, each of `length` bytes. */
  postReceives(count: number, length: number): void {
    const region = this.allocate(count * length, ACCESS.LOCAL_WRITE);
    this.#receives = Array.from({ length: count }, (_, wrId) => {
      const offset = wrId * length;
      const bytes = region.bytes.subarray(offset, offset + length);
      return { requests: [{ wrId, sges: [{ mr: region, offset, length }] }], bytes, view: viewOf(bytes) };
    });
    for (let index = 0; index < count; index++) this.repost(index);
  }

  /** Give a receive back to the peer. */
  repost(index: number): void {
    if (!this.#ended) this.qp.postRecv(this.#receives[index]!.requests);
  }

  /** Memory of the device, registered until the port ends. */
  allocate(length: number, access: number): MemoryRegion {
    return this.register(this.#rnic.device.allocateMemory(length), access)!;
  }

  /** Register memory; null if this device cannot reach it. */
  register(memory: Uint8Array, access: number): MemoryRegion | null {
    if (this.isShared && !(memory.buffer instanceof SharedArrayBuffer)) return null;
    const region = this.pd.registerMemory(memory, access);
    this.#regions.add(region);
    return region;
  }

  /**
   * Register memory for a short time; null if this device cannot reach it. A registration that is not in use
   * gets another STag and the other memory, which costs a third of a new one.
   */
  lend(memory: Uint8Array, access: number): MemoryRegion | null {
    const region = this.isShared ? undefined : this.#idle.take();
    if (region === undefined) return this.register(memory, access);
    region.lend(memory, access);
    return region;
  }

  /** The end of {@link lend}. */
  takeBack(region: MemoryRegion): void {
    if (this.isShared || !this.#regions.has(region)) return this.deregister(region);
    region.takeBack();
    this.#idle.put(region);
  }

  deregister(region: MemoryRegion): void {
    if (this.#regions.delete(region) && !region.deregistered) region.deregister();
  }

  /** Send up to 64 bytes, which are copied. */
  sendCopy(bytes: Uint8Array): void {
    const request = REQUESTS.inline;
    request.inline = bytes;
    this.#post(request, null);
  }

  /** Send memory; `done` is called when it is no longer needed. */
  send(sges: readonly Sge[], done: Done): void {
    const request = REQUESTS.send;
    request.sges = sges;
    this.#post(request, done);
  }

  /** Write into the peer's memory. Without `done` only a later request shows that it has ended. */
  write(sge: Sge, { stag, to }: PeerMemory, done: Done | null): void {
    const request = REQUESTS.write;
    request.sges = [sge];
    request.rkey = stag;
    request.remoteAddr = to;
    this.#post(request, done);
  }

  /**
   * Write `length` bytes from `offset` of a region into the peer's memory, then send up to 64 bytes, which
   * are copied.
   */
  writeAndSend(mr: MemoryRegion, offset: number, length: number, to: PeerMemory, bytes: Uint8Array): void {
    if (this.#ended) return;
    ELEMENT.mr = mr;
    ELEMENT.offset = offset;
    ELEMENT.length = length;
    QUIET_WRITE.rkey = to.stag;
    QUIET_WRITE.remoteAddr = to.to;
    QUIET_SEND.inline = bytes;
    try {
      this.qp.postSend(WRITE_AND_SEND);
    } catch (error) {
      this.abort(error as Error);
    }
  }

  /** Read the peer's memory. */
  read(sge: Sge, { stag, to }: PeerMemory, done: Done): void {
    const request = REQUESTS.read;
    request.sges = [sge];
    request.rkey = stag;
    request.remoteAddr = to;
    this.#post(request, done);
  }

  #post(request: (typeof REQUESTS)[keyof typeof REQUESTS], done: Done | null): void {
    if (this.#ended) return done?.(false);
    const slot = done === null ? 0 : (this.#free.pop() ?? this.#done.length);
    this.#done[slot] = done;
    request.wrId = FIRST_SEND + slot;
    request.signaled = done !== null;
    try {
      this.qp.postSend(request);
    } catch (error) {
      this.#take(slot)?.(false);
      this.abort(error as Error);
    }
  }

  /** The function of a request that is over. */
  #take(slot: number): Done | null {
    const done = this.#done[slot] ?? null;
    if (done === null) return null;
    this.#done[slot] = null;
    this.#free.push(slot);
    return done;
  }

  /** The port watches this connection to its end. */
  attach(connection: CmConnection, heard: (event: CmEvent) => void): void {
    this.#connection = connection;
    connection.setHandler((event) => {
      const failed = 'status' in event ? event.error : undefined;
      if (failed !== undefined)
        this.end(new IwarpError('ERR_CONNECT', `cannot connect: ${failed.message}`, { cause: failed }));
      else heard(event);
      if (event.type === 'disconnected')
        this.end(
          event.cause === 'graceful' ? undefined : closeError(event.cause, event.error, event.terminate),
        );
    });
  }

  /** Close in order. */
  disconnect(): void {
    this.#connection?.disconnect();
  }

  /** Drop the connection; `cause` is what it ends with. */
  abort(cause: Error): void {
    this.#abortCause ??= cause;
    this.#connection?.abort();
  }

  #abortCause: Error | undefined;

  /** Everything is over: functions that wait are called, memory is given back. */
  end(error: Error | undefined): void {
    if (this.#ended) return;
    this.#poll();
    this.#ended = true;
    for (let slot = 1; slot < this.#done.length; slot++) this.#take(slot)?.(false);
    this.qp.destroy();
    this.#cq.destroy();
    for (const region of this.#regions) if (!region.deregistered) region.deregister();
    this.#regions.clear();
    this.pd.deallocate();
    this.#owner.ended(this.#abortCause ?? error);
  }

  #poll(): void {
    if (this.#ended || this.#cq.destroyed) return;
    for (;;) {
      const n = this.#cq.poll(this.#out, BATCH);
      for (let i = 0; i < n && !this.#ended; i++) this.#complete(this.#out[i]!);
      if (this.#ended) return;
      if (n > 0) continue;
      // VERBS-118: poll until empty, arm, look again.
      this.#cq.requestNotify('next');
      if (this.#cq.length === 0) return;
    }
  }

  #complete({ wrId, status, byteLength }: WorkCompletion): void {
    const id = Number(wrId);
    if (id >= FIRST_SEND) {
      this.#take(id - FIRST_SEND)?.(status === 'success');
    } else if (status === 'success') {
      const { bytes, view } = this.#receives[id]!;
      const whole = byteLength === bytes.length;
      this.#owner.received(id, whole ? bytes : bytes.subarray(0, byteLength), view);
    }
  }
}

/** Bytes of copies that stay registered on a connection: as many as may be under way at a time. */
const KEPT_BYTES = 64 * 1024 * 1024;
const LEAST_COPY = 64;

/** Registered memory for data that cannot be sent from, or received into, where it lies. */
class CopyPool {
  readonly #port: QpPort;
  readonly #access: number;
  readonly #free = new SizedPool<MemoryRegion>(KEPT_BYTES, (region) => this.#port.deregister(region));

  constructor(port: QpPort, access: number) {
    this.#port = port;
    this.#access = access;
  }

  /** A region of at least `length` bytes. */
  take(length: number): MemoryRegion {
    const size = Math.min(2 ** Math.ceil(Math.log2(Math.max(length, LEAST_COPY))), 0xffff_ffff);
    const kept = this.#free.take(size);
    if (kept?.valid === true) return kept;
    // The peer can invalidate what it has once known.
    if (kept !== undefined) this.#port.deregister(kept);
    return this.#port.allocate(size, this.#access);
  }

  give(region: MemoryRegion): void {
    if (!region.deregistered && region.valid) this.#free.put(region, region.length);
  }
}
