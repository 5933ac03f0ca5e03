/** `connect` and `createServer`: the two doors of the promise layer. */
import { checkBytes, checkInteger, IwarpError, show } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { CmListener, PassiveConnection } from '../cm/manager.ts';
import { privateDataRoom, requestRevision } from '../mpa/policy.ts';
import type { PortAddress } from '../transport/port.ts';
import { Connection } from './connection.ts';
import {
  checkEndpoint, checkOptionsObject, checkSignal, createResources, destroyResources, helloOf,
  type Endpoint, type EndpointOptions, type Resources,
} from './endpoint.ts';
import { abortError, closeError, RejectedError } from './errors.ts';
import { decodeHello, encodeHello, HELLO_OCTETS, type Hello } from './hello.ts';
import type { OperationOptions } from './operations.ts';
import { Waiters } from './waiters.ts';

/** Options of {@link connect}. */
export interface ConnectOptions extends EndpointOptions {
  /** Default `localhost`. */
  readonly host?: string;
  /** TCP port of the peer, 1 to 65535. */
  readonly port: number;
  /** Address to bind to before connecting; the system picks one by default. */
  readonly localAddress?: string;
  /** Port to bind to before connecting; 0, the default, lets the system pick. */
  readonly localPort?: number;
  /** Look the host name up for this family only: 4 for IPv4, 6 for IPv6. */
  readonly family?: 4 | 6;
  /** Octets for the peer to see with the request. Up to 492 octets, 508 with `credits: false`. */
  readonly privateData?: ArrayBufferView;
  /** Gives up connecting: rejects with ERR_ABORTED. A connection that is there already is not touched. */
  readonly signal?: AbortSignal;
}

/** Options of {@link createServer}. */
export interface ServerOptions extends EndpointOptions {
  /**
   * Decide on each request before it is accepted: return octets for the accepting Reply, nothing, or throw a {@link RejectedError} whose
   * private data goes into the rejecting Reply. May be async.
   */
  readonly onRequest?: (request: ServerRequest) => ArrayBufferView | void | Promise<ArrayBufferView | void>;
  /**
   * Told of what goes wrong in `onRequest` (anything thrown but a RejectedError; the request is rejected) and in the connection function
   * (anything but the connection's own end; the connection is dropped). Without it such an error is thrown to the process, as Node does
   * with unhandled ones.
   */
  readonly onError?: (error: unknown, connection: Connection | undefined) => void;
  /** Connections that may be in start-up at a time. */
  readonly maxPending?: number;
}

/** Where {@link Server.listen} listens. */
export interface ServerListenOptions {
  /** Default: every address, IPv4 and IPv6. */
  readonly host?: string;
  /** 0, the default, picks a free one, which `address` then tells. */
  readonly port?: number;
  /** TCP connections that the system may hold for us before they are taken; 511 by default. */
  readonly backlog?: number;
  /** With an IPv6 host: do not take IPv4 connections too. */
  readonly ipv6Only?: boolean;
}

/** A request as {@link ServerOptions.onRequest} sees it. */
export interface ServerRequest {
  /** The octets of the client's `privateData`, without our own announcement. */
  readonly privateData: Uint8Array;
  /** Where the request comes from. */
  readonly remoteAddress: PortAddress;
  /** Reads the client is ready to serve at a time (RFC 6581 9); undefined if its frame does not say. */
  readonly ird: number | undefined;
  /** Reads the client wants to have outstanding here; undefined if its frame does not say. */
  readonly ord: number | undefined;
}

/** The user's private data, with our announcement in front of it where there are credits. */
function withHello(name: string, data: ArrayBufferView | undefined, hello: Hello | null, room: number): Uint8Array {
  const bytes = data === undefined ? new Uint8Array(0) : checkBytes(name, data);
  const max = room - (hello === null ? 0 : HELLO_OCTETS);
  if (bytes.length > max) throw new IwarpError('ERR_TOO_LARGE', `${name} has ${bytes.length} octets, above the limit of ${max}`);
  return hello === null ? bytes.slice() : encodeHello(hello, bytes);
}

/**
 * Connect to an iWARP peer: our own server, Linux siw, or an adapter.
 *
 * Rejects with ERR_CONNECT (no TCP connection), ERR_REJECTED (with the peer's `privateData`), ERR_STARTUP, ERR_TIMEOUT, ERR_ABORTED, and
 * ERR_INVALID_ARGUMENT and the like for wrong options.
 *
 * @example
 * const connection = await connect({ host: '127.0.0.1', port: 4711 });
 * await connection.send('hello');
 * await connection.close();
 */
