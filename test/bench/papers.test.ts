/** `iwarp bench --paper`: each figure of the five papers is on the page, with figures or a written reason. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseBench } from '../../bench/options.ts';
import type { GroupResult, PartResult } from '../../bench/papers/paper.ts';
import { pageOf } from '../../bench/papers/page.ts';
import { plot } from '../../bench/papers/plot.ts';
import { bench } from './run-bench.ts';
import { plain } from '../support/plain.ts';

/** The figures and tables that the papers have, by the names that they have there. */
const ROWS: Readonly<Record<string, readonly string[]>> = {
  OSU: ['fig. 5', 'fig. 6a', 'fig. 6b', 'gather', 'section 4.2'],
  'AZ-SDP': ['table 1', 'fig. 6a', 'fig. 6b', 'fig. 7', 'fig. 8', 'fig. 9', 'fig. 10a', 'fig. 10b'],
  QPIP: ['fig. 3', 'fig. 4', 'table 1', 'tables 2 and 3', 'fig. 7'],
  SRoCE: ['fig. 4', 'fig. 5', 'fig. 6, table 2'],
  USIW: ['fig. 6', 'fig. 7', 'key-value store'],
};

/** The page's sections by their headings' beginnings. */
function sectionsOf(page: string): Map<string, string> {
  const sections = page.split(/^### /m).slice(1);
  return new Map(sections.map((text) => [text.slice(0, text.indexOf(':')), text]));
}

const headings = Object.entries(ROWS).flatMap(([paper, rows]) => rows.map((row) => `${paper} ${row}`));

describe('the options of the papers', () => {
  it('takes one, several, or all, in the order of the page', () => {
    expect(parseBench(['--paper', 'usiw']).papers).toEqual(['usiw']);
    expect(parseBench(['--paper', 'usiw', '--paper', 'osu']).papers).toEqual(['osu', 'usiw']);
    expect(parseBench(['--paper', 'qpip,osu']).papers).toEqual(['osu', 'qpip']);
    const all = parseBench(['--paper', 'all']);
    expect(all.papers).toEqual(['osu', 'az-sdp', 'qpip', 'sroce', 'usiw']);
    expect([all.mode, all.method.rounds]).toEqual(['papers', 3]);
    expect(parseBench(['--paper', 'osu', '--rounds', '9']).method.rounds).toBe(9);
  });

  it.each([
    [['--paper', 'vldb'], /"vldb" is none of osu, az-sdp, qpip, sroce, usiw, all/],
    [['--paper', ''], /is none of/],
    [['--paper', 'osu', '--full'], /exclude/],
    [['--paper', 'osu', '--rounds', '0'], /--rounds/],
    [['--paper', 'osu', '--html', 'x'], /--html has no place/],
    [['--paper', 'osu', '--size', '64'], /needs --test/],
    [['--page', 'x.md'], /--page is the page of --paper/],
    [['--paper', 'osu', '--from', 'x'], /needs --page/],
    [['--paper', 'osu', '--from', 'x', '--page', 'y', '--rounds', '3'], /takes no more/],
  ])('refuses %j', (args, message) => {
    expect(() => parseBench(args)).toThrow(message);
  });

  it('says what it cannot read or write before anything is measured', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'papers-'));
    try {
      const file = join(folder, 'other.json');
      await writeFile(file, '{}');
      const { status, said } = await bench('--paper', 'all', '--from', file, '--page', join(folder, 'p.md'));
      expect([status, said]).toEqual([1, expect.stringContaining('holds no rows of papers')]);
      const lost = await bench('--paper', 'osu', '--page', join(folder, 'no', 'such', 'page.md'));
      expect([lost.status, lost.said]).toEqual([1, expect.stringContaining('page.md')]);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

describe('a short run of one paper', () => {
  let folder = '';
  let page = '';
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'papers-'));
    const [json, file] = [join(folder, 'run.json'), join(folder, 'papers.md')];
    const program = plain('test/bench/bench-program.ts');
    const args = ['--paper', 'osu', '--rounds', '1', '--json', json, '--page', file];
    const child = spawn(process.execPath, [program, ...args], { stdio: 'ignore' });
    expect(await once(child, 'exit')).toEqual([0, null]);
    page = readFileSync(file, 'utf8');
    const again = join(folder, 'again.md');
    expect((await bench('--paper', 'all', '--from', json, '--page', again)).status).toBe(0);
    expect(readFileSync(again, 'utf8').replaceAll('again/', 'papers/')).toBe(page);
  }, 240_000);
  afterAll(async () => await rm(folder, { recursive: true, force: true }));

  it('has a section for each row of each paper', () => {
    expect([...sectionsOf(page).keys()]).toEqual(headings);
    for (const heading of headings) expect(page).toContain(`| [${heading}](#`);
  });

  it('has figures with their spread and a plot for what was measured, a reason for the rest', () => {
    for (const [heading, text] of sectionsOf(page)) {
      expect(text).toMatch(/^- \*\*There\*\*: .+\.$/m);
      if (!heading.startsWith('OSU')) {
        expect(text).toMatch(/^- \*\*Here\*\*: not measured in this run/m);
        continue;
      }
      expect(text).toMatch(/^- \*\*Why\*\*: .+\.$/m);
      expect(text).toMatch(/\d \(\d[\d.]*–\d[\d.]*\)/);
      const picture = /^!\[.*\]\((.*)\)$/m.exec(text)![1]!;
      const svg = readFileSync(join(folder, picture), 'utf8');
      expect(svg).toContain('prefers-color-scheme:dark');
      expect(Number(/viewBox="0 0 (\d+) /.exec(svg)![1])).toBeLessThanOrEqual(390);
    }
    expect(sectionsOf(page).get('OSU fig. 5')).toMatch(
      /\| extended \| .* us a round trip \| .* CPU-us each \|/,
    );
  });
});

describe('the page and its plots', () => {
  const spread = { median: 2, low: 1, high: 3, best: 3, rounds: 3 };
  const lost = { median: Number.NaN, low: Number.NaN, high: Number.NaN, best: Number.NaN, rounds: 0 };
  const group = (at: string, more: Partial<GroupResult> = {}): GroupResult => ({
    ...{ panel: 'a & <b>', at, unit: 'MB/s', base: 'net', goals: [], missing: [] },
    rows: [
      { name: 'net', figure: spread, ratio: spread, cpu: null },
      { name: 'ours', figure: spread, ratio: spread, cpu: spread },
    ],
    ...more,
  });
  const run = (part: Partial<PartResult>) =>
    pageOf(
      {
        ...{
          schema: 'iwarp-papers/1',
          started: '2026-01-01T00:00:00Z',
          seconds: 60,
          rounds: 3,
          foreign: 0.5,
        },
        machine: { CPU: 'two' },
        parts: [
          { paper: 'qpip', id: 'qpip-7', title: '', seconds: 1, here: '', apart: null, groups: [], ...part },
        ],
      },
      'papers',
    );

  it('gives the reason of a row of which nothing could be measured', () => {
    const { page, plots } = run({ groups: [group('x', { rows: [], missing: ['nbdkit: not installed'] })] });
    const text = sectionsOf(page).get('QPIP fig. 7')!;
    expect(text).toContain('**Here**: nothing could be measured.');
    expect(text).toContain('nbdkit: not installed');
    expect(plots.size).toBe(0);
    expect(page).toContain('the machine was shared');
  });

  it('draws what there is, and nothing for a figure that is none', () => {
    const gone = group('y', { rows: [{ name: 'ours', figure: lost, ratio: lost, cpu: null }] });
    for (const svg of [
      plot('t', [group('x'), group('y'), group('z')]),
      plot('t', [group('x'), gone]),
      plot('t', [group('x', { unit: '%', base: null })]),
      plot('t', [group('x', { base: null }), group('y', { base: null })]),
    ]) {
      expect(svg).toMatch(/^<svg .*<\/svg>\n$/s);
      expect(svg).toContain('a &amp; &lt;b>');
      expect(svg).not.toMatch(/NaN|Infinity|undefined/);
    }
    expect(plot('t', [gone])).toBeNull();
  });
});
