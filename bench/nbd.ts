/**
 * The block device rows of the paper "Queue-Pair IP" (its figure 7):
 * `npx tsx bench/nbd.ts [ROUNDS] [PART]...` reads and writes 409 MB in order, in requests of 4 KiB to 1 MiB
 * with 1 to 64 under way, at most 25,000 requests for each figure, and prints MB/s and MB per CPU-second of
 * the server. The servers: nbdkit's memory plugin, our NBD over TCP, and over queue pairs by messages,
 * directly, and on plain TCP. One client of ours uses all of them; libnbd's nbdcopy uses those that it can.
 * Each server is a separate process; rounds take turns among them. The parts are `copy`, `read` and `write`;
 * a number is a part of the latter two, requests of that many KiB. The last table has the goals: the median
 * of the ratios of the rounds, and their quartiles.
 *
 * A server `asleep` does not poll (`busyPoll: 0`), as those over TCP do not: polling takes processor time to
 * save the latency of waking.
 */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createNetServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openRnic } from '../src/api/environment.ts';
import { connect, createServer, memoryDevice, type RemoteDevice } from '../src/nbd/index.ts';
import { median, spread } from './stats.ts';

/** The paper's file. */
const FILE_BYTES = 409_000_000;
/** Bytes that nbdcopy moves; the size of every export. */
const EXPORT_BYTES = 1 << 30;
/** Requests of a cell are cut here: at 4 KiB one by one the whole file takes half a minute. */
const MOST_REQUESTS = 25_000;
/** That matters below 16 KiB: a figure of 4 KiB is for 102 MB. */
const AT_MOST = `at most ${MOST_REQUESTS.toLocaleString('en')} requests a cell`;

/** Of the times in /proc/PID/stat, a second. */
const TICKS = 100;

const KIB = 1024;
const SIZES: readonly number[] = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB];
const DEPTHS: readonly number[] = [1, 8, 64];

export type WayName =
  | 'nbdkit'
  | 'tcp'
  | 'qpip'
  | 'message'
  | 'direct'
  | 'messageBare'
  | 'directBare'
  | 'directAsleep'
  | 'bareAsleep';
interface Way {
  readonly label: string;
  /** The kind of server; nbdkit is another program. */
  readonly serves: 'nbd' | 'rdma' | 'qpip' | 'nbdkit';
  readonly mode?: 'message' | 'direct';
  readonly crc?: 'off';
  /** Microseconds for which the server's event loop stays awake. Default: as the stack has it. */
  readonly busyPoll?: 0;
}

/** Servers, in the order of the columns; ratios are to `tcp`. */
export const WAYS: Readonly<Record<WayName, Way>> = {
  nbdkit: { label: 'nbdkit', serves: 'nbdkit' },
  tcp: { label: 'TCP', serves: 'nbd' },
  qpip: { label: 'qpip', serves: 'qpip' },
  message: { label: 'message', serves: 'rdma', mode: 'message' },
  direct: { label: 'direct', serves: 'rdma', mode: 'direct' },
  messageBare: { label: 'message, no CRC', serves: 'rdma', mode: 'message', crc: 'off' },
  directBare: { label: 'direct, no CRC', serves: 'rdma', mode: 'direct', crc: 'off' },
  directAsleep: { label: 'direct, asleep', serves: 'rdma', mode: 'direct', busyPoll: 0 },
  bareAsleep: { label: 'direct, no CRC, asleep', serves: 'rdma', mode: 'direct', crc: 'off', busyPoll: 0 },
};
const NAMES = Object.keys(WAYS) as WayName[];
/** MB per CPU-second of the server, to our NBD over TCP. */
const DIRECT_GOAL = 1.3;
/** MB/s of nbdcopy, to nbdkit. */
const COPY_GOAL = 0.8;
const policyOf = ({ crc }: Way): { policy?: { crc: 'off' } } =>
  crc === undefined ? {} : { policy: { crc } };

// --------------------------------------------------------------------------------------------------- servers

/** This file as a server: says its port to its parent. */
async function serve(name: WayName): Promise<void> {
  const way: Way = WAYS[name];
  const server = createServer({ exports: { '': memoryDevice({ size: EXPORT_BYTES, shared: true }) } });
  const host = '127.0.0.1';
  const { port } =
    way.serves === 'nbd'
      ? ((await server.listen({ port: 0, host })) as AddressInfo)
      : await server.listenRdma({
          host,
          ...(way.serves === 'qpip' && { rnic: openRnic({ wire: 'qpip' }) }),
          ...(way.busyPoll !== undefined && { rnic: openRnic({ busyPoll: way.busyPoll }) }),
          ...policyOf(way),
        });
  process.send!(port);
}

export interface RunningServer {
  readonly name: WayName;
  readonly way: Way;
  readonly child: ChildProcess;
  readonly port: number;
}

