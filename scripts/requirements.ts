// The requirements report: for every id of the catalogue, which tests and conformance cases prove it, where
// the sources cite it, or why nothing can. Run it with
//   npm run requirements -- [--group MPA] [--missing | --all] [--markdown FILE]
// The file is the page docs/compliance.md, see compliance.ts.
// Exit status 1 when an unknown id or a stale exception was found. The rules it feeds:
// test/requirements.test.ts.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { exceptions } from '../conformance/catalogue/exceptions.ts';
import { GROUPS, isMandatory, isRequirement, requirements } from '../conformance/catalogue/index.ts';
import type { Group, Requirement } from '../conformance/catalogue/index.ts';
import {
  citationsInData,
  citationsInText,
  citationsInTitles,
  filesBelow,
  readBelow,
} from './requirements-scan.ts';
import type { Citation } from './requirements-scan.ts';
import { keepRows, renderCompliance } from './compliance.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Folders whose every id must exist; the catalogue itself is left out, it defines them. */
const CITING = ['src', 'test', 'conformance', 'bench', 'examples', 'scripts', 'docs'] as const;
const CATALOGUE = 'conformance/catalogue/';

/** The facts about one requirement. */
export interface RequirementStatus {
  readonly entry: Requirement;
  /** Titles of tests that name it, and lines of sources. */
  readonly titles: readonly Citation[];
  readonly lines: readonly Citation[];
  /** Places whose test titles name it. */
  readonly tested: readonly string[];
  /** Places of conformance cases that name it. */
  readonly cased: readonly string[];
  /** Places of the sources that name it. */
  readonly cited: readonly string[];
  /** Why nothing tests it, if so decided. */
  readonly exception: string | null;
}

export interface RequirementsReport {
  readonly statuses: readonly RequirementStatus[];
  /** Ids that the catalogue does not have, with their places. */
  readonly unknown: readonly Citation[];
  /** Excepted ids that a test or a case proves after all, or that do not exist. */
  readonly stale: readonly string[];
}

/** Tests whose titles prove nothing about the stack. */
const JUDGES = ['test/inspect/', 'test/vectors/', 'test/support/'] as const;

/** Scan the repository at `root`. */
export function examine(root: string): RequirementsReport {
  // Tests of the decoder and of the suite's own judges name rules that they judge by, not rules that the
  // stack keeps.
  const tested = scan(root, ['test', 'conformance'], ['.test.ts'], citationsInTitles).filter(
    ({ file }) => !JUDGES.some((folder) => file.startsWith(folder)),
  );
  const cased = scan(root, ['conformance/cases'], ['.ts'], citationsInData);
  const sources = scan(root, ['src'], ['.ts'], citationsInText);
  const everywhere = scan(root, CITING, ['.ts', '.md'], citationsInText);

  const statuses = requirements.map((entry) => ({
    entry,
    titles: tested.filter(({ id }) => id === entry.id),
    lines: sources.filter(({ id }) => id === entry.id),
    tested: places(tested, entry.id),
    cased: places(cased, entry.id),
    cited: places(sources, entry.id),
    exception: exceptions[entry.id] ?? null,
  }));
  const stale = Object.keys(exceptions).filter((id) => {
    const status = statuses.find((candidate) => candidate.entry.id === id);
    return status === undefined || isProved(status);
  });
  const unknown = everywhere.filter(({ id, file }) => !isRequirement(id) && !file.startsWith(CATALOGUE));
  return { statuses, unknown, stale };
}

/** True when a test or a conformance case names the requirement. */
function isProved(status: RequirementStatus): boolean {
  return status.tested.length > 0 || status.cased.length > 0;
}

/** True when neither test nor case nor exception covers the requirement. */
function isMissing(status: RequirementStatus): boolean {
  return !isProved(status) && status.exception === null;
}

/** Requirements of `group` that nothing covers; only those of level MUST and MUST NOT when `mandatory`. */
export function missingOf(report: RequirementsReport, group: Group, mandatory: boolean): RequirementStatus[] {
  return report.statuses.filter(
    (status) =>
      status.entry.group === group && isMissing(status) && (!mandatory || isMandatory(status.entry)),
  );
}

type Scanner = (text: string, file: string) => Citation[];

function scan(
  root: string,
  folders: readonly string[],
  suffixes: readonly string[],
  scanner: Scanner,
): Citation[] {
  return folders.flatMap((folder) =>
    filesBelow(root, folder, suffixes).flatMap((path) => {
      const { text, file } = readBelow(root, path);
      return scanner(text, file);
    }),
  );
}

function places(citations: readonly Citation[], id: string): string[] {
  const found = citations.filter((citation) => citation.id === id).map(({ file, line }) => `${file}:${line}`);
  return [...new Set(found)];
}

