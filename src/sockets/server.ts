/** The side that listens, in the shape of `net.Server`. */
import { nextTick } from 'node:process';
import { EventEmitter } from 'node:events';
import type { Rnic } from '../api/environment.ts';
import { inThisContext } from '../base/async-context.ts';
import { isEngineFailure } from '../api/errors.ts';
import { checkSignal, whenAborted } from '../base/abort.ts';
import { checkFunction, checkInteger, IwarpError } from '../base/errors.ts';
import { nextState } from '../base/fsm.ts';
import type {
  CmListener,
  ListenFailure,
  ListenOptions as CmListenOptions,
  PassiveConnection,
} from '../cm/index.ts';
import { checkBind, type BindOptions } from '../cm/target.ts';
import { DEFAULT_POLICY, resolvePolicy, UNANSWERED_RTR_FIRST, type ConnectionPolicy } from '../mpa/policy.ts';
import type { Port, PortAddress } from '../transport/port.ts';
import { checkTls, type TlsOptions } from '../transport/tls-options.ts';
import { isPath } from './connect.ts';
import { checkOnRead, type OnReadOptions } from './onread.ts';
import { checkedOptions, checkSocketOptions, portOf, type RdmaSocketOptions } from './options.ts';
import { RdmaSocket } from './socket.ts';
import type { Hello } from '../sdp/wire.ts';
import { agreesFirst, protocolOf, type StreamPeer } from './protocols.ts';
import { listenForHello, type Greeting, type SocketListener } from './streaming.ts';
import { SOCKET_SERVER_TABLE, type SocketServerInput, type SocketServerState } from './server-states.ts';
import { systemError } from './system-error.ts';

/** Options of {@link createServer}. */
export interface ServerOptions extends Omit<RdmaSocketOptions, 'signal'> {
  /** Differences from `DEFAULT_POLICY` of `iwarp`. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** Closes the server when it is aborted. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Called for each connection before the `connection` event: where received bytes go, as `onread` of {@link
   * connect}. `node:net` has it for clients only.
   */
  readonly onread?: ((socket: RdmaSocket) => OnReadOptions) | undefined;
  /** Give connections to the program paused: no bytes are read before `resume()`. Default false. */
  readonly pauseOnConnect?: boolean | undefined;
  /**
   * Connections that one address may have (of IPv6, one /64), those in start-up included; further ones are
   * reset, with a `drop` event. Default: no limit. For the limit of all connections see {@link
   * RdmaServer.maxConnections}.
   */
  readonly maxConnectionsPerAddress?: number | undefined;
  /** Speak TLS below RDMA: options of `node:tls`, with `key` and `cert`. Default: no TLS. */
  readonly tls?: TlsOptions | false | undefined;
}

