// The report for a terminal: one line a case that did not pass, details with decoded octets for unexpected
// results, totals.

import { requirement } from '../catalogue/index.ts';
import { fromHex } from '../profiles/protocol.ts';
import { viewText } from '../probe/decode.ts';
import type { Report, ReportEvent, ReportResult } from './model.ts';

/** The whole report. */
export function textReport(report: Report): string {
  const lines: string[] = [
    `iwarp conformance against ${report.peer} (profile ` +
      `${report.profile}${report.strict ? ', strict' : ''}, seed ${report.seed})`,
    '',
  ];
  for (const result of report.results)
    if (result.verdict !== 'skip' && (result.unexpected || result.verdict === 'fail'))
      lines.push(...resultLines(result));
  lines.push(
    ...skippedLines(report),
    ...(report.stopped == null ? [] : [`stopped: ${report.stopped}`]),
    summaryLine(report),
  );
  return `${lines.join('\n')}\n`;
}

/** The last line. */
export function summaryLine({ totals, seconds }: Report): string {
  const { run, passed, failed, waived, skipped, errors, unexpected } = totals;
  return (
    `${run} run: ${passed} passed, ${failed} failed, ${waived} waived, ${errors} errors; ${skipped} left ` +
    `out; ${unexpected} unexpected; ${seconds.toFixed(1)} s`
  );
}

/** The lines about one case. */
export function resultLines(result: ReportResult): string[] {
  const mark =
    result.verdict === 'pass'
      ? 'PASSED IN SPITE OF ITS WAIVER'
      : result.verdict === 'fail' && result.waiver !== null
        ? 'waived'
        : result.verdict.toUpperCase();
  const lines = [`${mark} ${result.id} [probe is ${result.role}]: ${result.title}`];
  if (result.waiver !== null) lines.push(`  waiver   ${result.waiver}`);
  if (result.verdict === 'pass') return [...lines, ''];
  if (result.verdict === 'fail') lines.push(`  expected ${result.expected}`, `  actual   ${result.actual}`);
  else lines.push(`  ${result.reason.split('\n').join('\n  ')}`);
  for (const id of new Set([...result.requirements, ...result.blamed])) {
    const entry = requirement(id);
    if (entry !== undefined) lines.push(`  ${id} (${entry.clause}, ${entry.level}) ${entry.text}`);
  }
  if (result.waiver === null) {
    for (const event of result.events) lines.push(...eventLines(event));
    lines.push(`  again    ${result.replay}`);
    if (result.pcap !== null) lines.push(`  capture  ${result.pcap}`);
  }
  return [...lines, ''];
}

function eventLines(event: ReportEvent): string[] {
  const arrow = event.from === 'probe' ? '->' : event.from === 'peer' ? '<-' : '  ';
  const fields = event.fields.map((field) => ({ ...field, octets: fromHex(field.octets) }));
  return [`  ${arrow} ${event.text}`, ...viewText(fields, '       ')];
}

function skippedLines(report: Report): string[] {
  const reasons = new Map<string, number>();
  for (const result of report.results)
    if (result.verdict === 'skip') reasons.set(result.reason, (reasons.get(result.reason) ?? 0) + 1);
  return [...reasons].map(([reason, count]) => `left out ${count}: ${reason}`);
}