/** One word for a status, the strongest proof first. */
function verdict(status: RequirementStatus): 'tested' | 'cased' | 'excepted' | 'missing' {
  if (status.tested.length > 0) return 'tested';
  if (status.cased.length > 0) return 'cased';
  return status.exception === null ? 'missing' : 'excepted';
}

const COLUMNS = [
  'group',
  'all',
  'MUST',
  'tested',
  'cased',
  'cited',
  'excepted',
  'missing',
  'missing MUST',
] as const;

function summaryRow(report: RequirementsReport, name: string, of: readonly RequirementStatus[]): string[] {
  const count = (test: (status: RequirementStatus) => boolean): string => String(of.filter(test).length);
  return [
    name,
    String(of.length),
    count((status) => isMandatory(status.entry)),
    count((status) => status.tested.length > 0),
    count((status) => status.cased.length > 0),
    count((status) => status.cited.length > 0),
    count((status) => status.exception !== null),
    count(isMissing),
    count((status) => isMissing(status) && isMandatory(status.entry)),
  ];
}

function summary(report: RequirementsReport, groups: readonly Group[]): string[][] {
  const rows = groups.map((group) =>
    summaryRow(
      report,
      group,
      report.statuses.filter((s) => s.entry.group === group),
    ),
  );
  const all = report.statuses.filter((status) => groups.includes(status.entry.group));
  return groups.length > 1 ? [...rows, summaryRow(report, 'total', all)] : rows;
}

/** Ids as runs, `MPA-001..004 MPA-009`. */
export function compact(ids: readonly string[]): string {
  const runs: { group: string; first: string; last: string }[] = [];
  for (const id of ids) {
    const [group = '', number = ''] = id.split('-');
    const run = runs.at(-1);
    if (run !== undefined && run.group === group && Number(number) === Number(run.last) + 1)
      run.last = number;
    else runs.push({ group, first: number, last: number });
  }
  return runs
    .map(({ group, first, last }) => `${group}-${first}${last === first ? '' : `..${last}`}`)
    .join(' ');
}

/** The report as lines of text. */
export function renderText(
  report: RequirementsReport,
  groups: readonly Group[],
  detail: 'short' | 'missing' | 'all',
): string {
  const table = [[...COLUMNS], ...summary(report, groups)];
  const widths = COLUMNS.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0)));
  const lines = table.map((row) => row.map((cell, column) => cell.padStart(widths[column] ?? 0)).join('  '));
  for (const group of groups) {
    const mandatory = missingOf(report, group, true).map((status) => status.entry.id);
    if (mandatory.length > 0)
      lines.push('', `${group}: MUST without proof (${mandatory.length}): ${compact(mandatory)}`);
    const rest = missingOf(report, group, false)
      .map((status) => status.entry.id)
      .filter((id) => !mandatory.includes(id));
    if (rest.length > 0)
      lines.push(`${group}: SHOULD and MAY without proof (${rest.length}): ${compact(rest)}`);
  }
  if (detail !== 'short') lines.push('');
  for (const status of report.statuses) {
    if (!groups.includes(status.entry.group) || detail === 'short') continue;
    if (detail === 'all' || isMissing(status)) lines.push(statusLine(status));
  }
  for (const { id, file, line } of report.unknown) lines.push(`unknown id ${id} at ${file}:${line}`);
  for (const id of report.stale) lines.push(`stale exception ${id}: it is tested or does not exist`);
  return `${lines.join('\n')}\n`;
}

function statusLine(status: RequirementStatus): string {
  const { id, level, kind, text } = status.entry;
  const proof = status.tested[0] ?? status.cased[0] ?? status.exception ?? text;
  return `${id.padEnd(9)} ${verdict(status).padEnd(8)} ${level.padEnd(10)} ${kind.padEnd(5)} ${proof}`;
}

function main(): void {
  const { values } = parseArgs({
    options: {
      group: { type: 'string', multiple: true },
      missing: { type: 'boolean', default: false },
      all: { type: 'boolean', default: false },
      markdown: { type: 'string' },
    },
  });
  const wanted = values.group?.map((name) => name.toUpperCase());
  const strangers = wanted?.filter((name) => !GROUPS.some((group) => group === name)) ?? [];
  if (strangers.length > 0) {
    process.stderr.write(`no such group: ${strangers.join(', ')}; there are ${GROUPS.join(', ')}\n`);
    process.exitCode = 2;
    return;
  }
  const groups = GROUPS.filter((group) => wanted === undefined || wanted.includes(group));
  const report = examine(ROOT);
  const detail = values.all ? 'all' : values.missing ? 'missing' : 'short';
  const page = values.markdown;
  if (page !== undefined)
    writeFileSync(
      page,
      keepRows(existsSync(page) ? readFileSync(page, 'utf8') : '', renderCompliance(ROOT, report)),
    );
  process.stdout.write(renderText(report, groups, detail));
  if (report.unknown.length > 0 || report.stale.length > 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
