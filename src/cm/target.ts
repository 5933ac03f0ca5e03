/** The address to connect to and the address to listen on, as every call that connects or listens takes them. */
import { checkBoolean, checkInteger, IwarpError, show, type Names } from '../base/errors.ts';
import { isIpAddress } from '../transport/ip-address.ts';
import type { ConnectTarget, ListenTarget } from '../transport/port.ts';

/** The peer's address, and our own address. */
export interface TargetOptions {
  /** Host name or address of the peer. */
  readonly host?: string | undefined;
  /** TCP port of the peer, 1 to 65535. */
  readonly port: number;
  /** IP address to bind to before connecting; not a host name. Default: the system picks one. */
  readonly localAddress?: string | undefined;
  /** Port to bind to before connecting. Default 0: the system picks one. */
  readonly localPort?: number | undefined;
  /** Look up the host name for this family only: 4 for IPv4, 6 for IPv6. */
  readonly family?: 4 | 6 | undefined;
}

/** What {@link TargetOptions} come to: nothing in it is undefined. Throws ERR_INVALID_ARGUMENT for what is wrong; `host` is taken where none is given. */
export function checkTarget(options: TargetOptions, host?: string): ConnectTarget {
  const { port, localAddress, localPort, family } = options;
  const target = options.host === undefined ? host : options.host;
  checkHost('options.host', target);
  checkInteger('options.port', port, 1, 65_535);
  if (localPort !== undefined) checkInteger('options.localPort', localPort, 0, 65_535);
  if (family !== undefined && family !== 4 && family !== 6) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.family must be 4 or 6, got ${show(family)}`);
  }
  if (localAddress !== undefined) checkAddress('options.localAddress', localAddress);
  return {
    host: target,
    port,
    ...(localAddress === undefined ? {} : { localAddress }),
    ...(localPort === undefined ? {} : { localPort }),
    ...(family === undefined ? {} : { family }),
  };
}

/** @internal */
export const TARGET_NAMES: Names<TargetOptions> = { host: true, port: true, localAddress: true, localPort: true, family: true };

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
   * Share the port with other listeners of the same user that also set this (SO_REUSEPORT), in this process or in others. The system spreads
   * connections over them by a hash of the addresses. With several engines in workers every engine listens, so inbound connections are spread
   * over threads too. Needs Node 22.12: ERR_NOT_SUPPORTED before, ERR_CONNECT on a system without it. Default false: a second program on the
   * same port is mostly a mistake, and should get an error.
   */
  readonly reusePort?: boolean | undefined;
}

/** @internal */
export const BIND_NAMES: Names<BindOptions> = { host: true, port: true, backlog: true, ipv6Only: true, reusePort: true };

const DEFAULT_BACKLOG = 511;

/** What {@link BindOptions} come to. Throws ERR_INVALID_ARGUMENT for what is wrong. */
export function checkBind({ host, port = 0, backlog = DEFAULT_BACKLOG, ipv6Only, reusePort }: BindOptions): ListenTarget {
  if (host !== undefined) checkHost('options.host', host);
  return {
    ...(host === undefined ? {} : { host }),
    port: checkInteger('options.port', port, 0, 65_535),
    backlog: checkInteger('options.backlog', backlog, 1, 65_535),
    ...(ipv6Only === undefined ? {} : { ipv6Only: checkBoolean('options.ipv6Only', ipv6Only) }),
    ...(reusePort === undefined ? {} : { reusePort: checkBoolean('options.reusePort', reusePort) }),
  };
}

/** Throws ERR_INVALID_ARGUMENT unless `address` is an IP address: a name is not looked up here. */
function checkAddress(name: string, address: unknown): void {
  if (typeof address !== 'string' || !isIpAddress(address)) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be an IP address, got ${show(address)}`);
}

/** Throws ERR_INVALID_ARGUMENT unless `host` is a string with something in it. */
function checkHost(name: string, host: unknown): asserts host is string {
  if (typeof host !== 'string' || host.length === 0) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a host name or address, got ${show(host)}`);
}
