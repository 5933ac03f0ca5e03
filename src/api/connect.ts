/** `connect`: the promise layer's way to a peer. */
import { abortError, checkSignal, whenAborted, withTimeLimit } from '../base/abort.ts';
import { checkObject, checkOptions, IwarpError, ownError, show, type Names } from '../base/errors.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { CmEvent } from '../cm/events.ts';
import { checkTarget, TARGET_NAMES, type TargetOptions } from '../cm/target.ts';
import { privateDataRoom, requestRevision } from '../mpa/policy.ts';
import { Connection } from './connection.ts';
import {
  checkEndpoint,
  checkTlsEngine,
  createResources,
  destroyResources,
  ENDPOINT_NAMES,
  helloOf,
  withHello,
  type EndpointOptions,
  type Resources,
} from './endpoint.ts';
import { engineOf } from './environment.ts';
import { closeError, peerName, RejectedError, startupFailureOf, type AttemptEvent } from './errors.ts';
import { decodeHello } from './hello.ts';
import { checkTimeLimit } from './liveness.ts';

/** Options of {@link connect}. */
export interface ConnectOptions extends EndpointOptions, TargetOptions {
  /** Host name or address of the peer. Default `localhost`. */
  readonly host?: string | undefined;
  /** Bytes for the peer to see with the request. Up to 492 bytes, 508 with `credits: false`. */
  readonly privateData?: ArrayBufferView | undefined;
  /** Stops connecting: the promise rejects with ERR_ABORTED. An established connection is not affected. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Milliseconds that connecting may take in all, TCP and MPA start-up: then the promise rejects with
   * ERR_TIMEOUT. Default: no limit but those of the system for TCP and of the policy for start-up.
   */
  readonly connectTimeout?: number | undefined;
}

/** @internal */
export const CONNECT_NAMES: Names<ConnectOptions> = {
  ...ENDPOINT_NAMES,
  ...TARGET_NAMES,
  privateData: true,
  signal: true,
  connectTimeout: true,
};

/**
 * Connect to an iWARP peer: a server of this package, Linux siw, or a hardware RNIC.
 *
 * Rejects with ERR_CONNECT (no TCP connection; the `cause` is the system's error, as `net.connect` gives it),
 * ERR_REJECTED (with the peer's
 * `privateData`), ERR_STARTUP, ERR_TIMEOUT, ERR_ABORTED, and
 * ERR_INVALID_ARGUMENT and the like for wrong options.
 *
 * The peer is given by the options, by port and host, or by a URL `iwarp://host:port`; `iwarps:` means TLS,
 * and `iwarp+unix:///path` is a Unix socket.
 *
 * @example
 * const connection = await connect('iwarp://127.0.0.1:4711');
 * await connection.send('hello');
 * await connection.close();
 */
export function connect(options: ConnectOptions): Promise<Connection>;
/** Connect to a port of a host; the default is this machine. */
export function connect(port: number, host?: string, options?: ConnectMore): Promise<Connection>;
/** Connect to `iwarp://host:port` or `iwarp+unix:///path`. */
export function connect(url: string | URL, options?: ConnectMore): Promise<Connection>;
export async function connect(
  target: ConnectOptions | number | string | URL,
  second?: string | ConnectMore,
  third?: ConnectMore,
): Promise<Connection> {
  if (typeof target === 'number') {
    if (third !== undefined) checkObject('options', third);
    return await connectTo({ ...third, port: target, host: second as string | undefined });
  }
  if (typeof target === 'string' || isUrl(target)) {
    if (second !== undefined) checkObject('options', second);
    const more = second as ConnectMore | undefined;
    const path = pathOf(String(target));
    if (path !== null) return await connectTo({ ...more, path });
    const { host, port, tls } = parseUrl(String(target));
    return await connectTo({ ...more, host, port, tls: tlsOf(tls === true, more?.tls) });
  }
  return await connectTo(target);
}

/** A URL, also of another class than this realm's: as in Node, what counts is what it shows. */
function isUrl(target: ConnectOptions | URL): target is URL {
  const { href, protocol } = ((target as unknown) ?? {}) as Partial<URL>;
  return typeof href === 'string' && typeof protocol === 'string';
}

/** Options beside a port or a URL. */
export type ConnectMore = Omit<ConnectOptions, 'host' | 'port' | 'path' | 'messagePort'>;

/** The scheme `iwarps:` is a promise: no option takes it back. */
function tlsOf(secure: boolean, tls: ConnectMore['tls']): ConnectMore['tls'] {
  if (secure && tls === false)
    throw new IwarpError('ERR_INVALID_ARGUMENT', 'options.tls is false, but the URL asks for TLS: iwarps:');
  return tls ?? secure;
}

