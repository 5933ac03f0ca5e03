/** Errors of the promise layer that carry more than a code. */
import { checkBytes, IwarpError, type IwarpErrorCode } from '../base/errors.ts';
import type { CloseCause } from '../rdmap/stream-types.ts';
import type { TerminateInfo } from '../rdmap/terminate.ts';
import type { StartupFailure } from '../mpa/startup.ts';
import type { PortAddress } from '../transport/port.ts';
import type { WcOpcode, WcStatus } from '../rdmap/work.ts';

/**
 * A Terminate message, ours or the peer's, ended the stream.
 *
 * @example
 * const { error } = await connection.closed;
 * if (error instanceof TerminateError) console.log(error.terminate.description); // 0/1/00 (RDMAP: invalid STag)
 */
export class TerminateError extends IwarpError {
  /** The message, decoded. */
  readonly terminate: TerminateInfo;

  constructor(terminate: TerminateInfo, options?: ErrorOptions) {
    const who = terminate.origin === 'remote' ? 'the peer sent' : 'sent';
    super('ERR_TERMINATED', `${who} Terminate ${terminate.description}`, options);
    this.name = 'TerminateError';
    this.terminate = terminate;
  }
}

/** An operation failed, and the connection with it: the peer refused it, or it broke a rule on this side. */
export class OperationError extends IwarpError {
  /** Status of the work completion, as in libibverbs: `remote-access-error`, … */
  readonly status: WcStatus;
  /** The decoded Terminate that refused the operation; undefined if there was none. */
  readonly terminate: TerminateInfo | undefined;

  /** `reason` is the error that the connection ended with. It becomes the `cause`. */
  constructor(opcode: WcOpcode, status: WcStatus, reason: IwarpError) {
    super('ERR_WORK_COMPLETION', `${opcode} ended with status ${status}: ${reason.message}`, { cause: reason });
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
  /** The peer's private data. */
  readonly privateData: Uint8Array;

  constructor(message: string, privateData: Uint8Array) {
    super('ERR_REJECTED', message);
    this.name = 'RejectedError';
    this.privateData = checkBytes('privateData', privateData);
  }
}

/** A connection that a server could not establish; see {@link ServerOptions.onFailure}. */
export interface ServerFailure {
  /**
   * - `accept`: the system could not accept it, for example for lack of descriptors. With ERR_ENGINE_FAILED the server will accept nothing any more.
   * - `refused`: `maxPending` others were in start-up.
   * - `start-up`: its frames were wrong, it was too slow, or it left before it was established.
   * - `limit`: a limit of the device was reached, and it was rejected.
   */
  readonly kind: 'accept' | 'refused' | 'start-up' | 'limit';
  /** ERR_CONNECT, ERR_LIMIT, ERR_STARTUP, ERR_TIMEOUT, ERR_CONNECTION_RESET, ERR_TERMINATED or ERR_ENGINE_FAILED, with a message that says what was wrong. */
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

/** The error that pending operations of a connection that ended this way are rejected with. */
export function closeError(cause: CloseCause, error: Error | undefined, terminate: TerminateInfo | undefined): IwarpError {
  if (terminate !== undefined) return new TerminateError(terminate, error === undefined ? undefined : { cause: error });
  if (isEngineFailure(error)) return error;
  const [code, message] = MESSAGES[cause] ?? (['ERR_CONNECTION_RESET', `the connection ended: ${cause}`] as const);
  return new IwarpError(code, message, error === undefined ? undefined : { cause: error });
}

/** What was wrong with start-up; `frame` is what the peer owed: its Request, or its Reply. */
const STARTUP_WORDS: Readonly<Record<StartupFailure, (frame: string) => string>> = {
  'bad-key': (frame) => (frame === 'Reply' ? "the peer's answer is no MPA Reply" : 'what the peer sent is no MPA Request'),
  'private-data-too-long': (frame) => `the peer's MPA ${frame} announces more than 512 octets of private data`,
  'unusable-revision': (frame) => `the peer's MPA ${frame} has a revision that cannot be used here`,
  'enhanced-data-missing': (frame) => `the peer's MPA ${frame} announces enhanced data (RFC 6581) and has none`,
  truncated: (frame) => (frame === 'Reply' ? 'the peer closed the connection before an MPA Reply' : 'the peer closed the connection before it was established'),
  reset: (frame) => (frame === 'Reply' ? 'the connection was reset before an MPA Reply' : 'the connection was reset before it was established'),
  timeout: (frame) => `no MPA ${frame} came in time`,
  'markers-refused': () => 'the peer asks for markers, which are refused here',
  'extra-octets': (frame) => `octets came after the peer's MPA ${frame} that nothing allows there`,
};

/** Start-up failed, for this reason, on the connecting (active) or on the accepting side. */
export function startupError(reason: StartupFailure, role: 'active' | 'passive'): IwarpError {
  const words = STARTUP_WORDS[reason](role === 'active' ? 'Reply' : 'Request');
  return new IwarpError(reason === 'timeout' ? 'ERR_TIMEOUT' : 'ERR_STARTUP', `MPA start-up failed: ${words}`);
}
