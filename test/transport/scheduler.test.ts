/**
 * The real scheduler: what one turn shares and in which order, and timers of a thread that had no turn for a
 * while. Timers else are covered where they are used.
 */
import { MessageChannel } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { realScheduler } from '../../src/transport/scheduler.ts';
import { surviving } from '../support/survivor.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a deferred call', () => {
  it('runs after the present call, in order, with its own deferrals, before any promise', async () => {
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
    const ran: number[] = [];
    const caught = await surviving(async () => {
      realScheduler.defer(() => ran.push(1));
      realScheduler.defer(() => {
        throw new Error('of a user');
      });
      realScheduler.defer(() => ran.push(2));
      await turn();
    });
    expect(ran).toEqual([1, 2]);
    expect(caught).toEqual(['of a user']);
    realScheduler.defer(() => ran.push(3));
    await turn();
    expect(ran).toEqual([1, 2, 3]);
  });
});

describe('a timer that runs out while the thread is busy or stopped', () => {
  /**
   * The thread is busy for longer than `ms`; whatever comes meanwhile waits for the event loop, as octets in
   * a socket do.
   */
  const busy = (ms: number): void => {
    for (const end = performance.now() + ms; performance.now() < end; );
  };

  it('comes after arrivals in time', async () => {
    const { port1, port2 } = new MessageChannel();
    const order: string[] = [];
    await new Promise<void>((resolve) => {
      port1.on('message', () => order.push('arrival'));
      // From the end of a turn, after which timers are looked at before sockets.
      setImmediate(() => {
        realScheduler.at(realScheduler.now() + 1, () => {
          order.push('timer');
          resolve();
        });
        port2.postMessage('in time');
        busy(5);
      });
    });
    port1.close();
    expect(order).toEqual(['arrival', 'timer']);
  });

  it('does not come at all if an arrival cancels it', async () => {
    const { port1, port2 } = new MessageChannel();
    const order: string[] = [];
    let cancel: (() => void) | undefined;
    const arrived = new Promise<void>((resolve) => {
      port1.on('message', () => {
        order.push('arrival');
        cancel!();
        resolve();
      });
    });
    await turn();
    cancel = realScheduler.at(realScheduler.now() + 1, () => order.push('timer'));
    port2.postMessage('in time');
    busy(5);
    await arrived;
    await turn();
    await turn();
    port1.close();
    expect(order).toEqual(['arrival']);
  });
});

it('a timer beyond the longest of Node does not run at once', async () => {
  const ran: string[] = [];
  const cancel = realScheduler.at(realScheduler.now() + 2 ** 31 + 1000, () => ran.push('in 25 days'));
  await new Promise<void>((resolve) => void realScheduler.at(realScheduler.now() + 20, resolve));
  cancel();
  expect(ran).toEqual([]);
});
