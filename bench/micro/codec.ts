/**
 * Framer and deframer without sockets: FPDUs of several sizes, with and without CRC and markers, cut as a
 * socket cuts them and as a hostile peer does. The figure is the best of many short runs, which hardly moves
 * when the machine is busy.
 *
 * Run compiled, with plain node: `node dist/bench/micro/codec.js`.
 */
import { frame, framerOf, deframerOf, READ_OCTETS, receive, streamOf, type Setting } from './framing.ts';

const STREAM_OCTETS = 4 << 20;
const RUNS = 25;

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
  return (
    best(() => {
      for (let i = 0; i < count; i++) frame(framer, ulpdu);
    }) /
    (count * ulpdu)
  );
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
for (const [label, s] of SETTINGS)
  row(
    `send, ${label}`,
    SIZES.map((size) => sendCost(s, size)),
  );
for (const [label, s] of SETTINGS)
  row(
    `receive, ${label}`,
    SIZES.map((size) => receiveCost(s, size, READ_OCTETS, STREAM_OCTETS)),
  );

console.log(
  '\nhostile cuts: ns an octet received, and how many times that of 64 KiB reads of 64768-octet ULPDUs',
);
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
