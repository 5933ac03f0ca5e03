/** Plots as SVG text, drawn by echarts without a browser. */
import * as echarts from 'echarts';
import { isOurs } from '../cases.ts';
import type { CaseResult, ExperimentResult, ProbeChart, Spread } from '../types.ts';
import { labelOf, octets } from './label.ts';

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

/**
 * A series looks the same in every plot: colour, line and mark. Plain TCP is black, this package has colours,
 * others have thin lines.
 */
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
  [/^Promises, Write/, style('#56b4e9', 'solid', 'emptyRect')],
  [/^Promises, Read/, style('#009e73', 'solid', 'emptyDiamond')],
  [/^Promises, Send/, style('#d55e00', 'solid', 'emptyCircle')],
  [/^Byte stream, onread/, style('#8b1a9b', 'solid', 'diamond')],
  [/^Byte stream/, style('#8b1a9b', 'dashed', 'emptyDiamond')],
  [/^(Verbs, )?Write/, style(BLUE, 'solid', 'rect')],
  [/^(Verbs, )?Read/, style('#009e73', 'solid', 'diamond')],
  [/^(Verbs, )?Send/, style('#d55e00', 'solid', 'roundRect')],
  [/^iWARP/, style(BLUE, 'solid', 'rect')],
];
const SPARE: readonly Style[] = [
  style('#000000', 'solid', 'circle'),
  style('#e69f00', 'dashed', 'triangle'),
  style('#009e73', 'solid', 'diamond'),
  style('#cc79a7', 'dotted', 'emptyRect'),
];

/** Where two series of one plot would look alike, the later one takes a spare look. */
function stylesOf(names: readonly string[]): Style[] {
  const used = new Set<string>();
  return names.map((name) => {
    const own = STYLES.find(([pattern]) => pattern.test(name))?.[1];
    const free = [...(own === undefined ? [] : [own]), ...SPARE, ...STYLES.map(([, one]) => one)].find(
      (one) => !used.has(JSON.stringify(one)),
    );
    const chosen = free ?? SPARE[0]!;
    used.add(JSON.stringify(chosen));
    return chosen;
  });
}

/**
 * Coordinates to a tenth of a pixel, and nothing for the mouse: nobody sees more, and the file is half as
 * large.
 */
const shorten = (svg: string): string =>
  svg
    .replaceAll(/<style[^]*?<\/style>\n?/g, '')
    .replaceAll(/ (?:class|ecmeta_\w+|pointer-events)="[^"]*"/g, '')
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

const AXES: Readonly<Record<ExperimentResult['axis'], string>> = {
  size: 'octets of a message',
  'in flight': 'messages under way',
  connections: 'connections',
  clients: 'client processes',
  'FPDU size': 'octets of TCP payload that an FPDU may fill',
  case: '',
};
const UNITS: Readonly<Record<ExperimentResult['unit'], string>> = {
  'GB/s': 'GB/s',
  'M messages/s': 'million messages a second',
  us: 'microseconds',
  'us of main thread': 'microseconds of the main thread',
};

/** Lines over the experiment's axis; nothing where no value is there. */
function lines(experiment: ExperimentResult, { y, log, one = false }: Axes, value: Value): string {
  const xs = [...new Set(experiment.cases.map(({ x }) => x))].toSorted((a, b) => a - b);
  const at = (series: string, x: number): number | null => {
    const found = experiment.cases.find((candidate) => candidate.series === series && candidate.x === x);
    const figure = found === undefined ? Number.NaN : value(found);
    return Number.isFinite(figure) && (!log || figure > 0) ? Number(figure.toPrecision(4)) : null;
  };
  const names = [...new Set(experiment.cases.map(({ series }) => series))].filter((series) =>
    xs.some((x) => at(series, x) !== null),
  );
  const looks = stylesOf(names);
  const series = names.map((name, i) => ({
    type: 'line',
    name,
    symbol: looks[i]!.symbol,
    symbolSize: 8,
    connectNulls: true,
    data: xs.map((x) => at(name, x)),
    itemStyle: { color: looks[i]!.color },
    lineStyle: { color: looks[i]!.color, type: looks[i]!.dash, width: looks[i]!.dash === 'solid' ? 2.5 : 2 },
    ...(one &&
      i === 0 && {
        markLine: {
          silent: true,
          symbol: 'none',
          data: [{ yAxis: 1 }],
          lineStyle: { color: '#000', type: 'solid', width: 1 },
          label: { formatter: 'TCP' },
        },
      }),
  }));
  const title = AXES[experiment.axis];
  return draw({
    legend: { top: 0, itemWidth: 36 },
    grid: { left: 75, right: 50, top: names.length > 5 ? 85 : 60, bottom: 55 },
    xAxis: { type: 'category', name: title, nameLocation: 'middle', nameGap: 32, data: xs.map(octets) },
    yAxis: {
      type: log ? 'log' : 'value',
      logBase: one ? 2 : 10,
      name: y,
      nameTextStyle: { align: 'left' },
      axisLabel: { formatter: plainNumber },
    },
    series,
  });
}

