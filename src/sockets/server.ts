/** The side that listens, in the shape of `net.Server`. */
import { EventEmitter } from 'node:events';
import { defaultRnic, type Rnic } from '../api/environment.ts';
import { checkInteger, IwarpError } from '../base/errors.ts';
import type { CmListener, PassiveConnection } from '../cm/manager.ts';
import { resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import type { PortAddress } from '../transport/port.ts';
import { RdmaSocket, type RdmaSocketOptions } from './socket.ts';
import { decodeConnectionData, type ConnectionData } from './wire.ts';

/** Options of {@link createServer}. */
export interface ServerOptions extends Omit<RdmaSocketOptions, 'signal'> {
  readonly policy?: Partial<ConnectionPolicy>;
  /** Closes the server. */
  readonly signal?: AbortSignal;
}

/** Where to listen. */
export interface ListenOptions {
  readonly port?: number;
  readonly host?: string;
  readonly backlog?: number;
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
    this.#options = options;
    this.#policy = resolvePolicy({ responder: 'relaxed', ...options.policy });
    this.#rnic = options.rnic ?? defaultRnic();
    options.signal?.addEventListener('abort', () => this.close(), { once: true });
  }

  /** Bind and listen: `listen(port, host, callback)` or `listen({ port, host }, callback)`; port 0 picks a free one. */
  listen(where?: ListenOptions | number, hostOrCallback?: string | (() => void), callback?: () => void): this {
    if (this.#state !== 'idle') throw new IwarpError('ERR_INVALID_STATE', 'the server is listening or closed already');
    const options: ListenOptions = typeof where === 'object' ? where : {
      port: where ?? 0, ...(typeof hostOrCallback === 'string' ? { host: hostOrCallback } : {}),
    };
    const ready = typeof hostOrCallback === 'function' ? hostOrCallback : callback;
    checkInteger('port', options.port ?? 0, 0, 65_535);
    if (ready !== undefined) this.once('listening', ready);
    this.#state = 'binding';
    const target = { policy: this.#policy, port: options.port ?? 0, ...(options.host === undefined ? {} : { host: options.host }), ...(options.backlog === undefined ? {} : { backlog: options.backlog }) };
    this.#rnic.cm.listen(target, (request) => this.#request(request)).then(
      (listener) => this.#bound(listener),
      (error: Error) => {
        this.#state = 'closed';
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
    const { signal: _signal, ...options } = this.#options;
    const socket = new RdmaSocket(options, this.#rnic);
    this.#sockets.add(socket);
    // Before it is open there is nobody who could listen for its errors.
    const ignore = (): void => undefined;
    socket.on('error', ignore);
    socket.once('connect', () => {
      socket.off('error', ignore);
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
 * A server over RDMA.
 *
 * @example
 * createServer((socket) => socket.pipe(socket)).listen(7471);
 */
export function createServer(
  options?: ServerOptions | ((socket: RdmaSocket) => void), onConnection?: (socket: RdmaSocket) => void,
): RdmaServer {
  const listener = typeof options === 'function' ? options : onConnection;
  const server = new RdmaServer(typeof options === 'object' ? options : {});
  if (listener !== undefined) server.on('connection', listener);
  return server;
}
