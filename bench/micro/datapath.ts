/**
 * What the finished data path reaches of bare TCP: two processes for each case, all of them started once, their short windows taken in
 * turn, and every ratio taken inside one round. A window that the host (steal) or another process took away is measured again.
 *
 * Run compiled, with plain node: `node dist/bench/micro/datapath.js [set] [rounds] [cases] [other]`; sets are the keys of SETS, `all` for
 * every one; `cases` is a regular expression over their names. With `other`, the folder `dist` of another build of this project, every case of
 * the stack runs from both builds in turn, and its last column is this build's figure over the other's inside a round.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { Child } from './child.ts';
import type { Case, Mark, Order } from './datapath-peer.ts';

const MIB = 1 << 20;
/** After seconds of rest a program needs so long for its rate. */
const WARM_MS = 200;
const WINDOW_MS = 90;
/** Ticks of 10 ms: a window with more than this of steal, or of other processes' work, is taken again. */
const MAX_STEAL = 1;
const MAX_FOREIGN = 4;
const ATTEMPTS = 4;

interface NamedCase extends Case {
  readonly name: string;
}

interface CaseSet {
  /** What is compared: octets or messages a second (higher is better), or round trips (lower is better). */
  readonly unit: 'GB/s' | 'M/s' | 'us';
  readonly cases: readonly NamedCase[];
}

const bulk = (name: string, more: Partial<Case>): NamedCase => ({ name, kind: 'write', size: MIB, depth: 16, ...more });

/** The directory of this build. */
const BUILD = fileURLToPath(new URL('../..', import.meta.url));

/** The first case of a set is the base of its ratios. */
const SETS: Readonly<Record<string, CaseSet>> = {
  bulk: {
    unit: 'GB/s',
    cases: [
      { name: 'bare onread, write 1 MiB', kind: 'raw-onread', size: MIB },
      { name: "bare 'data', write 1 MiB", kind: 'raw-data', size: MIB },
      { name: 'bare onread, polling, 1 MiB', kind: 'raw-onread', size: MIB, busyPoll: 50 },
      bulk('Write, CRC off', { crc: 'off' }),
      bulk('Write, CRC on', {}),
      bulk('Read, CRC off', { kind: 'read', crc: 'off' }),
      bulk('Read, CRC on', { kind: 'read' }),
      bulk('Send, CRC off', { kind: 'send', crc: 'off' }),
      bulk('Send, CRC on', { kind: 'send' }),
      bulk('Write, markers, CRC off', { crc: 'off', markers: true }),
      bulk('Write, markers, CRC on', { markers: true }),
    ],
  },
  fpdu: {
    unit: 'GB/s',
    cases: [
      { name: 'bare onread, write 1 MiB', kind: 'raw-onread', size: MIB },
      ...[1460, 8192, 32_768].flatMap((emss) => [
        bulk(`Write, CRC off, EMSS ${emss}`, { crc: 'off', emss }),
        bulk(`Write, CRC on, EMSS ${emss}`, { emss }),
      ]),
    ],
  },
  small: {
    unit: 'GB/s',
    cases: [
      { name: 'bare onread, write 4 KiB', kind: 'raw-onread', size: 4096 },
      { name: 'bare onread, writev 64', kind: 'raw-onread', size: 4096, cork: 64 },
      { name: 'Write 4 KiB, CRC off', kind: 'write', size: 4096, depth: 512, batch: 64, crc: 'off' },
      { name: 'Write 4 KiB, CRC on', kind: 'write', size: 4096, depth: 512, batch: 64 },
      { name: 'Write 4 KiB, CRC on, one by one', kind: 'write', size: 4096, depth: 512, batch: 1 },
      { name: 'Send 4 KiB, CRC on', kind: 'send', size: 4096, depth: 512, batch: 64 },
      { name: 'Read 4 KiB, CRC on', kind: 'read', size: 4096, depth: 512, batch: 64 },
    ],
  },
  rate: {
    unit: 'M/s',
    cases: [
      { name: 'bare onread, write 64', kind: 'raw-onread', size: 64 },
      { name: 'Write 64, CRC off', kind: 'write', size: 64, depth: 2048, batch: 256, crc: 'off' },
      { name: 'Write 64, CRC on', kind: 'write', size: 64, depth: 2048, batch: 256 },
      { name: 'Write 64, CRC on, one by one', kind: 'write', size: 64, depth: 2048, batch: 1 },
      { name: 'Send 64, CRC on', kind: 'send', size: 64, depth: 2048, batch: 256 },
    ],
  },
  latency: {
    unit: 'us',
    cases: [
      { name: 'bare onread, 64', kind: 'raw-onread', size: 64, pingPong: true },
      { name: "bare 'data', 64", kind: 'raw-data', size: 64, pingPong: true },
      { name: 'Send 64, CRC off', kind: 'send', size: 64, crc: 'off', pingPong: true },
      { name: 'Send 64, CRC on', kind: 'send', size: 64, pingPong: true },
    ],
  },
};

