// docs/porting.md: every name of ours in it exists, and no name of rdma-core's headers is missing in it.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { sourceFiles, textOf } from '../support/modules.ts';

it('each name in the middle column of docs/porting.md stands in the source', () => {
  const source = sourceFiles('src').map(textOf).join('\n');
  const words = new Set(source.match(/[\w$]+/g));
  const cells = textOf('docs/porting.md')
    .split('\n')
    .filter((line) => line.startsWith('| ') && !line.startsWith('| rdma-core') && !line.startsWith('|---'))
    .map((line) => line.split('|')[2]!);
  const names = cells.flatMap((cell) => Array.from(cell.matchAll(/`([^`]+)`/g), ([, name]) => name!));
  expect(names.length).toBeGreaterThan(120);
  const missing = names.filter((name) =>
    name.includes('-')
      ? !source.includes(`'${name}'`)
      : name.split(/\W+/).some((word) => word !== '' && !words.has(word)),
  );
  expect(missing).toEqual([]);
});

it('the first column of docs/porting.md has each name of the headers', () => {
  const file = new URL('porting-names.json', import.meta.url);
  const { names } = JSON.parse(readFileSync(file, 'utf8')) as { names: string[] };
  expect(names.length).toBeGreaterThan(600);
  const words = textOf('docs/porting.md')
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .flatMap((line) => line.split('|')[1]!.match(/\w+\*?/g) ?? []);
  const whole = new Set(words.filter((word) => !word.endsWith('*')));
  const beginnings = words.filter((word) => word.endsWith('*')).map((word) => word.slice(0, -1));
  const isCovered = (name: string): boolean =>
    whole.has(name) || beginnings.some((beginning) => name.startsWith(beginning));
  expect(names.filter((name) => !isCovered(name))).toEqual([]);
  // A pattern that stands for nothing is a spelling mistake.
  expect(beginnings.filter((beginning) => !names.some((name) => name.startsWith(beginning)))).toEqual([]);
});
