/**
 * Rows of the paper on extended sockets (OSU): `npx tsx bench/extended.ts [ROUNDS] [pass-through|gather]...`.
 * Pass-through is an extended socket that has not been switched, beside `node:net`: ping-pong of 1 byte to
 * 64 KiB and streams in writes of 64 bytes to 1 MiB. Gather is one message in 1, 2, 4 or 8 pieces, copied
 * into the transmit buffer, lent to one writev, or corked, beside the same message in one piece. Both ends
 * are in this process, over loopback, CRC off; rounds take turns among the subjects, and a ratio is the
 * median of those within a round.
 */
import { once } from 'node:events';
import {
  connect as connectNet,
  createServer as createNetServer,
  type AddressInfo,
  type Socket,
} from 'node:net';
import { fileURLToPath } from 'node:url';
import { RemoteBuffer } from '../src/index.ts';
import { connectExtended, createExtendedServer, ExtendedSocket, type Gather } from '../src/sockets/index.ts';
import { median } from './stats.ts';

const KIB = 1024;
const MIB = KIB * KIB;
const TRIPS = 1500;
const STREAM_OCTETS = 64 * MIB;
/** Small writes are many: a stream of 64-byte writes is cut here. */
const MOST_WRITES = 100_000;
const TRIP_SIZES: readonly number[] = [1, 64, KIB, 4 * KIB, 16 * KIB, 64 * KIB];
const STREAM_SIZES: readonly number[] = [64, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB];
const PIECE_SIZES: readonly number[] = [64, KIB, 8 * KIB, 64 * KIB];
const PIECES: readonly number[] = [1, 2, 4, 8];
const GATHERS: readonly Gather[] = ['copy', 'lend', 'cork'];
/** Messages under way, and bytes that a cell of the gather rows moves. */
const WINDOW = 16;
const GATHER_OCTETS = 64 * MIB;
const MOST_MESSAGES = 20_000;

/** One cell: a figure, and its ratio to the baseline of its row. */
interface ExtendedFigure {
  readonly row: string;
  readonly subject: string;
  /** Microseconds of a round trip, or MB/s. */
  readonly value: number;
  readonly unit: 'us' | 'MB/s';
  /** Above 1 is better than the baseline. */
  readonly ratio: number;
  /** The same of the processor time of this process, which has both ends: steadier on a busy machine. */
  readonly cpuRatio: number;
}

/** One run: its figure, and the processor time in microseconds that it has taken. */
interface Sample {
  readonly value: number;
  readonly cpu: number;
}

async function sampled(run: () => Promise<number>): Promise<Sample> {
  const before = process.cpuUsage();
  const value = await run();
  const { user, system } = process.cpuUsage(before);
  return { value, cpu: user + system };
}

/** The figure of a subject from its samples and those of the baseline in the same rounds. */
function figureOf(
  row: string,
  subject: string,
  unit: ExtendedFigure['unit'],
  samples: readonly Sample[],
  base: readonly Sample[],
): ExtendedFigure {
  const ratios = samples.map(({ value }, i) =>
    unit === 'us' ? base[i]!.value / value : value / base[i]!.value,
  );
  return {
    row,
    subject,
    unit,
    value: median(samples.map(({ value }) => value)),
    ratio: median(ratios),
    cpuRatio: median(samples.map(({ cpu }, i) => base[i]!.cpu / cpu)),
  };
}

interface Pair {
  readonly here: Socket;
  readonly there: Socket;
  close(): void;
}

async function pairOver(kind: 'net' | 'extended'): Promise<Pair> {
  const options = { noDelay: true };
  const server = kind === 'net' ? createNetServer(options) : createExtendedServer(options);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const accepted = once(server, 'connection');
  const where = { port, host: '127.0.0.1', noDelay: true };
  const here = kind === 'net' ? connectNet(where) : connectExtended(where);
  const [there] = (await accepted) as [Socket];
  if (here.connecting) await once(here, 'connect');
  const close = (): void => {
    here.destroy();
    there.destroy();
    server.close();
  };
  return { here, there, close };
}

