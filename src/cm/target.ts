/**
 * The address to connect to and the address to listen on, as every call that connects or listens takes them.
 */
import { checkBoolean, checkInteger, IwarpError, show, type Names } from '../base/errors.ts';
import { isIpAddress } from '../transport/ip-address.ts';
import type { ConnectTarget, ListenTarget, Port, ThreadPort } from '../transport/port.ts';
import { checkTls, type TlsOptions } from '../transport/tls-options.ts';

/** The peer's address, and our own address. */
export interface TargetOptions {
  /** Host name or address of the peer. */
  readonly host?: string | undefined;
  /** TCP port of the peer, 1 to 65535. Needed unless there is a path. */
  readonly port?: number | undefined;
  /**
   * Path of a Unix socket on which the peer listens, in place of its host and port. Options of TCP, and
   * `tls`, do not go with it.
   */
  readonly path?: string | undefined;
  /**
   * With the wire `shm`: a MessagePort whose other end a thread has given to `listen`, in place of a host and
   * a port. It stays the program's, for any number of connections.
   */
  readonly messagePort?: ThreadPort | undefined;
  /** IP address to bind to before connecting; not a host name. Default: the system picks one. */
  readonly localAddress?: string | undefined;
  /** Port to bind to before connecting. Default 0: the system picks one. */
  readonly localPort?: number | undefined;
  /** Look up the host name for this family only: 4 for IPv4, 6 for IPv6. Default 0: either. */
  readonly family?: 0 | 4 | 6 | undefined;
  /**
   * Speak TLS below MPA: true, or options of `node:tls`. The server has to do the same. Default: no TLS.
   */
  readonly tls?: TlsOptions | boolean | undefined;
  /**
   * @internal An established byte stream to use in place of a new TCP connection: host and port only name the
   * peer then. See `upgrade`.
   */
  readonly over?: Port | undefined;
}

/**
 * The target that {@link TargetOptions} name, without undefined fields. Throws ERR_INVALID_ARGUMENT for wrong
 * options; `host` is taken where none is given.
 */
export function checkTarget(options: TargetOptions, host?: string): ConnectTarget {
  if (options.messagePort !== undefined) return checkThreadTarget(options);
  if (options.path !== undefined) return checkPathTarget(options);
  const { localAddress, localPort, family, over } = options;
  const tls = checkTls(options.tls, 'client');
  const target = options.host === undefined ? host : options.host;
  checkHost('options.host', target);
  const port = checkInteger('options.port', options.port, over === undefined ? 1 : 0, 65_535);
  if (localPort !== undefined) checkInteger('options.localPort', localPort, 0, 65_535);
  if (family !== undefined && family !== 0 && family !== 4 && family !== 6) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.family must be 0, 4 or 6, got ${show(family)}`);
  }
  if (localAddress !== undefined) checkAddress('options.localAddress', localAddress);
  // One assignment for each that is there: spreading what mostly is not costs every new connection.
  const made: { -readonly [K in keyof ConnectTarget]: ConnectTarget[K] } = { host: target, port };
  if (localAddress !== undefined) made.localAddress = localAddress;
  if (localPort !== undefined) made.localPort = localPort;
  if (family !== undefined && family !== 0) made.family = family;
  if (tls !== undefined) made.tls = tls;
  if (over !== undefined) made.over = over;
  return made;
}

/** A target of ours has the path as its host, and port 0: it may come by here again. */
function checkPathTarget(options: TargetOptions): ConnectTarget {
  const { path, over } = options;
  const target = checkPath('options.path', path);
  const { host = target, port = 0, localAddress, localPort, family } = options;
  const tls = checkTls(options.tls, 'client');
  aloneWith({
    host: host === target ? undefined : host,
    port: port || undefined,
    localAddress,
    localPort,
    family: family || undefined,
    tls,
  });
  return { host: target, port: 0, path: target, ...(over === undefined ? {} : { over }) };
}

/** How a MessagePort is called where a peer is named. */
const MESSAGE_PORT = 'MessagePort';

/** As with a path, a target of ours may come by here again. */
function checkThreadTarget(options: TargetOptions): ConnectTarget {
  const { messagePort, path, host, port, localAddress, localPort, family, tls } = options;
  const again = path === MESSAGE_PORT && host === MESSAGE_PORT;
  const names = again ? {} : { path, host, port };
  aloneWith({ ...names, localAddress, localPort, family, tls }, 'messagePort');
  return { host: MESSAGE_PORT, port: 0, path: MESSAGE_PORT, messagePort: checkThreadPort(messagePort) };
}

/** Throws ERR_INVALID_ARGUMENT unless it can be a MessagePort: those of other realms are theirs. */
function checkThreadPort(value: unknown): ThreadPort {
  const port = value as Partial<ThreadPort> | null;
  if (typeof port === 'object' && typeof port?.postMessage === 'function' && typeof port.on === 'function')
    return port as ThreadPort;
  throw new IwarpError(
    'ERR_INVALID_ARGUMENT',
    `options.messagePort must be a MessagePort, got ${show(value)}`,
  );
}

/** Throws ERR_INVALID_ARGUMENT if there is one of these options beside the name that is given. */
function aloneWith(options: Readonly<Record<string, unknown>>, beside = 'path'): void {
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined)
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options.${name} does not go with options.${beside}`);
  }
}

/**
 * Throws ERR_INVALID_ARGUMENT unless `path` can be the path of a Unix socket. A zero in front makes a name
 * without a file, which Linux has; the system would end the path at any other zero.
 */
