/** Clears away the processes and folders of a run when the program exits, even if it ends early. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const clearings = new Set<() => void>();
let heeded = false;

/** Have `clear` called once: by the function that is returned, or else when the program exits. */
export function atExit(clear: () => void): () => void {
  if (!heeded) {
    process.once('exit', () => {
      for (const one of clearings) one();
    });
  }
  heeded = true;
  clearings.add(clear);
  return () => {
    if (clearings.delete(clear)) clear();
  };
}

interface TemporaryFolder {
  readonly path: string;
  readonly remove: () => void;
}

export function temporaryFolder(prefix: string): TemporaryFolder {
  const path = mkdtempSync(join(tmpdir(), prefix));
  return { path, remove: atExit(() => rmSync(path, { recursive: true, force: true })) };
}
