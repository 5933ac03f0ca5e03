/**
 * Errors a caller can meet, each with a stable `code`.
 *
 * Two kinds stay apart: a programmer error throws one of these at once, from the call that was wrong; what
 * the network does never throws inside the core and reaches the user as a completion, an event or, in the
 * promise layer, as a rejection with one of these.
 */
import { brand } from './brand.ts';

/**
 * Every `code` an {@link IwarpError} can carry, with its meaning. `docs/errors.md` is generated from this
 * table.
 */
export const ERROR_CODES = {
  ERR_INVALID_ARGUMENT:
    'An argument has the wrong type or a value outside what the call accepts; the message names it.',
  ERR_OUT_OF_RANGE: 'An offset and length do not lie inside the memory they address.',
  ERR_INVALID_STATE: 'The object is not in a state in which this call is allowed.',
  ERR_QUEUE_FULL: 'The work queue has no free entry; poll completions before posting more.',
  ERR_TOO_LARGE: 'The message, private data, inline data or scatter/gather list is above a stated limit.',
  ERR_ACCESS: 'The memory region does not grant the access needed, or a file or folder cannot be used.',
  ERR_WRONG_PD: 'The objects belong to different protection domains or devices.',
  ERR_INVALID_REGION:
    'The memory region or window has been deregistered or invalidated, or its connection has ended.',
  ERR_IN_USE: 'The object still has users and cannot be destroyed or changed.',
  ERR_LIMIT: 'A limit of the device or of the process is reached.',
  ERR_NOT_SUPPORTED: 'The peer or this configuration lacks the feature.',
  ERR_DESTROYED: 'The object has been destroyed or closed.',
  ERR_REJECTED:
    'The peer rejected the connection (MPA Reply with R=1); `privateData` has the data of its Reply.',
  ERR_STARTUP: 'MPA start-up failed: a malformed frame, an unusable revision or failed negotiation.',
  ERR_TIMEOUT: 'The peer did not answer in time.',
  ERR_CONNECT:
    "No TCP connection could be made, or the address could not be bound; the `cause` is the system's error.",
  ERR_TERMINATED: 'A Terminate message ended the stream; `terminate` carries it decoded.',
  ERR_CONNECTION_CLOSED: 'The connection was closed before the operation completed.',
  ERR_CONNECTION_RESET: 'The connection was reset or lost.',
  ERR_WORK_COMPLETION: 'The work request completed with an error status; the message names it.',
  ERR_NOT_SHARED: 'The device works in other threads: memory to register must be over a SharedArrayBuffer.',
  ERR_ENGINE_FAILED: 'The worker thread of the device has failed, was stopped, or cannot be started.',
  ERR_ABORTED:
    'The AbortSignal of the call was aborted: its reason is the `cause`; `name` is `AbortError`, as in Node.',
  ERR_LENT_CHANGED: 'The program has changed memory while it was lent to a stream.',
  ERR_NBD: 'A block request failed with an error number of the NBD protocol; `errno` is its name.',
  ERR_REMOTE: "The peer's program answered a request with an error, whose text is the message.",
  ERR_PROTOCOL: 'The peer has sent bytes that the protocol above the connection does not allow.',
  ERR_INTERNAL:
    'A bug in this package: something impossible has happened, such as an unknown input of a state machine.',
} as const;

/** A stable error code. */
export type IwarpErrorCode = keyof typeof ERROR_CODES;

/**
 * The base class of every error this package throws or rejects with.
 *
 * @example
 * try { qp.postSend(request); } catch (error) {
 *   if (error instanceof IwarpError && error.code === 'ERR_QUEUE_FULL') await completions();
 * }
 */
export class IwarpError extends Error {
  static {
    brand(this, 'IwarpError');
  }

