/**
 * A peer that connects, completes start-up, drops the connection, and does it again, a thousand times a
 * second, beside an honest client: every request of the honest client has to be answered, and the memory and
 * the objects of the server may not grow.
 *
 *   npx tsx scripts/endure-reconnects.ts [--rate N] [--seconds N] [--spans N] [--engine E] [--limit N]
 *
 * `--rate` reconnects a second (1,000; 0: as many as go), in `--spans` spans (5) of `--seconds` (5) each,
 * after one span that is not counted. `--limit` is the server's `maxConnectionsPerAddress`, by default none;
 * the honest client has another address. Each party has a process. The status is 1 if something was lost or
 * has grown.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { connect, createServer, openRnic, type EngineKind } from '../src/index.ts';
import { loaderFor } from './loader.ts';

const HOST = '127.0.0.1';
const FILE = fileURLToPath(import.meta.url);
/** Where the hostile peer connects from. */
const ELSEWHERE = '127.0.0.2';
const MEBI = 1 << 20;
/** Attempts of the hostile peer under way: more would only wait for each other. */
const UNDER = 32;
/** MiB by which the server may grow between the first counted span and the last. */
const GROWTH = 64;
/** Milliseconds after which the connections of the last span are over. */
const OVER = 10_000;

interface Options {
  readonly rate: number;
  readonly seconds: number;
  readonly spans: number;
  readonly engine: EngineKind;
  /** Connections that the server takes of one address; 0: any number. */
  readonly limit: number;
  /** This file, or the same in plain JavaScript. */
  readonly file?: string;
}

/** What the server holds. */
interface Held {
  readonly resident: number;
  /** Processor time so far, in microseconds. */
  readonly cpu: number;
  readonly connections: number;
  readonly queuePairs: number;
}

/** What the hostile peer reached in a span. */
interface Storm {
  readonly attempts: number;
  /** Attempts that the server accepted. */
  readonly accepted: number;
  readonly seconds: number;
}

/** One span. */
interface Span extends Storm {
  /** Requests of the honest client, each of which was answered. */
  readonly served: number;
  /** Milliseconds that they took. */
  readonly median: number;
  readonly longest: number;
  /** Microseconds of the server's processor time for each attempt, those of the requests included. */
  readonly cpu: number;
  /** MiB of the server afterwards. */
  readonly resident: number;
}

interface Endured {
  readonly spans: readonly Span[];
  /** Connections and queue pairs of the server at the end, beyond those of the honest client. */
  readonly left: number;
}

/** The server. */
async function serve(engine: EngineKind, limit: number): Promise<void> {
  const rnic = openRnic({ engine });
  const server = await createServer(
    { rnic, onFailure: () => undefined, ...(limit > 0 ? { maxConnectionsPerAddress: limit } : {}) },
    (connection) => {
      const held = (): Held => {
        const { user, system } = process.cpuUsage();
        return {
          resident: process.memoryUsage().rss / MEBI,
          cpu: user + system,
          connections: server.connections.size,
          queuePairs: rnic.device.query().inUse.qp,
        };
      };
      void connection
        .serve((request) => (request.data.length > 0 ? request.data : Buffer.from(JSON.stringify(held()))))
        .catch(() => undefined);
    },
  ).listen({ host: HOST, port: 0 });
  process.send!(server.address().port);
}

/** The hostile peer: a storm for each message. */
function attack(engine: EngineKind): void {
  process.on('message', ({ port, rate, seconds }: { port: number; rate: number; seconds: number }) => {
    void storm(engine, port, rate, seconds).then((result) => process.send!(result));
  });
  process.send!('ready');
}

