/** The side that listens, in the shape of `net.Server`. */
import { EventEmitter } from 'node:events';
import type { Rnic } from '../api/environment.ts';
import { checkFunction, checkObject, IwarpError } from '../base/errors.ts';
import type { CmListener, PassiveConnection } from '../cm/manager.ts';
import type { BindOptions } from '../cm/target.ts';
import { DEFAULT_POLICY, resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import type { PortAddress } from '../transport/port.ts';
import { checkOnRead, type OnReadOptions } from './onread.ts';
import { checkSocketOptions, type RdmaSocketOptions } from './options.ts';
import { RdmaSocket } from './socket.ts';
import { decodeConnectionData, type ConnectionData } from './wire.ts';

/** Options of {@link createServer}. */
export interface ServerOptions extends Omit<RdmaSocketOptions, 'signal'> {
  /** Differences from `DEFAULT_POLICY` of `iwarp`. */
  readonly policy?: Partial<ConnectionPolicy>;
  /** Closes the server. */
  readonly signal?: AbortSignal;
  /** Called for each connection in front of `connection`; where its octets go, as with `onread` of {@link connect}. `node:net` has this for clients only. */
  readonly onread?: (socket: RdmaSocket) => OnReadOptions;
}

/**
 * A server. Events: `listening`, `connection` (socket), `error`, `close`.
 *
 * The responder may send as soon as the connection is made, as programs on rsockets expect, where RFC 5044 (MPA-028) would have it wait for
 * the initiator's first FPDU; `policy: { responder: 'strict' }` waits.
 */
export class RdmaServer extends EventEmitter {
  readonly #options: ServerOptions;
  readonly #policy: ConnectionPolicy;
  readonly #rnic: Rnic;
  readonly #sockets = new Set<RdmaSocket>();
  #listener: CmListener | null = null;
  #state: 'idle' | 'binding' | 'listening' | 'closing' | 'closed' = 'idle';
  /** Connections above this number are rejected. */
  maxConnections: number = Number.POSITIVE_INFINITY;

  /** @internal Use {@link createServer}. */
  constructor(options: ServerOptions) {
    super();
    this.#rnic = checkSocketOptions(options);
    if (options.onread !== undefined) checkFunction('options.onread', options.onread);
    this.#options = options;
    this.#policy = resolvePolicy(options.policy, { ...DEFAULT_POLICY, responder: 'relaxed' });
    options.signal?.addEventListener('abort', () => this.close(), { once: true });
  }

  /**
   * Bind and listen; `listening` follows, or `error`. As in `node:net`: `listen(port, host, backlog, callback)`, each of which may be left
   * out, or `listen({ port, host, backlog }, callback)`; port 0 picks a free one.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE if it listens already or has been closed
   */
  listen(port?: number, host?: string, backlog?: number, ready?: () => void): this;
  listen(port: number, host: string, ready?: () => void): this;
  listen(port: number, ready?: () => void): this;
  listen(where: BindOptions, ready?: () => void): this;
  listen(ready: () => void): this;
  listen(...given: (BindOptions | number | string | (() => void) | undefined)[]): this {
    if (this.#state !== 'idle') throw new IwarpError('ERR_INVALID_STATE', 'the server is listening or closed already');
    const ready = typeof given.at(-1) === 'function' ? given.pop() as () => void : undefined;
    const [where, host, backlog] = given;
    const options = where === undefined || typeof where === 'number' ? { port: where, host, backlog } : where;
    checkObject('options', options);
    const bound = this.#rnic.cm.listen({ ...options as BindOptions, policy: this.#policy }, (request) => this.#request(request));
    this.#state = 'binding';
    if (ready !== undefined) this.once('listening', ready);
    bound.then(
      (listener) => this.#bound(listener),
      (error: Error) => {
        if (this.#state === 'closing') this.#shut();
        else this.#state = 'idle'; // as in node:net, another address may be tried
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
    this.emit('listening');
  }

  /** True from `listening` until `close()`. */
  get listening(): boolean {
    return this.#state === 'listening';
  }

  /** Where the server listens; null while it does not. */
  address(): PortAddress | null {
    return this.#listener?.address ?? null;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<RdmaSocket> {
    return this.#sockets;
  }

  /** Tells how many connections are open, as `net.Server` does. */
  getConnections(callback: (error: Error | null, count: number) => void): this {
    process.nextTick(callback, null, this.#sockets.size);
    return this;
  }

  /** Stop listening; `close` follows when the last connection has ended. */
  close(callback?: (error?: Error) => void): this {
    if (callback !== undefined) this.once('close', callback);
    if (this.#state === 'closing') return this;
    const before = this.#state;
    if (before === 'closed') {
      process.nextTick(() => this.emit('close'));
      return this;
    }
    this.#state = 'closing';
    if (before === 'listening' || before === 'idle') this.#shut();
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
    if (this.#state !== 'listening' || this.#sockets.size >= this.maxConnections) {
      request.reject();
      return;
    }
    const { signal: _signal, onread, ...options } = this.#options;
    const socket = new RdmaSocket(options, this.#rnic);
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
}

/**
 * A server over RDMA; `onConnection` gets each {@link RdmaSocket}.
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
