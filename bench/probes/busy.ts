/**
 * The main thread of the server computes; a client goes on reading the server's memory. With the engine in
 * that thread it waits, with the engine in a worker it should notice nothing.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { spec } from '../experiments.ts';
import type { Method } from '../method.ts';
import { PeerProcess } from '../peer-process.ts';
import { mergeLatency, median } from '../stats.ts';
import type { EngineKind, LatencySlice, LatencySummary, ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

const READ_OCTETS = 64;
/** How long the main thread computes in a round. */
const BUSY_MS = 1000;
const IDLE_MS = 300;
const WARM_MS = 200;
const ENGINES: readonly (readonly [EngineKind, string])[] = [
  ['thread', 'engine in the main thread'],
  ['worker', 'engine in a worker thread'],
];

/** A Read that waits for the main thread is answered when it has done; then it is counted. */
const ENDING_MS = 150;

/**
 * The results of a round: Reads answered while the main thread rests, while it computes, and those that had
 * to wait for its end.
 */
interface Round {
  readonly idle: LatencySlice;
  readonly busy: LatencySlice;
  readonly late: LatencySlice;
}

interface Pair {
  readonly server: PeerProcess;
  readonly client: PeerProcess;
  readonly rounds: Round[];
}

async function open(engine: EngineKind): Promise<Pair> {
  const one = spec('verbs', 'lat', READ_OCTETS, { verb: 'read', engine });
  const pair: Pair = { server: new PeerProcess(), client: new PeerProcess(), rounds: [] };
  try {
    const { place } = await pair.server.ask<'ready'>({ do: 'serve', spec: one });
    await pair.client.ask<'ready'>({ do: 'connect', spec: { ...one, engine: 'thread' }, place: place! });
    await slice(pair, WARM_MS);
    return pair;
  } catch (error) {
    close(pair);
    throw error;
  }
}

function close({ server, client }: Pair): void {
  server.end();
  client.end();
}

/** Latencies of the Reads answered in `ms` milliseconds. */
async function slice({ client }: Pair, ms: number): Promise<LatencySlice> {
  await client.ask({ do: 'start' });
  await sleep(ms);
  const { latency } = await client.ask<'stopped'>({ do: 'stop' });
  return latency!;
}

async function round(pair: Pair): Promise<void> {
  const idle = await slice(pair, IDLE_MS);
  await pair.server.ask({ do: 'occupy', ms: BUSY_MS });
  const busy = await slice(pair, BUSY_MS - ENDING_MS);
  await sleep(2 * ENDING_MS);
  const { latency: late } = await pair.client.ask<'stopped'>({ do: 'stop' });
  pair.rounds.push({ idle, busy, late: late! });
}

/** The Reads of one state of the main thread. */
const readsOf = (each: Round, which: 'idle' | 'busy'): LatencySlice[] =>
  which === 'idle' ? [each.idle] : [each.busy, each.late];

const summary = (each: Round, which: 'idle' | 'busy'): LatencySummary | null =>
  mergeLatency(readsOf(each, which), 1);
const p99 = (each: Round, which: 'idle' | 'busy'): number => summary(each, which)?.p99 ?? Number.NaN;

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const missing: { id: string; reason: string }[] = [];
  const pairs = new Map<EngineKind, Pair>();
  for (const [engine] of ENGINES) {
    await open(engine).then(
      (pair) => pairs.set(engine, pair),
      (error: unknown) => missing.push({ id: engine, reason: (error as Error).message }),
    );
  }
  try {
    for (let n = 0; n < method.rounds; n++) {
      for (const [engine, pair] of pairs) {
        progress(`round ${n + 1}/${method.rounds}  ${engine}`);
        await round(pair).catch((error: unknown) => {
          missing.push({ id: engine, reason: (error as Error).message });
          close(pair);
          pairs.delete(engine);
        });
      }
    }
  } finally {
    for (const pair of pairs.values()) close(pair);
  }
  return resultOf(pairs, missing, stolen());
}

const NOTHING: LatencySummary = {
  count: 0,
  min: Number.NaN,
  max: Number.NaN,
  typical: Number.NaN,
  average: Number.NaN,
  stdev: Number.NaN,
  p90: Number.NaN,
  p99: Number.NaN,
  p999: Number.NaN,
};

const ABOUT = `A client Reads ${READ_OCTETS} bytes of the server again and again, one at a time. In each
round the server's main thread first rests and then computes for ${BUSY_MS / 1000} s without a pause. The
table shows whole round trips: medians of the rounds' medians, 99th percentiles and maxima.`;

function resultOf(
  pairs: ReadonlyMap<EngineKind, Pair>,
  missing: ProbeResult['missing'],
  stolen: boolean,
): ProbeResult {
  const rows = ENGINES.flatMap(([engine, label]) =>
    (['idle', 'busy'] as const).map((which) => {
      const pair = pairs.get(engine);
      const rounds = pair?.rounds ?? [];
      const of = (figure: (one: LatencySummary) => number): number | null =>
        cell(median(rounds.map((each) => figure(summary(each, which) ?? NOTHING))), 1);
      const seconds = (which === 'idle' ? IDLE_MS : BUSY_MS - ENDING_MS) / 1000;
      return {
        label: `${label}, main thread ${which}`,
        cells: [
          cell(median(rounds.map((each) => each[which].count / seconds)), 0),
          of(({ typical }) => typical),
          of((one) => one.p99),
          of(({ max }) => max),
          of(({ p999 }) => p999),
        ],
      };
    }),
  );
  const worker = pairs.get('worker');
  return {
    id: 'busy',
    title: 'The server computes, and its memory is read all the same',
    about: ABOUT,
    columns: ['Reads a second', 'median, us', '99 %, us', 'worst of a round, us', '99.9 %, us'],
    rows,
    charts: [
      {
        caption: 'Worst Read of a round, microseconds, logarithmic',
        unit: 'us',
        log: true,
        see:
          'With the engine in the main thread (grey) a Read waits until the computing ends. With the ' +
          'engine in a worker (blue) it hardly notices: that is what to see here.',
        bars: rows.map((row, i) => ({
          label: row.label,
          value: typeof row.cells[3] === 'number' ? row.cells[3] : null,
          ours: i >= 2,
        })),
      },
    ],
    ratios:
      worker === undefined
        ? []
        : [
            ratioOf(
              'busy/worker p99 : idle',
              'less',
              worker.rounds.map((each) => p99(each, 'busy') / p99(each, 'idle')),
            ),
          ],
    missing,
    disturbed: stolen,
  };
}

export const busy: Probe = {
  id: 'busy',
  title: 'The server computes, and its memory is read all the same',
  seconds: ({ rounds }) => rounds * 3.4 + 2,
  run,
};
