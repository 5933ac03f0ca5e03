/** What the judges have in common: programs of Debian, a line for each check, and the sums at the end. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const INSTALL = fileURLToPath(new URL('apt-install.sh', import.meta.url));

let passed = 0;
const failures: string[] = [];

/** The exit status of a judge that cannot run here. */
export const NOT_RUN = 77;

/** Whether one check a kind is asked for, as the gate does. */
export const SMOKE: boolean = process.argv.includes('--smoke');

/** End the process: what this needs cannot be had here. */
export function notRun(why: string): never {
  console.log(`not run: ${why}`);
  process.exit(NOT_RUN);
}

/**
 * Install the Debian packages of those programs that are missing: package by program. Where one cannot be had
 * the process ends with a line that names it.
 */
export function aptInstall(packages: Readonly<Record<string, string>>): void {
  const missing = (): string[] => [
    ...new Set(
      Object.entries(packages).flatMap(([program, name]) =>
        spawnSync('which', [program]).status === 0 ? [] : [name],
      ),
    ),
  ];
  const wanted = missing();
  if (wanted.length === 0) return;
  spawnSync(INSTALL, wanted, { stdio: 'inherit' });
  const absent = missing();
  if (absent.length > 0) notRun(`Debian's ${absent.join(', ')} cannot be installed`);
}

/** Print the outcome of a check, with the end of `why` if it has failed. */
export function report(name: string, isFine: boolean, why = ''): void {
  if (isFine) passed++;
  else failures.push(name);
  const reason = isFine || why === '' ? '' : `\n${why.trim().slice(-2000)}`;
  console.log(`${isFine ? 'ok    ' : 'FAILED'} ${name}${reason}`);
}

/** Print the sums and the names of failed checks; the status of the process: 1 if one failed, or none ran. */
export function sums(): 0 | 1 {
  const names = failures.length > 0 ? `: ${failures.join('; ')}` : '';
  console.log(`\n${passed} passed, ${failures.length} failed${names}`);
  return failures.length === 0 && passed > 0 ? 0 : 1;
}
