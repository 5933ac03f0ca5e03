/**
 * The connection manager: connect and listen over a transport, modelled on librdmacm. One manager has one device, one transport and one clock.
 */
import type { Scheduler } from '../base/clock.ts';
import { checkBoolean, checkFunction, checkInteger, checkOptions, IwarpError, ownError, type Names } from '../base/errors.ts';
import { Admission, type Place } from './admission.ts';
import { BIND_NAMES, checkBind, checkTarget, TARGET_NAMES, type BindOptions, type TargetOptions } from './target.ts';
import type { DepthWishes } from '../mpa/negotiate.ts';
import { DEFAULT_POLICY, privateDataRoom, requestRevision, resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import type { StartupFrame } from '../mpa/wire.ts';
import type { ConnectTarget, PortAddress, PortListener, Transport } from '../transport/port.ts';
import type { Device } from '../verbs/device.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { checkDepth, checkPrivateData, checkQp, checkTerminateCode, CmConnection, PARAM_NAMES, type ConnectionContext, type ConnParam } from './connection.ts';
import { Census, type DeviceCounters } from './census.ts';
import type { CmEvent } from './events.ts';
import { ThreadProgress, type LinkHandler, type Progress, type StreamLink } from './link.ts';

/** Where and how to connect. */
export interface ConnectOptions extends ConnParam, TargetOptions {
  /** Host name or address of the peer. */
  readonly host: string;
  /** Differences from {@link DEFAULT_POLICY}. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /**
   * Hold an accepting Reply, with a `connect-response` event, until `establish()` (MPA-035). A Reply that calls for a Terminate (ENH-022, ENH-040) is
   * not held: the connection is established and ends with that Terminate.
   */
  readonly confirm?: boolean | undefined;
}

/** Where and how to listen. */
export interface ListenOptions extends BindOptions {
  /** Differences from {@link DEFAULT_POLICY}, for each connection to this listener. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /**
   * Connections that may be in start-up or wait for the program's decision at a time; further ones are reset (SEC-033). Default 256, which holds
   * a burst of clients and costs at most 64 KiB each. As many more may wait for their peers to close after a failed start-up.
   */
  readonly maxPending?: number | undefined;
  /** Called for each connection whose start-up ended before there was a request to answer: bad frame, time-out, loss (MPA-004, MPA-019). */
  readonly onFailure?: ((failure: ListenFailure) => void) | undefined;
}

/** A connection that never became a request. */
export interface ListenFailure {
  /** What was wrong with its start-up; or there were `maxPending` others; or the system could not accept it. */
  readonly reason: StartupFailure | 'too-many-pending' | 'accept-error';
  /** The peer's address; undefined if the connection ended before the address was known. */
  readonly remoteAddress: PortAddress | undefined;
  /** The system's error, with `accept-error`. ERR_ENGINE_FAILED means that nothing will be accepted any more. */
  readonly error?: Error;
}

const CONNECT: Names<ConnectOptions> = { ...PARAM_NAMES, ...TARGET_NAMES, policy: true, confirm: true };
const LISTEN: Names<ListenOptions> = { ...BIND_NAMES, policy: true, maxPending: true, onFailure: true };
const DEFAULT_MAX_PENDING = 256;

/**
 * The connection manager of a device.
 *
 * @example
 * const cm = new ConnectionManager(device, new TcpTransport(), realScheduler);
 * const connection = cm.connect(qp, { host: '127.0.0.1', port: 7174 });
 * connection.setHandler((event) => console.log(event.type));
 */
export class ConnectionManager {
  /** The device whose queue pairs it connects. */
  readonly device: Device;
  /** @internal */
  readonly census: Census = new Census();
  readonly #progress: Progress;

  /** With a transport and a clock, streams run in this thread. A `Progress` (src/cm/link.ts) can run them elsewhere. */
  constructor(device: Device, transport: Transport, scheduler: Scheduler);
  constructor(device: Device, progress: Progress);
  constructor(device: Device, over: Transport | Progress, scheduler?: Scheduler) {
    this.device = device;
    this.#progress = scheduler === undefined ? (over as Progress) : new ThreadProgress(over as Transport, scheduler, device.resources);
  }

  /**
   * Connect a queue pair in state Idle (rdma_connect). Returns at once; events report the result.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD for a queue pair of another device, ERR_TOO_LARGE for private data, ERR_INVALID_STATE unless the queue pair is
   * Idle and free, ERR_DESTROYED
   */
  connect(qp: QueuePair, options: ConnectOptions): ActiveConnection {
    checkQp('qp', qp, this.device);
    checkOptions('options', options, CONNECT);
    const target = checkTarget(options);
    const policy = resolvePolicy(options.policy, DEFAULT_POLICY, 'options.policy');
    const connection = new ActiveConnection(this.#context(policy), qp, options);
    qp.attach(connection);
    connection.open(this.#progress, target);
    return connection;
  }

  /**
   * Listen for connections (rdma_bind_addr, rdma_listen). `onRequest` is called with each connection that has sent a good Request; answer it with
   * `accept` or `reject`. Resolves when the address is bound.
   *
   * Rejects with ERR_CONNECT if the address cannot be bound (its `cause` is the system's error, with `code`, `errno`, `syscall`, `address` and `port`),
   * ERR_NOT_SUPPORTED if this Node or transport has no `reusePort`, ERR_ENGINE_FAILED.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED on a device that has been closed
   *
   * @example
   * const listener = await cm.listen({ port: 7174 }, (request) => {
   *   request.setHandler((event) => console.log(event.type));
   *   request.accept(pd.createQp({ sendCq: cq, recvCq: cq }), { responderResources: 4 });
   * });
   */
  listen(options: ListenOptions, onRequest: (connection: PassiveConnection) => void): Promise<CmListener> {
    checkOptions('options', options, LISTEN);
    checkFunction('onRequest', onRequest);
    if (this.device.state === 'closed') throw new IwarpError('ERR_DESTROYED', 'the device has been closed');
    const target = checkBind(options);
    const maxPending = checkInteger('options.maxPending', options.maxPending === undefined ? DEFAULT_MAX_PENDING : options.maxPending, 1, 1_000_000);
    const { onFailure } = options;
    if (onFailure !== undefined) checkFunction('options.onFailure', onFailure);
    const context = this.#context(resolvePolicy(options.policy, DEFAULT_POLICY, 'options.policy'));
    const listener = new CmListener(context, maxPending, onRequest, onFailure);
    return new Promise((resolve, reject) => {
      this.#progress.listen({ target, policy: context.policy, maxPending }, listener, (bound, error) => {
        if (bound === undefined) {
          // A transport of ours, and an engine that has failed, say all there is to say.
          reject(ownError(error, 'ERR_CONNECT', `cannot listen: ${error?.message ?? 'unknown reason'}`));
          return;
        }
        listener.bound(bound);
        resolve(listener);
      });
    });
  }

  /** Connections in start-up, established or closing. */
  get connections(): ReadonlySet<CmConnection> {
    return this.census.live;
  }

  /** Counters over every connection that this manager has or had. */
  counters(): DeviceCounters {
    return this.census.counters();
  }

  #context(policy: ConnectionPolicy): ConnectionContext {
    const { device, census } = this;
    return { device, policy, census };
  }
}

