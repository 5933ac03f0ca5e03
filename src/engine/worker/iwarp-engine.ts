/**
 * The file that the worker thread of an engine begins with. A bundled program has it beside itself, under
 * this name (`spawn.ts`).
 */
import { workerData } from 'node:worker_threads';
import { IwarpError } from '../../base/errors.ts';
import { runEngine } from './engine-worker.ts';
import type { EngineStart } from '../channel/messages.ts';

const start = workerData as Partial<EngineStart> | null;
if (!(start?.submissions instanceof Int32Array)) {
  throw new IwarpError(
    'ERR_INVALID_STATE',
    'iwarp/engine is the program of the worker threads: it is there to be bundled, not to be imported',
  );
}
runEngine(start as EngineStart);
