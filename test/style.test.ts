/** The words of comments and pages, as far as a program can judge (CONTRIBUTING.md, "Prose"). */
import { expect, it } from 'vitest';
import { ALLOWED, proseFindings } from '../scripts/style.ts';

it('comments and pages avoid the words that CONTRIBUTING.md rules out', () => {
  const found = proseFindings();
  expect(found.map(({ path, line, text, instead }) => `${path}:${line}: … ${text} … (${instead})`)).toEqual(
    [],
  );
});

it('sentences are excepted only with a reason', () => {
  for (const { reason } of ALLOWED) expect(reason.length).toBeGreaterThan(20);
});
