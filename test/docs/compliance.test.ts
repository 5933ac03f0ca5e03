// docs/compliance.md is the requirement report. Numbers of lines may drift by a little between two runs of
// npm run docs; names, titles, states and everything else may not.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { requirements } from '../../conformance/catalogue/index.ts';
import { compareSections, parseClauses } from '../../scripts/clauses.ts';
import { DRIFT, keepRows, linkedLines, renderCompliance, withoutLines } from '../../scripts/compliance.ts';
import { examine } from '../../scripts/requirements.ts';
import { ownersOfLines } from '../../scripts/requirements-scan.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

describe('docs/compliance.md', () => {
  const page = readFileSync(join(ROOT, 'docs/compliance.md'), 'utf8');
  const made = renderCompliance(ROOT, examine(ROOT));

  it('is up to date; if not, run npm run docs', () => {
    expect(withoutLines(page)).toBe(withoutLines(made));
    const now = linkedLines(made);
    const far = linkedLines(page).filter((line, i) => Math.abs(line - now[i]!) > DRIFT);
    expect(far, 'links that are far off: run npm run docs').toEqual([]);
  });

  it('has one row and one anchor for each rule, below a heading for its leading clause', () => {
    for (const entry of requirements) {
      const [leading] = parseClauses(entry.clause);
      const section = page.split(`\n### ${leading!.document} ${leading!.section}\n`)[1]?.split('\n### ')[0];
      expect(section, entry.id).toContain(`<a id="${entry.id.toLowerCase()}"></a>${entry.id}`);
    }
    expect(page.match(/<a id=/g)).toHaveLength(requirements.length);
  });

  it('names every section that a clause names, and leads from it to the rule', () => {
    for (const entry of requirements) {
      for (const { document, section } of parseClauses(entry.clause)) {
        const text = page.split(`\n### ${document} ${section}\n`)[1]?.split('\n### ')[0];
        expect(text, `${entry.id} below ${document} ${section}`).toContain(entry.id);
      }
    }
  });
});

it('a page made anew keeps the rows whose links still show their lines', () => {
  const old = ['| a | [f](x.ts#L10) |', '| b | [g](x.ts#L20) |', '| c | [h](x.ts#L30) |'];
  const made = ['| a | [f](x.ts#L12) |', '| b | [g](x.ts#L90) |', '| d | [h](x.ts#L31) |'];
  expect(keepRows(old.join('\n'), made.join('\n')).split('\n')).toEqual([old[0], made[1], made[2]]);
});

describe('clauses', () => {
  it('are taken apart into documents and sections', () => {
    expect(parseClauses('RFC 5044 7.1.1, 7.1.2 (2,5), 8')).toEqual([
      { document: 'RFC 5044', section: '7.1.1', detail: '' },
      { document: 'RFC 5044', section: '7.1.2', detail: '(2,5)' },
      { document: 'RFC 5044', section: '8', detail: '' },
    ]);
    expect(
      parseClauses('RFC 5044 4.2, 4.3, erratum 1427; observed peers').map(({ section }) => section),
    ).toEqual(['4.2', '4.3']);
    expect(parseClauses('RFC 5044 app. C.2.3 to C.2.5 (informative)')).toEqual([
      { document: 'RFC 5044', section: 'app. C.2.3', detail: 'to C.2.5 (informative)' },
    ]);
    expect(parseClauses('RFC 5042 6.2.1; RFC 5041 7.1, 8.1').map(({ document }) => document)).toEqual([
      'RFC 5042',
      'RFC 5041',
      'RFC 5041',
    ]);
  });

  it('are sorted by number, appendices last', () => {
    expect(['8', '7.1.10', 'app. C.2', '7.1.2', '7.1', 'A.4'].toSorted(compareSections)).toEqual([
      '7.1',
      '7.1.2',
      '7.1.10',
      '8',
      'A.4',
      'app. C.2',
    ]);
  });
});

it('a line belongs to the innermost named thing around it, its comment included', () => {
  const source = [
    '// head',
    '',
    '/** of a */',
    'class A {',
    '  // of b',
    '  b(): void {',
    '    const inner = 1;',
    '  }',
    '}',
    'const c = 1;',
  ];
  expect(ownersOfLines(source.join('\n'), 'x.ts')).toEqual([
    undefined,
    undefined,
    'A',
    'A',
    'A.b',
    'A.b',
    'A.b',
    'A.b',
    'A',
    'c',
  ]);
});
