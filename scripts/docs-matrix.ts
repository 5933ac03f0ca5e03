/**
 * The table of docs/engines.md, from docs/matrix.json, where `npm run matrix -- --docs` keeps its results:
 * `npx tsx scripts/docs-matrix.ts`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { RnicSettings } from '../src/api/environment.ts';
import { between, cell } from './marked.ts';
import type { Configuration } from './matrix-configurations.ts';
import type { RuntimeRun } from './runtimes.ts';

const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
/** The results, and the page with the table. */
export const MATRIX_RECORD: string = path('docs/matrix.json');
export const MATRIX_PAGE: string = path('docs/engines.md');
const MARKS = [
  '<!-- matrix: made by scripts/docs-matrix.ts from docs/matrix.json -->',
  '<!-- end of the matrix -->',
] as const;

export type RunKind = 'suite' | 'interop';

/** One run of the suite or of the interop cases. */
export interface MatrixRun {
  readonly name: string;
  readonly kind: RunKind;
  /** Version of Node. */
  readonly node: string;
  readonly environment: Configuration['environment'];
  /** What the probe found. */
  // runs from before polling do not tell of it
  readonly settings: Omit<RnicSettings, 'busyPoll'> & { readonly busyPoll?: number };
  /** ISO 8601. */
  readonly began: string;
  /** The commit checked out, with a plus if files had been changed; earlier runs lack it. */
  readonly commit?: string;
  readonly seconds: number;
  readonly passed: number;
  readonly skipped: number;
  /** The failures, with their reasons. */
  readonly failed: readonly string[];
  /** Interop: the topics, where not all were run. */
  readonly topic?: string;
  /** Interop: cases of those that passed which had failed first. */
  readonly again?: number;
}

export interface MatrixRecord {
  readonly runs: readonly MatrixRun[];
  /** Programs in other runtimes. */
  readonly runtimes?: readonly RuntimeRun[];
}

function runtimeRow(run: RuntimeRun): string {
  const { name, version, command, passed, failed, seconds, began, commit } = run;
  const cells = [`\`${command}\``, `${name} ${version}`, 'thread, worker', 'auto', 'auto', '50', 'programs'];
  const sums = [passed, failed.length, 0, `${seconds} s`, began.slice(0, 10), commit ?? 'not kept'];
  return `| ${[...cells, ...sums].join(' | ')} |`;
}

function row({
  kind,
  node,
  environment,
  settings,
  began,
  commit,
  seconds,
  passed,
  skipped,
  failed,
  topic,
  again,
}: MatrixRun): string {
  const set =
    Object.entries(environment)
      .map(([name, value]) => `\`${name}=${value}\``)
      .join(' ') || 'nothing set';
  const cells = [
    set,
    node,
    settings.engine,
    settings.crc32c,
    settings.receive,
    settings.busyPoll ?? 'none yet',
    topic === undefined ? kind : `${kind}: ${topic.replaceAll(',', ', ')}`,
    again === undefined ? passed : `${passed} (${again} in a second try)`,
    failed.length,
    skipped,
    `${seconds} s`,
    began.slice(0, 10),
    commit ?? 'not kept',
  ];
  return `| ${cells.join(' | ')} |`;
}

/** The page with the table of these results in it. */
export function matrixPage(page: string, { runs, runtimes = [] }: MatrixRecord): string {
  const failures = [
    ...runs.flatMap(({ name, kind, failed }) => failed.map((line) => `- ${name}, ${kind}: ${cell(line)}`)),
    ...runtimes.flatMap(({ name, failed }) => failed.map((line) => `- ${name}: ${cell(line)}`)),
  ];
  const lines = [
    '| environment | Node | engine | CRC32c | receive | polling, us | run | passed | failed | skipped ' +
      '| time | day | commit |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...runs.map(row),
    ...runtimes.map(runtimeRow),
    ...(failures.length === 0 ? [] : ['', ...failures]),
  ];
  return between(page, 'docs/engines.md', MARKS, lines.join('\n'));
}

/** Write the table. */
export function writeMatrixPage(record: MatrixRecord): void {
  writeFileSync(MATRIX_PAGE, matrixPage(readFileSync(MATRIX_PAGE, 'utf8'), record));
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  writeMatrixPage(JSON.parse(readFileSync(MATRIX_RECORD, 'utf8')) as MatrixRecord);
