// Relative links of every page lead to a file, and their anchors to a heading or an anchor of it.

import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { filesBelow } from '../../scripts/requirements-scan.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FOLDERS = ['docs', 'conformance', 'bench', 'examples', 'test', 'src', 'scripts'] as const;
const pages = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...FOLDERS.flatMap((folder) => filesBelow(ROOT, folder, ['.md'])),
];

/** A page without its code, where brackets are no links. */
function prose(page: string): string {
  return readFileSync(join(ROOT, page), 'utf8')
    .replaceAll(/^ *```[^]*?^ *```$/gm, '')
    .replaceAll(/^ {4}.*$/gm, '');
}

/**
 * Anchors of a page, as forges make them from headings: lower case, no punctuation, hyphens for spaces, a
 * number for a repeated one.
 */
function anchorsOf(page: string): Set<string> {
  const text = readFileSync(join(ROOT, page), 'utf8').replaceAll(/^ *```[^]*?^ *```$/gm, '');
  const anchors = new Set([...text.matchAll(/<a id="([^"]+)">/g)].map((match) => match[1]!));
  const times = new Map<string, number>();
  for (const [, heading] of text.matchAll(/^#+ (.+)$/gm)) {
    const plain = heading!.replaceAll(/[\\`*]/g, '').replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1');
    const base = plain
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .trim()
      .replaceAll(' ', '-');
    const seen = times.get(base) ?? 0;
    times.set(base, seen + 1);
    anchors.add(seen === 0 ? base : `${base}-${seen}`);
  }
  return anchors;
}

const anchors = new Map<string, Set<string>>();

/** The fault of a link of `page`, or null. */
function problem(page: string, link: string): string | null {
  const [path = '', anchor] = link.split('#');
  const target = path === '' ? page : posix.normalize(posix.join(dirname(page), decodeURIComponent(path)));
  if (target.startsWith('..') || !existsSync(join(ROOT, target))) return `${page}: ${link} leads nowhere`;
  if (
    anchor === undefined ||
    /^L\d+$/.test(anchor) ||
    !target.endsWith('.md') ||
    statSync(join(ROOT, target)).isDirectory()
  )
    return null;
  const known = anchors.get(target) ?? anchorsOf(target);
  anchors.set(target, known);
  return known.has(anchor) ? null : `${page}: ${link} names no heading`;
}

it('no relative link of a page is dead', () => {
  expect(pages).toContain('docs/api/iwarp.md');
  const wrong: string[] = [];
  let links = 0;
  for (const page of pages) {
    for (const [, link] of prose(page).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(link!)) continue;
      links++;
      const found = problem(page, link!);
      if (found !== null) wrong.push(found);
    }
  }
  expect([...new Set(wrong)]).toEqual([]);
  expect(links).toBeGreaterThan(500);
});

it('every page of docs/ is named in the README', () => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8');
  const unnamed = pages.filter((page) => /^docs\/[^/]+\.md$/.test(page) && !readme.includes(`(${page})`));
  expect(unnamed).toEqual([]);
});
