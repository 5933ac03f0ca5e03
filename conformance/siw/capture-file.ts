/** What a capture that a case has left behind proves. */
import { existsSync, readFileSync } from 'node:fs';

/** What `find` finds in the file; null if there is none, or it is no capture. */
export function inCapture(path: string, find: (capture: Uint8Array) => string | null): string | null {
  if (!existsSync(path)) return null;
  try {
    return find(readFileSync(path));
  } catch {
    return null; // cut short by the end of the tool: nothing is proved
  }
}
