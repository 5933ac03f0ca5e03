/**
 * `iwarp kv bench`: GETs of some lengths, by a number of clients at a time, from a store over RDMA and from
 * other servers over TCP, interleaved in rounds. Every client is a connection of this process with some
 * loops: ask, wait, ask again. A server that only echoes shows what a round trip between two processes costs.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { IwarpError } from '../../src/base/errors.ts';
import { connect } from '../../src/kv/index.ts';
import {
  BUSY_MS,
  echoClient,
  memcachedClient,
  pidOf,
  redisClient,
  startEcho,
  type Getter,
} from './kv-bench-clients.ts';
import type { ToolIo } from './tool.ts';

interface Address {
  readonly host: string;
  readonly port: number;
}

/** The stores and loads to measure. */
interface KvBenchPlan {
  readonly rdma: Address | undefined;
  readonly against: readonly (Address & { readonly kind: 'redis' | 'memcached' })[];
  readonly clients: readonly number[];
  readonly sizes: readonly number[];
  readonly seconds: number;
  /** GETs that each client has under way. */
  readonly underWay: number;
  readonly ownerBusy: boolean;
}

/** A server and its clients. */
interface Subject {
  readonly name: string;
  /** Whether the owner's program computes; null for servers that have none. */
  readonly owner: 'idle' | 'computing' | null;
  /** Its process, if it is on this machine and can be found. */
  readonly pid: number | null;
  readonly open: () => Promise<Getter>;
}

/** The results of one subject with one number of clients. */
interface Row {
  readonly subject: Subject;
  readonly clients: number;
  readonly size: number;
  readonly times: number[];
  /** Milliseconds. */
  wall: number;
  /** Of this process. */
  readonly client: Times;
  /** Of the server's process; without the thread of its program, if that computes. */
  readonly server: Times;
  /** Of the thread of the server's program. */
  readonly owner: Times;
}

/** Microseconds that threads ran, and that they were ready to run and had no processor. */
interface Times {
  ran: number;
  waited: number;
}

const ECHO = 'node:net echo';
const KEYS = 250;
const ROUNDS = 3;
const HEADING =
  'server              owner      clients  bytes     ops/s   p50 us   p99 us' +
  '  client us     waits  server us     waits  owner us\n';

export async function runKvBench(plan: KvBenchPlan, io: ToolIo): Promise<void> {
  const owners: ChildProcess[] = [];
  try {
    const subjects = await subjectsOf(plan, owners);
    io.out(
      `GETs, ${KEYS} keys, ${plan.underWay} of each client at a time, ${plan.seconds} s each in ${ROUNDS} ` +
        'interleaved rounds;\n' +
        'CPU in us for each GET: of all clients, of the server (without a computing thread), and\n' +
        "of the thread of the server's program; waits: how long they were ready and had no processor\n",
    );
    io.out(HEADING);
    const rows: Row[] = [];
    for (const size of plan.sizes) {
      for (const subject of subjects) await awake(subject, () => fill(subject.open, size));
      for (const clients of plan.clients) rows.push(...(await compare(subjects, plan, clients, size, io)));
    }
    for (const line of ratiosOf(rows)) io.out(`${line}\n`);
  } finally {
    for (const child of owners) child.kill('SIGKILL');
  }
}

/** Our store, perhaps a second one whose program computes, and the others. */
async function subjectsOf(plan: KvBenchPlan, owners: ChildProcess[]): Promise<Subject[]> {
  const subjects: Subject[] = [];
  const own = async (owner: 'idle' | 'computing'): Promise<void> => {
    const { child, address } = await startOwner(owner === 'computing');
    owners.push(child);
    subjects.push({ name: 'iwarp kv', owner, pid: child.pid ?? null, open: () => connect(address) });
  };
  if (plan.rdma === undefined) await own('idle');
  else {
    const at = plan.rdma;
    subjects.push({ name: `iwarp kv ${at.port}`, owner: 'idle', pid: null, open: () => connect(at) });
  }
  if (plan.ownerBusy) await own('computing');
  const echo = async (owner: 'computing' | null): Promise<void> => {
    const { child, port } = await startEcho(owner !== null);
    owners.push(child);
    subjects.push({ name: ECHO, owner, pid: child.pid ?? null, open: () => echoClient(port) });
  };
  // Its client asks for one thing at a time.
  if (plan.underWay === 1) await echo(null);
  if (plan.underWay === 1 && plan.ownerBusy) await echo('computing');
  for (const { kind, host, port } of plan.against) {
    const { name, open } = kind === 'redis' ? redisClient(host, port) : memcachedClient(host, port);
    subjects.push({ name, owner: null, pid: await pidOf(kind, host, port), open });
  }
  for (const { owner, pid } of subjects) if (owner === 'computing') process.kill(pid!, 'SIGSTOP');
  return subjects;
}

