/**
 * `iwarp kv`: a key-value store whose GETs cost its owner nothing. `serve` is the owner; `get`, `set`, `del`
 * and `incr` are clients over RDMA; `top` watches a store; `bench` measures, beside Redis and memcached.
 */
import { parseArgs } from 'node:util';
import { checkEngine, type EngineKind } from '../src/api/environment.ts';
import { checkInteger, checkOneOf, IwarpError } from '../src/base/errors.ts';
import {
  connect,
  connectUrdma,
  createStore,
  STORE_PROFILES,
  type KvClient,
  type StoreProfile,
  type UrdmaClient,
} from '../src/kv/index.ts';
import { runKvBench } from './support/kv-bench.ts';
import { printable } from './support/printable.ts';
import { PROCESS_IO, type ToolIo } from './support/tool.ts';

const USAGE = `usage: iwarp kv serve [--memory SIZE] [--rdma HOST:PORT] [--resp HOST:PORT]
           [--memcached HOST:PORT] [--no-evict] [--persist DIR] [--fsync] [--profile iwarp|urdma]
           [--engine thread|worker] [--busy MS]
       iwarp kv get KEY... --rdma HOST:PORT [--profile iwarp|urdma]
       iwarp kv set KEY VALUE --rdma HOST:PORT [--ttl MS] [--profile iwarp|urdma]
       iwarp kv del KEY... --rdma HOST:PORT [--profile iwarp|urdma]
       iwarp kv incr KEY [BY] --rdma HOST:PORT
       iwarp kv top --rdma HOST:PORT [--count N]
       iwarp kv bench [--rdma HOST:PORT] [--against redis://HOST:PORT,memcached://HOST:PORT]
           [--clients 1,8,64] [--under-way N] [--size 64,4096] [--seconds N] [--owner-busy]

  --memory SIZE     bytes of the table, such as 256M (64M)
  --no-evict        a full table refuses new keys instead of losing old ones
  --persist DIR     keep all changes in a file there: a killed store loses none that it has acknowledged
  --fsync           and wait for the disk before each answer
  --profile NAME    what RDMA clients speak: our own protocol (iwarp), or that of the paper's program (urdma)
  --busy MS         the owner's program computes for MS milliseconds at a time, to show who waits for it
  --ttl MS          milliseconds until the key goes
  --count N         lines that top prints (until it is interrupted)
  --size BYTES,...  lengths of the values that bench reads (64,4096)
  --under-way N     GETs that each client of bench has under way (1)
  --owner-busy      bench starts a second store too, whose program computes all the time

Without --rdma, bench starts its own store. An address without a host is at 127.0.0.1.
`;

const OPTIONS = {
  memory: { type: 'string' },
  rdma: { type: 'string' },
  resp: { type: 'string' },
  memcached: { type: 'string' },
  'no-evict': { type: 'boolean' },
  persist: { type: 'string' },
  fsync: { type: 'boolean' },
  engine: { type: 'string' },
  profile: { type: 'string' },
  busy: { type: 'string' },
  ttl: { type: 'string' },
  count: { type: 'string' },
  against: { type: 'string' },
  clients: { type: 'string' },
  size: { type: 'string' },
  seconds: { type: 'string' },
  'under-way': { type: 'string' },
  'owner-busy': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

type Values = { readonly [K in keyof typeof OPTIONS]?: string | boolean };

/** Options of each subcommand beside --help. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  serve: ['memory', 'rdma', 'resp', 'memcached', 'no-evict', 'persist', 'fsync', 'engine', 'profile', 'busy'],
  get: ['rdma', 'engine', 'profile'],
  set: ['rdma', 'engine', 'profile', 'ttl'],
  del: ['rdma', 'engine', 'profile'],
  incr: ['rdma', 'engine'],
  top: ['rdma', 'engine', 'count'],
  bench: ['rdma', 'engine', 'against', 'clients', 'size', 'seconds', 'under-way', 'owner-busy'],
};

interface Run {
  readonly values: Values;
  readonly words: readonly string[];
  readonly io: ToolIo;
}

const RUNS: Readonly<Record<string, (run: Run) => Promise<number>>> = {
  serve,
  get: (run) => withEither(run, get),
  set: (run) => withEither(run, set),
  del: (run) => withEither(run, del),
  incr: (run) => withClient(run, incr),
  top: (run) => withClient(run, top),
  bench,
};

/** Entry point; the result is the exit status. */
export async function run(args: string[], io: ToolIo = PROCESS_IO): Promise<number> {
  const [command = '', ...rest] = args;
  try {
    if (command === '--help' || command === '-h' || rest.includes('--help') || rest.includes('-h')) {
      io.out(USAGE);
      return 0;
    }
    const act = Object.hasOwn(RUNS, command) ? RUNS[command] : undefined;
    if (act === undefined) throw usage(`give ${Object.keys(RUNS).join(', ')}`);
    const { values, positionals } = parseArgs({ args: rest, allowPositionals: true, options: OPTIONS });
    for (const name of Object.keys(values))
      if (!ALLOWED[command]!.includes(name)) throw usage(`--${name} is not an option of ${command}`);
    return await act({ values, words: positionals, io });
  } catch (error) {
    const isUsage =
      error instanceof TypeError || (error instanceof IwarpError && error.code === 'ERR_INVALID_ARGUMENT');
    if (!isUsage && !(error instanceof IwarpError)) throw error;
    io.err(`kv: ${printable((error as Error).message)}\n${isUsage ? USAGE : ''}`);
    return isUsage ? 2 : 1;
  }
}

function usage(message: string): IwarpError {
  return new IwarpError('ERR_INVALID_ARGUMENT', message);
}

function textOf(values: Values, name: keyof typeof OPTIONS): string | undefined {
  const value = values[name];
  return typeof value === 'string' ? value : undefined;
}

function numberOf(values: Values, name: keyof typeof OPTIONS, fallback: number, most: number): number {
  const text = textOf(values, name);
  if (text === undefined) return fallback;
  if (!/^\d{1,15}$/.test(text)) throw usage(`--${name} must be a number, got '${text}'`);
  return checkInteger(`--${name}`, Number(text), 0, most);
}

function sizeOf(text: string): number {
  const [, digits = '', unit = ''] = /^(\d{1,10})([KMG]?)$/i.exec(text) ?? [];
  if (digits === '') throw usage(`--memory must be a size such as 256M, got '${text}'`);
  return Number(digits) * 1024 ** ' KMG'.indexOf(unit.toUpperCase() || ' ');
}

/** `HOST:PORT`, `[ADDRESS]:PORT` or `PORT`. */
function addressOf(name: string, text: string): { readonly host: string; readonly port: number } {
  const match = /^(?:(?:\[([^\]]+)\]|([^:]*)):)?(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) throw usage(`--${name} must be HOST:PORT, got '${text}'`);
  return { host: match[1] ?? (match[2] || '127.0.0.1'), port };
}

