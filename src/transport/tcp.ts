/**
 * TCP through `node:net`, as ports.
 *
 * Read first: `port.ts` (the contract), `tcp-port.ts` (one connection), `adopt.ts` (the one place that leaves
 * the documented API).
 *
 * Receiving: all sockets of a transport read into one buffer. That is possible because a port's bytes are
 * borrowed and consumed inside the read callback. A handler in the middle of a large FPDU may name the memory
 * for the rest. This is as fast as the read loop of a C program and twice as fast as 'data' events (`bulk`
 * of `iwarp bench`), and an idle connection costs no buffer.
 */

import { nextTick } from 'node:process';
import { environmentVariable } from '../base/environment.ts';
import { connect, createServer } from 'node:net';
import type { ListenOptions, NetConnectOpts, Server, Socket, TcpNetConnectOpts } from 'node:net';
// Held here, as in `busy-poll.ts`.
import { setImmediate } from 'node:timers';
import {
  IwarpError,
  checkFunction,
  checkInteger,
  checkOneOf,
  checkOptions,
  type Names,
} from '../base/errors.ts';
import { acceptHandles, adopt, moveConnection, socketOver, type StreamHandle } from './adopt.ts';
import { BusyPoll, resolveBusyPoll } from './busy-poll.ts';
import { DuplexPort, endsOf } from './duplex-port.ts';
import { GatherPort, type Gather } from './gather-port.ts';
import type {
  CancelConnect,
  ConnectTarget,
  ListenReady,
  ListenTarget,
  Port,
  PortAddress,
  PortListener,
  Transport,
} from './port.ts';
import { codeOf, TcpPort } from './tcp-port.ts';
import { OWN } from './own.ts';
import type { TlsOptions } from './tls-options.ts';
import { connectOverTls, tlsAcceptor } from './tls.ts';
import { pathError, UnixPort, unixAddress } from './unix-port.ts';

/**
 * How sockets are read: into a shared buffer (`onread`), by 'data' events, or `auto`, which is `onread`
 * except on Windows.
 */
export type ReceiveMode = 'auto' | 'onread' | 'data';

/**
 * Whether `server.listen` of a Node of this version knows `reusePort`; one that does not would pass over it
 * in silence.
 */
export function reusesPorts(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major === 22 ? minor >= 12 : major === 23 ? minor >= 1 : major > 23;
}

/** Options of `server.listen`, with one that Node 20 does not know yet. */
type NetListenOptions = ListenOptions & { reusePort?: boolean };

const RECEIVE_MODES: readonly ReceiveMode[] = ['auto', 'onread', 'data'];

/**
 * 64 KiB stays in the second-level cache; larger read buffers measured slower, smaller ones need more system
 * calls (`bulk` of bench/micro/datapath.ts).
 */
const READ_OCTETS = 65_536;

/** Options of a {@link TcpTransport}. */
export interface TcpTransportOptions {
  /** How sockets are read. Default: the environment variable IWARP_RECEIVE, else 'auto'. */
  readonly receive?: ReceiveMode | undefined;
  /**
   * Allocates the read buffer; called once. The memory must neither move nor be detached while sockets are
   * open.
   */
  readonly allocate?: ((octets: number) => Uint8Array) | undefined;
  /**
   * Microseconds for which the event loop does not sleep after bytes have arrived, longer by a microsecond
   * for each KB of either direction, up to six times as long; 0: never. Default: the environment variable
   * IWARP_BUSY_POLL, else 50; 0 with one processor.
   */
  readonly busyPoll?: number | undefined;
}

const OPTIONS: Names<TcpTransportOptions> = { receive: true, allocate: true, busyPoll: true };

/**
 * {@link Transport} over the operating system's TCP.
 *
 * @example
 * const rnic = openRnic({ transport: wrapTransport(new TcpTransport(), segmenting(realScheduler, { kind:
 * 'every', octets: 1 })) });
 */
