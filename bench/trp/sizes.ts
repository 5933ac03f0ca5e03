/**
 * Figures 6 and 7 of the paper USIW: latency of Sends, Writes and Reads over sizes, and throughput of Writes
 * with one and with 128 in flight, by our perftest programs, iWARP over UDP beside iWARP over TCP, and beside
 * bare datagrams up to the size that one can have. Servers run in another process; the wires take turns.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { perftest } from '../../cli/perftest.ts';
import type { Kind, Verb } from '../../cli/perftest/program.ts';
import type { ToolIo } from '../../cli/support/tool.ts';
import { bufferOctets } from '../../src/trp/packet.ts';
import { median } from '../stats.ts';
import { awake, bare } from './rows.ts';

/** The sizes of both figures, bytes. */
export const SIZES: readonly number[] = [2, 64, 1024, 4096, 65_536, 1 << 20, 8 << 20];
const LATENCY_BYTES = 16 << 20;
const RATE_BYTES = 64 << 20;
/** Longest datagram of the bare rows; beyond about 8 KiB without flow control many are lost. */
const BARE_BYTES = 8192;
const BARE_WINDOW = 32;
/** Octets of a receive buffer that bare datagrams may take: what overflows it is not sent again. */
const BARE_BUFFER = 196_608;
export const WIRES = ['trp', 'iwarp'] as const;
type Wire = (typeof WIRES)[number];

/** The program and its arguments, asked of the other process. */
export interface ServerWish {
  readonly verb: Verb;
  readonly kind: Kind;
  readonly args: readonly string[];
}

const clamp = (value: number, low: number, high: number): number =>
  Math.min(high, Math.max(low, Math.round(value)));

function quiet(more: Partial<ToolIo> & { out?: (text: string) => void } = {}): ToolIo {
  return { out: () => undefined, err: (text) => void process.stderr.write(text), ...more };
}

/** In the other process: start a server, and report its port. */
export function serveWish({ verb, kind, args }: ServerWish): void {
  const io = quiet({
    err: (text) => /listening on/.test(text) || process.stderr.write(text),
    listening: (port) => process.send!({ port }),
  });
  void perftest(verb, kind)([...args, '-p', '0'], io);
}

/** The columns of the figures that the client has printed. */
async function measure(
  peer: ChildProcess,
  verb: Verb,
  kind: Kind,
  args: readonly string[],
): Promise<number[]> {
  peer.send({ verb, kind, args } satisfies ServerWish);
  const [{ port }] = (await once(peer, 'message')) as [{ readonly port: number }];
  let said = '';
  const io = quiet({ out: (text) => void (said += text) });
  const status = await perftest(verb, kind)(['127.0.0.1', '-p', String(port), ...args], io);
  const row = said.split('\n').find((line) => /^ \d/.test(line));
  if (status !== 0 || row === undefined) throw new Error(`${verb}_${kind} ${args.join(' ')}: ${said}`);
  return row.trim().split(/\s+/).map(Number);
}

interface Latency {
  readonly typical: number;
  readonly p99: number;
}

export async function latency(peer: ChildProcess, verb: Verb, wire: Wire, size: number): Promise<Latency> {
  const iterations = clamp(LATENCY_BYTES / size, 20, 5000);
  const args = ['--wire', wire, '--crc', 'off', '-s', String(size), '-n', String(iterations)];
  const [, , , , typical, , , p99] = await measure(peer, verb, 'lat', args);
  return { typical: typical!, p99: p99! };
}

/** MB/s of Writes with this many in flight. */
export async function rate(peer: ChildProcess, wire: Wire, size: number, depth: number): Promise<number> {
  const iterations = clamp(RATE_BYTES / size, 16, depth === 1 ? 5000 : 50_000);
  const args = [
    '--wire',
    wire,
    '--crc',
    'off',
    '-s',
    String(size),
    '-n',
    String(iterations),
    '-t',
    String(depth),
  ];
  const [, , , average] = await measure(peer, 'write', 'bw', [...args, '-N', '-Q', depth === 1 ? '1' : '16']);
  return (average! * 1_048_576) / 1e6;
}

// ------------------------------------------------------------------------------------------------------ bare

/** Microseconds of half a round trip. */
export async function bareLatency(port: number, size: number): Promise<number> {
  const rounds = clamp(LATENCY_BYTES / size, 20, 5000);
  const times: number[] = [];
  let began = 0;
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const data = Buffer.alloc(size);
  const send = (): void => {
    began = performance.now();
    socket.send(data, port, '127.0.0.1');
  };
  const socket = awake(bare(), () => {
    times.push(performance.now() - began);
    if (times.length < rounds) send();
    else done();
  });
  send();
  await finished;
  socket.close();
  return (times.toSorted((a, b) => a - b)[rounds >> 1]! * 1000) / 2;
}

