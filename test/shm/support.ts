/** Worker threads that run a program with the sources in them. */
import { once } from 'node:events';
import { pathToFileURL } from 'node:url';
import { Worker, type MessagePort } from 'node:worker_threads';
import { onTestFinished } from 'vitest';
import { bundle } from '../support/bundle.ts';

/**
 * Every program is a function of one file: `port.postMessage('ready')` first, then what the test asks for.
 * It sees the package's names, the sockets as `sockets`, and `data`.
 */
const PROGRAM = `
import * as iwarp from './src/index.ts';
import * as sockets from './src/sockets/index.ts';
import { parentPort as port, workerData as data } from 'node:worker_threads';
const run = new Function('iwarp', 'sockets', 'port', 'data', 'return (async () => {' + data.code + '})()');
run(iwarp, sockets, port, data).catch((error) => port.postMessage({ failed: error.code, text: error.stack }));
`;

let file: Promise<string> | null = null;

/** A thread that runs this code, from its first message on; it is gone after the test. */
export async function thread(
  code: string,
  data: object = {},
  transferList: MessagePort[] = [],
): Promise<Worker> {
  file ??= bundle(PROGRAM);
  const worker = new Worker(pathToFileURL(await file), { workerData: { code, ...data }, transferList });
  onTestFinished(() => void worker.terminate());
  const [first] = (await once(worker, 'message')) as [unknown];
  if (first !== 'ready') throw new Error(`the thread says ${JSON.stringify(first)}`);
  return worker;
}

/** The next message of a thread. */
export async function said(worker: Worker): Promise<unknown> {
  return ((await once(worker, 'message')) as [unknown])[0];
}

let names = 0;
/** A name that no test has. */
export function freshName(): string {
  return `test ${process.pid} ${++names}`;
}
