/** The side that connects, in the shape of `net.connect`. */
import { checkFunction } from '../base/errors.ts';
import { checkTarget, type TargetOptions } from '../cm/target.ts';
import { resolvePolicy, type ConnectionPolicy } from '../mpa/policy.ts';
import { checkOnRead, type OnReadOptions } from './onread.ts';
import { checkSocketOptions, portOf, type RdmaSocketOptions } from './options.ts';
import { RdmaSocket } from './socket.ts';

/** Options of {@link connect}. */
export interface ConnectOptions extends RdmaSocketOptions, Omit<TargetOptions, 'port'> {
  /** TCP port of the peer; may be a string of digits. */
  readonly port: number | string;
  /** Host name or address of the peer. Default `localhost`. */
  readonly host?: string | undefined;
  /** Differences from `DEFAULT_POLICY` of `iwarp`. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
  /** Where received octets go, as with `net.connect`: then the stream itself gives no data, and its other events are unchanged. */
  readonly onread?: OnReadOptions | undefined;
}

/**
 * Connect: `connect(options, listener)`, or `connect(port, host, listener)` as in `node:net`. If connecting fails (no TCP
 * connection, a rejection, a peer that speaks another protocol), an `error` event follows.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const socket = connect({ host: '10.0.0.2', port: 7471 });
 * socket.write('hello');
 * for await (const chunk of socket) console.log(String(chunk));
 */
export function connect(options: ConnectOptions, listener?: () => void): RdmaSocket;
export function connect(port: number | string, host?: string, listener?: () => void): RdmaSocket;
export function connect(port: number | string, listener?: () => void): RdmaSocket;
export function connect(where: ConnectOptions | number | string, hostOrListener?: string | (() => void), last?: () => void): RdmaSocket {
  const byPort = typeof where === 'number' || typeof where === 'string';
  const host = byPort && typeof hostOrListener === 'string' ? hostOrListener : undefined;
  const listener = host !== undefined || (byPort && hostOrListener === undefined) ? last : hostOrListener;
  const options = byPort ? { port: where, ...(host === undefined ? {} : { host }) } : where;
  const rnic = checkSocketOptions(options);
  const target = checkTarget({ ...options, port: portOf(options.port) as number }, 'localhost');
  const policy = resolvePolicy(options.policy);
  if (listener !== undefined) checkFunction('listener', listener);
  const onread = options.onread === undefined ? null : checkOnRead('options.onread', options.onread);
  const socket = new RdmaSocket(options, rnic);
  if (onread !== null) socket.readInto(onread);
  if (listener !== undefined) socket.once('connect', listener as () => void);
  if (socket.destroyed) return socket; // the signal was aborted already
  socket.start((channel) => rnic.cm.connect(channel.qp, {
    ...target,
    policy,
    privateData: channel.connectionData,
    // librdmacm asks for one Read, since a peer-to-peer connection may begin with one.
    responderResources: 1,
    initiatorDepth: 1,
  }));
  return socket;
}