/** A computing owner is stopped while others are measured: it would take a processor from them. */
async function awake<T>({ owner, pid }: Subject, run: () => Promise<T>): Promise<T> {
  if (owner !== 'computing') return await run();
  process.kill(pid!, 'SIGCONT');
  try {
    return await run();
  } finally {
    process.kill(pid!, 'SIGSTOP');
  }
}

/** Each key of the benchmark with a value of this size. */
export async function fill(open: () => Promise<Getter>, size: number): Promise<void> {
  const client = await open();
  for (let i = 0; i < KEYS; i++) await client.set(`bench:${i}`, new Uint8Array(size).fill(97));
  await client.close();
}

async function compare(
  subjects: readonly Subject[],
  { seconds, underWay }: KvBenchPlan,
  clients: number,
  size: number,
  io: ToolIo,
): Promise<Row[]> {
  const none = (): Times => ({ ran: 0, waited: 0 });
  const getters = new Map<Subject, Getter[]>();
  for (const subject of subjects) {
    const open = (): Promise<Getter[]> => Promise.all(Array.from({ length: clients }, subject.open));
    getters.set(subject, await awake(subject, open));
  }
  const rows = subjects.map(
    (subject): Row => ({
      subject,
      clients,
      size,
      times: [],
      wall: 0,
      client: none(),
      server: none(),
      owner: none(),
    }),
  );
  // Places are learned, and code is compiled, before anything counts.
  for (const row of rows)
    await awake(row.subject, async () => {
      const warm = getters.get(row.subject)!;
      await Promise.all(warm.map((getter) => once(getter)));
      await round(warm, 200, []);
    });
  for (let i = 0; i < ROUNDS; i++)
    for (const row of rows) {
      const loops = getters.get(row.subject)!.flatMap((getter) => Array<Getter>(underWay).fill(getter));
      await awake(row.subject, () => measure(row, loops, seconds));
    }
  for (const row of rows) io.out(lineOf(row));
  for (const { subject } of rows)
    await awake(subject, async () => {
      for (const getter of getters.get(subject)!) await getter.close();
    });
  return rows;
}

async function measure(row: Row, loops: readonly Getter[], seconds: number): Promise<void> {
  const { subject, times } = row;
  const begin = performance.now();
  const [client, server] = [timesOf(process.pid), timesOf(subject.pid)];
  await round(loops, (1000 * seconds) / ROUNDS, times);
  row.wall += performance.now() - begin;
  const [clientAfter, serverAfter] = [timesOf(process.pid), timesOf(subject.pid)];
  add(row.client, clientAfter.main, client.main);
  add(row.client, clientAfter.others, client.others);
  add(row.owner, serverAfter.main, server.main);
  add(row.server, serverAfter.others, server.others);
  // The time that a computing program uses on its thread says nothing about GETs.
  if (subject.owner !== 'computing') add(row.server, serverAfter.main, server.main);
}

function add(to: Times, after: Times, before: Times): void {
  to.ran += after.ran - before.ran;
  to.waited += after.waited - before.waited;
}

/** What a loop asks for. */
export type Verb = 'GET' | 'PUT';

/** All loops at once; the milliseconds of each request go to `times`. */
export async function round(
  loops: readonly Getter[],
  milliseconds: number,
  times: number[],
  { verb, size }: { readonly verb: Verb; readonly size: number } = { verb: 'GET', size: 0 },
): Promise<void> {
  const end = performance.now() + milliseconds;
  const value = verb === 'GET' ? null : new Uint8Array(size).fill(97);
  await Promise.all(loops.map((getter) => loop(getter, end, times, value)));
}

