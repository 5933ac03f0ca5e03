/** Plots as SVG text, drawn by echarts without a browser. */
import * as echarts from 'echarts';
import type { CaseResult, ExperimentResult } from '../types.ts';

const WIDTH = 860;
const HEIGHT = 400;
const COLORS = ['#7a7a7a', '#b5b5b5', '#0b6fb8', '#58b0e3', '#2e8b57', '#d9822b', '#9c4dcc', '#c23b3b', '#000000'];

/** 65536 as 64K. */
export function octets(value: number): string {
  if (value >= 1 << 20 && value % (1 << 20) === 0) return `${value >> 20}M`;
  return value >= 1024 && value % 1024 === 0 ? `${value >> 10}K` : String(value);
}

function draw(option: echarts.EChartsCoreOption, height = HEIGHT): string {
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height });
  chart.setOption({ animation: false, color: COLORS, textStyle: { fontFamily: 'sans-serif' }, ...option });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg.replace('<svg ', '<svg role="img" ');
}

type Value = (one: CaseResult) => number;

/** Lines over the experiment's axis; nothing where no value is there. */
function lines(experiment: ExperimentResult, name: string, log: boolean, value: Value): string {
  const xs = [...new Set(experiment.cases.map(({ x }) => x))].toSorted((a, b) => a - b);
  const names = [...new Set(experiment.cases.map(({ series }) => series))];
  const at = (series: string, x: number): number | null => {
    const one = experiment.cases.find((candidate) => candidate.series === series && candidate.x === x);
    const found = one === undefined ? Number.NaN : value(one);
    return Number.isFinite(found) && (!log || found > 0) ? found : null;
  };
  const series = names.map((series) => ({ type: 'line', name: series, symbolSize: 6, connectNulls: true, data: xs.map((x) => at(series, x)) }))
    .filter(({ data }) => data.some((point) => point !== null));
  return draw({
    legend: { top: 0 }, grid: { left: 70, right: 20, top: 60, bottom: 50 },
    xAxis: { type: 'category', name: experiment.axis, nameLocation: 'middle', nameGap: 30, data: xs.map(octets) },
    yAxis: { type: log ? 'log' : 'value', name }, series,
  });
}

function bars(experiment: ExperimentResult, name: string, value: Value): string {
  const { cases } = experiment;
  const rows = cases.map((one) => (experiment.id === 'spread' ? `${one.x} connections` : one.series));
  const data = cases.map((one, i) => ({ value: Number(value(one).toPrecision(3)), itemStyle: { color: one.spec.peer === 'iwarp' ? '#0b6fb8' : COLORS[i % 2] } }));
  return draw({
    grid: { left: 170, right: 70, top: 10, bottom: 45 },
    xAxis: { type: 'value', name, nameLocation: 'middle', nameGap: 28 }, yAxis: { type: 'category', inverse: true, data: rows },
    series: [{ type: 'bar', data, label: { show: true, position: 'right' } }],
  }, 80 + 30 * cases.length);
}

/** Percentiles side by side. */
function percentiles(experiment: ExperimentResult): string {
  const cases = experiment.cases.filter(({ latency }) => latency !== null);
  const column = (name: string, key: 'typical' | 'p90' | 'p99' | 'p999'): object =>
    ({ type: 'bar', name, data: cases.map(({ latency }) => Number(latency![key].toPrecision(3))) });
  return draw({
    legend: { top: 0 }, grid: { left: 70, right: 20, top: 40, bottom: 60 },
    xAxis: { type: 'category', data: cases.map(({ series }) => series), axisLabel: { interval: 0, rotate: 20 } }, yAxis: { type: 'log', name: 'us' },
    series: [column('median', 'typical'), column('90 %', 'p90'), column('99 %', 'p99'), column('99.9 %', 'p999')],
  });
}

/** The ratio to the group's TCP case. */
const toTcp: Value = (one) => Object.entries(one.ratios).find(([id]) => id.endsWith('TCP, onread'))?.[1].median ?? Number.NaN;

/** Every plot of an experiment, with a caption. */
export function plots(experiment: ExperimentResult): { readonly caption: string; readonly svg: string }[] {
  if (experiment.cases.length === 0) return [];
  const value: Value = (one) => (experiment.unit === 'M messages/s' ? one.messageRate : one.value.median);
  const latency = experiment.test === 'lat';
  if (experiment.axis === 'case') {
    const main = { caption: `${experiment.unit}, median over the rounds`, svg: bars(experiment, experiment.unit, value) };
    return latency ? [main, { caption: 'Percentiles, microseconds, logarithmic', svg: percentiles(experiment) }] : [main];
  }
  const drawn = [{ caption: `${experiment.unit} over ${experiment.axis}`, svg: lines(experiment, experiment.unit, latency, value) }];
  if (experiment.axis === 'size' && !latency) drawn.push({ caption: 'Millions of messages a second over size', svg: lines(experiment, 'M/s', true, (one) => one.messageRate) });
  if (latency) drawn.push({ caption: '99th percentile, microseconds, over size', svg: lines(experiment, 'us', true, (one) => one.latency?.p99 ?? Number.NaN) });
  if (experiment.cases.some((one) => Number.isFinite(toTcp(one)))) drawn.push({ caption: 'Ratio to TCP with onread, taken inside a round', svg: lines(experiment, 'times TCP', false, toTcp) });
  return drawn;
}