/** A process of a pair. */
class Peer extends Child<Order> {
  constructor(build: string) {
    super(join(build, 'bench/micro/datapath-peer.js'));
  }

  async mark(): Promise<Mark> {
    this.tell({ t: 'mark' });
    return this.answer<Mark>();
  }
}

interface Pair {
  readonly c: NamedCase;
  /** The same case of the other build. */
  readonly twin: Pair | undefined;
  readonly server: Peer;
  readonly client: Peer;
  /** One figure a round. */
  readonly figures: number[];
  readonly p99: number[];
  /** CPU nanoseconds an octet, both processes together. */
  readonly cost: number[];
}

async function openPair(c: NamedCase, build: string, twin?: Pair): Promise<Pair> {
  const server = new Peer(build);
  server.tell({ t: 'serve', c });
  const { port } = await server.answer<{ port: number }>();
  const client = new Peer(build);
  client.tell({ t: 'connect', c, port });
  await client.answer();
  return { c, twin, server, client, figures: [], p99: [], cost: [] };
}

/** Busy and stolen ticks of the whole machine. */
function ticks(): { readonly busy: number; readonly steal: number } {
  const v = readFileSync('/proc/stat', 'latin1').split('\n', 1)[0]!.trim().split(/\s+/).map(Number);
  return { busy: v[1]! + v[2]! + v[3]! + v[6]! + v[7]!, steal: v[8]! };
}

interface Window {
  readonly figure: number;
  readonly p99: number;
  readonly cost: number;
  readonly dirt: number;
}

async function takeWindow(pair: Pair, unit: CaseSet['unit']): Promise<Window> {
  const before = [await pair.server.mark(), await pair.client.mark()] as const;
  const from = ticks();
  await sleep(WINDOW_MS);
  const after = [await pair.server.mark(), await pair.client.mark()] as const;
  const to = ticks();
  const cpu = after[0].cpu - before[0].cpu + after[1].cpu - before[1].cpu;
  const foreign = to.busy - from.busy - cpu / 10_000;
  const steal = to.steal - from.steal;
  const side = pair.c.kind === 'read' ? 1 : 0;
  const octets = after[side].octets - before[side].octets;
  const ns = Number(after[side].now - before[side].now);
  const trips = after[1].trips.toSorted((a, b) => a - b);
  const figure = unit === 'us' ? trips[trips.length >> 1]! : unit === 'M/s' ? (octets / pair.c.size / ns) * 1000 : octets / ns;
  const dirt = Math.max(0, steal - MAX_STEAL) + Math.max(0, foreign - MAX_FOREIGN);
  return { figure, p99: trips[Math.floor(trips.length * 0.99)] ?? Number.NaN, cost: (cpu * 1000) / octets, dirt };
}

