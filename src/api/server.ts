/** `createServer`: the promise layer's way to accept peers. */
import { abortError, checkSignal, signalOf, whenAborted } from '../base/abort.ts';
import { brand } from '../base/brand.ts';
import {
  checkFunction,
  checkInteger,
  checkOptions,
  endsConnection,
  IwarpError,
  ownError,
  type Names,
} from '../base/errors.ts';
import type { CmEvent } from '../cm/events.ts';
import type { CmListener, ListenFailure, PassiveConnection } from '../cm/index.ts';
import { BIND_NAMES, type BindOptions } from '../cm/target.ts';
import { privateDataRoom } from '../mpa/policy.ts';
import type { Port, PortAddress } from '../transport/port.ts';
import { checkTls, type TlsInfo, type TlsOptions } from '../transport/tls-options.ts';
import { Connection } from './connection.ts';
import { displayAs } from './display.ts';
import {
  checkEndpoint,
  checkTlsEngine,
  createResources,
  destroyResources,
  ENDPOINT_NAMES,
  helloOf,
  usesCredits,
  withHello,
  type Endpoint,
  type EndpointOptions,
  type Resources,
} from './endpoint.ts';
import {
  closeError,
  isEngineFailure,
  peerName,
  RejectedError,
  startupFailureOf,
  type ErrorContext,
  type ServerFailure,
} from './errors.ts';
import { decodeHello, type Hello } from './hello.ts';
import type { OperationOptions } from './operations.ts';
import { Machine } from '../base/fsm.ts';
import { Waiters } from '../base/waiters.ts';
import { SERVER_TABLE, type ServerState } from './server-states.ts';

/** Options of {@link createServer}. */
export interface ServerOptions extends EndpointOptions {
  /**
   * Decides on each request before it is accepted. Return bytes for the accepting Reply, or nothing, or
   * throw a {@link RejectedError}, whose private data goes into the rejecting Reply. May be async.
   */
  readonly onRequest?:
    | ((request: ServerRequest) => ArrayBufferView | void | Promise<ArrayBufferView | void>)
    | undefined;
  /**
   * Called with errors of the program. From `onRequest`: anything thrown but a RejectedError; the request is
   * rejected. From the connection function: anything but the connection's own end; the connection is dropped.
   * Without `onError` such an error is an uncaught exception of the process, unless it only reports that
   * another connection has ended.
   */
  readonly onError?: ((error: unknown, connection: Connection | undefined) => void) | undefined;
  /**
   * Called for connections that were never established: faults of the peer, and reasons why it could not be
   * accepted. None of these harms the server. Without this function they are only counted, in
   * `rnic.cm.counters()`.
   */
  readonly onFailure?: ((failure: ServerFailure) => void) | undefined;
  /** Connections that may be in start-up at a time. Default 256. */
  readonly maxPending?: number | undefined;
  /** `maxPending` for one address (of IPv6, one /64). Default: `maxPending`. */
  readonly maxPendingPerAddress?: number | undefined;
  /**
   * Connections that the server may have in all, those in start-up included; further ones are reset, and
   * `onFailure` is called. Default: no limit but those of the device.
   */
  readonly maxConnections?: number | undefined;
  /** `maxConnections` for one address (of IPv6, one /64). Default: no limit. */
  readonly maxConnectionsPerAddress?: number | undefined;
  /** Speak TLS below MPA: options of `node:tls`, with `key` and `cert`. Default: no TLS. */
  readonly tls?: TlsOptions | false | undefined;
}

/** Connections that the program has not taken, of which those that have ended are kept too. */
const KEPT_CONNECTIONS = 256;

/** Milliseconds that a shutdown may take. */
const SHUTDOWN_TIMEOUT = 30_000;

/** Limits of the listener, as {@link ServerOptions} has them. */
const LIMITS = ['maxPending', 'maxPendingPerAddress', 'maxConnections', 'maxConnectionsPerAddress'] as const;
type Limits = Pick<ServerOptions, (typeof LIMITS)[number]>;

/** Where {@link Server.listen} listens. */
export interface ServerListenOptions extends BindOptions {
  /**
   * Closes the server in order when it is aborted. If that is while it binds, `listen` rejects with
   * ERR_ABORTED.
   */
  readonly signal?: AbortSignal | undefined;
}

