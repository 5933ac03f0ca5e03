/** The page of the papers' rows: their finding, our ratios, why, a plot, and every figure. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { withFile } from '../../cli/support/system-errors.ts';
import { spread } from '../stats.ts';
import type { Spread } from '../types.ts';
import { PAPERS } from './index.ts';
import {
  comparable,
  cpuUnit,
  digits,
  type GroupResult,
  type Paper,
  type Part,
  type PartResult,
} from './paper.ts';
import { plot } from './plot.ts';

/** A run of papers' rows. */
export interface PapersRun {
  readonly schema: 'iwarp-papers/1';
  readonly started: string;
  readonly seconds: number;
  readonly rounds: number;
  readonly machine: Readonly<Record<string, string>>;
  /** The share of one processor that programs which are not ours had meanwhile. */
  readonly foreign: number;
  readonly parts: readonly PartResult[];
}

/** More than this of a processor taken by others makes the figures of a run doubtful. */
const DISTURBED = 0.1;

const isFigure = (value: Spread | null | undefined): value is Spread =>
  value !== null && value !== undefined && Number.isFinite(value.median);
const written = (value: Spread | null | undefined): string =>
  isFigure(value) ? `${digits(value.median)} (${digits(value.low)}–${digits(value.high)})` : '-';

/** The subjects that the row is about. */
function subjectsOf({ headline }: Part, groups: readonly GroupResult[]): string[] {
  const names = [...new Set(groups.flatMap(({ rows }) => rows.map(({ name }) => name)))];
  return names.filter((name) => headline?.includes(name) ?? name !== groups[0]?.base);
}

const panelsOf = (groups: readonly GroupResult[]): GroupResult[][] =>
  [...new Set(groups.map(({ panel }) => panel))].map((panel) =>
    groups.filter((group) => group.panel === panel),
  );

/** The ratios of one panel at its first, its middle and its last place. */
function resultTable(part: Part, all: readonly GroupResult[]): string[] {
  const groups = all.filter(({ rows }) => rows.length > 0);
  const places = groups.filter((_, i) => i === 0 || i === groups.length >> 1 || i === groups.length - 1);
  const [first] = groups;
  if (first === undefined || first.unit.startsWith('%')) return [];
  const head = first.base === null ? first.unit : `ratio to ${first.base}`;
  return [
    `| ${first.panel}: ${head} | ${places.map(({ at }) => at).join(' | ')} |`,
    `|---|${places.map(() => '---|').join('')}`,
    ...subjectsOf(part, groups).map((name) => {
      const cells = places.map(({ rows }) => {
        const row = rows.find((one) => one.name === name);
        return written(first.base === null ? row?.figure : row?.ratio);
      });
      return `| ${name} | ${cells.join(' | ')} |`;
    }),
    '',
  ];
}

/** Every figure of a row. */
function figureTable(groups: readonly GroupResult[]): string[] {
  const lines = groups.flatMap(({ panel, at, unit, base, rows }) =>
    rows.map(({ name, figure, ratio, cpu }) => {
      const beside = name === base ? 'base' : written(ratio);
      const cost = isFigure(cpu) ? `${digits(cpu.median)} ${cpuUnit(unit)}` : '-';
      return `| ${panel}, ${at} | ${name} | ${written(figure)} ${unit} | ${beside} | ${cost} |`;
    }),
  );
  return [
    '<details><summary>All figures</summary>',
    '',
    '| | subject | figure (quartiles) | ratio (quartiles) | processor time |',
    '|---|---|---|---|---|',
    ...lines,
    '',
    '</details>',
    '',
  ];
}

const headingOf = (paper: Paper, { row, title }: Part): string => `${paper.title} ${row}: ${title}`;
const anchorOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');

const more = (count: number): string => (count === 0 ? '' : ` and ${count} more`);

/** What a row of the paper has and this run has not, with the reasons. */
function reasonsOf({ lacks = [] }: Part, result: PartResult): string[] {
  const places = new Map<string, string[]>();
  for (const { panel, at, missing } of result.groups)
    for (const reason of missing) places.set(reason, [...(places.get(reason) ?? []), `${panel}, ${at}`]);
  const said = [...places].map(([reason, list]) => `${reason} (${list[0]}${more(list.length - 1)}).`);
  return [...lacks, ...said];
}

function section(paper: Paper, part: Part, result: PartResult | undefined, picture: string | null): string[] {
  const heading = headingOf(paper, part);
  const there = `- **There**: ${part.there}.`;
  if (result === undefined)
    return [
      `### ${heading}`,
      '',
      there,
      `- **Here**: not measured in this run, which left ${paper.title} out.`,
      '',
    ];
  const reasons = reasonsOf(part, result);
  const nothing = result.groups.every(({ rows }) => rows.length === 0);
  return [
    ...[`### ${heading}`, '', there],
    ...(result.here === '' ? [] : [`- **Here**: ${result.here}.`]),
    ...(nothing ? ['- **Here**: nothing could be measured.'] : [`- **Why**: ${part.why}`]),
    ...reasons.map((reason) => `- **Not here**: ${reason}`),
    ...(isFigure(result.apart) ? [`- **Processors**: ${written(result.apart)} ns apart.`] : []),
    '',
    ...panelsOf(result.groups).flatMap((groups) => resultTable(part, groups)),
    ...(picture === null ? [] : [`![${heading}](${picture})`, '']),
    ...(nothing ? [] : figureTable(result.groups)),
  ];
}

