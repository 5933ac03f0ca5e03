/**
 * Starts the worker thread, from compiled JavaScript, and from TypeScript source under tsx. There a
 * worker needs its own loader: it begins with a program that loads tsx, which is there because the
 * source is.
 *
 * A bundler may have put this module into one file with a program. Then the file of the worker is looked for
 * beside that one.
 */
import { environmentVariable } from '../../base/environment.ts';
import { existsSync } from 'node:fs';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Worker, type WorkerOptions } from 'node:worker_threads';
import { IwarpError, show } from '../../base/errors.ts';

const ENGINE = 'iwarp-engine';

/** CommonJS has it. */
declare const __filename: string | undefined;

/**
 * The file that this module is in. Where a bundler has made CommonJS of it there is no URL of a module. Its
 * user holds it in a variable: webpack takes a path that is written out relative to `import.meta.url` for a
 * file to be bundled, and there is no TypeScript in the package.
 */
function ownUrl(): string {
  const url = import.meta.url as string | undefined;
  return url ?? (typeof __filename === 'string' ? pathToFileURL(__filename).href : '');
}

/**
 * Start the worker of an engine. @throws ERR_ENGINE_FAILED if its file is not there; what Node throws if it
 * starts no threads
 */
export function spawnWorker(options: WorkerOptions): Worker {
  const own = ownUrl();
  if (!own.endsWith('.ts')) return startCompiled(engineBeside(own), options);
  const entry = new URL(`../worker/${ENGINE}.ts`, own).href;
  const code = `Promise.all([import('node:module'), import('node:url')])
    .then(([{ createRequire }, { pathToFileURL }]) =>
      pathToFileURL(createRequire(${JSON.stringify(own)}).resolve('tsx/esm/api')).href)
    .then((loader) => import(loader.replace(/\\.cjs$/, '.mjs')))
    .then(({ register }) => register())
    .then(() => import(${JSON.stringify(entry)}));`;
  return new Worker(code, { ...options, eval: true, execArgv: [] });
}

/** The file of the worker, of the same kind as the compiled or bundled one at `url`. */
function engineBeside(url: string): URL {
  if (!url.startsWith('file:')) {
    throw new IwarpError(
      'ERR_ENGINE_FAILED',
      `a worker thread needs a file to begin with, and this code is not in one (${show(url)})`,
    );
  }
  const name = `${ENGINE}${/\.[cm]js$/.exec(url)?.[0] ?? '.js'}`;
  const file = new URL(`./${name}`, url);
  const inPackage = new URL(`../worker/${name}`, url);
  for (const one of [file, inPackage]) if (existsSync(one)) return one;
  const way =
    'a bundled program needs the entry iwarp/engine as a file of this name, or iwarp left out of the bundle';
  throw new IwarpError('ERR_ENGINE_FAILED', `${fileURLToPath(file)} is not there: ${way}`);
}

/**
 * Start a worker from a JavaScript file. It inherits the flags of the process, and where one of them is the
 * type of a program on the command line, Node starts no file: then a program of one line does. Flags cannot
 * be left out instead, for those of the process alone may not be named.
 */
export function startCompiled(file: URL, options: WorkerOptions): Worker {
  const typed = [...process.execArgv, environmentVariable('NODE_OPTIONS') ?? ''].some((words) =>
    words.includes('--input-type'),
  );
  return typed
    ? new Worker(`import(${JSON.stringify(file.href)})`, { ...options, eval: true })
    : new Worker(file, options);
}