/** Microseconds of a round trip of `octets` bytes. */
async function trip({ here, there }: Pair, octets: number): Promise<number> {
  const message = Buffer.alloc(octets, 1);
  let [left, got, back] = [TRIPS, 0, 0];
  const echo = ({ length }: Buffer): void => {
    got += length;
    for (; got >= octets; got -= octets) there.write(message);
  };
  const began = performance.now();
  await new Promise<void>((resolve) => {
    const next = ({ length }: Buffer): void => {
      back += length;
      if (back < octets) return;
      back -= octets;
      if (--left > 0) {
        here.write(message);
        return;
      }
      here.off('data', next);
      there.off('data', echo);
      resolve();
    };
    there.on('data', echo);
    here.on('data', next);
    here.write(message);
  });
  return ((performance.now() - began) * 1000) / TRIPS;
}

/** MB/s of a stream in writes of `octets` bytes. */
async function stream({ here, there }: Pair, octets: number): Promise<number> {
  const message = Buffer.alloc(octets, 1);
  const writes = Math.min(MOST_WRITES, STREAM_OCTETS / octets);
  const total = writes * octets;
  const began = performance.now();
  await new Promise<void>((resolve) => {
    let [got, sent] = [0, 0];
    const take = ({ length }: Buffer): void => {
      got += length;
      if (got < total) return;
      there.off('data', take);
      resolve();
    };
    const pump = (): void => {
      while (sent < writes) {
        sent++;
        if (!here.write(message)) {
          here.once('drain', pump);
          return;
        }
      }
    };
    there.on('data', take);
    pump();
  });
  return total / 1e6 / ((performance.now() - began) / 1000);
}

/** Bytes of a message and of a write. */
interface PassThroughSizes {
  readonly trips?: readonly number[];
  readonly writes?: readonly number[];
}

/** Bytes of a piece, and pieces of a message. */
interface GatherSizes {
  readonly sizes?: readonly number[];
  readonly pieces?: readonly number[];
}

/** Extended sockets that have not been switched, beside `node:net`: the paper's figure 5. */
export async function passThrough(
  rounds: number,
  { trips = TRIP_SIZES, writes = STREAM_SIZES }: PassThroughSizes = {},
): Promise<ExtendedFigure[]> {
  const pairs = { net: await pairOver('net'), extended: await pairOver('extended') };
  const figures: ExtendedFigure[] = [];
  const measure = async (
    row: string,
    unit: ExtendedFigure['unit'],
    run: (pair: Pair) => Promise<number>,
  ): Promise<void> => {
    const samples: Record<keyof typeof pairs, Sample[]> = { net: [], extended: [] };
    for (let round = 0; round <= rounds; round++) {
      const order = round % 2 === 0 ? (['net', 'extended'] as const) : (['extended', 'net'] as const);
      for (const kind of order) {
        const sample = await sampled(() => run(pairs[kind]));
        if (round > 0) samples[kind].push(sample); // the first is to warm up
      }
    }
    for (const kind of ['net', 'extended'] as const)
      figures.push(figureOf(row, kind, unit, samples[kind], samples.net));
  };
  for (const size of trips) await measure(`round trip of ${size}`, 'us', (pair) => trip(pair, size));
  for (const size of writes) await measure(`writes of ${size}`, 'MB/s', (pair) => stream(pair, size));
  for (const pair of Object.values(pairs)) pair.close();
  return figures;
}

/** An end that has been switched, and a ticket to memory of the other one. */
interface Switched {
  readonly here: ExtendedSocket;
  readonly remote: RemoteBuffer;
  close(): void;
}

