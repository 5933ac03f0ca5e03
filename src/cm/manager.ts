/**
 * The connection manager: connect and listen, modelled on librdmacm. One manager has one device and one
 * engine, which drives the streams.
 */
import { checkFunction, IwarpError, ownError } from '../base/errors.ts';
import { Interned } from '../base/interned.ts';
import type { Engine } from '../engine/engine.ts';
import { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import type { ConnectTarget, ListenTarget, PortListener } from '../transport/port.ts';
import type { Device } from '../verbs/device.ts';
import type { QueuePair } from '../verbs/qp.ts';
import { ActiveConnection, checkConnectOptions, type ConnectOptions } from './active-connection.ts';
import {
  checkKeepAlive,
  checkQp,
  type CmConnection,
  type ConnectionContext,
  type KeepAliveOptions,
} from './connection.ts';
import { ConnectionStats, type DeviceCounters } from './connection-stats.ts';
import { checkListenOptions, CmListener, type ListenOptions, type PassiveConnection } from './listener.ts';
import { checkBind, checkTarget, type BindOptions } from './target.ts';

/** The address of a listener that has none. */
const UNBOUND: PortListener = {
  address: { address: '0.0.0.0', port: 0, family: 'IPv4' },
  close: (done) => done?.(),
};

/**
 * The connection manager of a device.
 *
 * @example
 * const cm = new ConnectionManager(device, new InlineEngine(new TcpTransport(), realScheduler, device));
 * const connection = cm.connect(qp, { host: '127.0.0.1', port: 7174 });
 * connection.setHandler((event) => console.log(event.type));
 */
export class ConnectionManager {
  /** The device whose queue pairs it connects. */
  readonly device: Device;
  /** @internal */
  readonly census: ConnectionStats = new ConnectionStats();
  readonly #engine: Engine;
  // Connections in a row mostly have the same policy and context, which each holds while it is idle.
  readonly #policies = new Interned<ConnectionPolicy>();
  readonly #contexts = new Interned<ConnectionContext>();

  /** The engine decides where the streams of the device run: {@link InlineEngine} uses the calling thread. */
  constructor(device: Device, engine: Engine) {
    if (typeof (engine as Partial<Engine> | null)?.connect !== 'function' || arguments.length > 2) {
      throw new IwarpError(
        'ERR_INVALID_ARGUMENT',
        'engine must be an Engine: new InlineEngine(transport, scheduler, device) of iwarp/cm',
      );
    }
    this.device = device;
    this.#engine = engine;
  }

  /**
   * Connect a queue pair in state Idle (rdma_connect). Returns at once; events report the result.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_WRONG_PD for a queue pair of another device, ERR_TOO_LARGE for private
   *   data, ERR_INVALID_STATE unless the queue pair is Idle and free, ERR_DESTROYED
   */
  connect(qp: QueuePair, options: ConnectOptions): ActiveConnection {
    checkQp('qp', qp, this.device);
    checkConnectOptions(options);
    const target = checkTarget(options);
    this.#checkThreads(target);
    const policy = this.#policy(options);
    const connection = new ActiveConnection(this.#context(policy, options), qp, options);
    qp.attach(connection);
    connection.open(this.#engine, target);
    return connection;
  }

  /**
   * Listen for connections (rdma_bind_addr, rdma_listen). `onRequest` is called with each connection that has
   * sent a good Request; answer it with
   * `accept` or `reject`. Resolves when the address is bound.
   *
   * Rejects with ERR_CONNECT if the address cannot be bound (its `cause` is the system's error, with `code`,
   * `errno`, `syscall`, `address` and `port`), ERR_NOT_SUPPORTED if this Node or transport has no
   * `reusePort`, ERR_ENGINE_FAILED.
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
    const limits = checkListenOptions(options);
    checkFunction('onRequest', onRequest);
    if (this.device.state === 'closed') throw new IwarpError('ERR_DESTROYED', 'the device has been closed');
    const target = checkBind(options);
    this.#checkThreads(target);
    const context = this.#context(this.#policy(options), options);
    const listener = new CmListener(context, limits, onRequest, options.onFailure, this.#engine);
    return new Promise((resolve, reject) => {
      this.#engine.listen({ target, policy: context.policy, limits }, listener, (bound, error) => {
        if (bound === undefined) {
          listener.unbound();
          // The errors of our transports, and of an engine that has failed, need no further words.
          reject(ownError(error, 'ERR_CONNECT', `cannot listen: ${error?.message ?? 'unknown reason'}`));
          return;
        }
        listener.bound(bound);
        resolve(listener);
      });
    });
  }

  #checkThreads({ messagePort }: ConnectTarget | ListenTarget): void {
    if (messagePort !== undefined && this.device.wire !== 'shm')
      throw new IwarpError('ERR_NOT_SUPPORTED', "options.messagePort is for openRnic({ wire: 'shm' })");
  }

  /**
   * @internal A listener without an address: byte streams are handed to it by `take`. The options are those
   * of {@link ConnectionManager.listen}, but for the address.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_DESTROYED on a device that has been closed
   */
  receive(
    options: Omit<ListenOptions, keyof BindOptions>,
    onRequest: (connection: PassiveConnection) => void,
  ): CmListener {
    const limits = checkListenOptions(options);
    checkFunction('onRequest', onRequest);
    if (this.device.state === 'closed') throw new IwarpError('ERR_DESTROYED', 'the device has been closed');
    const context = this.#context(this.#policy(options), options);
    const listener = new CmListener(context, limits, onRequest, options.onFailure, this.#engine);
    listener.bound(UNBOUND);
    return listener;
  }

  /** Connections in start-up, established or closing. */
  get connections(): ReadonlySet<CmConnection> {
    return this.census.live;
  }

  /** Counters over every connection that this manager has or had. */
  counters(): DeviceCounters {
    return this.census.counters();
  }

  #policy({ policy, framing }: ConnectOptions | ListenOptions): ConnectionPolicy {
    const resolved = resolvePolicy(policy, DEFAULT_POLICY, 'options.policy');
    if (framing === undefined) return this.#policies.of(resolved);
    if (this.device.wire !== 'qpip')
      throw new IwarpError('ERR_NOT_SUPPORTED', "options.framing is for a device with wire: 'qpip'");
    return resolvePolicy({ framing }, resolved, 'options');
  }

  #context(policy: ConnectionPolicy, options: KeepAliveOptions): ConnectionContext {
    const { device, census } = this;
    return this.#contexts.of({ device, policy, census, keepAlive: checkKeepAlive(options) });
  }
}