interface Bar {
  readonly label: string;
  readonly value: number | null;
  readonly ours: boolean;
  /** Quartiles, drawn as a thin line over the bar's end. */
  readonly spread?: { readonly low: number; readonly high: number };
}

interface BarAxis {
  readonly unit: string;
  readonly log?: boolean;
  /** A line at 1: as good as TCP. */
  readonly one?: boolean;
  /** Name of the line at 1. */
  readonly same?: string;
}

/** Whiskers from quartile to quartile; nothing where there are none. */
function whiskers(rows: readonly Bar[]): object {
  const data = rows.flatMap(({ spread }, i) =>
    spread === undefined || !Number.isFinite(spread.low + spread.high) ? [] : [[spread.low, spread.high, i]],
  );
  const renderItem = (_params: unknown, api: echarts.CustomSeriesRenderItemAPI): object => {
    const [from, to] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2)])] as [
      number[],
      number[],
    ];
    const line = (x1: number, y1: number, x2: number, y2: number): object => ({
      type: 'line',
      shape: { x1, y1, x2, y2 },
      style: { stroke: '#222', lineWidth: 1.2 },
    });
    const [y, tip] = [from[1]!, 4];
    return {
      type: 'group',
      children: [
        line(from[0]!, y, to[0]!, y),
        line(from[0]!, y - tip, from[0]!, y + tip),
        line(to[0]!, y - tip, to[0]!, y + tip),
      ],
    };
  };
  return { type: 'custom', silent: true, z: 5, data, renderItem, encode: { x: [0, 1], y: 2 } };
}

/** Horizontal bars, this package in blue. */
function bars(rows: readonly Bar[], { unit, log = false, one = false, same = 'as TCP' }: BarAxis): string {
  // The figure stands after the whisker, not under it.
  const data = rows.map(({ value, ours }) => ({
    value: value === null ? null : Number(value.toPrecision(3)),
    itemStyle: { color: ours ? BLUE : GREY },
  }));
  const labels = rows.map(({ value, spread }) =>
    value === null
      ? null
      : {
          value: Math.max(value, spread !== undefined && Number.isFinite(spread.high) ? spread.high : value),
          text: String(Number(value.toPrecision(3))),
        },
  );
  const texts = {
    type: 'scatter',
    silent: true,
    symbolSize: 1,
    itemStyle: { color: 'transparent' },
    data: labels.map((each, i) => (each === null ? null : [each.value, i])),
    label: {
      show: true,
      position: 'right',
      distance: 8,
      color: '#222',
      formatter: ({ dataIndex }: { dataIndex: number }) => labels[dataIndex]?.text ?? '',
    },
  };
  const mark = {
    silent: true,
    symbol: 'none',
    data: [{ xAxis: 1 }],
    lineStyle: { color: '#000', type: 'dashed', width: 1 },
    label: { formatter: same, position: 'start' },
  };
  const longest = Math.max(...rows.map(({ label }) => label.length));
  return draw(
    {
      grid: { left: Math.min(400, 25 + longest * 7), right: 80, top: one ? 25 : 10, bottom: 45 },
      xAxis: {
        type: log ? 'log' : 'value',
        name: unit,
        nameLocation: 'middle',
        nameGap: 28,
        axisLabel: { formatter: plainNumber },
        ...(log && { min: 1 }),
      },
      yAxis: { type: 'category', inverse: true, data: rows.map(({ label }) => label) },
      series: [{ type: 'bar', barMaxWidth: 22, data, ...(one && { markLine: mark }) }, whiskers(rows), texts],
    },
    80 + 30 * rows.length,
  );
}

