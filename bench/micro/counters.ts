/**
 * Measures the cost of the counters: this build beside a copy of it from which the lines that count have been
 * taken out. Both in one process, two ends each over the in-memory network, so that no socket dilutes the
 * figure; short windows in turn, and the first tenth of each counts, which a busy machine hardly moves. How
 * the compiler lays out two copies of the same code is worth some percent by itself, so the figure is the
 * median over many processes, and stands beside that of a control: the same with a copy in which nothing has
 * been taken out.
 *
 * Called by probes/counters.ts. Alone, compiled, with plain node: `node dist/bench/micro/counters.js
 * [processes]`.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { ConnectionManager as Manager, InlineEngine as Inline } from '../../src/cm/index.ts';
import type * as Testing from '../../src/testing.ts';
import type * as Verbs from '../../src/verbs/index.ts';
import { temporaryFolder } from '../leftovers.ts';
import { spread } from '../stats.ts';
import { COUNTING_FILES, withoutCounting } from './counting-lines.ts';

const BUILD = fileURLToPath(new URL('../..', import.meta.url));
const BATCH = 128;
const BATCHES = 16;
const SIZE = 64;

/** A copy of the build, with `change` made to each file that counts. */
function copyWith(change: (file: string, text: string) => string, target: string): string {
  const build = join(target, 'dist');
  cpSync(BUILD, build, { recursive: true });
  cpSync(join(BUILD, '../package.json'), join(target, 'package.json'));
  symlinkSync(join(BUILD, '../node_modules'), join(target, 'node_modules'));
  for (const file of COUNTING_FILES) {
    const path = join(build, `${file}.js`);
    writeFileSync(path, change(file, readFileSync(path, 'utf8')));
  }
  return build;
}

/** One pair of connected ends of a build; the result runs one window and gives nanoseconds a message. */
async function open(build: string, kind: 'rdma-write' | 'send'): Promise<() => number> {
  const load = (file: string): Promise<unknown> => import(pathToFileURL(join(build, file)).href);
  const verbs = (await load('verbs/index.js')) as typeof Verbs;
  const testing = (await load('testing.js')) as typeof Testing;
  const { ConnectionManager, InlineEngine } = (await load('cm/index.js')) as {
    ConnectionManager: typeof Manager;
    InlineEngine: typeof Inline;
  };
  const time = new testing.VirtualTime();
  const network = new testing.MemoryTransport(time);
  const side = () => {
    const device = new verbs.Device({ defer: (task) => time.defer(task) });
    const pd = device.allocatePd();
    const cq = device.createCq(4 * BATCH);
    const qp = pd.createQp({ sendCq: cq, recvCq: cq, maxSendWr: 2 * BATCH, maxRecvWr: 2 * BATCH });
    const mr = pd.registerMemory(new Uint8Array(SIZE), verbs.ACCESS.LOCAL_WRITE | verbs.ACCESS.REMOTE_WRITE);
    return {
      cq,
      qp,
      mr,
      cm: new ConnectionManager(device, new InlineEngine(network, time, device)),
      out: Array.from({ length: BATCH }, verbs.createWorkCompletion),
    };
  };
  const [here, there] = [side(), side()];
  const listening = there.cm.listen({ host: '10.0.0.1', port: 1 }, (request) => request.accept(there.qp));
  time.run();
  await listening;
  here.cm.connect(here.qp, { host: '10.0.0.1', port: 1 });
  time.run();
  const { rkey, addr } = there.mr;
  const requests = Array.from({ length: BATCH }, () => ({
    opcode: kind,
    sges: [{ mr: here.mr }],
    ...(kind === 'send' ? {} : { rkey, remoteAddr: addr }),
  })) as unknown as Verbs.SendWorkRequest[];
  const receives = Array.from({ length: BATCH }, () => ({ sges: [{ mr: there.mr }] }));
  return () => {
    const from = process.hrtime.bigint();
    for (let i = 0; i < BATCHES; i++) {
      if (kind === 'send') there.qp.postRecv(receives);
      here.qp.postSend(requests);
      time.run();
      if (here.cq.poll(here.out) !== BATCH) throw new Error('not all has been sent');
      if (kind === 'send' && there.cq.poll(there.out) !== BATCH) throw new Error('not all has been received');
    }
    return Number(process.hrtime.bigint() - from) / (BATCH * BATCHES);
  };
}

const KINDS = ['rdma-write', 'send'] as const;
const ROUNDS = 250;

/**
 * Runs in a separate process: how many percent more a message costs with this build than with `other`, for
 * each kind.
 */
async function compare(other: string, swapped: boolean): Promise<number[]> {
  const ratios: number[] = [];
  for (const kind of KINDS) {
    const builds = swapped ? [other, BUILD] : [BUILD, other];
    const windows = [await open(builds[0]!, kind), await open(builds[1]!, kind)] as const;
    const figures: [number[], number[]] = [[], []];
    for (let round = 0; round < ROUNDS; round++) {
      for (const which of round % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const))
        figures[which].push(windows[which]());
    }
    const [first, second] = figures.map(
      (list) => list.slice(ROUNDS / 5).sort((a, b) => a - b)[ROUNDS / 10]!,
    ) as [number, number];
    ratios.push(((swapped ? second / first : first / second) - 1) * 100);
  }
  return ratios;
}

/** Percents by process, for one kind of message and one thing that this build was set beside. */
export interface CounterResult {
  readonly kind: string;
  readonly beside: string;
  readonly percent: readonly number[];
}

/** The copies of the build are made in `folder`. */
function measure(processes: number, folder: string): CounterResult[] {
  const sides = [
    {
      name: 'without counters',
      build: copyWith(withoutCounting, join(folder, 'bare')),
      figures: [] as number[][],
    },
    {
      name: 'control',
      build: copyWith((_file, text) => text, join(folder, 'same')),
      figures: [] as number[][],
    },
  ];
  for (let i = 0; i < processes; i++) {
    for (const { build, figures } of sides) {
      const text = execFileSync(
        process.execPath,
        [fileURLToPath(import.meta.url), 'child', build, String(i % 2)],
        { encoding: 'utf8', timeout: 60_000 },
      );
      figures.push(JSON.parse(text) as number[]);
    }
  }
  return KINDS.flatMap((kind, k) =>
    sides.map(({ name, figures }) => ({ kind, beside: name, percent: figures.map((one) => one[k]!) })),
  );
}

function main(processes: number): void {
  for (const { kind, beside, percent } of measure(processes, temporaryFolder('iwarp-bare-').path)) {
    const { median, low, high } = spread(percent, true);
    const text = (value: number): string => `${value.toFixed(1)} %`;
    console.log(
      `${kind}, ${SIZE} octets, this build beside ${beside}: ${text(median)} (quartiles ${text(low)}, ` +
        `${text(high)}; ${processes} processes)`,
    );
  }
}

if (process.argv[2] === 'child')
  console.log(JSON.stringify(await compare(process.argv[3]!, process.argv[4] === '1')));
else if (process.argv[2] === 'json')
  console.log(JSON.stringify(measure(Number(process.argv[3]), process.argv[4]!)));
else main(Number(process.argv[2] ?? 20));
