/** Runs a TypeScript program as a child process with a time limit. */
import { transformSync } from 'esbuild';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { isAbsolute } from 'node:path';
import { fileURLToPath } from 'node:url';
import { plain } from '../support/plain.ts';

/** The folder of the package. */
export const ROOT: string = fileURLToPath(new URL('../..', import.meta.url));

/** Generous, for a machine that is busy with other tests. */
const LIMIT_MS = 45_000;

interface Outcome {
  /** Null if the program was killed at the time limit. */
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A file that a test has written lies as JavaScript beside it. */
function compiled(file: string): string {
  const { code } = transformSync(readFileSync(file, 'utf8'), { loader: 'ts', target: 'node20' });
  writeFileSync(`${file}.mjs`, code);
  return `${file}.mjs`;
}

/** Run a program of the checkout, which `file` names from there, or one that a test has written. */
export function runTs(
  file: string,
  args: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  return new Promise((resolve) => {
    const options = {
      cwd: ROOT,
      env: { ...process.env, ...env },
      timeout: LIMIT_MS,
      killSignal: 'SIGKILL' as const,
    };
    const child = execFile(
      process.execPath,
      [isAbsolute(file) ? compiled(file) : plain(file), ...args],
      options,
      (_, stdout, stderr) => {
        resolve({ status: child.exitCode, stdout, stderr });
      },
    );
  });
}
