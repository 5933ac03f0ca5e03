/**
 * One end of a shared region: the paper's socket. Reads and writes are posted and return at once; completions
 * are polled, or awaited one by one.
 */
import type { Rnic } from '../api/environment.ts';
import { closeError } from '../api/errors.ts';
import { Machine } from '../base/fsm.ts';
import { checkInteger, IwarpError, show } from '../base/errors.ts';
import type { CmConnection, CmEvent } from '../cm/index.ts';
import {
  ACCESS,
  createWorkCompletion,
  type CompletionQueue,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type WorkCompletion,
} from '../verbs/index.ts';
import { Operations, type SharedEvent } from './operations.ts';
import { SHARED_TABLE, type SharedInput, type SharedState } from './states.ts';
import { encodeTicket, type Ticket } from './ticket.ts';

/** Reads that a connection may have outstanding in each direction (decision F2). */
export const READ_DEPTH = 16;
/** Completions that one look at the queue takes. */
const BATCH = 64;
/** Number of the empty Write by which a connector makes itself heard; it belongs to no operation. */
const FIRST_WORD = 0;

/** What one end of a shared region is made of. */
export interface SharedEnd {
  readonly rnic: Rnic;
  /** The memory that the peer may read and write. */
  readonly memory: Uint8Array;
  /** Operations that may wait for their completion to be polled or awaited. */
  readonly depth: number;
}

/** An offset or length outside a region: a RangeError (EINVAL), with the stable code of this package. */
export class SharedRangeError extends RangeError {
  /** The stable code of this error. */
  readonly code = 'ERR_OUT_OF_RANGE';
  /** The number that the paper's calls return for it. */
  readonly errno = 'EINVAL';
}

/**
 * A connection with a region of memory at each end, which both sides may read and write. Made by `connect`
 * and by `accept` of a listener.
 *
 * @example
 * const { socket, region } = await connect({ host: 'server', port: 7471 });
 * region.set(new TextEncoder().encode('hello'));
 * await socket.settled(socket.write(5, 0, 0)); // five bytes lie at the start of the server's region
 */
export class SharedSocket {
  /** This side's region: plain memory, which the peer may change at any time. */
  readonly region: Uint8Array;
  /**
   * Resolves when the connection has ended and the region belongs to this side alone; with the error, if any.
   */
  readonly closed: Promise<IwarpError | undefined>;
  readonly #state: Machine<SharedState, SharedInput> = new Machine(SHARED_TABLE);
  readonly #pd: ProtectionDomain;
  readonly #cq: CompletionQueue;
  readonly #qp: QueuePair;
  readonly #mr: MemoryRegion;
  readonly #operations: Operations;
  readonly #out: WorkCompletion[] = Array.from({ length: BATCH }, createWorkCompletion);
  #connection: CmConnection | null = null;
  #ticket: Ticket | null = null;
  /** The ticket's tagged offset; a number where its sums stay exact. */
  #to: bigint | number = 0;
  #error: IwarpError | undefined;
  #resolveClosed!: (error: IwarpError | undefined) => void;

