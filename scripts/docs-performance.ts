/**
 * Writes the figures of docs/performance.md and README.md from bench/baseline.json, which `iwarp bench --full --save-baseline` has made, so that none is
 * typed by hand:
 *
 *     npx tsx scripts/docs-performance.ts
 *
 * With `--check` nothing is written, and the status is 1 if the page is out of date.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { Baseline, BaselineRun } from '../bench/compare.ts';
import { figureText, goalsMarkdown } from '../bench/goals.ts';
import { between } from './marked.ts';

const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
export const PERFORMANCE_PAGE: string = path('docs/performance.md');
export const README: string = path('README.md');
const BASELINE = path('bench/baseline.json');
const MARKS = ['<!-- goals: made by scripts/docs-performance.ts from bench/baseline.json -->', '<!-- end of the goals -->'] as const;

const README_MARKS = ['<!-- figures: made by scripts/docs-performance.ts from bench/baseline.json -->', '<!-- end of the figures -->'] as const;

/** What a reader of the README wants to know, and the goals that say it. */
const SHORT: readonly (readonly [what: string, ids: readonly string[], text: (...figures: string[]) => string])[] = [
  ['RDMA Writes of 1 MiB, GB/s', ['write-off', 'write-on'], (off, on) => `${off} of bare \`node:net\` without CRC, ${on} with CRC32c`],
  ['the same with CRC32c', ['ws', 'grpc'], (ws, grpc) => `${ws} times ws, ${grpc} times grpc-js`],
  ['Writes of 4 KiB and of 64 octets, messages a second, with CRC32c', ['small-on', 'rate'], (small, rate) => `${small} and ${rate} times one bare write each`],
  ['a round trip of 64 octets, with CRC32c', ['latency'], (trip) => `${trip} of bare \`node:net\``],
  ['CRC32c of 64 KiB in WebAssembly', ['crc-64k', 'crc-native'], (js, native) => `${js} times the package crc-32, ${native} times the native fast-crc32c`],
  ['a Read of a server whose main thread computes, engine in a worker', ['busy'], (p99) => `99th percentile ${p99} of that of an idle server`],
];

/** The machine's words that matter for a figure. */
const MACHINE = ['CPU', 'memory', 'system', 'runtime', 'CRC32c engine'] as const;

function text(run: BaselineRun | undefined): string {
  if (run === undefined) return 'No full run has been kept yet.';
  const { started, seconds, machine, goals } = run;
  const count = (verdict: string): number => goals.filter((goal) => goal.verdict === verdict).length;
  return [
    `Full run of ${started.slice(0, 16).replace('T', ' ')} UTC, ${Math.round(seconds / 60)} minutes: ${MACHINE.flatMap((name) => (machine[name] === undefined ? [] : [name === 'CRC32c engine' ? `${name} ${machine[name]}` : machine[name]])).join('; ')}.`,
    `${count('met')} of ${goals.length} goals met, ${count('in the spread')} with the goal inside the quartiles, ${count('missed')} missed, ${count('not measured')} not measured.`,
    'A star: other programs or the host took part of the machine meanwhile.', '',
    goalsMarkdown(goals),
  ].join('\n');
}

/** `page` with the figures of the run that was kept, if there is one. */
export function withFigures(page: string, run: BaselineRun | undefined): string {
  return between(page, 'docs/performance.md', MARKS, text(run));
}

/** The README with the figures of the run that was kept. */
export function withShortFigures(page: string, run: BaselineRun | undefined): string {
  const figure = (id: string): string => figureText(run?.goals.find((goal) => goal.id === id)?.figure ?? null);
  const rows = SHORT.map(([what, ids, text]) => `| ${what} | ${text(...ids.map(figure))} |`);
  return between(page, 'README.md', README_MARKS, ['| | ratio in one run, over loopback, median |', '|---|---|', ...rows].join('\n'));
}

/** The run that bench/baseline.json was made of. */
export function keptRun(): BaselineRun | undefined {
  return existsSync(BASELINE) ? (JSON.parse(readFileSync(BASELINE, 'utf8')) as Baseline).run : undefined;
}

function main(): number {
  const { values } = parseArgs({ options: { check: { type: 'boolean' } } });
  let status = 0;
  for (const [file, made] of [[PERFORMANCE_PAGE, withFigures], [README, withShortFigures]] as const) {
    const is = readFileSync(file, 'utf8');
    const shouldBe = made(is, keptRun());
    if (is === shouldBe) continue;
    if (values.check !== true) writeFileSync(file, shouldBe);
    else {
      process.stderr.write(`${file} is out of date: npx tsx scripts/docs-performance.ts\n`);
      status = 1;
    }
  }
  return status;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main();
