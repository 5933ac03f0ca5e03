/**
 * A connection for Node programmers: promises and async iteration over one queue pair. Built on verbs and cm only.
 */
import { checkBytes, checkInteger, IwarpError, show } from '../base/errors.ts';
import { checkU64 } from '../base/u64.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StreamCounters } from '../rdmap/stream-types.ts';
import type { PortAddress } from '../transport/port.ts';
import { createWorkCompletion, type CompletionQueue, type WorkCompletion } from '../verbs/cq.ts';
import { ACCESS } from '../verbs/index.ts';
import { MemoryRegion, type ProtectionDomain, type RegisterOptions, type Sge } from '../verbs/memory.ts';
import type { SendWorkRequest } from '../verbs/post.ts';
import type { QueuePair } from '../verbs/qp.ts';
import type { Rnic } from './environment.ts';
import { abortError, closeError, type CloseInfo } from './errors.ts';
import { GRANT_MARK, RESERVED_RECEIVES, type Hello } from './hello.ts';
import { Message } from './message.ts';
import { RemoteBuffer } from './remote-buffer.ts';
import { Waiters } from './waiters.ts';

/** Options that both sides of the promise layer share. */
export interface EndpointOptions {
  /** Messages that can wait unread. Default 64. */
  readonly receives?: number;
  /** Largest message that can be received, octets. Default 16 KiB. */
  readonly maxMessage?: number;
  /** Operations that can be under way at once. Default 256. */
  readonly sends?: number;
  /** Announce and use credits between two of our own endpoints. Default true; switch off for peers that read private data closely. */
  readonly credits?: boolean;
  /** Protection domain of the connection; one of its own by default. Connections that share regions share a domain. */
  readonly pd?: ProtectionDomain;
  /** Device, transport and clock; the process's own by default. */
  readonly rnic?: Rnic;
}

/** What every operation that waits takes. */
export interface OperationOptions {
  readonly signal?: AbortSignal;
}

export interface SendOptions extends OperationOptions {
  readonly solicited?: boolean;
  /** STag of the peer to invalidate when the message is delivered. */
  readonly invalidate?: number;
}

/** Memory for an operation: registered, registered in part, or any view (registered for the time of the operation). */
export type LocalMemory = MemoryRegion | Sge | ArrayBufferView;

const READ_WRITE: number = ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE | ACCESS.REMOTE_ATOMIC;
/** Completions taken per poll. */
const POLL_BATCH = 64;
const ATOMIC_OCTETS = 8;
const RECEIVE_ID = 0x1_0000_0000;

export const DEFAULT_RECEIVES = 64;
export const DEFAULT_MAX_MESSAGE = 16_384;
export const DEFAULT_SENDS = 256;

interface Operation {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
  readonly cleanup: (() => void) | null;
}

/** @internal Queues and buffers of one connection, made before it is connected. */
export interface Resources {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly ownPd: boolean;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  readonly buffers: MemoryRegion;
  readonly receives: number;
  readonly maxMessage: number;
  readonly extensions: boolean;
}

/** @internal */
export function createResources(options: EndpointOptions, rnic: Rnic): Resources {
  const { device } = rnic;
  const receives = checkInteger('options.receives', options.receives ?? DEFAULT_RECEIVES, 1, 65_536 - RESERVED_RECEIVES);
  const maxMessage = checkInteger('options.maxMessage', options.maxMessage ?? DEFAULT_MAX_MESSAGE, 0, 0x7fff_ffff);
  const sends = checkInteger('options.sends', options.sends ?? DEFAULT_SENDS, 1, device.limits.maxQpWr);
  const pd = options.pd ?? device.allocatePd();
  const total = receives + RESERVED_RECEIVES;
  const cq = device.createCq(total + sends);
  const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxRecvWr: total, maxSendWr: sends });
  const buffers = pd.registerMemory(new Uint8Array(total * maxMessage), ACCESS.LOCAL_WRITE);
  for (let i = 0; i < total; i++) postBuffer(qp, buffers, maxMessage, i);
  return { rnic, pd, ownPd: options.pd === undefined, cq, qp, buffers, receives, maxMessage, extensions: true };
}

function postBuffer(qp: QueuePair, buffers: MemoryRegion, maxMessage: number, index: number): void {
  qp.postRecv({ wrId: RECEIVE_ID + index, sges: [{ mr: buffers, offset: index * maxMessage, length: maxMessage }] });
}

