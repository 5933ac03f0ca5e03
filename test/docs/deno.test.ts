// deno.json says the same as package.json, with sources in the place of compiled files.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../examples/support.ts';

interface Manifest {
  readonly version: string;
  readonly license: string;
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}
const read = (name: string): Manifest => JSON.parse(readFileSync(join(ROOT, name), 'utf8')) as Manifest;

it('deno.json has the version, the license and the entries of package.json', () => {
  const [npm, deno] = [read('package.json'), read('deno.json')];
  expect([deno.version, deno.license]).toEqual([npm.version, npm.license]);
  const sources = Object.entries(npm.exports)
    .filter(([entry]) => !entry.endsWith('.json'))
    .map(([entry, file]) => [
      entry,
      (file as { default: string }).default.replace('./dist/', './src/').replace(/\.js$/, '.ts'),
    ]);
  expect(deno.exports).toEqual(Object.fromEntries(sources));
});
