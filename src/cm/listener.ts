/** Listening, and the side that is connected to: rdma_listen, rdma_accept, rdma_reject. */
import { captureContext, inThisContext, type AsyncContext } from '../base/async-context.ts';
import { checkFunction, checkInteger, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import type { Engine, LinkHandler, StreamLink } from '../engine/engine.ts';
import {
  ListenerLimits,
  type ListenerSlot,
  type ListenLimits,
  type ListenRefusal,
} from '../engine/listener-limits.ts';
import type { StartupRequest } from '../llp/startup.ts';
import { privateDataRoom, type ConnectionPolicy } from '../mpa/policy.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import type { Port, PortAddress, PortListener } from '../transport/port.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { depthRequest } from './active-connection.ts';
import {
  checkPrivateData,
  checkQp,
  CmConnection,
  KEEP_ALIVE_NAMES,
  PARAM_NAMES,
  type ConnectionContext,
  type ConnParam,
  type KeepAliveOptions,
} from './connection.ts';
import {
  LISTENER_TABLE,
  PASSIVE_TABLE,
  type ListenerInput,
  type ListenerState,
  type PassiveInput,
  type PassiveState,
} from './states.ts';
import { BIND_NAMES, type BindOptions } from './target.ts';

/** Where and how to listen. */
export interface ListenOptions extends BindOptions, KeepAliveOptions {
  /** Differences from {@link DEFAULT_POLICY}, for each connection to this listener. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** With the wire `qpip`: how messages lie in the byte stream, in place of the policy's `framing`. */
  readonly framing?: ConnectionPolicy['framing'] | undefined;
  /**
   * Connections that may be in start-up or wait for the program's decision at a time (SEC-033); over UDP
   * also those accepted whose client has not been heard since. Default 256,
   * which holds a burst of clients and costs at most 64 KiB each. For one more, the oldest connection that
   * has not sent its whole Request makes room, one of the address that has the most of them; if there is
   * none, the newcomer is reset. As many more may wait for their peers to close after a failed start-up.
   */
  readonly maxPending?: number | undefined;
  /**
   * `maxPending` for one address (of IPv6, one /64). Default: `maxPending`, so that clients behind one
   * address may use the whole of it while no other address needs it.
   */
  readonly maxPendingPerAddress?: number | undefined;
  /**
   * Connections that the listener may have in all, from their TCP connection to their end; further ones are
   * reset unless one in start-up can make room. Default: no limit but those of the device.
   */
  readonly maxConnections?: number | undefined;
  /** `maxConnections` for one address (of IPv6, one /64). Default: no limit. */
  readonly maxConnectionsPerAddress?: number | undefined;
  /**
   * Called for each connection whose start-up ended before there was a request to answer: bad frame,
   * time-out, loss (MPA-004, MPA-019).
   */
  readonly onFailure?: ((failure: ListenFailure) => void) | undefined;
}

/** A connection that never became a request. */
export interface ListenFailure {
  /**
   * The fault of its start-up, or `displaced`: it had not sent its whole Request when a newer
   * connection needed its place; or one of the limits of {@link ListenOptions} was reached; or the system
   * could not accept it.
   */
  readonly reason: StartupFailure | 'too-many-pending' | 'too-many-connections' | 'accept-error';
  /** The peer's address; undefined if the connection ended before the address was known. */
  readonly remoteAddress: PortAddress | undefined;
  /**
   * The system's error, with `accept-error`. ERR_ENGINE_FAILED: the listener accepts no further connection.
   */
  readonly error?: Error;
  /** @internal The connection whose start-up failed. */
  readonly connection?: PassiveConnection;
}

const LISTEN: Names<ListenOptions> = {
  ...BIND_NAMES,
  ...KEEP_ALIVE_NAMES,
  policy: true,
  framing: true,
  maxPending: true,
  maxPendingPerAddress: true,
  maxConnections: true,
  maxConnectionsPerAddress: true,
  onFailure: true,
};
const DEFAULT_MAX_PENDING = 256;
const MAX_LIMIT = 1_000_000;

/** @internal Check the options but for the address and the policy. */
export function checkListenOptions(options: ListenOptions): ListenLimits {
  checkOptions('options', options, LISTEN);
  if (options.onFailure !== undefined) checkFunction('options.onFailure', options.onFailure);
  const limit = (
    name: 'maxPending' | 'maxPendingPerAddress' | 'maxConnections' | 'maxConnectionsPerAddress',
    byDefault: number,
  ): number =>
    options[name] === undefined ? byDefault : checkInteger(`options.${name}`, options[name], 1, MAX_LIMIT);
  const maxPending = limit('maxPending', DEFAULT_MAX_PENDING);
  return {
    maxPending,
    maxPendingPerAddress: limit('maxPendingPerAddress', maxPending),
    maxConnections: limit('maxConnections', Infinity),
    maxConnectionsPerAddress: limit('maxConnectionsPerAddress', Infinity),
  };
}

/** The side that is connected to: a Request has arrived and waits for an answer. */
export class PassiveConnection extends CmConnection {
  readonly #listener: CmListener;
  #state: PassiveState = PASSIVE_TABLE.initial;
  /** The part of this connection in the counts of its listener; null before it counts, and after. */
  #slot: ListenerSlot | null = null;

  /** @internal */
  constructor(context: ConnectionContext, listener: CmListener) {
    super(context);
    this.#listener = listener;
  }

  /** The peer has connected. */
  override get role(): 'passive' {
    return 'passive';
  }

  /** @internal */
  override get state(): PassiveState {
    return this.#state;
  }

  /** @internal */
  protected override step(input: PassiveInput): void {
    const before = this.#state;
    this.#state = nextState(PASSIVE_TABLE, before, input, this);
    this.ledFrom(before);
  }

  /** @internal */
  open(link: StreamLink): void {
    this.link = link;
    this.#slot = this.#listener.limits.take(link);
    this.begin();
  }

  /** @internal */
  protected override requestArrived(_request: StartupRequest): void {
    this.step('request');
    if (this.#slot !== null) this.#listener.limits.requested(this.#slot);
    // Closed by the program, or displaced, while the request was on its way from another thread.
    if (this.#state !== 'requested') return;
    const { onRequest } = this.#listener;
    this.shared.device.defer(() => this.asyncContext.runInAsyncScope(onRequest, undefined, this));
  }

  /** @internal */
  protected override startupFailed(reason: StartupFailure): void {
    if (this.#state === 'leaving' || this.#state === 'lapsed') return; // it has been given up, or reported
    // Before the request the program does not know this connection, and the listener reports for it.
    if (this.#state === 'starting')
      this.#listener.startupFailed({ reason, remoteAddress: this.remoteAddress, connection: this });
    this.#giveSlot('leave');
    super.startupFailed(reason);
  }

  /** Close in order; a request that has not been answered is dropped. */
  override close(): void {
    super.close();
    this.#leave();
  }

  /** Drop the connection with a reset, and with it a request that has not been answered. */
  override abort(): void {
    super.abort();
    this.#leave();
  }

  /**
   * Accept onto a queue pair in state Idle (rdma_accept). Depths that are not given follow the peer's wishes,
   * within the policy. If the peer has left meanwhile, nothing is thrown: the connection's `disconnected`
   * event says so.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD for a queue pair of another device, ERR_TOO_LARGE for private
   *   data, ERR_INVALID_STATE if it has been answered or the queue pair is not Idle, ERR_NOT_SUPPORTED if its
   *   shared receive queue is used on another engine than the listener's. The request then still waits for an
   *   answer.
   */
  accept(qp: QueuePair, options: ConnParam = {}): void {
    checkQp('qp', qp, this.shared.device);
    checkOptions('options', options, PARAM_NAMES);
    const privateData = checkPrivateData(
      'options.privateData',
      options.privateData,
      this.#room,
      this.shared.device,
    );
    const wishes = depthRequest(qp, options);
    this.#checkUnanswered('accept');
    const deciding = this.#state === 'requested' && this.link!.deciding;
    if (deciding) {
      // Before anything changes here: both throw.
      this.link!.checkEndpoint(qp);
      qp.attach(this);
    }
    this.step('accept');
    this.#giveSlot('accepted');
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
    const bytes = checkPrivateData('privateData', privateData, this.#room, this.shared.device);
    this.#checkUnanswered('reject');
    this.step('reject');
    this.#giveSlot('answered');
    this.link!.reject(bytes);
  }

  /** Bytes of private data that the Reply has room for. */
  get #room(): number {
    return privateDataRoom(this.shared.policy, this.parameters?.revision ?? 1);
  }

  #checkUnanswered(what: string): void {
    if (PASSIVE_TABLE.transitions[this.#state].accept === undefined) {
      throw new IwarpError(
        'ERR_INVALID_STATE',
        `${what} is for a connection request that has not been answered`,
      );
    }
  }

  /** @internal */
  protected override established(): void {
    this.#giveSlot('answered');
  }

  /** @internal */
  protected override streamEnded(): void {
    super.streamEnded();
    this.#giveSlot('gone');
  }

  /** The program, or the end of the listener, has given it up. */
  #leave(): void {
    this.step('leave');
    this.#giveSlot('leave');
  }

  #giveSlot(how: 'accepted' | 'answered' | 'leave' | 'gone'): void {
    const slot = this.#slot;
    if (slot === null) return;
    this.#listener.limits[how](slot);
    if (slot.state === 'free') this.#slot = null;
  }

  /** @internal It came to this listener, and is in start-up, waits for its answer, or leaves without one. */
  isUnansweredAt(listener: CmListener): boolean {
    const slot = this.#slot;
    const unanswered = slot !== null && slot.state !== 'accepted' && slot.state !== 'answered';
    return unanswered && this.#listener === listener;
  }

  /** @internal */
  protected override cancel(): void {
    // A passive connection always has its port.
  }
}

/** A bound listener. */
export class CmListener {
  // A ListenHandler to what listens for it.
  /** The connection that a byte stream has become, for `take`. */
  #taken: PassiveConnection | null = null;
  readonly #engine: Engine;
  readonly #context: ConnectionContext;
  /** @internal */
  readonly limits: ListenerLimits;
  /** @internal */
  readonly onRequest: (connection: PassiveConnection) => void;
  #listener: PortListener | null = null;
  /** That of the call that listens. */
  readonly #asyncContext: AsyncContext = captureContext('IWARP_LISTENER');
  /** A byte stream is being taken, whose connection belongs to the present call. */
  #isTaking = false;
  #state: ListenerState = LISTENER_TABLE.initial;
  /** Calls that wait for the end of `close`. */
  readonly #done: (() => void)[] = [];
  readonly #onFailure: ((failure: ListenFailure) => void) | undefined;
  /** Connections that were refused because a limit of the listener was reached. */
  refused = 0;
  /** Connections whose start-up failed before there was a request, displaced ones among them. */
  failed = 0;

  /** @internal Use {@link ConnectionManager.listen}. */
  constructor(
    context: ConnectionContext,
    limits: ListenLimits,
    onRequest: (connection: PassiveConnection) => void,
    onFailure: ((failure: ListenFailure) => void) | undefined,
    engine: Engine,
  ) {
    this.#engine = engine;
    this.#context = context;
    this.limits = new ListenerLimits(limits);
    this.onRequest = onRequest;
    this.#onFailure = onFailure;
  }

  /**
   * @internal Take an established byte stream as a connection that has come to this listener: its limits
   * count, and `onRequest` is called when the peer's Request is there. Null if a limit is reached: the stream
   * is reset.
   *
   * @throws ERR_ENGINE_FAILED, ERR_DESTROYED if the engine is in another thread that has ended
   */
  take(port: Port): PassiveConnection | null {
    this.#taken = null;
    this.#isTaking = true;
    try {
      this.#engine.take(port, this.#context.policy, this);
    } finally {
      this.#isTaking = false;
    }
    return this.#taken;
  }

  /** Where it listens; port 0 is replaced by the port that the system picked. */
  get address(): PortAddress {
    return this.#listener!.address;
  }

  /** Connections in start-up or waiting for an answer. */
  get pending(): number {
    return this.limits.pending;
  }

  /** @internal */
  bound(listener: PortListener): void {
    this.#step('bound');
    this.#listener = listener;
    this.#context.census.listeners.add(this);
  }

  /** @internal */
  unbound(): void {
    this.#step('bind-failed');
  }

  #step(input: ListenerInput): void {
    this.#state = nextState(LISTENER_TABLE, this.#state, input, this);
  }

  /** @internal */
  refusal(remoteAddress: PortAddress): ListenRefusal | 'closed' | null {
    return this.#ending ? 'closed' : this.limits.refusal(remoteAddress.address);
  }

  get #ending(): boolean {
    return this.#state === 'closing' || this.#state === 'closed';
  }

  /** @internal */
  turnedAway(reason: ListenRefusal | 'closed', remoteAddress?: PortAddress): void {
    if (reason === 'closed' || this.#ending) return;
    this.refused++;
    this.#context.census.refuse();
    this.#report({ reason, remoteAddress });
  }

  /** @internal */
  acceptFailed(error: Error): void {
    if (!this.#ending) this.#report({ reason: 'accept-error', remoteAddress: undefined, error });
  }

  /** The user's code runs after the present stack. */
  #report(failure: ListenFailure): void {
    const onFailure = this.#onFailure;
    if (onFailure === undefined) return;
    const { asyncContext } = failure.connection ?? { asyncContext: this.#asyncContext };
    this.#context.device.defer(() => asyncContext.runInAsyncScope(onFailure, undefined, failure));
  }

  /** @internal */
  incoming(link: StreamLink): LinkHandler {
    const make = (): PassiveConnection => new PassiveConnection(this.#context, this);
    const connection = this.#isTaking ? make() : this.#asyncContext.runInAsyncScope(make, undefined);
    connection.open(link);
    this.#taken = connection;
    return connection;
  }

  /** @internal A connection that the program has not seen has failed. */
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

  /**
   * Stop listening and drop the requests that have not been answered. Established connections go on. `done`
   * is called when the address is free.
   */
  close(done?: () => void): void {
    if (done !== undefined) checkFunction('done', done);
    const before = this.#state;
    this.#step('close');
    if (done !== undefined) {
      if (before === 'closed') done();
      else this.#done.push(inThisContext(done));
    }
    if (before !== 'listening') return;
    this.#context.census.listeners.delete(this);
    for (const connection of [...this.#context.census.live])
      if (connection instanceof PassiveConnection && connection.isUnansweredAt(this)) connection.abort();
    this.#listener!.close(() => {
      this.#step('released');
      for (const waiting of this.#done.splice(0)) waiting();
    });
  }
}
