/**
 * `upgrade`: a socket that has spoken another protocol goes on as an RDMA connection. RFC 5044 7.1.3 calls
 * this a delayed start-up: all that the program has sent until then is the streaming mode, and the MPA
 * Request follows on the same connection.
 */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { abortError, checkSignal } from '../base/abort.ts';
import { checkBytes, checkOneOf, checkOptions, IwarpError, show, type Names } from '../base/errors.ts';
import { DuplexPort, endsOf } from '../transport/duplex-port.ts';
import { overTls } from '../transport/tls.ts';
import { connectTo } from './connect.ts';
import type { Connection } from './connection.ts';
import { ENDPOINT_NAMES, type EndpointOptions } from './endpoint.ts';
import { defaultRnic, type Rnic } from './environment.ts';
import { Server, type ServerOptions } from './server.ts';

/** Options of {@link upgrade}. */
export interface UpgradeOptions extends EndpointOptions {
  /** The initiator sends the MPA Request, and the responder answers it. One end of the socket is each. */
  readonly role: 'initiator' | 'responder';
  /** Bytes of the peer that the program has read already, beyond its own protocol. */
  readonly head?: Uint8Array | undefined;
  /** Initiator: bytes for the peer to see with the request. */
  readonly privateData?: ArrayBufferView | undefined;
  /** Responder: decides on the request, as that of a server does. */
  readonly onRequest?: ServerOptions['onRequest'];
  /** Responder: the server that the connection belongs to, with its options, in place of all others here. */
  readonly server?: Server | undefined;
  /** Ends an upgrade that is under way: the promise rejects with ERR_ABORTED, and the socket is reset. */
  readonly signal?: AbortSignal | undefined;
}

const OPTIONS: Names<UpgradeOptions> = {
  ...ENDPOINT_NAMES,
  role: true,
  head: true,
  privateData: true,
  onRequest: true,
  server: true,
  signal: true,
};

/** Ignores an error of `onRequest`, since the promise rejects with it. */
const NOTHING = (): void => undefined;

/** Each socket once. */
const upgraded = new WeakSet<Duplex>();

/**
 * Turn an established `net.Socket`, `tls.TLSSocket` or any other Duplex into a connection, which owns the
 * socket after this call: do not write to it, read it or end it.
 *
 * The connection runs in the calling thread, whatever IWARP_ENGINE says. With `engine: 'worker'` the protocol
 * runs in a worker thread, to which the calling thread hands the bytes of the socket: it has to come to its
 * event loop for that.
 *
 * Rejects with ERR_INVALID_ARGUMENT for wrong options, ERR_INVALID_STATE for a socket that is not connected,
 * is closed in either direction, has listeners for its data, has unsent bytes, or has been upgraded before,
 * and as {@link connect} does for a start-up that fails.
 *
 * @example
 * const socket = net.connect(4711);
 * socket.write('RDMA, please\n', async () => {
 *   const connection = await upgrade(socket, { role: 'initiator' });
 *   await connection.send('hello');
 * });
 */
export async function upgrade(socket: Duplex, options: UpgradeOptions): Promise<Connection> {
  const { rnic, head } = checkUpgradeOptions(options);
  const { role, head: _head, server, signal, privateData, onRequest, ...endpoint } = options;
  checkUpgradable(socket);
  if (signal?.aborted === true) throw abortError(signal);
  const port = portOver(socket, head);
  if (role === 'initiator') {
    const { address: host, port: number } = port.remoteAddress;
    return await connectTo({ ...endpoint, rnic, host, port: number, over: port, privateData, signal });
  }
  const home = server ?? new Server({ ...endpoint, rnic, onRequest, onError: NOTHING }, NOTHING);
  let taken: Promise<Connection>;
  try {
    taken = home.take(port, signal);
  } catch (error) {
    port.reset();
    throw error;
  }
  try {
    return await taken;
  } finally {
    if (server === undefined) home.stopListening();
  }
}

/** @internal The device, and the bytes that were read before. @throws as {@link upgrade} rejects */
export function checkUpgradeOptions(options: UpgradeOptions): {
  readonly rnic: Rnic;
  readonly head: Uint8Array | null;
} {
  checkOptions('options', options, OPTIONS);
  checkSignal(options.signal);
  const { role, head, server, privateData, onRequest } = options;
  checkOneOf('options.role', role, ['initiator', 'responder']);
  const invalid = (why: string): IwarpError => new IwarpError('ERR_INVALID_ARGUMENT', why);
  if (role === 'initiator' && (onRequest !== undefined || server !== undefined))
    throw invalid('options.onRequest and options.server are for a responder');
  if (role === 'responder' && privateData !== undefined)
    throw invalid('options.privateData is for an initiator: return it from onRequest');
  if (server !== undefined && !(server instanceof Server))
    throw invalid('options.server must come from createServer');
  const rnic = options.rnic ?? defaultRnic(options.engine ?? 'thread');
  return { rnic, head: head === undefined ? null : checkBytes('options.head', head) };
}

/** Throws ERR_INVALID_STATE for a socket that the stack cannot have for itself. */
function checkUpgradable(socket: Duplex): void {
  const stream = socket as Partial<Socket> & { readonly secureConnecting?: boolean };
  if (
    typeof stream?.pipe !== 'function' ||
    typeof stream.write !== 'function' ||
    typeof stream.unshift !== 'function'
  )
    throw new IwarpError('ERR_INVALID_ARGUMENT', `socket must be a Duplex, got ${show(socket)}`);
  const refuse = (why: string): never => {
    throw new IwarpError('ERR_INVALID_STATE', `the socket cannot be upgraded: ${why}`);
  };
  if (upgraded.has(socket)) refuse('it has been upgraded already');
  if (socket.destroyed) refuse('it is destroyed');
  if (socket.readableObjectMode || socket.writableObjectMode) refuse('it is in object mode');
  if (stream.connecting === true) refuse("it is not connected: wait for its 'connect' event");
  if (stream.secureConnecting === true) refuse("its TLS handshake is under way: wait for 'secureConnect'");
  if (socket.readableEnded) refuse('the peer has ended its direction');
  if (socket.writableEnded) refuse('this direction has been ended');
  if (socket.readableEncoding !== null) refuse('setEncoding was called, and RDMA needs bytes');
  for (const event of ['data', 'readable'])
    if (socket.listenerCount(event) > 0) refuse(`it has a listener for '${event}': remove it first`);
  if (socket.writableLength > 0)
    refuse(`${socket.writableLength} bytes wait to be sent: upgrade in the callback of the last write`);
}

function portOver(socket: Duplex, head: Uint8Array | null): DuplexPort {
  upgraded.add(socket);
  socket.pause();
  socket.allowHalfOpen = true;
  (socket as Partial<Socket>).setNoDelay?.(true);
  (socket as Partial<Socket>).setTimeout?.(0);
  if (head !== null && head.length > 0) socket.unshift(head);
  if (socket instanceof TLSSocket) return overTls(socket);
  const isSocket = typeof (socket as Partial<Socket>).resetAndDestroy === 'function';
  const port = new DuplexPort(isSocket ? (socket as Socket) : null, endsOf(socket));
  port.open(socket);
  return port;
}