async function freePort(): Promise<number> {
  const server = createNetServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

export async function start(name: WayName): Promise<RunningServer> {
  const way: Way = WAYS[name];
  if (way.serves !== 'nbdkit') {
    const child = fork(fileURLToPath(import.meta.url), ['serve', name]);
    const [port] = (await once(child, 'message')) as [number];
    return { name, way, child, port };
  }
  const port = await freePort();
  const words = ['-f', '-v', '-i', '127.0.0.1', '-p', String(port), 'memory', String(EXPORT_BYTES)];
  const child = spawn('nbdkit', words, { stdio: ['ignore', 'ignore', 'pipe'] });
  await new Promise<void>((resolve, reject) => {
    child.once('error', reject).once('exit', () => reject(new Error('nbdkit has ended')));
    child.stderr!.on('data', (data: Buffer) => data.includes('bound to') && resolve());
  });
  return { name, way, child, port };
}

/** Seconds for which the process has had a processor; those of its threads that have ended included. */
function cpuSeconds({ child }: RunningServer): number {
  const folder = `/proc/${child.pid}`;
  const fields = readFileSync(`${folder}/stat`, 'utf8').split(') ')[1]!.split(' ');
  const ticks = (Number(fields[11]) + Number(fields[12])) / TICKS;
  const nanoseconds = readdirSync(`${folder}/task`).map((task) =>
    Number(readFileSync(`${folder}/task/${task}/schedstat`, 'utf8').split(' ')[0]),
  );
  // Exact while all threads live, as they do while a connection is open; else to the tick.
  return Math.max(ticks, nanoseconds.reduce((sum, each) => sum + each, 0) / 1e9);
}

function uriOf({ way, port }: RunningServer): string {
  return `${way.serves === 'nbd' || way.serves === 'nbdkit' ? 'nbd' : 'rdma'}://127.0.0.1:${port}/`;
}

// --------------------------------------------------------------------------------------------------- clients

interface Figures {
  /** MB/s. */
  readonly rate: number;
  /** MB for each second of a processor that the server has used. */
  readonly perCpu: number;
}

/** `what` moves this number of bytes. */
async function measured(server: RunningServer, bytes: number, what: () => Promise<void>): Promise<Figures> {
  const cpu = cpuSeconds(server);
  const began = performance.now();
  await what();
  const seconds = (performance.now() - began) / 1000;
  const spent = cpuSeconds(server) - cpu;
  return { rate: bytes / 1e6 / seconds, perCpu: bytes / 1e6 / spent };
}

type Kind = 'read' | 'write';

const remoteOf = (server: RunningServer, depth: number): Promise<RemoteDevice> =>
  connect({
    uri: uriOf(server),
    depth,
    ...(server.way.mode !== undefined && { mode: server.way.mode }),
    ...(server.way.serves === 'qpip' && { rnic: openRnic({ wire: 'qpip' }) }),
    ...policyOf(server.way),
  });

/** The file in order, `depth` requests under way, each in separate memory. */
export async function sequential(
  server: RunningServer,
  kind: Kind,
  request: number,
  depth: number,
  most: number = MOST_REQUESTS,
): Promise<Figures> {
  const remote = await remoteOf(server, depth);
  const count = Math.min(most, Math.ceil(FILE_BYTES / request));
  let next = 0;
  const worker = async (): Promise<void> => {
    const bytes = new Uint8Array(request).fill(0x5a);
    while (next < count) {
      const offset = BigInt(next++ * request);
      if (kind === 'read') await remote.read(bytes, offset);
      else await remote.write(bytes, offset);
    }
  };
  const figures = await measured(server, count * request, async () => {
    await Promise.all(Array.from({ length: depth }, worker));
  });
  await remote.close();
  return figures;
}

async function nbdcopy(server: RunningServer, from: string, to: string): Promise<Figures> {
  return await measured(server, EXPORT_BYTES, async () => {
    const child = spawn('nbdcopy', [from, to], { stdio: ['ignore', 'inherit', 'inherit'] });
    const [status] = (await once(child, 'exit')) as [number | null];
    if (status !== 0) throw new Error(`nbdcopy ${from} ${to}: status ${status}`);
  });
}

// ---------------------------------------------------------------------------------------------------- tables

type Quantity = keyof Figures;
/** One figure that has a goal. */
interface Judged {
  readonly label: string;
  readonly ratios: readonly number[];
  readonly goal: number;
}
const judged: Judged[] = [];

/** Ratios of a figure of one server to that of another, round by round. */
function judge(
  label: string,
  seen: ReadonlyMap<WayName, readonly Figures[]>,
  of: Quantity,
  [name, to]: readonly [WayName, WayName],
  goal: number,
): void {
  const base = seen.get(to)!;
  const ratios = seen.get(name)!.map((each, i) => each[of] / base[i]![of]);
  judged.push({ label: `${label}, ${WAYS[name].label} to ${WAYS[to].label}`, ratios, goal });
}

function printJudged(): void {
  console.log('\n| goals | median | 25 % | 75 % | goal | |\n|---|---|---|---|---|---|');
  for (const { label, ratios, goal } of judged) {
    const { median: middle, low, high } = spread(ratios);
    const cells = [middle, low, high].map((each) => each.toFixed(2));
    const verdict = middle >= goal ? 'met' : 'missed';
    console.log(`| ${label} | ${cells.join(' | ')} | ${goal} | ${verdict} |`);
  }
}

type Cell = (server: RunningServer) => Promise<Figures>;

/** One row: all servers by turns; the first turn warms and is not counted. */
async function row(
  label: string,
  rounds: number,
  servers: readonly RunningServer[],
  cell: Cell,
): Promise<ReadonlyMap<WayName, readonly Figures[]>> {
  const seen = new Map<WayName, Figures[]>(servers.map(({ name }) => [name, []]));
  for (let round = 0; round <= rounds; round++)
    for (const server of servers) {
      const figures = await cell(server);
      if (round > 0) seen.get(server.name)!.push(figures);
    }
  const base = seen.get('tcp')!;
  const cells = servers.map(({ name }) => {
    const list = seen.get(name)!;
    const rate = median(list.map((each) => each.rate));
    const perCpu = median(list.map((each) => each.perCpu));
    const ratio = (of: Quantity): string => median(list.map((each, i) => each[of] / base[i]![of])).toFixed(2);
    const ratios = name === 'tcp' ? '' : ` (${ratio('rate')}, ${ratio('perCpu')})`;
    return `${rate.toFixed(0)} / ${perCpu.toFixed(0)}${ratios}`;
  });
  console.log(`| ${label} | ${cells.join(' | ')} |`);
  return seen;
}

function heading(title: string, servers: readonly RunningServer[]): void {
  console.log(`\n${title}: MB/s / MB per CPU-second of the server (both to our NBD over TCP)\n`);
  console.log(`| | ${servers.map(({ way }) => way.label).join(' | ')} |`);
  console.log(`|---|${servers.map(() => '---|').join('')}`);
}

async function copies(rounds: number, servers: readonly RunningServer[]): Promise<void> {
  const stock = servers.filter(({ way }) => way.serves !== 'rdma');
  const file = join(tmpdir(), `iwarp-bench-${process.pid}`);
  const bytes = randomFillSync(Buffer.alloc(1 << 20));
  writeFileSync(file, '');
  for (let i = 0; i < EXPORT_BYTES >> 20; i++) writeFileSync(file, bytes, { flag: 'a' });
  const plain = (server: RunningServer): string => `nbd://127.0.0.1:${server.port}`;
  try {
    heading('nbdcopy of 1 GiB', stock);
    // First there, so that nbdkit has no holes, which nbdcopy would not read.
    const ways = {
      'to the server': (server: RunningServer) => nbdcopy(server, file, plain(server)),
      'from the server': (server: RunningServer) => nbdcopy(server, plain(server), 'null:'),
    };
    for (const [label, cell] of Object.entries(ways)) {
      const seen = await row(label, rounds, stock, cell);
      if (label === 'from the server')
        judge(`nbdcopy ${label}, MB/s`, seen, 'rate', ['tcp', 'nbdkit'], COPY_GOAL);
    }
  } finally {
    rmSync(file);
  }
}

async function main(rounds: number, parts: readonly string[]): Promise<void> {
  const sizes = SIZES.filter((size) => parts.includes(String(size / KIB)));
  const kinds = parts.filter((part) => !/^\d+$/.test(part));
  const wanted = (part: string): boolean => kinds.length === 0 || kinds.includes(part);
  const servers: RunningServer[] = [];
  try {
    for (const name of NAMES) servers.push(await start(name));
    if (wanted('copy')) await copies(rounds, servers);
    for (const kind of ['read', 'write'] as const) {
      if (!wanted(kind)) continue;
      heading(`${kind === 'read' ? 'Reading' : 'Writing'} 409 MB in order, ${AT_MOST}`, servers);
      for (const request of sizes.length === 0 ? SIZES : sizes)
        for (const depth of DEPTHS) {
          const label = `${request / KIB} KiB, depth ${depth}`;
          const cell: Cell = (server) => sequential(server, kind, request, depth);
          const seen = await row(label, rounds, servers, cell);
          for (const name of ['direct', 'directBare', 'directAsleep', 'bareAsleep'] as const)
            judge(`${kind} ${label}, MB per CPU-second`, seen, 'perCpu', [name, 'tcp'], DIRECT_GOAL);
        }
    }
    printJudged();
  } finally {
    for (const { child } of servers) child.kill('SIGKILL');
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [first, second, ...rest] = process.argv.slice(2);
  if (first === 'serve') await serve(second as WayName);
  else
    await main(
      Number(first ?? 3),
      [second, ...rest].filter((part) => part !== undefined),
    );
}
