/**
 * The plot of one row: a panel for each of its panels, one below the other, as wide as a telephone is, so
 * that nothing has to shrink. Colours follow the reader's scheme, light or dark.
 */
import type { Spread } from '../types.ts';
import { digits, type GroupResult } from './paper.ts';

const WIDTH = 380;
const [LEFT, RIGHT, TOP] = [46, 12, 30];
const HEIGHT = 170;
/** Of a letter of the labels, on the average. */
const LETTER = 6.8;
const LINE = 17;
const DASHES = ['', '6 3', '2 3', '8 3 2 3'];
/** Each for light and for dark paper; colour-blind readers tell them apart, and lines have dashes too. */
const COLOURS: readonly (readonly [light: string, dark: string])[] = [
  ['#0072b2', '#56b4e9'],
  ['#c04a00', '#ff9d5c'],
  ['#007a58', '#3fd6a4'],
  ['#b8005c', '#ff86bd'],
  ['#6a3fb5', '#bda5ff'],
  ['#7d6200', '#e8c94a'],
  ['#4d4d4d', '#c4c4c4'],
  ['#8b2f2f', '#f0a0a0'],
  ['#2f6b6b', '#8fdede'],
  ['#5b7a1f', '#b9d97a'],
  ['#333399', '#9fa8ff'],
];

const light = COLOURS.map(([colour], i) => `.c${i}{color:${colour}}`).join('');
const dark = COLOURS.map(([, colour], i) => `.c${i}{color:${colour}}`).join('');
const STYLE =
  `text{font:12px system-ui,sans-serif;fill:#1f2328}.b{fill:#fff}.g{stroke:#d8dee4}.o{stroke:#57606a}` +
  `.h{font-weight:600}.l{stroke:currentColor;fill:none}.f{fill:currentColor}${light}` +
  `@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#0d1117}.g{stroke:#30363d}.o{stroke:#9aa4ae}` +
  `${dark}}`;

const escape = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
const text = (x: number, y: number, words: string, more = ''): string =>
  `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}"${more}>${escape(words)}</text>`;

/** A drawing and how much of the height it takes. */
interface Drawn {
  readonly svg: string;
  readonly height: number;
}

/** One line of a panel: its points by place. */
interface Series {
  readonly name: string;
  readonly points: readonly (Spread | null)[];
}

const isFigure = (value: Spread | null | undefined): value is Spread =>
  value !== null && value !== undefined && Number.isFinite(value.median) && value.median > 0;

/** Ratios where there is a base, which has no line then; figures where there is none. */
function seriesOf(groups: readonly GroupResult[]): Series[] {
  const names = [...new Set(groups.flatMap(({ rows }) => rows.map(({ name }) => name)))];
  return names
    .map((name): Series => {
      const points = groups.map(({ base, rows }) => {
        const row = rows.find((one) => one.name === name);
        const value = base === null ? row?.figure : name === base ? null : row?.ratio;
        return isFigure(value) ? value : null;
      });
      return { name, points };
    })
    .filter(({ points }) => points.some((point) => point !== null));
}

/** The names of the lines, as many to a line as it holds. */
function legend(names: readonly string[]): Drawn {
  let [x, y] = [LEFT, 0];
  const parts = names.map((name, i) => {
    const width = 34 + name.length * LETTER;
    if (x > LEFT && x + width > WIDTH - RIGHT) [x, y] = [LEFT, y + LINE];
    const dash = DASHES[i % DASHES.length];
    const stroke = `stroke-width="2.5"${dash === '' ? '' : ` stroke-dasharray="${dash}"`}`;
    const svg =
      `<path class="l c${i % COLOURS.length}" ${stroke} d="M${x} ${y - 4}h22"/>` + text(x + 27, y, name);
    x += width;
    return svg;
  });
  return { svg: parts.join(''), height: y + LINE };
}

/** Round numbers of a scale that multiplies. */
function ticksOf(low: number, high: number): number[] {
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    for (const step of [1, 2, 5]) {
      const tick = step * 10 ** power;
      if (tick >= low && tick <= high) ticks.push(tick);
    }
  return ticks.length > 7 ? ticks.filter((tick) => tick.toExponential().startsWith('1')) : ticks;
}

