/** Results in perftest's columns. */
import type { CaseResult, ExperimentResult, ProbeResult } from '../types.ts';
import { COSTS, ratioColumns } from './columns.ts';
import { apartText, labelOf } from './label.ts';

const LINE = '-'.repeat(110);
/** perftest's MB is 2^20 octets. */
const MB_PER_GB = 1e9 / 2 ** 20;

const DISTURBED =
  ' disturbed: other programs or the host took part of the machine meanwhile, or moved its processors; ' +
  'on a quiet one the figure may be another';

interface Column {
  readonly head: string;
  readonly of: (one: CaseResult) => string;
}

const text = (value: number | null | undefined, digits: number): string =>
  typeof value === 'number' && Number.isFinite(value) ? value.toFixed(digits) : '-';
const column = (
  head: string,
  digits: number,
  of: (one: CaseResult) => number | null | undefined,
): Column => ({ head, of: (one) => text(of(one), digits) });

/**
 * perftest's, under its names. Its average is the mean over all messages, this one the median over the
 * rounds.
 */
const BANDWIDTH: readonly Column[] = [
  column('#bytes', 0, ({ spec }) => spec.size),
  column('#iterations', 0, ({ windows }) => windows),
  column('BW peak[MB/sec]', 2, ({ peak }) => peak * MB_PER_GB),
  column('BW average[MB/sec]', 2, ({ value }) => value.median * MB_PER_GB),
  column('MsgRate[Mpps]', 6, ({ messageRate }) => messageRate),
  // Of both ends, for a message.
  column(
    'CPU[usec]',
    2,
    ({ cost, spec: { size } }) => ((cost.clientPerByte + cost.serverPerByte) * size) / 1000,
  ),
];
const LATENCY: readonly Column[] = [
  column('#bytes', 0, ({ spec }) => spec.size),
  column('#iterations', 0, ({ latency }) => latency?.count),
  column('t_min[usec]', 2, ({ latency }) => latency?.min),
  column('t_max[usec]', 2, ({ latency }) => latency?.max),
  column('t_typical[usec]', 2, ({ latency }) => latency?.typical),
  column('t_avg[usec]', 2, ({ latency }) => latency?.average),
  column('t_stdev[usec]', 2, ({ latency }) => latency?.stdev),
  column('99% percentile[usec]', 2, ({ latency }) => latency?.p99),
  column('99.9% percentile[usec]', 2, ({ latency }) => latency?.p999),
];

/** Columns as wide as they have to be, what a line is at its end. */
function laidOut(
  columns: readonly Column[],
  cases: readonly CaseResult[],
  what: (one: CaseResult) => string,
): string[] {
  const rows = [
    [...columns.map(({ head }) => head), 'what'],
    ...cases.map((one) => [...columns.map(({ of }) => of(one)), what(one)]),
  ];
  const widths = columns.map((_, i) => Math.max(...rows.map((row) => row[i]!.length)));
  return rows.map(
    (row) => ` ${row.map((cell, i) => (i < widths.length ? cell.padEnd(widths[i]! + 2) : cell)).join('')}`,
  );
}

/** One experiment as text. */
export function table(experiment: ExperimentResult): string {
  const where = (one: CaseResult): string =>
    experiment.axis === 'case'
      ? labelOf(experiment, one)
      : experiment.axis === 'size'
        ? one.series
        : `${one.series}, ${one.x} ${experiment.axis}`;
  const what = (one: CaseResult): string => (one.disturbed ? `${where(one)} (disturbed)` : where(one));
  const ratios = ratioColumns(experiment).map(({ head, of }) => column(head, 2, (one) => of(one)?.median));
  const rows = laidOut(
    [...(experiment.test === 'lat' ? LATENCY : BANDWIDTH), ...ratios],
    experiment.cases,
    what,
  );
  const missing = experiment.missing.map(({ id, reason }) => ` not measured: ${id}: ${reason}`);
  const far = apartText(experiment.apart);
  const notes = [
    ...(far === '' ? [] : [` ${far}`]),
    ...(experiment.cases.some(({ disturbed }) => disturbed) ? [DISTURBED] : []),
  ];
  return [
    LINE,
    ` ${experiment.title}`,
    ...experiment.about.split('\n').map((line) => ` ${line}`),
    LINE,
    ...rows,
    ...missing,
    ...notes,
    LINE,
    '',
  ].join('\n');
}

/** A table of the cost of each line of an experiment to its processes, with numbered columns. */
export function costTable({ cases, axis }: ExperimentResult): string {
  const size = axis === 'size' ? [column('#bytes', 0, ({ spec }) => spec.size)] : [];
  const columns = COSTS.map(({ digits, of }, i) => column(`(${i + 1})`, digits, of));
  return [
    ...COSTS.map(({ head }, i) => ` (${i + 1}) ${head}`),
    ...laidOut([...size, ...columns], cases, ({ series }) => series),
    LINE,
    '',
  ].join('\n');
}

const LABEL_WIDTH = 66;

/** A probe as text: its own columns, numbered above where they do not fit. */
export function probeTable(probe: ProbeResult): string {
  const heads = probe.columns.map((head, i) => `   (${i + 1}) ${head}`);
  const widths = probe.columns.map(
    (_, i) => 2 + Math.max(9, ...probe.rows.map(({ cells }) => String(cells[i] ?? '-').length)),
  );
  const numbers =
    ''.padEnd(LABEL_WIDTH) + probe.columns.map((_, i) => `(${i + 1})`.padStart(widths[i]!)).join('');
  const rows = probe.rows.map(
    ({ label, cells }) =>
      ` ${label}`.padEnd(LABEL_WIDTH) +
      cells.map((value, i) => String(value ?? '-').padStart(widths[i]!)).join(''),
  );
  const missing = probe.missing.map(({ id, reason }) => ` not measured: ${id}: ${reason}`);
  const about = probe.about.split('\n').map((line) => ` ${line}`);
  return [
    LINE,
    ` ${probe.title}${probe.disturbed ? ' (disturbed)' : ''}`,
    ...about,
    LINE,
    ...heads,
    numbers,
    ...rows,
    ...missing,
    LINE,
    '',
  ].join('\n');
}
