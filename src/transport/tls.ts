/**
 * TLS of `node:tls` below MPA: the handshake of a client before its port is there, and of a server on each
 * connection that it has accepted.
 */
import { nextTick } from 'node:process';
import { clearTimeout, setTimeout } from 'node:timers';
import { createHash, type X509Certificate } from 'node:crypto';
import { connect as connectSocket, isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import {
  connect as connectTls,
  createSecureContext,
  createServer as createTlsServer,
  type ConnectionOptions,
  type SecureContext,
  type Server as TlsServer,
  type TLSSocket,
  type TlsOptions as NodeTlsOptions,
} from 'node:tls';
import { IwarpError } from '../base/errors.ts';
import { DuplexPort, endsOf } from './duplex-port.ts';
import type { CancelConnect, Port } from './port.ts';
import { codeOf } from './tcp-port.ts';
import { functionsIn, type TlsInfo, type TlsOptions } from './tls-options.ts';

/** ALPN (RFC 7301): by it a server of several protocols on one port recognizes this one. */
const ALPN = ['iwarp'];

/** First byte of a TLS record that carries a handshake (RFC 8446 5.1). */
const HANDSHAKE_RECORD = 0x16;

/** Milliseconds for a handshake, as for the MPA start-up frame that follows it. */
const HANDSHAKE_TIMEOUT = 10_000;

/** Sessions that can be resumed, of the servers that were connected to last. */
const KEPT_SESSIONS = 100;
const sessions = new Map<string, Buffer>();

/** Results of the TLS handshake, as plain data. */
function infoOf(socket: TLSSocket): TlsInfo {
  const certificate: X509Certificate | undefined = socket.getPeerX509Certificate();
  const error = socket.authorizationError as Error | string | null | undefined;
  return {
    protocol: socket.getProtocol() ?? '',
    cipher: (socket.getCipher() as { name?: string } | undefined)?.name ?? '',
    alpnProtocol: socket.alpnProtocol || null,
    authorized: socket.authorized,
    authorizationError: error === null || error === undefined ? undefined : String(error),
    peerCertificate: certificate === undefined ? undefined : new Uint8Array(certificate.raw),
    peerName: certificate === undefined ? undefined : /^CN=(.*)$/m.exec(certificate.subject)?.[1],
    resumed: socket.isSessionReused(),
  };
}

/** A port over a TLS socket whose handshake the program has done. */
export function overTls(socket: TLSSocket): DuplexPort {
  const port = new DuplexPort(socket, endsOf(socket));
  port.open(socket, infoOf(socket));
  return port;
}

/** Connections with other options, or to another server, share no session. */
function sessionKey(where: string, tls: TlsOptions): string | null {
  if (functionsIn(tls).length > 0) return null;
  return createHash('sha256')
    .update(JSON.stringify([where, tls]))
    .digest('base64');
}

function keepSession(key: string, session: Buffer): void {
  sessions.delete(key);
  sessions.set(key, session);
  if (sessions.size > KEPT_SESSIONS) sessions.delete(sessions.keys().next().value!);
}

/** Node throws for a certificate that is none, say, and may do so in an engine's thread. */
function orError<T>(make: () => T): T | IwarpError {
  try {
    return make();
  } catch (error) {
    const { message } = error as Error;
    return new IwarpError('ERR_INVALID_ARGUMENT', `options.tls is of no use: ${message}`, { cause: error });
  }
}

/** Connect, shake hands, and then `done` gets the port, or the reason why there is none. */
export function connectOverTls(
  where: Omit<TcpNetConnectOpts, 'onread'>,
  tls: TlsOptions,
  done: (port: Port | undefined, error?: Error) => void,
): CancelConnect {
  const secureContext = orError(() => createSecureContext(tls as ConnectionOptions));
  if (secureContext instanceof Error) {
    nextTick(done, undefined, secureContext);
    return () => undefined;
  }
  return connectWith(secureContext, where, tls, done);
}

function connectWith(
  secureContext: SecureContext,
  where: Omit<TcpNetConnectOpts, 'onread'>,
  tls: TlsOptions,
  done: (port: Port | undefined, error?: Error) => void,
): CancelConnect {
  const place = `${where.host}:${where.port}`;
  const socket = connectSocket({ ...where, noDelay: true, allowHalfOpen: true });
  let settled = false;
  let secure: TLSSocket | null = null;
  let failure: Error | undefined;
  const settle = (): boolean => {
    if (settled) return false;
    settled = true;
    clearTimeout(timer);
    return true;
  };
  const fail = (): void => {
    secure?.destroy();
    socket.destroy();
    if (settle()) done(undefined, handshakeError(place, secure !== null, failure));
  };
  const timer = setTimeout(() => {
    failure ??= Object.assign(new Error('the handshake took too long'), { code: 'ETIMEDOUT' });
    fail();
  }, HANDSHAKE_TIMEOUT);
  const note = (error: Error): void => void (failure ??= error);
  socket.on('error', note);
  socket.once('close', fail);
  socket.once('connect', () => {
    const key = sessionKey(place, tls);
    const session = key === null ? undefined : sessions.get(key);
    secure = connectTls({
      servername: isIP(where.host!) === 0 ? where.host! : '',
      ALPNProtocols: ALPN,
      // The name in the certificate is checked against the host where no servername is given.
      host: where.host!,
      ...(tls as ConnectionOptions),
      secureContext,
      socket,
      ...(session === undefined ? {} : { session }),
    });
    secure.on('error', (error) => {
      note(error);
      if (!settled) fail();
    });
    if (key !== null) secure.on('session', (made: Buffer) => keepSession(key, made));
    secure.once('secureConnect', () => {
      if (!settle()) return;
      const port = new DuplexPort(socket, endsOf(socket));
      port.open(secure!, infoOf(secure!));
      done(port);
    });
  });
  return () => {
    if (!settle()) return;
    secure?.destroy();
    socket.destroy();
  };
}

function handshakeError(place: string, connected: boolean, cause: Error | undefined): IwarpError {
  const why = cause === undefined ? 'the connection was closed' : codeOf(cause);
  const options = cause === undefined ? undefined : { cause };
  if (!connected) return new IwarpError('ERR_CONNECT', `cannot connect to ${place} (${why})`, options);
  return new IwarpError(
    'ERR_CONNECT',
    `the TLS handshake with ${place} failed (${why}): ` +
      'does the server speak TLS, and is its certificate trusted?',
    options,
  );
}

/** What serves these options, or why nothing can. */
export function tlsAcceptor(tls: TlsOptions): TlsAcceptor | IwarpError {
  return orError(() => new TlsAcceptor(tls));
}

/** Does the server's part of the handshake for each accepted socket. */
class TlsAcceptor {
  readonly #server: TlsServer;
  /** Handshakes under way, by the peer's end. */
  readonly #pending = new Map<string, DuplexPort>();

  constructor(tls: TlsOptions) {
    const server = createTlsServer({
      ALPNProtocols: ALPN,
      handshakeTimeout: HANDSHAKE_TIMEOUT,
      allowHalfOpen: true,
      ...(tls as NodeTlsOptions),
    });
    server.on('secureConnection', (socket) => {
      const port = this.#pending.get(nameOf(socket));
      if (port === undefined) socket.destroy();
      else port.open(socket, infoOf(socket));
    });
    server.on('tlsClientError', (error, socket) => this.#pending.get(nameOf(socket))?.failed(error));
    this.#server = server;
  }

  /**
   * The port of an accepted socket, which is paused and has not been read. It is there before the handshake,
   * so that the limits and the time-out of the listener count for a peer that never finishes one.
   */
  take(socket: Socket): DuplexPort {
    const port = new DuplexPort(socket, endsOf(socket));
    const name = nameOf(socket);
    this.#pending.set(name, port);
    socket.on('error', (error) => port.failed(error));
    socket.once('close', () => {
      if (this.#pending.get(name) === port) this.#pending.delete(name);
      port.closed();
    });
    socket.once('readable', () => this.#look(socket, port));
    socket.read(0);
    return port;
  }

  /** A peer without TLS would get an alert that it cannot read: it is reset, and the reason kept. */
  #look(socket: Socket, port: DuplexPort): void {
    const first = socket.read() as Buffer | null;
    if (first === null) {
      port.failed(new IwarpError('ERR_STARTUP', 'the peer ended before a TLS handshake'));
      socket.destroy();
      return;
    }
    if (first[0] !== HANDSHAKE_RECORD) {
      port.failed(new IwarpError('ERR_STARTUP', 'the peer does not speak TLS, and this port does'));
      socket.resetAndDestroy();
      return;
    }
    socket.unshift(first);
    this.#server.emit('connection', socket);
  }
}

function nameOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