/** Percentiles side by side. */
function percentiles(experiment: ExperimentResult): string {
  const cases = experiment.cases.filter(({ latency }) => latency !== null);
  const column = (name: string, key: 'typical' | 'p90' | 'p99' | 'p999', color: string): object => ({
    type: 'bar',
    name,
    itemStyle: { color },
    data: cases.map(({ latency }) => Number(latency![key].toPrecision(3))),
  });
  return draw({
    legend: { top: 0 },
    grid: { left: 70, right: 20, top: 50, bottom: 70 },
    xAxis: {
      type: 'category',
      data: cases.map(({ series }) => series),
      axisLabel: { interval: 0, rotate: 20 },
    },
    yAxis: {
      type: 'log',
      name: 'microseconds',
      nameTextStyle: { align: 'left' },
      axisLabel: { formatter: plainNumber },
    },
    series: [
      column('median', 'typical', '#08306b'),
      column('90 %', 'p90', '#2171b5'),
      column('99 %', 'p99', '#f16913'),
      column('99.9 %', 'p999', '#a50f15'),
    ],
  });
}

/** The ratio to the group's TCP case; none for that case itself. */
const tcpRatio = (one: CaseResult): Spread | undefined =>
  one.series === 'TCP, onread'
    ? undefined
    : Object.entries(one.ratios).find(([id]) => id.endsWith('TCP, onread'))?.[1];
const toTcp: Value = (one) => tcpRatio(one)?.median ?? Number.NaN;

export interface Figure {
  readonly caption: string;
  /** The point that a reader should look for. */
  readonly see: string;
  readonly svg: string;
}

const valueOf =
  (experiment: ExperimentResult): Value =>
  (one) =>
    experiment.unit === 'M messages/s'
      ? one.messageRate
      : experiment.unit === 'us of main thread'
        ? one.cost.mainPerMessage
        : one.value.median;

/** NaN has become null in a file. */
const present = (value: number | null): value is number =>
  typeof value === 'number' && Number.isFinite(value);

function caseFigures(experiment: ExperimentResult): Figure[] {
  const value = valueOf(experiment);
  const latency = experiment.test === 'lat';
  const rows = experiment.cases.map((one) => {
    // Quartiles are of the rate in octets; that of messages is as many times as large.
    const scale = value(one) / one.value.median;
    const figure = value(one);
    return {
      label: labelOf(experiment, one),
      value: present(figure) ? figure : null,
      ours: isOurs(one.spec),
      spread: { low: one.value.low * scale, high: one.value.high * scale },
    };
  });
  const drawn: Figure[] = [
    {
      caption: `${experiment.title}, ${UNITS[experiment.unit]}`,
      see:
        `${latency ? 'Shorter' : 'Longer'} is better. Blue is this package, grey are the others; a bar ` +
        'ends at the median over the rounds, the thin line spans its quartiles.',
      svg: bars(rows, { unit: UNITS[experiment.unit] }),
    },
  ];
  const ratios = experiment.cases.flatMap((one) => {
    const ratio = tcpRatio(one);
    return ratio === undefined || !present(ratio.median)
      ? []
      : [{ label: labelOf(experiment, one), value: ratio.median, ours: isOurs(one.spec), spread: ratio }];
  });
  if (ratios.length > 0) {
    drawn.push({
      caption: 'The same as a ratio to bare TCP with onread',
      svg: bars(ratios, { unit: 'times TCP', one: true }),
      see:
        'Taken inside a round, when the machine was the same for both. The dashed line is bare TCP: ' +
        `${latency ? 'left of it is quicker' : 'right of it is more'}.`,
    });
  }
  if (latency)
    drawn.push({
      caption: 'How late the latest are: percentiles of latency',
      svg: percentiles(experiment),
      see:
        'The nearer the four bars of a group are to each other, the steadier it is; the axis is ' +
        'logarithmic.',
    });
  return drawn;
}

