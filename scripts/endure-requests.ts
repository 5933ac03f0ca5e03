/**
 * Requests and replies over many connections, a part of which is aborted at random moments: each has to end
 * once, with its own reply or with its abort, and none may be carried out twice.
 *
 *   npx tsx scripts/endure-requests.ts [--requests N] [--connections N] [--under N] [--engine E] [--seed N]
 *
 * 1,000,000 requests over 64 connections with 1,024 under way, of which a tenth is aborted, unless the
 * options say otherwise. The status is 1 if a request has not ended once.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { seededRandom, type RandomU32 } from '../src/base/random.ts';
import { connect, createServer, type Connection, type EngineKind, type IwarpError } from '../src/index.ts';
import { loaderFor } from './loader.ts';

const HOST = '127.0.0.1';
const FILE = fileURLToPath(import.meta.url);
/** One in this number is aborted, and one in this number of replies takes its time. */
const ABORTED = 10;
const SLOW = 20;
/** The request for the times that each of the others was carried out. */
const REPORT = 0xffff_ffff;

interface Options {
  readonly requests: number;
  readonly connections: number;
  readonly under: number;
  readonly engine: EngineKind;
  readonly seed: number;
  /** This file, or the same in plain JavaScript. */
  readonly file?: string;
}

/** The server: counts how often each number is carried out. */
async function serve(engine: EngineKind, requests: number): Promise<void> {
  const times = new Uint8Array(requests);
  const server = await createServer({ engine }, (connection) => {
    const answer = async (data: Uint8Array): Promise<Uint8Array> => {
      const number = new DataView(data.buffer, data.byteOffset, 4).getUint32(0);
      if (number === REPORT) return times;
      times[number]!++;
      if (number % SLOW === 0) await pause(number % 7);
      return data;
    };
    void connection.serve((request) => answer(request.data)).catch(() => undefined);
  }).listen({ host: HOST, port: 0 });
  process.send!(server.address().port);
}

/** How the requests ended. */
interface Ends {
  readonly replies: number;
  readonly aborts: number;
  /** Requests that ended in any other way: with another's reply, another error, or twice. */
  readonly wrong: number;
  /** Requests that were carried out twice, or replied to without having been carried out. */
  readonly doubled: number;
  readonly seconds: number;
}

/** Aborts at a moment of chance: before the call, in its turn, or some milliseconds later. */
function abortSoon(random: RandomU32): AbortSignal {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const when = random() % 6;
  if (when === 0) abort();
  else if (when === 1) queueMicrotask(abort);
  else if (when === 2) setImmediate(abort);
  else setTimeout(abort, random() % 4);
  return controller.signal;
}

/** Replies and aborts by number: what each request ended with. */
const REPLIED = 1;
const WAS_ABORTED = 2;

async function one(
  connection: Connection,
  number: number,
  random: RandomU32,
  ends: Uint8Array,
): Promise<number> {
  const body = Buffer.alloc(4 + (random() % 200), number & 0xff);
  body.writeUInt32BE(number);
  const signal = random() % ABORTED === 0 ? abortSoon(random) : undefined;
  let wrong = ends[number] === 0 ? 0 : 1;
  try {
    const reply = await connection.request(body, { signal });
    ends[number] = REPLIED;
    if (Buffer.compare(reply, body) !== 0) wrong++;
  } catch (error) {
    ends[number] = WAS_ABORTED;
    if ((error as IwarpError).code !== 'ERR_ABORTED' || signal?.aborted !== true) wrong++;
  }
  return wrong;
}

export async function endureRequests(options: Options): Promise<Ends> {
  const { requests, connections, under, engine, seed, file = FILE } = options;
  const child = fork(file, ['serve', engine, String(requests)], { execArgv: loaderFor(file) });
  try {
    const [port] = (await once(child, 'message')) as [number];
    const all = await Promise.all(
      Array.from({ length: connections }, () => connect({ host: HOST, port, engine })),
    );
    const random = seededRandom(seed);
    const ends = new Uint8Array(requests);
    let wrong = 0;
    let next = 0;
    const began = performance.now();
    const loop = async (): Promise<void> => {
      while (next < requests) {
        const number = next++;
        wrong += await one(all[random() % connections]!, number, random, ends);
      }
    };
    await Promise.all(Array.from({ length: under }, loop));
    const seconds = (performance.now() - began) / 1000;
    const report = Buffer.alloc(4);
    report.writeUInt32BE(REPORT);
    const times = await all[0]!.request(report);
    const [replies, aborts] = [REPLIED, WAS_ABORTED].map((end) => ends.filter((each) => each === end).length);
    const doubled = times.filter((count, i) => count > 1 || (ends[i] === REPLIED && count !== 1)).length;
    await Promise.all(all.map((each) => each.close()));
    return { replies: replies!, aborts: aborts!, wrong, doubled, seconds };
  } finally {
    child.kill();
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      requests: { type: 'string', default: '1000000' },
      connections: { type: 'string', default: '64' },
      under: { type: 'string', default: '1024' },
      engine: { type: 'string', default: 'thread' },
      seed: { type: 'string', default: '1' },
    },
  });
  const requests = Number(values.requests);
  const ends = await endureRequests({
    requests,
    connections: Number(values.connections),
    under: Number(values.under),
    engine: values.engine as EngineKind,
    seed: Number(values.seed),
  });
  console.log(JSON.stringify(ends));
  const fine = ends.replies + ends.aborts === requests && ends.wrong + ends.doubled === 0;
  console.log(fine ? 'each ended once' : 'FAILED');
  return fine ? 0 : 1;
}

if (process.argv[1] === FILE) {
  if (process.argv[2] === 'serve') await serve(process.argv[3] as EngineKind, Number(process.argv[4]));
  else process.exit(await main());
}
