/**
 * A connection for Node programmers: promises and async iteration over one queue pair. Built on verbs and cm
 * only.
 *
 * A call that returns a promise rejects if its arguments are wrong. Other calls throw.
 */
import { signalOf, whenAborted } from '../base/abort.ts';
import {
  checkBoolean,
  checkBytes,
  checkFunction,
  checkInteger,
  IwarpError,
  orNoMemory,
  type Names,
} from '../base/errors.ts';
import { promised } from '../base/promised.ts';
import { checkU64 } from '../base/u64.ts';
import { warnOfAllRights, warnOfMessages } from './environment.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { Negotiated } from '../mpa/policy.ts';
import type { StreamCounters } from '../stream/types.ts';
import type { PortAddress } from '../transport/port.ts';
import type { TlsInfo } from '../transport/tls-options.ts';
import { warmHeap } from '../transport/warm-heap.ts';
import type { WorkCompletion } from '../verbs/cq.ts';
import { ACCESS, type MemoryWindow, type ProtectionDomain } from '../verbs/index.ts';
import type { MemoryRegion, RegisterOptions, Sge } from '../verbs/memory.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { Credits, isFarewell, isGrant } from './credits.ts';
import {
  checkName,
  checkRegion,
  checkString,
  COMPARE_SWAP,
  FETCH_ADD,
  SEND,
  SEND_IMMEDIATE,
  type CompareSwapOptions,
  type FetchAddOptions,
  type SendImmediateOptions,
  type SendOptions,
} from './connection-options.ts';
import { displayAs } from './display.ts';
import { destroyResources, usesCredits, type Resources } from './endpoint.ts';
import {
  closeError,
  failureOf,
  operationEnd,
  peerName,
  TerminateError,
  type CloseInfo,
  type ErrorContext,
} from './errors.ts';
import { CloseHandshake } from './close-handshake.ts';
import { Frames, WHAT_FRAMES_NEED } from './frames.ts';
import { Liveness } from './liveness.ts';
import type { Hello } from './hello.ts';
import { InboundWindow } from './inbound-window.ts';
import { Inbox } from './inbox.ts';
import { LatencyRecorder, type Latency } from './latency.ts';
import {
  allocateBytes,
  zeroedBuffer,
  localMemory,
  rightsOf,
  sinkFor,
  sourceFor,
  sourceMemory,
  ticketTo,
  type AllocateOptions,
  type LocalMemory,
  type PeerAccess,
} from './local-memory.ts';
import { TRANSFERRED, type Message } from './message.ts';
import { Messages } from './messages.ts';
import { IN_LINE, Operations, type OperationOptions, type OperationRequest } from './operations.ts';
import { checkRemote, REMOTE_BUFFER_OCTETS, RemoteBuffer } from './remote-buffer.ts';
import type { Request } from '../rpc/requests.ts';
import type { RequestHandler } from '../rpc/session.ts';
import type { ByteStream } from '../rpc/streams.ts';
import { FRAME, isBatch, KIND } from '../rpc/wire.ts';
import { Loan, type LendOptions } from './loan.ts';
import { batchLike, largeBytes } from './session-carrier.ts';

/** Completions taken per poll. */
const POLL_BATCH = 64;
const ATOMIC_OCTETS = 8;
const TEXT = new TextEncoder();
/** Arguments that `send` takes, in the words of its error. */
const SENT = 'a string, a MemoryRegion, an Sge or an ArrayBufferView';

/** Immediate Data that this layer reserves between two endpoints of this package. */
const isOurs = (immediate: bigint): boolean => isGrant(immediate) || isFarewell(immediate);

/**
 * An established connection, made by {@link connect} and by servers. Operations start in the order of the
 * calls, and wait in line while the queue is full or the peer has no room.
 *
 * @example
 * await using connection = await connect({ host: '127.0.0.1', port: 4711 });
 * const region = connection.register(new Uint8Array(1 << 20), 'none');
 * await connection.write(region, remote);
 */
export class Connection {
  static {
    displayAs(Connection, (connection) => ({
      state: connection.state,
      side: connection.#context.side,
      peer: connection.#context.peer,
      local: peerName(connection.localAddress),
      pending: connection.pending,
    }));
  }

