/**
 * Measures the server's memory that a thousand connections hold which have carried something and now rest,
 * against raw sockets.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { spec } from '../experiments.ts';
import type { Method } from '../method.ts';
import { PeerProcess } from '../peer-process.ts';
import { median } from '../stats.ts';
import { isOurs } from '../cases.ts';
import type { CaseSpec, ProbeResult } from '../types.ts';
import { cell, ratioOf, watchSteal, type Probe, type Progress } from './probe.ts';

const CONNECTIONS = 1000;
/** More than one read's worth on each connection. */
const OCTETS = 70_000;
/**
 * The wait before memory is measured after traffic: for one message on each connection, and for the messages
 * under way when all of them stop.
 */
const DRAIN_MS = 400;
/** How long all connections send together, each message followed by the next. */
const STORM_MS = 400;
/**
 * V8 looks at the allocations of the last five seconds before it gives back the room that a burst of objects
 * needed.
 */
const SILENCE_MS = 7000;
/** Rounds of what no goal asks for: memory hardly moves with the machine's speed. */
const FEW_ROUNDS = 3;
const KIB_PER_MIB = 1024;
const DEFAULT_DEPTH = 128;

const of = (peer: CaseSpec['peer'], more: Partial<CaseSpec> = {}): CaseSpec =>
  spec(peer, 'bw', OCTETS, {
    verb: 'write',
    connections: CONNECTIONS,
    inFlight: CONNECTIONS,
    once: true,
    ...more,
  });

type Kind = readonly [label: string, key: string, spec: CaseSpec];

const GOAL_KINDS: readonly Kind[] = [
  ["TCP, 'data'", 'data', of('tcp-data')],
  ['iWARP, 16 requests deep', 'iwarp', of('verbs')],
];
const OTHER_KINDS: readonly Kind[] = [
  ['TCP, onread, a buffer of 64 KiB each', 'onread', of('tcp-onread')],
  [`iWARP, ${DEFAULT_DEPTH} requests deep (default)`, 'iwarp-default', of('verbs', { queue: DEFAULT_DEPTH })],
];
const KINDS: readonly Kind[] = [...GOAL_KINDS, ...OTHER_KINDS];

/** KiB a connection. */
interface Memory {
  readonly open: number;
  /** Right after one message on each connection. */
  readonly after: number;
  /** After some seconds of silence: what the connections themselves hold. */
  readonly silent: number;
  /** Right after all of them sending together. */
  readonly storm: number;
}

/** A server and its client, whose memory is measured when the server has received all messages. */
class Pair {
  readonly #server = new PeerProcess(['--expose-gc']);
  readonly #client = new PeerProcess();
  #empty = 0;

  async open(one: CaseSpec): Promise<void> {
    const { place } = await this.#server.ask<'ready'>({ do: 'serve', spec: one });
    this.#empty = await this.#resident();
    await this.#client.ask<'ready'>({ do: 'connect', spec: one, place: place! });
  }

  async #resident(): Promise<number> {
    return (await this.#server.ask<'memory'>({ do: 'memory' })).health.rss;
  }