const OPTIONS: Names<ServerOptions> = {
  ...ENDPOINT_NAMES,
  onRequest: true,
  onError: true,
  onFailure: true,
  maxPending: true,
  maxPendingPerAddress: true,
  maxConnections: true,
  maxConnectionsPerAddress: true,
  tls: true,
};
const LISTEN_OPTIONS: Names<ServerListenOptions> = { ...BIND_NAMES, signal: true };

/** A request as {@link ServerOptions.onRequest} sees it. */
export interface ServerRequest {
  /** The bytes of the client's `privateData`, without the announcement that this package adds. */
  readonly privateData: Uint8Array;
  /** The client's address. */
  readonly remoteAddress: PortAddress;
  /** Reads that the client will serve at a time (RFC 6581 9); undefined if its frame does not say. */
  readonly ird: number | undefined;
  /** Reads that the client wants to have outstanding here; undefined if its frame does not say. */
  readonly ord: number | undefined;
  /** Results of the TLS handshake with the client, its certificate among them; undefined without TLS. */
  readonly tls: TlsInfo | undefined;
}

/**
 * A server. Give it a function that is called with each connection, or iterate over its connections.
 *
 * If the function returns a promise and that rejects because the connection has ended, nothing happens. All
 * other errors of the function go to
 * `onError`.
 *
 * @example
 * const server = await createServer({}).listen({ port: 4711 });
 * for await (const connection of server) serve(connection);
 */
export class Server {
  static {
    brand(this, 'Server');
    displayAs(Server, (server) => ({
      state: server.#state,
      address: server.#listener === null ? null : peerName(server.#listener.address),
      connections: server.#connections.size,
    }));
  }

  readonly #endpoint: Endpoint;
  readonly #onRequest: ServerOptions['onRequest'];
  readonly #onError: ServerOptions['onError'];
  readonly #onFailure: ServerOptions['onFailure'];
  readonly #limits: Limits;
  readonly #tls: TlsOptions | undefined;
  /** Byte streams that the program has handed over, until each is a connection or has failed. */
  readonly #upgrades = new Map<PassiveConnection, Upgrade>();
  readonly #onConnection: ConnectionHandler | null;
  readonly #connections = new Set<Connection>();
  /** Connections that the program has not taken yet. */
  readonly #accepted: Connection[] = [];
  #sweepAt = KEPT_CONNECTIONS;
  readonly #waiting = new Waiters<Connection | null>();
  #listener: CmListener | null = null;
  #address: ServerPlace | null = null;
  /** The listener keeps the process alive. */
  #held = true;
  /** Settles when the address of the present run is bound, or cannot be. */
  #binding: Promise<CmListener> | null = null;
  /** Resolves when the addresses of earlier runs are free. */
  #freed: Promise<void> | null = null;
  /** Calls of `close`: each ends a run, of which a later one must not take anything over. */
  #closes = 0;
  /** The error that the engine under the listener has failed with. */
  #lost: IwarpError | null = null;
  readonly #life = new Machine(SERVER_TABLE);
  /** Lets the signal of `listen` go, which may outlive many servers. */
  #stopListening: (() => void) | null = null;

