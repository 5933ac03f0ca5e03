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
import { isOurs } from '../bench/cases.ts';
import type { Baseline, BaselineRun } from '../bench/compare.ts';
import { sweeps } from '../bench/experiments.ts';
import { digits, figureText, goalsMarkdown } from '../bench/goals.ts';
import { octets } from '../bench/report/label.ts';
import { between } from './marked.ts';

const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
export const PERFORMANCE_PAGE: string = path('docs/performance.md');
export const README: string = path('README.md');
const BASELINE = path('bench/baseline.json');
/** The same of another kind of processor. */
const XEON_BASELINE = path('bench/baseline-xeon.json');
/** Bases of the part `layers`. */
const ONREAD = 'TCP, onread';
const DATA = "TCP, 'data'";
const MARKS = ['<!-- goals: made by scripts/docs-performance.ts from bench/baseline.json -->', '<!-- end of the goals -->'] as const;

const XEON_MARKS = ['<!-- goals: made by scripts/docs-performance.ts from bench/baseline-xeon.json -->', '<!-- end of the goals on a Xeon -->'] as const;
const LAYERS_MARKS = ['<!-- layers: made by scripts/docs-performance.ts from bench/baseline.json -->', '<!-- end of the layers -->'] as const;
const README_MARKS = ['<!-- figures: made by scripts/docs-performance.ts from bench/baseline.json -->', '<!-- end of the figures -->'] as const;

/** A ratio of the part `layers` at one size, as the baseline names it. */
const layer = (size: number, series: string, base: string): string => `layers/${size}/${series} : layers/${size}/${base}`;

/** What a reader of the README wants to know, and the goals, or the ratios of a part, that say it. */
const SHORT: readonly (readonly [what: string, ids: readonly string[], text: (...figures: string[]) => string])[] = [
  ['RDMA Writes of 1 MiB, GB/s', ['write-off', 'write-on'], (off, on) => `${off} of bare \`node:net\` without CRC, ${on} with CRC32c`],
  ['the same with CRC32c', ['ws', 'grpc'], (ws, grpc) => `${ws} times ws, ${grpc} times grpc-js`],
  ['Writes of 4 KiB and of 64 octets, messages a second, with CRC32c', ['small-on', 'rate'], (small, rate) => `${small} and ${rate} times one bare write each`],
  ['a round trip of 64 octets, with CRC32c', ['latency'], (trip) => `${trip} of bare \`node:net\``],
  ['awaited calls of the promise layer, 64 octets, 64 loops', [layer(64, 'Promises, Write', 'ws'), layer(64, 'Promises, Send', 'ws')], (write, send) => `Writes ${write} times, Sends ${send} times messages of ws`],
  ['byte streams, writes of 64 KiB', [layer(65_536, 'Byte stream, onread', DATA), layer(65_536, "Byte stream, 'data'", DATA)], (onread, data) => `${onread} of a \`node:net\` socket with 'data' events where read with \`onread\`, ${data} with 'data' events`],
  ['CRC32c of 64 KiB in WebAssembly', ['crc-64k', 'crc-native'], (js, native) => `${js} times the package crc-32, ${native} times the native fast-crc32c`],
  ['a Read of a server whose main thread computes, engine in a worker', ['busy'], (p99) => `99th percentile ${p99} of that of an idle server`],
];

/** The machine's words that matter for a figure. */
const MACHINE = ['CPU', 'memory', 'system', 'runtime', 'CRC32c engine'] as const;

function text(run: BaselineRun | undefined, limits = true): string {
  if (run === undefined) return 'No full run has been kept yet.';
  const { started, seconds, machine, goals } = run;
  const count = (verdict: string): number => goals.filter((goal) => goal.verdict === verdict).length;
  return [
    `Full run of ${started.slice(0, 16).replace('T', ' ')} UTC, ${Math.round(seconds / 60)} minutes: ${MACHINE.flatMap((name) => (machine[name] === undefined ? [] : [name === 'CRC32c engine' ? `${name} ${machine[name]}` : machine[name]])).join('; ')}.`,
    `${count('met')} of ${goals.length} goals met, ${count('in the spread')} with the goal inside the quartiles, ${count('missed')} missed, ${count('not measured')} not measured.`,
    'A star: other programs or the host took part of the machine meanwhile.', '',
    goalsMarkdown(goals, limits),
  ].join('\n');
}

/** What has been kept of a run. */
export type Kept = Pick<Baseline, 'ratios' | 'run'>;

/** Each layer against bare sockets and ws, by size. */
function layers(ratios: Baseline['ratios']): string {
  const cases = sweeps().find(({ id }) => id === 'layers')!.groups.flatMap((group) => group.cases.filter(({ spec }) => isOurs(spec)));
  const sizes = [...new Set(cases.map(({ x }) => x))];
  const lines = [...new Set(cases.map(({ series }) => series))];
  const against = (size: number, series: string): string => [ONREAD, DATA, 'ws'].map((base) => ratioText(ratios, layer(size, series, base))).join(' / ');
  return [
    `| times bare onread / 'data' / ws, by octets of a message | ${sizes.map(octets).join(' | ')} |`, `|---|${'---|'.repeat(sizes.length)}`,
    ...lines.map((series) => `| ${series} | ${sizes.map((size) => against(size, series)).join(' | ')} |`),
  ].join('\n');
}

const ratioText = (ratios: Baseline['ratios'], id: string): string => (ratios[id] === undefined ? '–' : digits(ratios[id].median));

/** `page` with the figures of the run that was kept, if there is one. */
export function withFigures(page: string, kept: Kept | undefined, xeon: Kept | undefined): string {
  const parts = [[MARKS, text(kept?.run)], [XEON_MARKS, text(xeon?.run, false)], [LAYERS_MARKS, layers(kept?.ratios ?? {})]] as const;
  return parts.reduce((made, [marks, part]) => between(made, 'docs/performance.md', marks, part), page);
}

/** The README with the figures of the run that was kept. */
export function withShortFigures(page: string, kept: Kept | undefined): string {
  const goal = (id: string): string => figureText(kept?.run?.goals.find((one) => one.id === id)?.figure ?? null);
  const figure = (id: string): string => (id.includes(' : ') ? ratioText(kept?.ratios ?? {}, id) : goal(id));
  const rows = SHORT.map(([what, ids, text]) => `| ${what} | ${text(...ids.map(figure))} |`);
  return between(page, 'README.md', README_MARKS, ['| | ratio in one run, over loopback, median |', '|---|---|', ...rows].join('\n'));
}

/** What bench/baseline.json holds, or the one of the Xeon. */
export function keptRun(file: string = BASELINE): Kept | undefined {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Baseline) : undefined;
}

/** What bench/baseline-xeon.json holds. */
export const keptXeonRun = (): Kept | undefined => keptRun(XEON_BASELINE);

function main(): number {
  const { values } = parseArgs({ options: { check: { type: 'boolean' } } });
  let status = 0;
  for (const [file, made] of [[PERFORMANCE_PAGE, withFigures], [README, withShortFigures]] as const) {
    const is = readFileSync(file, 'utf8');
    const shouldBe = made(is, keptRun(), keptXeonRun());
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
