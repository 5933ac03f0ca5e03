/**
 * Framer and deframer without sockets: FPDUs of several sizes, with and without CRC and markers, cut as a socket cuts them and as a hostile
 * peer does. The figure is the best of many short runs, which hardly moves when the machine is busy.
 *
 * Run compiled, with plain node: `node dist/bench/micro/codec.js`.
 */
import { FINE } from '../../src/base/terminate-codes.ts';
import { copyBytes } from '../../src/base/copy.ts';
import { defaultCrc32cEngine } from '../../src/crc32c/engine.ts';
import { createDeframer, FreeListSlabPool, type Deframer } from '../../src/mpa/deframer.ts';
import { createFramer, type Framer } from '../../src/mpa/framer.ts';
import { createStage } from '../../src/mpa/stage.ts';

const engine = defaultCrc32cEngine();
const READ_OCTETS = 65_536;
const STREAM_OCTETS = 4 << 20;
const RUNS = 25;

interface Setting {
  readonly crc: boolean;
  readonly markers: boolean;
  /** Markers by WebAssembly, and reads behind the held beginning: off shows what they bring. */
  readonly fast: boolean;
}

const user = new Uint8Array(1 << 20).fill(9);
const target = new Uint8Array(1 << 20);

/** The sink does what placement does: one copy. */
const sink = {
  ulpdus: 0,
  handleUlpdu(bytes: Uint8Array, start: number, length: number): number {
    sink.ulpdus++;
    copyBytes(bytes, start, target, 0, length);
    return FINE;
  },
};

function framerOf(s: Setting): Framer {
  return createFramer(s.markers, s.crc ? engine : null, s.fast ? (engine.runs ?? null) : null);
}

function deframerOf(s: Setting): Deframer {
  const pool = new FreeListSlabPool((octets) => engine.allocate(octets));
  return createDeframer(s.markers, s.crc ? engine : null, sink, pool, s.fast ? (engine.runs ?? null) : null);
}

const stage = createStage(engine.allocate(70_000));

function frame(framer: Framer, ulpdu: number): void {
  stage.clear();
  framer.begin(stage);
  copyBytes(user, 0, framer.bytes, framer.ulpdu, ulpdu);
  framer.finish(stage, ulpdu);
}

/** About `octets` of FPDUs. */
function streamOf(s: Setting, ulpdu: number, octets: number): Uint8Array {
  const framer = framerOf(s);
  const parts: Uint8Array[] = [];
  for (let n = 0; n < octets; ) {
    frame(framer, ulpdu);
    parts.push(stage.bytes.slice(0, stage.end));
    n += stage.end;
  }
  return Buffer.concat(parts);
}

/** Best nanoseconds of `RUNS` runs. */
function best(run: () => void): number {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < RUNS; i++) {
    const start = process.hrtime.bigint();
    run();
    least = Math.min(least, Number(process.hrtime.bigint() - start));
  }
  return least;
}

function sendCost(s: Setting, ulpdu: number): number {
  const framer = framerOf(s);
  const count = Math.max(1, Math.floor(STREAM_OCTETS / (ulpdu + 24)));
  return best(() => {
    for (let i = 0; i < count; i++) frame(framer, ulpdu);
  }) / (count * ulpdu);
}

const reads = engine.allocate(READ_OCTETS);

/** As the TCP port does it: what a read brings lies in the shared buffer, or where the deframer wanted it. The copy that stands for it is paid by both. */
function receive(deframer: Deframer, stream: Uint8Array, cut: number, fast: boolean): void {
  for (let at = 0; at < stream.length; ) {
    const into = (fast ? deframer.readTarget() : null) ?? reads;
    const n = Math.min(cut, into.length, stream.length - at);
    into.set(stream.subarray(at, at + n));
    if (deframer.handleBytes(into, 0, n) !== FINE) throw new Error('a good stream was refused');
    at += n;
  }
}

function receiveCost(s: Setting, ulpdu: number, cut: number, octets: number): number {
  const stream = streamOf(s, ulpdu, octets);
  return best(() => receive(deframerOf(s), stream, cut, s.fast)) / stream.length;
}

const SIZES = [64, 1446, 8192, 32_768, 64_768] as const;
const SETTINGS: readonly [string, Setting][] = [
  ['plain', { crc: false, markers: false, fast: true }],
  ['plain, straddling copied', { crc: false, markers: false, fast: false }],
  ['CRC', { crc: true, markers: false, fast: true }],
  ['markers', { crc: false, markers: true, fast: true }],
  ['markers in JavaScript', { crc: false, markers: true, fast: false }],
  ['CRC, markers', { crc: true, markers: true, fast: true }],
];

const row = (label: string, cells: readonly number[]): void => {
  console.log(label.padEnd(28) + cells.map((cell) => cell.toFixed(4).padStart(10)).join(''));
};

console.log(`ns an octet, best of ${RUNS}, by octets of the ULPDU`);
console.log(''.padEnd(28) + SIZES.map((size) => String(size).padStart(10)).join(''));
for (const [label, s] of SETTINGS) row(`send, ${label}`, SIZES.map((size) => sendCost(s, size)));
for (const [label, s] of SETTINGS) row(`receive, ${label}`, SIZES.map((size) => receiveCost(s, size, READ_OCTETS, STREAM_OCTETS)));

console.log('\nhostile cuts: ns an octet received, and how many times that of 64 KiB reads of 64768-octet ULPDUs');
const crc = { crc: true, markers: false, fast: true };
const easy = receiveCost(crc, 64_768, READ_OCTETS, STREAM_OCTETS);
const HOSTILE: readonly [string, number, number][] = [
  ['1-octet reads, 64768', 64_768, 1],
  ['1-octet reads, 14', 14, 1],
  ['7-octet reads, 1446', 1446, 7],
  ['64 KiB reads, 14 (empty Writes)', 14, READ_OCTETS],
  ['64 KiB reads, 15', 15, READ_OCTETS],
];
for (const [label, ulpdu, cut] of HOSTILE) {
  const cost = receiveCost(crc, ulpdu, cut, cut < 64 ? 256 << 10 : 1 << 20);
  console.log(label.padEnd(34) + cost.toFixed(3).padStart(9) + (cost / easy).toFixed(0).padStart(7));
}
