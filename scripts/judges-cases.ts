/**
 * Inputs from outside the project, as users and other teams send them: `IWARP_CASES=FOLDER[:FOLDER]...
 * npx tsx scripts/judges-cases.ts` after `npm run build`. Each `.mjs` and `.py` file of the folders, those in
 * `lib` aside, is a program that checks itself. It is given the checkout in IWARP and an engine in
 * IWARP_ENGINE, prints lines that begin with RIGHT or WRONG, and ends with status 0 where all is right.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { notRun, report, sums } from './judge.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const LIMIT_MS = 180_000;
const ENGINES = ['thread', 'worker'] as const;

const folders = (process.env['IWARP_CASES'] ?? '').split(':').filter(Boolean);
if (folders.length === 0) notRun('set IWARP_CASES to the folders of such programs');
const absent = folders.find((folder) => statSync(folder, { throwIfNoEntry: false })?.isDirectory() !== true);
if (absent !== undefined) notRun(`${absent} is no folder`);

/** The checkout as such programs know it: `bin`, and the library in `dist` or, as it was once, `dist/src`. */
function checkout(): string {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-cases-'));
  for (const name of ['bin', 'docs', 'node_modules', 'package.json'])
    symlinkSync(join(ROOT, name), join(folder, name));
  mkdirSync(join(folder, 'dist'));
  for (const name of readdirSync(join(ROOT, 'dist')))
    symlinkSync(join(ROOT, 'dist', name), join(folder, 'dist', name));
  symlinkSync(join(ROOT, 'dist'), join(folder, 'dist/src'));
  return folder;
}

interface Ending {
  readonly status: number | null;
  readonly output: string;
}

function run(file: string, environment: NodeJS.ProcessEnv): Promise<Ending> {
  return new Promise((resolve) => {
    const child = spawn(file.endsWith('.py') ? 'python3' : process.execPath, [file], {
      cwd: dirname(file),
      env: { ...process.env, ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: LIMIT_MS,
      killSignal: 'SIGKILL',
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (data: Buffer) => (output += data.toString()));
    child.once('close', (status) => resolve({ status, output }));
  });
}

const place = checkout();
try {
  for (const folder of folders) {
    const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((path) => /\.(mjs|py)$/.test(path))
      .filter((path) => !path.split(sep).some((part) => part === 'lib' || part === 'lib.mjs'));
    for (const path of files.toSorted())
      for (const engine of ENGINES) {
        const ending = await run(join(folder, path), { IWARP: place, IWARP_ENGINE: engine });
        const right = ending.status === 0 && !/^WRONG/m.test(ending.output);
        report(`${path}, engine ${engine}`, right, right ? '' : ending.output.trim().slice(-400));
      }
  }
} finally {
  rmSync(place, { recursive: true });
}
process.exitCode = sums();
