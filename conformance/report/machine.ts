// Reports for programs: TAP, JUnit XML and JSON. In all of them what counts as a failure is what counts for
// the exit status.

import type { Report, ReportResult } from './model.ts';
import { resultLines } from './text.ts';

/** Without line breaks, which would begin a line of the format. */
const oneLine = (text: string): string => text.replaceAll(/\s+/g, ' ');

const name = (result: ReportResult): string =>
  `${result.id} [${result.role}]${result.round > 0 ? ` round ${result.round + 1}` : ''}`;

/** An unsteady waiver (`~`) that happens not to be needed is no failure, any other is. */
const needless = (result: ReportResult): boolean => result.verdict === 'pass' && result.unexpected;
const waived = (result: ReportResult): boolean => result.verdict === 'fail' && result.waiver !== null;
const failed = (result: ReportResult): boolean =>
  needless(result) || (result.verdict === 'fail' && result.waiver === null);

/** TAP: waived failures are TODO, left-out cases SKIP. Version 13, which every consumer reads. */
export function tapReport(report: Report): string {
  const lines = ['TAP version 13', `1..${report.results.length}`, `# peer: ${oneLine(report.peer)}`];
  report.results.forEach((result, i) => {
    const ok = !needless(result) && (result.verdict === 'pass' || result.verdict === 'skip');
    const directive =
      result.verdict === 'skip'
        ? ` # SKIP ${result.reason}`
        : waived(result)
          ? ` # TODO ${result.waiver}`
          : '';
    lines.push(`${ok ? 'ok' : 'not ok'} ${i + 1} - ${name(result)}${directive}`);
    if (!ok) {
      lines.push(
        '  ---',
        `  expected: ${JSON.stringify(result.expected)}`,
        `  actual: ${JSON.stringify(actualOf(result))}`,
        `  requirements: ${result.requirements.join(' ')}`,
        `  again: ${JSON.stringify(result.replay)}`,
        '  details: |',
        ...resultLines(result)
          .filter((line) => line !== '')
          .map((line) => `    ${line}`),
        '  ...',
      );
    }
  });
  if (report.stopped != null) lines.push(`Bail out! ${report.stopped}`);
  return `${lines.join('\n')}\n`;
}

function actualOf(result: ReportResult): string {
  return needless(result)
    ? `passed in spite of its waiver: ${result.waiver}`
    : result.actual || result.reason;
}

/** JUnit XML: one test suite a first word of the ids. Waived failures count as skipped. */
export function junitReport(report: Report): string {
  const suites = new Map<string, ReportResult[]>();
  for (const result of report.results) {
    const suite = result.id.split('.').slice(0, 2).join('.');
    suites.set(suite, [...(suites.get(suite) ?? []), result]);
  }
  // A run that ended early is an error beside those of its cases.
  const early = report.stopped == null ? 0 : 1;
  const title = xml(`iwarp conformance: ${report.peer}`);
  const lines = [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="${title}" tests="${report.results.length + early}" ` +
      `failures="${report.results.filter(failed).length}" errors="${report.totals.errors + early}" ` +
      `time="${report.seconds.toFixed(3)}">`,
  ];
  for (const [suite, results] of suites) {
    const count = (test: (r: ReportResult) => boolean): number => results.filter(test).length;
    const skipped = count((r) => r.verdict === 'skip' || waived(r));
    lines.push(
      `  <testsuite name="${xml(suite)}" tests="${results.length}" failures="${count(failed)}" ` +
        `errors="${count((r) => r.verdict === 'error')}" skipped="${skipped}">`,
    );
    for (const result of results) lines.push(...junitCase(suite, result));
    lines.push('  </testsuite>');
  }
  if (early > 0) {
    lines.push(
      '  <testsuite name="run" tests="1" failures="0" errors="1" skipped="0">',
      '    <testcase classname="run" name="every case is run" time="0.000">',
      `      <error message="stopped: ${xml(report.stopped!)}"/>`,
      '    </testcase>',
      '  </testsuite>',
    );
  }
  return `${[...lines, '</testsuites>'].join('\n')}\n`;
}

function junitCase(suite: string, result: ReportResult): string[] {
  const head =
    `    <testcase classname="${xml(suite)}" name="${xml(name(result))}" ` +
    `time="${(result.ms / 1000).toFixed(3)}"`;
  const text = resultLines(result).join('\n');
  if (needless(result))
    return [
      `${head}>`,
      `      <failure message="${xml(actualOf(result))}">${xml(text)}</failure>`,
      '    </testcase>',
    ];
  if (result.verdict === 'pass') return [`${head}/>`];
  if (result.verdict === 'skip')
    return [`${head}>`, `      <skipped message="${xml(result.reason)}"/>`, '    </testcase>'];
  if (waived(result))
    return [`${head}>`, `      <skipped message="waived: ${xml(result.waiver ?? '')}"/>`, '    </testcase>'];
  const tag = result.verdict === 'fail' ? 'failure' : 'error';
  const message =
    result.verdict === 'fail' ? `expected ${result.expected}; got ${result.actual}` : result.reason;
  return [`${head}>`, `      <${tag} message="${xml(message)}">${xml(text)}</${tag}>`, '    </testcase>'];
}

export function jsonReport(report: Report): string {
  return `${JSON.stringify(report, null, 1)}\n`;
}

// Characters that XML 1.0 cannot hold, not even escaped.
const UNLAWFUL = /[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD]/g;

function xml(text: string): string {
  return text.replace(UNLAWFUL, '?').replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
