/**
 * Datagram queue pairs: Sends to an address, receives that tell where they came from. Over UDP nothing is
 * promised: a datagram that finds no receive is dropped and counted.
 */
import { checkInteger, checkObject, checkOptions, IwarpError, show, type Names } from '../base/errors.ts';
import { putBytes } from '../base/copy.ts';
import { nextState } from '../base/fsm.ts';
import { ACCESS } from '../ddp/stag-table.ts';
import { ReceiveQueue, SendQueue, type ReceiveWqe, type SendWqe } from '../queues/work.ts';
import {
  MAX_DATAGRAM,
  type DatagramHandler,
  type DatagramPort,
  type DatagramTarget,
} from '../transport/datagram.ts';
import { isIP } from '../transport/ip-address.ts';
import type { PortAddress } from '../transport/port.ts';
import type { CompletionQueue } from './cq.ts';
import { DATAGRAM_QP_TABLE, type DatagramQpInput, type DatagramQpState } from './datagram-qp-states.ts';
import type { ProtectionDomain } from './pd.ts';
import { fillReceive, fillSend, postList, type ReceiveWorkRequest, type SendRequest } from './post.ts';
import { checkQpOptions, type CheckedQpOptions } from './qp-options.ts';
import type { QueuePairOptions } from './qp-types.ts';

/** Options of {@link ProtectionDomain.createDatagramQp}. */
export type DatagramQpOptions = Pick<
  QueuePairOptions,
  | 'sendCq'
  | 'recvCq'
  | 'maxSendWr'
  | 'maxRecvWr'
  | 'maxSendSge'
  | 'maxRecvSge'
  | 'maxInline'
  | 'signalAll'
  | 'context'
>;

const OPTIONS: Names<DatagramQpOptions> = {
  sendCq: true,
  recvCq: true,
  maxSendWr: true,
  maxRecvWr: true,
  maxSendSge: true,
  maxRecvSge: true,
  maxInline: true,
  signalAll: true,
  context: true,
};

/** Where to bind a datagram queue pair. */
export interface DatagramBindOptions {
  /** IP address. Default: every address, IPv4 and IPv6. */
  readonly host?: string | undefined;
  /** UDP port. Default 0: the system picks a free one. */
  readonly port?: number | undefined;
  /** With an IPv6 host: no IPv4. */
  readonly ipv6Only?: boolean | undefined;
}

const BIND: Names<DatagramBindOptions> = { host: true, port: true, ipv6Only: true };

/** One datagram to send. */
export interface DatagramSendRequest extends Pick<SendRequest, 'wrId' | 'signaled' | 'sges' | 'inline'> {
  /** IP address and UDP port of the receiver. */
  readonly to: DatagramTarget;
}

/** Counters of a datagram queue pair. */
export interface DatagramCounters {
  /** Datagrams that have found a receive. */
  received: number;
  /** Datagrams that the system has taken. */
  sent: number;
  /** Payload bytes of the datagrams that have found a receive. */
  bytesIn: number;
  /** Payload bytes of the datagrams that the system has taken. */
  bytesOut: number;
  /** Datagrams dropped because no receive was posted. */
  dropped: number;
  /** Datagrams that were longer than their receive; it completed with `local-length-error`. */
  tooLong: number;
}

/**
 * A datagram queue pair.
 *
 * @example
 * const dqp = pd.createDatagramQp({ sendCq: cq, recvCq: cq, maxRecvWr: 256 });
 * await dqp.bind({ port: 4711 });
 * dqp.postRecv({ wrId: 1, sges: [{ mr }] });
 * dqp.postSend({ wrId: 2, inline: query, to: { address: '192.0.2.1', port: 53 } });
 */
