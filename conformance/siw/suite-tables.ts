/**
 * The data that a run of the suite against the guest leaves behind, and the tables of the report made from
 * them. The prose of the report is written by hand around them.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import type { ReportResult } from '../report/model.ts';

/** One role's run over the cases that a guest survives. */
export interface Part {
  readonly role: string;
  readonly seconds: number;
  readonly guestsLost: number;
  readonly programsLost: number;
  readonly results: readonly ReportResult[];
}

/** One case on fresh guests. */
export interface FatalRun {
  readonly role: string;
  readonly result: ReportResult;
  readonly guests: number;
  /** Guests whose kernel complained, and of those that did not, guests whose rping no longer worked. */
  readonly kernels: number;
  readonly dead: number;
  /** The messages of the first kernel. */
  readonly words: string;
}

export interface SuiteRun {
  readonly environment: readonly string[];
  readonly parts: readonly Part[];
  readonly fatal: readonly FatalRun[];
}

/** The first run with results replaced by those of the second, for runs made in pieces. */
export function merge(before: SuiteRun, now: SuiteRun): SuiteRun {
  const roles = [...new Set([...before.parts, ...now.parts].map((part) => part.role))];
  const parts = roles.map((role) =>
    mergeParts(
      before.parts.find((p) => p.role === role),
      now.parts.find((p) => p.role === role),
    ),
  );
  const again = new Set(now.fatal.map((run) => `${run.result.id} ${run.role}`));
  return {
    environment: now.environment,
    parts,
    fatal: [...before.fatal.filter((run) => !again.has(`${run.result.id} ${run.role}`)), ...now.fatal],
  };
}

function mergeParts(before: Part | undefined, now: Part | undefined): Part {
  if (before === undefined) return now!;
  if (now === undefined) return before;
  const again = new Set(now.results.map((result) => result.id));
  return {
    role: now.role,
    seconds: before.seconds + now.seconds,
    guestsLost: before.guestsLost + now.guestsLost,
    programsLost: before.programsLost + now.programsLost,
    results: [...before.results.filter((result) => !again.has(result.id)), ...now.results],
  };
}

/** All tables, as Markdown. */
export function tables(run: SuiteRun): string {
  return [
    ...run.environment.map((line) => `- ${line}`),
    '',
    ...numbers(run.parts),
    '',
    ...leftOut(run.parts),
    '',
    ...fatalTable(run.fatal),
    '',
    ...deviations(run.parts),
  ].join('\n');
}

function numbers(parts: readonly Part[]): string[] {
  const rows = parts.map(({ role, results, seconds, guestsLost, programsLost }) => {
    const count = (test: (result: ReportResult) => boolean): number => results.filter(test).length;
    const waived = count((r) => r.verdict === 'fail' && r.waiver !== null);
    return (
      `| ${role} | ${count((r) => r.verdict !== 'skip')} | ${count((r) => r.verdict === 'pass')} | ` +
      `${waived} | ${count((r) => r.unexpected)} | ` +
      `${count((r) => r.verdict === 'skip')} | ${count((r) => r.tries > 1)} | ${programsLost} | ` +
      `${guestsLost} | ${seconds.toFixed(0)} s |`
    );
  });
  return [
    '| probe is | run | passed | waived | unexpected | left out | run twice | rping restarted | guests ' +
      'lost | time |',
    '|---|---|---|---|---|---|---|---|---|---|',
    ...rows,
  ];
}

function leftOut(parts: readonly Part[]): string[] {
  const reasons = [
    ...new Set(
      parts.flatMap(({ results }) => results.filter((r) => r.verdict === 'skip').map((r) => r.reason)),
    ),
  ];
  const rows = reasons.map((reason) => {
    const counts = parts.map(
      ({ results }) => results.filter((r) => r.verdict === 'skip' && r.reason === reason).length,
    );
    return `| ${reason} | ${counts.join(' | ')} |`;
  });
  return [
    `| left out because | ${parts.map(({ role }) => role).join(' | ')} |`,
    `|---|${'---|'.repeat(parts.length)}`,
    ...rows,
  ];
}

function fatalTable(runs: readonly FatalRun[]): string[] {
  const rows = [...runs]
    .sort((a, b) => order(a.result).localeCompare(order(b.result)) || a.result.id.localeCompare(b.result.id))
    .map(
      ({ result, role, guests, kernels, dead, words }) =>
        `| ${sectionOf(result)} | ${result.id} | ${role} | ${guests} | ${kernels} | ${dead} | ` +
        `${cell(headline(words))} |`,
    );
  return [
    '| | case | probe is | fresh guests | kernel complained | only rping dead | the first complaint |',
    '|---|---|---|---|---|---|---|',
    ...rows,
  ];
}

/** Cases with the same deviation stand in one row. */
function deviations(parts: readonly Part[]): string[] {
  const rows = new Map<
    string,
    {
      readonly section: string;
      readonly roles: Set<string>;
      readonly ids: Set<string>;
      readonly tail: string;
    }
  >();
  for (const { role, results } of parts) {
    for (const result of results) {
      if (result.verdict !== 'fail' && result.verdict !== 'error' && !result.unexpected) continue;
      const actual =
        result.verdict === 'pass'
          ? 'passed in spite of its waiver'
          : result.actual || (result.reason.split('\n')[0] ?? '');
      const tail = `${cell(result.expected)} | ${cell(actual)}`;
      const key = `${sectionOf(result)} ${tail}`;
      const row = rows.get(key) ?? { section: sectionOf(result), roles: new Set(), ids: new Set(), tail };
      row.roles.add(role);
      row.ids.add(result.id);
      rows.set(key, row);
    }
  }
  const sorted = [...rows.values()].sort((a, b) =>
    sectionKey(a.section).localeCompare(sectionKey(b.section)),
  );
  return [
    '| | cases | probe is | expected | actual |',
    '|---|---|---|---|---|',
    ...sorted.map(
      ({ section, ids, roles, tail }) =>
        `| ${section} | ${[...ids].join(', ')} | ${[...roles].join(', ')} | ${tail} |`,
    ),
  ];
}

/** The mark in brackets that the waiver's reason begins with. */
function sectionOf({ waiver }: ReportResult): string {
  return /^\[(\w+)\]/.exec(waiver ?? '')?.[1] ?? 'new';
}

const SECTION_ORDER = 'KSFDn';
const sectionKey = (section: string): string => `${SECTION_ORDER.indexOf(section[0]!)}${section.padEnd(4)}`;
const order = (result: ReportResult): string => sectionKey(sectionOf(result));

const cell = (text: string): string => {
  const plain = text.replaceAll('|', '\\|');
  return plain.length <= 170 ? plain : `${plain.slice(0, 169)}…`;
};

function headline(words: string): string {
  return words.split('\n')[0] ?? '';
}

const BEGIN = '<!-- tables: made by npm run conformance:siw -->';
const END = '<!-- end of tables -->';

/** Put the tables between their marks in the report. */
export function updateReport(path: string, run: SuiteRun): void {
  const text = readFileSync(path, 'utf8');
  const from = text.indexOf(BEGIN);
  const to = text.indexOf(END);
  if (from < 0 || to < from) throw new Error(`${path} has no marks for the tables`);
  writeFileSync(path, `${text.slice(0, from + BEGIN.length)}\n\n${tables(run)}\n\n${text.slice(to)}`);
}
