/** What the judges have in common: programs of Debian, a line for each check, and the sums at the end. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const INSTALL = fileURLToPath(new URL('apt-install.sh', import.meta.url));

let passed = 0;
const failures: string[] = [];

/** Install the Debian packages of those programs that are missing: package by program. */
export function aptInstall(packages: Readonly<Record<string, string>>): void {
  const missing = Object.entries(packages).flatMap(([program, name]) =>
    spawnSync('which', [program]).status === 0 ? [] : [name],
  );
  if (missing.length === 0) return;
  spawnSync(INSTALL, [...new Set(missing)], { stdio: 'inherit' });
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