function checkPath(name: string, path: unknown): string {
  if (typeof path !== 'string' || path.length === 0 || path.includes('\0', 1))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be the path of a socket, got ${show(path)}`);
  return path;
}

/** @internal */
export const TARGET_NAMES: Names<TargetOptions> = {
  host: true,
  port: true,
  path: true,
  messagePort: true,
  localAddress: true,
  localPort: true,
  family: true,
  tls: true,
  over: true,
};

/** Where to listen (rdma_bind_addr, rdma_listen). */
export interface BindOptions {
  /** Address to bind to. Default: every address, IPv4 and IPv6. */
  readonly host?: string | undefined;
  /** TCP port. Default 0: the system picks a free one. */
  readonly port?: number | undefined;
  /** TCP connections that the system may queue before they are accepted, 1 to 65535. Default 511. */
  readonly backlog?: number | undefined;
  /** With an IPv6 host: do not accept IPv4 connections too. */
  readonly ipv6Only?: boolean | undefined;
  /**
   * Share the port with other listeners of the same user that also set this (SO_REUSEPORT), in this process
   * or in others. The system spreads connections over them by a hash of the addresses. With several engines
   * in workers every engine listens; a Node that can post sockets to other threads spreads inbound
   * connections without this. Needs Node 22.12: ERR_NOT_SUPPORTED before, ERR_CONNECT on a system without it.
   * Default false: a second program on the same port is mostly a mistake, and should get an error.
   */
  readonly reusePort?: boolean | undefined;
  /**
   * Path of a Unix socket to listen on, in place of a host and a port. A file that is there already is an
   * error (EADDRINUSE), also one that a killed program has left behind; `close` removes the file. Options of
   * TCP, and `tls`, do not go with it.
   */
  readonly path?: string | undefined;
  /**
   * With the wire `shm`: take the connections that the thread at the other end of this MessagePort opens over
   * it, in place of a host and a port. `close` leaves the MessagePort open.
   */
  readonly messagePort?: ThreadPort | undefined;
  /** Let every user of the machine read from the Unix socket. Default false: as the umask says. */
  readonly readableAll?: boolean | undefined;
  /**
   * Let every user of the machine write to the Unix socket, which on Linux is what connecting needs. Default
   * false: as the umask says.
   */
  readonly writableAll?: boolean | undefined;
  /** Speak TLS below MPA: options of `node:tls`, with `key` and `cert`. Default: no TLS. */
  readonly tls?: TlsOptions | false | undefined;
}

/** @internal */
export const BIND_NAMES: Names<BindOptions> = {
  host: true,
  port: true,
  backlog: true,
  ipv6Only: true,
  reusePort: true,
  path: true,
  messagePort: true,
  readableAll: true,
  writableAll: true,
  tls: true,
};

const DEFAULT_BACKLOG = 511;

/** The target that {@link BindOptions} name. Throws ERR_INVALID_ARGUMENT for wrong options. */
export function checkBind(options: BindOptions): ListenTarget {
  const { host, port = 0, backlog = DEFAULT_BACKLOG, ipv6Only, reusePort, tls: given } = options;
  if (options.messagePort !== undefined) return checkThreadBind(options);
  if (options.path !== undefined) return checkPathBind(options, backlog);
  for (const name of ['readableAll', 'writableAll'] as const)
    if (options[name] !== undefined)
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options.${name} is for a server with options.path`);
  const tls = checkTls(given, 'server');
  if (host !== undefined) checkHost('options.host', host);
  return {
    ...(host === undefined ? {} : { host }),
    port: checkInteger('options.port', port, 0, 65_535),
    backlog: checkInteger('options.backlog', backlog, 1, 65_535),
    ...(ipv6Only === undefined ? {} : { ipv6Only: checkBoolean('options.ipv6Only', ipv6Only) }),
    ...(reusePort === undefined ? {} : { reusePort: checkBoolean('options.reusePort', reusePort) }),
    ...(tls === undefined ? {} : { tls }),
  };
}

function checkThreadBind(options: BindOptions): ListenTarget {
  const { messagePort, path, host, port, ipv6Only, reusePort, readableAll, writableAll, tls } = options;
  aloneWith({ path, host, port, ipv6Only, reusePort, readableAll, writableAll, tls }, 'messagePort');
  return { path: MESSAGE_PORT, messagePort: checkThreadPort(messagePort) };
}

function checkPathBind(options: BindOptions, backlog: number): ListenTarget {
  const { path, host, port, ipv6Only, reusePort, readableAll = false, writableAll = false } = options;
  const tls = checkTls(options.tls, 'server');
  aloneWith({
    host,
    port: port || undefined,
    ipv6Only: ipv6Only || undefined,
    reusePort: reusePort || undefined,
    tls,
  });
  return {
    path: checkPath('options.path', path),
    backlog: checkInteger('options.backlog', backlog, 1, 65_535),
    readableAll: checkBoolean('options.readableAll', readableAll),
    writableAll: checkBoolean('options.writableAll', writableAll),
  };
}

/** Throws ERR_INVALID_ARGUMENT unless `address` is an IP address: a name is not looked up here. */
function checkAddress(name: string, address: unknown): void {
  if (typeof address !== 'string' || !isIpAddress(address))
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be an IP address, got ${show(address)}`);
}

/** Throws ERR_INVALID_ARGUMENT unless `host` is a string with something in it. */
function checkHost(name: string, host: unknown): asserts host is string {
  if (typeof host !== 'string' || host.length === 0)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a host name or address, got ${show(host)}`);
}