export class TcpTransport implements Transport {
  /** How sockets are read. On Windows 'onread' has a risk: reads may be posted ahead of time there. */
  readonly receive: 'onread' | 'data';
  /** Targets may ask for TLS. */
  readonly tls = true;
  /** Targets may be paths of Unix sockets. */
  readonly paths = true;
  /** @internal What keeps this thread's event loop awake. */
  readonly poll: BusyPoll;
  readonly #allocate: (octets: number) => Uint8Array;
  #buffer: Uint8Array | undefined;

  /** A transport over `node:net`. */
  constructor(options: TcpTransportOptions = {}) {
    checkOptions('options', options, OPTIONS);
    if (options.allocate !== undefined) checkFunction('options.allocate', options.allocate);
    this.receive = resolveReceive(options.receive);
    this.poll = new BusyPoll(resolveBusyPoll(options.busyPoll));
    this.#allocate = options.allocate ?? ((octets) => new Uint8Array(octets));
  }

  /** @internal The read buffer. */
  get memory(): Uint8Array {
    return (this.#buffer ??= this.#allocate(READ_OCTETS));
  }

  connect(target: ConnectTarget, done: (port: Port | undefined, error?: Error) => void): CancelConnect {
    if (target.tls !== undefined) return connectOverTls(this.#address(target), target.tls, done);
    const { path } = target;
    const where = path ?? `${target.host}:${target.port}`;
    const long = path === undefined ? null : pathError('connect', path);
    if (long !== null) throw connectError(`cannot connect to ${where}`, long);
    const port = path === undefined ? new TcpPort(this) : new UnixPort(this).to(path);
    const socket = connect(this.#connectOptions(target, port));
    // Paused before it is connected: nothing is read until `attach`.
    socket.pause();
    let state: 'pending' | 'settled' = 'pending';
    let failure: Error | undefined;
    socket.once('error', (error) => {
      failure = error;
    });
    socket.once('close', () => {
      if (state === 'settled') return;
      state = 'settled';
      done(undefined, connectError(`cannot connect to ${where}`, failure));
    });
    socket.once('connect', () => {
      if (!port.open(socket, null)) {
        socket.destroy();
        return;
      }
      state = 'settled';
      socket.removeAllListeners('close');
      port.watch(this.receive === 'data');
      done(port);
    });
    return () => {
      if (state === 'settled') return;
      state = 'settled';
      socket.destroy();
    };
  }

  // oxlint-disable-next-line max-lines-per-function -- the life of one listener, whose steps share its flags
  listen(
    target: ListenTarget,
    accept: (port: Port) => void,
    ready: ListenReady,
    failed?: (error: Error) => void,
  ): void {
    const { path } = target;
    const port = checkInteger('port', target.port ?? 0, 0, 65_535);
    const where = path ?? `${target.host ?? '*'}:${port}`;
    const long = path === undefined ? null : pathError('listen', path);
    if (long !== null) throw connectError(`cannot listen on ${where}`, long);
    if (target.reusePort === true && !reusesPorts(process.versions.node)) {
      nextTick(
        ready,
        undefined,
        new IwarpError(
          'ERR_NOT_SUPPORTED',
          `reusePort is known from Node 22.12 on, this is ${process.versions.node}`,
        ),
      );
      return;
    }
    if (networkDenied()) {
      const why = 'Node is not permitted to use the network, start it with --allow-net';
      nextTick(ready, undefined, new IwarpError('ERR_CONNECT', `cannot listen on ${where}: ${why}`));
      return;
    }
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true });
    Object.assign(server, { [OWN]: true });
    /** Our end of each connection, unless the listener is bound to all addresses. */
    let local: PortAddress | null = null;
    const secure = target.tls === undefined ? null : tlsAcceptor(target.tls);
    if (secure instanceof Error) {
      nextTick(ready, undefined, secure);
      return;
    }
    server.on('connection', (socket) => {
      const leave = target.elsewhere?.() ?? null;
      if (leave !== null) {
        leave(socket);
        return;
      }
      const accepted = secure === null ? this.#accepted(socket, local) : secure.take(socket);
      if (accepted !== null) accept(accepted);
    });
    const take = (handle: StreamHandle): boolean => {
      const leave = target.elsewhere?.() ?? null;
      if (leave !== null) return leaves(handle, leave);
      const port = this.#passive(local);
      const socket = socketOver(handle, port.onread);
      if (socket === null) return false;
      socket.setNoDelay(true);
      if (opened(port, socket, local, port.asked)) accept(port);
      return true;
    };
    const unbound = (error: Error): void => {
      ready(undefined, connectError(`cannot listen on ${where}`, error));
    };
    server.once('error', unbound);
    server.once('listening', () => {
      server.off('error', unbound);
      if (this.receive === 'onread' && secure === null) acceptHandles(server, take);
      // An error now means that a single connection was not accepted (out of descriptors, say): the listener
      // stays.
      server.on('error', (error) => failed?.(connectError('cannot accept a connection', error)));
      const listener = new TcpListener(server);
      if (!isAny(listener.address)) local = listener.address;
      ready(listener);
    });
    const options: NetListenOptions = {
      ...(path === undefined ? { port } : { path, ...permissions(target) }),
      ...(target.host !== undefined && { host: target.host }),
      ...(target.backlog !== undefined && {
        backlog: checkInteger('backlog', target.backlog, 1, 0x7fff_ffff),
      }),
      ...(target.ipv6Only !== undefined && { ipv6Only: target.ipv6Only }),
      ...(target.reusePort !== undefined && { reusePort: target.reusePort }),
    };
    server.listen(options);
  }

  /**
   * @internal The connection of a socket that has spoken another protocol, as a port: as fast as one that was
   *   made here. `socket` has no connection afterwards. Null, and `socket` as it was, where this Node cannot
   *   move it; a port that is closed if the peer has left meanwhile.
   */
  moved(socket: Socket, gather: Gather): Port | null {
    const port = new GatherPort(this, gather);
    const onread = this.receive === 'onread' ? port.onread : null;
    const moved = moveConnection(socket, onread);
    if (moved === null) return null;
    moved.setNoDelay(true);
    if (!opened(port, moved, null, onread !== null)) return new DuplexPort(moved, endsOf(socket));
    return port;
  }

  #connectOptions({ path, ...target }: ConnectTarget, port: TcpPort): NetConnectOpts {
    return {
      ...(path === undefined ? this.#address(target) : { path, allowHalfOpen: true, ...{ [OWN]: true } }),
      ...(this.receive === 'onread' && { onread: port.onread }),
    };
  }

  #address(target: ConnectTarget): Omit<TcpNetConnectOpts, 'onread'> {
    return {
      host: target.host,
      port: checkInteger('port', target.port, 1, 65_535),
      ...{ [OWN]: true },
      noDelay: true,
      allowHalfOpen: true,
      ...(target.localAddress !== undefined && { localAddress: target.localAddress }),
      ...(target.localPort !== undefined && {
        localPort: checkInteger('localPort', target.localPort, 0, 65_535),
      }),
      ...(target.family !== undefined && { family: target.family }),
    };
  }

