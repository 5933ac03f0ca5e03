/** What a thousand connections that have carried something and now rest hold of the server's memory, against raw sockets. */
import { setTimeout as sleep } from 'node:timers/promises';
import { spec } from '../experiments.ts';
import type { Method } from '../method.ts';
import { PeerProcess } from '../peer-process.ts';
import { median } from '../stats.ts';
import type { CaseSpec, ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

const CONNECTIONS = 1000;
/** More than one read's worth on each connection. */
const OCTETS = 70_000;
const TRAFFIC_MS = 400;
const DRAIN_MS = 300;
/** V8 looks at the allocations of the last five seconds before it gives back the room that a burst of objects needed. */
const SILENCE_MS = 7000;
/** Rounds of what no goal asks for: memory hardly moves with the machine's speed. */
const FEW_ROUNDS = 3;
const KIB_PER_MIB = 1024;
const DEFAULT_DEPTH = 128;

const of = (peer: CaseSpec['peer'], more: Partial<CaseSpec> = {}): CaseSpec =>
  spec(peer, 'bw', OCTETS, { verb: 'write', connections: CONNECTIONS, inFlight: CONNECTIONS, ...more });

type Kind = readonly [label: string, key: string, spec: CaseSpec];

const GOAL_KINDS: readonly Kind[] = [["TCP, 'data'", 'data', of('tcp-data')], ['iWARP, 16 requests deep', 'iwarp', of('iwarp')]];
const OTHER_KINDS: readonly Kind[] = [
  ['TCP, onread, a buffer of 64 KiB each', 'onread', of('tcp-onread')],
  [`iWARP, ${DEFAULT_DEPTH} requests deep (default)`, 'iwarp-default', of('iwarp', { queue: DEFAULT_DEPTH })],
];
const KINDS: readonly Kind[] = [...GOAL_KINDS, ...OTHER_KINDS];

interface Memory {
  readonly open: number;
  /** Right behind the traffic. */
  readonly after: number;
  /** Behind some seconds of silence: what the connections themselves hold. */
  readonly silent: number;
}

async function measure(one: CaseSpec): Promise<Memory> {
  const [server, client] = [new PeerProcess(['--expose-gc']), new PeerProcess()];
  const memory = async (): Promise<number> => (await server.ask<'memory'>({ do: 'memory' })).health.rss;
  try {
    const { place } = await server.ask<'ready'>({ do: 'serve', spec: one });
    const empty = await memory();
    await client.ask<'ready'>({ do: 'connect', spec: one, place: place! });
    const open = await memory();
    await client.ask({ do: 'start' });
    await sleep(TRAFFIC_MS);
    await client.ask({ do: 'stop' });
    await sleep(DRAIN_MS);
    const { mark } = await server.ask<'mark'>({ do: 'mark' });
    if (mark.bytes < CONNECTIONS * OCTETS) throw new Error('not every connection has carried something');
    const each = (mib: number): number => ((mib - empty) * KIB_PER_MIB) / CONNECTIONS;
    const after = await memory();
    await sleep(SILENCE_MS);
    return { open: each(open), after: each(after), silent: each(await memory()) };
  } finally {
    server.end();
    client.end();
  }
}

async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const results = new Map(KINDS.map(([, key]) => [key, [] as Memory[]]));
  const missing = new Map<string, string>();
  // Two servers at a time: their memory is their own, and nothing is timed.
  for (let round = 0; round < method.rounds; round++) {
    for (const kinds of round < FEW_ROUNDS ? [GOAL_KINDS, OTHER_KINDS] : [GOAL_KINDS]) {
      progress(`round ${round + 1}/${method.rounds}`);
      const open = kinds.filter(([, key]) => !missing.has(key));
      await Promise.all(open.map(([, key, one]) => measure(one).then((memory) => results.get(key)!.push(memory), (error: unknown) => missing.set(key, (error as Error).message))));
    }
  }
  const at = (key: string, moment: keyof Memory): number[] => results.get(key)!.map((memory) => memory[moment]);
  const ratio = (key: string, moment: keyof Memory): number[] => at(key, moment).map((kib, round) => kib / (at('data', moment)[round] ?? Number.NaN));
  const ours = KINDS.filter(([, , one]) => one.peer === 'iwarp');
  return {
    id: 'idle', title: 'A thousand idle connections',
    about: `Resident memory of the server for each of ${CONNECTIONS} connections: just open, right after each has carried messages of ${OCTETS} octets, and after seven seconds more of silence,
when V8 has given back the room that a burst of short-lived objects needed; each look behind a full collection. Raw sockets
that deliver 'data' events are the measure. Sockets of this package share one read buffer; the depth is how many requests a connection may have queued.`,
    columns: ['KiB a connection, open', 'KiB a connection, right after traffic', "ratio to TCP, 'data'", 'KiB a connection, after silence', "ratio to TCP, 'data'"],
    rows: KINDS.map(([label, key]) => ({
      label,
      cells: [
        cell(median(at(key, 'open')), 1), cell(median(at(key, 'after')), 1), cell(median(ratio(key, 'after'))), cell(median(at(key, 'silent')), 1), cell(median(ratio(key, 'silent'))),
      ],
    })),
    charts: [{
      caption: 'KiB of memory for each connection after traffic and silence: less is better', unit: 'KiB', log: false,
      see: 'Grey is what bare sockets hold, blue is ours: queue pair, stream and connection are in it too.',
      bars: KINDS.map(([label, key, one]) => ({ label, value: cell(median(at(key, 'silent')), 1), ours: one.peer === 'iwarp' })),
    }],
    ratios: ours.flatMap(([, key]) => [
      ratioOf(`idle/${key} : TCP, 'data'`, 'less', ratio(key, 'after')), ratioOf(`idle/${key} : TCP, 'data', silent`, 'less', ratio(key, 'silent')),
    ]),
    missing: [...missing].map(([id, reason]) => ({ id, reason })),
    disturbed: stolen(),
  };
}

export const idle: Probe = { id: 'idle', title: 'A thousand idle connections', seconds: ({ rounds }) => (rounds + FEW_ROUNDS) * 11, run };