/** Run the pair for one window; the cleanest of a few attempts counts. */
async function runPair(pair: Pair, unit: CaseSet['unit']): Promise<void> {
  pair.client.tell({ t: 'go' });
  await sleep(WARM_MS);
  let best: Window | undefined;
  for (let attempt = 0; attempt < ATTEMPTS && (best === undefined || best.dirt > 0); attempt++) {
    const window = await takeWindow(pair, unit);
    if (best === undefined || window.dirt < best.dirt) best = window;
  }
  pair.client.tell({ t: 'stop' });
  await sleep(15);
  pair.figures.push(best!.figure);
  pair.p99.push(best!.p99);
  pair.cost.push(best!.cost);
}

function quantile(values: readonly number[], q: number): number {
  const sorted = values.filter((value) => Number.isFinite(value)).toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))] ?? Number.NaN;
}

function print(name: string, set: CaseSet, pairs: readonly Pair[], rounds: number): void {
  const base = pairs[0]!.figures;
  const f = (value: number): string => value.toFixed(2).padStart(9);
  console.log(`${name}: ${set.unit}, ratios to "${pairs[0]!.c.name}" inside a round, ${rounds} rounds`);
  console.log(`${''.padEnd(34)}   median     best    ratio   (q25      q75)   best/best${set.unit === 'us' ? '      p99' : '  CPU ns/B'}${other === undefined ? '' : '  to other'}`);
  for (const { c, twin, figures, p99, cost } of pairs) {
    const ratios = figures.map((figure, round) => figure / base[round]!);
    const best = set.unit === 'us' ? 0 : 1;
    const toOther = twin === undefined ? '' : f(quantile(figures.map((figure, round) => figure / twin.figures[round]!), 0.5));
    const last = set.unit === 'us' ? f(quantile(p99, 0.5)) : quantile(cost, 0.5).toFixed(3).padStart(9);
    console.log(
      c.name.padEnd(34) + f(quantile(figures, 0.5)) + f(quantile(figures, best)) + f(quantile(ratios, 0.5)) +
        f(quantile(ratios, 0.25)) + f(quantile(ratios, 0.75)) + f(quantile(figures, best) / quantile(base, best)) + last + toOther,
    );
  }
  console.log('');
}

async function runSet(name: string, set: CaseSet, rounds: number, only: RegExp): Promise<void> {
  const pairs: Pair[] = [];
  for (const [i, c] of set.cases.entries()) {
    if (i > 0 && !only.test(c.name)) continue;
    const twin = other === undefined || c.kind.startsWith('raw') ? undefined : await openPair({ ...c, name: `other: ${c.name}` }, other);
    if (twin !== undefined) pairs.push(twin);
    pairs.push(await openPair(c, BUILD, twin));
  }
  // Compilers first, figures later.
  for (const pair of pairs) {
    await runPair(pair, set.unit);
    await runPair(pair, set.unit);
    pair.figures.length = pair.p99.length = pair.cost.length = 0;
  }
  for (let round = 0; round < rounds; round++) for (const pair of pairs) await runPair(pair, set.unit);
  print(name, set, pairs, rounds);
  for (const { server, client } of pairs) {
    client.tell({ t: 'exit' });
    server.tell({ t: 'exit' });
  }
}

const wanted = process.argv[2] ?? 'all';
const rounds = Math.max(1, Number(process.argv[3] ?? 9));
const only = new RegExp(process.argv[4] ?? '');
const other = process.argv[5];
const unknown = wanted.split(',').filter((name) => name !== 'all' && SETS[name] === undefined);
if (unknown.length > 0) {
  console.error(`${unknown.join(', ')}: the sets are ${Object.keys(SETS).join(', ')}, all`);
  process.exit(2);
}
for (const [name, set] of Object.entries(SETS)) if (wanted === 'all' || wanted.split(',').includes(name)) await runSet(name, set, rounds, only);
process.exit(0);
