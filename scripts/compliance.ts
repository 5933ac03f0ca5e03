// The page docs/compliance.md: the catalogue sorted by document and section, each rule with its level, how it
// is shown, and where it is kept. Made from the report of requirements.ts by `npm run docs`;
// test/docs/compliance.test.ts holds the page to it.

import { cases } from '../conformance/cases/index.ts';
import type { Case } from '../conformance/cases/index.ts';
import { isMandatory } from '../conformance/catalogue/index.ts';
import { CODE_OF_SECTION } from './clauses-code.ts';
import { compareSections, DOCUMENTS, parseClauses } from './clauses.ts';
import type { RequirementsReport, RequirementStatus } from './requirements.ts';
import { filesBelow, ownersOfLines, readBelow } from './requirements-scan.ts';

/** Links to one kind of place in a cell, and letters of a test's title. */
const MOST_LINKS = 3;
const MOST_LETTERS = 90;

const INTRODUCTION = `# Compliance, clause by clause

<!-- Made by scripts/compliance.ts (npm run docs); change the catalogue, the titles or the sources. -->

Every rule of the RFCs and of the verbs draft that a test could check, in our words, in the order of the
documents. To find a clause, search this page for the document and the section, such as \`RFC 5040 5.2.1\`:
each section has a heading, or stands in the list after one.

- **Level**: of the text. † follows from the texts without a sentence that states it, or real peers need it.
- **Shown by**: *test* and *case* say that the title of a test, or a case of the [conformance
  suite](../conformance/README.md), names the
  rule; *reason* that nothing can show it, and why; *open* that nothing does yet.
- **Where**: the code that cites the rule, then tests, then cases; a link may miss its line by a few, the name
  beside it is right.

\`npm run requirements\` prints the sums, with \`-- --missing\` the open ones, with \`-- --all\` one line a
rule; \`-- --group MPA\` narrows it down. The rules themselves are data, with how to observe each:
[conformance/catalogue](../conformance/catalogue).
`;

const LINE = /#L(\d+)/g;
/** A link that is off by this still shows its line on a screen. */
export const DRIFT = 30;

/** Numbers of lines in the links of `text`. */
export function linkedLines(text: string): number[] {
  return [...text.matchAll(LINE)].map((match) => Number(match[1]));
}

/** `text` with no numbers in its links: what stays the same when code moves within its file. */
export function withoutLines(text: string): string {
  return text.replaceAll(LINE, '');
}

/**
 * The page `made`, with the rows of `old` whose links are off by less than half of the allowed drift: a
 * change here is a change there.
 */
export function keepRows(old: string, made: string): string {
  const known = new Map(old.split('\n').map((row) => [withoutLines(row), row]));
  const rows = made.split('\n').map((row) => {
    const before = known.get(withoutLines(row)) ?? row;
    const now = linkedLines(row);
    return linkedLines(before).every((line, i) => Math.abs(line - now[i]!) < DRIFT / 2) ? before : row;
  });
  return rows.join('\n');
}

interface Section {
  readonly document: string;
  readonly section: string;
  /** Rules whose leading clause this is, and ids of those that name it besides another. */
  readonly rules: RequirementStatus[];
  readonly others: string[];
  /** Where comments of the sources name the section. */
  readonly code: string[];
}

/** The page, for the repository at `root`. */
export function renderCompliance(root: string, report: RequirementsReport): string {
  const links = new Links(root);
  const sections = sortSections(report, links);
  const lines = [INTRODUCTION, ...summary(report, sections)];
  for (const [document, title] of Object.entries(DOCUMENTS)) {
    const own = sections.filter((section) => section.document === document);
    const index = own.map(({ section }) => `[${section}](#${anchor(`${document} ${section}`)})`);
    lines.push(
      '',
      `## ${document}`,
      '',
      `${title}. Sections: ${index.join(', ')}.`,
      ...own.flatMap((section) => chapter(section, links)),
    );
  }
  return `${lines.join('\n')}\n`;
}

function sortSections(report: RequirementsReport, links: Links): Section[] {
  const found = new Map<string, Section>();
  const at = (document: string, section: string): Section => {
    const key = `${document} ${section}`;
    const known = found.get(key) ?? { document, section, rules: [], others: [], code: links.toSection(key) };
    found.set(key, known);
    return known;
  };
  for (const status of report.statuses) {
    const [leading, ...more] = parseClauses(status.entry.clause);
    at(leading!.document, leading!.section).rules.push(status);
    const seen = new Set([`${leading!.document} ${leading!.section}`]);
    for (const { document, section } of more) {
      const key = `${document} ${section}`;
      if (!seen.has(key)) at(document, section).others.push(status.entry.id);
      seen.add(key);
    }
  }
  const documents = Object.keys(DOCUMENTS);
  return [...found.values()].toSorted(
    (a, b) =>
      documents.indexOf(a.document) - documents.indexOf(b.document) || compareSections(a.section, b.section),
  );
}

