/** What the system says when a file or an address cannot be had, in the words that a tool prints: `tool: path: reason`. */

/** True for an error that comes from the system, not from a mistake in the program. */
export function isSystemError(error: unknown): error is NodeJS.ErrnoException & { readonly code: string } {
  return error instanceof Error && 'syscall' in error && 'code' in error && typeof error.code === 'string';
}

/** The reason alone: Node puts the code in front, and the call with its path behind. */
export function reasonOf(error: unknown): string {
  const { message } = error as Error;
  return /^E[A-Z0-9]+: ([^,]+)/.exec(message)?.[1] ?? message;
}