/** Of the main thread of a process and of its other threads; NaN where the system does not say. */
function timesOf(pid: number | null): { main: Times; others: Times } {
  const [main, others]: [Times, Times] = [
    { ran: 0, waited: 0 },
    { ran: 0, waited: 0 },
  ];
  const none = { ran: Number.NaN, waited: Number.NaN };
  if (pid === null) return { main: none, others: none };
  try {
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const text = readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'latin1');
      const [ran, waited] = text.split(' ').map((nanoseconds) => Number(nanoseconds) / 1000);
      const times = thread === String(pid) ? main : others;
      times.ran += ran!;
      times.waited += waited!;
    }
    return { main, others };
  } catch {
    return { main: none, others: none };
  }
}

/** Microseconds below which `share` of the milliseconds lie. */
export function percentile(times: readonly number[], share: number): number {
  const sorted = Float64Array.from(times).sort();
  return 1000 * (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0);
}

function lineOf({ subject, clients, size, times, wall, client, server, owner }: Row): string {
  const each = (microseconds: number): string =>
    Number.isNaN(microseconds) ? '-' : (microseconds / times.length).toFixed(1);
  const columns = [
    [Math.round((1000 * times.length) / wall), 9],
    [percentile(times, 0.5).toFixed(0), 8],
    [percentile(times, 0.99).toFixed(0), 8],
    [each(client.ran), 10],
    [each(client.waited), 9],
    [each(server.ran), 10],
    [each(server.waited), 9],
    [subject.owner === 'idle' ? each(owner.ran) : '-', 9],
  ] as const;
  const head = `${subject.name.padEnd(19)} ${(subject.owner ?? '').padEnd(9)}`;
  const cells = columns.map(([cell, width]) => String(cell).padStart(width)).join(' ');
  return `${head} ${String(clients).padStart(8)} ${String(size).padStart(6)} ${cells}\n`;
}

/** Ours to each other one, and those with a computing owner to the same ones without. */
function ratiosOf(rows: readonly Row[]): string[] {
  const lines: string[] = [];
  for (const ours of rows.filter(({ subject }) => subject.owner === 'idle')) {
    const beside = rows.filter(({ clients, size }) => clients === ours.clients && size === ours.size);
    const load = `${ours.size} bytes, ${ours.clients} clients`;
    for (const other of beside) {
      if (other === ours) continue;
      const { name, owner } = other.subject;
      if (owner === 'computing') {
        const idle = beside.find(({ subject }) => subject.name === name && subject.owner !== owner) ?? ours;
        const ratio = percentile(other.times, 0.99) / percentile(idle.times, 0.99);
        lines.push(`${name}: p99 with a computing owner, to an idle one, ${load}: ${ratio.toFixed(2)}`);
      } else {
        const ratio = percentile(ours.times, 0.5) / percentile(other.times, 0.5);
        lines.push(`p50 to ${name}, ${load}: ${ratio.toFixed(2)}`);
      }
    }
  }
  return lines;
}

/** Each key once. */
async function once(getter: Getter): Promise<void> {
  for (let i = 0; i < KEYS; i++) await getter.get(`bench:${i}`);
}

async function loop(getter: Getter, end: number, times: number[], toSet: Uint8Array | null): Promise<void> {
  for (let now = performance.now(); now < end; ) {
    const key = `bench:${Math.floor(Math.random() * KEYS)}`;
    if (toSet !== null) await getter.set(key, toSet);
    else if ((await getter.get(key)) === null)
      throw new IwarpError('ERR_INVALID_STATE', 'a key of the benchmark has gone');
    const then = performance.now();
    times.push(then - now);
    now = then;
  }
}

/** Starts a store in a separate process. */
export async function startOwner(isBusy: boolean): Promise<{ child: ChildProcess; address: Address }> {
  const command = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
  const built = fileURLToPath(new URL('../../../bin/iwarp.js', import.meta.url));
  const args = ['kv', 'serve', '--rdma', '127.0.0.1:0', ...(isBusy ? ['--busy', String(BUSY_MS)] : [])];
  const path = import.meta.url.endsWith('.ts') ? command : built;
  const child = spawn(process.execPath, [path, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: child.stdout! })) {
    const port = /^rdma at .*:(\d+)$/.exec(line)?.[1];
    if (port !== undefined) return { child, address: { host: '127.0.0.1', port: Number(port) } };
  }
  throw new IwarpError('ERR_CONNECT', 'the store of the benchmark has not started');
}
