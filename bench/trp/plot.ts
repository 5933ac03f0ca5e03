/** The figure as one SVG: four panels, three lines each. */
import { LOSSES, RECEIVERS, REORDERINGS, type LabResult } from './figure.ts';

const [WIDTH, HEIGHT] = [360, 230];
const [LEFT, TOP, RIGHT, BOTTOM] = [58, 34, 14, 40];
const COLOURS = ['#0645ad', '#c04000', '#3a7d2c'];

interface Panel {
  readonly title: string;
  readonly axis: string;
  readonly results: readonly LabResult[];
  readonly points: readonly number[];
  readonly x: (one: LabResult) => number;
  readonly y: (one: LabResult) => number;
}

/** A round number at or above. */
function ceiling(value: number): number {
  const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((step) => step * unit).find((most) => most >= value)!;
}

function panel({ title, axis, results, points, x, y }: Panel, column: number, row: number): string {
  const most = ceiling(Math.max(...results.map(y)));
  const span = WIDTH - LEFT - RIGHT;
  // The points stand at even distances: a sweep from 0.1 to 5 % has no room otherwise.
  const atX = (value: number): number => LEFT + (points.indexOf(value) * span) / (points.length - 1);
  const atY = (value: number): number => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / most;
  const text = (tx: number, ty: number, words: string, more = ''): string =>
    `<text x="${tx.toFixed(1)}" y="${ty.toFixed(1)}" ${more}>${words}</text>`;
  const lines = RECEIVERS.map((receiver, i) => {
    const own = results.filter((one) => one.receiver === receiver);
    const path = own.map((one) => `${atX(x(one)).toFixed(1)},${atY(y(one)).toFixed(1)}`).join(' ');
    const dash = i === 2 ? ' stroke-dasharray="5 3"' : '';
    const width = i === 1 ? 4 : 2;
    return `<polyline fill="none" stroke="${COLOURS[i]}" stroke-width="${width}"${dash} points="${path}"/>`;
  });
  const grid = [0, 0.5, 1].map((share) => {
    const at = atY(share * most);
    const rule = `<path stroke="#ddd" d="M${LEFT} ${at.toFixed(1)}H${WIDTH - RIGHT}"/>`;
    return rule + text(LEFT - 6, at + 4, String(Number((share * most).toPrecision(3))), 'text-anchor="end"');
  });
  const labels = points.map((point) =>
    text(atX(point), HEIGHT - BOTTOM + 16, `${point}`, 'text-anchor="middle"'),
  );
  return [
    `<g transform="translate(${column * WIDTH},${row * HEIGHT + 30})">`,
    text(LEFT, 20, title, 'font-weight="bold"'),
    ...grid,
    ...lines,
    ...labels,
    text(LEFT + span / 2, HEIGHT - 6, axis, 'text-anchor="middle"'),
    '</g>',
  ].join('');
}

/** The SVG of both sweeps. */
export function plot(loss: readonly LabResult[], reordering: readonly LabResult[]): string {
  const byLoss = { axis: 'loss, percent', results: loss, points: LOSSES, x: (one: LabResult) => one.loss };
  const byOrder = {
    axis: 'reordering, percent',
    results: reordering,
    points: REORDERINGS,
    x: (one: LabResult) => one.reordering,
  };
  const panels: Panel[] = [
    { ...byLoss, title: 'arrival to placement, mean ms', y: (one) => one.placement },
    { ...byOrder, title: 'arrival to placement, mean ms', y: (one) => one.placement },
    { ...byLoss, title: 'arrival to turn (completion), mean ms', y: (one) => one.turn },
    { ...byOrder, title: 'arrival to turn (completion), mean ms', y: (one) => one.turn },
    { ...byLoss, title: 'memory held, KB at most', y: (one) => one.held / 1000 },
    { ...byOrder, title: 'memory held, KB at most', y: (one) => one.held / 1000 },
    { ...byLoss, title: 'goodput, MB/s', y: (one) => one.goodput },
    { ...byOrder, title: 'goodput, MB/s', y: (one) => one.goodput },
  ];
  const legend = RECEIVERS.map(
    (receiver, i) =>
      `<path stroke="${COLOURS[i]}" stroke-width="3" d="M${60 + i * 180} 16h26"/>` +
      `<text x="${92 + i * 180}" y="20">${receiver}</text>`,
  );
  const size = `width="${2 * WIDTH}" height="${4 * HEIGHT + 36}"`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} viewBox="0 0 ${2 * WIDTH} ${4 * HEIGHT + 36}" ` +
    `font-family="sans-serif" font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/>` +
    `${legend.join('')}${panels.map((one, i) => panel(one, i % 2, i >> 1)).join('')}</svg>\n`
  );
}