export class DatagramQueuePair implements DatagramHandler {
  /** The protection domain; its regions can be used here. */
  readonly pd: ProtectionDomain;
  /** Number of the queue pair on its device, as completions tell it. */
  readonly number: number;
  /** The program's own value, from the options; the stack does not use it. */
  context: unknown;
  readonly #options: CheckedQpOptions;
  readonly #sq: SendQueue;
  readonly #rq: ReceiveQueue;
  readonly #counters: DatagramCounters = {
    received: 0,
    sent: 0,
    bytesIn: 0,
    bytesOut: 0,
    dropped: 0,
    tooLong: 0,
  };
  #state: DatagramQpState = DATAGRAM_QP_TABLE.initial;
  #port: DatagramPort | null = null;

  /** @internal Use {@link ProtectionDomain.createDatagramQp}. */
  constructor(pd: ProtectionDomain, options: DatagramQpOptions) {
    checkOptions('options', options, OPTIONS);
    this.pd = pd;
    this.#options = checkQpOptions(pd, options);
    this.context = options.context;
    pd.use();
    try {
      this.number = pd.device.takeQpNumber();
    } catch (error) {
      pd.users--;
      throw error;
    }
    this.#sq = new SendQueue(this.#options.sendDepth);
    this.#rq = new ReceiveQueue(this.#options.recvDepth);
    this.sendCq.users++;
    this.recvCq.users++;
    pd.device.objects.datagramQp.add(this);
  }

  /** Where Sends complete. */
  get sendCq(): CompletionQueue {
    return this.#options.sendCq;
  }

  /** Where receives complete. */
  get recvCq(): CompletionQueue {
    return this.#options.recvCq;
  }

  /** `unbound`, `binding`, `bound`, `failed` or `destroyed`. */
  get state(): DatagramQpState {
    return this.#state;
  }

  /** Where it is bound; undefined before. */
  get address(): PortAddress | undefined {
    return this.#port?.address;
  }

  /** Counts since the queue pair was made. */
  counters(): DatagramCounters {
    return { ...this.#counters };
  }

  #step(input: DatagramQpInput): void {
    this.#state = nextState(DATAGRAM_QP_TABLE, this.#state, input, this);
  }

  /**
   * Bind to an address, once; resolves with it. Receives may be posted before: a datagram that finds none is
   * dropped. Rejects with ERR_CONNECT if the address cannot be bound; then it may be tried again.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE, ERR_DESTROYED
   */
  bind(options: DatagramBindOptions = {}): Promise<PortAddress> {
    this.#checkAlive();
    checkOptions('options', options, BIND);
    const { host, port, ipv6Only } = options;
    if (host !== undefined && (typeof host !== 'string' || isIP(host) === 0))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options.host must be an IP address, got ${show(host)}`);
    if (port !== undefined) checkInteger('options.port', port, 0, 65_535);
    if (this.#state !== 'unbound')
      throw new IwarpError(
        'ERR_INVALID_STATE',
        `bind is for a queue pair that is unbound, not ${this.#state}`,
      );
    this.#step('bind');
    const binding = {
      ...(host !== undefined && { host }),
      ...(port !== undefined && { port }),
      ...(ipv6Only !== undefined && { ipv6Only }),
    };
    return new Promise((resolve, reject) => {
      this.pd.device.datagrams!.bind(binding, this, (bound, error) => {
        if (this.#state !== 'binding') {
          bound?.close();
          reject(new IwarpError('ERR_DESTROYED', 'the queue pair has been destroyed'));
        } else if (bound === undefined) {
          this.#step('refused');
          reject(error ?? new IwarpError('ERR_CONNECT', 'the network gives no reason'));
        } else {
          this.#port = bound;
          this.#step('bound');
          resolve(bound.address);
        }
      });
    });
  }

  /** Keep the process alive while it is bound, as it does unless {@link unref} has been called. */
  ref(): void {
    this.#port?.setRef(true);
  }

  /** Let the process end although it is bound. */
  unref(): void {
    this.#port?.setRef(false);
  }

  // ------------------------------------------------------------------------------------------------- posting

  /**
   * Send one datagram or several, and return how many. A Send completes when the system has taken it; what
   * the system refuses completes with `local-length-error` if it is too long for the way, else with
   * `local-qp-operation-error`. The queue pair goes on. Mistakes throw as at `QueuePair.postSend`.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_OUT_OF_RANGE, ERR_WRONG_PD, ERR_INVALID_REGION, ERR_INVALID_STATE
   *   before
   *   it is bound, ERR_TOO_LARGE for more than 65507 bytes, ERR_QUEUE_FULL, ERR_DESTROYED
   */
  postSend(requests: DatagramSendRequest | readonly DatagramSendRequest[]): number {
    this.#checkAlive();
    if (this.#port === null)
      throw new IwarpError(
        'ERR_INVALID_STATE',
        `postSend is for a queue pair that is bound, not ${this.#state}`,
      );
    return this.#postAll(requests, this.#postOneSend);
  }

  /** Post receives, in order. Errors as in {@link postSend}. */
  postRecv(requests: ReceiveWorkRequest | readonly ReceiveWorkRequest[]): number {
    this.#checkAlive();
    return this.#postAll(requests, this.#postOneReceive);
  }

  #postAll<T>(
    requests: T | readonly T[],
    post: (this: DatagramQueuePair, name: string, request: T) => void,
  ): number {
    const list = Array.isArray(requests) ? (requests as readonly T[]) : [requests as T];
    return postList(this, Array.isArray(requests) ? 'requests' : 'request', list, post, () => undefined);
  }

  #postOneReceive(name: string, request: ReceiveWorkRequest): void {
    fillReceive(name, request, this.#rq, this.pd, this.#options.maxRecvSge);
  }

  #postOneSend(name: string, request: DatagramSendRequest): void {
    checkObject(name, request);
    const { to, ...rest } = request;
    checkTarget(`${name}.to`, to, this.#port!.address);
    const sq = this.#sq;
    const wqe = sq.peekFree();
    if (wqe === null)
      throw new IwarpError('ERR_QUEUE_FULL', `${name}: the send queue has its ${sq.depth} entries in use`);
    fillSend(name, { opcode: 'send', ...rest }, wqe, {
      pd: this.pd,
      number: this.number,
      limits: this.#options,
      peerExtensions: false,
      boundWindows: 0,
    });
    if (wqe.total > MAX_DATAGRAM)
      throw new IwarpError(
        'ERR_TOO_LARGE',
        `${name} has ${wqe.total} bytes, above the limit of ${MAX_DATAGRAM}`,
      );
    sq.push();
    sq.next++;
    const chunks: Uint8Array[] = [];
    for (let i = 0; i < wqe.count; i++) {
      const { bytes, offset, length } = wqe.at(i);
      chunks.push(bytes.subarray(offset, offset + length));
    }
    this.#port!.send(chunks, chunks.length, to, (error) => this.#sent(wqe, error));
  }

  #sent(wqe: SendWqe, error: Error | null): void {
    if (error === null) {
      this.#counters.sent++;
      this.#counters.bytesOut += wqe.total;
    } else {
      const tooLong = (error as NodeJS.ErrnoException).code === 'EMSGSIZE';
      wqe.status = tooLong ? 'local-length-error' : 'local-qp-operation-error';
    }
    wqe.responded = true;
    const sq = this.#sq;
    while (sq.tail < sq.head && sq.slot(sq.tail).responded) this.#completeSend(sq.slot(sq.tail));
  }

  #completeSend(wqe: SendWqe): void {
    const silent = this.#state === 'destroyed' || (!wqe.signaled && wqe.status === 'success');
    this.#sq.complete(silent);
    if (!silent && !this.sendCq.push(wqe, this)) this.#overflow(this.sendCq, () => this.#sq.release(wqe));
  }

  #completeReceive(wqe: ReceiveWqe): void {
    if (this.#state === 'destroyed') this.#rq.release(wqe);
    else if (!this.recvCq.push(wqe, this)) this.#overflow(this.recvCq, () => this.#rq.release(wqe));
  }

  /** The completion is lost, and the queue pair with it. */
  #overflow(cq: CompletionQueue, release: () => void): void {
    release();
    if (this.#state !== 'bound') return;
    this.pd.device.raise({ type: 'datagram-cq-overflow', cq, qp: this });
    this.#fail();
  }

  /** @internal */
  get terminateCode(): number {
    return 0;
  }

  /** @internal */
  receivePolled(): void {
    // Nothing is counted here.
  }

  // --------------------------------------------------------------------------------------------- the network

  /** Called by the socket below: a datagram has arrived. */
  onDatagram(bytes: Uint8Array, start: number, end: number, from: PortAddress): void {
    const wqe = this.#rq.take();
    if (wqe === null) {
      this.#counters.dropped++;
      return;
    }
    const octets = end - start;
    wqe.taken = true;
    wqe.from = from;
    wqe.byteLength = octets;
    if (!wqe.usable(ACCESS.LOCAL_WRITE)) {
      wqe.status = 'local-protection-error';
    } else {
      let at = start;
      for (let i = 0; i < wqe.count && at < end; i++) {
        const { bytes: memory, offset, length } = wqe.at(i);
        const part = bytes.subarray(at, Math.min(at + length, end));
        putBytes(part, memory, offset);
        at += part.length;
      }
      if (at < end) {
        wqe.status = 'local-length-error';
        this.#counters.tooLong++;
      } else {
        this.#counters.received++;
        this.#counters.bytesIn += octets;
      }
    }
    this.#completeReceive(wqe);
  }

  /** Called by the socket below: it has failed. */
  onClose(_error: Error): void {
    this.#fail();
  }

  #fail(): void {
    if (this.#state !== 'bound') return;
    this.#step('fail');
    this.#port?.close();
    this.#port = null;
    this.#flush();
  }

  #flush(): void {
    const sq = this.#sq;
    while (sq.tail < sq.head) {
      const wqe = sq.slot(sq.tail);
      if (!wqe.responded) wqe.status = 'flushed';
      this.#completeSend(wqe);
    }
    for (let wqe = this.#rq.take(); wqe !== null; wqe = this.#rq.take()) {
      wqe.status = 'flushed';
      this.#completeReceive(wqe);
    }
  }

  /**
   * Close the port and destroy the queue pair. No further completion is produced. A second call does nothing.
   */
  destroy(): void {
    if (this.#state === 'destroyed') return;
    this.#step('destroy');
    this.#port?.close();
    this.#port = null;
    this.#flush();
    this.sendCq.users--;
    this.recvCq.users--;
    this.pd.users--;
    this.pd.device.forget('datagramQp', this);
  }

  #checkAlive(): void {
    if (this.#state === 'destroyed')
      throw new IwarpError('ERR_DESTROYED', 'the queue pair has been destroyed');
    if (this.#state === 'failed')
      throw new IwarpError('ERR_INVALID_STATE', 'the queue pair has failed: destroy it and make another');
  }
}

/** An address that datagrams can go to from where we are bound; no name, for nothing is looked up here. */
function checkTarget(name: string, to: unknown, from: PortAddress): void {
  checkObject(name, to);
  const { address, port } = to as Partial<DatagramTarget>;
  const version = typeof address === 'string' ? isIP(address) : 0;
  if (version === 0)
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.address must be an IP address, got ${show(address)}`,
    );
  checkInteger(`${name}.port`, port, 1, 65_535);
  if (version === 6 && from.family === 'IPv4')
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.address is IPv6, and the queue pair is bound to IPv4`,
    );
  if (version === 4 && from.family === 'IPv6' && from.address !== '::')
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name}.address is IPv4, and the queue pair is bound to IPv6`,
    );
}
