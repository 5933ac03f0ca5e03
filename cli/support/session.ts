/**
 * One queue pair as a tool uses it: post one thing, wait for its completion. Stock tools work in such steps,
 * and post no receive but the ones that their protocol needs, so this stands on verbs and cm rather than on
 * the promise layer.
 */
import type { CmConnection } from '../../src/cm/connection.ts';
import type { CmEvent } from '../../src/cm/events.ts';
import { closeError, RejectedError, type CloseInfo } from '../../src/api/errors.ts';
import { IwarpError } from '../../src/base/errors.ts';
import { createWorkCompletion, type CompletionQueue, type WorkCompletion } from '../../src/verbs/cq.ts';
import type { MemoryRegion, ProtectionDomain, Sge } from '../../src/verbs/memory.ts';
import type { QueuePair } from '../../src/verbs/qp.ts';
import type { SendWorkRequest } from '../../src/verbs/post.ts';
import type { SharedReceiveQueue } from '../../src/verbs/srq.ts';
import type { Rnic } from '../../src/api/environment.ts';
import { ACCESS } from '../../src/ddp/stag-table.ts';

const RECEIVE = 0x1_0000_0000;

interface Pending {
  readonly resolve: (wc: WorkCompletion) => void;
  readonly reject: (error: Error) => void;
}

export interface SessionOptions {
  readonly maxSendWr?: number;
  readonly maxRecvWr?: number;
  readonly maxInline?: number;
  /** Share this domain, so that several sessions use the same regions. */
  readonly pd?: ProtectionDomain;
  /** Take receives from here; `maxRecvWr` counts for the completions then. */
  readonly srq?: SharedReceiveQueue;
  /**
   * Sees every completion first and returns true for those it has dealt with. The object is used again:
   * nothing of it may be kept. For tools that post many requests and count, instead of waiting for each.
   */
  readonly onCompletion?: (wc: WorkCompletion) => boolean;
}

/** Work request numbers from here on are the tool's own. */
export const OWN_WORK = 0x2_0000_0000;

export class Session {
  readonly rnic: Rnic;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly qp: QueuePair;
  /** Settles with the end of the connection; never rejects. */
  readonly closed: Promise<CloseInfo>;
  /** Settles when the connection is established; rejects when it never will be. */
  readonly established: Promise<void>;
  #resolveClosed!: (info: CloseInfo) => void;
  #resolveEstablished!: () => void;
  #rejectEstablished!: (error: Error) => void;
  readonly #sends = new Map<number, Pending>();
  readonly #waiting: Pending[] = [];
  readonly #arrived: WorkCompletion[] = [];
  readonly #flushed: Pending[] = [];
  readonly #regions: MemoryRegion[] = [];
  #nextId = 1;
  #failure: IwarpError | null = null;
  #connection: CmConnection | null = null;
  #over = false;
  readonly #onCompletion: ((wc: WorkCompletion) => boolean) | null;
  readonly #wc = [createWorkCompletion()];
  onClosing: (() => void) | null = null;

