/** Key-value stores and their clients, for the row of the papers: those of `iwarp kv bench`. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createServer, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { echoClient, memcachedClient, redisClient, startEcho } from '../../cli/support/kv-bench-clients.ts';
import { fill, percentile, round, startOwner, type Verb } from '../../cli/support/kv-bench.ts';
import type { Getter } from '../../cli/support/kv-bench-clients.ts';
import { connect } from '../../src/kv/index.ts';
import { atExit } from '../leftovers.ts';
import type { Subject } from './paper.ts';
import { lazily } from './subjects.ts';

const HOST = '127.0.0.1';
const SLICE_MS = 150;
const START_MS = 5000;

export const KV_VERBS: readonly Verb[] = ['GET', 'PUT'];

/** Clients at a time, and bytes of a value. */
export interface KvLoad {
  readonly clients: number;
  readonly size: number;
}

/** How to reach one store, whose process is started when it is first needed. */
interface Store {
  readonly name: string;
  readonly start: () => Promise<() => Promise<Getter>>;
}

const endings: (() => void)[] = [];
function kept(child: ChildProcess): void {
  endings.push(atExit(() => child.kill('SIGKILL')));
}

/** Ends the stores. */
export function endStores(): void {
  for (const end of endings.splice(0)) end();
  running.clear();
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, HOST);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

/** A foreign server on a free port, as soon as it takes connections. */
async function foreign(
  program: string,
  args: (port: number) => readonly string[],
  client: (host: string, port: number) => { open: () => Promise<Getter> },
): Promise<() => Promise<Getter>> {
  const port = await freePort();
  const child = spawn(program, args(port), { stdio: 'ignore' });
  let fault: Error | null = null;
  child.once('error', () => (fault = new Error(`${program} is not installed`)));
  kept(child);
  const { open } = client(HOST, port);
  for (const until = performance.now() + START_MS; ; await sleep(50)) {
    if (fault !== null) throw fault as Error;
    const first = await open().catch(() => null);
    if (first !== null) {
      await first.close();
      return open;
    }
    if (performance.now() > until) throw new Error(`${program} does not take connections`);
  }
}

const STORES: readonly Store[] = [
  {
    name: 'redis-server',
    start: () =>
      foreign(
        'redis-server',
        (port) => ['--port', String(port), '--bind', HOST, '--save', '', '--appendonly', 'no'],
        redisClient,
      ),
  },
  {
    name: 'memcached',
    start: () =>
      foreign('memcached', (port) => ['-u', 'nobody', '-l', HOST, '-p', String(port)], memcachedClient),
  },
  {
    name: 'iwarp kv',
    start: async () => {
      const { child, address } = await startOwner(false);
      kept(child);
      return () => connect(address);
    },
  },
];

/** Answers and keeps nothing: the cost of a round trip without any store. */
const ECHO: Store = {
  name: 'net echo',
  start: async () => {
    const { child, port } = await startEcho(false);
    kept(child);
    return () => echoClient(port);
  },
};

const running = new Map<string, Promise<() => Promise<Getter>>>();

async function clientsOf({ name, start }: Store, { clients, size }: KvLoad): Promise<Getter[]> {
  let store = running.get(name);
  if (store === undefined) running.set(name, (store = start()));
  const open = await store;
  await fill(open, size);
  return await Promise.all(Array.from({ length: clients }, open));
}

/** Each store with its clients, under one load. */
export function kvSubjects(verb: Verb, load: KvLoad): Subject[] {
  const stores = verb === 'GET' ? [...STORES, ECHO] : STORES;
  return stores.map((store) =>
    lazily(
      store.name,
      () => clientsOf(store, load),
      async (getters) => {
        const times: number[] = [];
        const began = performance.now();
        await round(getters, SLICE_MS, times, { verb, size: load.size });
        const rate = (times.length * 1000) / (performance.now() - began);
        return { rate, typical: percentile(times, 0.5) };
      },
      async (getters) => {
        for (const getter of getters) await getter.close();
      },
    ),
  );
}
