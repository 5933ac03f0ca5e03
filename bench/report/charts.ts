/** Plots as SVG text, drawn by echarts without a browser. */
import * as echarts from 'echarts';
import type { CaseResult, ExperimentResult, ProbeChart } from '../types.ts';

const WIDTH = 880;
const HEIGHT = 430;
/** Okabe and Ito's colours, which colour-blind readers tell apart too. */
const BLUE = '#0072b2';
const GREY = '#9a9a9a';

interface Style {
  readonly color: string;
  readonly dash: 'solid' | 'dashed' | 'dotted';
  readonly symbol: string;
}

const style = (color: string, dash: Style['dash'], symbol: string): Style => ({ color, dash, symbol });

/** A series looks the same in every plot: colour, line and mark. Plain TCP is black, what is ours has colours, others have thin lines. */
const STYLES: readonly (readonly [name: RegExp, style: Style])[] = [
  [/^TCP, onread$/, style('#000000', 'solid', 'circle')],
  [/^TCP, 'data'$/, style('#7f7f7f', 'dashed', 'emptyCircle')],
  [/^TCP/, style('#7f7f7f', 'dotted', 'emptyTriangle')],
  [/^C program$/, style('#000000', 'dotted', 'emptyDiamond')],
  [/^ws$/, style('#cc79a7', 'dotted', 'emptyRect')],
  [/^grpc-js$/, style('#a6761d', 'dotted', 'emptyTriangle')],
  [/no CRC, markers/, style('#e69f00', 'dashed', 'triangle')],
  [/markers/, style('#b8005c', 'solid', 'triangle')],
  [/^(Write|Send), no CRC/, style('#56b4e9', 'dashed', 'emptyRect')],
  [/worker/, style('#8b1a9b', 'solid', 'diamond')],
  [/^Write/, style(BLUE, 'solid', 'rect')],
  [/^Read/, style('#009e73', 'solid', 'diamond')],
  [/^Send/, style('#d55e00', 'solid', 'roundRect')],
  [/^iWARP/, style(BLUE, 'solid', 'rect')],
];
const SPARE: readonly Style[] = [
  style('#000000', 'solid', 'circle'), style('#e69f00', 'dashed', 'triangle'), style('#009e73', 'solid', 'diamond'), style('#cc79a7', 'dotted', 'emptyRect'),
];

/** Where two series of one plot would look alike, the later one takes a spare look. */
function stylesOf(names: readonly string[]): Style[] {
  const used = new Set<string>();
  return names.map((name) => {
    const own = STYLES.find(([pattern]) => pattern.test(name))?.[1];
    const free = [...(own === undefined ? [] : [own]), ...SPARE, ...STYLES.map(([, one]) => one)].find((one) => !used.has(JSON.stringify(one)));
    const chosen = free ?? SPARE[0]!;
    used.add(JSON.stringify(chosen));
    return chosen;
  });
}

/** 65536 as 64 KiB. */
export function octets(value: number): string {
  if (value >= 1 << 20 && value % (1 << 20) === 0) return `${value >> 20} MiB`;
  return value >= 1024 && value % 1024 === 0 ? `${value >> 10} KiB` : String(value);
}

/** Coordinates to a tenth of a pixel, and nothing for the mouse: nobody sees more, and the file is half as large. */
const shorten = (svg: string): string => svg
  .replaceAll(/<style[^]*?<\/style>\n?/g, '').replaceAll(/ (?:class|ecmeta_\w+|pointer-events)="[^"]*"/g, '')
  .replaceAll(/="[^"]*"/g, (attribute) => attribute.replaceAll(/(\d+\.\d)\d+/g, '$1'));

function draw(option: echarts.EChartsCoreOption, height = HEIGHT): string {
  const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width: WIDTH, height });
  chart.setOption({ animation: false, textStyle: { fontFamily: 'sans-serif', fontSize: 13 }, ...option });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return shorten(svg).replace('<svg ', '<svg role="img" ');
}

/** 0.0001, not the 0.00009999999 that a logarithmic axis comes to. */
const plainNumber = (value: number): string => String(Number(value.toPrecision(6)));

