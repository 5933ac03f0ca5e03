/** Errors of the promise layer that carry more than a code. */
import { brand } from '../base/brand.ts';
import { checkBytes, connectionEnd, IwarpError, ownError, type IwarpErrorCode } from '../base/errors.ts';
import { startupError } from '../cm/connect-failure.ts';
import type { CmEvent } from '../cm/events.ts';
import type { CloseCause } from '../stream/types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import type { PortAddress } from '../transport/port.ts';
import type { WcOpcode, WcStatus } from '../queues/work.ts';

/** Where an error of a connection happened: it becomes part of the text and of the fields. */
export interface ErrorContext {
  /** Address and port of the peer. */
  readonly peer: string;
  /** Our side. */
  readonly side: 'client' | 'server';
}

/** An address that is to be named. */
type Named = Pick<PortAddress, 'address' | 'port'> & Partial<Pick<PortAddress, 'family'>>;

/** @internal The address of a peer as text and fields of an error show it. */
export function peerName({ address, port, family }: Named): string {
  // A Unix socket has a path, a name without a file behind a zero, or neither.
  if (family === 'Unix') return `unix:${address.replace(/^\0/, '@')}`;
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/**
 * A Terminate message, ours or the peer's, ended the stream.
 *
 * @example
 * const { error } = await connection.closed;
 * if (error instanceof TerminateError) console.log(error.terminate.description); // 0/1/00 (RDMAP: invalid
 */
export class TerminateError extends IwarpError {
  static {
    brand(this, 'TerminateError');
  }

  /** The message, decoded. */
  readonly terminate: TerminateInfo;

  /** `where` goes in front of the text. */
  constructor(terminate: TerminateInfo, options?: ErrorOptions, where: string = '') {
    const sender = terminate.origin === 'remote' ? 'the peer sent' : 'sent';
    super('ERR_TERMINATED', `${where}${sender} Terminate ${terminate.description}`, options);
    this.name = 'TerminateError';
    this.terminate = terminate;
    connectionEnd(this);
  }
}

/** An operation failed, and the connection with it: the peer refused it, or it broke a rule on this side. */
export class OperationError extends IwarpError {
  static {
    brand(this, 'OperationError');
  }

  /** Status of the work completion, as in libibverbs: `remote-access-error`, … */
  readonly status: WcStatus;
  /** The decoded Terminate that refused the operation; undefined if there was none. */
  readonly terminate: TerminateInfo | undefined;

  /** `reason` is the error that the connection ended with. It becomes the `cause`. */
  constructor(opcode: WcOpcode, status: WcStatus, reason: IwarpError, where?: ErrorContext) {
    const peer = where === undefined ? '' : ` to ${where.peer} (${where.side} side)`;
    super('ERR_WORK_COMPLETION', `${opcode}${peer} ended with status ${status}: ${reason.message}`, {
      cause: reason,
    });
    connectionEnd(this);
    if (where !== undefined) locate(this, where, opcode);
    this.name = 'OperationError';
    this.status = status;
    this.terminate = reason instanceof TerminateError ? reason.terminate : undefined;
  }
}

/**
 * The peer rejected the connection request. Throw one in `onRequest` to reject a request with private data.
 *
 * @example
 * const server = createServer({
 *   onRequest: () => {
 *     throw new RejectedError('full', new TextEncoder().encode('try tomorrow'));
 *   },
 * });
 */
export class RejectedError extends IwarpError {
  static {
    brand(this, 'RejectedError');
  }

  /** The peer's private data. */
  readonly privateData: Uint8Array;

  /** The peer's rejection, with the private data of its Reply. */
  constructor(message: string, privateData: Uint8Array) {
    super('ERR_REJECTED', message);
    this.name = 'RejectedError';
    this.privateData = checkBytes('privateData', privateData);
  }
}

/** A connection that a server could not establish; see {@link ServerOptions.onFailure}. */
export interface ServerFailure {
  /**
   * - `accept`: the system could not accept it, for example for lack of descriptors. With ERR_ENGINE_FAILED
   *   the server accepts no further connection.
   * - `refused`: a limit of the listener was reached, such as `maxPending`.
   * - `startup-failed`: its frames were wrong, it was too slow, or it left before it was established.
   * - `limit`: a limit of the device was reached, and it was rejected.
   */
  readonly kind: 'accept' | 'refused' | 'startup-failed' | 'limit';
  /**
   * ERR_CONNECT, ERR_LIMIT, ERR_STARTUP, ERR_TIMEOUT, ERR_CONNECTION_RESET, ERR_TERMINATED or
   * ERR_ENGINE_FAILED, with a message that names the fault.
   */
  readonly error: IwarpError;
  /** The peer's address, if it is known. */
  readonly remoteAddress: PortAddress | undefined;
}

/** Why a connection ended. */
export interface CloseInfo {
  /** How it ended. Only `graceful` is not an error. */
  readonly cause: CloseCause;
  /** Set unless the connection was closed in order. */
  readonly error: IwarpError | undefined;
  /** The decoded Terminate message that ended the stream, sent or received. */
  readonly terminate: TerminateInfo | undefined;
}

const MESSAGES: Readonly<Partial<Record<CloseCause, readonly [IwarpErrorCode, string]>>> = {
  graceful: ['ERR_CONNECTION_CLOSED', 'the connection has been closed'],
  reset: ['ERR_CONNECTION_RESET', 'the connection was reset'],
  lost: ['ERR_CONNECTION_RESET', 'the connection was lost'],
  timeout: ['ERR_TIMEOUT', 'the peer did not answer the close in time'],
  'bad-close': ['ERR_CONNECTION_RESET', 'the peer sent data after the close'],
  rejected: ['ERR_REJECTED', 'the connection was rejected'],
  'startup-failed': ['ERR_STARTUP', 'MPA start-up failed'],
};

/** True for what ends everything on a device whose engine has failed. */
export function isEngineFailure(error: Error | undefined): error is IwarpError {
  return error instanceof IwarpError && error.code === 'ERR_ENGINE_FAILED';
}

/** Fields of an error, without those that are not known. */
function locate<T extends IwarpError>(error: T, { peer, side }: ErrorContext, operation?: string): T {
  return Object.assign(error, operation === undefined ? { peer, side } : { operation, peer, side });
}

/** An error for which this side drops the connection. */
export function failureOf(code: IwarpErrorCode, message: string, context: ErrorContext): IwarpError {
  const { peer, side } = context;
  return locate(
    connectionEnd(new IwarpError(code, `connection to ${peer} (${side} side): ${message}`)),
    context,
  );
}

/** The error that a connection ended with. */
export function closeError(
  cause: CloseCause,
  error: Error | undefined,
  terminate: TerminateInfo | undefined,
  context?: ErrorContext,
): IwarpError {
  const options = error === undefined ? undefined : { cause: error };
  const where = context === undefined ? '' : `connection to ${context.peer} (${context.side} side): `;
  if (terminate === undefined && isEngineFailure(error)) return connectionEnd(error);
  const [code, message] =
    MESSAGES[cause] ?? (['ERR_CONNECTION_RESET', `the connection ended: ${cause}`] as const);
  const ended =
    terminate === undefined
      ? connectionEnd(new IwarpError(code, where + message, options))
      : new TerminateError(terminate, options, where);
  return context === undefined ? ended : locate(ended, context);
}

/**
 * The error of one operation that ended because the connection did: the same class and code as `reason`,
 * which is its cause, with the operation in text and fields.
 */
export function operationEnd(operation: string, reason: IwarpError, context: ErrorContext): IwarpError {
  if (reason.code === 'ERR_ENGINE_FAILED') return reason;
  const where = `${operation}: `;
  const error =
    reason instanceof TerminateError
      ? new TerminateError(
          reason.terminate,
          { cause: reason },
          `${operation} to ${context.peer} (${context.side} side): `,
        )
      : connectionEnd(new IwarpError(reason.code, where + reason.message, { cause: reason }));
  return locate(error, context, operation);
}

/** Start-up failed: the error of the connection manager, with the peer where its name is known. */
export function startupFailureOf(
  reason: StartupFailure,
  side: ErrorContext['side'],
  peer: string | undefined,
  mayWantTls = false,
): IwarpError {
  const error = startupError(reason, side === 'client' ? 'active' : 'passive', peer, mayWantTls);
  return peer === undefined ? error : locate(error, { peer, side }, 'connect');
}

/** Events of a connection that was never established, each with its reason. */
export type AttemptEvent = Extract<
  CmEvent,
  { readonly type: 'rejected' | 'connect-error' | 'unreachable' | 'address-error' }
>;

/** The error of a byte stream whose connection was never established. */
export function attemptError({ error }: AttemptEvent): IwarpError {
  return error === undefined
    ? new IwarpError('ERR_REJECTED', 'the peer rejected the connection')
    : ownError(error, 'ERR_CONNECT', error.message);
}