  /** @internal Use {@link createServer}. */
  constructor(options: ServerOptions, onConnection: ConnectionHandler | undefined) {
    checkOptions('options', options, OPTIONS);
    if (onConnection !== undefined) checkFunction('onConnection', onConnection);
    for (const name of ['onRequest', 'onError', 'onFailure'] as const) {
      if (options[name] !== undefined) checkFunction(`options.${name}`, options[name]);
    }
    const limits: { -readonly [K in keyof Limits]: number } = {};
    for (const name of LIMITS) {
      if (options[name] !== undefined)
        limits[name] = checkInteger(`options.${name}`, options[name], 1, 1_000_000);
    }
    this.#endpoint = checkEndpoint(options);
    this.#onRequest = options.onRequest;
    this.#onError = options.onError;
    this.#onFailure = options.onFailure;
    this.#limits = limits;
    this.#tls = checkTls(options.tls, 'server');
    checkTlsEngine(this.#tls, this.#endpoint);
    this.#onConnection = onConnection ?? null;
  }

  /**
   * Bind and listen.
   *
   * Rejects with ERR_CONNECT if the address cannot be bound (the `cause` is the system's error),
   * ERR_NOT_SUPPORTED for `reusePort` before Node 22.12, ERR_INVALID_STATE if the server listens already or
   * is closed meanwhile, ERR_ABORTED.
   *
   * After {@link Server.close}, also before that has resolved, a server may listen again, at the same address
   * too.
   *
   * Without a host the server listens on every address of the machine: give `127.0.0.1` for local clients
   * only.
   *
   * @example
   * const server = await createServer(serve).listen(4711, '127.0.0.1');
   */
  listen(port: number, host?: string): Promise<this>;
  /** Listen as the options say; port 0, the default, lets the system pick one. */
  listen(where?: ServerListenOptions): Promise<this>;
  async listen(first: number | ServerListenOptions = {}, host?: string): Promise<this> {
    const where = typeof first === 'number' ? { port: first, host } : first;
    checkOptions('options', where, LISTEN_OPTIONS);
    const { signal: given, ...rest } = where;
    const target = this.#tls === undefined ? rest : { tls: this.#tls, ...rest };
    const signal = checkSignal(given);
    if (!this.#life.accepts('listen'))
      throw new IwarpError('ERR_INVALID_STATE', `the server is ${this.#state} already`);
    if (signal?.aborted === true) throw abortError(signal);
    this.#life.step('listen');
    const run = this.#closes;
    this.#listener = null;
    this.#lost = null;
    if (signal !== undefined) this.#closeOn(signal);
    let listener: CmListener;
    try {
      this.#binding = this.#freed === null ? this.#bind(target) : this.#freed.then(() => this.#bind(target));
      listener = await this.#binding;
    } catch (error) {
      if (run === this.#closes) {
        this.#stopListening?.();
        this.#life.step('bind-failed');
      }
      throw error;
    }
    if (run === this.#closes) {
      this.#listener = listener;
      this.#life.step('bound');
      if (!this.#held) listener.unref();
      return this;
    }
    await released(listener); // closed meanwhile
    if (isAborted(signal)) throw abortError(signal!);
    throw new IwarpError('ERR_INVALID_STATE', 'the server was closed while its address was being bound');
  }

  #bind(target: BindOptions): Promise<CmListener> {
    const { rnic, policy, keepAlive } = this.#endpoint;
    const onFailure = (failure: ListenFailure): void => this.#failed(failure);
    return rnic.cm.listen(
      { ...target, policy, onFailure, ...keepAlive, ...this.#limits },
      (request) => void this.#handle(request),
    );
  }

  /**
   * @internal Serve on an established byte stream, as on a connection that has come to the listener. A server
   * that does not listen needs no address for that.
   */
  take(port: Port, signal: AbortSignal | undefined): Promise<Connection> {
    if (this.#state === 'new') {
      const { rnic, policy, keepAlive } = this.#endpoint;
      const onFailure = (failure: ListenFailure): void => this.#failed(failure);
      this.#listener = rnic.cm.receive(
        { policy, onFailure, ...keepAlive, ...this.#limits },
        (request) => void this.#handle(request),
      );
      this.#life.step('listen');
      this.#life.step('bound');
    }
    if (this.#state !== 'listening' || this.#listener === null)
      throw new IwarpError('ERR_INVALID_STATE', `the server is ${this.#state}`);
    const request = this.#listener.take(port);
    if (request === null)
      throw new IwarpError('ERR_LIMIT', 'the server has as many connections as its limits allow');
    return new Promise((resolve, reject) => {
      const stop = signal === undefined ? null : whenAborted(signal, () => abort());
      const settle = (): boolean => {
        stop?.();
        return this.#upgrades.delete(request);
      };
      const abort = (): void => {
        if (settle()) reject(abortError(signal!));
        request.abort();
      };
      this.#upgrades.set(request, {
        resolve: (connection) => settle() && resolve(connection),
        reject: (error) => settle() && reject(error),
      });
    });
  }

  /** @internal Nothing more is taken; the connections go on, and nothing of the server is left but they. */
  stopListening(): void {
    this.#listener?.close();
  }

  get #state(): ServerState {
    return this.#life.state;
  }

  #closeOn(signal: AbortSignal): void {
    this.#stopListening = whenAborted(signal, () => void this.close());
  }