type Value = (one: CaseResult) => number;

interface Axes {
  readonly y: string;
  readonly log: boolean;
  /** A line at 1: as good as TCP. */
  readonly one?: boolean;
}

/** Lines over the experiment's axis; nothing where no value is there. */
function lines(experiment: ExperimentResult, { y, log, one = false }: Axes, value: Value): string {
  const xs = [...new Set(experiment.cases.map(({ x }) => x))].toSorted((a, b) => a - b);
  const at = (series: string, x: number): number | null => {
    const found = experiment.cases.find((candidate) => candidate.series === series && candidate.x === x);
    const figure = found === undefined ? Number.NaN : value(found);
    return Number.isFinite(figure) && (!log || figure > 0) ? Number(figure.toPrecision(4)) : null;
  };
  const names = [...new Set(experiment.cases.map(({ series }) => series))].filter((series) => xs.some((x) => at(series, x) !== null));
  const looks = stylesOf(names);
  const series = names.map((name, i) => ({
    type: 'line', name, symbol: looks[i]!.symbol, symbolSize: 8, connectNulls: true, data: xs.map((x) => at(name, x)),
    itemStyle: { color: looks[i]!.color }, lineStyle: { color: looks[i]!.color, type: looks[i]!.dash, width: looks[i]!.dash === 'solid' ? 2.5 : 2 },
    ...(one && i === 0 && { markLine: { silent: true, symbol: 'none', data: [{ yAxis: 1 }], lineStyle: { color: '#000', type: 'solid', width: 1 }, label: { formatter: 'TCP' } } }),
  }));
  const title = experiment.axis === 'size' ? 'octets of a message' : experiment.axis === 'FPDU size' ? 'octets of an FPDU' : experiment.axis === 'in flight' ? 'messages under way' : experiment.axis;
  return draw({
    legend: { top: 0, itemWidth: 36 }, grid: { left: 75, right: 50, top: names.length > 5 ? 85 : 60, bottom: 55 },
    xAxis: { type: 'category', name: title, nameLocation: 'middle', nameGap: 32, data: xs.map(octets) },
    yAxis: { type: log ? 'log' : 'value', name: y, nameTextStyle: { align: 'left' }, axisLabel: { formatter: plainNumber } }, series,
  });
}

interface Bar {
  readonly label: string;
  readonly value: number | null;
  readonly ours: boolean;
}

/** Horizontal bars, what is ours in blue. */
function bars(rows: readonly Bar[], unit: string, log = false): string {
  const data = rows.map(({ value, ours }) => ({ value: value === null ? null : Number(value.toPrecision(3)), itemStyle: { color: ours ? BLUE : GREY } }));
  const longest = Math.max(...rows.map(({ label }) => label.length));
  return draw({
    grid: { left: Math.min(400, 25 + longest * 7), right: 80, top: 10, bottom: 45 },
    xAxis: { type: log ? 'log' : 'value', name: unit, nameLocation: 'middle', nameGap: 28, ...(log && { min: 1 }) }, yAxis: { type: 'category', inverse: true, data: rows.map(({ label }) => label) },
    series: [{ type: 'bar', barMaxWidth: 22, data, label: { show: true, position: 'right' } }],
  }, 80 + 30 * rows.length);
}

/** Percentiles side by side. */
function percentiles(experiment: ExperimentResult): string {
  const cases = experiment.cases.filter(({ latency }) => latency !== null);
  const column = (name: string, key: 'typical' | 'p90' | 'p99' | 'p999', color: string): object =>
    ({ type: 'bar', name, itemStyle: { color }, data: cases.map(({ latency }) => Number(latency![key].toPrecision(3))) });
  return draw({
    legend: { top: 0 }, grid: { left: 70, right: 20, top: 50, bottom: 70 },
    xAxis: { type: 'category', data: cases.map(({ series }) => series), axisLabel: { interval: 0, rotate: 20 } }, yAxis: { type: 'log', name: 'us', axisLabel: { formatter: plainNumber } },
    series: [column('median', 'typical', '#08306b'), column('90 %', 'p90', '#2171b5'), column('99 %', 'p99', '#f16913'), column('99.9 %', 'p999', '#a50f15')],
  });
}

