/**
 * Errors of a connection as `node:net` words them: the system's `code`, `errno` and `syscall`, with the
 * address, and the IwarpError that says more as the `cause`. Programs and libraries decide by `code` whether
 * to try again.
 */
import { constants } from 'node:os';
import { IwarpError, type IwarpErrorCode } from '../base/errors.ts';

/** The calls of the system that `node:net` names in its errors. */
type Syscall = 'connect' | 'read' | 'write' | 'listen';

type SystemCode = 'ECONNREFUSED' | 'ECONNRESET' | 'EPIPE' | 'EPROTO' | 'ETIMEDOUT';

/** Where the connection goes or the server listens. */
interface Place {
  readonly address?: string | undefined;
  readonly port?: number | undefined;
}

/** An error of a socket or server. */
export interface SocketError extends NodeJS.ErrnoException {
  /** The address that the call was about. */
  address?: string;
  /** The TCP port that the call was about. */
  port?: number;
}

/**
 * The system's code for each of ours. Absent codes are no error of a connection: they stay as they are
 * (ERR_ENGINE_FAILED, ERR_ABORTED, an error of a caller).
 */
const SYSTEM_CODES: Readonly<Partial<Record<IwarpErrorCode, SystemCode>>> = {
  ERR_REJECTED: 'ECONNREFUSED',
  ERR_CONNECT: 'ECONNREFUSED',
  ERR_STARTUP: 'EPROTO',
  ERR_NOT_SUPPORTED: 'EPROTO',
  ERR_TIMEOUT: 'ETIMEDOUT',
  ERR_CONNECTION_RESET: 'ECONNRESET',
  ERR_TERMINATED: 'ECONNRESET',
  ERR_CONNECTION_CLOSED: 'EPIPE',
};

/** `error` with the system's code; an error that has none here is returned as it is. */
export function systemError(error: Error, syscall: Syscall, { address, port }: Place = {}): Error {
  if (!(error instanceof IwarpError)) return error;
  const cause = systemCause(error);
  // A server that cannot listen for a reason of this package, such as an option that this Node lacks, keeps
  // our error.
  const handshake = cause === undefined ? handshakeCode(error) : undefined;
  const code =
    cause?.code ??
    handshake ??
    (syscall === 'listen' ? undefined : (error.systemCode ?? SYSTEM_CODES[error.code]));
  if (code === undefined) return error;
  // On an open connection the program only reads and writes; other calls are internal to the stack below.
  const open = syscall === 'read' || syscall === 'write';
  const call = open ? syscall : (cause?.syscall ?? syscall);
  const errno = cause?.errno ?? negative(code);
  const where = address === undefined ? '' : ` ${address}${port === undefined ? '' : `:${port}`}`;
  const words = open ? undefined : handshake === undefined ? cause?.message : error.message;
  const wrapped: SocketError = new Error(words ?? `${call} ${code}${where}`, { cause: error });
  if (errno !== undefined) wrapped.errno = errno;
  wrapped.code = code;
  wrapped.syscall = call;
  const { address: at = address, port: on = port } = cause ?? {};
  if (at !== undefined) wrapped.address = at;
  if (on !== undefined) wrapped.port = on;
  if (cause !== undefined && 'hostname' in cause) Object.assign(wrapped, { hostname: cause.hostname });
  return wrapped;
}

/** The system's own error below one of ours, if there is one. */
function systemCause(error: Error): SocketError | undefined {
  let { cause } = error;
  // Ours wrap each other a few times at most.
  for (let depth = 0; depth < 8 && cause instanceof Error; depth++) {
    // When all addresses of a name have failed, the first says as much as any.
    if (cause instanceof AggregateError && cause.errors[0] instanceof Error) cause = cause.errors[0];
    const { code, syscall } = cause as SocketError;
    if (typeof code === 'string' && typeof syscall === 'string') return cause as SocketError;
    ({ cause } = cause as Error);
  }
  return undefined;
}

/** The code of a TLS handshake that has failed, as `tls.connect` reports it. */
function handshakeCode({ code, cause }: IwarpError): string | undefined {
  if (code !== 'ERR_CONNECT' || !(cause instanceof Error) || cause instanceof IwarpError) return undefined;
  const { code: reason } = cause as NodeJS.ErrnoException;
  return typeof reason === 'string' ? reason : undefined;
}

function negative(code: string): number | undefined {
  const errno = (constants.errno as Readonly<Record<string, number>>)[code];
  return errno === undefined ? undefined : -errno;
}
