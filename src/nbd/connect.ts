/** Opening remote exports: by URI, or over a byte stream that is open. */
import { connect as connectNet, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { checkInteger, checkOneOf, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import type { Rnic } from '../api/environment.ts';
import { connectDuplex } from '../qpip/duplex.ts';
import type { ConnectionPolicy } from '../mpa/policy.ts';
import type { NbdLink } from './link.ts';
import { openQpLink } from './qp-client.ts';
import { RemoteDevice, type ReconnectOptions, type ReconnectPolicy } from './remote-device.ts';
import { listExportsOn, openStreamLink } from './stream-link.ts';
import { parseUri, type NbdTarget } from './uri.ts';
import { TRANSMISSION_FLAG } from './wire.ts';

/** Options that every way to connect takes. */
export interface NbdClientOptions {
  /** Requests under way on each connection. Default 16. */
  readonly depth?: number | undefined;
  /** Milliseconds that the server has for each frame of the handshake. Default 10000. */
  readonly handshakeTimeout?: number | undefined;
}

/** Options of {@link connect}. */
export interface NbdConnectOptions extends NbdClientOptions {
  /** `nbd://host[:port]/name`, `nbd+unix:///name?socket=path` or `rdma://host[:port]/name`. */
  readonly uri: string;
  /** How data moves over `rdma:`. Default `direct`. */
  readonly mode?: 'message' | 'direct' | undefined;
  /** Connections; more than one only if the server says that this is safe. Default 1. */
  readonly connections?: number | undefined;
  /** What happens when a connection is lost. Default: the device fails. */
  readonly reconnect?: ReconnectOptions | undefined;
  /**
   * Device for `rdma:`. Default: the process's own. With the wire `qpip` the server may be any NBD server on
   * TCP, and `mode` has no meaning.
   */
  readonly rnic?: Rnic | undefined;
  /** Differences from the default policy over `rdma:`, such as `{ crc: 'off' }` on both sides. */
  readonly policy?: Partial<ConnectionPolicy> | undefined;
}

/** Options of {@link connectStream}. */
export interface StreamConnectOptions extends NbdClientOptions {
  /** Name of the export. Default: the server's default export. */
  readonly name?: string | undefined;
}

const CLIENT: Names<NbdClientOptions> = { depth: true, handshakeTimeout: true };
const CONNECT: Names<NbdConnectOptions> = {
  ...CLIENT,
  uri: true,
  mode: true,
  connections: true,
  reconnect: true,
  rnic: true,
  policy: true,
};
const STREAM: Names<StreamConnectOptions> = { ...CLIENT, name: true };
const RECONNECT: Names<ReconnectOptions> = { attempts: true, delay: true, requests: true };
const MOST_MS = 0x7fff_ffff;

/**
 * Open a remote export as a block device.
 *
 * Rejects with ERR_INVALID_ARGUMENT, ERR_CONNECT if there is no server, ERR_REJECTED if it refuses the
 * export, ERR_PROTOCOL, ERR_TIMEOUT.
 *
 * @example
 * const disk = await connect({ uri: 'nbd://127.0.0.1:10809/disk' });
 * const sector = new Uint8Array(512);
 * await disk.read(sector, 0n);
 * await disk.close();
 */
export async function connect(options: NbdConnectOptions): Promise<RemoteDevice> {
  checkOptions('options', options, CONNECT);
  const target = parseUri(options.uri);
  const { depth, handshakeTimeout } = checkClient(options);
  const mode = checkOneOf('options.mode', options.mode ?? 'direct', ['message', 'direct'] as const);
  const wanted = checkInteger('options.connections', options.connections ?? 1, 1, 64);
  const reconnect = checkReconnect(options.reconnect);
  const open = async (): Promise<NbdLink> =>
    target.kind === 'rdma' && options.rnic?.device.wire === 'qpip'
      ? await openStreamLink(await connectDuplex(options.rnic, { host: target.host, port: target.port }), {
          name: target.name,
          depth,
          handshakeTimeout,
        })
      : target.kind === 'rdma'
        ? await openQpLink({
            ...target,
            mode,
            depth,
            handshakeTimeout,
            rnic: options.rnic,
            policy: options.policy,
          })
        : await openStreamLink(await dial(target), { name: target.name, depth, handshakeTimeout });
  const first = await open();
  const several = (first.info.flags & TRANSMISSION_FLAG.CAN_MULTI_CONN) !== 0;
  const links = [first];
  try {
    while (several && links.length < wanted) links.push(await open());
  } catch (error) {
    for (const link of links) link.destroy(error as Error);
    throw error;
  }
  return new RemoteDevice(links, open, reconnect);
}

/**
 * Open an export over a byte stream: a socket, an `RdmaSocket`, any Duplex. There is no reconnection.
 *
 * Rejects as {@link connect}.
 */
export async function connectStream(
  stream: Duplex,
  options: StreamConnectOptions = {},
): Promise<RemoteDevice> {
  checkOptions('options', options, STREAM);
  const link = await openStreamLink(stream, { name: options.name ?? '', ...checkClient(options) });
  const never = (): Promise<NbdLink> =>
    Promise.reject(new IwarpError('ERR_NOT_SUPPORTED', 'a stream of the caller is not opened again'));
  return new RemoteDevice([link], never, null);
}

/** Names of the exports of the server at an `nbd:` or `nbd+unix:` URI. Rejects as {@link connect}. */
export async function listExports(uri: string): Promise<string[]> {
  const target = parseUri(uri);
  if (target.kind === 'rdma')
    throw new IwarpError('ERR_NOT_SUPPORTED', 'exports cannot be listed over queue pairs: name one');
  return await listExportsOn(await dial(target), 10_000);
}

function checkClient({ depth = 16, handshakeTimeout = 10_000 }: NbdClientOptions): {
  depth: number;
  handshakeTimeout: number;
} {
  return {
    depth: checkInteger('options.depth', depth, 1, 1024),
    handshakeTimeout: checkInteger('options.handshakeTimeout', handshakeTimeout, 1, MOST_MS),
  };
}

function checkReconnect(options: ReconnectOptions | undefined): ReconnectPolicy | null {
  if (options === undefined) return null;
  checkOptions('options.reconnect', options, RECONNECT);
  const { attempts = 10, delay = 500, requests = 'repeat' } = options;
  return {
    attempts: checkInteger('options.reconnect.attempts', attempts, 1, 1_000_000),
    delay: checkInteger('options.reconnect.delay', delay, 0, MOST_MS),
    requests: checkOneOf('options.reconnect.requests', requests, ['repeat', 'fail'] as const),
  };
}

function dial(target: Exclude<NbdTarget, { readonly kind: 'rdma' }>): Promise<Socket> {
  const where = target.kind === 'unix' ? { path: target.path } : { host: target.host, port: target.port };
  return new Promise((resolve, reject) => {
    const socket = connectNet({ ...where, noDelay: true });
    const failed = (cause: Error): void =>
      reject(new IwarpError('ERR_CONNECT', `cannot connect: ${cause.message}`, { cause }));
    socket.once('error', failed);
    socket.once('connect', () => {
      socket.off('error', failed);
      resolve(socket);
    });
  });
}