export async function connect(options: ConnectOptions): Promise<Connection> {
  checkOptionsObject(options);
  const signal = checkSignal(options.signal);
  checkInteger('options.port', options.port, 1, 65_535);
  const { localAddress, localPort, family } = options;
  if (localPort !== undefined) checkInteger('options.localPort', localPort, 0, 65_535);
  if (family !== undefined && family !== 4 && family !== 6) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.family must be 4 or 6, got ${show(family)}`);
  }
  if (localAddress !== undefined && typeof localAddress !== 'string') {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.localAddress must be a string, got ${show(localAddress)}`);
  }
  const endpoint = checkEndpoint(options);
  const { policy, ird, ord, rnic } = endpoint;
  const hello = endpoint.credits ? helloOf(endpoint) : null;
  const privateData = withHello('options.privateData', options.privateData, hello, privateDataRoom(policy, requestRevision(policy)));
  if (signal?.aborted === true) throw abortError(signal);
  const resources = createResources(endpoint);
  let cm: CmConnection;
  try {
    cm = rnic.cm.connect(resources.qp, {
      host: options.host ?? 'localhost',
      port: options.port,
      policy,
      privateData,
      ...(localAddress === undefined ? {} : { localAddress }),
      ...(localPort === undefined ? {} : { localPort }),
      ...(family === undefined ? {} : { family }),
      ...(ird === undefined ? {} : { responderResources: ird }),
      ...(ord === undefined ? {} : { initiatorDepth: ord }),
    });
  } catch (error) {
    destroyResources(resources);
    throw error;
  }
  return await established(cm, resources, signal);
}