/** The path of `iwarp+unix:///path`; null for another URL. */
function pathOf(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== 'iwarp+unix:' || url.host !== '' || url.search !== '' || url.hash !== '') return null;
  try {
    return url.pathname.length > 1 ? decodeURIComponent(url.pathname) : null;
  } catch {
    return null; // a broken escape
  }
}

function parseUrl(text: string): Pick<ConnectOptions, 'host' | 'port' | 'tls'> {
  const url = URL.canParse(text) ? new URL(text) : null;
  // A URL whose scheme has no special rules keeps only these fields.
  if (
    url === null ||
    !/^iwarps?:$/.test(url.protocol) ||
    url.hostname === '' ||
    url.port === '' ||
    !/^\/?$/.test(url.pathname)
  )
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `url must have the form iwarp://host:port, iwarps://host:port or iwarp+unix:///path, got ${show(text)}`,
    );
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: Number(url.port),
    ...(url.protocol === 'iwarps:' && { tls: true }),
  };
}

/** @internal */
export async function connectTo(options: ConnectOptions): Promise<Connection> {
  checkOptions('options', options, CONNECT_NAMES);
  const given = checkSignal(options.signal);
  const limit = checkTimeLimit('options.connectTimeout', options.connectTimeout);
  const target = checkTarget(options, 'localhost');
  const endpoint = checkEndpoint(options);
  checkTlsEngine(target.tls, endpoint);
  const { policy, ird, ord, rnic } = endpoint;
  // A worker takes receives while this thread knows nothing of it: there they are all posted at once.
  const growing = engineOf(rnic) === 'thread';
  const hello = endpoint.credits ? helloOf(endpoint, growing) : null;
  const privateData = withHello(
    'options.privateData',
    options.privateData,
    hello,
    privateDataRoom(policy, requestRevision(policy)),
  );
  if (given?.aborted === true) throw abortError(given);
  const { host: address, port, path } = target;
  const peer = peerName({ address, port, ...(path !== undefined && { family: 'Unix' }) });
  const signal = limit === undefined ? given : withTimeLimit(given, limit, `connect to ${peer}`);
  const resources = createResources(endpoint, growing ? 'as-taken' : 'all');
  let cm: CmConnection;
  try {
    cm = rnic.cm.connect(resources.qp, {
      ...target,
      policy,
      privateData,
      ...endpoint.keepAlive,
      ...(ird === undefined ? {} : { responderResources: ird }),
      ...(ord === undefined ? {} : { initiatorDepth: ord }),
    });
  } catch (error) {
    destroyResources(resources);
    throw error;
  }
  return await established(cm, resources, signal, peer);
}

/**
 * Wait for the outcome of start-up. A failure is reported at once; queues and buffers are given back when the
 * TCP connection has ended, which can take another close time-out and does not keep the process alive.
 */
function established(
  cm: CmConnection,
  resources: Resources,
  signal: AbortSignal | undefined,
  peer: string,
): Promise<Connection> {
  return new Promise((resolve, reject) => {
    let connection: Connection | null = null;
    let failed = false;
    const fail = (error: IwarpError): void => {
      stop?.();
      if (failed) return;
      failed = true;
      cm.unref();
      reject(error);
    };
    const stop =
      signal === undefined
        ? null
        : whenAborted(signal, () => {
            fail(abortError(signal));
            cm.abort();
          });
    cm.setHandler((event) => {
      if (connection !== null) {
        connection.handleEvent(event);
        return;
      }
      switch (event.type) {
        case 'established': {
          if (failed) break; // aborted meanwhile: the end follows
          stop?.();
          const { hello, privateData } = decodeHello(event.parameters.privateData);
          connection = new Connection(cm, resources, resources.endpoint.credits ? hello : null, privateData);
          resolve(connection);
          break;
        }
        case 'rejected':
        case 'unreachable':
        case 'address-error':
        case 'connect-error':
          fail(refusal(event, peer, cm.mayWantTls));
          break;
        case 'disconnected':
          fail(closeError(event.cause, event.error, event.terminate, { peer, side: 'client' }));
          destroyResources(resources);
          break;
        default:
      }
    });
  });
}

/** Why there was no connection to `peer`. */
function refusal(event: AttemptEvent, peer: string, mayWantTls: boolean): IwarpError {
  if (event.type === 'rejected' && event.error === undefined) return rejection(event, peer);
  const { error } = event;
  if (event.type !== 'address-error' && event.reason !== undefined && event.reason !== 'connect')
    return startupFailureOf(event.reason, 'client', peer, mayWantTls);
  return ownError(error, 'ERR_CONNECT', `cannot connect to ${peer}: ${error!.message}`);
}

function rejection(event: Extract<CmEvent, { type: 'rejected' }>, peer: string): RejectedError {
  const why = event.markersAsked ? '; markers were asked for, which some peers (Linux siw) refuse' : '';
  return new RejectedError(
    `connect to ${peer}: the peer rejected the connection${why}`,
    decodeHello(event.parameters.privateData).privateData,
  );
}