/** Half of the bare datagrams of this length that may be out. */
const halfWindow = (octets: number): number =>
  Math.min(BARE_WINDOW, Math.floor(BARE_BUFFER / bufferOctets(octets))) >> 1;

/** MB/s in datagrams of at most 8 KiB; the sink answers each half of a window with one byte. */
export async function bareRate(port: number, size: number): Promise<number> {
  const octets = Math.min(size, BARE_BYTES);
  const half = halfWindow(octets);
  const count = clamp(RATE_BYTES / octets, BARE_WINDOW, 50_000);
  const data = Buffer.alloc(octets);
  let [sent, answered] = [0, 0];
  let done = (): void => undefined;
  const finished = new Promise<void>((resolve) => (done = resolve));
  const socket = awake(bare(), () => {
    answered += half;
    if (answered >= count) done();
    else more();
  });
  const more = (): void => {
    for (; sent < answered + 2 * half; sent++) socket.send(data, port, '127.0.0.1');
  };
  const began = performance.now();
  more();
  await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, 10_000).unref())]);
  const taken = performance.now() - began;
  socket.close();
  return (answered * octets) / taken / 1000;
}

/** In the other process: a sink that answers each half of a window; its port. */
export async function serveSink(): Promise<number> {
  let count = 0;
  let peer = 0;
  const sink = awake(bare(), ({ length }, port) => {
    if (port !== peer) [peer, count] = [port, 0];
    if (++count % halfWindow(length) === 0) sink.send('a', port, '127.0.0.1');
  });
  await new Promise<void>((resolve) => void sink.bind(0, '127.0.0.1', resolve));
  return sink.address().port;
}

// ---------------------------------------------------------------------------------------------------- tables

const cell = (value: number, digits = 1): string =>
  (Number.isNaN(value) ? '–' : value.toFixed(digits)).padStart(10);
const sizeText = (size: number): string =>
  size < 1024 ? `${size} B` : size < 1 << 20 ? `${size >> 10} KiB` : `${size >> 20} MiB`;

/** Figure 6: microseconds; half a round trip, a whole one for Reads. */
export async function figure6(peer: ChildProcess, echo: number, rounds: number): Promise<void> {
  console.log('\nUSIW figure 6: latency, us (median; p99 to median)');
  console.log('           size       trp       p99       tcp       p99     dgram    to tcp  to dgram');
  for (const verb of ['send', 'write', 'read'] as const) {
    for (const size of SIZES) {
      const runs: Record<Wire, Latency[]> = { trp: [], iwarp: [] };
      const datagrams: number[] = [];
      for (let round = 0; round < rounds; round++) {
        for (const wire of WIRES) runs[wire].push(await latency(peer, verb, wire, size));
        if (size < 65_000 && verb !== 'read') datagrams.push(await bareLatency(echo, size));
      }
      const [trp, tcp] = WIRES.map((wire) => ({
        typical: median(runs[wire].map(({ typical }) => typical)),
        jitter: median(runs[wire].map(({ typical, p99 }) => p99 / typical)),
      }));
      const ratio = (other: readonly number[]): number =>
        median(other.map((value, i) => runs.trp[i]!.typical / value));
      const cells = [trp!.typical, trp!.jitter, tcp!.typical, tcp!.jitter, median(datagrams)].map((one) =>
        cell(one),
      );
      const toTcp = ratio(runs.iwarp.map(({ typical }) => typical));
      const ratios = [toTcp, ratio(datagrams)].map((one) => cell(one, 2));
      console.log(`${verb.padEnd(6)} ${sizeText(size).padStart(8)} ${cells.join('')}${ratios.join('')}`);
    }
  }
}

/** Figure 7: MB/s of Writes. */
export async function figure7(peer: ChildProcess, sink: number, rounds: number): Promise<void> {
  console.log('\nUSIW figure 7: Writes, MB/s, with 1 and with 128 in flight');
  console.log(
    '    size      trp 1    trp 128  128 to 1      tcp 1    tcp 128  128 to 1     dgram  trp to tcp',
  );
  for (const size of SIZES) {
    const runs: Record<string, number[]> = { bare: [] };
    for (let round = 0; round < rounds; round++) {
      for (const wire of WIRES)
        for (const depth of [1, 128])
          (runs[`${wire} ${depth}`] ??= []).push(await rate(peer, wire, size, depth));
      runs['bare']!.push(await bareRate(sink, size));
    }
    const of = (name: string, to?: string): number =>
      median(runs[name]!.map((value, i) => (to === undefined ? value : value / runs[to]![i]!)));
    const cells = WIRES.flatMap((wire) => [
      cell(of(`${wire} 1`)),
      cell(of(`${wire} 128`)),
      cell(of(`${wire} 128`, `${wire} 1`)),
    ]);
    const last = [cell(of('bare')), cell(of('trp 128', 'iwarp 128'), 2)];
    console.log(`${sizeText(size).padStart(8)} ${[...cells, ...last].join('')}`);
  }
}
