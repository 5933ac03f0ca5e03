/** The side that connects: arguments in the shape of `net.connect`, and the addresses to try. */
import { checkFunction, checkObject, IwarpError } from '../base/errors.ts';
import { checkTarget, type TargetOptions } from '../cm/target.ts';
import type { ConnectTarget } from '../transport/port.ts';
import { isIpAddress } from '../transport/ip-address.ts';
import { resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import { checkOnRead, type OnReadOptions } from './onread.ts';
import { portOf, type RdmaSocketOptions } from './options.ts';

/** An address of a name, as `dns.lookup` gives it. */
export interface LookupAddress {
  /** IP address as text. */
  readonly address: string;
  /** 4 or 6. */
  readonly family: number;
}

/** Resolves a name, with the arguments of `dns.lookup`; it is asked for all addresses. */
export type LookupFunction = (
  hostname: string,
  options: { family?: 0 | 4 | 6; hints?: number; all: true },
  callback: (error: Error | null, address: string | LookupAddress[], family?: number) => void,
) => void;

/** Options of {@link connect}. */
export interface ConnectOptions
  extends RdmaSocketOptions,
    Omit<TargetOptions, 'port' | 'host' | 'family' | 'path' | 'messagePort'> {
  /** TCP port of the peer; may be a string of digits. */
  readonly port: number | string;
  /** Host name or address of the peer. Default `localhost`. */
  readonly host?: string | null | undefined;
  /** Look up the host name for this family only: 4 for IPv4, 6 for IPv6. Default 0: either. */
  readonly family?: number | undefined;
  /** Differences from `DEFAULT_POLICY` of `iwarp`. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** Resolves the host name in place of the system. Its addresses are tried one after the other. */
  readonly lookup?: LookupFunction | undefined;
  /** Passed on to `lookup`. */
  readonly hints?: number | undefined;
  /**
   * Where received bytes go, as with `net.connect`: then the stream itself gives no data, and its other
   * events are unchanged.
   */
  readonly onread?: OnReadOptions | undefined;
}

/** The path of a Unix socket, as `node:net` takes it. */
export interface PathOptions extends Omit<ConnectOptions, 'port'> {
  /** Path of the Unix socket on which the peer listens; options of TCP beside it mean nothing. */
  readonly path: string;
}

/** The arguments of `connect`, in any of the forms of `node:net`. */
export type ConnectArguments = readonly (
  | ConnectOptions
  | PathOptions
  | number
  | string
  | (() => void)
  | null
  | undefined
)[];

/** The forms of arguments come to one. Throws ERR_INVALID_ARGUMENT. */
export function connectArguments(given: ConnectArguments): {
  options: ConnectOptions | PathOptions;
  listener: (() => void) | undefined;
} {
  const [where, second] = given;
  const last = given.at(-1);
  const byPort = typeof where === 'number' || typeof where === 'string';
  if (!byPort) checkObject('options', where);
  const host = byPort && typeof second === 'string' ? second : undefined;
  const options = byPort
    ? isPath(where)
      ? { path: where }
      : { port: where, ...(host === undefined ? {} : { host }) }
    : (where as ConnectOptions);
  if (typeof last === 'function') return { options, listener: last };
  // As with node:net, arguments that are not given may be null or undefined; anything else is a mistake.
  const rest = given.slice(host === undefined ? 1 : 2).filter((value) => value != null);
  if (rest.length > 0) checkFunction('listener', rest[0]);
  return { options, listener: undefined };
}

/** A text that is no port is a path, as in `node:net`. */
export function isPath(where: unknown): where is string {
  return typeof where === 'string' && !(Number(where) >= 0);
}

/** Where a socket goes, checked: nothing in it can be the caller's mistake. */
export interface ConnectPlan {
  readonly target: ConnectTarget;
  readonly policy: ConnectionPolicy;
  readonly onread: OnReadOptions | null;
  /** Set if the program resolves the name itself. */
  readonly lookup:
    | ((done: (error: Error | null, addresses: readonly LookupAddress[]) => void) => void)
    | null;
}

/** Throws ERR_INVALID_ARGUMENT unless all is as {@link ConnectOptions} says. */
export function planConnect(given: ConnectOptions | PathOptions): ConnectPlan {
  const onread = given.onread === undefined ? null : checkOnRead('options.onread', given.onread);
  if ('path' in given && given.path != null) {
    const { path, policy, tls } = given;
    return { target: checkTarget({ path, tls }), policy: resolvePolicy(policy), onread, lookup: null };
  }
  const options = given as ConnectOptions;
  const { host, lookup, hints } = options;
  const family = options.family as TargetOptions['family'];
  const target = checkTarget(
    { ...options, family, host: host ?? undefined, port: portOf(options.port) as number },
    'localhost',
  );
  if (lookup !== undefined) checkFunction('options.lookup', lookup);
  const resolve = (done: (error: Error | null, addresses: readonly LookupAddress[]) => void): void => {
    const ask = {
      ...(family === undefined ? {} : { family }),
      ...(hints === undefined ? {} : { hints }),
      all: true as const,
    };
    lookup!(target.host, ask, (error, address, version) => {
      const all =
        typeof address === 'string'
          ? [{ address, family: version ?? 4 }]
          : Array.isArray(address)
            ? address
            : [];
      const usable = all.filter((each) => typeof each?.address === 'string' && isIpAddress(each.address));
      if (error == null && usable.length === 0) {
        const none = new IwarpError('ERR_CONNECT', `options.lookup gave no address of ${target.host}`);
        done(Object.assign(new Error(none.message, { cause: none }), { code: 'ENOTFOUND' }), []);
      } else done(error ?? null, usable);
    });
  };
  return {
    target,
    policy: resolvePolicy(options.policy),
    onread,
    lookup: lookup === undefined || isIpAddress(target.host) ? null : resolve,
  };
}
