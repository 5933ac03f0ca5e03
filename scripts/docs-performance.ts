/**
 * Writes the figures of docs/performance.md, docs/engines.md and README.md from bench/baseline.json and
 * bench/baseline-xeon.json, which `iwarp bench --full --save-baseline` has made, so that none is typed by
 * hand:
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
import { digits, figureText, goalCounts, goalsMarkdown, judgedNow } from '../bench/goals.ts';
import { octets } from '../bench/report/label.ts';
import { between } from './marked.ts';

const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
export const PERFORMANCE_PAGE: string = path('docs/performance.md');
export const README: string = path('README.md');
export const ENGINES_PAGE: string = path('docs/engines.md');
const BASELINE = path('bench/baseline.json');
/** The baseline of another kind of processor. */
const XEON_BASELINE = path('bench/baseline-xeon.json');
/** Bases of the part `layers`. */
const ONREAD = 'TCP, onread';
const DATA = "TCP, 'data'";
const MARKS = [
  '<!-- goals: made by scripts/docs-performance.ts from bench/baseline.json -->',
  '<!-- end of the goals -->',
] as const;

const XEON_MARKS = [
  '<!-- goals: made by scripts/docs-performance.ts from bench/baseline-xeon.json -->',
  '<!-- end of the goals on a Xeon -->',
] as const;
const LAYERS_MARKS = [
  '<!-- layers: made by scripts/docs-performance.ts from bench/baseline.json -->',
  '<!-- end of the layers -->',
] as const;
const TRIPS_MARKS = [
  '<!-- round trips: made by scripts/docs-performance.ts from both baselines -->',
  '<!-- end of the round trips -->',
] as const;
const FIGURES_MARKS = [
  '<!-- side by side: made by scripts/docs-performance.ts from both baselines -->',
  '<!-- end of side by side -->',
] as const;
const ENGINES_MARKS = [
  '<!-- engines: made by scripts/docs-performance.ts from both baselines -->',
  '<!-- end of the engines -->',
] as const;
const README_MARKS = [
  '<!-- figures: made by scripts/docs-performance.ts from both baselines -->',
  '<!-- end of the figures -->',
] as const;

/** A ratio to bare `onread` in a part, as the baseline names it. */
const both = (part: string, size: number, series: string): string =>
  `${part}/${size}/${series} : ${part}/${size}/${ONREAD}`;

/** A ratio of the part `layers` at one size, as the baseline names it. */
const layer = (size: number, series: string, base: string): string =>
  `layers/${size}/${series} : layers/${size}/${base}`;

/**
 * One figure: the measurement and its base, which way is good, and the goal or the ratio of a part that says
 * it.
 */
type Row = readonly [what: string, against: string, better: 'higher' | 'lower', id: string];

const trip = (series: string, base: string): string => `latency/64/${series} : latency/64/${base}`;

/** Round trips between equals: the time that each side stays awake decides more than anything else. */
const BOTH_AWAKE: Row = [
  'Round trip of 64 bytes, CRC32c, both staying awake',
  'bare `onread`',
  'lower',
  trip('Send, CRC', `${ONREAD}, polling`),
];
const BOTH_ASLEEP: Row = [
  'the same, both sleeping',
  'bare `onread`',
  'lower',
  trip('Send, CRC, never polling', ONREAD),
];
const TRIPS: readonly Row[] = [
  BOTH_AWAKE,
  BOTH_ASLEEP,
  ['the same, both sleeping', "bare 'data'", 'lower', trip('Send, CRC, never polling', DATA)],
];

