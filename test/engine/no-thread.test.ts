// Node starts no thread: not permitted to, or out of them. The device is refused at once, with a code of
// ours.
import type { Worker, WorkerOptions } from 'node:worker_threads';
import { expect, it, vi } from 'vitest';
import type * as Spawn from '../../src/engine/proxy/spawn.ts';
import { IwarpError } from '../../src/index.ts';
import { bundle, runNode } from '../support/bundle.ts';
import { openWorkers } from './support.ts';

const denied = Object.assign(new Error('no more threads'), { code: 'ERR_WORKER_INIT_FAILED' });
const started: Worker[] = [];

vi.mock('../../src/engine/proxy/spawn.ts', async (original) => {
  const spawn = await original<typeof Spawn>();
  return {
    ...spawn,
    spawnWorker(options: WorkerOptions): Worker {
      if (started.length === 2) throw denied;
      const worker = spawn.spawnWorker(options);
      started.push(worker);
      return worker;
    },
  };
});

it('one thread too many: the error has its reason, and the threads before it do not stay', async () => {
  let error: unknown;
  try {
    openWorkers({ engines: 3 });
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(IwarpError);
  expect(error).toMatchObject({
    code: 'ERR_ENGINE_FAILED',
    message: "the engine's thread cannot be started: no more threads",
    cause: denied,
  });
  expect(started).toHaveLength(2);
  await Promise.all(started.map((worker) => new Promise((resolve) => worker.once('exit', resolve))));
});

const permission = process.allowedNodeEnvironmentFlags.has('--permission')
  ? '--permission'
  : '--experimental-permission';

it('a process that is not permitted to start threads', async () => {
  const file = await bundle(`
    import { connect, openRnic } from './src/index.ts';
    const say = (error) => console.log(error.name, error.code, error.cause?.code);
    try { openRnic({ engine: 'worker', engines: 2 }); } catch (error) { say(error); }
    await connect({ engine: 'worker', host: '127.0.0.1', port: 1 }).catch(say);
  `);
  expect(await runNode(['--no-warnings', permission, '--allow-fs-read=*', file])).toBe(
    'IwarpError ERR_ENGINE_FAILED ERR_ACCESS_DENIED\n'.repeat(2),
  );
});
