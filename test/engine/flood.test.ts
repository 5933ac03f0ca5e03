// Connections that peers make while the program's thread is blocked: what an engine keeps for it is bounded.
import { Worker } from 'node:worker_threads';
import { afterAll, expect, it } from 'vitest';
import type { ListenFailure } from '../../src/cm/index.ts';
import { dial, End, join, openWorkers, stop, until } from './support.ts';

const CONNECTIONS = 9000;
/** Connections whose events find room in a quarter of the ring, and some more. */
const REPORTED_AT_MOST = 8000;

/** Makes and resets connections, some at a time, and then wakes the thread that waits for it. */
const FLOOD = `
  const { workerData } = require('node:worker_threads');
  const { connect } = require('node:net');
  const { port, count, done } = workerData;
  let made = 0, over = 0;
  const next = () => {
    if (made === count) return;
    made++;
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => socket.resetAndDestroy());
    socket.on('error', () => undefined);
    socket.on('close', () => {
      if (++over === count) { Atomics.store(done, 0, 1); Atomics.notify(done, 0); }
      else next();
    });
  };
  for (let i = 0; i < 50; i++) next();
`;

/** Connects while the program is blocked, and wakes it: 1 if the connection lasts, 2 if it is reset. */
const NEWCOMER = `
  const { workerData } = require('node:worker_threads');
  const { connect } = require('node:net');
  const { port, done } = workerData;
  const over = (result) => {
    if (Atomics.compareExchange(done, 0, 0, result) === 0) Atomics.notify(done, 0);
  };
  setTimeout(() => {
    const socket = connect(port, '127.0.0.1', () => setTimeout(over, 200, 1));
    socket.on('error', () => over(2)).on('close', () => over(2));
  }, 300);
`;
/** Six words each: more than a quarter of the ring. */
const RECEIVES = 8000;

const rnic = openWorkers();
afterAll(() => stop(rnic));

it('further ones are reset without a report, and the listener serves on afterwards (SEC-033)', async () => {
  const failures: ListenFailure[] = [];
  const end = new End(rnic);
  const listener = await rnic.cm.listen(
    { host: '127.0.0.1', onFailure: (failure) => failures.push(failure) },
    (request) => {
      end.watch(request);
      request.accept(end.qp);
    },
  );
  const { port } = listener.address;
  const done = new Int32Array(new SharedArrayBuffer(4));
  const flood = new Worker(FLOOD, { eval: true, workerData: { port, count: CONNECTIONS, done } });
  await new Promise((resolve) => flood.once('online', resolve));
  expect(Atomics.wait(done, 0, 0, 50_000)).not.toBe('timed-out'); // this thread does nothing else
  const good = await dial(port);
  good.request({ revision: 1 });
  await until(() => end.event('established') !== undefined);
  expect(failures.length).toBeGreaterThan(100);
  expect(failures.length).toBeLessThan(REPORTED_AT_MOST);
  good.reset();
  await until(() => end.event('disconnected') !== undefined);
  expect([listener.pending, rnic.cm.connections.size]).toEqual([0, 0]);
  listener.close();
  await flood.terminate();
}, 60_000);

it('completions that wait to be read are no reason to reset a newcomer', async () => {
  const [client, server] = [new End(rnic), new End(rnic, { maxRecvWr: RECEIVES })];
  await join(client, server);
  server.qp.postRecv(Array.from({ length: RECEIVES }, (_, wrId) => ({ wrId })));
  const listener = await rnic.cm.listen({ host: '127.0.0.1' }, () => undefined);
  const done = new Int32Array(new SharedArrayBuffer(4));
  const newcomer = new Worker(NEWCOMER, { eval: true, workerData: { port: listener.address.port, done } });
  await new Promise((resolve) => newcomer.once('online', resolve));
  server.qp.modify({ state: 'error' });
  Atomics.wait(done, 0, 0, 20_000); // this thread reads nothing meanwhile
  expect(done[0]).toBe(1);
  expect(await server.statuses(RECEIVES)).toEqual(Array.from({ length: RECEIVES }, () => 'receive flushed'));
  listener.close();
  await newcomer.terminate();
}, 60_000);
