/** What the judges have in common: programs of Debian, a line for each check, and the sums at the end. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
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

/**
 * A program that serves until `stop` ends it. Resolves when what it prints matches `ready`; one that prints
 * nothing is given that number of milliseconds, since its first client does not wait for it.
 */
export async function background(
  [program, args]: readonly [string, readonly string[]],
  ready: RegExp | number,
  cwd: string,
): Promise<ChildProcess> {
  const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  await new Promise<void>((resolve, reject) => {
    const ended = (how: string) => (): void =>
      reject(new Error(`${program} ${args.join(' ')} ${how}: ${said}`));
    const late = setTimeout(ended('does not serve'), 60_000);
    const done = (): void => {
      clearTimeout(late);
      resolve();
    };
    const hear = (data: Buffer): void => {
      said += data.toString();
      if (typeof ready !== 'number' && ready.test(said)) done();
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('exit', ended('has ended'));
    if (typeof ready === 'number') setTimeout(done, ready);
  });
  return child;
}

/** Ask a program to end, and wait until it has. */
export async function stop(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
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
