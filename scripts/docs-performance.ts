/**
 * Writes the figures of docs/performance.md from bench/baseline.json, which `iwarp bench --full --save-baseline` has made, so that none is
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
import { goalsMarkdown } from '../bench/goals.ts';
import { between } from './marked.ts';

const path = (name: string): string => fileURLToPath(new URL(`../${name}`, import.meta.url));
export const PERFORMANCE_PAGE: string = path('docs/performance.md');
const BASELINE = path('bench/baseline.json');
const MARKS = ['<!-- goals: made by scripts/docs-performance.ts from bench/baseline.json -->', '<!-- end of the goals -->'] as const;

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

/** The run that bench/baseline.json was made of. */
export function keptRun(): BaselineRun | undefined {
  return existsSync(BASELINE) ? (JSON.parse(readFileSync(BASELINE, 'utf8')) as Baseline).run : undefined;
}

function main(): number {
  const { values } = parseArgs({ options: { check: { type: 'boolean' } } });
  const is = readFileSync(PERFORMANCE_PAGE, 'utf8');
  const shouldBe = withFigures(is, keptRun());
  if (is === shouldBe) return 0;
  if (values.check !== true) writeFileSync(PERFORMANCE_PAGE, shouldBe);
  else process.stderr.write('docs/performance.md is out of date: npx tsx scripts/docs-performance.ts\n');
  return values.check === true ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main();