  /** What went wrong, as a stable name of {@link ERROR_CODES}. */
  readonly code: IwarpErrorCode;
  /** The call of a connection that failed: `send`, `rdma-read`, …; absent outside the promise layer. */
  declare readonly operation?: string;
  /** Address and port of the peer; absent outside the promise layer. */
  declare readonly peer?: string;
  /** Our side of the connection; absent outside the promise layer. */
  declare readonly side?: 'client' | 'server';
  /** Of a start-up that failed, the system's code for that: ECONNRESET, ETIMEDOUT or EPROTO. */
  declare readonly systemCode?: string;

  /** An error with a stable code; `cause` is an option of `Error`. */
  constructor(code: IwarpErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    // What Node calls it, and what code asks for that does not know ours.
    this.name = code === 'ERR_ABORTED' ? 'AbortError' : 'IwarpError';
    this.code = code;
  }
}

const endings = new WeakSet<object>();

/** @internal Mark an error that reports the end of a connection; returns it. */
export function connectionEnd<T extends IwarpError>(error: T): T {
  endings.add(error);
  return error;
}

/** @internal True for an error that {@link connectionEnd} has marked. */
export function endsConnection(error: unknown): boolean {
  return typeof error === 'object' && error !== null && endings.has(error);
}

/**
 * @internal Memory that the host refuses is a limit of the process: ERR_LIMIT, with the host's RangeError as
 * the cause.
 */
export function orNoMemory<T>(octets: number, allocate: () => T): T {
  try {
    return allocate();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new IwarpError('ERR_LIMIT', `no memory for ${octets} bytes`, { cause: error });
  }
}

/** An error of ours as it is; anything else as the cause of one. */
export function ownError(error: unknown, code: IwarpErrorCode, message: string): IwarpError {
  return error instanceof IwarpError ? error : new IwarpError(code, message, { cause: error });
}

/** Throws ERR_INVALID_ARGUMENT unless `value` is an integer from `min` to `max`; returns it. */
export function checkInteger(name: string, value: unknown, min: number, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must be an integer from ${min} to ${max}, got ${show(value)}`,
    );
  }
  return value;
}

/** Throws ERR_INVALID_ARGUMENT unless `value` is one of `allowed`; returns it. */
export function checkOneOf<T extends string | number>(
  name: string,
  value: unknown,
  allowed: readonly T[],
): T {
  if (!(allowed as readonly unknown[]).includes(value)) {
    throw new IwarpError(
      'ERR_INVALID_ARGUMENT',
      `${name} must be one of ${allowed.join(', ')}, got ${show(value)}`,
    );
  }
  return value as T;
}

/** Throws ERR_INVALID_ARGUMENT unless `value` is a boolean; returns it. */
export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value !== 'boolean') {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a boolean, got ${show(value)}`);
  }
  return value;
}

/**
 * Throws ERR_INVALID_ARGUMENT unless `value` is an ArrayBufferView; returns its bytes as a Uint8Array over
 * the same memory.
 */
export function checkBytes(name: string, value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (!ArrayBuffer.isView(value)) {
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be an ArrayBufferView, got ${show(value)}`);
  }
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

/** Throws ERR_INVALID_ARGUMENT unless `value` is an object. */
export function checkObject(name: string, value: unknown): asserts value is object {
  if (typeof value !== 'object' || value === null)
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be an object, got ${show(value)}`);
}

/** The names of a bag of options, all of them. */
export type Names<T> = { readonly [K in keyof T]-?: true };

/**
 * Throws ERR_INVALID_ARGUMENT unless `value` is an object without other names than the known ones: a name
 * that no code reads is a typing error.
 */
export function checkOptions<T>(name: string, value: unknown, known: Names<T>): asserts value is object {
  checkObject(name, value);
  for (const key in value) {
    if (known[key as never] !== true && Object.hasOwn(value, key))
      throw new IwarpError('ERR_INVALID_ARGUMENT', `${name}.${key} is not a known option`);
  }
}

/** Throws ERR_INVALID_ARGUMENT unless `value` is a function. */
export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== 'function')
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${name} must be a function, got ${show(value)}`);
}

/** A value as an error message shows it. */
export function show(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'object') return `an instance of ${(value as object).constructor?.name ?? 'Object'}`;
  return `a ${typeof value}`;
}
