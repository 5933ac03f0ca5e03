/** Where a connection goes, as everything that connects takes it. */
import { checkInteger, IwarpError, show } from '../base/errors.ts';

/** The peer's address, and our own. */
export interface TargetOptions {
  /** Host name or address of the peer. */
  readonly host?: string;
  /** TCP port of the peer, 1 to 65535. */
  readonly port: number;
  /** Address to bind to before connecting; the system picks one by default. */
  readonly localAddress?: string;
  /** Port to bind to before connecting; 0, the default, lets the system pick. */
  readonly localPort?: number;
  /** Look the host name up for this family only: 4 for IPv4, 6 for IPv6. */
  readonly family?: 4 | 6;
}

/** What {@link TargetOptions} come to: nothing in it is undefined. */
export type Target = TargetOptions & { readonly host: string };

/** Throws ERR_INVALID_ARGUMENT for what is wrong; `host` is taken where none is given. */
export function checkTarget(options: TargetOptions, host?: string): Target {
  const { port, localAddress, localPort, family } = options;
  const target = options.host === undefined ? host : options.host;
  checkHost('options.host', target);
  checkInteger('options.port', port, 1, 65_535);
  if (localPort !== undefined) checkInteger('options.localPort', localPort, 0, 65_535);
  if (family !== undefined && family !== 4 && family !== 6) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `options.family must be 4 or 6, got ${show(family)}`);
  }
  if (localAddress !== undefined) checkHost('options.localAddress', localAddress);
  return {
    host: target,
    port,
    ...(localAddress === undefined ? {} : { localAddress }),
    ...(localPort === undefined ? {} : { localPort }),
    ...(family === undefined ? {} : { family }),
  };
}

/** Throws ERR_INVALID_ARGUMENT unless `host` is a string with something in it. */
export function checkHost(name: string, host: unknown): asserts host is string {
  if (typeof host !== 'string' || host.length === 0) throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a host name or address, got ${show(host)}`);
}
