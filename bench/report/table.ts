/** Results in perftest's columns. */
import type { ExperimentResult, ProbeResult } from '../types.ts';
import { labelOf } from './label.ts';

const LINE = '-'.repeat(110);
const BW = ' #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]   of TCP   what';
const LAT = ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]   what';
/** perftest's MB is 2^20 octets. */
const MB_PER_GB = 1e9 / 2 ** 20;

const cell = (value: number, digits: number, width: number): string => (Number.isFinite(value) ? value.toFixed(digits) : '-').padEnd(width);

/** One experiment as text. */
export function table(experiment: ExperimentResult): string {
  const rows = experiment.cases.map((one) => {
    const { size } = one.spec;
    const where = experiment.axis === 'case' ? labelOf(experiment, one) : experiment.axis === 'size' ? one.series : `${one.series}, ${one.x} ${experiment.axis}`;
    const what = one.disturbed ? `${where} (disturbed)` : where;
    if (one.latency !== null) {
      const l = one.latency;
      return ` ${String(size).padEnd(7)} ${String(l.count).padEnd(14)} ${cell(l.min, 2, 14)} ${cell(l.max, 2, 12)} ${cell(l.typical, 2, 16)} ${cell(l.average, 2, 14)} ${cell(l.stdev, 2, 15)} ${cell(l.p99, 2, 22)} ${cell(l.p999, 2, 24)} ${what}`;
    }
    const ratio = Object.entries(one.ratios).find(([id]) => id.endsWith('TCP, onread'))?.[1].median ?? Number.NaN;
    return ` ${String(size).padEnd(10)} ${String(one.windows).padEnd(14)} ${cell(one.peak * MB_PER_GB, 2, 18)} ${cell(one.value.median * MB_PER_GB, 2, 20)} ${cell(one.messageRate, 6, 15)} ${cell(ratio, 2, 8)} ${what}`;
  });
  const missing = experiment.missing.map(({ id, reason }) => ` not measured: ${id}: ${reason}`);
  return [LINE, ` ${experiment.title}`, LINE, experiment.test === 'lat' ? LAT : BW, ...rows, ...missing, LINE, ''].join('\n');
}

const LABEL_WIDTH = 66;

/** A probe as text: its own columns, numbered above where they do not fit. */
export function probeTable(probe: ProbeResult): string {
  const heads = probe.columns.map((head, i) => `   (${i + 1}) ${head}`);
  const widths = probe.columns.map((_, i) => 2 + Math.max(9, ...probe.rows.map(({ cells }) => String(cells[i] ?? '-').length)));
  const numbers = ''.padEnd(LABEL_WIDTH) + probe.columns.map((_, i) => `(${i + 1})`.padStart(widths[i]!)).join('');
  const rows = probe.rows.map(({ label, cells }) => ` ${label}`.padEnd(LABEL_WIDTH) + cells.map((value, i) => String(value ?? '-').padStart(widths[i]!)).join(''));
  const missing = probe.missing.map(({ id, reason }) => ` not measured: ${id}: ${reason}`);
  return [LINE, ` ${probe.title}${probe.disturbed ? ' (disturbed)' : ''}`, LINE, ...heads, numbers, ...rows, ...missing, LINE, ''].join('\n');
}
