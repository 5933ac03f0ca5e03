// docs/recipes.md and the pages beside it: `npm run recipes` runs their programs with npm's packages and the
// real servers. These checks need neither.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { NPM_PACKAGES } from '../../scripts/npm-packages.ts';
import { announced, programsOf } from '../../scripts/page-programs.ts';
import { ROOT } from '../examples/support.ts';

const pages = ['docs/recipes.md', 'docs/production.md', 'docs/streams.md', 'docs/upgrade.md'].map((page) =>
  readFileSync(join(ROOT, page), 'utf8'),
);
const programs = pages.flatMap(programsOf);
const importsOf = (code: string): string[] =>
  [...code.matchAll(/^import .*from '([^']+)';$/gm)].map(([, specifier]) => specifier!);
const packages = NPM_PACKAGES.map((name) => name.replace(/@[^@]+$/, ''));

describe('the programs of docs/recipes.md, production.md, streams.md and upgrade.md', () => {
  it('have each a file name, and show something unless another one imports them', () => {
    const blocks = pages.join('').match(/^```js$/gm)!;
    expect(programs).toHaveLength(blocks.length);
    expect(new Set(programs.map(({ file }) => file)).size).toBe(programs.length);
    const used = new Set(programs.flatMap(({ code }) => importsOf(code)));
    const silent = programs.filter(({ code }) => announced(code).length === 0).map(({ file }) => `./${file}`);
    expect(silent.filter((file) => !used.has(file))).toEqual([]);
  });

  it('import the packages pinned for them, and nothing is pinned in vain', () => {
    const foreign = programs
      .flatMap(({ code }) => importsOf(code))
      .filter((name) => !/^(node:|\.\/|iwarp(\/|$))/.test(name));
    expect([...new Set(foreign)].toSorted()).toEqual([...packages].toSorted());
  });

  it('cover what a reader asks for first', () => {
    const names = programs.map(({ file }) => file.replace('.mjs', ''));
    const wanted = ['http', 'undici', 'ws', 'grpc', 'redis', 'pg', 'tls', 'cluster', 'shutdown', 'reconnect'];
    expect(names).toEqual(expect.arrayContaining(wanted));
  });

  it('listen on 127.0.0.1 only', () => {
    for (const { file, code } of programs)
      for (const [call] of code.matchAll(/\.listen\([^)]*\)/g))
        expect(call, file).toMatch(/127\.0\.0\.1|listen\(where\)/);
  });
});
