/** The system's errors about files and addresses, in the words that a tool prints: `tool: path: reason`. */
import { getSystemErrorMap } from 'node:util';
import { IwarpError } from '../../src/base/errors.ts';

/** True for an error that comes from the system, not from a mistake in the program. */
export function isSystemError(error: unknown): error is NodeJS.ErrnoException & { readonly code: string } {
  return error instanceof Error && 'syscall' in error && 'code' in error && typeof error.code === 'string';
}

/** Do something with a file, and say what the system refuses. @throws IwarpError ERR_INVALID_ARGUMENT */
export function withFile<T>(path: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new IwarpError('ERR_INVALID_ARGUMENT', `${path}: ${reasonOf(error)}`, { cause: error });
  }
}

/** The reason alone: Node's message has code, call and path around it. */
export function reasonOf(error: unknown): string {
  // A name with several addresses: one error for each.
  const first: unknown = error instanceof AggregateError ? error.errors[0] : error;
  const { errno, message } = first as NodeJS.ErrnoException;
  return (errno === undefined ? undefined : getSystemErrorMap().get(errno)?.[1]) ?? message;
}
