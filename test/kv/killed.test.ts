// Kill -9 of clients and of the owner, 4 or 20 times each under load: what docs/kv.md promises holds. And
// clients in processes of `node:cluster`. Needs `npm run build`.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { connect, createStore, type KvClient } from '../../src/kv/index.ts';
import { depth } from '../support/depth.ts';

const ROUNDS = depth(4, 20);

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'iwarp-kv-killed-'));
mkdirSync(join(folder, 'node_modules'));
symlinkSync(ROOT, join(folder, 'node_modules/iwarp'));
afterAll(() => rmSync(folder, { recursive: true }));

function program(
  name: string,
  text: string,
  args: readonly string[],
): { child: ChildProcess; lines: AsyncIterator<string> } {
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, text);
  const child = spawn(process.execPath, [path, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    cwd: folder,
  });
  return { child, lines: createInterface({ input: child.stdout! })[Symbol.asyncIterator]() };
}

/** Holds a lock, counts, and stores values of which the owner reads a megabyte each, until it is killed. */
const VICTIM = `
import { connect } from 'iwarp/kv';
const [port, round] = process.argv.slice(2).map(Number);
const kv = await connect({ port });
const door = await kv.lock('door', { lease: 400 });
await door.acquire();
const visits = await kv.counter('visits');
const big = new Uint8Array(500_000);
let stored = 0;
const put = async () => {
  for (;;) await kv.set('big', big.fill(++stored));
};
void put();
for (let i = 1; ; i++) {
  await visits.add(1);
  // One line on its way at the most: what waits in this process is lost when it is killed.
  await new Promise((done) => process.stdout.write(i + '\\n', done));
}
`;

it(`${ROUNDS} clients die in mid-PUT, holding a lock: others get the lock, and nothing is torn`, async () => {
  const store = createStore({ octets: 32 * 2 ** 20, engine: 'worker' });
  const { rdma } = await store.listen({ rdma: 0 });
  const kv = await connect({ port: rdma! });
  const visits = await kv.counter('visits');
  let least = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const before = await visits.get();
    const { child, lines } = program('victim', VICTIM, [String(rdma), String(round)]);
    let acknowledged = 0;
    for (let line = await lines.next(); line.done !== true; line = await lines.next()) {
      acknowledged = Number(line.value);
      if (acknowledged >= 20 + round * 5) break;
    }
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    // What the dead process had printed and nobody had read yet.
    for (let line = await lines.next(); line.done !== true; line = await lines.next())
      acknowledged = Number(line.value);
    const door = await kv.lock('door', { lease: 400 });
    await door.acquire(30_000);
    expect(await door.release()).toBe(true);
    // Each addition that was acknowledged counts once; the last one may have happened without its answer.
    const counted = Number((await visits.get()) - before);
    expect([acknowledged, acknowledged + 1]).toContain(counted);
    least += acknowledged;
    const big = await kv.get('big');
    if (big !== null) {
      expect(big.length).toBe(500_000);
      expect(big.every((octet) => octet === big[0])).toBe(true);
    }
    await kv.set('alive', String(round));
    expect(Buffer.from((await kv.get('alive'))!).toString()).toBe(String(round));
  }
  expect(Number(await visits.get())).toBeGreaterThanOrEqual(least);
  for (let i = 0; i < 500 && store.stats().rdmaClients > 1; i++)
    await new Promise((resolve) => setTimeout(resolve, 20));
  expect(store.stats().rdmaClients).toBe(1);
  await kv.close();
  await store.close();
}, 180_000);

async function startOwner(path: string): Promise<{ child: ChildProcess; port: number }> {
  const args = ['kv', 'serve', '--rdma', '127.0.0.1:0', '--persist', path, '--memory', '8M'];
  const child = spawn(process.execPath, [join(ROOT, 'bin/iwarp.js'), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const port = /:(\d+)$/.exec(line)?.[1];
    if (port !== undefined) return { child, port: Number(port) };
  }
  throw new Error('the store has not started');
}

it(`the owner dies ${ROUNDS} times under four clients: calls end, and no change is lost`, async () => {
  const path = join(folder, 'kept');
  const model = new Map<string, string>();
  let changes = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const { child, port } = await startOwner(path);
    const clients = await Promise.all(Array.from({ length: 4 }, () => connect({ port })));
    for (const [key, value] of model)
      expect(`${key} ${Buffer.from((await clients[0]!.get(key)) ?? []).toString()}`).toBe(`${key} ${value}`);
    const dies = once(child, 'exit');
    setTimeout(() => child.kill('SIGKILL'), 40 + round * 4);
    const load = async (kv: KvClient, name: number): Promise<void> => {
      for (let i = 0; ; i++) {
        const [key, value] = [`key ${name} ${i % 20}`, `${round} ${i}`];
        // One that is not answered may or may not have happened: the key is not looked at.
        model.delete(key);
        await kv.set(key, value);
        model.set(key, value);
        changes++;
        expect(Buffer.from((await kv.get(key))!).toString()).toBe(value);
      }
    };
    const outcomes = await Promise.allSettled(clients.map(load));
    for (const outcome of outcomes) {
      expect(outcome.status).toBe('rejected');
      const { code } = (outcome as PromiseRejectedResult).reason as { code?: string };
      expect(code).toMatch(/^ERR_(CONNECTION|TERMINATED|WORK)/);
    }
    await dies;
  }
  expect(changes).toBeGreaterThan(2 * ROUNDS);
}, 180_000);

const CLUSTER = `
import cluster from 'node:cluster';
import { connect, createStore } from 'iwarp/kv';
if (cluster.isPrimary) {
  const store = createStore({ octets: 8 * 2 ** 20 });
  const { rdma } = await store.listen({ rdma: 0 });
  const workers = Array.from({ length: 3 }, (_, i) => cluster.fork({ PORT: rdma, NAME: i }));
  const ended = (worker) => new Promise((resolve) => worker.once('exit', resolve));
  const codes = await Promise.all(workers.map(ended));
  const found = [0, 1, 2].map((i) => Buffer.from(store.get('from ' + i)).toString());
  console.log(JSON.stringify({ codes, found, visits: Buffer.from(store.get('visits')).toString() }));
  await store.close();
} else {
  const kv = await connect({ port: Number(process.env.PORT) });
  const visits = await kv.counter('visits');
  for (let i = 0; i < 200; i++) await visits.add(1);
  await kv.set('from ' + process.env.NAME, 'worker ' + process.env.NAME);
  // Sees what the others have stored.
  for (let i = 0; i < 3; i++)
    while ((await kv.get('from ' + i)) === null) await new Promise((resolve) => setTimeout(resolve, 5));
  await kv.close();
  process.disconnect();
}
`;

it('workers of node:cluster are clients of one store', async () => {
  const { lines, child } = program('cluster', CLUSTER, []);
  const exit = once(child, 'exit');
  expect(JSON.parse((await lines.next()).value as string)).toEqual({
    codes: [0, 0, 0],
    found: ['worker 0', 'worker 1', 'worker 2'],
    visits: '600',
  });
  expect((await exit)[0]).toBe(0);
}, 60_000);
