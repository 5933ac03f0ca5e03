/** docs/production.md has each number of the promise layer with its default and its reason. */
import { expect, it } from 'vitest';
import { textOf } from '../support/modules.ts';

const PAGE = textOf('docs/production.md');

/** Options whose comment says `Default NUMBER`, with the number. */
function numbers(file: string): [option: string, number: string][] {
  const members = textOf(file).matchAll(/\/\*\*((?:(?!\*\/)[^])*)\*\/\n\s+readonly (\w+)\?:/g);
  return [...members].flatMap(([, comment, option]): [string, string][] => {
    const text = comment!.replaceAll(/\s*\n\s*\*?\s*/g, ' ');
    const [, number] = /\bDefault (?:is )?(\d+(?:,\d{3})*(?: [KM]iB)?)/.exec(text) ?? [];
    return number === undefined || text.includes('@deprecated') ? [] : [[option!, number]];
  });
}

/** A duration in milliseconds may stand as seconds. */
const forms = (number: string): string[] => {
  const plain = Number(number.replaceAll(',', ''));
  return [number, ...(plain >= 1000 && plain % 1000 === 0 ? [`${plain / 1000} s`] : [`${plain} ms`])];
};

const ROWS = PAGE.split('\n').filter((line) => line.startsWith('|'));
const FILES = ['src/api/endpoint.ts', 'src/client/client.ts', 'src/client/backoff.ts'];

it.each(FILES.flatMap(numbers))('%s, by default %s, stands in a table with its reason', (option, number) => {
  const rows = ROWS.filter((row) => new RegExp(`\\b${option}\\b`).test(row.replaceAll('`', '')));
  const named = rows.filter((row) => forms(number).some((form) => row.includes(form)));
  expect(named, `${option}: ${number}`).not.toEqual([]);
  for (const row of named)
    expect(
      row.split('|').every((cell, i, all) => i === 0 || i === all.length - 1 || cell.trim() !== ''),
    ).toBe(true);
});

it('finds the options at all', () => {
  expect(FILES.flatMap(numbers).length).toBeGreaterThan(8);
});
