/**
 * Starts the worker thread, from compiled JavaScript, and from TypeScript source under tsx or vitest. There a worker needs the loader of
 * its own: it begins with two lines that load tsx, which is there because the source is.
 */
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { Worker, type WorkerOptions } from 'node:worker_threads';

/** Start the worker of an engine. */
export function spawnWorker(options: WorkerOptions): Worker {
  if (!import.meta.url.endsWith('.ts')) return startCompiled(new URL('./worker.js', import.meta.url), options);
  const entry = new URL('./worker.ts', import.meta.url).href;
  const loader = pathToFileURL(createRequire(import.meta.url).resolve('tsx/esm/api')).href.replace(/\.cjs$/, '.mjs');
  const code = `import { register } from ${JSON.stringify(loader)}; register(); await import(${JSON.stringify(entry)});`;
  return new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`), { ...options, execArgv: [] });
}

/**
 * Start a worker from a JavaScript file. It inherits the flags of the process, and where one of them is the type of a program on the command line, Node
 * starts no file: then a program of one line does. Flags cannot be left out instead, for those of the process alone may not be named.
 */
export function startCompiled(file: URL, options: WorkerOptions): Worker {
  const typed = [...process.execArgv, process.env['NODE_OPTIONS'] ?? ''].some((words) => words.includes('--input-type'));
  return typed ? new Worker(`import(${JSON.stringify(file.href)})`, { ...options, eval: true }) : new Worker(file, options);
}
