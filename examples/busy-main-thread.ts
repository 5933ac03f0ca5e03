/**
 * A peer reads and writes the memory of a process whose main thread is busy.
 *
 * The server's main thread computes for ten seconds (or the number in the first argument). A client in
 * another process writes to its memory once, and reads 64 octets of it again and again, first while the
 * server is idle. With the streams in the server's main thread both wait until it has finished. With `engine:
 * 'worker'` they go on, because an RDMA Read or Write needs nothing from the program that owns the memory.
 *
 *     npx tsx examples/busy-main-thread.ts [seconds]
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect, createServer, RemoteBuffer, type EngineKind } from 'iwarp';

const OCTETS = 64;
const IDLE_MS = 500;
/** A median above this is a stall. */
const STALL_MS = 100;

/** The server process: lend memory to one client, compute when it says so. */
async function serve(engine: EngineKind, seconds: number): Promise<void> {
  const server = await createServer({ engine }, async (connection) => {
    const region = connection.allocate(OCTETS, 'read-write');
    await connection.send(connection.share(region).toBytes());
    using message = await connection.receive();
    if (message !== null) process.send!(compute(seconds, region.bytes));
  }).listen({ host: '127.0.0.1', port: 0 });
  process.send!(server.address().port);
  process.once('disconnect', () => process.exit());
}

/**
 * Nothing else happens in this thread meanwhile. Milliseconds after which it saw that its memory had changed,
 * null if it saw nothing.
 */
function compute(seconds: number, memory: Uint8Array): number | null {
  const start = performance.now();
  let seen: number | null = null;
  let x = 1;
  while (performance.now() < start + 1000 * seconds) {
    for (let i = 0; i < 10_000; i++) x = Math.imul(x, 0x9e3779b1) + i;
    if (seen === null && Atomics.load(memory, 0) !== 0) seen = performance.now() - start;
  }
  return x === 0 ? null : seen;
}

/** The client: Read after Read until `until`; milliseconds each. */
async function readUntil(until: number, read: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  while (performance.now() < until) {
    const start = performance.now();
    await read();
    times.push(performance.now() - start);
  }
  return times;
}

async function measure(engine: EngineKind, seconds: number): Promise<void> {
  const child = fork(fileURLToPath(import.meta.url), ['server', engine, String(seconds)]);
  const [port] = (await once(child, 'message')) as [number];
  const connection = await connect({ host: '127.0.0.1', port });
  using hello = await connection.receive();
  const remote = RemoteBuffer.fromBytes(hello!.data);
  const sink = connection.allocate(OCTETS, 'none');
  const read = (): Promise<unknown> => connection.read(remote, sink);
  await readUntil(performance.now() + IDLE_MS, read); // warm up
  const idle = await readUntil(performance.now() + IDLE_MS, read);
  await connection.send('compute');
  await sleep(10); // the server has heard it
  const computed = once(child, 'message');
  await connection.write(Uint8Array.of(1), remote);
  const busy = await readUntil(performance.now() + 1000 * seconds - 20, read);
  const [seen] = (await computed) as [number | null];
  report(engine, idle, busy, seen);
  connection.destroy();
  child.disconnect();
  await once(child, 'exit');
}

const percentile = (sorted: readonly number[], p: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))]!;

function report(engine: EngineKind, idle: number[], busy: number[], seen: number | null): void {
  for (const times of [idle, busy]) times.sort((a, b) => a - b);
  console.log(`\nstreams in the server's ${engine === 'worker' ? 'worker thread' : 'main thread'}:`);
  console.log(
    `  server idle:      ${idle.length} Reads, p50 ${us(percentile(idle, 0.5))}, p99 ` +
      `${us(percentile(idle, 0.99))}, longest ${us(idle.at(-1)!)}`,
  );
  console.log(
    `  server computing: ${busy.length} Reads, p50 ${us(percentile(busy, 0.5))}, p99 ` +
      `${us(percentile(busy, 0.99))}, longest ${us(busy.at(-1)!)}`,
  );
  histogram(busy);
  const ratio = percentile(busy, 0.99) / percentile(idle, 0.99);
  console.log(
    seen === null
      ? '  the computing thread saw no Write in its memory'
      : `  the computing thread saw the Write in its memory ${us(seen)} after it had begun`,
  );
  console.log(
    percentile(busy, 0.5) > STALL_MS
      ? '  the Reads stalled'
      : `  the Reads went on, p99 ${ratio.toFixed(1)} times that of an idle server`,
  );
}

const us = (ms: number): string => (ms < 10 ? `${(1000 * ms).toFixed(0)} us` : `${ms.toFixed(0)} ms`);

/** Powers of two of microseconds, a bar each. */
function histogram(times: readonly number[]): void {
  const counts = new Map<number, number>();
  for (const ms of times) {
    const slot = Math.max(0, Math.ceil(Math.log2(1000 * ms)));
    counts.set(slot, (counts.get(slot) ?? 0) + 1);
  }
  const most = Math.max(...counts.values());
  for (const [slot, count] of [...counts].toSorted(([a], [b]) => a - b)) {
    const bar = '#'.repeat(Math.ceil((40 * count) / most));
    console.log(`    up to ${us(2 ** slot / 1000).padStart(7)} ${String(count).padStart(8)} ${bar}`);
  }
}

const [role = '', ...rest] = process.argv.slice(2);
if (role === 'server') {
  await serve(rest[0] as EngineKind, Number(rest[1]));
} else {
  const seconds = role === '' ? 10 : Number(role);
  await measure('thread', seconds);
  await measure('worker', seconds);
}