  /** @internal What makes a port of each socket that a listener at this address has accepted elsewhere. */
  taker(address: PortAddress, tls: TlsOptions | undefined): (socket: Socket) => Port | null {
    const local = isAny(address) ? null : address;
    const secure = tls === undefined ? null : tlsAcceptor(tls);
    if (secure instanceof Error) throw secure;
    return (socket) => (secure === null ? this.#accepted(socket, local) : secure.take(socket));
  }

  /** A port for a connection to a listener with this address. */
  #passive(local: PortAddress | null): TcpPort {
    return local?.family === 'Unix' ? new UnixPort(this) : new TcpPort(this);
  }

  #accepted(accepted: Socket, local: PortAddress | null): TcpPort | null {
    const port = this.#passive(local);
    if (this.receive === 'data') return opened(port, accepted, local, false) ? port : null;
    const { socket, userBuffer } = adopt(accepted, port.onread, () => port.asked);
    return opened(port, socket, local, userBuffer) ? port : null;
  }
}

/** Give a connection away as a socket. False, and `handle` as it was, if this Node makes none. */
function leaves(handle: StreamHandle, leave: (socket: Socket) => void): boolean {
  const socket = socketOver(handle, null);
  if (socket === null) return false;
  socket.setNoDelay(true);
  leave(socket);
  return true;
}

