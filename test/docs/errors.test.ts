// docs/errors.md is the table of src/base/errors.ts.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { ERRORS_PAGE, renderErrorsPage } from '../../scripts/docs-errors.ts';
import { ERROR_CODES } from '../../src/base/errors.ts';

it('docs/errors.md is up to date (npx tsx scripts/docs-errors.ts)', () => {
  expect(readFileSync(ERRORS_PAGE, 'utf8')).toBe(renderErrorsPage());
});

it('the page has one row for each code', () => {
  const codes = [...renderErrorsPage().matchAll(/^\| `(ERR_\w+)` \| .+ \|$/gm)].map((match) => match[1]);
  expect(codes).toEqual(Object.keys(ERROR_CODES));
});
