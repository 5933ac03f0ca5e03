// Programs that poll without a turn of the event loop: with workers they make progress.
import { expect, it, vi } from 'vitest';
import { openRnic } from '../../src/index.ts';
import { createWorkCompletion } from '../../src/verbs/index.ts';
import { memory, twoWorkers } from './support.ts';

const workers = twoWorkers();

it('while (poll() === 0) ends when the completion is there', async () => {
  const { client, server } = await workers.pair();
  const sink = memory(client, 64);
  const source = memory(server, 64);
  source.bytes.fill(7);
  const wcs = [createWorkCompletion()];
  for (let i = 0; i < 100; i++) {
    client.qp.postSend({
      wrId: i,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: source.rkey,
      remoteAddr: 0,
    });
    const end = performance.now() + 5_000;
    while (client.cq.poll(wcs) === 0) expect(performance.now()).toBeLessThan(end);
    expect(wcs[0]).toMatchObject({ wrId: i, status: 'success' });
  }
  expect(sink.bytes[63]).toBe(7);
});

it('wait blocks until a completion can be polled, and not longer than it was asked to', async () => {
  const { client, server } = await workers.pair();
  const sink = memory(client, 64);
  const source = memory(server, 64);
  const began = performance.now();
  expect(client.cq.wait(50)).toBe(0);
  expect(performance.now() - began).toBeGreaterThanOrEqual(49);
  for (let i = 0; i < 20; i++) {
    client.qp.postSend({
      wrId: i,
      opcode: 'rdma-read',
      sges: [{ mr: sink }],
      rkey: source.rkey,
      remoteAddr: 0,
    });
    expect(client.cq.wait(5_000)).toBe(1);
    expect(client.cq.poll([createWorkCompletion()])).toBe(1);
  }
});

it('in the calling thread a tight loop of polls is warned of, once', () => {
  const { device } = openRnic({ engine: 'thread' });
  const cq = device.createCq(1);
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined);
  for (let i = 0; i < 1_100_000; i++) cq.poll([]);
  expect(warn).not.toHaveBeenCalled(); // nothing was asked for
  const wcs = [createWorkCompletion()];
  for (let i = 0; i < 1_100_000; i++) cq.poll(wcs);
  expect(warn.mock.calls).toEqual([[expect.stringContaining("engine: 'worker'")]]);
  warn.mockRestore();
});