/** Where {@link RdmaServer.listen} listens. */
export interface ListenOptions
  extends Omit<BindOptions, 'port' | 'host' | 'backlog' | 'path' | 'messagePort'> {
  /** Address to bind to. Default: every address, IPv4 and IPv6. */
  readonly host?: string | null | undefined;
  /** TCP connections that the system may queue before they are accepted. Default 511. */
  readonly backlog?: number | null | undefined;
  /** TCP port; 0, the default, picks a free one. */
  readonly port?: number | string | null | undefined;
  /** Path of a Unix socket to listen on where no port is given. A file that is there is an error. */
  readonly path?: string | null | undefined;
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

/** Where to listen: as in `node:net`, a port goes before a path. Throws ERR_INVALID_ARGUMENT. */
function bindOf(options: ListenOptions, portName: string): BindOptions {
  const { ipv6Only, reusePort, readableAll, writableAll, path } = options;
  // As in node:net, 0 is as if none were given.
  const backlog = options.backlog || undefined;
  const port = portOf(options.port);
  if (port === undefined && path != null)
    return { path, backlog, readableAll: Boolean(readableAll), writableAll: Boolean(writableAll) };
  if (port !== undefined) checkInteger(portName, port, 0, 65_535);
  return {
    host: options.host ?? undefined,
    port: port ?? 0,
    backlog,
    ipv6Only: ipv6Only === undefined ? undefined : Boolean(ipv6Only),
    reusePort: reusePort === undefined ? undefined : Boolean(reusePort),
  };
}

function dropOf({
  localAddress,
  remoteAddress,
}: Pick<PassiveConnection, 'localAddress' | 'remoteAddress'>): DropArgument {
  return {
    ...(localAddress?.family.startsWith('IP') && {
      localAddress: localAddress.address,
      localPort: localAddress.port,
      localFamily: localAddress.family,
    }),
    ...(remoteAddress?.family.startsWith('IP') && {
      remoteAddress: remoteAddress.address,
      remotePort: remoteAddress.port,
      remoteFamily: remoteAddress.family,
    }),
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
 * The server's side may send as soon as the connection is made, as programs on rsockets expect. RFC 5044
 * (MPA-028) wants it to wait for the initiator's first FPDU; with `policy: { responder: 'strict' }` it waits.
 */
export class RdmaServer extends EventEmitter<ServerEvents> {
  readonly #options: ServerOptions;
  /** The part of them that is for each socket. */
  readonly #socketOptions: RdmaSocketOptions;
  readonly #policy: ConnectionPolicy;
  readonly #rnic: Rnic;
  readonly #sockets = new Set<RdmaSocket>();
  #listener: SocketListener | null = null;
  /** Where to listen once the earlier address is free. */
  #next: BindOptions | null = null;
  /** Connections whose Hello has come in front of MPA, with it, and their sockets. */
  readonly #greeted = new Map<PassiveConnection, { readonly socket: RdmaSocket; readonly hello: Hello }>();
  /** Functions that remove the listeners for aborted signals. */
  readonly #stops: (() => void)[] = [];
  /** The server keeps the process alive while it listens. */
  #held = true;
  #state: SocketServerState = SOCKET_SERVER_TABLE.initial;
  /**
   * Connections beyond this number are rejected, with a `drop` event. It may be changed at any time. As in
   * Node 22, 0 rejects all of them.
   */
  maxConnections: number = Number.POSITIVE_INFINITY;

  /**
   * A server; see {@link createServer}.
   *
   * @throws ERR_INVALID_ARGUMENT
   */
  constructor(options?: ServerOptions, onConnection?: (socket: RdmaSocket) => void);
  /** A server with default options; `onConnection` is its `connection` listener. */
  constructor(onConnection: (socket: RdmaSocket) => void);
  constructor(
    given: ServerOptions | ((socket: RdmaSocket) => void) = {},
    onConnection?: (socket: RdmaSocket) => void,
  ) {
    super();
    const options = typeof given === 'function' ? {} : given;
    const listener = typeof given === 'function' ? given : onConnection;
    if (listener !== undefined) checkFunction('onConnection', listener);
    this.#rnic = checkSocketOptions(options);
    if (options.onread !== undefined) checkFunction('options.onread', options.onread);
    const { maxConnectionsPerAddress: most } = options;
    if (most !== undefined) checkInteger('options.maxConnectionsPerAddress', most, 1, 1_000_000);
    checkTls(options.tls, 'server');
    this.#options = options;
    const { signal: _signal, onread: _onread, maxConnectionsPerAddress: _most, tls: _tls, ...each } = options;
    this.#socketOptions = checkedOptions(each, this.#rnic);
    this.#policy = resolvePolicy(options.policy, {
      ...DEFAULT_POLICY,
      responder: 'relaxed',
      ...(options.protocol === 'sdp' && { rtrAccepted: UNANSWERED_RTR_FIRST }),
    });
    checkSignal(options.signal);
    if (listener !== undefined) this.on('connection', listener);
  }

  #step(input: SocketServerInput): void {
    this.#state = nextState(SOCKET_SERVER_TABLE, this.#state, input, this);
  }

  #closeOn(signal: AbortSignal | undefined): void {
    if (signal?.aborted === true) nextTick(this.#onAbort);
    else if (signal !== undefined) this.#stops.push(whenAborted(signal, this.#onAbort));
  }

  readonly #onAbort = (): void => {
    if (this.#state === 'binding' || this.#state === 'listening' || this.#state === 'reopening') this.close();
  };

  /** Removes the listeners for signals once nothing is bound: a signal may outlive many servers. */
  #letSignalsGo(): void {
    for (const stop of this.#stops.splice(0)) stop();
  }

  /**
   * Bind and listen; a `listening` or `error` event follows. The arguments are those of `node:net`:
   * `listen(port, host, backlog, callback)`, each optional, `listen(path, backlog, callback)` for a Unix
   * socket, or `listen({ port, host, backlog, path, readableAll, writableAll, signal }, callback)`. Port 0
   * picks a free one; the port may be a string of digits. After
   * `close()` a server may listen again at once, also at the same address; its connections go on.
   *
   * @throws ERR_INVALID_ARGUMENT, ERR_INVALID_STATE if it listens already
   */
  listen(
    port?: number | string | null,
    host?: string | null,
    backlog?: number | null,
    ready?: () => void,
  ): this;
  /** Listen on a port of one address. */
  listen(port: number | string | null, host: string | null, ready?: () => void): this;
  /** Listen on a port of every address or on a path, with this backlog. */
  listen(portOrPath: number | string | null, backlog: number, ready?: () => void): this;
  /** Listen on a port of every address, or on a path. */
  listen(portOrPath: number | string | null, ready?: () => void): this;
  /** Listen as the options say. */
  listen(where: ListenOptions, ready?: () => void): this;
  /** Listen on a port that the system picks. */
  listen(ready: () => void): this;
  listen(...given: (ListenOptions | number | string | (() => void) | null | undefined)[]): this {
    if (SOCKET_SERVER_TABLE.transitions[this.#state].listen === undefined)
      throw new IwarpError('ERR_INVALID_STATE', 'the server listens already');
    const ready = typeof given.at(-1) === 'function' ? (given.pop() as () => void) : undefined;
    const [where, second, third] = given;
    const named = typeof where === 'object' && where !== null;
    // As in node:net, the second argument is a host or a backlog, and an omitted argument may be null.
    const host = typeof second === 'number' ? undefined : second;
    const backlog = typeof second === 'number' ? second : third;
    const options = named
      ? where
      : ((isPath(where) ? { path: where, backlog } : { port: where, host, backlog }) as ListenOptions);
    // Programs come from node:net: options of no use here are ignored, but not one that asks for something
    // else than a port or a path.
    if ((options as { fd?: unknown }).fd != null)
      throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.fd: descriptors cannot be listened on');
    const { signal } = options;
    const target = bindOf(options, named ? 'options.port' : 'port');
    checkSignal(signal);
    const place = { ...target, tls: options.tls ?? this.#options.tls };
    if (this.#state === 'closing') {
      checkBind(place);
      this.#next = place;
    } else {
      this.#follow(this.#bind(place), place);
      this.#listener = null;
    }
    this.#letSignalsGo();
    this.#closeOn(this.#options.signal);
    this.#closeOn(signal);
    this.#step('listen');
    if (ready !== undefined) this.once('listening', ready);
    return this;
  }

  #follow(bound: Promise<SocketListener>, { path, host, port }: BindOptions): void {
    bound.then(
      (listener) => this.#bound(listener),
      (error: Error) => {
        const before = this.#state;
        this.#step('failed'); // as in node:net, another address may be tried
        if (this.#state === 'idle') this.#letSignalsGo();
        else this.#freed();
        // The program has gone on to another address.
        if (before === 'reopening') return;
        this.emit('error', systemError(error, 'listen', { address: path ?? host, port }));
      },
    );
  }

  /** What the connection manager needs of a listener, beside its address. */
  get #common(): Omit<CmListenOptions, keyof BindOptions> {
    return {
      policy: this.#policy,
      maxConnectionsPerAddress: this.#options.maxConnectionsPerAddress,
      onFailure: (failure) => this.#refused(failure),
    };
  }

  #bind(where: BindOptions): Promise<SocketListener> {
    const onRequest = (request: PassiveConnection): void => this.#request(request);
    const { cm } = this.#rnic;
    if (!agreesFirst(this.#options)) return cm.listen({ ...where, ...this.#common }, onRequest);
    const target = checkBind(where);
    const home = cm.receive(this.#common, onRequest);
    return listenForHello(this.#rnic, target, home, {
      greeted: (hello, port) => this.#greet(home, hello, port),
      mpa: (port) => void home.take(port),
    });
  }

  /** A socket for a peer whose Hello has come in front of MPA. Null if there is no room for it. */
  #greet(home: CmListener, hello: Hello, port: Port): Greeting | null {
    if (this.#state !== 'listening') return null;
    const drop = (): null => {
      // In a separate turn: a listener of the program may throw.
      this.#rnic.scheduler.defer(inThisContext(() => void this.emit('drop', dropOf(port))));
      return null;
    };
    if (this.#isFull) return drop();
    let socket: RdmaSocket | null = null;
    try {
      const made = (socket = this.#makeSocket());
      return { ack: made.answer(hello), begins: () => this.#begins(home, port, made, hello) };
    } catch (error) {
      socket?.destroy(error as Error); // a limit of the device
      return drop();
    }
  }

  #begins(home: CmListener, port: Port, socket: RdmaSocket, hello: Hello): void {
    const request = home.take(port);
    if (request === null) {
      socket.destroy();
      return;
    }
    this.#greeted.set(request, { socket, hello });
    socket.once('close', () => this.#greeted.delete(request));
  }

  get #isFull(): boolean {
    return this.#sockets.size >= this.maxConnections;
  }

  /** @internal Serve on an established byte stream; the server need not listen for that. */
  take(port: Port): void {
    if (this.#listener === null) {
      this.#listener = this.#rnic.cm.receive(this.#common, (request) => this.#request(request));
      this.#step('listen');
      this.#step('bound');
    }
    this.#listener.take(port);
  }

  #refused({ reason, error, remoteAddress, connection }: ListenFailure): void {
    const greeted = connection === undefined ? undefined : this.#greeted.get(connection);
    greeted?.socket.destroy();
    if (isEngineFailure(error)) this.emit('error', error);
    else if (reason === 'too-many-connections')
      this.emit('drop', dropOf({ localAddress: this.#listener?.address, remoteAddress }));
  }

  #bound(listener: SocketListener): void {
    this.#listener = listener;
    this.#step('bound');
    if (this.#state !== 'listening') {
      this.#shut();
      return;
    }
    if (!this.#held) listener.unref();
    this.emit('listening');
  }

  /** True from `listening` until `close()`. */
  get listening(): boolean {
    return this.#state === 'listening';
  }

  /** Where the server listens: of a Unix socket the path. Null while it does not. */
  address(): PortAddress | string | null {
    if (this.#state !== 'listening') return null;
    const { address } = this.#listener!;
    return address.family === 'Unix' ? address.address : address;
  }

  /** Connections that are open now. */
  get connections(): ReadonlySet<RdmaSocket> {
    return this.#sockets;
  }

  /** Get the number of open connections, as with `net.Server`. */
  getConnections(callback: (error: Error | null, count: number) => void): this {
    checkFunction('callback', callback);
    nextTick(callback, null, this.#sockets.size);
    return this;
  }

  /**
   * Keep the process alive while the server listens, as it does unless {@link RdmaServer.unref} has been
   * called.
   */
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
   * Stop listening. `close` follows when the last connection has ended, and `callback` is called then, with
   * ERR_INVALID_STATE if the server did not listen.
   */
  close(callback?: (error?: Error) => void): this {
    const before = this.#state;
    const runs = before === 'listening' || before === 'binding' || before === 'reopening';
    if (callback !== undefined) {
      checkFunction('callback', callback);
      this.once('close', () =>
        callback(...(runs ? [] : [new IwarpError('ERR_INVALID_STATE', 'the server does not listen')])),
      );
    }
    if (before === 'closing' || before === 'draining') return this;
    this.#step('close');
    if (before !== 'binding' && before !== 'reopening') this.#shut();
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
    const listener = this.#listener;
    this.#listener = null;
    if (listener === null) nextTick(() => this.#freed());
    else listener.close(() => this.#freed());
  }

  /** The address, if there was one, is free: another one may be bound. */
  #freed(): void {
    this.#step('freed');
    if (this.#state === 'draining') {
      this.#checkClosed();
      return;
    }
    const next = this.#next!;
    let bound: Promise<SocketListener>;
    try {
      bound = this.#bind(next);
    } catch (error) {
      bound = Promise.reject(error as Error); // the device has been closed meanwhile
    }
    this.#follow(bound, next);
    // As in node:net, a server that listens again while connections are open reports its next end only.
    if (this.#sockets.size === 0) this.emit('close');
  }

  #checkClosed(): void {
    if (this.#state !== 'draining' || this.#sockets.size > 0) return;
    this.#step('ended');
    this.#letSignalsGo();
    this.emit('close');
  }

  #request(request: PassiveConnection): void {
    request.setHandler(() => undefined);
    const { privateData } = request.parameters!;
    const greeted = this.#greeted.get(request);
    this.#greeted.delete(request);
    if (greeted !== undefined) {
      // A10: behind a Hello in front of MPA its frames carry no private data.
      if (privateData.length > 0 || greeted.socket.destroyed) {
        request.reject();
        greeted.socket.destroy();
      } else this.#accept(greeted.socket, request, greeted.hello);
      return;
    }
    const peer = protocolOf(this.#options).decode(privateData);
    const full = this.#isFull;
    if (peer === null || full || this.#state !== 'listening') {
      request.reject();
      if (full && peer !== null) this.emit('drop', dropOf(request));
      return;
    }
    this.#accept(this.#makeSocket(), request, peer);
  }

  #makeSocket(): RdmaSocket {
    const { onread } = this.#options;
    const socket = new RdmaSocket(this.#socketOptions);
    this.#sockets.add(socket);
    // Before the socket is open no program can listen for its errors.
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
      if (this.#options.pauseOnConnect) socket.pause();
      this.emit('connection', socket);
    });
    socket.once('close', () => {
      this.#sockets.delete(socket);
      this.#checkClosed();
    });
    return socket;
  }

  #accept(socket: RdmaSocket, request: PassiveConnection, peer: StreamPeer): void {
    try {
      socket.accept(request, peer);
    } catch (error) {
      // A peer that opens one connection too many, or whose request makes something else impossible, ends its
      // own connection only.
      request.reject();
      this.#sockets.delete(socket);
      socket.destroy(error as Error);
      this.emit('drop', dropOf(request));
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
/** A server with these options. */
export function createServer(options: ServerOptions, onConnection?: (socket: RdmaSocket) => void): RdmaServer;
export function createServer(
  options: ServerOptions | ((socket: RdmaSocket) => void) = {},
  onConnection?: (socket: RdmaSocket) => void,
): RdmaServer {
  return typeof options === 'function' ? new RdmaServer(options) : new RdmaServer(options, onConnection);
}