/** @internal Give everything back, once the connection is gone. */
export function destroyResources(resources: Resources): void {
  const { qp, cq, buffers, pd, ownPd } = resources;
  qp.destroy();
  cq.destroy();
  if (buffers.valid) buffers.deregister();
  if (ownPd && pd.users === 0) pd.deallocate();
}

/**
 * An established connection. Made by {@link connect} and by a server.
 *
 * @example
 * await using connection = await connect({ host: '127.0.0.1', port: 4711 });
 * const region = connection.register(new Uint8Array(1 << 20));
 * await connection.write(region, remote);
 */
export class Connection {
  readonly #cm: CmConnection;
  readonly #r: Resources;
  readonly #operations = new Map<number, Operation>();
  readonly #flushed: Operation[] = [];
  readonly #inbox: Message[] = [];
  readonly #readers = new Waiters<Message | null>();
  readonly #room = new Waiters<void>();
  readonly #drained = new Waiters<void>();
  readonly #out: WorkCompletion[] = Array.from({ length: POLL_BATCH }, createWorkCompletion);
  #nextId = 1;
  /** Credits: messages we may send in all, messages sent, messages whose buffers we have posted again, what of that the peer knows. */
  #limit = Number.POSITIVE_INFINITY;
  #sentMessages = 0;
  #reposted = 0;
  #announced = 0;
  #peer: Hello | null;
  #state: 'open' | 'closing' | 'closed' = 'open';
  #closeInfo: CloseInfo | undefined;
  #resolveClosed!: (info: CloseInfo) => void;

  /** The private data of the peer's start-up frame, without our own announcement. */
  readonly privateData: Uint8Array;
  readonly negotiated: Negotiated;
  readonly localAddress: PortAddress;
  readonly remoteAddress: PortAddress;
  /** Settles when the connection has ended, with the reason; it never rejects. */
  readonly closed: Promise<CloseInfo>;

