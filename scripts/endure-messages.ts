/**
 * Messages of every size to a pool of slow readers in another process, each checked by its CRC-32: whether
 * all arrive whole and in order, and whether memory stays flat.
 *
 *   npx tsx scripts/endure-messages.ts [--most BYTES] [--pool BYTES] [--readers N] [--rounds N] [--engine E]
 *
 * In each round one connection sends sizes up to `--most` (1 GiB), each power of two and its neighbours from
 * 1 byte on, and the others sizes up to `--pool` (16 MiB). A reader holds each message for up to 20 ms. The
 * status is 1 if a byte is wrong, or if a round of the second half needs more than a quarter more memory than
 * all of the first.
 */
import { fork } from 'node:child_process';
import { randomFillSync } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { crc32 } from 'node:zlib';
import { seededRandom } from '../src/base/random.ts';
import { connect, createServer, type Connection, type EngineKind } from '../src/index.ts';
import { loaderFor } from './loader.ts';

const HOST = '127.0.0.1';
const FILE = fileURLToPath(import.meta.url);
/** Bytes of large messages that one connection of a reader may hold. */
const ROOM = 64 << 20;
const MEBI = 1 << 20;

const mebi = (octets: number): string => `${Math.round(octets / MEBI)} MiB`;

/** Length and CRC-32 of a message. */
type Sum = readonly [length: number, crc: number];

interface Options {
  readonly most: number;
  readonly pool: number;
  readonly readers: number;
  readonly rounds: number;
  readonly engine: EngineKind;
  /** This file, or the same in plain JavaScript. */
  readonly file?: string;
}

async function attend(connection: Connection): Promise<void> {
  const sums: Sum[] = [];
  void connection.serve(() => JSON.stringify(sums.splice(0))).catch(() => undefined);
  for await (const message of connection) {
    sums.push([message.data.length, crc32(message.data)]);
    await pause(Math.random() * 20);
    message.release();
  }
}

/** The readers: the other end of every connection. */
async function read(engine: EngineKind, most: number): Promise<void> {
  const server = await createServer(
    { engine, maxLargeMessage: most, largeMessageMemory: Math.min(ROOM, most) },
    (connection) => void attend(connection).catch(() => undefined),
  ).listen({ host: HOST, port: 0 });
  let peak = 0;
  setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 20);
  process.on('message', () => {
    process.send!(peak);
    peak = 0;
  });
  process.send!(server.address().port);
}

/** Each power of two up to `most` and its neighbours. */
function sizesUpTo(most: number): number[] {
  const sizes = new Set([most]);
  for (let size = 1; size < most; size *= 2)
    for (const near of [size - 1, size, size + 1]) if (near >= 1 && near < most) sizes.add(near);
  return [...sizes];
}

/** Above this, powers of two alone: their neighbours need as much memory and say no more. */
const WITH_NEIGHBOURS = 4 * MEBI;

async function sendAll(connection: Connection, source: Buffer, most: number, seed: number): Promise<number> {
  const random = seededRandom(seed);
  const sizes = sizesUpTo(most).filter(
    (size) => size <= WITH_NEIGHBOURS || Number.isInteger(Math.log2(size)),
  );
  const expected: Sum[] = [];
  let octets = 0;
  const underWay: Promise<void>[] = [];
  for (const size of sizes.toSorted(() => (random() % 2) - 0.5)) {
    const from = random() % (source.length - size + 1);
    const data = source.subarray(from, from + size);
    expected.push([size, crc32(data)]);
    octets += size;
    underWay.push(connection.send(data));
    if (underWay.length === 8) await underWay.shift();
  }
  await Promise.all(underWay);
  const got: Sum[] = [];
  for (let i = 0; got.length < expected.length && i < 1000; i++) {
    got.push(...(JSON.parse(String(await connection.request('sums'))) as Sum[]));
    if (got.length < expected.length) await pause(20);
  }
  const wrong = expected.findIndex(([length, crc], i) => got[i]?.[0] !== length || got[i]?.[1] !== crc);
  if (wrong >= 0 || got.length !== expected.length)
    throw new Error(`message ${wrong} of ${expected.length}: sent ${expected[wrong]}, came ${got[wrong]}`);
  return octets;
}

/** Resolves with the peak of the readers' memory in each round, in bytes. */
export async function endureMessages(options: Options): Promise<number[]> {
  const { most, pool, readers, rounds, engine, file = FILE } = options;
  const child = fork(file, ['read', engine, String(most)], { execArgv: loaderFor(file) });
  try {
    const [port] = (await once(child, 'message')) as [number];
    const source = Buffer.alloc(most);
    for (let at = 0; at < most; at += 64 * MEBI) randomFillSync(source, at, Math.min(64 * MEBI, most - at));
    const connections = await Promise.all(
      Array.from({ length: readers }, () => connect({ host: HOST, port, engine })),
    );
    const peaks: number[] = [];
    for (let round = 0; round < rounds; round++) {
      const began = performance.now();
      const sent = await Promise.all(
        connections.map((each, i) => sendAll(each, source, i === 0 ? most : pool, round * readers + i)),
      );
      child.send('peak');
      const [peak] = (await once(child, 'message')) as [number];
      peaks.push(peak);
      const octets = sent.reduce((sum, each) => sum + each, 0);
      const seconds = (performance.now() - began) / 1000;
      console.log(
        `round ${round}: ${Math.round(octets / MEBI)} MiB in ${seconds.toFixed(1)} s, all sums right; ` +
          `readers at most ${mebi(peak)}, this side ${mebi(process.memoryUsage.rss())}`,
      );
    }
    await Promise.all(connections.map((each) => each.close()));
    return peaks;
  } finally {
    child.kill();
  }
}

/** Whether no round of the second half needed much more than those of the first. */
export function isFlat(peaks: readonly number[]): boolean {
  const half = peaks.length >> 1;
  return Math.max(...peaks.slice(half)) <= 1.25 * Math.max(...peaks.slice(0, half));
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      most: { type: 'string', default: String(2 ** 30) },
      pool: { type: 'string', default: String(16 * MEBI) },
      readers: { type: 'string', default: '16' },
      rounds: { type: 'string', default: '6' },
      engine: { type: 'string', default: 'thread' },
    },
  });
  const [most, pool, readers, rounds] = [values.most, values.pool, values.readers, values.rounds].map(Number);
  const engine = values.engine as EngineKind;
  const peaks = await endureMessages({
    most: most!,
    pool: pool!,
    readers: readers!,
    rounds: rounds!,
    engine,
  });
  console.log(isFlat(peaks) ? 'memory is flat' : 'FAILED: memory grows');
  return isFlat(peaks) ? 0 : 1;
}

if (process.argv[1] === FILE) {
  if (process.argv[2] === 'read') await read(process.argv[3] as EngineKind, Number(process.argv[4]));
  else process.exit(await main());
}
