/** The side that listens, in the shape of `net.Server`. */
import { EventEmitter } from 'node:events';
import type { Rnic } from '../api/environment.ts';
import { isEngineFailure } from '../api/errors.ts';
import { checkSignal, whenAborted } from '../base/abort.ts';
import { checkFunction, checkInteger, IwarpError } from '../base/errors.ts';
import type { CmListener, PassiveConnection } from '../cm/manager.ts';
import type { BindOptions } from '../cm/target.ts';
import { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import type { PortAddress } from '../transport/port.ts';
import { checkOnRead, type OnReadOptions } from './onread.ts';
import { checkSocketOptions, portOf, type RdmaSocketOptions } from './options.ts';
import { RdmaSocket } from './socket.ts';
import { decodeConnectionData, type ConnectionData } from './wire.ts';

/** Options of {@link createServer}. */
export interface ServerOptions extends Omit<RdmaSocketOptions, 'signal'> {
  /** Differences from `DEFAULT_POLICY` of `iwarp`. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** Closes the server when it is aborted. */
  readonly signal?: AbortSignal | undefined;
  /** Called for each connection before the `connection` event: where received octets go, as `onread` of {@link connect}. `node:net` has it for clients only. */
  readonly onread?: ((socket: RdmaSocket) => OnReadOptions) | undefined;
}

/** Where {@link RdmaServer.listen} listens. */
export interface ListenOptions extends Omit<BindOptions, 'port'> {
  /** TCP port; 0, the default, picks a free one. */
  readonly port?: number | string | null | undefined;
  /** Closes the server when it is aborted. */
  readonly signal?: AbortSignal | undefined;
}

/** The addresses of a connection that was rejected because there are too many, as `net.Server` gives them. */
export interface DropArgument {
  /** Our address. */
  readonly localAddress?: string;
  /** Our TCP port. */
  readonly localPort?: number;
  /** `IPv4` or `IPv6`. */
  readonly localFamily?: string;
  /** The peer's address. */
  readonly remoteAddress?: string;
  /** The peer's TCP port. */
  readonly remotePort?: number;
  /** `IPv4` or `IPv6`. */
  readonly remoteFamily?: string;
}

function dropOf({ localAddress, remoteAddress }: PassiveConnection): DropArgument {
  return {
    ...(localAddress && { localAddress: localAddress.address, localPort: localAddress.port, localFamily: localAddress.family }),
    ...(remoteAddress && { remoteAddress: remoteAddress.address, remotePort: remoteAddress.port, remoteFamily: remoteAddress.family }),
  };
}

/** Events of {@link RdmaServer}, with the arguments of their listeners. */
export interface ServerEvents {
  /** The address is bound. */
  listening: [];
  /** A connection has been established. */
  connection: [socket: RdmaSocket];
  /** The server could not listen; with ERR_ENGINE_FAILED, it can accept no more connections. */
  error: [error: Error];
  /** The server has stopped listening, and its last connection has ended. */
  close: [];
  /** A connection was rejected, because `maxConnections` are open or the device is at a limit. */
  drop: [data: DropArgument];
}

/**
 * A server. Events: `listening`, `connection` (socket), `drop` (addresses), `error`, `close`.
 *
 * The server's side may send as soon as the connection is made, as programs on rsockets expect. RFC 5044 (MPA-028) wants it to wait for
 * the initiator's first FPDU; with `policy: { responder: 'strict' }` it waits.
 */
export class RdmaServer extends EventEmitter<ServerEvents> {
  readonly #options: ServerOptions;
  readonly #policy: ConnectionPolicy;
  readonly #rnic: Rnic;
  readonly #sockets = new Set<RdmaSocket>();
  #listener: CmListener | null = null;
  /** Calls off what is to happen when a signal is aborted. */
  readonly #stops: (() => void)[] = [];
  /** It keeps the process alive while it listens. */
  #held = true;
  #state: 'idle' | 'binding' | 'listening' | 'closing' | 'closed' = 'idle';
  /** Connections beyond this number are rejected. */
  maxConnections: number = Number.POSITIVE_INFINITY;

  /** @internal Use {@link createServer}. */
  constructor(options: ServerOptions) {
    super();
    this.#rnic = checkSocketOptions(options);
    if (options.onread !== undefined) checkFunction('options.onread', options.onread);
    this.#options = options;
    this.#policy = resolvePolicy(options.policy, { ...DEFAULT_POLICY, responder: 'relaxed' });
    checkSignal(options.signal);
  }

  #closeOn(signal: AbortSignal | undefined): void {
    if (signal?.aborted === true) process.nextTick(this.#onAbort);
    else if (signal !== undefined) this.#stops.push(whenAborted(signal, this.#onAbort));
  }

  readonly #onAbort = (): void => {
    if (this.#state === 'binding' || this.#state === 'listening') this.close();
  };

  /** Nothing is bound any more: the signals may outlive many servers. */
  #letSignalsGo(): void {
    for (const stop of this.#stops.splice(0)) stop();
  }

  /**
   * Bind and listen; a `listening` or `error` event follows. The arguments are those of `node:net`: `listen(port, host, backlog, callback)`, each
   * optional, or `listen({ port, host, backlog, signal }, callback)`. Port 0 picks a free one; the port may be a string of digits. A server that has
   * been closed can listen again.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE if it listens already or is being closed
   */
  listen(port?: number | string | null, host?: string, backlog?: number, ready?: () => void): this;
  listen(port: number | string | null, host: string, ready?: () => void): this;
  listen(port: number | string | null, ready?: () => void): this;
  listen(where: ListenOptions, ready?: () => void): this;
  listen(ready: () => void): this;
  listen(...given: (ListenOptions | number | string | (() => void) | null | undefined)[]): this {
    if (this.#state !== 'idle' && this.#state !== 'closed') {
      throw new IwarpError('ERR_INVALID_STATE', this.#state === 'closing' ? 'the server is being closed' : 'the server listens already');
    }
    const ready = typeof given.at(-1) === 'function' ? given.pop() as () => void : undefined;
    const [where, host, backlog] = given;
    const named = typeof where === 'object' && where !== null;
    const options: ListenOptions = named ? where : { port: where ?? undefined, host, backlog } as ListenOptions;
    // Programs come from node:net: what is of no use here is passed over, but not what asks for something else than a port.
    for (const name of ['path', 'fd'] as const) {
      if ((options as Partial<Record<typeof name, unknown>>)[name] != null) throw new IwarpError('ERR_INVALID_ARGUMENT', `options.${name}: iWARP listens on TCP ports only`);
    }
    const { signal, ipv6Only, reusePort } = options;
    const port = portOf(options.port);
    if (port !== undefined) checkInteger(named ? 'options.port' : 'port', port, 0, 65_535);
    checkSignal(signal);
    const bound = this.#rnic.cm.listen(
      {
        host: options.host, port: port ?? 0, backlog: options.backlog, ipv6Only, reusePort, policy: this.#policy,
        onFailure: ({ error }) => {
          if (isEngineFailure(error)) this.emit('error', error);
        },
      },
      (request) => this.#request(request),
    );
    this.#closeOn(this.#options.signal);
    this.#closeOn(signal);
    this.#listener = null;
    this.#state = 'binding';
    if (ready !== undefined) this.once('listening', ready);
    bound.then(
      (listener) => this.#bound(listener),
      (error: Error) => {
        if (this.#state === 'closing') this.#shut();
        else this.#state = 'idle'; // as in node:net, another address may be tried
        this.#letSignalsGo();
        this.emit('error', error);
      },
    );
    return this;
  }

  #bound(listener: CmListener): void {
    this.#listener = listener;
    if (this.#state === 'closing') {
      this.#shut();
      return;
    }
    this.#state = 'listening';
    if (!this.#held) listener.unref();
    this.emit('listening');
  }

  /** True from `listening` until `close()`. */
  get listening(): boolean {
    return this.#state === 'listening';
  }

  /** Where the server listens; null while it does not. */
  address(): PortAddress | null {
    return this.#state === 'listening' ? this.#listener!.address : null;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<RdmaSocket> {
    return this.#sockets;
  }

  /** Get the number of open connections, as with `net.Server`. */
  getConnections(callback: (error: Error | null, count: number) => void): this {
    checkFunction('callback', callback);
    process.nextTick(callback, null, this.#sockets.size);
    return this;
  }

  /** Keep the process alive while the server listens, as it does unless {@link RdmaServer.unref} has been called. */
  ref(): this {
    this.#setRef(true);
    return this;
  }

  /** Let the process end although the server listens. Open connections still keep it alive. */
  unref(): this {
    this.#setRef(false);
    return this;
  }

  #setRef(on: boolean): void {
    this.#held = on;
    if (on) this.#listener?.ref();
    else this.#listener?.unref();
  }

  /**
   * Stop listening. `close` follows when the last connection has ended, and `callback` is called then, with ERR_INVALID_STATE if the server did not
   * listen.
   */
  close(callback?: (error?: Error) => void): this {
    const before = this.#state;
    const runs = before === 'listening' || before === 'binding';
    if (callback !== undefined) {
      checkFunction('callback', callback);
      this.once('close', () => callback(...(runs ? [] : [new IwarpError('ERR_INVALID_STATE', 'the server does not listen')])));
    }
    if (before === 'closing') return this;
    this.#state = 'closing';
    if (before !== 'binding') this.#shut();
    return this;
  }

  /** Drop every connection. */
  closeAllConnections(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Stop listening and drop every connection. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state === 'closed') return;
    const closed = new Promise<void>((resolve) => this.once('close', resolve));
    this.close();
    this.closeAllConnections();
    await closed;
  }

  #shut(): void {
    if (this.#listener === null) process.nextTick(() => this.#checkClosed());
    else this.#listener.close(() => this.#checkClosed());
  }

  #checkClosed(): void {
    if (this.#state !== 'closing' || this.#sockets.size > 0) return;
    this.#state = 'closed';
    this.#letSignalsGo();
    this.emit('close');
  }

  #request(request: PassiveConnection): void {
    let peer: ConnectionData;
    request.setHandler(() => undefined);
    try {
      peer = decodeConnectionData(request.parameters!.privateData);
    } catch {
      request.reject();
      return;
    }
    const full = this.#sockets.size >= this.maxConnections;
    const { signal: _signal, onread, ...options } = this.#options;
    const socket = full || this.#state !== 'listening' ? null : this.#socket(options);
    if (socket === null) {
      request.reject();
      if (full || this.#state === 'listening') this.emit('drop', dropOf(request));
      return;
    }
    this.#sockets.add(socket);
    // Before it is open there is nobody who could listen for its errors.
    const ignore = (): void => undefined;
    socket.on('error', ignore);
    socket.once('connect', () => {
      socket.off('error', ignore);
      try {
        if (onread !== undefined) socket.readInto(checkOnRead('what options.onread returns', onread(socket)));
      } catch (error) {
        socket.destroy(error as Error);
        return;
      }
      this.emit('connection', socket);
    });
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#checkClosed();
    });
    socket.accept(request, peer);
  }

  /** Null if the device has no room for another one, or has failed: a peer that opens one connection too many is no reason to throw at the process. */
  #socket(options: RdmaSocketOptions): RdmaSocket | null {
    try {
      return new RdmaSocket(options, this.#rnic);
    } catch (error) {
      if (error instanceof IwarpError && (error.code === 'ERR_LIMIT' || error.code === 'ERR_DESTROYED')) return null;
      throw error;
    }
  }
}

/**
 * Create a server over RDMA. `onConnection` is called with each {@link RdmaSocket}.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * createServer((socket) => socket.pipe(socket)).listen(7471);
 */
export function createServer(onConnection?: (socket: RdmaSocket) => void): RdmaServer;
export function createServer(options: ServerOptions, onConnection?: (socket: RdmaSocket) => void): RdmaServer;
export function createServer(options: ServerOptions | ((socket: RdmaSocket) => void) = {}, onConnection?: (socket: RdmaSocket) => void): RdmaServer {
  const listener = typeof options === 'function' ? options : onConnection;
  if (listener !== undefined) checkFunction('onConnection', listener);
  const server = new RdmaServer(typeof options === 'function' ? {} : options);
  if (listener !== undefined) server.on('connection', listener);
  return server;
}