  /** Where the server listens: `server.address().port`. See {@link ServerPlace}. */
  get address(): ServerPlace {
    return (this.#address ??= addressOf(() => this.#listener?.address));
  }

  /** Keep the process alive while the server listens, as it does unless {@link unref} has been called. */
  ref(): this {
    return this.#setRef(true);
  }

  /** Let the process end although the server listens, as `unref` of `net.Server` does. */
  unref(): this {
    return this.#setRef(false);
  }

  #setRef(on: boolean): this {
    this.#held = on;
    if (on) this.#listener?.ref();
    else this.#listener?.unref();
    return this;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<Connection> {
    return this.#connections;
  }

  /**
   * Stop listening and close every connection in order. Resolves when all have ended. When `signal` is
   * aborted, those that are left are dropped. After that the server may listen again.
   */
  async close(options: OperationOptions = {}): Promise<void> {
    signalOf(options);
    this.#life.step('close');
    this.#stopListening?.();
    while (this.#waiting.next(null));
    for (const { reject } of [...this.#upgrades.values()])
      reject(new IwarpError('ERR_CONNECTION_CLOSED', 'the server was closed'));
    this.#accepted.length = 0; // nobody has taken them, and they are among those that are closed
    const connections = [...this.#connections];
    this.#closes++;
    this.#freed = this.#free();
    await this.#freed;
    await Promise.all(connections.map((connection) => connection.close(options)));
  }

  /** Resolves when the address of the run that ends is free; whether it could be bound, `listen` says. */
  async #free(): Promise<void> {
    const [earlier, binding, listener] = [this.#freed, this.#binding, this.#listener];
    this.#binding = null;
    await earlier;
    const bound = listener ?? (await binding?.catch(() => null)) ?? null;
    if (bound !== null) await released(bound);
  }

  /**
   * Stop listening, let the requests and large messages under way finish, and close every connection in
   * order. Requests that come meanwhile are not begun, so that a client repeats them elsewhere. After
   * `timeout` ms (default 30,000), or when `signal` is aborted, the connections that are left are dropped.
   *
   * @example
   * process.once('SIGTERM', () => void server.shutdown());
   */
  async shutdown(options: OperationOptions = {}): Promise<void> {
    signalOf(options);
    await this.close({ ...options, timeout: options.timeout ?? SHUTDOWN_TIMEOUT });
  }

  /** The same as `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Wait for the next connection, in a server without a function. Resolves with null when the server is
   * closed. Rejects with ERR_INVALID_STATE if the server has a function, which gets them all, with
   * ERR_ENGINE_FAILED if none can come after a failure of the engine, and with ERR_ABORTED.
   */
  async accept(options: OperationOptions = {}): Promise<Connection | null> {
    const signal = signalOf(options);
    if (this.#onConnection !== null)
      throw new IwarpError(
        'ERR_INVALID_STATE',
        'the server gives its connections to the function that createServer was given',
      );
    if (signal?.aborted === true) throw abortError(signal);
    const next = this.#accepted.shift();
    if (next !== undefined) return next;
    if (this.#state === 'closed') return null;
    if (this.#lost !== null) throw this.#lost;
    return await this.#waiting.wait(signal);
  }

  /** Connections in order of arrival, as {@link Server.accept} gives them. Ends when the server is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Connection, void, undefined> {
    for (let next = await this.accept(); next !== null; next = await this.accept()) yield next;
  }

  async #handle(request: PassiveConnection): Promise<void> {
    const attempt = new Attempt(request, (failure) => {
      this.#upgrades.get(request)?.reject(failure.error);
      this.#fail(failure);
    });
    const run = this.#closes;
    const parameters = request.parameters!;
    const { hello, privateData } = decodeHello(parameters.privateData);
    let answer: ArrayBufferView | void;
    try {
      answer = await this.#onRequest?.({
        privateData,
        remoteAddress: request.remoteAddress!,
        ird: parameters.initiatorDepth,
        ord: parameters.responderResources,
        tls: request.tls,
      });
      if (run !== this.#closes || request.finished) return;
      this.#accept(attempt, answer ?? undefined, this.#endpoint.credits ? hello : null, privateData);
    } catch (error) {
      if (!request.finished) this.#reject(request, error);
      this.#upgrades
        .get(request)
        ?.reject(ownError(error as Error, 'ERR_REJECTED', 'onRequest rejected the connection'));
      if (!(error instanceof RejectedError)) this.#report(error, undefined);
    }
  }

  #accept(
    attempt: Attempt,
    answer: ArrayBufferView | undefined,
    peer: Hello | null,
    privateData: Uint8Array,
  ): void {
    const { request } = attempt;
    const { policy, ird, ord } = this.#endpoint;
    const room = privateDataRoom(policy, request.parameters!.revision);
    const growing = usesCredits(this.#endpoint, peer);
    const reply = withHello(
      'the answer of onRequest',
      answer,
      peer === null ? null : helloOf(this.#endpoint, growing),
      room,
    );
    let resources: Resources;
    try {
      resources = createResources(this.#endpoint, growing ? 'by-credits' : 'as-taken');
    } catch (error) {
      // A peer that opens one connection too many is no reason to throw at the process.
      if (!(error instanceof IwarpError) || error.code !== 'ERR_LIMIT') throw error;
      request.reject();
      attempt.fail('limit', error);
      return;
    }
    try {
      request.accept(resources.qp, {
        privateData: reply,
        ...(ird === undefined ? {} : { responderResources: ird }),
        ...(ord === undefined ? {} : { initiatorDepth: ord }),
      });
    } catch (error) {
      destroyResources(resources);
      throw error;
    }
    const run = this.#closes;
    attempt.accepted(resources, () => {
      const connection = new Connection(request, resources, peer, privateData);
      this.#admit(connection, run);
      this.#upgrades.get(request)?.resolve(connection);
      return connection;
    });
  }

  /**
   * Reject with the words of a RejectedError, cut to what fits; with none for anything else, a full device
   * included.
   */
  #reject(request: PassiveConnection, error: unknown): void {
    const room = privateDataRoom(this.#endpoint.policy, request.parameters!.revision);
    request.reject(error instanceof RejectedError ? error.privateData.subarray(0, room) : undefined);
  }

  #admit(connection: Connection, run: number): void {
    if (run !== this.#closes) {
      connection.destroy();
      return;
    }
    this.#connections.add(connection);
    void connection.closed.then(() => this.#connections.delete(connection));
    if (this.#onConnection !== null) void this.#attend(connection, this.#onConnection);
    else if (!this.#waiting.next(connection)) this.#keep(connection);
  }

  /**
   * Connections that end before the program takes them are dropped when there are many: peers that come and
   * go must not fill the list. Each sweep waits for the list to double, so that the work for one stays
   * constant.
   */
  #keep(connection: Connection): void {
    const accepted = this.#accepted;
    if (accepted.length >= this.#sweepAt) {
      const open = accepted.filter(({ state }) => state !== 'closed');
      accepted.splice(0, accepted.length, ...open);
      this.#sweepAt = Math.max(KEPT_CONNECTIONS, 2 * open.length);
    }
    accepted.push(connection);
  }

  async #attend(connection: Connection, attend: ConnectionHandler): Promise<void> {
    try {
      await attend(connection);
    } catch (error) {
      // `closed` reports the end of the connection; a loop over messages that this end broke off has done
      // nothing wrong.
      if (connection.state !== 'open' && endsConnection(error)) return;
      connection.destroy();
      // The function sent to another connection, which has ended: that is no fault of the program.
      if (this.#onError === undefined && endsConnection(error)) return;
      this.#report(error, connection);
    }
  }

  /** The listener reports a connection that ended before its request. */
  #failed({ reason, remoteAddress, error, connection }: ListenFailure): void {
    switch (reason) {
      case 'too-many-pending':
      case 'too-many-connections':
        this.#fail({
          kind: 'refused',
          error: new IwarpError(
            'ERR_LIMIT',
            reason === 'too-many-pending'
              ? 'maxPending connections wait for an answer'
              : 'there are maxConnections connections, or maxConnectionsPerAddress of this address',
          ),
          remoteAddress,
        });
        break;
      case 'accept-error':
        if (isEngineFailure(error)) {
          this.#lost = error;
          this.#waiting.rejectAll(error);
        }
        this.#fail({
          kind: 'accept',
          error: ownError(error, 'ERR_CONNECT', String(error)),
          remoteAddress,
        });
        break;
      default: {
        const failure = startupFailureOf(reason, 'server', nameOf(remoteAddress));
        if (connection !== undefined) this.#upgrades.get(connection)?.reject(failure);
        this.#fail({ kind: 'startup-failed', error: failure, remoteAddress });
      }
    }
  }

  /**
   * Reports a failure, unless the server is closed: connections that its own close breaks off have not
   * failed.
   */
  #fail(failure: ServerFailure): void {
    if (this.#state !== 'closed') this.#onFailure?.(failure);
  }

  #report(error: unknown, connection: Connection | undefined): void {
    if (this.#onError === undefined) throw error;
    this.#onError(error, connection);
  }
}

function nameOf(address: PortAddress | undefined): string | undefined {
  return address === undefined ? undefined : peerName(address);
}

/** Where a server listens, by a call, which throws ERR_INVALID_STATE before `listen` has resolved. */
export type ServerPlace = (() => PortAddress) & {
  /** @deprecated Use `server.address().address`; the former spelling stays for one release. */
  readonly address: string | undefined;
  /** @deprecated Use `server.address().port`; the former spelling stays for one release. */
  readonly port: number | undefined;
  /** @deprecated Use `server.address().family`; the former spelling stays for one release. */
  readonly family: PortAddress['family'] | undefined;
};

/** `address` was a getter in the first version: its fields are those of the function, too. */
function addressOf(found: () => PortAddress | undefined): ServerPlace {
  const address = (): PortAddress => {
    const where = found();
    if (where === undefined) throw new IwarpError('ERR_INVALID_STATE', 'the server is not listening');
    return where;
  };
  const field = (name: keyof PortAddress): PropertyDescriptor => ({
    enumerable: true,
    get: () => found()?.[name],
  });
  return Object.defineProperties(address, {
    address: field('address'),
    port: field('port'),
    family: field('family'),
  }) as ServerPlace;
}

/** One request, until it is a connection or has come to nothing. */
class Attempt {
  readonly request: PassiveConnection;
  readonly #onFailure: (failure: ServerFailure) => void;
  readonly #remoteAddress: PortAddress | undefined;
  #resources: Resources | null = null;
  #establish: (() => Connection) | null = null;
  #connection: Connection | null = null;
  #failed = false;

  constructor(request: PassiveConnection, onFailure: (failure: ServerFailure) => void) {
    this.request = request;
    this.#onFailure = onFailure;
    this.#remoteAddress = request.remoteAddress;
    request.setHandler((event) => this.#handle(event));
  }

  /** A Reply has been sent: `establish` makes the connection once the peer has answered it. */
  accepted(resources: Resources, establish: () => Connection): void {
    this.#resources = resources;
    this.#establish = establish;
  }

  fail(kind: ServerFailure['kind'], error: IwarpError): void {
    this.#onFailure({ kind, error, remoteAddress: this.#remoteAddress });
  }

  #handle(event: CmEvent): void {
    if (this.#connection !== null) {
      this.#connection.handleEvent(event);
    } else if (event.type === 'established') {
      this.#connection = this.#establish!();
    } else if (event.type === 'connect-error' && event.reason !== 'connect') {
      this.#failedOnce(startupFailureOf(event.reason, 'server', nameOf(this.#remoteAddress)));
    } else if (event.type === 'disconnected') {
      if (this.#resources !== null) destroyResources(this.#resources);
      if (event.cause !== 'rejected')
        this.#failedOnce(closeError(event.cause, event.error, event.terminate, this.#context));
    }
  }

  /** A failure is reported when it happens, and not again when TCP has ended. */
  #failedOnce(error: IwarpError): void {
    if (this.#failed) return;
    this.#failed = true;
    this.fail('startup-failed', error);
  }

  get #context(): ErrorContext | undefined {
    const peer = nameOf(this.#remoteAddress);
    return peer === undefined ? undefined : { peer, side: 'server' };
  }
}

/** Resolves when the listener's address is free: `close` waits for that, and a `listen` that it overtakes. */
function released(listener: CmListener): Promise<void> {
  return new Promise((resolve) => listener.close(resolve));
}

/** Settles the promise of an upgrade. */
interface Upgrade {
  resolve(connection: Connection): void;
  reject(error: Error): void;
}

/** The function that {@link createServer} calls for each connection. */
export type ConnectionHandler = (connection: Connection) => void | Promise<void>;

/** Looked at again after a wait: the compiler takes the first look for good. */
function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

/**
 * Create a server. It does not listen before {@link Server.listen} is called.
 *
 * @throws ERR_INVALID_ARGUMENT and the like for wrong options
 *
 * @example
 * const server = await createServer(async (connection) => {
 *   for await (const message of connection) { console.log(message.text()); message.release(); }
 * }).listen(4711, '127.0.0.1');
 */
export function createServer(
  options: ServerOptions | ConnectionHandler = {},
  onConnection?: ConnectionHandler,
): Server {
  return typeof options === 'function' && onConnection === undefined
    ? new Server({}, options)
    : new Server(options as ServerOptions, onConnection);
}
