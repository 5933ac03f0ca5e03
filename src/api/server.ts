/** `createServer`: the promise layer's way to accept peers. */
import { abortError, checkSignal, signalOf, whenAborted } from '../base/abort.ts';
import { checkFunction, checkInteger, checkOptions, IwarpError, ownError, type Names } from '../base/errors.ts';
import type { CmEvent } from '../cm/events.ts';
import type { CmListener, ListenFailure, PassiveConnection } from '../cm/manager.ts';
import { BIND_NAMES, type BindOptions } from '../cm/target.ts';
import { privateDataRoom } from '../mpa/policy.ts';
import type { PortAddress } from '../transport/port.ts';
import { Connection } from './connection.ts';
import {
  checkEndpoint, createResources, destroyResources, ENDPOINT_NAMES, helloOf, withHello,
  type Endpoint, type EndpointOptions, type Resources,
} from './endpoint.ts';
import { closeError, isEngineFailure, RejectedError, startupError, type ServerFailure } from './errors.ts';
import { decodeHello, type Hello } from './hello.ts';
import type { OperationOptions } from './operations.ts';
import { Waiters } from '../base/waiters.ts';

/** Options of {@link createServer}. */
export interface ServerOptions extends EndpointOptions {
  /**
   * Decides on each request before it is accepted. Return octets for the accepting Reply, or nothing, or throw a {@link RejectedError}, whose
   * private data goes into the rejecting Reply. May be async.
   */
  readonly onRequest?: ((request: ServerRequest) => ArrayBufferView | void | Promise<ArrayBufferView | void>) | undefined;
  /**
   * Called with errors of the program. From `onRequest`: anything thrown but a RejectedError; the request is rejected. From the connection
   * function: anything but the connection's own end; the connection is dropped. Without `onError` such an error is an uncaught exception of the
   * process.
   */
  readonly onError?: ((error: unknown, connection: Connection | undefined) => void) | undefined;
  /**
   * Called for connections that were never established: faults of the peer, and reasons why it could not be accepted. None of these harms the
   * server. Without this function they are only counted, in `rnic.cm.counters()`.
   */
  readonly onFailure?: ((failure: ServerFailure) => void) | undefined;
  /** Connections that may be in start-up at a time. Default 256. */
  readonly maxPending?: number | undefined;
}

/** Where {@link Server.listen} listens. */
export interface ServerListenOptions extends BindOptions {
  /** Closes the server in order when it is aborted. If that is while it binds, `listen` rejects with ERR_ABORTED. */
  readonly signal?: AbortSignal | undefined;
}

const OPTIONS: Names<ServerOptions> = { ...ENDPOINT_NAMES, onRequest: true, onError: true, onFailure: true, maxPending: true };
const LISTEN_OPTIONS: Names<ServerListenOptions> = { ...BIND_NAMES, signal: true };

/** A request as {@link ServerOptions.onRequest} sees it. */
export interface ServerRequest {
  /** The octets of the client's `privateData`, without the announcement that this package adds. */
  readonly privateData: Uint8Array;
  /** The client's address. */
  readonly remoteAddress: PortAddress;
  /** Reads that the client will serve at a time (RFC 6581 9); undefined if its frame does not say. */
  readonly ird: number | undefined;
  /** Reads that the client wants to have outstanding here; undefined if its frame does not say. */
  readonly ord: number | undefined;
}

/**
 * A server. Give it a function that is called with each connection, or iterate over its connections.
 *
 * If the function returns a promise and that rejects because the connection has ended, nothing happens. All other errors of the function go to
 * `onError`.
 *
 * @example
 * const server = await createServer({}).listen({ port: 4711 });
 * for await (const connection of server) serve(connection);
 */
export class Server {
  readonly #endpoint: Endpoint;
  readonly #onRequest: ServerOptions['onRequest'];
  readonly #onError: ServerOptions['onError'];
  readonly #onFailure: ServerOptions['onFailure'];
  readonly #maxPending: number | undefined;
  readonly #onConnection: ConnectionFunction | null;
  readonly #connections = new Set<Connection>();
  readonly #accepted: Connection[] = [];
  readonly #waiting = new Waiters<Connection | null>();
  #listener: CmListener | null = null;
  /** Settles when the address is bound, or cannot be. */
  #binding: Promise<unknown> | null = null;
  #unbinding: Promise<void> | null = null;
  /** What the engine under the listener has failed with. */
  #lost: IwarpError | null = null;
  #state: 'new' | 'binding' | 'listening' | 'closed' = 'new';
  /** Lets the signal of `listen` go, which may outlive many servers. */
  #stopListening: (() => void) | null = null;

