/** The file that the worker thread of an engine begins with. */
import { workerData } from 'node:worker_threads';
import { runEngine } from './core.ts';
import type { EngineStart } from './messages.ts';

runEngine(workerData as EngineStart);
