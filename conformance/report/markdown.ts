// The report as Markdown, for committing: totals, then each deviation with its clause, those of one waiver
// together.

import { requirement } from '../catalogue/index.ts';
import type { Report, ReportResult } from './model.ts';

/** The whole page. */
export function markdownReport(report: Report): string {
  const { totals: t } = report;
  const lines = [
    `# iWARP conformance of ${report.peer}`,
    '',
    `Profile ${report.profile}, seed ${report.seed}, ${report.began}, ${report.seconds.toFixed(0)} ` +
      `s${report.quirks.length === 0 ? '' : `; read over: ${report.quirks.join(', ')}`}.`,
    '',
    ...(report.stopped == null ? [] : [`Stopped: ${report.stopped}.`, '']),
    '| run | passed | failed | waived | errors | left out | unexpected |',
    '|---|---|---|---|---|---|---|',
    `| ${t.run} | ${t.passed} | ${t.failed} | ${t.waived} | ${t.errors} | ${t.skipped} | ${t.unexpected} |`,
    '',
  ];
  const groups = new Map<string, ReportResult[]>();
  for (const result of report.results) {
    if (result.verdict !== 'fail' && result.verdict !== 'error' && !result.unexpected) continue;
    const heading = result.waiver ?? 'Without a waiver';
    groups.set(heading, [...(groups.get(heading) ?? []), result]);
  }
  for (const [heading, results] of groups) lines.push(...section(heading, results));
  return `${lines.join('\n')}\n`;
}

function section(heading: string, results: readonly ReportResult[]): string[] {
  const ids = [...new Set(results.flatMap((result) => [...result.requirements, ...result.blamed]))];
  const clauses = ids.flatMap((id) => {
    const entry = requirement(id);
    return entry === undefined ? [] : [`- ${id} (${entry.clause}, ${entry.level}): ${entry.text}`];
  });
  const rows = results.map((result) => {
    const actual =
      result.verdict === 'pass'
        ? 'passed in spite of its waiver'
        : result.actual || (result.reason.split('\n')[0] ?? '');
    return `| ${result.id} | ${result.role} | ${cell(result.expected)} | ${cell(actual)} |`;
  });
  return [
    `## ${heading}`,
    '',
    ...clauses,
    '',
    '| case | probe is | expected | actual |',
    '|---|---|---|---|',
    ...rows,
    '',
  ];
}

const cell = (text: string): string => text.replaceAll('|', '\\|').slice(0, 240);
