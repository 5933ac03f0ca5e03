/** `connect` and `createServer`: the two doors of the promise layer. */
import { checkBytes, checkInteger, IwarpError, show } from '../base/errors.ts';
import { checkDepth, checkPrivateData, type CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import type { CmListener, PassiveConnection } from '../cm/manager.ts';
import { resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import { ENHANCED_OCTETS, MAX_PRIVATE_DATA } from '../mpa/wire.ts';
import type { PortAddress } from '../transport/port.ts';
import { Connection, createResources, destroyResources, type EndpointOptions, type Resources } from './connection.ts';
import { defaultRnic, type Rnic } from './environment.ts';
import { abortError, closeError, RejectedError } from './errors.ts';
import { decodeHello, encodeHello, HELLO_OCTETS, type Hello } from './hello.ts';
import { Waiters } from './waiters.ts';

/** Options of {@link connect}. */
export interface ConnectOptions extends EndpointOptions {
  readonly host?: string;
  readonly port: number;
  readonly localAddress?: string;
  readonly localPort?: number;
  readonly family?: 4 | 6;
  /** Octets for the peer to see with the request. Up to 492 octets, 508 with `credits: false`. */
  readonly privateData?: ArrayBufferView;
  /** Reads that the peer, and we, may have outstanding. */
  readonly ird?: number;
  readonly ord?: number;
  readonly policy?: Partial<ConnectionPolicy>;
  readonly signal?: AbortSignal;
}

/** Options of {@link createServer}. */
export interface ServerOptions extends EndpointOptions {
  readonly policy?: Partial<ConnectionPolicy>;
  readonly ird?: number;
  readonly ord?: number;
  /**
   * Decide on each request before it is accepted: return octets for the accepting Reply, nothing, or throw a {@link RejectedError} whose
   * private data goes into the rejecting Reply. May be async.
   */
  readonly onRequest?: (request: ServerRequest) => ArrayBufferView | void | Promise<ArrayBufferView | void>;
  /** Connections that may be in start-up at a time. */
  readonly maxPending?: number;
}

/** A request as {@link ServerOptions.onRequest} sees it. */
export interface ServerRequest {
  readonly privateData: Uint8Array;
  readonly remoteAddress: PortAddress;
  readonly ird: number | undefined;
  readonly ord: number | undefined;
}

function helloOf(resources: Resources): Hello {
  return { credits: resources.receives, maxMessage: resources.maxMessage, extensions: resources.extensions };
}

function checkOptions(options: unknown): void {
  if (typeof options !== 'object' || options === null) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options must be an object, got ${show(options)}`);
  }
}

/** The user's private data, with our announcement in front of it where there are credits. */
function withHello(name: string, data: ArrayBufferView | undefined, hello: Hello | null, enhanced: boolean): Uint8Array {
  const bytes = data === undefined ? new Uint8Array(0) : checkBytes(name, data);
  if (hello === null) return checkPrivateData(name, bytes, enhanced);
  const max = MAX_PRIVATE_DATA - HELLO_OCTETS - (enhanced ? ENHANCED_OCTETS : 0);
  if (bytes.length > max) throw new IwarpError('ERR_TOO_LARGE', `${name} has ${bytes.length} octets, above the limit of ${max}`);
  return encodeHello(hello, bytes);
}

/**
 * Connect to an iWARP peer: our own server, Linux siw, or an adapter.
 *
 * Rejects with ERR_CONNECT (no TCP connection), ERR_REJECTED (with the peer's `privateData`), ERR_STARTUP, ERR_TIMEOUT, ERR_ABORTED.
 *
 * @example
 * const connection = await connect({ host: '127.0.0.1', port: 4711 });
 * await connection.send('hello');
 * await connection.close();
 */
export async function connect(options: ConnectOptions): Promise<Connection> {
  checkOptions(options);
  const { signal } = options;
  checkInteger('options.port', options.port, 1, 65_535);
  const policy = resolvePolicy(options.policy);
  if (signal?.aborted) throw abortError(signal);
  const rnic = options.rnic ?? defaultRnic();
  const resources = createResources(options, rnic);
  const credits = options.credits ?? true;
  let cm: CmConnection;
  try {
    const limit = rnic.device.limits.maxQpRdAtom;
    const ird = checkDepth('options.ird', options.ird, limit);
    const ord = checkDepth('options.ord', options.ord, limit);
    const privateData = withHello('options.privateData', options.privateData, credits ? helloOf(resources) : null, policy.mpaRevision === 2);
    cm = rnic.cm.connect(resources.qp, {
      host: options.host ?? 'localhost',
      port: options.port,
      policy,
      privateData,
      ...(options.localAddress === undefined ? {} : { localAddress: options.localAddress }),
      ...(options.localPort === undefined ? {} : { localPort: options.localPort }),
      ...(options.family === undefined ? {} : { family: options.family }),
      ...(ird === undefined ? {} : { responderResources: ird }),
      ...(ord === undefined ? {} : { initiatorDepth: ord }),
    });
  } catch (error) {
    destroyResources(resources);
    throw error;
  }
  return await established(cm, resources, credits, signal);
}

/** Wait for the outcome of start-up. Resources are given back on every way but success. */
function established(cm: CmConnection, resources: Resources, credits: boolean, signal: AbortSignal | undefined): Promise<Connection> {
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
          connection = new Connection(cm, resources, credits ? hello : null, privateData);
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

/** A server: give it a function, or iterate over its connections. */
export class Server {
  readonly #options: ServerOptions;
  readonly #onConnection: ((connection: Connection) => void) | null;
  readonly #policy: ConnectionPolicy;
  readonly #rnic: Rnic;
  readonly #connections = new Set<Connection>();
  readonly #accepted: Connection[] = [];
  readonly #waiting = new Waiters<Connection | null>();
  #listener: CmListener | null = null;
  #closed = false;

  /** @internal Use {@link createServer}. */
  constructor(options: ServerOptions, onConnection: ((connection: Connection) => void) | undefined) {
    checkOptions(options);
    if (onConnection !== undefined && typeof onConnection !== 'function') {
      throw new IwarpError('ERR_INVALID_ARGUMENT', `onConnection must be a function, got ${show(onConnection)}`);
    }
    this.#options = options;
    this.#onConnection = onConnection ?? null;
    this.#policy = resolvePolicy(options.policy);
    this.#rnic = options.rnic ?? defaultRnic();
  }

  /** Bind and listen; port 0 picks a free one, which `address` then tells. */
  async listen(where: { readonly host?: string; readonly port?: number; readonly backlog?: number } = {}): Promise<this> {
    if (this.#listener !== null || this.#closed) throw new IwarpError('ERR_INVALID_STATE', 'the server is listening or closed already');
    const { maxPending } = this.#options;
    this.#listener = await this.#rnic.cm.listen(
      { ...where, policy: this.#policy, ...(maxPending === undefined ? {} : { maxPending }) },
      (request) => void this.#handle(request),
    );
    return this;
  }

  /** Where the server listens. */
  get address(): PortAddress {
    if (this.#listener === null) throw new IwarpError('ERR_INVALID_STATE', 'the server is not listening');
    return this.#listener.address;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<Connection> {
    return this.#connections;
  }

  /** Stop listening and close every connection in order; settles when all are gone. */
  async close(): Promise<void> {
    if (!this.#closed) {
      this.#closed = true;
      while (this.#waiting.next(null));
    }
    const listener = this.#listener;
    if (listener !== null) await new Promise<void>((resolve) => listener.close(resolve));
    await Promise.all([...this.#connections].map((connection) => connection.close()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Connections as they come, for a server without a function. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Connection, void, undefined> {
    for (;;) {
      const next = this.#accepted.shift() ?? (this.#closed ? null : await this.#waiting.wait(undefined));
      if (next === null) return;
      yield next;
    }
  }

  async #handle(request: PassiveConnection): Promise<void> {
    request.setHandler(() => undefined); // until there is a connection nothing that happens has anyone to tell
    const { credits = true, onRequest, ird, ord } = this.#options;
    const { parameters } = request;
    const { hello, privateData } = decodeHello(parameters!.privateData);
    let answer: ArrayBufferView | void;
    try {
      answer = await onRequest?.({
        privateData, remoteAddress: request.remoteAddress!, ird: parameters!.responderResources, ord: parameters!.initiatorDepth,
      });
    } catch (error) {
      request.reject(error instanceof RejectedError ? error.privateData : undefined);
      if (!(error instanceof RejectedError)) throw error; // a bug in the user's function stays visible
      return;
    }
    if (this.#closed || request.finished) return;
    const peer = credits ? hello : null;
    const resources = createResources(this.#options, this.#rnic);
    request.setHandler(this.#handler(request, resources, peer, privateData));
    try {
      const limit = this.#rnic.device.limits.maxQpRdAtom;
      const depthIn = checkDepth('options.ird', ird, limit);
      const depthOut = checkDepth('options.ord', ord, limit);
      request.accept(resources.qp, {
        privateData: withHello('answer', answer ?? undefined, peer === null ? null : helloOf(resources), parameters!.revision === 2),
        ...(depthIn === undefined ? {} : { responderResources: depthIn }),
        ...(depthOut === undefined ? {} : { initiatorDepth: depthOut }),
      });
    } catch (error) {
      destroyResources(resources);
      throw error;
    }
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
    this.#connections.add(connection);
    void connection.closed.then(() => this.#connections.delete(connection));
    if (this.#onConnection !== null) this.#onConnection(connection);
    else if (!this.#waiting.next(connection)) this.#accepted.push(connection);
  }
}

/**
 * A server.
 *
 * @example
 * const server = await createServer({}, async (connection) => {
 *   for await (const message of connection) { console.log(message.data); message.release(); }
 * }).listen({ port: 4711 });
 */
export function createServer(options: ServerOptions = {}, onConnection?: (connection: Connection) => void): Server {
  return new Server(options, onConnection);
}
