/** Variables of the environment, where the host has any. */

/**
 * The value of a variable; undefined if it is not set, if the host has no environment (a browser), or if it
 * refuses to show it (Deno without `--allow-env`): then the defaults are used.
 */
export function environmentVariable(name: string): string | undefined {
  try {
    const host = globalThis as { process?: { env?: Record<string, string | undefined> } };
    return host.process?.env?.[name];
  } catch {
    return undefined;
  }
}