// ---------------------------------------------------------------------------------------------------- pieces

function row(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

/** The anchor that forges give a heading. */
function anchor(heading: string): string {
  return heading.toLowerCase().replaceAll('.', '').replaceAll(' ', '-');
}

function escape(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}

function summary(report: RequirementsReport, sections: readonly Section[]): string[] {
  const heads = [
    'document',
    'sections',
    'rules',
    'MUST',
    'SHOULD',
    'MAY',
    'by test',
    'by case',
    'by reason',
    'open',
    'open MUST',
  ];
  const count = (name: string, size: number, of: readonly RequirementStatus[]): string => {
    const numbers = [
      (): boolean => true,
      (s: RequirementStatus): boolean => isMandatory(s.entry),
      (s: RequirementStatus): boolean => s.entry.level.startsWith('SHOULD'),
      (s: RequirementStatus): boolean => s.entry.level === 'MAY',
      (s: RequirementStatus): boolean => s.titles.length > 0,
      (s: RequirementStatus): boolean => s.cased.length > 0,
      (s: RequirementStatus): boolean => s.exception !== null,
      (s: RequirementStatus): boolean => shownBy(s) === 'open',
      (s: RequirementStatus): boolean => shownBy(s) === 'open' && isMandatory(s.entry),
    ].map((test) => String(of.filter(test).length));
    return row([name, String(size), ...numbers]);
  };
  const rows = Object.keys(DOCUMENTS).map((document) => {
    const own = sections.filter((section) => section.document === document);
    return count(
      `[${document}](#${anchor(document)})`,
      own.length,
      own.flatMap((section) => section.rules),
    );
  });
  return [
    row(heads),
    row(heads.map(() => '---')),
    ...rows,
    count('**all**', sections.length, report.statuses),
  ];
}

function shownBy(status: RequirementStatus): string {
  const ways = [...(status.titles.length > 0 ? ['test'] : []), ...(status.cased.length > 0 ? ['case'] : [])];
  if (ways.length > 0) return ways.join(', ');
  return status.exception === null ? 'open' : 'reason';
}

function chapter(section: Section, links: Links): string[] {
  const lines = ['', `### ${section.document} ${section.section}`, ''];
  if (section.code.length > 0) lines.push(`In the code: ${shorten(section.code)}.`, '');
  if (section.rules.length > 0) {
    lines.push(
      row(['rule', 'level', 'what it asks', 'shown by', 'where']),
      row(['---', '---', '---', '---', '---']),
    );
    lines.push(...section.rules.map((status) => rule(status, links)), '');
  }
  if (section.others.length > 0) {
    const ids = section.others.map((id) => `[${id}](#${id.toLowerCase()})`);
    lines.push(`${section.rules.length > 0 ? 'See also' : 'See'} ${ids.join(', ')}.`, '');
  }
  return lines.slice(0, -1);
}

function rule(status: RequirementStatus, links: Links): string {
  const { id, level, derived, text, clause } = status.entry;
  const [leading] = parseClauses(clause);
  const detail = leading!.detail === '' ? '' : ` ${leading!.detail}`;
  const where = [
    ...part('code', links.toLines(status)),
    ...part('test', links.toTests(status)),
    ...part('case', links.toCases(id)),
    ...(status.exception === null ? [] : [escape(status.exception)]),
  ];
  return row([
    `<a id="${id.toLowerCase()}"></a>${id}${escape(detail)}`,
    `${level}${derived ? '†' : ''}`,
    escape(text),
    shownBy(status),
    where.join('<br>'),
  ]);
}

function part(kind: string, places: readonly string[]): string[] {
  return places.length === 0 ? [] : [`${kind}: ${shorten(places)}`];
}

function shorten(places: readonly string[]): string {
  const more = places.length - MOST_LINKS;
  return places.slice(0, MOST_LINKS).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

// ----------------------------------------------------------------------------------------------------- links

/** Places of the repository as links of a page in docs/. */
class Links {
  readonly #files = new Map<string, { readonly text: string; readonly owners: (string | undefined)[] }>();
  readonly #cases = new Map<string, Case[]>();
  readonly #caseFiles: { readonly file: string; readonly text: string }[];

  constructor(root: string) {
    for (const path of filesBelow(root, 'src', ['.ts'])) {
      const { text, file } = readBelow(root, path);
      this.#files.set(file, { text, owners: ownersOfLines(text, file) });
    }
    this.#caseFiles = filesBelow(root, 'conformance/cases', ['.ts']).map((path) => readBelow(root, path));
    for (const one of cases)
      for (const id of one.requirements) this.#cases.set(id, [...(this.#cases.get(id) ?? []), one]);
  }

  /** Code that cites a rule: `receiver.ts Receiver.#deliver`, each function once. */
  toLines(status: RequirementStatus): string[] {
    return distinct(status.lines.map(({ file, line }) => [this.#name(file, line), this.#toLine(file, line)]));
  }

  /** Code that a section is known to be in, then code whose comments name it, such as `RFC 5040 5.2.1`. */
  toSection(name: string): string[] {
    const pattern = new RegExp(`\\b${name.replaceAll('.', '\\.')}(?![\\d.]*\\d)`);
    const found: [string, string][] = (CODE_OF_SECTION[name] ?? []).map((place) => this.#toNamed(place));
    for (const [file, { text }] of this.#files) {
      const lines = text.split('\n');
      for (let i = 0; i < lines.length; i++) {
        if (pattern.test(lines[i]!)) found.push([this.#name(file, i + 1), this.#toLine(file, i + 1)]);
      }
    }
    return distinct(found);
  }

  /** `rdmap/sender.ts Sender.#step` as a link. */
  #toNamed(place: string): [string, string] {
    const [path, owner] = place.split(' ');
    const file = `src/${path}`;
    const { owners } = this.#files.get(file) ?? { owners: [] };
    const line =
      owner === undefined
        ? 1
        : owners.findIndex((name) => name === owner || name?.startsWith(`${owner}.`) === true) + 1;
    if (line === 0 || owners.length === 0)
      throw new Error(`clauses-code.ts names ${place}, which is not there`);
    return [`src/${place}`, `[\`${place}\`](../${file}#L${line})`];
  }

  #name(file: string, line: number): string {
    const owner = this.#files.get(file)!.owners[line - 1];
    return owner === undefined ? file : `${file} ${owner}`;
  }

  #toLine(file: string, line: number): string {
    return `[\`${this.#name(file, line).replace(/^src\//, '')}\`](../${file}#L${line})`;
  }

  /** Tests by their titles, one a file first, so that the few that are shown come from different files. */
  toTests(status: RequirementStatus): string[] {
    const firsts = status.titles.filter(
      (one, i) => status.titles.findIndex(({ file }) => file === one.file) === i,
    );
    const rest = status.titles.filter((one) => !firsts.includes(one));
    const links = [...firsts, ...rest].map(
      ({ file, line, text }) => `[${title(text, status.entry.id)}](../${file}#L${line})`,
    );
    return [...new Set(links)];
  }

  /** Cases, those of one place after each other, the first of each place in front. */
  toCases(id: string): string[] {
    const placed = (this.#cases.get(id) ?? []).map((one) => ({ id: one.id, place: this.#placeOf(one.id) }));
    const firsts = placed.filter(
      (one, i) => one.place === null || placed.findIndex(({ place }) => place === one.place) === i,
    );
    const rest = placed.filter((one) => !firsts.includes(one));
    return [...firsts, ...rest].map((one) =>
      one.place === null ? `\`${one.id}\`` : `[\`${one.id}\`](../${one.place})`,
    );
  }

  /** Where a case is written: its name in quotes, or the part of it in front of a `${`. */
  #placeOf(id: string): string | null {
    for (let length = id.length; length > 4; length--) {
      const starts = length === id.length ? [`'${id}'`, `\`${id}\``] : [`\`${id.slice(0, length)}\${`];
      for (const { file, text } of this.#caseFiles) {
        for (const start of starts) {
          const found = text.indexOf(start);
          if (found >= 0) return `${file}#L${text.slice(0, found).split('\n').length}`;
        }
      }
    }
    return null;
  }
}

/** The links with different names, the stack before what only watches it. */
function distinct(named: readonly (readonly [name: string, link: string])[]): string[] {
  const links = new Map<string, string>();
  for (const [name, link] of named) if (!links.has(name)) links.set(name, link);
  const watches = (name: string): boolean => /^src\/(inspect|tools)\//.test(name);
  return [...links].toSorted(([a], [b]) => Number(watches(a)) - Number(watches(b))).map(([, link]) => link);
}

/** A test's title without the ids in front of it, or in the brackets at its end. */
function title(text: string, id: string): string {
  const plain = text
    .replaceAll(/[`[\]\n]/g, ' ')
    .replace(/^((?:[A-Z]+-\d{3}(?:\.\.\d{3})?(?:\/\d{3})*[,;: ]*)+)/, '')
    .replace(/ \((?:[A-Z]+-\d{3}(?:\.\.\d{3})?(?:\/\d{3})*[,; ]*)+\)$/, '')
    .trim();
  const words = plain === '' ? id : plain;
  return escape(words.length > MOST_LETTERS ? `${words.slice(0, MOST_LETTERS).trimEnd()}…` : words);
}