  readonly #cm: CmConnection;
  readonly #r: Resources;
  readonly #credits: Credits | null;
  readonly #window: InboundWindow | null;
  readonly #peer: Hello | null;
  readonly #peerExtensions: boolean | undefined;
  readonly #operations: Operations;
  readonly #ending: CloseHandshake;
  readonly #context: ErrorContext;
  /** Made for the first need. */
  #liveness: Liveness | null = null;
  readonly #frames: Frames;
  /** Regions registered through the connection; null before the first. */
  #regions: Set<MemoryRegion> | null = null;
  readonly #inbox: Inbox;
  /** Its length is the most completions that have come together so far: an idle connection has none. */
  readonly #out: WorkCompletion[] = [];
  #terminated: TerminateError | undefined;
  #closeInfo: CloseInfo | undefined;
  #resolveClosed!: (info: CloseInfo) => void;

  /** The private data of the peer's start-up frame, without the announcement that this package adds. */
  readonly privateData: Uint8Array;
  /** Results of start-up: revision, CRC, markers, read depths. */
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
    this.#peer = peer;
    const { scheduler } = endpoint.rnic;
    const { buffers } = resources;
    this.#credits = usesCredits(endpoint, peer) ? new Credits(peer!.credits, resources.firstCredits) : null;
    // From now on the window decides.
    if (this.#credits !== null) qp.onReceiveTaken = null;
    this.#window = this.#credits && new InboundWindow(this.#credits, buffers, qp, scheduler);
    this.#context = {
      peer: peerName(cm.remoteAddress!),
      side: cm.role === 'active' ? 'client' : 'server',
    };
    this.#inbox = new Inbox(buffers, (index) => this.#freed(index), {
      scheduler,
      depth: endpoint.receiveDepth,
      warn: (held, seconds) => warnOfMessages(held, seconds, this.#context.peer),
      lost: () => {
        const words = `received bytes ${TRANSFERRED}`;
        this.#ending.fail(failureOf('ERR_INVALID_REGION', words, this.#context));
      },
    });
    this.#operations = new Operations(qp, {
      max: endpoint.sendDepth,
      credits: this.#credits,
      scheduler,
      context: this.#context,
      callers: endpoint.callerStacks,
    });
    this.#frames = new Frames({
      resources,
      peer,
      operations: this.#operations,
      inbox: this.#inbox,
      octetsIn: () => cm.counters().octetsIn,
      fail: (code, words) => this.#ending.fail(failureOf(code, words, this.#context)),
      ended: (operation) => operationEnd(operation, this.#reason, this.#context),
      over: () => (this.state === 'closed' ? this.#closeInfo! : null),
    });
    this.#peerExtensions = peer?.extensions ?? endpoint.peerExtensions;
    qp.setPeerExtensions(this.#peerExtensions);
    this.#ending = new CloseHandshake(cm, this.#operations, scheduler, {
      silence: endpoint.policy.closeTimeout,
      inAll: endpoint.closeLimit,
    });
    this.privateData = privateData;
    this.negotiated = cm.negotiated!;
    this.localAddress = cm.localAddress!;
    this.remoteAddress = cm.remoteAddress!;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    cq.handleIn(cm.asyncContext, () => this.#poll());
    this.#poll();
    if (endpoint.heartbeat !== null || endpoint.idleTimeout !== undefined) void this.#watch();
  }

  #watch(): Liveness {
    const { heartbeat, idleTimeout, rnic } = this.#r.endpoint;
    return (this.#liveness ??= new Liveness(this.#cm, this.#operations, rnic.scheduler, {
      heartbeat,
      idleTimeout,
      foreign: this.#peer === null,
      arrived: () => this.#inbox.count,
      dead: (ms) => {
        const words = `the peer did not answer a heartbeat within ${ms} ms`;
        this.#ending.fail(failureOf('ERR_TIMEOUT', words, this.#context));
      },
      idle: () => void this.close(),
    }));
  }

  // --------------------------------------------------------------------------------------------------- state

  /**
   * `closing` as soon as either side has begun to close: no new operation can start, and messages that have
   * arrived can still be received.
   */
  get state(): 'open' | 'closing' | 'closed' {
    const { state } = this.#ending;
    return state === 'open' || state === 'closed' ? state : 'closing';
  }

  /** Results of the TLS handshake with the peer: cipher, ALPN, certificate. Undefined without TLS. */
  get tls(): TlsInfo | undefined {
    return this.#cm.tls;
  }

  /**
   * The underlying queue pair, for requests that this layer does not offer. This layer owns its receives and
   * its completion queue: requests that you post complete unseen, and `drainSend` waits for them. They need
   * no `wrId`; one below 2^30 may be mistaken for this layer's if the kind of request is one that it posts
   * too. Memory windows that are bound through it end with the connection.
   */
  get queuePair(): QueuePair {
    return this.#r.qp;
  }

  /**
   * The protection domain whose regions this connection can use. To share regions, give it to another
   * connection as `pd`, and register them through it. Without `pd` each connection has its own, which is
   * deallocated with the connection, together with the regions registered through it.
   */
  get pd(): ProtectionDomain {
    return this.#r.pd;
  }

  /** True if the peer is an endpoint of this package and both sides use credits. */
  get flowControlled(): boolean {
    return this.#credits !== null;
  }

  /** Limits that the peer announced; undefined with a foreign peer, which announces none. */
  get peer(): { readonly maxMessageSize: number; readonly extensions: boolean } | undefined {
    return this.#peer === null
      ? undefined
      : { maxMessageSize: this.#peer.maxMessageSize, extensions: this.#peer.extensions };
  }

  /**
   * Whether the peer supports Immediate Data and atomics (RFC 7306): as it announced, else as
   * `peerExtensions` or the preset says, else undefined. Start-up does not show it for a foreign peer. With
   * `false` those calls reject with ERR_NOT_SUPPORTED. With undefined they are tried, and a peer without them
   * answers with a Terminate.
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

  /**
   * Milliseconds to the peer's stack and back, by an RDMA Read of zero length. It waits for no credit and not
   * for the peer's program. Rejects with ERR_NOT_SUPPORTED if start-up has left no Reads, with ERR_TIMEOUT,
   * ERR_ABORTED, and with the connection's error.
   *
   * @example
   * const ms = await connection.rtt({ timeout: 1000 });
   */
  rtt(options: OperationOptions = {}): Promise<number> {
    return promised(() => {
      const signal = this.#checkCall('rtt', options);
      const liveness = this.#watch();
      if (liveness.canRead) return liveness.roundTrip(signal);
      throw new IwarpError('ERR_NOT_SUPPORTED', 'rtt: start-up has left this side no RDMA Reads (ORD is 0)');
    });
  }

  // -------------------------------------------------------------------------------------------------- memory

  /**
   * Register memory in this connection's protection domain. Name the rights of a peer that has a ticket:
   * without `access` it has all (`'all'`: read, write and atomics), of which the process is warned once. The
   * registration lasts until `deregister()` or until the connection has ended, in a domain that connections
   * share too. `region.bytes` can still be used afterwards. Memory for longer, or for several connections, is
   * registered through the domain: `pd.registerMemory()`.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_LIMIT, ERR_CONNECTION_CLOSED
   *
   * @example
   * const region = connection.register(new Uint8Array(4096), 'read');
   */
  register(memory: ArrayBufferView, access?: PeerAccess, options: RegisterOptions = {}): MemoryRegion {
    if (access === undefined) warnOfAllRights();
    const rights = rightsOf(access === undefined ? 'all' : access);
    if (this.state === 'closed') this.#checkOpen('register');
    const region = this.#r.pd.registerMemory(memory, rights, options);
    const regions = (this.#regions ??= new Set());
    region.owner = regions;
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
  allocate(octets: number, access?: PeerAccess, options: AllocateOptions = {}): MemoryRegion {
    const { bytes, options: rest } = allocateBytes(this.#r.pd.device, octets, options);
    return this.register(bytes, access, rest);
  }

  /**
   * Make a ticket, with which the peer can use a region, a window or part of one. Send it in a message or in
   * private data, or print it. A ticket has 2^32 - 1 bytes at most: without `length` it goes so far, or to
   * the end.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD, ERR_INVALID_REGION, ERR_OUT_OF_RANGE
   *
   * @example
   * await connection.send(connection.share(region, 0, 4096).toBytes());
   */
  share(memory: MemoryRegion | MemoryWindow, offset: number = 0, length?: number): RemoteBuffer {
    return ticketTo(this.#r.pd, memory, offset, length);
  }

  /**
   * Lend the peer a region, or a part of it, by a separate ticket that ends: after a time, after one use,
   * when it is revoked, when the peer invalidates it (`send` with `invalidate`), or with the connection.
   * `loan.ended` says so. With `uses: 1` the peer need not invalidate, and only this connection's peer can
   * use the ticket.
   *
   * @throws as {@link Connection.share} and {@link Connection.register}
   *
   * @example
   * const loan = connection.lend(region, 'read', { expires: 5000, uses: 1 });
   * await connection.send(loan.ticket.toBytes());
   * await loan.ended; // 'used': the region can have other contents now
   */
  lend(memory: MemoryRegion, access: PeerAccess, options: LendOptions = {}): Loan {
    this.#checkOpen('lend');
    checkRegion('memory', memory);
    const { qp, endpoint } = this.#r;
    return new Loan(qp, endpoint.rnic.scheduler, memory, access, options, (this.#regions ??= new Set()));
  }

  // ---------------------------------------------------------------------------------------------- operations

  /**
   * Send one message. Resolves when its bytes have been handed to TCP; until then the memory must not
   * change. Waits for room in the queue and, if the peer is an endpoint of this package, for a credit: a peer
   * that does not read slows its senders down.
   *
   * A message above the peer's `maxMessageSize` is announced, and read by the peer when it has room; the
   * promise resolves when it has been read. It must not change until then, also after an abort. That needs
   * endpoints of this package at both ends. A foreign peer does not say how large its receives are: it ends
   * the connection with a Terminate when a message is longer than the one that it would fill.
   *
   * Rejects with ERR_TOO_LARGE if the peer does not take messages of this length, with ERR_INVALID_ARGUMENT
   * and the like for wrong arguments, with ERR_ABORTED, and with the connection's error if the connection
   * ends first.
   *
   * @example
   * await connection.send('hello');
   * await connection.send({ mr: region, offset: 64, length: 16 });
   */
  send(data: LocalMemory | string, options: SendOptions = {}): Promise<void> {
    return promised(() => this.#send(data, options));
  }

  #send(data: LocalMemory | string, options: SendOptions): Promise<void> {
    const signal = this.#checkCall('send', options, SEND);
    const { solicited, invalidate } = options;
    if (solicited !== undefined) checkBoolean('options.solicited', solicited);
    if (invalidate !== undefined) checkInteger('options.invalidate', invalidate, 0, 0xffff_ffff);
    const given = typeof data === 'string' ? TEXT.encode(data) : data;
    if (this.#peer !== null && typeof given === 'object' && given !== null) {
      const large = largeBytes(this.#r, given, this.#peer.maxMessageSize);
      if (large !== null) return this.#sendLarge(large, options, signal);
      if (solicited === true && invalidate === undefined && this.#frames.taken) {
        const like = batchLike(this.#r, given);
        if (like !== null) return this.#frames.session.large.send(KIND.MESSAGE, like, signal);
      }
    }
    const { sges, inline, cleanup } = sourceMemory(this.#r, 'data', given, SENT);
    return this.#operations.submit(
      { opcode: 'send', wrId: IN_LINE, sges, inline, solicited, invalidate },
      true,
      cleanup,
      signal,
      undefined,
    );
  }

  #sendLarge(bytes: Uint8Array, options: SendOptions, signal: AbortSignal | undefined): Promise<void> {
    const plain = options.solicited !== true && options.invalidate === undefined;
    if (this.#frames.taken && plain) return this.#frames.session.large.send(KIND.MESSAGE, bytes, signal);
    const why = plain
      ? `larger ones need ${WHAT_FRAMES_NEED}`
      : 'with solicited or invalidate a message is one Send, which cannot be larger';
    throw new IwarpError(
      'ERR_TOO_LARGE',
      `data has ${bytes.length} bytes, the peer takes messages of up to ${this.#peer!.maxMessageSize}: ` +
        `${why}; raise maxMessageSize at the peer, or share a region that holds the data and send its ticket`,
    );
  }

  /**
   * Send eight bytes of Immediate Data (RFC 7306): a message without a body. Rejects with ERR_NOT_SUPPORTED
   * if the peer is known not to accept it. With credits in use, values whose upper 32 bits are 0x69576372 or
   * 0x69576362 are reserved: they carry the credits, and announce the close.
   *
   * @example
   * await connection.sendImmediate(42n);
   */
  sendImmediate(value: bigint, options: SendImmediateOptions = {}): Promise<void> {
    return promised(() => this.#sendImmediate(value, options));
  }

  #sendImmediate(value: bigint, options: SendImmediateOptions): Promise<void> {
    const signal = this.#checkCall('immediate', options, SEND_IMMEDIATE);
    const { solicited } = options;
    if (solicited !== undefined) checkBoolean('options.solicited', solicited);
    this.#checkImmediate(value);
    return this.#operations.submit(
      { opcode: 'immediate', wrId: IN_LINE, immediate: value, solicited },
      true,
      null,
      signal,
      undefined,
    );
  }

  /**
   * RDMA Write: copy all bytes of `local` into the peer's memory, from the first of `remote` on; `remote`
   * may have more. Resolves when the bytes have been handed to TCP. They may not be in place yet: to be
   * sure, send a message after them, or read.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE if `local` has more bytes than `remote`, ERR_WRONG_PD,
   *   ERR_INVALID_REGION for wrong arguments, ERR_ABORTED, and the connection's error if the connection ends
   *   first
   *
   * @example
   * await connection.write(new Uint8Array(64).fill(1), remote.slice(128, 64));
   */
  write(local: LocalMemory, remote: RemoteBuffer, options: OperationOptions = {}): Promise<void> {
    return promised(() => this.#write(local, remote, undefined, this.#checkCall('rdma-write', options)));
  }

  /**
   * RDMA Write followed by Immediate Data: the peer gets a message when the bytes are in place.
   *
   * @throws as {@link Connection.write} and {@link Connection.sendImmediate}
   *
   * @example
   * await connection.writeImmediate(block, remote, 7n); // the peer receives a message whose immediate is 7n
   */
  writeImmediate(
    local: LocalMemory,
    remote: RemoteBuffer,
    value: bigint,
    options: OperationOptions = {},
  ): Promise<void> {
    return promised(() => {
      const signal = this.#checkCall('rdma-write', options);
      this.#checkImmediate(value);
      return this.#write(local, remote, value, signal);
    });
  }

  /**
   * RDMA Read: copy the peer's memory into local memory, and resolve with it when the bytes have arrived. As
   * many bytes are read as `local` has, from the first of `remote` on; `remote` may have more. Without
   * `local`, `remote.length` bytes are allocated: check the length of a ticket that an untrusted peer has
   * sent.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE if `local` has more bytes than `remote`, ERR_WRONG_PD,
   *   ERR_INVALID_REGION, ERR_ACCESS for wrong arguments, ERR_LIMIT if the process has no memory for it,
   *   ERR_ABORTED, {@link OperationError} if the peer refuses, and the connection's error if the connection
   *   ends first
   *
   * @example
   * const bytes = await connection.read(remote.slice(0, 64));
   */
  read(remote: RemoteBuffer, local?: LocalMemory, options: OperationOptions = {}): Promise<Uint8Array> {
    return promised(() => this.#read(remote, local, options));
  }

  #read(
    remote: RemoteBuffer,
    local: LocalMemory | undefined,
    options: OperationOptions,
  ): Promise<Uint8Array> {
    const signal = this.#checkCall('rdma-read', options);
    checkRemote('remote', remote);
    const sink = local === undefined ? orNoMemory(remote.length, () => zeroedBuffer(remote.length)) : local;
    if (local === undefined) warmHeap.given(remote.length);
    const { sge, bytes, cleanup } = sinkFor(this.#r, sink, remote);
    const { rkey, at } = remote;
    return this.#operations.submit(
      { opcode: 'rdma-read', wrId: IN_LINE, sges: [sge], rkey, remoteAddr: at },
      false,
      cleanup,
      signal,
      bytes,
    );
  }

  /**
   * Add to a 64-bit word in the peer's memory atomically. Resolves with the previous value (RFC 7306 5.1.1).
   *
   * @throws ERR_OUT_OF_RANGE if `remote` has less than 8 bytes, ERR_NOT_SUPPORTED if the peer is known to
   *   lack atomics, {@link OperationError} if it refuses
   *
   * @example
   * const before = await connection.fetchAdd(counter, 1n);
   */
  fetchAdd(remote: RemoteBuffer, add: bigint, options: FetchAddOptions = {}): Promise<bigint> {
    return promised(() => this.#fetchAdd(remote, add, options));
  }

  #fetchAdd(remote: RemoteBuffer, add: bigint, options: FetchAddOptions): Promise<bigint> {
    const signal = this.#checkCall('atomic-fetch-add', options, FETCH_ADD);
    const { addMask } = options;
    checkU64('add', add);
    if (addMask !== undefined) checkU64('options.addMask', addMask);
    return this.#atomic(
      remote,
      (sges) => ({
        opcode: 'atomic-fetch-add',
        wrId: IN_LINE,
        sges,
        rkey: remote.rkey,
        remoteAddr: remote.at,
        add,
        addMask,
      }),
      signal,
    );
  }

  /**
   * Write `swap` to a 64-bit word in the peer's memory if the word equals `compare`. Resolves with the
   * previous value (RFC 7306 5.1.2).
   *
   * @throws as {@link Connection.fetchAdd}
   *
   * @example
   * const mine = (await connection.compareSwap(lock, 0n, 1n)) === 0n;
   */
  compareSwap(
    remote: RemoteBuffer,
    compare: bigint,
    swap: bigint,
    options: CompareSwapOptions = {},
  ): Promise<bigint> {
    return promised(() => this.#compareSwap(remote, compare, swap, options));
  }

  #compareSwap(
    remote: RemoteBuffer,
    compare: bigint,
    swap: bigint,
    options: CompareSwapOptions,
  ): Promise<bigint> {
    const signal = this.#checkCall('atomic-cmp-swap', options, COMPARE_SWAP);
    const { compareMask, swapMask } = options;
    checkU64('compare', compare);
    checkU64('swap', swap);
    if (compareMask !== undefined) checkU64('options.compareMask', compareMask);
    if (swapMask !== undefined) checkU64('options.swapMask', swapMask);
    return this.#atomic(
      remote,
      (sges) => ({
        opcode: 'atomic-cmp-swap',
        wrId: IN_LINE,
        sges,
        rkey: remote.rkey,
        remoteAddr: remote.at,
        compare,
        swap,
        compareMask,
        swapMask,
      }),
      signal,
    );
  }

  // ------------------------------------------------------------------------------------ requests and streams

  /**
   * Ask the peer's program, and resolve with its reply, whose bytes are the program's to keep. As many
   * requests are under way as the peer takes (`maxRequests`), the others wait in line. `data` must not change
   * until the call settles, also after an abort. `timeout` is known to the peer as its deadline.
   *
   * @throws ERR_REMOTE with the text of the peer's error, ERR_TOO_LARGE above the peer's `maxLargeMessage`,
   *   ERR_NOT_SUPPORTED if the peer is no endpoint of this package that takes requests, ERR_ABORTED,
   *   ERR_TIMEOUT, and the connection's error
   *
   * @example
   * const reply = await connection.request('what time is it?', { timeout: 1000 });
   */
  request(data: ArrayBufferView | string, options: OperationOptions = {}): Promise<Uint8Array> {
    return promised(() => {
      const signal = this.#checkCall('request', options);
      const body = typeof data === 'string' ? TEXT.encode(data) : checkBytes('data', data);
      const deadline = options.timeout ?? this.#r.endpoint.operationTimeout ?? 0;
      return this.#frames.asking.request(FRAME.REQUEST, body, signal, deadline);
    });
  }

  /**
   * The requests of the peer, in order of arrival. Several may be under way: answer each by its `reply` or
   * `fail`. The loop ends when the peer closes in order, and throws when the connection fails.
   *
   * @example
   * for await (const request of connection.requests()) void answer(request);
   */
  requests(options: OperationOptions = {}): AsyncIterableIterator<Request> {
    return this.#frames.session.requests.iterate(signalOf(options));
  }

  /**
   * Answer every request of the peer with the value of `handler`, or with its error. Resolves when the
   * connection has ended in order, and rejects when it failed.
   *
   * @example
   * await connection.serve(async (request) => (await find(request.text())).body);
   */
  serve(handler: RequestHandler): Promise<void> {
    return promised(() => {
      checkFunction('handler', handler);
      return this.#frames.session.serve(handler);
    });
  }

  /**
   * Open a byte stream to the peer, which gets its end from {@link Connection.streams}. A connection carries
   * 256 of them for each side beside everything else.
   *
   * @throws ERR_NOT_SUPPORTED if the peer is no endpoint of this package, ERR_LIMIT, ERR_TOO_LARGE for a name
   *   of more than 255 bytes, and the connection's error
   *
   * @example
   * await pipeline(createReadStream('big.iso'), connection.stream('big.iso'));
   */
  stream(name: string = ''): ByteStream {
    this.#checkOpen('stream');
    return this.#frames.session.streams.open(checkString('name', name));
  }

  /** The streams that the peer opens, in order of arrival. */
  streams(options: OperationOptions = {}): AsyncIterableIterator<ByteStream> {
    return this.#frames.session.incoming.iterate(signalOf(options));
  }

  /**
   * Give the peer memory under a name, which it finds by {@link Connection.lookup}. A function is called for
   * each lookup and makes its ticket. Null takes the name back; tickets that are out stay.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_NOT_SUPPORTED, as {@link Connection.share}
   *
   * @example
   * connection.publish('counters', region);
   */
  publish(name: string, memory: MemoryRegion | MemoryWindow | (() => RemoteBuffer) | null): void {
    checkName(name);
    if (memory !== null && typeof memory !== 'function') this.share(memory);
    const make = typeof memory === 'function' ? memory : () => this.share(memory!);
    this.#frames.session.published.publish(name, memory === null ? null : () => make().toBytes());
  }

  /**
   * Find memory that the peer has published, or publishes while this waits.
   *
   * @throws as {@link Connection.request}
   *
   * @example
   * const counters = await connection.lookup('counters', { timeout: 1000 });
   */
  lookup(name: string, options: OperationOptions = {}): Promise<RemoteBuffer> {
    return promised(async () => {
      const signal = this.#checkCall('lookup', options);
      const ticket = await this.#frames.asking.request(FRAME.LOOKUP, checkName(name), signal, 0);
      if (ticket.length === REMOTE_BUFFER_OCTETS) return RemoteBuffer.fromBytes(ticket);
      throw new IwarpError('ERR_PROTOCOL', `lookup: the answer has ${ticket.length} bytes, and is no ticket`);
    });
  }

  // ----------------------------------------------------------------------------------------------- receiving

  /**
   * Wait for the next message. Messages that arrived before the end of the connection come first; then it
   * resolves with null if the connection was closed in order, and rejects if it failed.
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
   * Messages until the connection ends, as `for await` over the connection gives them. The caller still has
   * to release the messages it has taken.
   *
   * @example
   * for await (const message of connection.messages({ signal })) {
   *   handle(message.data);
   *   message.release();
   * }
   */
  messages(options: OperationOptions = {}): AsyncGenerator<Message, void, undefined> {
    const signal = signalOf(options);
    return new Messages(
      () => (signal?.aborted === true ? undefined : this.#inbox.take()),
      () => this.#inbox.next(signal),
    );
  }

  /**
   * Messages in order of arrival. The loop ends when the peer closes in order, and throws when the connection
   * fails. Release each message: otherwise the peer has to wait.
   */
  [Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    return this.messages();
  }

  // ------------------------------------------------------------------------------------------------- closing

  /** Resolves when no operation is posted or waiting in line, however they ended. */
  async drain(options: OperationOptions = {}): Promise<void> {
    await this.#operations.whenIdle(signalOf(options));
  }

  /**
   * Finish the operations that were called before, close in order, and resolve with the reason. No new
   * operation can start. A peer that never reads can keep `close` waiting: when `signal` is aborted, the
   * connection is dropped.
   *
   * @example
   * const { cause } = await connection.close({ signal: AbortSignal.timeout(5000) });
   */
  async close(options: OperationOptions = {}): Promise<CloseInfo> {
    const signal = signalOf(options);
    const late = signal?.aborted === true;
    if (late) this.destroy();
    const stop = signal === undefined || late ? null : whenAborted(signal, () => this.destroy());
    await this.#ending.close(this.#credits !== null, () => this.#frames.settled());
    const info = await this.closed;
    stop?.();
    return info;
  }

  /**
   * Let TCP probe the peer's system after `delay` ms without bytes (0: as the system is set), or stop that,
   * so that a connection whose path is dead ends; the options `keepAlive` and `keepAliveInitialDelay` do so
   * from the start. False if the transport cannot, or the connection is over.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  setKeepAlive(on: boolean, delay: number = 0): boolean {
    return this.#cm.setKeepAlive(on, delay);
  }

  /** Keep the process alive while the connection is open, as it does unless {@link unref} has been called. */
  ref(): this {
    this.#cm.ref();
    return this;
  }

  /** Let the process end although the connection is open, as `unref` of `net.Socket` does. */
  unref(): this {
    this.#cm.unref();
    return this;
  }

  /** Drop the connection with a reset; pending operations are rejected. */
  destroy(): void {
    if (this.state !== 'closed') this.#ending.destroy();
  }

  /** The same as `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // ----------------------------------------------------------------------------------------------- internals

  /** @internal */
  handleEvent(event: CmEvent): void {
    const { wire } = this.#r.pd.device;
    if (event.type === 'closing' && event.by === 'peer' && wire === 'qpip') {
      // Our direction is still open: the program may answer, and closes.
      this.#poll();
      this.#inbox.end(undefined);
      return;
    }
    const below = this.tls !== undefined ? 'TLS' : wire === 'trp' ? 'UDP' : null;
    if (event.type === 'closing' && event.by === 'peer' && this.#credits !== null && below !== null) {
      this.#poll(); // its farewell may have come with it
      this.#ending.cutOff(below, this.#context);
    }
    if (event.type === 'closing' || event.type === 'terminate') this.#ending.leave();
    if (event.type !== 'terminate' && event.type !== 'disconnected') return;
    this.#poll();
    if (event.type === 'terminate') {
      this.#terminated = new TerminateError(event.terminate);
      this.#operations.terminated(this.#terminated);
      return;
    }
    this.#ended(event);
  }

  #ended({ cause, error, terminate }: Extract<CmEvent, { type: 'disconnected' }>): void {
    const { failure } = this.#ending;
    const late = this.#ending.expired || failure?.code === 'ERR_TIMEOUT';
    const how = late ? 'timeout' : failure !== null ? 'reset' : cause;
    this.#ending.end();
    // Made where something waits for it: an error takes a stack trace, a tenth of what a connection costs.
    let made: IwarpError | null = failure;
    const ended = (): IwarpError => (made ??= closeError(how, error, terminate, this.#context));
    this.#liveness?.end(ended());
    this.#closeInfo = { cause: how, error: how === 'graceful' ? undefined : ended(), terminate };
    this.#operations.end(ended);
    this.#frames.end(this.#closeInfo.error);
    destroyResources(this.#r, this.#regions ?? []);
    this.#inbox.end(this.#closeInfo.error);
    this.#resolveClosed(this.#closeInfo);
  }

  #checkCall(
    operation: string,
    options: OperationOptions,
    known?: Names<OperationOptions>,
  ): AbortSignal | undefined {
    const signal = signalOf(options, known, this.#r.endpoint.operationTimeout);
    this.#checkOpen(operation);
    return signal;
  }

  #checkImmediate(value: bigint): void {
    checkU64('value', value);
    if (this.#credits !== null && isOurs(BigInt(value))) {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        'value: upper halves 0x69576372 and 0x69576362 are reserved for credits',
      );
    }
    if (this.#peerExtensions === false)
      throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not accept Immediate Data');
  }

  #write(
    local: LocalMemory,
    remote: RemoteBuffer,
    immediate: bigint | undefined,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const { sges, inline, cleanup } = sourceFor(this.#r, local, remote);
    const { rkey, at } = remote;
    return this.#operations.submit(
      { opcode: 'rdma-write', wrId: IN_LINE, sges, inline, rkey, remoteAddr: at, immediate },
      immediate !== undefined,
      cleanup,
      signal,
      undefined,
    );
  }

  #atomic(
    remote: RemoteBuffer,
    make: (sges: readonly Sge[]) => OperationRequest,
    signal: AbortSignal | undefined,
  ): Promise<bigint> {
    checkRemote('remote', remote);
    if (remote.length < ATOMIC_OCTETS)
      throw new IwarpError(
        'ERR_OUT_OF_RANGE',
        `remote: an atomic needs 8 bytes, the buffer has ${remote.length}`,
      );
    if (this.#peerExtensions === false)
      throw new IwarpError('ERR_NOT_SUPPORTED', 'the peer does not do atomics');
    const result = new BigUint64Array(1);
    const { sge, cleanup } = localMemory(this.#r, 'result', result, ACCESS.LOCAL_WRITE);
    return this.#operations.submit(make([sge]), false, cleanup, signal, () => result[0]!);
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
    // Chosen by opcode, not by wrId: the program may have posted on the queue pair with any wrId.
    const { opcode } = wc;
    if (opcode !== 'receive' && opcode !== 'receive-immediate') this.#operations.complete(wc);
    else if (wc.status === 'success') this.#received(wc.wrId as number, wc);
  }

  #received(index: number, wc: WorkCompletion): void {
    const { immediate } = wc;
    if (this.#credits !== null) {
      if (immediate === undefined && wc.solicited && this.#batch(index, wc)) return;
      if (immediate !== undefined && isOurs(immediate)) {
        if (this.#takesReceives) this.#r.buffers.post(this.#r.qp, index);
        if (isFarewell(immediate)) void this.#ending.peerLeaves();
        else this.#credits.granted(immediate);
        return;
      }
      this.#window!.received();
    }
    this.#inbox.arrived(index, wc);
  }

  /** A batch of frames: true if the message is one. */
  #batch(index: number, { byteLength, invalidatedStag }: WorkCompletion): boolean {
    const { buffers } = this.#r;
    if (invalidatedStag !== undefined || !this.#frames.taken) return false;
    const bytes = buffers.lend(index, byteLength);
    const is = isBatch(bytes);
    if (is) {
      this.#window!.received();
      this.#frames.session.receive(bytes);
    }
    buffers.release(index);
    if (is) this.#freed(index);
    return is;
  }

  /** The program has released a message. */
  #freed(index: number): void {
    if (!this.#takesReceives) return;
    if (this.#window === null) this.#r.buffers.post(this.#r.qp, index);
    else if (this.#window.released(index)) this.#operations.pump();
  }

  get #takesReceives(): boolean {
    return this.state !== 'closed' && this.#r.qp.state === 'rts';
  }

  #checkOpen(operation: string): void {
    if (this.state !== 'open') throw operationEnd(operation, this.#reason, this.#context);
  }

  /** The error with which the connection has ended, or ends. */
  get #reason(): IwarpError {
    return (
      this.#closeInfo?.error ??
      this.#terminated ??
      closeError('graceful', undefined, undefined, this.#context)
    );
  }
}