  /** @internal */
  constructor(cm: CmConnection, resources: Resources, peer: Hello | null, privateData: Uint8Array) {
    this.#cm = cm;
    this.#r = resources;
    this.#peer = peer;
    if (peer !== null) this.#limit = peer.credits;
    this.privateData = privateData;
    this.negotiated = cm.negotiated!;
    this.localAddress = cm.localAddress!;
    this.remoteAddress = cm.remoteAddress!;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    resources.cq.setHandler(() => this.#poll());
    this.#poll();
  }

  // ------------------------------------------------------------------------------------------------------ state

  get state(): 'open' | 'closing' | 'closed' {
    return this.#state;
  }

  /** The queue pair underneath, for what this layer does not offer. */
  get queuePair(): QueuePair {
    return this.#r.qp;
  }

  get pd(): ProtectionDomain {
    return this.#r.pd;
  }

  /** True if the peer is one of our own endpoints, with credits. */
  get flowControlled(): boolean {
    return this.#peer !== null;
  }

  /** Counts of the connection; undefined when it has ended. */
  counters(): StreamCounters | undefined {
    return this.#r.qp.counters();
  }

  // ----------------------------------------------------------------------------------------------------- memory

  /**
   * Register memory for use by this connection's protection domain. Default rights: everything, for the peer too.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT
   */
  register(memory: ArrayBufferView, access: number = READ_WRITE, options: RegisterOptions = {}): MemoryRegion {
    return this.#r.pd.registerMemory(memory, access, options);
  }

  /** The ticket that lets the peer use a region. */
  share(region: MemoryRegion): RemoteBuffer {
    return RemoteBuffer.of(region);
  }

  // -------------------------------------------------------------------------------------------------- operations

  /**
   * Send one message. Settles when its octets have been handed to TCP; until then the memory must not change. Waits for room in the
   * queue and, towards our own kind, for credit.
   */
  async send(data: LocalMemory | string, options: SendOptions = {}): Promise<void> {
    const memory = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    const { sge, cleanup } = this.#local('data', memory, 0);
    const length = sge.length ?? sge.mr.length - (sge.offset ?? 0);
    if (this.#peer !== null && length > this.#peer.maxMessage) {
      cleanup?.();
      throw new IwarpError('ERR_TOO_LARGE', `data has ${length} octets, the peer takes messages of up to ${this.#peer.maxMessage}`);
    }
    await this.#message({
      opcode: 'send',
      sges: [sge],
      ...(options.solicited === undefined ? {} : { solicited: options.solicited }),
      ...(options.invalidate === undefined ? {} : { invalidate: options.invalidate }),
    }, options.signal, cleanup);
  }

  /** Send eight octets of Immediate Data (RFC 7306). ERR_NOT_SUPPORTED if the peer told us that it cannot. */
  async sendImmediate(value: bigint, options: OperationOptions & { readonly solicited?: boolean } = {}): Promise<void> {
    checkU64('value', value);
    if (this.#peer !== null && value >> 32n === BigInt(GRANT_MARK)) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `value: the upper half 0x${GRANT_MARK.toString(16)} is reserved for credits`);
    }
    if (this.#peer !== null && !this.#peer.extensions) throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not accept Immediate Data');
    await this.#message({
      opcode: 'immediate', immediate: value, ...(options.solicited === undefined ? {} : { solicited: options.solicited }),
    }, options.signal, null);
  }

  /** RDMA Write: local octets into the peer's memory. Settles when the octets have been handed to TCP. */
  async write(local: LocalMemory, remote: RemoteBuffer, options: OperationOptions = {}): Promise<void> {
    const { sge, cleanup } = this.#local('local', local, 0);
    const length = this.#fit(sge, remote, cleanup);
    await this.#operation({
      opcode: 'rdma-write', sges: [{ ...sge, length }], rkey: remote.rkey, remoteAddr: remote.address,
    }, options.signal, cleanup);
  }

  /** RDMA Write followed by Immediate Data: the peer gets a message when the octets are in place. */
  async writeImmediate(local: LocalMemory, remote: RemoteBuffer, value: bigint, options: OperationOptions = {}): Promise<void> {
    const written = this.write(local, remote, options);
    const [first, second] = await Promise.allSettled([written, this.sendImmediate(value, options)]);
    if (first.status === 'rejected') throw first.reason;
    if (second.status === 'rejected') throw second.reason;
  }

  /** RDMA Read: the peer's memory into local memory. Settles when the octets are here. */
  async read(remote: RemoteBuffer, local: LocalMemory, options: OperationOptions = {}): Promise<void> {
    const { sge, cleanup } = this.#local('local', local, ACCESS.LOCAL_WRITE);
    const length = this.#fit(sge, remote, cleanup);
    await this.#operation({
      opcode: 'rdma-read', sges: [{ ...sge, length }], rkey: remote.rkey, remoteAddr: remote.address,
    }, options.signal, cleanup);
  }

  /** Add to a 64-bit word of the peer, atomically; settles with the value before (RFC 7306 5.1.1). */
  fetchAdd(remote: RemoteBuffer, add: bigint, options: OperationOptions & { readonly addMask?: bigint } = {}): Promise<bigint> {
    const { addMask } = options;
    return this.#atomic(
      remote, (sges) => ({ opcode: 'atomic-fetch-add', sges, rkey: remote.rkey, remoteAddr: remote.address, add, ...(addMask === undefined ? {} : { addMask }) }),
      options.signal,
    );
  }

  /** Put `swap` into a 64-bit word of the peer if it holds `compare`; settles with the value before (RFC 7306 5.1.2). */
  compareSwap(
    remote: RemoteBuffer, compare: bigint, swap: bigint,
    options: OperationOptions & { readonly compareMask?: bigint; readonly swapMask?: bigint } = {},
  ): Promise<bigint> {
    const { compareMask, swapMask } = options;
    return this.#atomic(
      remote,
      (sges) => ({
        opcode: 'atomic-cmp-swap', sges, rkey: remote.rkey, remoteAddr: remote.address, compare, swap,
        ...(compareMask === undefined ? {} : { compareMask }), ...(swapMask === undefined ? {} : { swapMask }),
      }),
      options.signal,
    );
  }

  async #atomic(remote: RemoteBuffer, make: (sges: readonly Sge[]) => SendWorkRequest, signal: AbortSignal | undefined): Promise<bigint> {
    if (!(remote instanceof RemoteBuffer)) throw new IwarpError('ERR_INVALID_ARGUMENT', `remote must be a RemoteBuffer, got ${show(remote)}`);
    if (this.#peer !== null && !this.#peer.extensions) throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not do atomics');
    const result = new BigUint64Array(1);
    const { sge, cleanup } = this.#local('result', result, ACCESS.LOCAL_WRITE);
    await this.#operation(make([{ ...sge, length: ATOMIC_OCTETS }]), signal, cleanup);
    return result[0]!;
  }

  // --------------------------------------------------------------------------------------------------- receiving

  /** The next message; null when the connection has ended in order, a rejection when it failed. */
  receive(options: OperationOptions = {}): Promise<Message | null> {
    const message = this.#inbox.shift();
    if (message !== undefined) return Promise.resolve(message);
    if (this.#state === 'closed') return this.#endOfMessages();
    return this.#readers.wait(options.signal);
  }

  /** Messages until the connection ends. What the loop has not released when it leaves stays the caller's. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    for (let message = await this.receive(); message !== null; message = await this.receive()) yield message;
  }

  #endOfMessages(): Promise<null> {
    const error = this.#closeInfo?.error;
    return error === undefined ? Promise.resolve(null) : Promise.reject(error);
  }

  // ----------------------------------------------------------------------------------------------------- closing

  /** Settles when every operation started so far has ended, well or badly. */
  async drain(options: OperationOptions = {}): Promise<void> {
    while (this.#operations.size > 0 || this.#room.size > 0) await this.#drained.wait(options.signal);
  }

  /** Finish what is under way, close in order, and settle with the reason when all is done. */
  async close(): Promise<CloseInfo> {
    if (this.#state === 'open') {
      await this.drain().catch(() => undefined);
      if (this.state === 'open') {
        this.#state = 'closing';
        this.#cm.disconnect();
      }
    }
    return this.closed;
  }

  /** Drop the connection with a reset; pending operations are rejected. */
  destroy(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closing';
    this.#cm.abort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ---------------------------------------------------------------------------------------------------- internals

  /** @internal */
  handleEvent(event: CmEvent): void {
    if (event.type === 'closing' && this.#state === 'open') this.#state = 'closing';
    if (event.type !== 'disconnected') return;
    this.#poll();
    this.#state = 'closed';
    const failed = event.cause !== 'graceful';
    const error = closeError(event.cause, event.error, event.terminate);
    this.#closeInfo = { cause: event.cause, error: failed ? error : undefined, terminate: event.terminate };
    for (const operation of [...this.#flushed.splice(0), ...this.#operations.values()]) finish(operation, error);
    this.#operations.clear();
    this.#room.rejectAll(error);
    this.#drained.rejectAll(error);
    if (failed) this.#readers.rejectAll(error);
    else while (this.#readers.next(null));
    destroyResources(this.#r);
    this.#resolveClosed(this.#closeInfo);
  }

  #local(name: string, memory: LocalMemory, access: number): { sge: Sge; cleanup: (() => void) | null } {
    this.#checkOpen();
    if (memory instanceof MemoryRegion) return { sge: { mr: memory }, cleanup: null };
    if (!ArrayBuffer.isView(memory)) {
      if ((memory as Sge | null)?.mr instanceof MemoryRegion) return { sge: memory as Sge, cleanup: null };
      throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a MemoryRegion, an Sge or an ArrayBufferView, got ${show(memory)}`);
    }
    // Registration is an entry in a table: memory that is used once needs no ceremony.
    const region = this.#r.pd.registerMemory(checkBytes(name, memory), access);
    return { sge: { mr: region }, cleanup: () => region.valid && region.deregister() };
  }

  #fit(sge: Sge, remote: RemoteBuffer, cleanup: (() => void) | null): number {
    const length = sge.length ?? sge.mr.length - (sge.offset ?? 0);
    let problem: IwarpError | undefined;
    if (!(remote instanceof RemoteBuffer)) {
      problem = new IwarpError('ERR_INVALID_ARGUMENT', `remote must be a RemoteBuffer, got ${show(remote)}`);
    } else if (length > remote.length) {
      problem = new IwarpError('ERR_OUT_OF_RANGE', `local memory has ${length} octets, the remote buffer ${remote.length}`);
    }
    if (problem === undefined) return length;
    cleanup?.();
    throw problem;
  }

  /** A message: an operation that also costs a credit. */
  async #message(request: SendWorkRequest, signal: AbortSignal | undefined, cleanup: (() => void) | null): Promise<void> {
    await this.#operation(request, signal, cleanup, true);
  }

  async #operation(request: SendWorkRequest, signal: AbortSignal | undefined, cleanup: (() => void) | null, message = false): Promise<void> {
    try {
      if (signal?.aborted) throw abortError(signal);
      // In line behind those who wait already, so that operations start in the order of the calls.
      while (this.#room.size > 0 || !this.#mayPost(message)) {
        await this.#room.wait(signal);
        this.#checkOpen();
        if (this.#mayPost(message)) break;
      }
    } catch (error) {
      cleanup?.();
      throw error;
    }
    await this.#post(request, signal, cleanup, message);
  }

  #mayPost(message: boolean): boolean {
    // One entry is kept for grants, so that two sides that only send cannot starve each other of credit.
    if (this.#r.qp.sq.room <= (this.#peer === null ? 0 : 1)) return false;
    return !message || this.#sentMessages < this.#limit;
  }

  #post(request: SendWorkRequest, signal: AbortSignal | undefined, cleanup: (() => void) | null, message: boolean): Promise<void> {
    return new Promise<void>((resolve, reject) => {
      const id = this.#nextId++ % RECEIVE_ID;
      const onAbort = (): void => reject(abortError(signal!));
      signal?.addEventListener('abort', onAbort, { once: true });
      const tidy = (): void => {
        signal?.removeEventListener('abort', onAbort);
        cleanup?.();
      };
      try {
        this.#r.qp.postSend({ ...request, wrId: id });
      } catch (error) {
        tidy();
        reject(error as Error);
        return;
      }
      if (message) this.#sentMessages++;
      this.#operations.set(id, { resolve, reject, cleanup: tidy });
      if (this.#mayPost(message)) this.#room.next();
    });
  }

  #poll(): void {
    const { cq } = this.#r;
    if (cq.destroyed) return;
    for (;;) {
      const n = cq.poll(this.#out, POLL_BATCH);
      for (let i = 0; i < n; i++) this.#complete(this.#out[i]!);
      if (n > 0) continue;
      cq.requestNotify('next');
      if (cq.length === 0) break; // VERBS-118: poll until empty, arm, look again
    }
    this.#wakeRoom();
    if (this.#operations.size === 0 && this.#room.size === 0) while (this.#drained.next());
  }

  #wakeRoom(): void {
    if (this.#room.size > 0 && this.#r.qp.sq.room > 1) this.#room.next();
  }

  #complete(wc: WorkCompletion): void {
    const id = Number(wc.wrId);
    if (id >= RECEIVE_ID) {
      if (wc.status === 'success') this.#received(id - RECEIVE_ID, wc);
      return;
    }
    const operation = this.#operations.get(id);
    if (operation === undefined) return; // a grant of credits
    this.#operations.delete(id);
    if (wc.status === 'success') finish(operation, null);
    else if (wc.status === 'flushed') this.#flushed.push(operation); // the reason comes with the end of the connection
    else finish(operation, new IwarpError('ERR_WORK_COMPLETION', `the operation ended with status ${wc.status}`));
  }

  #received(index: number, wc: WorkCompletion): void {
    const { qp, buffers, maxMessage } = this.#r;
    if (this.#peer !== null && wc.immediate !== undefined && wc.immediate >> 32n === BigInt(GRANT_MARK)) {
      this.#limit = Math.max(this.#limit, unwrap(Number(wc.immediate & 0xffff_ffffn), this.#limit));
      postBuffer(qp, buffers, maxMessage, index);
      this.#wakeRoom();
      return;
    }
    const start = index * maxMessage;
    const data = buffers.bytes.subarray(start, start + (wc.immediate === undefined ? wc.byteLength : 0));
    const message = new Message(data, wc.solicited, wc.invalidatedStag, wc.immediate, () => this.#giveBack(index));
    if (!this.#readers.next(message)) this.#inbox.push(message);
  }

  /** Post a buffer again, and tell our own kind when half of the credits have come back. */
  #giveBack(index: number): void {
    const { qp, buffers, maxMessage, receives } = this.#r;
    if (this.#state === 'closed' || qp.state !== 'rts') return;
    postBuffer(qp, buffers, maxMessage, index);
    if (this.#peer === null) return;
    this.#reposted++;
    if (this.#reposted - this.#announced < Math.max(1, receives >> 1) || qp.sq.room === 0) return;
    this.#announced = this.#reposted;
    const granted = BigInt((receives + this.#reposted) >>> 0);
    qp.postSend({ opcode: 'immediate', immediate: (BigInt(GRANT_MARK) << 32n) | granted, signaled: true, wrId: 0 });
  }

  #checkOpen(): void {
    if (this.#state === 'open') return;
    throw this.#closeInfo?.error ?? new IwarpError('ERR_CONNECTION_CLOSED', `the connection is ${this.#state}`);
  }
}

function finish(operation: Operation, error: Error | null): void {
  operation.cleanup?.();
  if (error === null) operation.resolve();
  else operation.reject(error);
}

/** A 32-bit counter value, given that the true value is not below `near` by more than 2^31. */
function unwrap(value: number, near: number): number {
  const base = near - (near % 0x1_0000_0000);
  const candidate = base + value;
  return candidate < near - 0x8000_0000 ? candidate + 0x1_0000_0000 : candidate;
}
