/** Looks for proofs in a capture that a case has left behind. */
import { existsSync, readFileSync } from 'node:fs';

/** The result of `find` in the file; null if there is no file, or it is no capture. */
export function inCapture(path: string, find: (capture: Uint8Array) => string | null): string | null {
  if (!existsSync(path)) return null;
  try {
    return find(readFileSync(path));
  } catch {
    return null; // cut short by the end of the tool: nothing is proved
  }
}