/** The ratio to the group's TCP case; 1 for that case itself. */
const toTcp: Value = (one) =>
  one.series === 'TCP, onread' ? Number.NaN : (Object.entries(one.ratios).find(([id]) => id.endsWith('TCP, onread'))?.[1].median ?? Number.NaN);

export interface Figure {
  readonly caption: string;
  readonly svg: string;
}

const valueOf = (experiment: ExperimentResult): Value => (one) =>
  (experiment.unit === 'M messages/s' ? one.messageRate : experiment.unit === 'us of main thread' ? one.cost.mainPerMessage : one.value.median);

function caseFigures(experiment: ExperimentResult): Figure[] {
  const value = valueOf(experiment);
  const rows = experiment.cases.map((one) => ({ label: experiment.id === 'spread' ? `${one.x} connections` : one.series, value: value(one), ours: one.spec.peer === 'iwarp' }));
  const drawn = [{ caption: `${experiment.unit}, median over the rounds; blue is this package`, svg: bars(rows, experiment.unit) }];
  const ratios = experiment.cases.map((one) => ({ label: one.series, value: toTcp(one), ours: one.spec.peer === 'iwarp' })).filter(({ value: ratio }) => Number.isFinite(ratio));
  if (ratios.length > 0) drawn.push({ caption: `Times TCP with onread, taken inside a round${experiment.test === 'lat' ? ': below 1 is quicker' : ': above 1 is more'}`, svg: bars(ratios, 'times TCP') });
  if (experiment.test === 'lat') drawn.push({ caption: 'Percentiles, microseconds, logarithmic', svg: percentiles(experiment) });
  return drawn;
}

function lineFigures(experiment: ExperimentResult): Figure[] {
  const latency = experiment.test === 'lat';
  const { unit } = experiment;
  const main = unit === 'us of main thread';
  const drawn = [{ caption: `${main ? 'Microseconds of the main thread for a message' : unit} over ${experiment.axis}${latency || main ? ', logarithmic: lower is better' : ''}`, svg: lines(experiment, { y: unit, log: latency || main }, valueOf(experiment)) }];
  if (main) drawn.push({ caption: 'Of these, microseconds in the call that posts or writes, logarithmic: lower is better', svg: lines(experiment, { y: 'us in the call', log: true }, (one) => one.cost.postPerMessage) });
  if (experiment.id === 'bandwidth') drawn.push({ caption: 'Millions of messages a second over size, logarithmic', svg: lines(experiment, { y: 'M messages/s', log: true }, (one) => one.messageRate) });
  if (latency) {
    drawn.push({ caption: '99th percentile over size, logarithmic', svg: lines(experiment, { y: 'us', log: true }, (one) => one.latency?.p99 ?? Number.NaN) });
    drawn.push({ caption: 'Jitter over size: 99th percentile, times the median', svg: lines(experiment, { y: 'p99 / median', log: false }, (one) => (one.latency === null ? Number.NaN : one.latency.p99 / one.latency.typical)) });
  }
  if (!main && experiment.cases.some((one) => Number.isFinite(toTcp(one)))) {
    drawn.push({ caption: `Ratio to TCP with onread, taken inside a round, logarithmic${latency ? ': below 1 is quicker' : ': above 1 is more'}`, svg: lines(experiment, { y: 'times TCP', log: true, one: true }, toTcp) });
  }
  return drawn;
}

/** Every plot of an experiment, with a caption. */
export function plots(experiment: ExperimentResult): Figure[] {
  if (experiment.cases.length === 0) return [];
  return experiment.axis === 'case' ? caseFigures(experiment) : lineFigures(experiment);
}

/** The plots of a probe. */
export function probePlots(charts: readonly ProbeChart[]): Figure[] {
  return charts.filter(({ bars: rows }) => rows.some(({ value }) => value !== null))
    .map(({ caption, unit, log, bars: rows }) => ({ caption, svg: bars(rows, unit, log) }));
}