/** Both machines beside each other. */
const FIGURES: readonly Row[] = [
  ['RDMA Writes of 1 MiB without CRC', 'bare `onread`', 'higher', 'write-off'],
  ['the same with CRC32c', 'bare `onread`', 'higher', 'write-on'],
  ['the same with CRC32c', 'ws', 'higher', 'ws'],
  ['the same with CRC32c', 'grpc-js', 'higher', 'grpc'],
  ['Writes of 4 KiB posted in lists, CRC32c', 'one bare write each', 'higher', 'small-on'],
  ['Writes of 64 bytes posted in lists, CRC32c', 'one bare write each', 'higher', 'rate'],
  [
    'Round trip of 64 bytes, CRC32c: the stack stays awake',
    'bare `onread`, which sleeps',
    'lower',
    'latency',
  ],
  BOTH_AWAKE,
  BOTH_ASLEEP,
  ['Awaited `write` of 64 bytes, 64 loops', 'messages of ws', 'higher', layer(64, 'Promises, Write', 'ws')],
  ['Awaited `send` of 64 bytes, 64 loops', 'messages of ws', 'higher', layer(64, 'Promises, Send', 'ws')],
  [
    'Byte stream, writes of 64 KiB, read with `onread`',
    "bare 'data'",
    'higher',
    layer(65_536, 'Byte stream, onread', DATA),
  ],
  ["the same, read with 'data' events", "bare 'data'", 'higher', layer(65_536, "Byte stream, 'data'", DATA)],
  ['CRC32c of 64 KiB in WebAssembly', 'the package crc-32', 'higher', 'crc-64k'],
  ['the same', 'the native add-on fast-crc32c', 'higher', 'crc-native'],
  [
    '99th percentile of a Read, engine in a worker, the server’s main thread computing',
    'the same with an idle server',
    'lower',
    'busy',
  ],
];

/** What each engine costs: the ends of the series' names, by the columns of the table. */
const ENGINES: readonly (readonly [engine: string, series: string])[] = [
  ['`thread`', ''],
  ['`thread`, `busyPoll: 0`', ', never polling'],
  ['`worker`', ', worker'],
];
const ENGINE_COLUMNS: readonly (readonly [column: string, id: (series: string) => string])[] = [
  ['round trip, bare sockets asleep', (series) => trip(`Send, CRC${series}`, ONREAD)],
  ['round trip, bare sockets awake', (series) => trip(`Send, CRC${series}`, `${ONREAD}, polling`)],
  ['Writes of 64 bytes in lists', (series) => both('rate', 64, `Write, CRC${series}`)],
  ['Writes of 1 MiB, CRC32c', (series) => both('bulk', 1 << 20, `Write, CRC${series}`)],
];

/** The four figures of the README. */
const SHORT: readonly Row[] = [
  ['RDMA Writes of 1 MiB with CRC32c', 'bare `onread`', 'higher', 'write-on'],
  ['the same', 'ws', 'higher', 'ws'],
  ['Writes of 64 bytes posted in lists, CRC32c', 'one bare write each', 'higher', 'rate'],
  BOTH_AWAKE,
];

/** The machine's words that matter for a figure. */
const MACHINE = ['CPU', 'memory', 'system', 'runtime', 'CRC32c engine'] as const;

/**
 * The command of a run. Its rounds are not kept: no figure has more, except those of the checksum, whose
 * short slices have twice as many; and without a native add-on nothing was measured against one.
 */
function command({ mode, goals }: BaselineRun): string {
  const rounds = Math.max(
    ...goals.map(({ group, figure }) => (group === 'CRC32c' ? 0 : (figure?.rounds ?? 0))),
  );
  const native = (goals.find(({ id }) => id === 'crc-native')?.figure ?? null) !== null;
  return (
    'iwarp bench ' +
    `--${mode}${rounds === 0 ? '' : ` --rounds ${rounds}`}${native ? ' --native-crc FOLDER' : ''}`
  );
}

function text(run: BaselineRun | undefined, limits = true): string {
  if (run === undefined) return 'No full run has been kept yet.';
  const { started, seconds, machine } = run;
  const goals = judgedNow(run.goals);
  const { all, figures, of: count } = goalCounts(goals);
  const traits = MACHINE.flatMap((name) => {
    const trait = machine[name];
    return trait === undefined ? [] : [name === 'CRC32c engine' ? `${name} ${trait}` : trait];
  });
  return [
    `Full run of ${started.slice(0, 16).replace('T', ' ')} UTC, ${Math.round(seconds / 60)} minutes: ` +
      `${traits.join('; ')}.`,
    `Made by \`${command(run)}\`.`,
    `${count('met')} of ${all} goals met, ${count('in the spread')} with the goal inside the quartiles, ` +
      `${count('missed')} missed, ${count('not measured')} not measured; ${figures} figures without a goal.`,
    ...(goals.some(({ disturbed }) => disturbed)
      ? ['A star: other programs or the host took part of the machine meanwhile.']
      : []),
    '',
    goalsMarkdown(goals, limits),
  ].join('\n');
}

/** The record of a run. */
export type Kept = Pick<Baseline, 'ratios' | 'run'>;

