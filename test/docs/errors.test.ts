// docs/errors.md is the table of src/base/errors.ts, and what src makes has a code of it.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { ERRORS_PAGE, renderErrorsPage } from '../../scripts/docs-errors.ts';
import { ERROR_CODES } from '../../src/base/errors.ts';
import { sourceFiles, textOf } from '../support/modules.ts';

it('docs/errors.md is up to date (npx tsx scripts/docs-errors.ts)', () => {
  expect(readFileSync(ERRORS_PAGE, 'utf8')).toBe(renderErrorsPage());
});

it('the page has one row for each code', () => {
  const codes = [...renderErrorsPage().matchAll(/^\| `(ERR_\w+)` \| .+ \|$/gm)].map((match) => match[1]);
  expect(codes).toEqual(Object.keys(ERROR_CODES));
});

it('no error is made without a code', () => {
  const lawful: Readonly<Record<string, string>> = {
    'src/engine/messages.ts': 'what the system said, put together again at the other end of a message port',
    'src/transport/memory.ts': 'what a system would say, as the cause of one with a code',
    'src/crc32c/arena.ts': 'what WebAssembly throws where it has no memory; the next engine serves',
  };
  const bare = sourceFiles('src').filter((path) => /\bnew (?:Type|Range|Syntax)?Error\(/.test(textOf(path).replaceAll(/^\s*(?:\/\/|\/?\*).*$/gm, '')));
  expect(bare.toSorted()).toEqual(Object.keys(lawful).toSorted());
});

it('every code is that of some error', () => {
  // A set of codes compares; all else that names one makes an error of it.
  const made = sourceFiles('src').filter((path) => path !== 'src/base/errors.ts').map((path) => textOf(path).replaceAll(/new Set\(\[[^\]]*\]\)/g, '')).join('\n');
  const used = new Set([...made.matchAll(/'(ERR_\w+)'/g)].map((match) => match[1]!));
  expect(Object.keys(ERROR_CODES).filter((code) => !used.has(code))).toEqual([]);
});
