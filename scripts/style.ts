// How the tree is written, as far as a program can judge: `npm run style` lists lines that are too wide, and
// words in comments and pages that CONTRIBUTING.md, "Prose", rules out. Tests ask for none of either
// (test/architecture.test.ts, test/style.test.ts).

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** Columns of a line of code, comments and strings included; the formatter's width. */
export const WIDTH = 110;

/** Files whose lines cannot be broken, with the reason. */
export const WIDE: Readonly<Record<string, string>> = {};

/** Where prose is checked; a folder joins when it is clean. */
const PROSE = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'bench/',
  'bin/',
  'cli/',
  'conformance/',
  'docs/',
  'examples/',
  'scripts/',
  'src/',
  'test/',
];

/** Words to avoid, with their replacements. */
const RULES: readonly { readonly words: RegExp; readonly instead: string }[] = [
  {
    words: /\b(who|whoever|whom|somebody|someone|anybody)\b/gi,
    instead: 'name the caller, peer, program or reader',
  },
  { words: /\b(told|tells)\b/gi, instead: 'notified, reports, returns' },
  { words: /\bwhat (is|has|comes|was|are|have|came)\b/gi, instead: 'name the thing' },
  { words: /\bany more\b/gi, instead: 'no longer' },
  { words: /\bso many\b/gi, instead: 'n, this number of' },
  { words: /\bof (its|their|his|our|your) own\b/gi, instead: 'own, separate' },
  { words: /\bfrom (here|there|then|\d[\d,]*) on(?=[.,;:)]|$)/gi, instead: 'N or more, after that' },
];

/** Sentences that the rules hit and that stay, with the reason. */
export const ALLOWED: readonly {
  readonly text: RegExp;
  readonly reason: string;
}[] = [
  { text: /who.may.import/i, reason: 'The title of a section of docs/architecture.md, and links to it.' },
  {
    text: /however often its end is told/,
    reason: 'The title of a test in docs/matrix.json, as it was run.',
  },
];

/** Pages that keep their words: laboratory books and pages that programs write. */
const UNCHECKED =
  /^bench\/performance-log\.md$|^docs\/(api\/|compliance\.md|interop\.md)|^scripts\/style\.ts$/;

/** A place in the tree, and its fault. */
interface Finding {
  readonly path: string;
  readonly line: number;
  readonly text: string;
}

/** Files of the repository whose names match, as paths from its root. */
export function trackedFiles(name: RegExp): string[] {
  return execFileSync('git', ['ls-files'], { cwd: ROOT, encoding: 'utf8' })
    .split('\n')
    .filter((path) => name.test(path));
}

const linesOf = (path: string): string[] => readFileSync(join(ROOT, path), 'utf8').split('\n');

/** Lines of code over the width, comments and strings included. */
export function wideLines(): Finding[] {
  return trackedFiles(/\.([cm]?[jt]s|sh)$|^\.ci\//)
    .filter((path) => WIDE[path] === undefined)
    .flatMap((path) =>
      linesOf(path).flatMap((text, i) => (text.length > WIDTH ? [{ path, line: i + 1, text }] : [])),
    );
}

/** The words of a line of a page, or null where a paragraph ends; code between fences is none. */
function pageWords(): (line: string) => string | null {
  let fenced = false;
  return (line) => {
    if (line.startsWith('```')) fenced = !fenced;
    return fenced || line.startsWith('```') || /^(#.*|\s*)$/.test(line)
      ? null
      : line.replaceAll(/`[^`]*`/g, '`');
  };
}

/** The words of a comment in a line of code, or null. */
function commentWords(line: string): string | null {
  const words = /^\s*(?:\/\/|\/\*\*|\*(?!\/)|#(?!!))(.*)$/.exec(line) ?? /\s\/\/ (.*)$/.exec(line);
  return words === null ? null : words[1]!.replace('*/', '').replaceAll(/`[^`]*`/g, '`');
}

/** Comments of a file of code, or paragraphs of a page, each joined to one line. */
function paragraphs(path: string): Finding[] {
  const wordsOf = path.endsWith('.md') ? pageWords() : commentWords;
  const found: Finding[] = [];
  let open: { line: number; text: string } | null = null;
  for (const [i, line] of [...linesOf(path), ''].entries()) {
    const words = wordsOf(line);
    if (words === null) {
      if (open !== null) found.push({ path, ...open });
      open = null;
    } else if (open === null) open = { line: i + 1, text: words.trim() };
    else open.text += ` ${words.trim()}`;
  }
  return found;
}

/** Words of the rules in comments and pages, with the words around each. */
export function proseFindings(): (Finding & { readonly instead: string })[] {
  return trackedFiles(/\.([cm]?[jt]s|sh|md)$/)
    .filter((path) => PROSE.some((folder) => path.startsWith(folder)) && !UNCHECKED.test(path))
    .flatMap(paragraphs)
    .flatMap(({ path, line, text }) =>
      RULES.flatMap(({ words, instead }) =>
        Array.from(text.matchAll(words), ({ index }) => ({
          path,
          line,
          text: text.slice(Math.max(0, index - 40), index + 40),
          instead,
        })),
      ),
    )
    .filter((one) => !ALLOWED.some(({ text }) => text.test(one.text)));
}

function main(): number {
  const wide = wideLines();
  for (const { path, line, text } of wide)
    process.stdout.write(`${path}:${line}: ${text.length} columns, at most ${WIDTH}\n`);
  const prose = proseFindings();
  for (const { path, line, text, instead } of prose)
    process.stdout.write(`${path}:${line}: … ${text} … (${instead})\n`);
  process.stdout.write(`${wide.length} lines too wide, ${prose.length} words to avoid\n`);
  return wide.length + prose.length === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main();