/** Lines over the places, on a scale that multiplies: half and twice are equally far from 1. */
function lines(title: string, groups: readonly GroupResult[]): Drawn {
  const series = seriesOf(groups);
  const medians = series.flatMap(({ points }) => points.filter(isFigure).map(({ median }) => median));
  const isRatio = groups[0]!.base !== null;
  const [low, high] = [
    Math.min(...medians, ...(isRatio ? [1] : [])) / 1.35,
    Math.max(...medians, ...(isRatio ? [1] : [])) * 1.35,
  ];
  const span = WIDTH - LEFT - RIGHT;
  const atX = (i: number): number => LEFT + (span * (i + 0.5)) / groups.length;
  const atY = (value: number): number => {
    const share = Math.log(Math.min(high, Math.max(low, value)) / low) / Math.log(high / low);
    return TOP + HEIGHT * (1 - share);
  };
  const grid = ticksOf(low, high).map((tick) => {
    const y = atY(tick);
    const kind = isRatio && tick === 1 ? 'o' : 'g';
    const rule = `<path class="${kind}" d="M${LEFT} ${y.toFixed(1)}H${WIDTH - RIGHT}"/>`;
    return rule + text(LEFT - 5, y + 4, String(Number(tick.toPrecision(2))), ' text-anchor="end"');
  });
  const drawn = series.map(({ points }, i) => {
    // Lines stand a little beside each other, so that none hides another's spread.
    const shift = (i - (series.length - 1) / 2) * Math.min(4, span / groups.length / series.length / 2);
    const at = points.flatMap((point, place) => (point === null ? [] : [{ point, x: atX(place) + shift }]));
    const path = at.map(({ point, x }) => `${x.toFixed(1)} ${atY(point.median).toFixed(1)}`).join('L');
    const spreads = at.map(
      ({ point, x }) => `M${x.toFixed(1)} ${atY(point.low).toFixed(1)}V${atY(point.high).toFixed(1)}`,
    );
    const dots = at.map(
      ({ point, x }) =>
        `<circle class="f" cx="${x.toFixed(1)}" cy="${atY(point.median).toFixed(1)}" r="2.6"/>`,
    );
    const dash = DASHES[i % DASHES.length];
    const stroke = `stroke-width="2"${dash === '' ? '' : ` stroke-dasharray="${dash}"`}`;
    return (
      `<g class="c${i % COLOURS.length}"><path class="l" ${stroke} d="M${path}"/>` +
      `<path class="l" stroke-width="1" d="${spreads.join('')}"/>${dots.join('')}</g>`
    );
  });
  const longest = Math.max(...groups.map(({ at }) => at.length));
  const isTight = longest * LETTER > span / groups.length - 4;
  const places = groups.map(({ at }, i) => {
    const [x, y] = [atX(i), TOP + HEIGHT + 16];
    return isTight
      ? text(x + 4, y - 4, at, ` text-anchor="end" transform="rotate(-38 ${x.toFixed(1)} ${y})"`)
      : text(x, y, at, ' text-anchor="middle"');
  });
  const below = TOP + HEIGHT + 24 + (isTight ? longest * LETTER * 0.62 : 0) + 8;
  const names = legend(series.map(({ name }) => name));
  const head = isRatio ? `${title}: ratio to ${groups[0]!.base}` : `${title}: ${groups[0]!.unit}`;
  return {
    svg:
      `${text(8, 18, head, ' class="h"')}${grid.join('')}${drawn.join('')}${places.join('')}` +
      `<g transform="translate(0,${below.toFixed(1)})">${names.svg}</g>`,
    height: below + names.height + 6,
  };
}

/** One place: a bar for each subject. */
function bars(title: string, group: GroupResult): Drawn {
  const rows = group.rows.filter(({ figure }) => isFigure(figure));
  const most = Math.max(...rows.map(({ figure }) => figure.median));
  const span = WIDTH - 24;
  const drawn = rows.map(({ name, figure, ratio }, i) => {
    const y = TOP + i * 36;
    const beside = isFigure(ratio) && name !== group.base ? `, ${digits(ratio.median)} of ${group.base}` : '';
    const width = (span * figure.median) / most;
    return (
      text(12, y + 12, `${name}: ${digits(figure.median)}${beside}`) +
      `<rect class="f c${i % COLOURS.length}" x="12" y="${y + 17}" ` +
      `width="${width.toFixed(1)}" height="9" rx="2"/>`
    );
  });
  const head = `${title}, ${group.at}: ${group.unit}`;
  return { svg: text(8, 18, head, ' class="h"') + drawn.join(''), height: TOP + rows.length * 36 + 6 };
}

/** Shares: one bar for each place, of all its parts. */
function shares(title: string, groups: readonly GroupResult[]): Drawn {
  const names = groups[0]!.rows.map(({ name }) => name);
  const span = WIDTH - 24;
  const drawn = groups.map(({ at, rows }, i) => {
    const y = TOP + i * 46;
    let x = 12;
    const parts = rows.map(({ name, figure }) => {
      const width = (span * figure.median) / 100;
      const part =
        `<rect class="f c${names.indexOf(name) % COLOURS.length}" x="${x.toFixed(1)}" y="${y + 17}" ` +
        `width="${Math.max(0, width - 1).toFixed(1)}" height="20"/>`;
      x += width;
      return part;
    });
    return text(12, y + 12, at) + parts.join('');
  });
  const below = TOP + groups.length * 46 + 16;
  const keys = legendOfShares(names);
  return {
    svg:
      `${text(8, 18, `${title}: ${groups[0]!.unit}`, ' class="h"')}${drawn.join('')}` +
      `<g transform="translate(0,${below})">${keys.svg}</g>`,
    height: below + keys.height,
  };
}

function legendOfShares(names: readonly string[]): Drawn {
  let [x, y] = [12, 0];
  const parts = names.map((name, i) => {
    const width = 26 + name.length * LETTER;
    if (x + width > WIDTH - RIGHT) [x, y] = [12, y + LINE];
    const svg =
      `<rect class="f c${i % COLOURS.length}" x="${x}" y="${y - 9}" width="11" height="11"/>` +
      text(x + 15, y, name);
    x += width;
    return svg;
  });
  return { svg: parts.join(''), height: y + LINE };
}

/** The SVG of a row; null where there is nothing to draw. */
export function plot(title: string, groups: readonly GroupResult[]): string | null {
  let y = 4;
  const parts: string[] = [];
  for (const panel of new Set(groups.map((group) => group.panel))) {
    const own = groups.filter((group) => group.panel === panel && seriesOf([group]).length > 0);
    if (own.length === 0) continue;
    const drawn = own[0]!.unit.startsWith('%')
      ? shares(panel, own)
      : own.length === 1
        ? bars(panel, own[0]!)
        : lines(panel, own);
    parts.push(`<g transform="translate(0,${y.toFixed(1)})">${drawn.svg}</g>`);
    y += drawn.height + 10;
  }
  if (parts.length === 0) return null;
  const height = Math.ceil(y);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" ` +
    `viewBox="0 0 ${WIDTH} ${height}" role="img"><title>${escape(title)}</title><style>${STYLE}</style>` +
    `<rect class="b" width="100%" height="100%" rx="6"/>${parts.join('\n')}</svg>\n`
  );
}
