/** Runs a TypeScript program as a child process with a time limit. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

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

/** Run `file` with this Node and the TypeScript loader. */
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
      ['--import', 'tsx', file, ...args],
      options,
      (_, stdout, stderr) => {
        resolve({ status: child.exitCode, stdout, stderr });
      },
    );
  });
}
