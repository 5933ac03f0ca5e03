/**
 * A project as a user makes it: an empty folder outside of this one, with packed tarballs and packages of
 * npm's installed.
 */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of this package. */
export const ROOT: string = fileURLToPath(new URL('..', import.meta.url));
const LIMIT_MS = 240_000;

/** Run a program to its end; its standard output. Throws if it fails or takes more than four minutes. */
export function run(cwd: string, file: string, ...args: string[]): string {
  return execFileSync(file, args, {
    cwd,
    encoding: 'utf8',
    timeout: LIMIT_MS,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

/** Build, unless the command line says that this has been done. */
export function buildUnless(args: readonly string[]): void {
  if (!args.includes('--built')) run(ROOT, 'npm', 'run', 'build');
}

/** Calls `work` with a new folder, which is removed afterwards. */
export async function inFolder<T>(name: string, work: (folder: string) => T | Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), `iwarp-${name}-`));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Packs the library, or a package of the workspaces; returns the path of the tarball. */
export function pack(folder: string, workspace?: string): string {
  const which = workspace === undefined ? [] : ['--workspace', workspace];
  const to = ['--ignore-scripts', '--json', '--pack-destination', folder];
  const [packed] = JSON.parse(run(ROOT, 'npm', 'pack', ...which, ...to)) as [
    { filename: string; size: number; unpackedSize: number; entryCount: number },
  ];
  const kib = (bytes: number): string => `${Math.round(bytes / 1024)} KiB`;
  const sizes = `${kib(packed.size)}, unpacked ${kib(packed.unpackedSize)}`;
  process.stdout.write(`packed ${packed.filename}: ${packed.entryCount} files, ${sizes}\n`);
  return join(folder, packed.filename);
}

/** An empty project. */
export function newProject(folder: string, name: string, type: 'commonjs' | 'module' = 'commonjs'): string {
  const project = join(folder, name);
  mkdirSync(project);
  const manifest = { name: 'user', version: '1.0.0', private: true, type };
  writeFileSync(join(project, 'package.json'), JSON.stringify(manifest));
  return project;
}

/**
 * Install tarballs and packages. --ignore-scripts keeps npm from asking about `prepare`, which it does not
 * run.
 */
export function install(project: string, ...packages: string[]): void {
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts', '--loglevel=error'];
  run(project, 'npm', 'install', ...quiet, ...packages);
}

/** How a program has ended, and what it printed. */
interface Outcome {
  /** Null if it was killed at the time limit. */
  readonly status: number | null;
  /** Lines of its standard output. */
  readonly lines: readonly string[];
  /** Its standard error. */
  readonly complaints: string;
}

/** Run a program of a project until it ends by itself, two minutes at most. */
export function outcomeOf(
  project: string,
  [program, ...args]: readonly [string, ...string[]],
  env: NodeJS.ProcessEnv = process.env,
): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { cwd: project, env, stdio: ['ignore', 'pipe', 'pipe'] });
    const late = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS / 2);
    let [out, complaints] = ['', ''];
    child.stdout.on('data', (data: Buffer) => (out += data.toString()));
    child.stderr.on('data', (data: Buffer) => (complaints += data.toString()));
    child.once('error', reject);
    child.once('close', (status) => {
      clearTimeout(late);
      resolve({ status, lines: out === '' ? [] : out.trimEnd().split('\n'), complaints });
    });
  });
}