function engineOf(values: Values): EngineKind | undefined {
  const text = textOf(values, 'engine');
  return text === undefined ? undefined : checkEngine('--engine', text);
}

function profileOf(values: Values): StoreProfile {
  return checkOneOf('--profile', textOf(values, 'profile') ?? 'iwarp', STORE_PROFILES);
}

const hostPort = (host: string, port: number): string => `${host.includes(':') ? `[${host}]` : host}:${port}`;

// ----------------------------------------------------------------------------------------------------- serve

const EDGES = ['rdma', 'resp', 'memcached'] as const;

async function serve({ values, words, io }: Run): Promise<number> {
  if (words.length > 0) throw usage(`'${words[0]}' is no option of serve`);
  const wanted = EDGES.filter((edge) => values[edge] !== undefined);
  if (wanted.length === 0) throw usage('serve needs --rdma, --resp or --memcached');
  const memory = textOf(values, 'memory');
  const busy = numberOf(values, 'busy', 0, 60_000);
  const store = createStore({
    ...(memory !== undefined && { octets: sizeOf(memory) }),
    evict: values['no-evict'] !== true,
    persist: textOf(values, 'persist'),
    fsync: values.fsync === true,
    engine: engineOf(values),
    profile: profileOf(values),
  });
  try {
    for (const edge of wanted) {
      const { host, port } = addressOf(edge, textOf(values, edge)!);
      const bound = (await store.listen({ host, [edge]: port }))[edge]!;
      io.out(`${edge} at ${hostPort(host, bound)}\n`);
      if (edge === wanted.at(-1)) io.listening?.(bound);
    }
    const computing = busy === 0 ? undefined : setInterval(() => spin(busy), busy + 1);
    await untilStopped(io);
    clearInterval(computing);
    const { keys, evicted, expired } = store.stats();
    io.out(`${keys} keys, ${evicted} evicted, ${expired} expired\n`);
  } finally {
    await store.close();
  }
  return 0;
}

function spin(milliseconds: number): void {
  const end = performance.now() + milliseconds;
  while (performance.now() < end);
}

/** Runs until the process is asked to end. */
function untilStopped(io: ToolIo): Promise<void> {
  return new Promise((resolve) => {
    const stop = (): void => resolve();
    process.once('SIGINT', stop).once('SIGTERM', stop);
    if (io.signal?.aborted === true) stop();
    io.signal?.addEventListener('abort', stop, { once: true });
  });
}

// --------------------------------------------------------------------------------------------------- clients

function storeOf({ values }: Run): { host: string; port: number; engine: EngineKind | undefined } {
  const text = textOf(values, 'rdma');
  if (text === undefined) throw usage('give the store with --rdma HOST:PORT');
  return { ...addressOf('rdma', text), engine: engineOf(values) };
}

