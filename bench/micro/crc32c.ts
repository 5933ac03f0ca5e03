/**
 * How fast the CRC32c engines are (src/crc32c), in place and on memory that is not theirs.
 *
 * Run compiled, with plain node: `node dist/bench/micro/crc32c.js [rounds]`. Every round measures every
 * engine at every size once, one after the other, so that a slow phase of the machine meets all of them; the
 * ratio to `crc-32` is taken inside a round. Printed is the median over the rounds.
 */
import { availableCrc32cEngines, createCrc32cEngine } from '../../src/crc32c/engine.ts';
import type { Crc32cEngine } from '../../src/crc32c/engine.ts';
import { median } from '../stats.ts';

const SIZES = [64, 256, 1460, 4096, 16_384, 65_536, 1 << 20] as const;
const LARGEST = Math.max(...SIZES);
/** How long one measurement takes: long against the clock's step, short against a slow phase. */
const SLICE_MS = 8;
const BASE = 'crc-32';

interface Case {
  readonly label: string;
  readonly run: (octets: number) => number;
  /** Calls in a slice, by size. */
  readonly calls: Map<number, number>;
  /** GB/s, by size, one a round. */
  readonly speeds: Map<number, number[]>;
}

/** Results end up here, so that no loop is optimised away. */
let sink = 0;

function newCase(label: string, engine: Crc32cEngine, bytes: Uint8Array): Case {
  // Deliberately not at the start of a cache line: payloads are where they are.
  const run = (octets: number): number => engine.update(0, bytes, 20, 20 + octets);
  return { label, run, calls: new Map(), speeds: new Map(SIZES.map((size) => [size, []])) };
}

function pattern(bytes: Uint8Array): Uint8Array {
  for (let i = 0, x = 1; i < bytes.length; i++, x = Math.imul(x, 0x9e3779b1) + 1) bytes[i] = x >>> 24;
  return bytes;
}

/** Seconds that `calls` calls take. */
function time(run: (octets: number) => number, octets: number, calls: number): number {
  const start = process.hrtime.bigint();
  for (let i = 0; i < calls; i++) sink ^= run(octets);
  return Number(process.hrtime.bigint() - start) / 1e9;
}

/** Warm up, and find how many calls fill a slice. */
function calibrate(one: Case): void {
  for (const size of SIZES) {
    let calls = 1;
    while (time(one.run, size, calls) * 1000 < SLICE_MS) calls *= 2;
    one.calls.set(size, calls);
  }
}

function measure(rounds: number): Case[] {
  const cases = availableCrc32cEngines().flatMap((name) => {
    const engine = createCrc32cEngine(name);
    const own = newCase(name, engine, pattern(engine.allocate(LARGEST + 64)));
    if (name !== 'simd' && name !== 'wasm') return [own];
    return [own, newCase(`${name}, copied in`, engine, pattern(new Uint8Array(LARGEST + 64)))];
  });
  cases.forEach(calibrate);
  for (let round = 0; round < rounds; round++) {
    for (const size of SIZES) {
      for (const { run, calls, speeds } of cases) {
        const count = calls.get(size) ?? 1;
        speeds.get(size)?.push((count * size) / 1e9 / time(run, size, count));
      }
    }
  }
  return cases;
}

function print(title: string, cases: readonly Case[], cell: (one: Case, size: number) => string): void {
  console.log(title.padEnd(24) + SIZES.map((size) => String(size).padStart(9)).join(''));
  for (const one of cases)
    console.log(one.label.padEnd(24) + SIZES.map((size) => cell(one, size).padStart(9)).join(''));
  console.log('');
}

const rounds = Math.max(1, Number(process.argv[2] ?? 15));
const cases = measure(rounds);
const base = cases.find((one) => one.label === BASE);
const speedsOf = (one: Case, size: number): readonly number[] => one.speeds.get(size) ?? [];

print(`GB/s, median of ${rounds}`, cases, (one, size) => median(speedsOf(one, size)).toFixed(2));
print(`ratio to ${BASE}`, cases, (one, size) => {
  const bases = base === undefined ? [] : speedsOf(base, size);
  return median(speedsOf(one, size).map((speed, round) => speed / (bases[round] ?? Number.NaN))).toFixed(2);
});
if (sink === 1) console.log('');