/** Each layer against bare sockets and ws, by size. */
function layers(ratios: Baseline['ratios']): string {
  const cases = sweeps()
    .find(({ id }) => id === 'layers')!
    .groups.flatMap((group) => group.cases.filter(({ spec }) => isOurs(spec)));
  const sizes = [...new Set(cases.map(({ x }) => x))];
  const lines = [...new Set(cases.map(({ series }) => series))];
  const against = (size: number, series: string): string =>
    [ONREAD, DATA, 'ws'].map((base) => ratioText(ratios, layer(size, series, base))).join(' / ');
  return [
    `| times bare onread / 'data' / ws, by bytes of a message | ${sizes.map(octets).join(' | ')} |`,
    `|---|${'---|'.repeat(sizes.length)}`,
    ...lines.map((series) => `| ${series} | ${sizes.map((size) => against(size, series)).join(' | ')} |`),
  ].join('\n');
}

const ratioText = (ratios: Baseline['ratios'], id: string): string =>
  ratios[id] === undefined ? '–' : digits(ratios[id].median);

/** Each figure of both runs beside each other. */
function sideBySide(rows: readonly Row[], kept: Kept | undefined, xeon: Kept | undefined): string {
  const goal = (from: Kept | undefined, id: string): string =>
    figureText(from?.run?.goals.find((one) => one.id === id)?.figure ?? null);
  const figure = (from: Kept | undefined, id: string): string =>
    id.includes(' : ') ? ratioText(from?.ratios ?? {}, id) : goal(from, id);
  const cpu = (from: Kept | undefined): string => from?.run?.machine['CPU'] ?? 'not measured';
  return [
    `| What | against | better is | ${cpu(kept)} | ${cpu(xeon)} |`,
    '|---|---|---|---|---|',
    ...rows.map(
      ([what, against, better, id]) =>
        `| ${what} | ${against} | ${better} | ${figure(kept, id)} | ${figure(xeon, id)} |`,
    ),
  ].join('\n');
}

/** `page` with the figures of the runs that were kept, as far as there are any. */
export function withFigures(page: string, kept: Kept | undefined, xeon: Kept | undefined): string {
  const parts = [
    [MARKS, text(kept?.run)],
    [XEON_MARKS, text(xeon?.run, false)],
    [FIGURES_MARKS, sideBySide(FIGURES, kept, xeon)],
    [TRIPS_MARKS, sideBySide(TRIPS, kept, xeon)],
    [LAYERS_MARKS, layers(kept?.ratios ?? {})],
  ] as const;
  return parts.reduce((made, [marks, part]) => between(made, 'docs/performance.md', marks, part), page);
}

/** docs/engines.md with what each engine costs, on both processors. */
export function withEngines(page: string, kept: Kept | undefined, xeon: Kept | undefined): string {
  const cell = (id: string): string =>
    [kept, xeon].map((from) => ratioText(from?.ratios ?? {}, id)).join(' / ');
  const cpus = [kept, xeon].map((from) => from?.run?.machine['CPU'] ?? 'not measured');
  const text = [
    `| ${cpus.join(' / ')} | ${ENGINE_COLUMNS.map(([column]) => column).join(' | ')} |`,
    `|---|${'---|'.repeat(ENGINE_COLUMNS.length)}`,
    ...ENGINES.map(
      ([engine, series]) => `| ${engine} | ${ENGINE_COLUMNS.map(([, id]) => cell(id(series))).join(' | ')} |`,
    ),
  ];
  return between(page, 'docs/engines.md', ENGINES_MARKS, text.join('\n'));
}

/** The README with the figures of the runs that were kept. */
export function withShortFigures(page: string, kept: Kept | undefined, xeon: Kept | undefined): string {
  return between(page, 'README.md', README_MARKS, sideBySide(SHORT, kept, xeon));
}

/** The contents of bench/baseline.json, or of another baseline file. */
export function keptRun(file: string = BASELINE): Kept | undefined {
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as Baseline) : undefined;
}

/** The contents of bench/baseline-xeon.json. */
export const keptXeonRun = (): Kept | undefined => keptRun(XEON_BASELINE);

function main(): number {
  const { values } = parseArgs({ options: { check: { type: 'boolean' } } });
  let status = 0;
  for (const [file, made] of [
    [PERFORMANCE_PAGE, withFigures],
    [README, withShortFigures],
    [ENGINES_PAGE, withEngines],
  ] as const) {
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
