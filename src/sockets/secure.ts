/**
 * TLS over byte streams. `node:tls` runs over any Duplex, but a socket below it has to stay half open: when a
 * client ends first, a socket without `allowHalfOpen` ends its own direction at once, and the bytes that TLS
 * has not handed down yet are lost. Over a socket of `node:net` this does not show, because TLS takes its
 * handle.
 */
import { EventEmitter } from 'node:events';
import { createServer as createTlsServer, connect as connectTls } from 'node:tls';
import type { ConnectionOptions, TLSSocket, TlsOptions } from 'node:tls';
import { checkFunction, checkObject } from '../base/errors.ts';
import type { ConnectOptions } from './connect.ts';
import { RdmaServer, type ServerOptions } from './server.ts';
import { connect } from './socket.ts';

/** Options of {@link createSecureServer}: those of `tls.createServer`, and of our server in `socket`. */
export interface SecureServerOptions extends TlsOptions {
  /** Options of the sockets below. `allowHalfOpen` and `onread` are set here. */
  readonly socket?: Omit<ServerOptions, 'allowHalfOpen' | 'onread'> | undefined;
}

/**
 * Create a server of TLS over RDMA. `onConnection` is called with each TLS socket after its handshake. The
 * events of `tls.Server` that are about connections (`secureConnection`, `tlsClientError`, `keylog`,
 * `newSession`,
 * `resumeSession`, `OCSPRequest`) are emitted by the server that is returned.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const [key, cert] = [readFileSync('key.pem'), readFileSync('cert.pem')];
 * createSecureServer({ key, cert }, (socket) => socket.pipe(socket)).listen(7471);
 */
export function createSecureServer(
  options: SecureServerOptions,
  onConnection?: (socket: TLSSocket) => void,
): RdmaServer {
  checkObject('options', options);
  if (onConnection !== undefined) checkFunction('onConnection', onConnection);
  const { socket, ...tls } = options;
  // This server never listens: it turns each of our sockets into a TLS socket.
  const secure = createTlsServer(tls);
  const server = new RdmaServer({ ...socket, allowHalfOpen: true }, (connection) => {
    secure.emit('connection', connection);
  });
  const forward = (event: string): void => {
    secure.on(
      event,
      (...values: unknown[]) => void EventEmitter.prototype.emit.call(server, event, ...values),
    );
  };
  for (const event of CONNECTION_EVENTS) forward(event);
  // A listener of one of these changes what TLS does, so there is one only when the program has one.
  EventEmitter.prototype.on.call(server, 'newListener', (event: string) => {
    if (HANDSHAKE_EVENTS.includes(event) && secure.listenerCount(event) === 0) forward(event);
  });
  if (onConnection !== undefined) secure.on('secureConnection', onConnection);
  return server;
}

const CONNECTION_EVENTS = ['secureConnection', 'tlsClientError', 'keylog'] as const;
const HANDSHAKE_EVENTS: readonly string[] = ['newSession', 'resumeSession', 'OCSPRequest'];

/**
 * Connect with TLS over RDMA; the options are those of {@link connect} and of `tls.connect`.
 *
 * @throws ERR_INVALID_ARGUMENT
 *
 * @example
 * const socket = connectSecure({ host: 'store.example', port: 7471 }, { servername: 'store.example' });
 */
export function connectSecure(
  options: ConnectOptions,
  tls: ConnectionOptions = {},
  onConnect?: () => void,
): TLSSocket {
  checkObject('tls', tls);
  const socket = connect({ ...options, allowHalfOpen: true });
  const servername = typeof options.host === 'string' ? { host: options.host } : {};
  return connectTls({ ...servername, ...tls, socket }, onConnect);
}
