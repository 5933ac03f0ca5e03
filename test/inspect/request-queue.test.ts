// The outstanding requests of a direction: order, index, and a bound on the work for a hostile capture.
import { describe, expect, it } from 'vitest';
import { OrderChecker } from '../../src/inspect/decode/order.ts';
import { RequestQueue } from '../../src/inspect/decode/request-queue.ts';
import { conversation, decodeConversation, fpdusOf } from './support.ts';

const DEPTH = 16_384;

describe('RequestQueue', () => {
  it('is a queue whose entries can be found and removed by their keys, the oldest of a key first', () => {
    const queue = new RequestQueue<string>();
    for (const [key, value] of [
      [1, 'a'],
      [2, 'b'],
      [1, 'c'],
      [3, 'd'],
    ] as const)
      queue.push(key, value);
    expect(queue.oldest).toBe('a');
    expect(queue.remove(2)).toBe(1);
    expect(queue.has(2)).toBe(false);
    expect(queue.shift()).toBe(1);
    expect(queue.oldest).toBe('c');
    expect(queue.dropBefore(3)).toBe(1);
    expect([queue.oldest, queue.length]).toEqual(['d', 1]);
    expect([queue.shift(), queue.shift(), queue.length]).toEqual([1, 0, 0]);
  });

  it('visits each entry at most twice, in whatever order the keys are asked for', () => {
    const queue = new RequestQueue<number>();
    for (let i = 0; i < DEPTH; i++) queue.push(i, i);
    for (let i = 0; i < 100_000; i++) queue.has(DEPTH + i);
    for (let i = DEPTH - 1; i >= 0; i--) queue.remove(i);
    for (let i = 0; i < DEPTH; i++) queue.push(i, i);
    queue.dropBefore(DEPTH - 1);
    expect(queue.length).toBe(1);
    expect(queue.steps).toBeLessThanOrEqual(4 * DEPTH);
  });
});

it('OrderChecker: responses behind a gap cost no walk over the remembered Reads', () => {
  const [request] = fpdusOf(decodeConversation(conversation())).filter(
    (one) => one.readRequest !== undefined,
  );
  const [response] = fpdusOf(decodeConversation(conversation())).filter(({ opcode }) =>
    opcode.endsWith('Response'),
  );
  const order = new OrderChecker();
  for (let i = 0; i < DEPTH; i++) order.check({ ...request!, problems: [] });
  order.gap(1);
  const began = process.cpuUsage();
  const stray = { ...response!, ddp: { ...response!.ddp!, stag: 1 } as never };
  for (let i = 0; i < 50_000; i++) order.check({ ...stray, problems: [] });
  // The walk took half a millisecond each, 25 s in all.
  expect(process.cpuUsage(began).user / 1e6).toBeLessThan(5);
});
