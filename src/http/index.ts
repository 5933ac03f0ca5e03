/**
 * `iwarp/http`: an HTTP/1.1 request with `Upgrade: iwarp`, the answer 101, and then RDMA on the same
 * connection and port (RFC 9110 7.8; RFC 5044 7.1.3, figure 9: the request is the Hello of the streaming
 * mode, the answer the Hello Ack). The HTTP server stays as it was: its own checks come first, and TLS is
 * that of HTTPS.
 *
 * @example
 * const server = http.createServer(app);
 * server.on('upgrade', async (request, socket, head) => {
 *   if (!isUpgrade(request) || !allowed(request)) return refuseUpgrade(socket, 403);
 *   const connection = await acceptUpgrade(request, socket, head);
 *   await connection.send('hello');
 * });
 * const connection = await connectHttp('http://127.0.0.1:8080/rdma', { headers: { authorization } });
 *
 * @module iwarp/http
 */
import { Buffer, clearTimeout, setTimeout } from '../base/host.ts';
import {
  request as httpRequest,
  STATUS_CODES,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type RequestOptions,
} from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Duplex } from 'node:stream';
import type { Connection } from '../api/connection.ts';
import { checkUpgradeOptions, upgrade, type UpgradeOptions } from '../api/upgrade.ts';
import { abortError, checkSignal } from '../base/abort.ts';
import { brand } from '../base/brand.ts';
import { checkObject, checkInteger, IwarpError, show } from '../base/errors.ts';

/** The token of the Upgrade header. */
export const UPGRADE_TOKEN = 'iwarp';

/** Bytes of the body of a refusal that are kept. */
const MAX_BODY = 4096;
const DEFAULT_TIMEOUT = 10_000;

/** The server answered with something else than 101. */
export class HttpUpgradeError extends IwarpError {
  static {
    brand(this, 'HttpUpgradeError');
  }

  /** Status code of the answer. */
  readonly status: number;
  /** Its header fields. */
  readonly headers: IncomingHttpHeaders;
  /** The first 4 KiB of its body, as text. */
  readonly body: string;

  /** @internal */
  constructor(status: number, headers: IncomingHttpHeaders, body: string) {
    super(
      'ERR_REJECTED',
      `the server refused the upgrade to ${UPGRADE_TOKEN}: ${status} ${STATUS_CODES[status] ?? ''}`,
    );
    this.status = status;
    this.headers = headers;
    this.body = body;
  }
}

/** Options of {@link connectHttp}. */
export interface HttpConnectOptions extends Omit<UpgradeOptions, 'role' | 'head' | 'server' | 'onRequest'> {
  /** Header fields of the request, for authentication say. */
  readonly headers?: OutgoingHttpHeaders | undefined;
  /** Method of the request. Default GET. */
  readonly method?: string | undefined;
  /** Further options of `http.request` or `https.request`: `ca`, `cert`, `key`, `agent`, `localAddress`. */
  readonly request?: RequestOptions | undefined;
  /** Milliseconds until the answer. Default 10,000. */
  readonly timeout?: number | undefined;
}

