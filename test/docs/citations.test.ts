// What comments, titles and vectors cite can be read here: sections of docs/protocol-notes.md that exist, and
// no document that never was in this repository.

import { existsSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { filesBelow } from '../../scripts/requirements-scan.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PAGE = join('docs', 'protocol-notes.md');
const SELF = relative(ROOT, fileURLToPath(import.meta.url));
const FOLDERS = ['src', 'conformance', 'test', 'bench', 'docs', 'scripts', 'examples', 'bin'] as const;
const SUFFIXES = ['.ts', '.js', '.json', '.md', '.sh', '.c', '.txt', '.html'] as const;
const OWN = [
  'README.md',
  'CHANGELOG.md',
  'package.json',
  'typedoc.config.js',
  'vitest.config.ts',
  'tsconfig.json',
  'tsconfig.build.json',
];

const files = [
  ...OWN.filter((file) => existsSync(join(ROOT, file))),
  ...FOLDERS.flatMap((folder) => filesBelow(ROOT, folder, SUFFIXES)),
  ...filesBelow(ROOT, '.ci', ['']),
].filter((file) => file !== SELF);
const texts = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));

/** Names of documents that this repository does not hold: a reader cannot look there. */
const ELSEWHERE: readonly RegExp[] = [
  /\bwire-formats\b/,
  /\bpeers (?:section )?\d/,
  /\bannex(?:es)? [A-Z]\b/i,
  /\bsiw-lab\b/,
  /\bhouse rules? \d/i,
  /\bdesign, section/i,
  /\bof the design\b/i,
  /(?<![\w/-])(?:wire-formats|peers|requirements|siw-lab|style|tools|sdp|trp)\.md\b/,
  /\bshared\/(?:spec|design|rfc)\b/,
];

/** Every `protocol-notes` that is not the page's own name, with the section numbers after it. */
function cited(text: string): { readonly words: string; readonly sections: readonly string[] }[] {
  return [
    ...text.matchAll(
      /\bprotocol-notes(?![\w`.-])(?<list> \d+(?:\.\d+)?(?:(?:,| and|, and) \d+\.\d+)*)?[^\n]{0,20}/g,
    ),
  ].map((match) => ({ words: match[0], sections: match.groups?.['list']?.match(/\d+(?:\.\d+)?/g) ?? [] }));
}

describe('citations', () => {
  const headings = new Set(
    [...texts.get(PAGE)!.matchAll(/^#{2,3} (\d+(?:\.\d+)?)\.? /gm)].map((match) => match[1]!),
  );

  it('lead to no document outside of the repository', () => {
    expect(files.length).toBeGreaterThan(400);
    const found: string[] = [];
    for (const [file, text] of texts) {
      if (!ELSEWHERE.some((name) => name.test(text))) continue;
      for (const [i, line] of text.split('\n').entries())
        if (ELSEWHERE.some((name) => name.test(line)))
          found.push(`${file}:${i + 1}: ${line.trim().slice(0, 160)}`);
    }
    expect(found).toEqual([]);
  });

  it('of protocol-notes name sections that it has', () => {
    const wrong: string[] = [];
    for (const [file, text] of texts) {
      for (const { words, sections } of cited(text)) {
        if (sections.length === 0 || sections.some((section) => !headings.has(section)))
          wrong.push(`${file}: ${words}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  it('of protocol-notes leave no section out: what nothing cites is not in it', () => {
    const used = new Set(
      [...texts]
        .filter(([file]) => file !== PAGE)
        .flatMap(([, text]) => cited(text).flatMap(({ sections }) => sections)),
    );
    expect([...headings].filter((heading) => heading.includes('.') && !used.has(heading))).toEqual([]);
    expect(used.size).toBeGreaterThan(10);
  });
});