/** Wait for the outcome of start-up. Resources are given back on every way but success. */
function established(cm: CmConnection, resources: Resources, signal: AbortSignal | undefined): Promise<Connection> {
  return new Promise((resolve, reject) => {
    let connection: Connection | null = null;
    let failure: IwarpError | null = null;
    const onAbort = (): void => {
      failure ??= abortError(signal!);
      cm.abort();
    };
    const fail = (error: IwarpError): void => {
      signal?.removeEventListener('abort', onAbort);
      destroyResources(resources);
      reject(failure ?? error);
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    cm.setHandler((event) => {
      if (connection !== null) {
        connection.handleEvent(event);
        return;
      }
      switch (event.type) {
        case 'established': {
          if (failure !== null) break; // aborted meanwhile: the end follows
          signal?.removeEventListener('abort', onAbort);
          const { hello, privateData } = decodeHello(event.parameters.privateData);
          connection = new Connection(cm, resources, resources.endpoint.credits ? hello : null, privateData);
          resolve(connection);
          break;
        }
        case 'rejected':
          failure ??= rejection(event);
          break;
        case 'connect-error':
          failure ??= new IwarpError(event.reason === 'timeout' ? 'ERR_TIMEOUT' : 'ERR_STARTUP', `MPA start-up failed: ${event.reason}`);
          break;
        case 'unreachable':
          fail(new IwarpError('ERR_CONNECT', `cannot connect: ${event.error.message}`, { cause: event.error }));
          break;
        case 'disconnected':
          fail(closeError(event.cause, event.error, event.terminate));
          break;
        default:
      }
    });
  });
}

function rejection(event: Extract<CmEvent, { type: 'rejected' }>): RejectedError {
  const why = event.markersAsked ? '; markers were asked for, which some peers (Linux siw) refuse' : '';
  return new RejectedError(`the peer rejected the connection${why}`, decodeHello(event.parameters.privateData).privateData);
}

/**
 * A server: give it a function, or iterate over its connections.
 *
 * A function that returns a promise may fail because its connection ends; that is nobody's fault and goes no further. What else it throws
 * goes to `onError`.
 */
export class Server {
  readonly #endpoint: Endpoint;
  readonly #onRequest: ServerOptions['onRequest'];
  readonly #onError: ServerOptions['onError'];
  readonly #maxPending: number | undefined;
  readonly #onConnection: ConnectionFunction | null;
  readonly #connections = new Set<Connection>();
  readonly #accepted: Connection[] = [];
  readonly #waiting = new Waiters<Connection | null>();
  #listener: CmListener | null = null;
  #state: 'new' | 'binding' | 'listening' | 'closed' = 'new';

  /** @internal Use {@link createServer}. */
  constructor(options: ServerOptions, onConnection: ConnectionFunction | undefined) {
    checkOptionsObject(options);
    checkFunction('onConnection', onConnection);
    checkFunction('options.onRequest', options.onRequest);
    checkFunction('options.onError', options.onError);
    if (options.maxPending !== undefined) checkInteger('options.maxPending', options.maxPending, 1, 1_000_000);
    this.#endpoint = checkEndpoint(options);
    this.#onRequest = options.onRequest;
    this.#onError = options.onError;
    this.#maxPending = options.maxPending;
    this.#onConnection = onConnection ?? null;
  }

  /**
   * Bind and listen.
   *
   * Rejects with ERR_CONNECT if the address cannot be had, ERR_INVALID_STATE if the server listens already or is closed.
   */
  async listen(where: ServerListenOptions = {}): Promise<this> {
    checkOptionsObject(where);
    if (this.#state !== 'new') throw new IwarpError('ERR_INVALID_STATE', `the server is ${this.#state} already`);
    this.#state = 'binding';
    const { rnic, policy } = this.#endpoint;
    try {
      this.#listener = await rnic.cm.listen(
        { ...where, policy, ...(this.#maxPending === undefined ? {} : { maxPending: this.#maxPending }) },
        (request) => void this.#handle(request),
      );
    } catch (error) {
      if (this.#state === 'binding') this.#state = 'new';
      throw error;
    }
    if (this.#state === 'binding') this.#state = 'listening';
    else this.#listener.close(); // closed meanwhile
    return this;
  }

  /** Where the server listens. ERR_INVALID_STATE before `listen` has settled. */
  get address(): PortAddress {
    if (this.#listener === null) throw new IwarpError('ERR_INVALID_STATE', 'the server is not listening');
    return this.#listener.address;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<Connection> {
    return this.#connections;
  }

  /** Stop listening and close every connection in order; settles when all are gone. With a `signal` those left are dropped when it is aborted. */
  async close(options: OperationOptions = {}): Promise<void> {
    checkOptionsObject(options);
    checkSignal(options.signal);
    this.#state = 'closed';
    while (this.#waiting.next(null));
    const listener = this.#listener;
    if (listener !== null) await new Promise<void>((resolve) => listener.close(resolve));
    await Promise.all([...this.#connections].map((connection) => connection.close(options)));
  }

  /** The same as `close()`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Connections as they come, for a server without a function; ends when the server is closed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Connection, void, undefined> {
    for (;;) {
      const next = this.#accepted.shift() ?? (this.#state === 'closed' ? null : await this.#waiting.wait(undefined));
      if (next === null) return;
      yield next;
    }
  }

  async #handle(request: PassiveConnection): Promise<void> {
    request.setHandler(() => undefined); // until there is a connection nothing that happens has anyone to tell
    const parameters = request.parameters!;
    const { hello, privateData } = decodeHello(parameters.privateData);
    let answer: ArrayBufferView | void;
    try {
      answer = await this.#onRequest?.({
        privateData, remoteAddress: request.remoteAddress!, ird: parameters.responderResources, ord: parameters.initiatorDepth,
      });
      if (this.#state !== 'listening' || request.finished) return;
      this.#accept(request, answer ?? undefined, this.#endpoint.credits ? hello : null, privateData);
    } catch (error) {
      if (!request.finished) this.#reject(request, error);
      if (!(error instanceof RejectedError)) this.#report(error, undefined);
    }
  }

  #accept(request: PassiveConnection, answer: ArrayBufferView | undefined, peer: Hello | null, privateData: Uint8Array): void {
    const { policy, ird, ord } = this.#endpoint;
    const room = privateDataRoom(policy, request.parameters!.revision);
    const reply = withHello('the answer of onRequest', answer, peer === null ? null : helloOf(this.#endpoint), room);
    const resources = createResources(this.#endpoint);
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
    request.setHandler(this.#handler(request, resources, peer, privateData));
  }

  /** Reject with the words of a RejectedError, cut to what fits; with none for anything else, a full device included. */
  #reject(request: PassiveConnection, error: unknown): void {
    const room = privateDataRoom(this.#endpoint.policy, request.parameters!.revision);
    request.reject(error instanceof RejectedError ? error.privateData.subarray(0, room) : undefined);
  }

  #handler(request: PassiveConnection, resources: Resources, peer: Hello | null, privateData: Uint8Array): (event: CmEvent) => void {
    let connection: Connection | null = null;
    return (event) => {
      if (connection !== null) {
        connection.handleEvent(event);
      } else if (event.type === 'established') {
        connection = new Connection(request, resources, peer, privateData);
        this.#admit(connection);
      } else if (event.type === 'disconnected') {
        destroyResources(resources);
      }
    };
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

  #report(error: unknown, connection: Connection | undefined): void {
    if (this.#onError === undefined) throw error;
    this.#onError(error, connection);
  }
}

/** What {@link createServer} calls for each connection. */
export type ConnectionFunction = (connection: Connection) => void | Promise<void>;

/** Codes with which a connection's calls fail because it has ended. */
const CONNECTION_ENDS: ReadonlySet<string> = new Set([
  'ERR_CONNECTION_CLOSED', 'ERR_CONNECTION_RESET', 'ERR_TERMINATED', 'ERR_TIMEOUT', 'ERR_FLUSHED',
]);

function checkFunction(name: string, value: unknown): void {
  if (value !== undefined && typeof value !== 'function') throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a function, got ${show(value)}`);
}

/**
 * A server.
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