  /** KiB a connection beyond the server without any. */
  async each(): Promise<number> {
    return (((await this.#resident()) - this.#empty) * KIB_PER_MIB) / CONNECTIONS;
  }

  /** Octets that the server has got. */
  async got(): Promise<number> {
    return (await this.#server.ask<'mark'>({ do: 'mark' })).mark.bytes;
  }

  async send(ms: number): Promise<void> {
    await this.#client.ask({ do: 'start' });
    await sleep(ms);
    await this.#client.ask({ do: 'stop' });
  }

  end(): void {
    this.#server.end();
    this.#client.end();
  }
}

/** Starts a server, opens all connections, and returns the result of `look`. */
async function serving<T>(one: CaseSpec, look: (pair: Pair) => Promise<T>): Promise<T> {
  const pair = new Pair();
  try {
    await pair.open(one);
    return await look(pair);
  } finally {
    pair.end();
  }
}

async function measure(one: CaseSpec): Promise<Memory> {
  return { ...(await serving(one, calm)), storm: await serving({ ...one, once: false }, storm) };
}

async function calm(pair: Pair): Promise<Omit<Memory, 'storm'>> {
  const open = await pair.each();
  await pair.send(DRAIN_MS);
  const once = await pair.got();
  if (once !== CONNECTIONS * OCTETS) throw new Error(`the connections have carried ${once} octets`);
  const after = await pair.each();
  await sleep(SILENCE_MS);
  return { open, after, silent: await pair.each() };
}

async function storm(pair: Pair): Promise<number> {
  await pair.send(STORM_MS);
  await sleep(DRAIN_MS);
  if ((await pair.got()) < CONNECTIONS * OCTETS)
    throw new Error('not every connection has carried something');
  return pair.each();
}

// oxlint-disable-next-line max-lines-per-function -- one measurement from its set-up to its figures
async function run(method: Method, progress: Progress): Promise<ProbeResult> {
  const stolen = watchSteal();
  const results = new Map(KINDS.map(([, key]) => [key, [] as Memory[]]));
  const missing = new Map<string, string>();
  // Two servers at a time: their memory is their own, and nothing is timed.
  for (let round = 0; round < method.rounds; round++) {
    for (const kinds of round < FEW_ROUNDS ? [GOAL_KINDS, OTHER_KINDS] : [GOAL_KINDS]) {
      progress(`round ${round + 1}/${method.rounds}`);
      const open = kinds.filter(([, key]) => !missing.has(key));
      await Promise.all(
        open.map(([, key, one]) =>
          measure(one).then(
            (memory) => results.get(key)!.push(memory),
            (error: unknown) => missing.set(key, (error as Error).message),
          ),
        ),
      );
    }
  }
  const at = (key: string, moment: keyof Memory): number[] =>
    results.get(key)!.map((memory) => memory[moment]);
  const ratio = (key: string, moment: keyof Memory): number[] =>
    at(key, moment).map((kib, round) => kib / (at('data', moment)[round] ?? Number.NaN));
  const ours = KINDS.filter(([, , one]) => isOurs(one));
  return {
    id: 'idle',
    title: 'A thousand idle connections',
    about: `Resident memory of the server for each of ${CONNECTIONS} connections: just open; right after each
has carried one message of ${OCTETS} octets; after seven seconds more of silence, when V8 has given back the
room that a burst of short-lived objects needed; and, in another server, right after all have sent for
${STORM_MS} ms at once. Each look after a full collection. Raw sockets that deliver 'data' events are the
measure. Sockets of this package share one read buffer; the depth is how many requests a connection may have
queued.`,
    columns: [
      'KiB a connection, open',
      'right after 70 KB',
      "ratio to TCP, 'data'",
      'after silence',
      "ratio to TCP, 'data'",
      'right after a storm',
      "ratio to TCP, 'data'",
    ],
    rows: KINDS.map(([label, key]) => ({
      label,
      cells: [
        cell(median(at(key, 'open')), 1),
        ...(['after', 'silent', 'storm'] as const).flatMap((moment) => [
          cell(median(at(key, moment)), 1),
          cell(median(ratio(key, moment))),
        ]),
      ],
    })),
    charts: [
      {
        caption: 'KiB of memory for each connection right after 70 KB of traffic: less is better',
        unit: 'KiB',
        log: false,
        see: 'Grey is what bare sockets hold, blue is ours: queue pair, stream and connection are in it too.',
        bars: KINDS.map(([label, key, one]) => ({
          label,
          value: cell(median(at(key, 'after')), 1),
          ours: isOurs(one),
        })),
      },
    ],
    ratios: ours.flatMap(([, key]) => [
      ratioOf(`idle/${key} : TCP, 'data'`, 'less', ratio(key, 'after')),
      ratioOf(`idle/${key} : TCP, 'data', silent`, 'less', ratio(key, 'silent')),
      ratioOf(`idle/${key} : TCP, 'data', storm`, 'less', ratio(key, 'storm')),
    ]),
    missing: [...missing].map(([id, reason]) => ({ id, reason })),
    disturbed: stolen(),
  };
}

export const idle: Probe = {
  id: 'idle',
  title: 'A thousand idle connections',
  seconds: ({ rounds }) => (rounds + FEW_ROUNDS) * 14,
  run,
};