/** Its smallest and largest ratio over the places of the first panel, of the first subjects. */
function summary(part: Part, result: PartResult | undefined): string {
  const [groups = []] = panelsOf(result?.groups ?? []);
  if (groups[0]?.base === null || groups.length === 0) return result?.here ?? 'not measured';
  const said = subjectsOf(part, groups).flatMap((name) => {
    const medians = groups
      .map(({ rows }) => rows.find((row) => row.name === name)?.ratio)
      .filter(isFigure)
      .map(({ median }) => median);
    if (medians.length === 0) return [];
    const [low, high] = [digits(Math.min(...medians)), digits(Math.max(...medians))];
    return `${name} ${low === high ? low : `${low}–${high}`}`;
  });
  return said.length === 0 ? 'not measured' : `${said.join(', ')} of ${groups[0]!.base}`;
}

function introduction({ started, seconds, rounds, machine, foreign, parts }: PapersRun): string[] {
  const apart = spread(parts.flatMap((part) => (isFigure(part.apart) ? [part.apart.median] : [])));
  const note =
    foreign > DISTURBED
      ? `Other programs had ${foreign.toFixed(2)} of a processor meanwhile: the machine was shared, and ` +
        'the figures of a quiet one may be others.'
      : `Other programs had ${foreign.toFixed(2)} of a processor meanwhile: the machine was quiet.`;
  return [
    '# The five papers, row by row',
    '',
    'The project grew from five papers, whose figures are of hardware from 2002 to 2021. ' +
      'This page has each of',
    'their figures and tables as **ratios measured in one run**: the subjects of a row take ' +
      'turns in every round,',
    'a ratio is taken inside a round, and the median over the rounds is shown with its ' +
      'quartiles. Shapes compare,',
    'absolute figures do not. The processor time of a figure is that of all processes which took part.',
    '',
    `\`iwarp bench --paper all --page docs/papers.md\` writes this page ([benchmarks.md](benchmarks.md)).`,
    '',
    `Run of ${started.slice(0, 10)}: ${rounds} rounds, ${Math.ceil(seconds / 60)} minutes. ${note}`,
    ...(isFigure(apart)
      ? [`The two processors saw each other's writes after ${written(apart)} ns, by the medians of the rows.`]
      : []),
    '',
    '| machine | |',
    '|---|---|',
    ...Object.entries(machine)
      .filter(([name]) => name !== 'C compiler')
      .map(([name, value]) => `| ${name} | ${value} |`),
    '',
  ];
}

/** The page, and its plots by the names of their files. */
export function pageOf(run: PapersRun, folder: string): { page: string; plots: ReadonlyMap<string, string> } {
  const plots = new Map<string, string>();
  const sections: string[] = [];
  const rows: string[] = [];
  for (const paper of Object.values(PAPERS)) {
    sections.push(`## ${paper.title}`, '', `${paper.cite}.`, '');
    for (const part of paper.parts) {
      const found = run.parts.find(({ paper: name, id }) => name === paper.id && id === part.id);
      const result = found && { ...found, groups: panelsOf(found.groups).flatMap(comparable) };
      const heading = headingOf(paper, part);
      const svg = result === undefined ? null : plot(heading, result.groups);
      const file = `${part.id.startsWith(paper.id) ? '' : `${paper.id}-`}${part.id}.svg`;
      if (svg !== null) plots.set(file, svg);
      sections.push(...section(paper, part, result, svg === null ? null : `${folder}/${file}`));
      const link = `[${paper.title} ${part.row}](#${anchorOf(heading)})`;
      rows.push(`| ${link} | ${summary(part, result)} |`);
    }
  }
  const table = ['| row | here, from the lowest to the highest ratio |', '|---|---|', ...rows, ''];
  return { page: [...introduction(run), ...table, ...sections].join('\n').replace(/\n+$/, '\n'), plots };
}

/** Writes the page, and its plots into a folder beside it of the same name; returns all paths. */
export function writePage(path: string, run: PapersRun): string[] {
  const folder = basename(path).replace(/\.[^.]*$/, '');
  const { page, plots } = pageOf(run, folder === basename(path) ? `${folder}-plots` : folder);
  const at = join(dirname(path), folder === basename(path) ? `${folder}-plots` : folder);
  return withFile(path, () => {
    writeFileSync(path, page);
    mkdirSync(at, { recursive: true });
    for (const [name, svg] of plots) writeFileSync(join(at, name), svg);
    return [path, ...[...plots.keys()].map((name) => join(at, name))];
  });
}
