/** Signals with a time limit, which operations wait for one after the other. */
import { setTimeout as pause } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { abortError, whenAborted, withTimeLimit } from '../../src/base/abort.ts';
import { Waiters } from '../../src/base/waiters.ts';

it('the limit holds for all that wait one after the other', async () => {
  const signal = withTimeLimit(undefined, 60, 'all of it');
  whenAborted(signal, () => undefined)(); // this one has its answer
  const waiting = new Waiters<void>();
  const began = performance.now();
  const first = waiting.wait(signal);
  waiting.next();
  await first;
  await pause(10);
  await expect(waiting.wait(signal)).rejects.toMatchObject({
    code: 'ERR_TIMEOUT',
    message: /limit of 60 ms/,
  });
  expect(performance.now() - began).toBeLessThan(20_000);
});

it('a limit that was over before the next wait ends that', async () => {
  const signal = withTimeLimit(undefined, 5, 'it');
  whenAborted(signal, () => undefined)();
  await pause(20);
  await expect(new Waiters<void>().wait(signal)).rejects.toMatchObject({ code: 'ERR_TIMEOUT' });
});

it('an abort of the signal behind it between two waits ends the next', async () => {
  const controller = new AbortController();
  const signal = withTimeLimit(controller.signal, 60_000, 'it');
  whenAborted(signal, () => undefined)();
  controller.abort(new Error('enough'));
  await expect(new Waiters<void>().wait(signal)).rejects.toMatchObject({ code: 'ERR_ABORTED' });
  expect(abortError(signal).cause).toMatchObject({ message: 'enough' });
});