/** The side that connects. */
export class ActiveConnection extends CmConnection {
  readonly #qp: QueuePair;
  readonly #privateData: Uint8Array;
  readonly #wishes: DepthWishes;
  readonly #confirm: boolean;
  /** The program has heard of the `connect-response`, and of nothing after it. */
  #undecided = false;

  /** @internal Use {@link ConnectionManager.connect}. */
  constructor(context: ConnectionContext, qp: QueuePair, options: ConnectOptions) {
    super(context);
    const { policy } = context;
    this.#qp = qp;
    this.#privateData = checkPrivateData('options.privateData', options.privateData, privateDataRoom(policy, requestRevision(policy)));
    this.#wishes = depthWishes(qp, options);
    this.#confirm = checkBoolean('options.confirm', options.confirm === undefined ? false : options.confirm);
    this.qpInUse = qp;
  }

  override get role(): 'active' {
    return 'active';
  }

  /** @internal */
  open(progress: Progress, target: ConnectTarget): void {
    const { policy } = this.context;
    this.link = progress.connect({
      target, policy, confirm: this.#confirm, endpoint: this.#qp, privateData: this.#privateData, wishes: this.#wishes,
    }, this);
  }

  /**
   * After a `connect-response` event: start full operation (rdma_establish). If the connection has ended meanwhile, nothing is thrown: the event that is on
   * its way says so.
   *
   * @throws ERR_INVALID_STATE
   */
  establish(): void {
    const deciding = this.link?.deciding === true;
    if (!deciding && !this.#undecided) {
      throw new IwarpError('ERR_INVALID_STATE', 'establish is for a connection made with confirm, after its connect-response event');
    }
    this.#undecided = false;
    if (deciding) this.link!.confirm();
  }