async function storm(engine: EngineKind, port: number, rate: number, seconds: number): Promise<Storm> {
  const began = performance.now();
  let [attempts, accepted] = [0, 0];
  const passed = (): number => (performance.now() - began) / 1000;
  const one = async (): Promise<void> => {
    while (passed() < seconds) {
      if (rate > 0 && attempts >= passed() * rate) {
        await pause(1);
        continue;
      }
      attempts++;
      const connection = await connect({ host: HOST, port, localAddress: ELSEWHERE, engine }).catch(
        () => null,
      );
      if (connection !== null) accepted++;
      connection?.destroy();
    }
  };
  await Promise.all(Array.from({ length: UNDER }, one));
  return { attempts, accepted, seconds: passed() };
}

async function started(
  file: string,
  args: readonly string[],
): Promise<[child: ChildProcess, first: unknown]> {
  const child = fork(file, args, { execArgv: loaderFor(file) });
  const [first] = (await once(child, 'message')) as [unknown];
  return [child, first];
}

export async function endureReconnects(options: Options): Promise<Endured> {
  const { rate, seconds, spans, engine, limit, file = FILE } = options;
  const [server, port] = await started(file, ['serve', engine, String(limit)]);
  const [hostile] = await started(file, ['attack', engine]);
  try {
    const honest = await connect({ host: HOST, port: port as number, engine });
    const held = async (): Promise<Held> => JSON.parse(String(await honest.request(''))) as Held;
    const before = await held();
    const seen: Span[] = [];
    for (let span = -1; span < spans; span++) {
      const over = once(hostile, 'message') as Promise<[Storm]>;
      let running = true;
      void over.then(() => (running = false));
      const earlier = (await held()).cpu;
      hostile.send({ port, rate, seconds });
      const times: number[] = [];
      while (running) {
        const began = performance.now();
        await honest.request('still there?');
        times.push(performance.now() - began);
        await turn();
      }
      const [reached] = await over;
      times.sort((a, b) => a - b);
      const { resident, cpu: later } = await held();
      const cpu = (later - earlier) / reached.attempts;
      const [median, longest] = [times[times.length >> 1]!, times.at(-1)!];
      if (span >= 0) seen.push({ ...reached, served: times.length, median, longest, cpu, resident });
    }
    const until = performance.now() + OVER;
    const left = async (): Promise<number> => {
      const { connections, queuePairs } = await held();
      return connections - before.connections + queuePairs - before.queuePairs;
    };
    while ((await left()) > 0 && performance.now() < until) await pause(100);
    const result = { spans: seen, left: await left() };
    await honest.close();
    return result;
  } finally {
    server.kill();
    hostile.kill();
  }
}

/** Whether the server has kept its size, and let everything go. */
export const isBounded = ({ spans, left }: Endured): boolean =>
  left === 0 && spans.at(-1)!.resident - spans[0]!.resident <= GROWTH;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      rate: { type: 'string', default: '1000' },
      seconds: { type: 'string', default: '5' },
      spans: { type: 'string', default: '5' },
      engine: { type: 'string', default: 'thread' },
      limit: { type: 'string', default: '0' },
    },
  });
  const result = await endureReconnects({
    rate: Number(values.rate),
    seconds: Number(values.seconds),
    spans: Number(values.spans),
    engine: values.engine as EngineKind,
    limit: Number(values.limit),
  });
  for (const { attempts, accepted, seconds, served, median, longest, cpu, resident } of result.spans) {
    console.log(
      `${(attempts / seconds).toFixed(0)} reconnects a second, ${accepted} of ${attempts} accepted; beside ` +
        `them ${served} requests: median ${median.toFixed(2)} ms, longest ${longest.toFixed(1)} ms; ` +
        `server ${cpu.toFixed(0)} us for each, ${resident.toFixed(0)} MiB`,
    );
  }
  const fine = isBounded(result);
  console.log(fine ? 'all served, nothing left' : `FAILED: ${result.left} left`);
  return fine ? 0 : 1;
}

if (process.argv[1] === FILE) {
  const [, , role, engine, limit] = process.argv;
  if (role === 'serve') await serve(engine as EngineKind, Number(limit));
  else if (role === 'attack') attack(engine as EngineKind);
  else process.exit(await main());
}