export async function switched(way: Gather): Promise<Switched> {
  const pair = await pairOver('extended');
  const { here, there } = pair as Pair & { here: ExtendedSocket; there: ExtendedSocket };
  const options = { gather: way, policy: { crc: 'off' as const } };
  await Promise.all([here.startRdma(options), there.startRdma(options)]);
  const remote = there.register(new Uint8Array(Math.max(...PIECE_SIZES) * Math.max(...PIECES)), 'read-write');
  return { here, remote, close: () => pair.close() };
}

/** MB/s of messages in `pieces` pieces of `octets` bytes each, until the last byte is in its place. */
export async function messages(
  { here, remote }: Switched,
  octets: number,
  pieces: number,
  all: number = GATHER_OCTETS,
): Promise<number> {
  const total = octets * pieces;
  const count = Math.min(MOST_MESSAGES, Math.ceil(all / total));
  const views = Array.from({ length: pieces }, (_, i) => new Uint8Array(octets).fill(i));
  const last = new Uint8Array(1);
  const began = performance.now();
  for (let [posted, done] = [0, 0]; done < count; done++) {
    while (posted < count && posted - done < WINDOW) here.postPut(views, remote, posted++);
    await here.completion(done);
  }
  await here.get(remote, last);
  return (count * total) / 1e6 / ((performance.now() - began) / 1000);
}

/** The three ways to gather a message, beside the same bytes in one piece. */
export async function gather(
  rounds: number,
  { sizes = PIECE_SIZES, pieces: counts = PIECES }: GatherSizes = {},
): Promise<ExtendedFigure[]> {
  const ends = new Map<Gather, Switched>();
  for (const way of GATHERS) ends.set(way, await switched(way));
  const figures: ExtendedFigure[] = [];
  for (const size of sizes) {
    for (const pieces of counts) {
      const cells: [string, Gather, number, number][] = GATHERS.map((way) => [way, way, size, pieces]);
      cells.push(['one piece', 'lend', size * pieces, 1]);
      const samples = new Map<string, Sample[]>(cells.map(([name]) => [name, []]));
      for (let round = 0; round <= rounds; round++) {
        for (const [name, way, octets, n] of round % 2 === 0 ? cells : cells.toReversed()) {
          const sample = await sampled(() => messages(ends.get(way)!, octets, n));
          if (round > 0) samples.get(name)!.push(sample);
        }
      }
      const base = samples.get('one piece')!;
      for (const [subject, list] of samples)
        figures.push(figureOf(`${pieces} x ${size}`, subject, 'MB/s', list, base));
    }
  }
  for (const end of ends.values()) end.close();
  return figures;
}

/** A table with a line for each row and two columns for each subject. */
export function extendedTable(figures: readonly ExtendedFigure[]): string {
  const rows = [...new Set(figures.map(({ row }) => row))];
  const subjects = [...new Set(figures.map(({ subject }) => subject))];
  const cell = (row: string, subject: string): string => {
    const figure = figures.find((each) => each.row === row && each.subject === subject);
    if (figure === undefined) return '| |';
    const { value, unit, ratio, cpuRatio } = figure;
    return `${value.toFixed(1)} ${unit} | ${ratio.toFixed(2)} | ${cpuRatio.toFixed(2)}`;
  };
  return [
    `| bytes | ${subjects.map((subject) => `${subject} | ratio | CPU ratio`).join(' | ')} |`,
    `|---|${subjects.map(() => '---|---|---|').join('')}`,
    ...rows.map((row) => `| ${row} | ${subjects.map((subject) => cell(row, subject)).join(' | ')} |`),
  ].join('\n');
}

const PARTS = { 'pass-through': passThrough, gather } as const;

async function main(args: readonly string[]): Promise<void> {
  const names = args.filter((arg): arg is keyof typeof PARTS => arg in PARTS);
  const rounds = Number(args.find((arg) => /^\d+$/.test(arg)) ?? 7);
  for (const name of names.length > 0 ? names : (Object.keys(PARTS) as (keyof typeof PARTS)[])) {
    console.log(`\n${name}, ${rounds} rounds\n`);
    console.log(extendedTable(await PARTS[name](rounds)));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv.slice(2));
