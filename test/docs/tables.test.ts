// Every table of a page is one: its lines stand by themselves, and each has as many cells as its head.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { filesBelow } from '../../scripts/requirements-scan.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FOLDERS = ['docs', 'conformance', 'bench', 'examples'] as const;
const pages = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...FOLDERS.flatMap((folder) => filesBelow(ROOT, folder, ['.md'])),
];

/** Cells between the outer bars of a line; a bar after a backslash is none. */
const cells = (line: string): number =>
  line
    .trim()
    .replaceAll(/\\\|/g, '')
    .replaceAll(/^\||\|$/g, '')
    .split('|').length;

const DELIMITERS = /^\s*\|?\s*:?-{3,}:?\s*(\|\s*:?-{3,}:?\s*)*\|?\s*$/;

function problems(page: string): string[] {
  const lines = readFileSync(join(ROOT, page), 'utf8')
    .replaceAll(/^ *```[^]*?^ *```$/gm, (code) => code.replaceAll(/[^\n]/g, ''))
    .split('\n');
  const wrong: string[] = [];
  for (const [i, line] of lines.entries()) {
    if (!/\|\s*:?-{3,}:?\s*\|/.test(line)) continue;
    const at = `${page}:${i + 1}`;
    if (!DELIMITERS.test(line)) {
      wrong.push(`${at}: more than the line between head and body`);
      continue;
    }
    let end = i + 1;
    while (lines[end]?.trim().startsWith('|') === true) end++;
    for (const row of lines.slice(Math.max(0, i - 1), end))
      if (cells(row) !== cells(line)) wrong.push(`${at}: ${cells(line)} cells, but not in: ${row}`);
  }
  return wrong;
}

it('the lines of every table stand by themselves and have as many cells as its head', () => {
  expect(pages).toContain('bench/performance-log.md');
  expect(pages.flatMap(problems)).toEqual([]);
});