  constructor(rnic: Rnic, options: SessionOptions = {}) {
    this.rnic = rnic;
    const { maxSendWr = 16, maxRecvWr = 16 } = options;
    this.pd = options.pd ?? rnic.device.allocatePd();
    this.#onCompletion = options.onCompletion ?? null;
    this.cq = rnic.device.createCq(maxSendWr + maxRecvWr);
    this.qp = this.pd.createQp({
      sendCq: this.cq,
      recvCq: this.cq,
      maxSendWr,
      maxRecvWr,
      ...(options.maxInline === undefined ? {} : { maxInline: options.maxInline }),
      ...(options.srq === undefined ? {} : { srq: options.srq }),
    });
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    this.established = new Promise((resolve, reject) => {
      this.#resolveEstablished = resolve;
      this.#rejectEstablished = reject;
    });
    this.established.catch(() => undefined);
    this.cq.setHandler(() => this.#poll());
    this.cq.requestNotify();
  }

  get connection(): CmConnection {
    return this.#connection!;
  }

  /** The error that the session has failed with; null while all is well. */
  get failure(): IwarpError | null {
    return this.#failure;
  }

  /** True once the connection is gone. */
  get over(): boolean {
    return this.#over;
  }

  /** Octets that have crossed in both directions. */
  get octets(): number {
    if (this.#over || this.#connection?.negotiated === undefined) return 0;
    const counters = this.qp.counters();
    return counters === undefined ? 0 : counters.octetsIn + counters.octetsOut;
  }

  /** Register memory, with every right but that of atomics unless `remote` says which the peer has. */
  register(octets: number, remote: number = ACCESS.REMOTE_READ | ACCESS.REMOTE_WRITE): MemoryRegion {
    const region = this.pd.registerMemory(this.pd.device.allocateMemory(octets), ACCESS.LOCAL_WRITE | remote);
    this.#regions.push(region);
    return region;
  }

  /** Give back the memory and the domain of a session that is over; for tools that go on without it. */
  release(): void {
    for (const region of this.#regions.splice(0)) if (!region.deregistered) region.deregister();
    this.pd.deallocate();
  }

  /** Use this connection; its events are handled from now on. */
  use(connection: CmConnection): void {
    this.#connection = connection;
    connection.setHandler((event) => this.#handle(event));
  }

  /**
   * A session that is over takes none; waits for a message reject with the reason. The peer may leave after
   * the very message that made room for this one.
   */
  postRecv(sge: Sge): void {
    if (!this.#over) this.qp.postRecv({ wrId: RECEIVE, sges: [sge] });
  }

  /** The next received message. */
  receive(): Promise<WorkCompletion> {
    const wc = this.#arrived.shift();
    if (wc !== undefined) return Promise.resolve(wc);
    if (this.#over) return Promise.reject(this.#failure!);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Post and wait for the completion. */
  execute(request: SendWorkRequest): Promise<WorkCompletion> {
    if (this.#over) return Promise.reject(this.#failure!);
    return new Promise((resolve, reject) => {
      const id = this.#nextId++;
      this.qp.postSend({ ...request, wrId: id });
      this.#sends.set(id, { resolve, reject });
    });
  }

  /** Break the connection off; every wait rejects with this error. */
  fail(error: IwarpError): void {
    this.#failure ??= error;
    if (this.#over) return;
    if (this.#connection !== null) this.#connection.abort();
    else this.#finish({ cause: 'reset', error: this.#failure, terminate: undefined });
  }

  /** Close in order and give everything back. */
  async close(): Promise<CloseInfo> {
    if (this.#connection !== null) this.#connection.disconnect();
    else this.fail(new IwarpError('ERR_CONNECTION_CLOSED', 'there never was a connection'));
    return await this.closed;
  }

  #poll(): void {
    if (this.cq.destroyed) return;
    for (;;) {
      if (this.cq.poll(this.#wc, 1) === 0) {
        this.cq.requestNotify();
        if (this.cq.length === 0) return;
        continue;
      }
      const wc = this.#wc[0]!;
      if (this.#onCompletion?.(wc) === true) continue;
      this.#complete({ ...wc });
      if (this.cq.destroyed) return;
    }
  }

  #complete(wc: WorkCompletion): void {
    if (wc.wrId === RECEIVE) {
      if (wc.status !== 'success') return;
      const waiter = this.#waiting.shift();
      if (waiter === undefined) this.#arrived.push(wc);
      else waiter.resolve(wc);
      return;
    }
    const pending = this.#sends.get(wc.wrId as number)!;
    this.#sends.delete(wc.wrId as number);
    if (wc.status === 'success') pending.resolve(wc);
    else if (wc.status === 'flushed') this.#flushed.push(pending);
    else pending.reject(new IwarpError('ERR_WORK_COMPLETION', `${wc.opcode} ended with status ${wc.status}`));
  }

  #handle(event: CmEvent): void {
    switch (event.type) {
      case 'established':
        this.#resolveEstablished();
        break;
      case 'rejected': {
        if (event.error !== undefined) {
          this.#failure = noConnection(event.error);
          break;
        }
        const why = event.markersAsked ? ': markers were asked for, which some peers (Linux siw) refuse' : '';
        this.#failure = new RejectedError(
          `the peer rejected the connection${why}`,
          event.parameters.privateData,
        );
        break;
      }
      case 'unreachable':
      case 'address-error':
      case 'connect-error':
        this.#failure = noConnection(event.error);
        break;
      case 'closing':
        this.onClosing?.();
        break;
      case 'disconnected': {
        const error = this.#failure ?? closeError(event.cause, event.error, event.terminate);
        this.#finish({ cause: event.cause, error, terminate: event.terminate });
        break;
      }
      default:
    }
  }

  #finish(info: CloseInfo): void {
    this.#poll();
    this.#over = true;
    this.#failure = info.error!;
    this.#rejectEstablished(this.#failure);
    for (const pending of [...this.#flushed.splice(0), ...this.#sends.values(), ...this.#waiting.splice(0)])
      pending.reject(this.#failure);
    this.#sends.clear();
    this.qp.destroy();
    this.cq.destroy();
    this.#resolveClosed(info);
  }
}

/** The error of a start-up that failed as it is; a TCP connection that could not be made as ERR_CONNECT. */
function noConnection(error: Error): IwarpError {
  return error instanceof IwarpError && error.systemCode !== undefined
    ? error
    : new IwarpError('ERR_CONNECT', error.message, { cause: error });
}