/** Title and hint of the first plot of an experiment with lines. */
function firstFigure(experiment: ExperimentResult): Figure {
  const { unit, axis } = experiment;
  const low = experiment.test === 'lat' || unit === 'us of main thread';
  const what = low ? 'Lower is better; the axis is logarithmic.' : 'Higher is better.';
  const own: Readonly<Record<string, string>> = {
    size: 'Black is bare TCP, the measure; colours are this package, thin dotted lines are others.',
    'in flight': 'A line that has levelled off has enough messages under way.',
    connections: 'A level line is best: no collapse with many connections.',
    clients:
      'With more clients than processors all of them wait for each other; the line should fall no ' +
      'faster than that of bare TCP.',
    'FPDU size': 'The work for each FPDU is the same whatever it holds, so the line rises to the right.',
  };
  const lead =
    experiment.id === 'gather'
      ? 'Black is the copy, the measure; blue is this package, the others are plain TCP in other ways.'
      : (own[axis] ?? '');
  const see = `${lead} ${what}`.trim();
  return {
    caption: `${experiment.title}, ${UNITS[unit]}`,
    see,
    svg: lines(experiment, { y: UNITS[unit], log: low }, valueOf(experiment)),
  };
}

/** Experiments from messages so small that their number is what counts. */
const WITH_RATES: ReadonlySet<string> = new Set(['bandwidth', 'layers']);

function lineFigures(experiment: ExperimentResult): Figure[] {
  const latency = experiment.test === 'lat';
  const main = experiment.unit === 'us of main thread';
  const over = AXES[experiment.axis];
  const drawn = [firstFigure(experiment)];
  const add = (caption: string, see: string, axes: Axes, value: Value): void =>
    void drawn.push({ caption, see, svg: lines(experiment, axes, value) });
  if (main) {
    add(
      'Of these, microseconds in the call that posts or writes',
      'Lower is better; the rest is spent after the call, on completions and, with the engine in the ' +
        'same thread, on the protocol.',
      { y: 'microseconds in the call', log: true },
      (one) => one.cost.postPerMessage,
    );
  }
  if (WITH_RATES.has(experiment.id)) {
    add(
      'The same in messages: millions a second over size',
      'Higher is better. Left of the bend it is the number of messages that costs, right of it the octets.',
      { y: 'million messages a second', log: true },
      (one) => one.messageRate,
    );
  }
  if (experiment.axis === 'in flight' || experiment.axis === 'connections') {
    add(
      'How long a message is under way, on average',
      'Messages under way divided by messages a second, from posting to completion. Lower is better; ' +
        'where throughput has levelled off, more under way only wait longer.',
      { y: 'microseconds', log: true },
      (one) => one.spec.inFlight / one.messageRate,
    );
  }
  if (latency) {
    add(
      'The slowest of a hundred: 99th percentile of latency',
      'Lower is better. One message in a hundred takes longer than this.',
      { y: 'microseconds', log: true },
      (one) => one.latency?.p99 ?? Number.NaN,
    );
    add(
      'Jitter: 99th percentile, times the median',
      'A line at 1 would mean that all messages take the same time.',
      { y: 'times the median', log: false },
      (one) => (one.latency === null ? Number.NaN : one.latency.p99 / one.latency.typical),
    );
  }
  if (!main && experiment.cases.some((one) => Number.isFinite(toTcp(one)))) {
    add(
      `Ratio to bare TCP with onread over ${over}`,
      'Taken inside a round. The line marked TCP is bare TCP: ' +
        `${latency ? 'below it is quicker' : 'above it is more'}; from line to line it doubles.`,
      { y: 'times TCP', log: true, one: true },
      toTcp,
    );
  }
  return drawn;
}

/** Every plot of an experiment, with a caption. */
export function plots(experiment: ExperimentResult): Figure[] {
  if (experiment.cases.length === 0) return [];
  return experiment.axis === 'case' ? caseFigures(experiment) : lineFigures(experiment);
}

/** The picture at the top of the report: this package in times of each other way. */
export function glanceFigure(rows: readonly { readonly label: string; readonly value: number }[]): Figure {
  return {
    caption: 'This package, in times of other ways over the same loopback interface',
    see: 'The dashed line is as much as the other way. Longer is better, except for latency.',
    svg: bars(
      rows.map((row) => ({ ...row, ours: true })),
      { unit: 'times', one: true, same: 'alike' },
    ),
  };
}

/** The plots of a probe. */
export function probePlots(charts: readonly ProbeChart[]): Figure[] {
  return charts
    .filter(({ bars: rows }) => rows.some(({ value }) => value !== null))
    .map(({ caption, see, unit, log, bars: rows }) => ({ caption, see, svg: bars(rows, { unit, log }) }));
}