/** Options of {@link acceptUpgrade}. */
export interface HttpAcceptOptions extends Omit<UpgradeOptions, 'role' | 'head' | 'privateData'> {
  /** Further header fields of the 101. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Whether a request of an 'upgrade' event asks for RDMA. */
export function isUpgrade(request: IncomingMessage): boolean {
  const asked = request.headers.upgrade ?? '';
  return asked.split(',').some((token) => token.trim().toLowerCase() === UPGRADE_TOKEN);
}

/**
 * Answer 101 and take the connection over; for a listener of 'upgrade'. With `server` it becomes one of the
 * connections of that server of `createServer`, which need not listen.
 *
 * A program that asks a database before this call, say, listens for 'error' on the socket first: the
 * HTTP server no longer does, and an 'error' that nobody hears ends a process.
 *
 * Rejects with ERR_STARTUP if the request asks for another protocol or bytes came before the 101 (the answer
 * is 400 then), and as {@link upgrade} does.
 */
export async function acceptUpgrade(
  request: IncomingMessage,
  socket: Duplex,
  head: Uint8Array,
  options: HttpAcceptOptions = {},
): Promise<Connection> {
  checkObject('options', options);
  const { headers = {}, ...rest } = options;
  for (const [name, value] of Object.entries(headers))
    if (!/^[\w!#$%&'*+.^`|~-]+$/.test(name) || /[^\t\x20-\x7e\x80-\xff]/.test(value))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `options.headers: ${show(name)} is no header field`);
  checkUpgradeOptions({ ...rest, role: 'responder' });
  if (!isUpgrade(request)) {
    refuseUpgrade(socket, 400);
    throw new IwarpError(
      'ERR_STARTUP',
      `the request asks for ${show(request.headers.upgrade)}, not for ${UPGRADE_TOKEN}`,
    );
  }
  if (head.length > 0) {
    // The initiator may send nothing before the Hello Ack (RFC 5044 7.1.3).
    refuseUpgrade(socket, 400);
    throw new IwarpError(
      'ERR_STARTUP',
      `${head.length} bytes came behind the request before it was answered`,
    );
  }
  const lines = ['HTTP/1.1 101 Switching Protocols', `Upgrade: ${UPGRADE_TOKEN}`, 'Connection: Upgrade'];
  for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`);
  await written(socket, `${lines.join('\r\n')}\r\n\r\n`);
  return await upgrade(socket, { ...rest, role: 'responder' });
}

function written(socket: Duplex, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const lost = (cause?: Error | null): void =>
      reject(new IwarpError('ERR_CONNECTION_RESET', 'the client left before the answer 101', { cause }));
    // Its owner is the program, or nobody yet: an error that comes later is found when the socket is used.
    socket.on('error', lost);
    if (socket.destroyed) {
      lost();
      return;
    }
    socket.write(text, 'latin1', (error) => {
      if (error) lost(error);
      else resolve();
    });
  });
}

/** Answer with an error status and close, in a listener of 'upgrade'. Default 400. */
export function refuseUpgrade(socket: Duplex, status = 400): void {
  checkInteger('status', status, 300, 599);
  const line = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Refused'}`;
  socket.on('error', () => undefined);
  socket.end(`${line}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, 'latin1', () => socket.destroy());
}

/**
 * Ask an HTTP server for RDMA on the connection of the request.
 *
 * Rejects with HttpUpgradeError (ERR_REJECTED) for any answer but 101, ERR_CONNECT, ERR_TIMEOUT, ERR_ABORTED,
 * and as {@link upgrade} does.
 *
 * @example
 * const connection = await connectHttp('https://store.example/rdma', { headers: { authorization: token } });
 */
export async function connectHttp(url: string | URL, options: HttpConnectOptions = {}): Promise<Connection> {
  checkObject('options', options);
  const where = URL.canParse(String(url)) ? new URL(url) : null;
  if (where === null || !/^https?:$/.test(where.protocol))
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `url must begin with http: or https:, got ${show(String(url))}`,
    );
  const { headers, method = 'GET', request, timeout = DEFAULT_TIMEOUT, ...rest } = options;
  checkInteger('options.timeout', timeout, 1, 0x7fff_ffff);
  const signal = checkSignal(rest.signal);
  if (signal?.aborted === true) throw abortError(signal);
  const asked = (where.protocol === 'https:' ? httpsRequest : httpRequest)(where, {
    // A connection of a pool would be used again by others.
    agent: false,
    ...request,
    method,
    headers: { ...headers, Connection: 'Upgrade', Upgrade: UPGRADE_TOKEN },
    ...(signal === undefined ? {} : { signal }),
  });
  const { socket, head } = await answered(asked, where, timeout, signal);
  // RFC 5044 7.1.2: the peer answers the MPA Request, which has not been sent yet.
  if (head.length > 0) {
    socket.destroy();
    throw new IwarpError('ERR_STARTUP', `${head.length} bytes came behind the 101, before the MPA Request`);
  }
  return await upgrade(socket, { ...rest, role: 'initiator' });
}

function answered(
  asked: ClientRequest,
  { host }: URL,
  timeout: number,
  signal: AbortSignal | undefined,
): Promise<{ readonly socket: Duplex; readonly head: Uint8Array }> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(new IwarpError('ERR_TIMEOUT', `${host} has not answered the upgrade after ${timeout} ms`));
      asked.destroy();
    }, timeout);
    const settled = (): void => clearTimeout(timer);
    asked.on('error', (cause) => {
      settled();
      if (signal?.aborted === true) reject(abortError(signal));
      else
        reject(
          new IwarpError('ERR_CONNECT', `cannot ask ${host} for an upgrade: ${cause.message}`, { cause }),
        );
    });
    asked.once('upgrade', (response, socket, head) => {
      settled();
      if (isUpgrade(response)) {
        resolve({ socket, head });
        return;
      }
      socket.destroy();
      reject(new IwarpError('ERR_STARTUP', `${host} switched to ${show(response.headers.upgrade)}`));
    });
    asked.once('response', (response) => {
      settled();
      bodyOf(response).then(
        (body) => reject(new HttpUpgradeError(response.statusCode ?? 0, response.headers, body)),
        reject,
      );
    });
    asked.end();
  });
}

async function bodyOf(response: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let octets = 0;
  try {
    for await (const part of response as AsyncIterable<Buffer>) {
      parts.push(part);
      octets += part.length;
      if (octets >= MAX_BODY) break; // this destroys the response
    }
  } catch {
    // The body was cut off: the part that has come says enough.
  }
  return Buffer.concat(parts).subarray(0, MAX_BODY).toString();
}
