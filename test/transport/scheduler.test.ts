/** The real scheduler's `defer`: order, and what one turn shares. Timers are covered where they are used. */
import { describe, expect, it } from 'vitest';
import { realScheduler } from '../../src/transport/scheduler.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('what is deferred', () => {
  it('runs after the present call, in order, with what it defers in turn, and before any promise goes on', async () => {
    const ran: string[] = [];
    realScheduler.defer(() => {
      ran.push('first');
      void Promise.resolve().then(() => ran.push('promise'));
      realScheduler.defer(() => ran.push('third'));
    });
    realScheduler.defer(() => ran.push('second'));
    expect(ran).toEqual([]);
    await turn();
    expect(ran).toEqual(['first', 'second', 'third', 'promise']);
  });

  it('runs though a task in front has thrown', async () => {
    const listeners = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    const caught: unknown[] = [];
    process.on('uncaughtException', (error) => caught.push(error));
    const ran: number[] = [];
    try {
      realScheduler.defer(() => ran.push(1));
      realScheduler.defer(() => {
        throw new Error('of a user');
      });
      realScheduler.defer(() => ran.push(2));
      await turn();
    } finally {
      process.removeAllListeners('uncaughtException');
      for (const listener of listeners) process.on('uncaughtException', listener);
    }
    expect(ran).toEqual([1, 2]);
    expect(caught).toEqual([new Error('of a user')]);
    realScheduler.defer(() => ran.push(3));
    await turn();
    expect(ran).toEqual([1, 2, 3]);
  });
});