  /** @internal Use {@link createServer}. */
  constructor(options: ServerOptions, onConnection: ConnectionFunction | undefined) {
    checkOptions('options', options, OPTIONS);
    if (onConnection !== undefined) checkFunction('onConnection', onConnection);
    for (const name of ['onRequest', 'onError', 'onFailure'] as const) {
      if (options[name] !== undefined) checkFunction(`options.${name}`, options[name]);
    }
    if (options.maxPending !== undefined) checkInteger('options.maxPending', options.maxPending, 1, 1_000_000);
    this.#endpoint = checkEndpoint(options);
    this.#onRequest = options.onRequest;
    this.#onError = options.onError;
    this.#onFailure = options.onFailure;
    this.#maxPending = options.maxPending;
    this.#onConnection = onConnection ?? null;
  }

  /**
   * Bind and listen.
   *
   * Rejects with ERR_CONNECT if the address cannot be bound (the `cause` is the system's error), ERR_NOT_SUPPORTED for `reusePort` before Node
   * 22.12, ERR_INVALID_STATE if the server listens already or is closed, also meanwhile, ERR_ABORTED.
   */
  async listen(where: ServerListenOptions = {}): Promise<this> {
    checkOptions('options', where, LISTEN_OPTIONS);
    const { signal: given, ...target } = where;
    const signal = checkSignal(given);
    if (this.#state !== 'new') throw new IwarpError('ERR_INVALID_STATE', `the server is ${this.#state} already`);
    if (signal?.aborted === true) throw abortError(signal);
    this.#state = 'binding';
    if (signal !== undefined) this.#closeOn(signal);
    const { rnic, policy } = this.#endpoint;
    const maxPending = this.#maxPending === undefined ? {} : { maxPending: this.#maxPending };
    const onFailure = (failure: ListenFailure): void => this.#failed(failure);
    try {
      const binding = rnic.cm.listen({ ...target, policy, onFailure, ...maxPending }, (request) => void this.#handle(request));
      this.#binding = binding;
      this.#listener = await binding;
    } catch (error) {
      this.#stopListening?.();
      if (this.#state === 'binding') this.#state = 'new';
      throw error;
    }
    if (this.#state !== 'binding') await this.#unbind(this.#listener); // closed meanwhile
    if (isAborted(signal)) throw abortError(signal!);
    if (this.#state !== 'binding') throw new IwarpError('ERR_INVALID_STATE', 'the server was closed while its address was being bound');
    this.#state = 'listening';
    return this;
  }

  #closeOn(signal: AbortSignal): void {
    this.#stopListening = whenAborted(signal, () => void this.close());
  }

  /** Where the server listens. Throws ERR_INVALID_STATE before `listen` has resolved. */
  get address(): PortAddress {
    if (this.#listener === null) throw new IwarpError('ERR_INVALID_STATE', 'the server is not listening');
    return this.#listener.address;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<Connection> {
    return this.#connections;
  }

  /** Stop listening and close every connection in order. Resolves when all have ended. When `signal` is aborted, those that are left are dropped. */
  async close(options: OperationOptions = {}): Promise<void> {
    signalOf(options);
    this.#state = 'closed';
    this.#stopListening?.();
    while (this.#waiting.next(null));
    this.#accepted.length = 0; // nobody has taken them, and they are among those that are closed
    await this.#binding?.catch(() => undefined); // `listen` says so
    const listener = this.#listener;
    if (listener !== null) await this.#unbind(listener);
    await Promise.all([...this.#connections].map((connection) => connection.close(options)));
  }

  /** Resolves when the address is free. Both `close` and a `listen` that it has overtaken wait for that. */
  #unbind(listener: CmListener): Promise<void> {
    return (this.#unbinding ??= new Promise((resolve) => listener.close(resolve)));
  }

  /** The same as `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Wait for the next connection, in a server without a function. Resolves with null when the server is closed. Rejects with ERR_INVALID_STATE if the
   * server has a function, which gets them all, with ERR_ENGINE_FAILED if none can come any more, and with ERR_ABORTED.
   */
  async accept(options: OperationOptions = {}): Promise<Connection | null> {
    const signal = signalOf(options);
    if (this.#onConnection !== null) throw new IwarpError('ERR_INVALID_STATE', 'the server gives its connections to the function that createServer was given');
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
    const attempt = new Attempt(request, (failure) => this.#fail(failure));
    const parameters = request.parameters!;
    const { hello, privateData } = decodeHello(parameters.privateData);
    let answer: ArrayBufferView | void;
    try {
      answer = await this.#onRequest?.({
        privateData, remoteAddress: request.remoteAddress!, ird: parameters.responderResources, ord: parameters.initiatorDepth,
      });
      if (this.#state !== 'listening' || request.finished) return;
      this.#accept(attempt, answer ?? undefined, this.#endpoint.credits ? hello : null, privateData);
    } catch (error) {
      if (!request.finished) this.#reject(request, error);
      if (!(error instanceof RejectedError)) this.#report(error, undefined);
    }
  }

  #accept(attempt: Attempt, answer: ArrayBufferView | undefined, peer: Hello | null, privateData: Uint8Array): void {
    const { request } = attempt;
    const { policy, ird, ord } = this.#endpoint;
    const room = privateDataRoom(policy, request.parameters!.revision);
    const reply = withHello('the answer of onRequest', answer, peer === null ? null : helloOf(this.#endpoint), room);
    let resources: Resources;
    try {
      resources = createResources(this.#endpoint);
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
    attempt.accepted(resources, () => {
      const connection = new Connection(request, resources, peer, privateData);
      this.#admit(connection);
      return connection;
    });
  }

  /** Reject with the words of a RejectedError, cut to what fits; with none for anything else, a full device included. */
  #reject(request: PassiveConnection, error: unknown): void {
    const room = privateDataRoom(this.#endpoint.policy, request.parameters!.revision);
    request.reject(error instanceof RejectedError ? error.privateData.subarray(0, room) : undefined);
  }

  #admit(connection: Connection): void {
    if (this.#state === 'closed') {
      connection.destroy();
      return;
    }
    this.#connections.add(connection);
    void connection.closed.then(() => this.#connections.delete(connection));
    if (this.#onConnection !== null) void this.#attend(connection, this.#onConnection);
    else if (!this.#waiting.next(connection)) this.#accepted.push(connection);
  }

  async #attend(connection: Connection, attend: ConnectionFunction): Promise<void> {
    try {
      await attend(connection);
    } catch (error) {
      // The end of its own connection is told by `closed`; a loop over messages that it ended has done nothing wrong.
      if (connection.state !== 'open' && error instanceof IwarpError && CONNECTION_ENDS.has(error.code)) return;
      connection.destroy();
      this.#report(error, connection);
    }
  }

  /** The listener tells of a connection that had not come to its request. */
  #failed({ reason, remoteAddress, error }: ListenFailure): void {
    switch (reason) {
      case 'too-many-pending':
        this.#fail({ kind: 'refused', error: new IwarpError('ERR_LIMIT', 'maxPending connections are in start-up'), remoteAddress });
        break;
      case 'accept-error':
        if (isEngineFailure(error)) {
          this.#lost = error;
          this.#waiting.rejectAll(error);
        }
        this.#fail({
          kind: 'accept', error: ownError(error, 'ERR_CONNECT', String(error)), remoteAddress,
        });
        break;
      default:
        this.#fail({ kind: 'start-up', error: startupError(reason, 'passive'), remoteAddress });
    }
  }

  /** What a close of the server itself breaks off is no failure. */
  #fail(failure: ServerFailure): void {
    if (this.#state !== 'closed') this.#onFailure?.(failure);
  }

  #report(error: unknown, connection: Connection | undefined): void {
    if (this.#onError === undefined) throw error;
    this.#onError(error, connection);
  }
}

/** One request, until it is a connection or has come to nothing. */
class Attempt {
  readonly request: PassiveConnection;
  readonly #onFailure: (failure: ServerFailure) => void;
  readonly #remoteAddress: PortAddress | undefined;
  #resources: Resources | null = null;
  #establish: (() => Connection) | null = null;
  #connection: Connection | null = null;
  #error: IwarpError | null = null;

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
    } else if (event.type === 'connect-error') {
      this.#error = startupError(event.reason, 'passive');
    } else if (event.type === 'disconnected') {
      if (this.#resources !== null) destroyResources(this.#resources);
      if (event.cause !== 'rejected') this.fail('start-up', this.#error ?? closeError(event.cause, event.error, event.terminate));
    }
  }
}

/** What {@link createServer} calls for each connection. */
export type ConnectionFunction = (connection: Connection) => void | Promise<void>;

/** Codes with which a connection's calls fail because it has ended, or because the peer ended it by refusing them. */
const CONNECTION_ENDS: ReadonlySet<string> = new Set([
  'ERR_CONNECTION_CLOSED', 'ERR_CONNECTION_RESET', 'ERR_TERMINATED', 'ERR_TIMEOUT', 'ERR_WORK_COMPLETION', 'ERR_ENGINE_FAILED',
]);

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
 * const server = await createServer({}, async (connection) => {
 *   for await (const message of connection) { console.log(message.data); message.release(); }
 * }).listen({ port: 4711 });
 */
export function createServer(options: ServerOptions = {}, onConnection?: ConnectionFunction): Server {
  return new Server(options, onConnection);
}
