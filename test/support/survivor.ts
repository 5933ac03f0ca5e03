/**
 * A program that goes on after what its listeners throw, as one with a listener for 'uncaughtException' does.
 */

/** Messages of the errors thrown and not caught while `task` runs. */
export async function surviving(task: (thrown: readonly string[]) => Promise<void>): Promise<string[]> {
  const before = process.listeners('uncaughtException');
  const thrown: string[] = [];
  process
    .removeAllListeners('uncaughtException')
    .on('uncaughtException', (error) => thrown.push(error.message));
  try {
    await task(thrown);
  } finally {
    process.removeAllListeners('uncaughtException');
    for (const listener of before) process.on('uncaughtException', listener);
  }
  return thrown;
}