  /** @internal */
  protected override heard(event: CmEvent): void {
    this.#undecided = event.type === 'connect-response';
  }

  /**
   * Between `connect-response` and `establish()` the Terminate is sent as the first FPDU (ENH-046).
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  override terminate(code: number): void {
    if (this.link?.deciding !== true) {
      super.terminate(code);
      return;
    }
    checkTerminateCode(code);
    this.link.confirm(code);
  }

  /** @internal */
  protected override cancel(): void {
    if (this.link?.cancel() !== true) return;
    this.#qp.detach();
    this.raise({ type: 'disconnected', cause: 'reset', error: undefined, terminate: undefined });
  }
}

/** The depths that the program gives, here or when it made the queue pair (VERBS-018). */
function depthWishes(qp: QueuePair, { responderResources, initiatorDepth }: ConnParam): DepthWishes {
  const { limits } = qp.pd.device;
  const ird = checkDepth('options.responderResources', responderResources, limits.maxQpRdAtom);
  const ord = checkDepth('options.initiatorDepth', initiatorDepth, limits.maxQpInitRdAtom);
  const { maxIrd, maxOrd } = qp;
  return {
    ird: ird ?? (maxIrd < limits.maxQpRdAtom ? maxIrd : undefined),
    ord: ord ?? (maxOrd < limits.maxQpInitRdAtom ? maxOrd : undefined),
    maxIrd, maxOrd,
  };
}

/** The side that is connected to: a Request has arrived and waits for an answer. */
export class PassiveConnection extends CmConnection {
  readonly #listener: CmListener;
  #answered = false;
  /** Held at the listener. */
  #place: Place;

  /** @internal */
  constructor(context: ConnectionContext, listener: CmListener) {
    super(context);
    this.#listener = listener;
    this.#place = listener.admission.take();
  }

  override get role(): 'passive' {
    return 'passive';
  }

  /** @internal */
  open(link: StreamLink): void {
    this.link = link;
    this.opened();
  }

  /** @internal */
  protected override requestArrived(_request: StartupFrame): void {
    this.context.device.defer(() => this.#listener.onRequest(this));
  }

  /** @internal */
  protected override raise(event: CmEvent): void {
    if (event.type === 'connect-error') {
      this.#leave();
      // Before the request nobody knows this connection: the listener speaks for it.
      if (this.parameters === undefined) this.#listener.startupFailed({ reason: event.reason, remoteAddress: this.remoteAddress });
    }
    super.raise(event);
  }

  override close(): void {
    super.close();
    this.#leave();
  }

  override abort(): void {
    super.abort();
    this.#leave();
  }

  /**
   * Accept onto a queue pair in state Idle (rdma_accept). Depths that are not given follow the peer's wishes, within the policy. If the peer
   * has left meanwhile, nothing is thrown: the connection's `disconnected` event says so.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD for a queue pair of another device, ERR_TOO_LARGE for private data, ERR_INVALID_STATE if it has been
   * answered or the queue pair is not Idle, ERR_NOT_SUPPORTED if its shared receive queue is used on another engine than the listener's. The request
   * then still waits for an answer.
   */
  accept(qp: QueuePair, options: ConnParam = {}): void {
    checkQp('qp', qp, this.context.device);
    checkOptions('options', options, PARAM_NAMES);
    const privateData = checkPrivateData('options.privateData', options.privateData, this.#room);
    const wishes = depthWishes(qp, options);
    this.#checkUnanswered('accept');
    const { deciding } = this.link!;
    if (deciding) {
      // Before anything changes here: both throw.
      this.link!.checkEndpoint(qp);
      qp.attach(this);
    }
    this.#answer();
    if (!deciding) return;
    this.qpInUse = qp;
    this.link!.accept(qp, privateData, wishes);
  }

  /**
   * Reject with private data (rdma_reject, MPA-031).
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_TOO_LARGE, ERR_INVALID_STATE if it has been answered
   */
  reject(privateData?: ArrayBufferView): void {
    const bytes = checkPrivateData('privateData', privateData, this.#room);
    this.#checkUnanswered('reject');
    this.#answer();
    this.link!.reject(bytes);
  }

  /** Octets of private data that the Reply has room for. */
  get #room(): number {
    return privateDataRoom(this.context.policy, this.parameters?.revision ?? 1);
  }

  #checkUnanswered(what: string): void {
    if (this.#answered || this.parameters === undefined) {
      throw new IwarpError('ERR_INVALID_STATE', `${what} is for a connection request that has not been answered`);
    }
  }

  /** @internal */
  protected override neverEstablished(): void {
    super.neverEstablished();
    this.#place = this.#listener.admission.gone(this.#place);
  }

  #answer(): void {
    this.#answered = true;
    this.#place = this.#listener.admission.answered(this.#place);
  }