  /** @internal */
  constructor({ rnic, memory, depth }: SharedEnd) {
    this.region = memory;
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    this.#operations = new Operations(depth);
    const { device } = rnic;
    this.#pd = device.allocatePd();
    this.#cq = device.createCq(depth + 2);
    this.#qp = this.#pd.createQp({
      sendCq: this.#cq,
      recvCq: this.#cq,
      maxSendWr: depth + 1,
      maxRecvWr: 0,
      ird: READ_DEPTH,
      ord: READ_DEPTH,
    });
    this.#mr = this.#pd.registerMemory(
      memory,
      ACCESS.LOCAL_WRITE | ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE,
      { queuePair: this.#qp },
    );
    this.#cq.setHandler(() => this.#look());
    this.#cq.requestNotify('next');
  }

  /** @internal The queue pair to connect. */
  get qp(): QueuePair {
    return this.#qp;
  }

  /** @internal This side's ticket, as private data. */
  get ticket(): Uint8Array {
    const { rkey: stag, addr: to, length } = this.#mr;
    return encodeTicket({ to: BigInt(to), stag, length });
  }

  /** `connecting`, `open`, `closing` or `closed`. */
  get state(): SharedState {
    return this.#state.state;
  }

  /** Length of this side's region in bytes. */
  get length(): number {
    return this.region.length;
  }

  /** Length of the peer's region in bytes; it may differ from ours. */
  get remoteLength(): number {
    return this.#ticket?.length ?? 0;
  }

  /** The peer's address; undefined once the connection has ended. */
  get remoteAddress(): { readonly address: string; readonly port: number } | undefined {
    return this.#connection?.remoteAddress;
  }

  /** Operations that have not completed. */
  get inFlight(): number {
    return this.#operations.inFlight;
  }

  /**
   * Copy `len` bytes from offset `loffset` of this side's region to offset `roffset` of the peer's. Returns
   * at once with the operation's number, 1 or more and always growing, or with -1 (EAGAIN) while `depth`
   * operations wait to be polled or awaited. The bytes are taken until the operation completes: do not change
   * them before. A completed write has been handed to the network in order; a later read sees it at the peer.
   *
   * @throws SharedRangeError (EINVAL) unless both ranges lie inside their regions; ERR_CONNECTION_CLOSED,
   *   ERR_CONNECTION_RESET, ERR_TERMINATED after the end
   */
  write(len: number, loffset: number, roffset: number): number {
    return this.#post('write', len, loffset, roffset);
  }

  /**
   * Copy `len` bytes from offset `roffset` of the peer's region to offset `loffset` of this side's, which the
   * peer may write as well. Otherwise as {@link SharedSocket.write}. The bytes are there when the operation
   * has completed.
   */
  read(len: number, loffset: number, roffset: number): number {
    return this.#post('read', len, loffset, roffset);
  }

  #post(operation: 'read' | 'write', len: number, loffset: number, roffset: number): number {
    checkRange('loffset', len, loffset, this.region.length, 'this side');
    if (this.#state.state !== 'open') throw this.#ended();
    checkRange('roffset', len, roffset, this.#ticket!.length, 'the peer');
    const operations = this.#operations;
    if (operations.isFull) {
      this.#collect();
      if (operations.isFull) return -1;
    }
    this.#qp.postSend({
      wrId: operations.next,
      opcode: operation === 'write' ? 'rdma-write' : 'rdma-read',
      sges: [{ mr: this.#mr, offset: loffset, length: len }],
      rkey: this.#ticket!.stag,
      remoteAddr: typeof this.#to === 'number' ? this.#to + roffset : this.#to + BigInt(roffset),
    });
    return operations.add(operation, len);
  }

  /**
   * Take up to `num` completions (default: as many as `events` has elements) into `events`, in the order of
   * the requests, and return how many. Never waits. Missing elements of `events` are created.
   *
   * With the engine in this thread nothing completes inside a loop that does not return to the event loop:
   * `await` between polls, or use {@link SharedSocket.settled}. With a worker engine such a loop is fine.
   */
  poll(events: SharedEvent[], num: number = events.length): number {
    checkInteger('num', num, 0, Number.MAX_SAFE_INTEGER);
    this.#collect();
    return this.#operations.report(events, num);
  }

  /**
   * Resolves when operation `id` has succeeded. {@link SharedSocket.poll} then does not report it. Any number
   * of callers may wait for one operation.
   *
   * Rejects with ERR_WORK_COMPLETION if it failed; ERR_QUEUE_FULL for -1: nothing was posted.
   */
  async settled(id: number): Promise<void> {
    if (id === -1)
      throw new IwarpError(
        'ERR_QUEUE_FULL',
        'the operation was not posted (-1): poll completions, or await an earlier operation, then post again',
      );
    checkInteger('id', id, 1, this.#operations.next - 1);
    this.#collect();
    await this.#operations.settled(id);
  }

  /** End the connection in order: posted operations complete first. Resolves when it has ended. */
  async close(): Promise<void> {
    if (this.#state.state === 'open') this.#connection!.disconnect();
    else if (this.#state.state === 'connecting') this.#connection?.abort();
    this.#state.step('close');
    await this.closed;
  }

  /** Drop the connection at once; operations under way fail. */
  destroy(): void {
    if (this.#state.state === 'closed') return;
    this.#state.step('close');
    this.#connection?.abort();
  }

  /** @internal An active connection has been accepted, with this private data, and waits for our word. */
  onResponse: ((privateData: Uint8Array) => void) | null = null;

  /** @internal Watch a connection to its end; `opened` is called once: open, or why not. */
  attach(connection: CmConnection, opened: (failure: IwarpError | undefined) => void): void {
    this.#connection = connection;
    connection.setHandler((event) => {
      if (event.type === 'connect-response') this.onResponse?.(event.parameters.privateData);
      if (event.type === 'established') this.#established(event.negotiated.rtr !== null);
      if (event.type === 'established' && this.#state.state === 'open') opened(undefined);
      if (event.type === 'disconnected') {
        this.#end(event);
        opened(this.#error ?? closeError('reset', undefined, undefined));
      }
      if ('status' in event) this.#error ??= connectError(event);
    });
  }

  /** @internal The peer's ticket, before or with the connection. */
  set peer(ticket: Ticket) {
    this.#ticket = ticket;
    const end = ticket.to + BigInt(ticket.length);
    this.#to = end <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(ticket.to) : ticket.to;
  }

  /** @internal The connection cannot be used, for this reason. */
  fail(error: IwarpError): void {
    this.#error ??= error;
    this.#connection?.abort();
  }

  /** @internal Give everything back, of an end that never got a connection. */
  discard(): void {
    this.#release();
  }

  #established(hasRtr: boolean): void {
    this.#state.step('established');
    // MPA-028: the responder stays silent until our first FPDU (decision C5).
    if (hasRtr || this.#connection!.role === 'passive' || this.#state.state !== 'open') return;
    this.#qp.postSend({
      wrId: FIRST_WORD,
      opcode: 'rdma-write',
      rkey: this.#ticket!.stag,
      remoteAddr: this.#to,
    });
  }

  #end(event: CmEvent & { readonly type: 'disconnected' }): void {
    if (this.#state.state === 'closed') return;
    if (event.cause !== 'graceful') this.#error ??= closeError(event.cause, event.error, event.terminate);
    this.#operations.cause = this.#error;
    this.#collect();
    this.#state.step('ended');
    this.#release();
  }

  #release(): void {
    this.#qp.destroy();
    this.#cq.destroy();
    if (!this.#mr.deregistered) this.#mr.deregister();
    this.#pd.deallocate();
    this.#resolveClosed(this.#error);
  }

  /** What a call after the end throws. */
  #ended(): IwarpError {
    const cause = this.#error;
    return cause === undefined
      ? new IwarpError('ERR_CONNECTION_CLOSED', 'the shared region has been disconnected')
      : new IwarpError(cause.code, `the shared region has been disconnected: ${cause.message}`, { cause });
  }

  #collect(): void {
    const { state } = this.#state;
    if (state === 'closed' || this.#cq.destroyed) return;
    for (;;) {
      const n = this.#cq.poll(this.#out, BATCH);
      for (let i = 0; i < n; i++) {
        const { wrId, status } = this.#out[i]!;
        if (wrId !== FIRST_WORD) this.#operations.complete(status);
      }
      if (n < BATCH) return;
    }
  }

  /** VERBS-118: collect until empty, arm, look again. */
  #look(): void {
    do {
      this.#collect();
      if (this.#cq.destroyed) return;
      this.#cq.requestNotify('next');
    } while (this.#cq.length > 0);
  }
}

/** The bounds check of the paper's calls: EINVAL. */
function checkRange(name: string, len: number, offset: number, limit: number, whose: string): void {
  if (!Number.isSafeInteger(len) || len < 0)
    throw new SharedRangeError(`len must be a length in bytes, 0 or more, got ${show(len)}`);
  if (!Number.isSafeInteger(offset) || offset < 0 || offset + len > limit)
    throw new SharedRangeError(
      `${name} ${show(offset)} with len ${len} does not lie inside the region of ${whose}, which has ` +
        `${limit} bytes`,
    );
}

/** Why there was no connection. */
function connectError(event: Extract<CmEvent, { readonly status: unknown }>): IwarpError {
  const cause = event.error;
  const detail = cause?.message ?? event.status ?? event.type;
  if (event.type === 'rejected' && cause === undefined)
    return new IwarpError('ERR_REJECTED', 'the listener has refused the connection');
  return new IwarpError('ERR_CONNECT', `cannot connect: ${detail}`, { cause });
}
