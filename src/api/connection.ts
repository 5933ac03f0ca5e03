/**
 * A connection for Node programmers: promises and async iteration over one queue pair. Built on verbs and cm only.
 *
 * A call that returns a promise rejects if its arguments are wrong. Other calls throw.
 */
import { signalOf, whenAborted } from '../base/abort.ts';
import { checkBoolean, checkInteger, IwarpError, orNoMemory, type Names } from '../base/errors.ts';
import { promised } from '../base/promised.ts';
import { checkU64 } from '../base/u64.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StreamCounters } from '../rdmap/stream-types.ts';
import type { PortAddress } from '../transport/port.ts';
import { warmHeap } from '../transport/warm-heap.ts';
import type { WorkCompletion } from '../verbs/cq.ts';
import { ACCESS, type MemoryWindow, type ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion, RegisterOptions, Sge } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { Credits, isFarewell, isGrant } from './credits.ts';
import { destroyResources, type Resources } from './endpoint.ts';
import { closeError, TerminateError, type CloseInfo } from './errors.ts';
import { Farewell } from './farewell.ts';
import type { Hello } from './hello.ts';
import { Inbox } from './inbox.ts';
import { LatencyRecorder, type Latency } from './latency.ts';
import {
  allocateBytes, localMemory, rightsOf, sinkFor, sourceFor, sourceMemory, ticketTo, type AllocateOptions, type LocalMemory, type PeerAccess,
} from './local-memory.ts';
import type { Message } from './message.ts';
import { Messages } from './messages.ts';
import { IN_LINE, Operations, type OperationOptions, type OperationRequest } from './operations.ts';
import { checkRemote, type RemoteBuffer } from './remote-buffer.ts';

/** Options of {@link Connection.send}. */
export interface SendOptions extends OperationOptions {
  /** Send with Solicited Event: notifies a peer that waits for solicited events only. */
  readonly solicited?: boolean | undefined;
  /** STag of the peer to invalidate when the message is delivered (Send with Invalidate). */
  readonly invalidate?: number | undefined;
}

/** Options of {@link Connection.sendImmediate}. */
export type SendImmediateOptions = Omit<SendOptions, 'invalidate'>;

/** Options of {@link Connection.fetchAdd}. */
export interface FetchAddOptions extends OperationOptions {
  /** Each bit set is the top bit of a field: no carry leaves it. Default 0: one 64-bit field. */
  readonly addMask?: bigint | undefined;
}

/** Options of {@link Connection.compareSwap}. */
export interface CompareSwapOptions extends OperationOptions {
  /** Bits that are compared. Default: all. */
  readonly compareMask?: bigint | undefined;
  /** Bits that are written. Default: all. */
  readonly swapMask?: bigint | undefined;
}

const SEND: Names<SendOptions> = { signal: true, solicited: true, invalidate: true };
const SEND_IMMEDIATE: Names<SendImmediateOptions> = { signal: true, solicited: true };
const FETCH_ADD: Names<FetchAddOptions> = { signal: true, addMask: true };
const COMPARE_SWAP: Names<CompareSwapOptions> = { signal: true, compareMask: true, swapMask: true };

/** Completions taken per poll. */
const POLL_BATCH = 64;
const ATOMIC_OCTETS = 8;
const TEXT = new TextEncoder();
/** What `send` takes. */
const SENT = 'a string, a MemoryRegion, an Sge or an ArrayBufferView';

/** Immediate Data that this layer keeps for itself between two of our own endpoints. */
const isOurs = (immediate: bigint): boolean => isGrant(immediate) || isFarewell(immediate);

/**
 * An established connection. {@link connect} and servers make it. Operations start in the order of the calls. They wait in line while the
 * queue is full or the peer has no room.
 *
 * @example
 * await using connection = await connect({ host: '127.0.0.1', port: 4711 });
 * const region = connection.register(new Uint8Array(1 << 20));
 * await connection.write(region, remote);
 */