async function withClient(run: Run, act: (kv: KvClient, run: Run) => Promise<number>): Promise<number> {
  return await closing(await connect(storeOf(run)), run, act);
}

/** A client of the profile that the options name. */
async function withEither(
  run: Run,
  act: (kv: KvClient | UrdmaClient, run: Run) => Promise<number>,
): Promise<number> {
  const isUrdma = profileOf(run.values) === 'urdma';
  return await closing(await (isUrdma ? connectUrdma : connect)(storeOf(run)), run, act);
}

async function closing<T extends { close(): Promise<void> }>(
  kv: T,
  run: Run,
  act: (kv: T, run: Run) => Promise<number>,
): Promise<number> {
  try {
    return await act(kv, run);
  } finally {
    await kv.close();
  }
}

/** Each value on a line, `(nil)` for a key that is not there; then the status is 1. */
async function get(kv: KvClient | UrdmaClient, { words, io }: Run): Promise<number> {
  if (words.length === 0) throw usage('get takes keys');
  let missing = 0;
  for (const value of await Promise.all(words.map((key) => kv.get(key)))) {
    if (value === null) missing++;
    io.out(value === null ? '(nil)\n' : `${printable(Buffer.from(value).toString())}\n`);
  }
  return missing === 0 ? 0 : 1;
}

async function set(kv: KvClient | UrdmaClient, { values, words, io }: Run): Promise<number> {
  const [key, value, ...more] = words;
  if (key === undefined || value === undefined || more.length > 0) throw usage('set takes a key and a value');
  await kv.set(key, value, { ttl: numberOf(values, 'ttl', 0, 2 ** 50) });
  io.out('OK\n');
  return 0;
}

async function del(kv: KvClient | UrdmaClient, { words, io }: Run): Promise<number> {
  if (words.length === 0) throw usage('del takes keys');
  let gone = 0;
  for (const key of words) if (await kv.delete(key)) gone++;
  io.out(`${gone}\n`);
  return 0;
}

async function incr(kv: KvClient, { words, io }: Run): Promise<number> {
  const [key, by = '1', ...more] = words;
  if (key === undefined || more.length > 0 || !/^-?\d{1,19}$/.test(by))
    throw usage('incr takes a key and a number');
  io.out(`${await kv.increment(key, BigInt(by))}\n`);
  return 0;
}

async function top(kv: KvClient, { values, words, io }: Run): Promise<number> {
  if (words.length > 0) throw usage('top takes no words');
  const count = numberOf(values, 'count', 0, 2 ** 31);
  io.out('     keys  evicted  expired     hits   misses  rdma  other\n');
  let stopped = false;
  void untilStopped(io).then(() => (stopped = true));
  for (let i = 0; !stopped && (count === 0 || i < count); i++) {
    if (i > 0) await new Promise((resolve) => setTimeout(resolve, 1000));
    const { keys, evicted, expired, hits, misses, rdmaClients, clients } = await kv.storeStats();
    const columns = [keys, evicted, expired, hits, misses].map((n) => String(n).padStart(8));
    io.out(` ${columns.join(' ')} ${String(rdmaClients).padStart(5)} ${String(clients).padStart(6)}\n`);
  }
  return 0;
}

// ----------------------------------------------------------------------------------------------------- bench

async function bench({ values, words, io }: Run): Promise<number> {
  if (words.length > 0) throw usage('bench takes no words');
  const numbers = (name: 'clients' | 'size', fallback: string, most: number): number[] => {
    const list = (textOf(values, name) ?? fallback).split(',').map(Number);
    if (list.some((n) => !Number.isInteger(n) || n < 1 || n > most))
      throw usage(`--${name} must be numbers from 1 to ${most}, such as ${fallback}`);
    return list;
  };
  const clients = numbers('clients', '1,8,64', 1024);
  const sizes = numbers('size', '64,4096', 65_536);
  const rdma = textOf(values, 'rdma');
  const against = (textOf(values, 'against') ?? '').split(',').filter((url) => url !== '');
  await runKvBench(
    {
      rdma: rdma === undefined ? undefined : addressOf('rdma', rdma),
      against: against.map(targetOf),
      clients,
      sizes,
      seconds: numberOf(values, 'seconds', 2, 600),
      underWay: Math.max(1, numberOf(values, 'under-way', 1, 1024)),
      ownerBusy: values['owner-busy'] === true,
    },
    io,
  );
  return 0;
}

function targetOf(url: string): { kind: 'redis' | 'memcached'; host: string; port: number } {
  const match = /^(redis|memcached):\/\/(.+)$/.exec(url);
  if (match === null)
    throw usage(`--against must be redis://HOST:PORT or memcached://HOST:PORT, got '${url}'`);
  return { kind: match[1] as 'redis', ...addressOf('against', match[2]!) };
}