/** The rights that others than the owner have on the Unix socket. */
function permissions({ readableAll = false, writableAll = false }: ListenTarget): NetListenOptions {
  return { readableAll, writableAll };
}

/**
 * Whether this Node was started with --permission, and not with --allow-net. Then a server that shall listen
 * on an address throws from the event loop, where no caller can catch it. Before Node 25 the network is no
 * permission, and `has` is false for an unknown one.
 */
function networkDenied(): boolean {
  const { permission } = process as { readonly permission?: { has(scope: string): boolean } };
  return (
    permission !== undefined &&
    !permission.has('net') &&
    process.allowedNodeEnvironmentFlags.has('--allow-net')
  );
}

/**
 * How sockets are read if this is asked for: IWARP_RECEIVE decides where nothing is. @throws
 * ERR_INVALID_ARGUMENT for an unknown way
 */
export function resolveReceive(asked?: ReceiveMode): 'onread' | 'data' {
  const name = asked === undefined ? 'IWARP_RECEIVE' : 'options.receive';
  const mode = checkOneOf(
    name,
    asked ?? ((environmentVariable('IWARP_RECEIVE') || 'auto') as ReceiveMode),
    RECEIVE_MODES,
  );
  // A shared buffer is right only where the system fills it at the moment of the callback, as POSIX read()
  // does.
  return mode === 'auto' ? (process.platform === 'win32' ? 'data' : 'onread') : mode;
}

/**
 * Bring a port and its accepted socket together. False if the peer has reset the connection before we looked:
 * there is nothing to accept.
 */
function opened(port: TcpPort, socket: Socket, local: PortAddress | null, userBuffer: boolean): boolean {
  if (port.open(socket, local)) {
    port.watch(!userBuffer);
    return true;
  }
  // No code listens to this socket, and an error must not be thrown at the process.
  socket.on('error', ignore);
  socket.destroy();
  return false;
}

function ignore(): void {
  // An error on a socket that no caller has.
}

function isAny({ address }: PortAddress): boolean {
  return address === '0.0.0.0' || address === '::';
}

class TcpListener implements PortListener {
  readonly address: PortAddress;
  readonly #server: Server;

  constructor(server: Server) {
    const bound = server.address();
    if (bound === null) throw new IwarpError('ERR_INTERNAL', 'a listening server has no address');
    this.#server = server;
    if (typeof bound === 'string') {
      this.address = unixAddress(bound);
      return;
    }
    this.address = {
      address: bound.address,
      port: bound.port,
      family: bound.family === 'IPv6' ? 'IPv6' : 'IPv4',
    };
  }

  close(done?: () => void): void {
    // Node's own callback waits for the accepted connections too; the descriptor, and with it the address, is
    // free at once.
    this.#server.close();
    if (done !== undefined) setImmediate(done);
  }

  setRef(on: boolean): void {
    if (on) this.#server.ref();
    else this.#server.unref();
  }
}

function connectError(what: string, cause: Error | undefined): IwarpError {
  if (cause === undefined) return new IwarpError('ERR_CONNECT', what);
  return new IwarpError('ERR_CONNECT', `${what} (${codeOf(cause)})`, { cause });
}