export class Connection {
  readonly #cm: CmConnection;
  readonly #r: Resources;
  readonly #credits: Credits | null;
  readonly #peer: Hello | null;
  readonly #peerExtensions: boolean | undefined;
  readonly #operations: Operations;
  readonly #farewell: Farewell;
  /** What was registered through the connection; made for the first. */
  #regions: Set<MemoryRegion> | null = null;
  readonly #inbox: Inbox;
  /** As many as have come together once: an idle connection has none. */
  readonly #out: WorkCompletion[] = [];
  #state: 'open' | 'closing' | 'closed' = 'open';
  #terminated: TerminateError | undefined;
  #closeInfo: CloseInfo | undefined;
  #resolveClosed!: (info: CloseInfo) => void;

  /** The private data of the peer's start-up frame, without the announcement that this package adds. */
  readonly privateData: Uint8Array;
  /** What start-up negotiated: revision, CRC, markers, read depths. */
  readonly negotiated: Negotiated;
  /** Our end of the TCP connection. */
  readonly localAddress: PortAddress;
  /** The peer's end of the TCP connection. */
  readonly remoteAddress: PortAddress;
  /** Resolves with the reason when the connection has ended; it never rejects. */
  readonly closed: Promise<CloseInfo>;

  /** @internal */
  constructor(cm: CmConnection, resources: Resources, peer: Hello | null, privateData: Uint8Array) {
    const { qp, cq, endpoint } = resources;
    this.#cm = cm;
    this.#r = resources;
    this.#inbox = new Inbox(resources.buffers, (index) => this.#freed(index));
    this.#peer = peer;
    const credits = peer !== null && peer.extensions && endpoint.extensions;
    this.#credits = credits ? new Credits(peer.credits, endpoint.receives) : null;
    this.#operations = new Operations(qp, endpoint.sends, this.#credits, endpoint.rnic.scheduler);
    this.#peerExtensions = peer?.extensions ?? endpoint.peerExtensions;
    qp.setPeerExtensions(this.#peerExtensions);
    this.#farewell = new Farewell(cm, this.#operations, endpoint.rnic.scheduler, endpoint.policy.closeTimeout);
    this.privateData = privateData;
    this.negotiated = cm.negotiated!;
    this.localAddress = cm.localAddress!;
    this.remoteAddress = cm.remoteAddress!;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    cq.setHandler(() => this.#poll());
    this.#poll();
  }

  // ------------------------------------------------------------------------------------------------------ state

  /** `closing` as soon as either side has begun to close: no new operation can start, and messages that have arrived can still be received. */
  get state(): 'open' | 'closing' | 'closed' {
    return this.#state;
  }

  /**
   * The underlying queue pair, for what this layer does not offer. This layer owns its receives and its completion queue: requests of your own
   * complete unseen, and `drainSend` waits for them. They need no `wrId`; one below 2^30 may be taken for this layer's own if the kind of request is one that
   * it posts too. Memory windows that are bound through it end with the connection.
   */
  get queuePair(): QueuePair {
    return this.#r.qp;
  }

  /**
   * The protection domain whose regions this connection can use. To share regions, give it to another connection as `pd`, and register them
   * through it. Without `pd` each connection has its own, which goes with the connection and what was registered through it.
   */
  get pd(): ProtectionDomain {
    return this.#r.pd;
  }

  /** True if the peer is an endpoint of this package and both sides use credits. */
  get flowControlled(): boolean {
    return this.#credits !== null;
  }

  /** What the peer announced about itself. A foreign peer announces nothing: then it is undefined. */
  get peer(): { readonly maxMessage: number; readonly extensions: boolean } | undefined {
    return this.#peer === null ? undefined : { maxMessage: this.#peer.maxMessage, extensions: this.#peer.extensions };
  }

  /**
   * Whether the peer supports Immediate Data and atomics (RFC 7306): what it announced, else what `peerExtensions` or the preset says, else
   * undefined. Start-up does not tell it for a foreign peer. With `false` those calls reject with ERR_NOT_SUPPORTED. With undefined they
   * are tried, and a peer without them answers with a Terminate.
   */
  get peerExtensions(): boolean | undefined {
    return this.#peerExtensions;
  }

  /** Operations that are posted and not completed, or waiting in line. */
  get pending(): number {
    return this.#operations.size;
  }

  /** Counters of the connection since it began. They can be read after its end too. */
  counters(): StreamCounters {
    return this.#cm.counters();
  }

  /**
   * Measure latencies from now on. A second call starts again with new histograms.
   *
   * @example
   * const latency = connection.measureLatency();
   * await connection.read(remote);
   * console.log(latency.histograms['rdma-read'].percentile(99));
   * latency.stop();
   */
  measureLatency(): Latency {
    const recorder = new LatencyRecorder();
    this.#operations.latency = recorder;
    const stop = (): void => {
      if (this.#operations.latency === recorder) this.#operations.latency = null;
    };
    return { histograms: recorder.histograms, stop };
  }

  // ----------------------------------------------------------------------------------------------------- memory

  /**
   * Register memory in this connection's protection domain. By default the peer may do everything with it, once it has a ticket to it.
   * The registration lasts until `deregister()` or until the connection has ended, in a domain that connections share too. `region.bytes` can
   * still be used afterwards. Memory for longer, or for several connections, is registered through the domain: `pd.registerMemory()`.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_CONNECTION_CLOSED
   *
   * @example
   * const region = connection.register(new Uint8Array(4096), 'read');
   */
  register(memory: ArrayBufferView, access: PeerAccess = 'all', options: RegisterOptions = {}): MemoryRegion {
    const rights = rightsOf(access);
    if (this.#state === 'closed') this.#checkOpen();
    const region = this.#r.pd.registerMemory(memory, rights, options);
    const regions = (this.#regions ??= new Set());
    region.keeper = regions;
    regions.add(region);
    return region;
  }

  /**
   * Allocate zeroed memory and register it. `region.bytes` is the memory.
   *
   * @throws as {@link Connection.register}
   *
   * @example
   * const region = connection.allocate(1 << 20, 'read-write');
   */
  allocate(octets: number, access: PeerAccess = 'all', options: AllocateOptions = {}): MemoryRegion {
    const { bytes, options: rest } = allocateBytes(this.#r.pd.device, octets, options);
    return this.register(bytes, access, rest);
  }

  /**
   * Make a ticket, with which the peer can use a region, a window or part of one. Send it in a message or in private data, or print it. A ticket has
   * 2^32 - 1 octets at most: without `length` it goes so far, or to the end.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD, ERR_INVALID_REGION, ERR_OUT_OF_RANGE
   *
   * @example
   * await connection.send(connection.share(region, 0, 4096).toBytes());
   */
  share(memory: MemoryRegion | MemoryWindow, offset: number = 0, length?: number): RemoteBuffer {
    return ticketTo(this.#r.pd, memory, offset, length);
  }

  // -------------------------------------------------------------------------------------------------- operations

  /**
   * Send one message. Resolves when its octets have been handed to TCP; until then the memory must not change. Waits for room in the
   * queue and, if the peer is an endpoint of this package, for a credit: a peer that does not read slows its senders down.
   *
   * Rejects with ERR_TOO_LARGE if the peer does not take messages of this length, with ERR_INVALID_ARGUMENT and the like for wrong arguments,
   * with ERR_ABORTED, and with the connection's error if the connection ends first.
   *
   * @example
   * await connection.send('hello');
   * await connection.send({ mr: region, offset: 64, length: 16 });
   */
  send(data: LocalMemory | string, options: SendOptions = {}): Promise<void> {
    return promised(() => this.#send(data, options));
  }

  #send(data: LocalMemory | string, options: SendOptions): Promise<void> {
    const signal = this.#checkCall(options, SEND);
    const { solicited, invalidate } = options;
    if (solicited !== undefined) checkBoolean('options.solicited', solicited);
    if (invalidate !== undefined) checkInteger('options.invalidate', invalidate, 0, 0xffff_ffff);
    const { sges, inline, length, cleanup } = sourceMemory(this.#r, 'data', typeof data === 'string' ? TEXT.encode(data) : data, SENT);
    if (this.#peer !== null && length > this.#peer.maxMessage) {
      cleanup?.(false);
      throw new IwarpError('ERR_TOO_LARGE', `data has ${length} octets, the peer takes messages of up to ${this.#peer.maxMessage}`);
    }
    return this.#operations.submit({ opcode: 'send', wrId: IN_LINE, sges, inline, solicited, invalidate }, true, cleanup, signal, undefined);
  }

  /**
   * Send eight octets of Immediate Data (RFC 7306): a message without a body. Rejects with ERR_NOT_SUPPORTED if the peer is known not to accept it. With
   * credits in use, values whose upper 32 bits are 0x69576372 or 0x69576362 are reserved: they carry the credits and announce the close.
   *
   * @example
   * await connection.sendImmediate(42n);
   */
  async sendImmediate(value: bigint, options: SendImmediateOptions = {}): Promise<void> {
    const signal = this.#checkCall(options, SEND_IMMEDIATE);
    const { solicited } = options;
    if (solicited !== undefined) checkBoolean('options.solicited', solicited);
    this.#checkImmediate(value);
    await this.#operations.submit({ opcode: 'immediate', wrId: IN_LINE, immediate: value, solicited }, true, null, signal, undefined);
  }

  /**
   * RDMA Write: copy all octets of `local` into the peer's memory, from the first of `remote` on; `remote` may have more. Resolves when the octets have
   * been handed to TCP. They may not be in place yet: to be sure, send a message after them, or read.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE if `local` has more octets than `remote`, ERR_WRONG_PD, ERR_INVALID_REGION for wrong arguments,
   * ERR_ABORTED, and the connection's error if the connection ends first
   *
   * @example
   * await connection.write(new Uint8Array(64).fill(1), remote.slice(128, 64));
   */
  write(local: LocalMemory, remote: RemoteBuffer, options: OperationOptions = {}): Promise<void> {
    return promised(() => this.#write(local, remote, undefined, this.#checkCall(options)));
  }

  /**
   * RDMA Write followed by Immediate Data: the peer gets a message when the octets are in place.
   *
   * @throws as {@link Connection.write} and {@link Connection.sendImmediate}
   *
   * @example
   * await connection.writeImmediate(block, remote, 7n); // the peer receives a message whose immediate is 7n
   */
  async writeImmediate(local: LocalMemory, remote: RemoteBuffer, value: bigint, options: OperationOptions = {}): Promise<void> {
    const signal = this.#checkCall(options);
    this.#checkImmediate(value);
    await this.#write(local, remote, value, signal);
  }

  /**
   * RDMA Read: copy the peer's memory into local memory, and resolve with it when the octets have arrived. As many octets are read as `local` has,
   * from the first of `remote` on; `remote` may have more. Without `local`, `remote.length` octets are allocated: check the length of a ticket that an
   * untrusted peer has sent.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE if `local` has more octets than `remote`, ERR_WRONG_PD, ERR_INVALID_REGION, ERR_ACCESS for wrong
   * arguments, ERR_LIMIT if the process has no memory for it, ERR_ABORTED, {@link OperationError} if the peer refuses, and the connection's error if the
   * connection ends first
   *
   * @example
   * const bytes = await connection.read(remote.slice(0, 64));
   */
  read(remote: RemoteBuffer, local?: LocalMemory, options: OperationOptions = {}): Promise<Uint8Array> {
    return promised(() => this.#read(remote, local, options));
  }

  #read(remote: RemoteBuffer, local: LocalMemory | undefined, options: OperationOptions): Promise<Uint8Array> {
    const signal = this.#checkCall(options);
    checkRemote('remote', remote);
    const sink = local === undefined ? orNoMemory(remote.length, () => new Uint8Array(remote.length)) : local;
    if (local === undefined) warmHeap.given(remote.length);
    const { sge, bytes, cleanup } = sinkFor(this.#r, sink, remote);
    const { rkey, at } = remote;
    return this.#operations.submit({ opcode: 'rdma-read', wrId: IN_LINE, sges: [sge], rkey, remoteAddr: at }, false, cleanup, signal, bytes);
  }

  /**
   * Add to a 64-bit word in the peer's memory atomically. Resolves with the previous value (RFC 7306 5.1.1).
   *
   * @throws ERR_OUT_OF_RANGE if `remote` has less than 8 octets, ERR_NOT_SUPPORTED if the peer is known to lack atomics, {@link OperationError} if it refuses
   *
   * @example
   * const before = await connection.fetchAdd(counter, 1n);
   */
  async fetchAdd(remote: RemoteBuffer, add: bigint, options: FetchAddOptions = {}): Promise<bigint> {
    const signal = this.#checkCall(options, FETCH_ADD);
    const { addMask } = options;
    checkU64('add', add);
    if (addMask !== undefined) checkU64('options.addMask', addMask);
    return await this.#atomic(
      remote,
      (sges) => ({
        opcode: 'atomic-fetch-add', wrId: IN_LINE, sges, rkey: remote.rkey, remoteAddr: remote.at, add, addMask,
      }),
      signal,
    );
  }

  /**
   * Write `swap` to a 64-bit word in the peer's memory if the word equals `compare`. Resolves with the previous value (RFC 7306 5.1.2).
   *
   * @throws as {@link Connection.fetchAdd}
   *
   * @example
   * const mine = (await connection.compareSwap(lock, 0n, 1n)) === 0n;
   */
  async compareSwap(remote: RemoteBuffer, compare: bigint, swap: bigint, options: CompareSwapOptions = {}): Promise<bigint> {
    const signal = this.#checkCall(options, COMPARE_SWAP);
    const { compareMask, swapMask } = options;
    checkU64('compare', compare);
    checkU64('swap', swap);
    if (compareMask !== undefined) checkU64('options.compareMask', compareMask);
    if (swapMask !== undefined) checkU64('options.swapMask', swapMask);
    return await this.#atomic(
      remote,
      (sges) => ({
        opcode: 'atomic-cmp-swap', wrId: IN_LINE, sges, rkey: remote.rkey, remoteAddr: remote.at, compare, swap, compareMask, swapMask,
      }),
      signal,
    );
  }

  // --------------------------------------------------------------------------------------------------- receiving

  /**
   * Wait for the next message. Messages that arrived before the end of the connection come first; then it resolves with null if the connection
   * was closed in order, and rejects if it failed.
   *
   * @throws ERR_ABORTED, or the error that the connection failed with
   *
   * @example
   * const message = await connection.receive();
   * if (message !== null) {
   *   console.log(message.data);
   *   message.release();
   * }
   */
  receive(options: OperationOptions = {}): Promise<Message | null> {
    return promised(() => this.#inbox.next(signalOf(options)));
  }

  /**
   * Messages until the connection ends, as `for await` over the connection gives them. The caller still has to release the messages it has taken.
   *
   * @example
   * for await (const message of connection.messages({ signal })) {
   *   handle(message.data);
   *   message.release();
   * }
   */
  messages(options: OperationOptions = {}): AsyncGenerator<Message, void, undefined> {
    const signal = signalOf(options);
    return new Messages(() => (signal?.aborted === true ? undefined : this.#inbox.take()), () => this.#inbox.next(signal));
  }

  /**
   * Messages in order of arrival. The loop ends when the peer closes in order, and throws when the connection fails. Release each message:
   * otherwise the peer has to wait.
   */
  [Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    return this.messages();
  }

  // ----------------------------------------------------------------------------------------------------- closing

  /** Resolves when no operation is posted or waiting in line, however they ended. */
  async drain(options: OperationOptions = {}): Promise<void> {
    await this.#operations.whenIdle(signalOf(options));
  }

  /**
   * Finish the operations that were called before, close in order, and resolve with the reason. No new operation can start. A peer that never reads
   * can keep `close` waiting: when `signal` is aborted, the connection is dropped.
   *
   * @example
   * const { cause } = await connection.close({ signal: AbortSignal.timeout(5000) });
   */
  async close(options: OperationOptions = {}): Promise<CloseInfo> {
    const signal = signalOf(options);
    const late = signal?.aborted === true;
    if (late) this.destroy();
    const stop = signal === undefined || late ? null : whenAborted(signal, () => this.destroy());
    if (this.#state === 'open') {
      this.#state = 'closing';
      await this.#operations.whenIdle(undefined);
      this.#farewell.leave(this.#credits !== null);
    }
    const info = await this.closed;
    stop?.();
    return info;
  }

  /** Drop the connection with a reset; pending operations are rejected. */
  destroy(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closing';
    this.#cm.abort();
  }

  /** The same as `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ---------------------------------------------------------------------------------------------------- internals

  /** @internal */
  handleEvent(event: CmEvent): void {
    if ((event.type === 'closing' || event.type === 'terminate') && this.#state === 'open') this.#state = 'closing';
    if (event.type !== 'terminate' && event.type !== 'disconnected') return;
    this.#poll();
    if (event.type === 'terminate') {
      this.#terminated = new TerminateError(event.terminate);
      this.#operations.terminated(this.#terminated);
      return;
    }
    this.#farewell.end();
    this.#state = 'closed';
    const ended = closeError(event.cause, event.error, event.terminate);
    const error = event.cause === 'graceful' ? undefined : ended;
    this.#closeInfo = { cause: event.cause, error, terminate: event.terminate };
    this.#operations.end(ended);
    destroyResources(this.#r, this.#regions ?? []);
    this.#inbox.end(error);
    this.#resolveClosed(this.#closeInfo);
  }

  /** The peer has said farewell: it waits for us to close. */
  #follow(): void {
    const closing = this.#state === 'closing';
    this.#state = 'closing';
    void this.#farewell.follow(closing);
  }

  #checkCall(options: OperationOptions, known?: Names<OperationOptions>): AbortSignal | undefined {
    const signal = signalOf(options, known);
    this.#checkOpen();
    return signal;
  }

  #checkImmediate(value: bigint): void {
    checkU64('value', value);
    if (this.#credits !== null && isOurs(BigInt(value))) {
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'value: upper halves 0x69576372 and 0x69576362 are reserved for credits and close');
    }
    if (this.#peerExtensions === false) throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not accept Immediate Data');
  }

  #write(local: LocalMemory, remote: RemoteBuffer, immediate: bigint | undefined, signal: AbortSignal | undefined): Promise<void> {
    const { sges, inline, cleanup } = sourceFor(this.#r, local, remote);
    const { rkey, at } = remote;
    return this.#operations.submit(
      { opcode: 'rdma-write', wrId: IN_LINE, sges, inline, rkey, remoteAddr: at, immediate }, immediate !== undefined, cleanup, signal, undefined,
    );
  }

  async #atomic(remote: RemoteBuffer, make: (sges: readonly Sge[]) => OperationRequest, signal: AbortSignal | undefined): Promise<bigint> {
    checkRemote('remote', remote);
    if (remote.length < ATOMIC_OCTETS) throw new IwarpError('ERR_OUT_OF_RANGE', `remote: an atomic needs 8 octets, the buffer has ${remote.length}`);
    if (this.#peerExtensions === false) throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not do atomics');
    const result = new BigUint64Array(1);
    const { sge, cleanup } = localMemory(this.#r, 'result', result, ACCESS.LOCAL_WRITE);
    await this.#operations.submit(make([sge]), false, cleanup, signal, undefined);
    return result[0]!;
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
    this.#operations.pump();
  }

  #complete(wc: WorkCompletion): void {
    // By its kind: a number may be the program's own, who has posted on the queue pair.
    const { opcode } = wc;
    if (opcode !== 'receive' && opcode !== 'receive-immediate') this.#operations.complete(wc);
    else if (wc.status === 'success') this.#received(wc.wrId as number, wc);
  }

  #received(index: number, wc: WorkCompletion): void {
    const { immediate } = wc;
    if (this.#credits !== null) {
      if (immediate !== undefined && isOurs(immediate)) {
        this.#post(index);
        if (isFarewell(immediate)) this.#follow();
        else this.#credits.granted(immediate);
        return;
      }
      this.#credits.received();
    }
    this.#inbox.arrived(index, wc);
  }

  /** The program has released a message. */
  #freed(index: number): void {
    if (!this.#post(index) || this.#credits === null) return;
    this.#credits.released();
    if (this.#credits.due) this.#operations.pump();
  }

  /** Post a buffer again; false if the connection takes no more. */
  #post(index: number): boolean {
    const { qp } = this.#r;
    if (this.#state === 'closed' || qp.state !== 'rts') return false;
    this.#r.buffers.post(qp, index);
    return true;
  }

  #checkOpen(): void {
    if (this.#state === 'open') return;
    throw this.#closeInfo?.error ?? this.#terminated ?? new IwarpError('ERR_CONNECTION_CLOSED', `the connection is ${this.#state}`);
  }
}