  /** Nobody's answer is of use any more. */
  #leave(): void {
    this.#place = this.#listener.admission.leave(this.#place, this.link!);
  }

  /** @internal It came to this listener and is in start-up still, waits for its answer, or is on its way out without one. */
  hasPlaceAt(listener: CmListener): boolean {
    return this.#place !== 'none' && this.#listener === listener;
  }

  /** @internal */
  protected override cancel(): void {
    // A passive connection always has its port.
  }
}

/** A bound listener. */
export class CmListener {
  // A ListenHandler to what listens for it.
  readonly #context: ConnectionContext;
  /** @internal */
  readonly admission: Admission;
  /** @internal */
  readonly onRequest: (connection: PassiveConnection) => void;
  #listener: PortListener | null = null;
  #closed = false;
  readonly #onFailure: ((failure: ListenFailure) => void) | undefined;
  /** Connections refused because `maxPending` others were pending. */
  refused = 0;
  /** Connections whose start-up failed before there was a request. */
  failed = 0;

  /** @internal Use {@link ConnectionManager.listen}. */
  constructor(
    context: ConnectionContext,
    maxPending: number,
    onRequest: (connection: PassiveConnection) => void,
    onFailure: ((failure: ListenFailure) => void) | undefined,
  ) {
    this.#context = context;
    this.admission = new Admission(maxPending);
    this.onRequest = onRequest;
    this.#onFailure = onFailure;
  }

  /** Where it listens; port 0 is replaced by the port that the system picked. */
  get address(): PortAddress {
    return this.#listener!.address;
  }

  /** Connections in start-up or waiting for an answer. */
  get pending(): number {
    return this.admission.taken;
  }

  /** @internal */
  bound(listener: PortListener): void {
    this.#listener = listener;
    if (this.#closed) listener.close();
    else this.#context.census.listeners.add(this);
  }

  /** @internal */
  full(): boolean {
    return this.admission.full || this.#closed;
  }

  /** @internal */
  turnedAway(remoteAddress?: PortAddress): void {
    if (this.#closed) return; // not because of the limit
    this.refused++;
    this.#context.census.refuse();
    this.#report({ reason: 'too-many-pending', remoteAddress });
  }

  /** @internal */
  acceptFailed(error: Error): void {
    if (!this.#closed) this.#report({ reason: 'accept-error', remoteAddress: undefined, error });
  }

  /** The user's code runs after the present stack. */
  #report(failure: ListenFailure): void {
    const onFailure = this.#onFailure;
    if (onFailure !== undefined) this.#context.device.defer(() => onFailure(failure));
  }

  /** @internal */
  incoming(link: StreamLink): LinkHandler {
    const connection = new PassiveConnection(this.#context, this);
    connection.open(link);
    return connection;
  }

  /** @internal A connection that nobody has been told of has failed. */
  startupFailed(failure: ListenFailure): void {
    this.failed++;
    this.#report(failure);
  }

  /** Keep the process alive while this listens, as it does unless {@link unref} has been called. */
  ref(): void {
    this.#listener?.setRef?.(true);
  }

  /** Let the process end although this listens, as `unref` of `net.Server` does. */
  unref(): void {
    this.#listener?.setRef?.(false);
  }

  /** Stop listening and drop the requests that have not been answered. Established connections go on. */
  close(done?: () => void): void {
    if (done !== undefined) checkFunction('done', done);
    if (this.#closed) {
      done?.();
      return;
    }
    this.#closed = true;
    this.#context.census.listeners.delete(this);
    for (const connection of [...this.#context.census.live]) if (connection instanceof PassiveConnection && connection.hasPlaceAt(this)) connection.abort();
    this.#listener?.close(done);
  }
}
