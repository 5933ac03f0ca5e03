/**
 * The system's reason why a file or an address cannot be had, as the command prints it: `command: path:
 * reason`. The command of the library words it alike; this package uses none of its code.
 */
import { getSystemErrorMap } from 'node:util';

/** True for an error that comes from the system, not from a mistake in the program. */
export function isSystemError(error: unknown): error is NodeJS.ErrnoException & { readonly code: string } {
  return error instanceof Error && 'syscall' in error && 'code' in error && typeof error.code === 'string';
}

/** The reason alone: Node's message has code, call and path around it. */
export function reasonOf(error: unknown): string {
  // A name with several addresses gives one error for each.
  const first: unknown = error instanceof AggregateError ? error.errors[0] : error;
  const { errno, message } = first as NodeJS.ErrnoException;
  return (errno === undefined ? undefined : getSystemErrorMap().get(errno)?.[1]) ?? message;
}
