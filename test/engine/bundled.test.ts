// The package in one file with a program, as bundlers make it: the worker thread needs a separate file all
// the same.
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Format } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { EXCHANGE } from '../../scripts/exchange-program.ts';
import { bundle as bundleOf, runNode } from '../support/bundle.ts';
import { sourceFiles, textOf } from '../support/modules.ts';

const PROGRAM = `
import * as iwarp from './src/index.ts';
${EXCHANGE}
exchange(iwarp, process.argv[2])
  .then((octet) => console.log('read', octet))
  .catch((error) => console.log(error.name, error.code, error.message));
`;
const bundle = (format: Format, extension: string, withEngine: boolean): Promise<string> =>
  bundleOf(PROGRAM, { format, extension, withEngine });
const run = (file: string, ...args: string[]): Promise<string> => runNode([file, ...args]);

describe.each<[Format, string]>([
  ['esm', '.mjs'],
  ['esm', '.js'],
  ['cjs', '.cjs'],
  ['cjs', '.js'],
])('bundled as %s, in a file that ends with %s', (format, extension) => {
  it('streams run in the program’s own thread', async () => {
    expect(await run(await bundle(format, extension, false), 'thread')).toBe('read 42\n');
  });

  it('and in a worker, with the entry iwarp/engine beside the bundle', async () => {
    expect(await run(await bundle(format, extension, true), 'worker')).toBe('read 42\n');
  });

  it('without that entry the error names the file and says what to do', async () => {
    const said = await run(await bundle(format, extension, false), 'worker');
    expect(said).toMatch(/^IwarpError ERR_ENGINE_FAILED .*iwarp-engine/);
    expect(said).toContain(
      `iwarp-engine${extension} is not there: a bundled program needs the entry iwarp/engine`,
    );
  });
});

it('code in no file at all has no file for a worker beside it', async () => {
  const file = await bundle('cjs', '.cjs', false);
  const evaluated = join(dirname(file), 'evaluate.cjs');
  // As a bundle that was read from somewhere and is evaluated: there is neither a URL nor a name.
  writeFileSync(
    evaluated,
    "new Function('require', 'process', 'module', 'exports', " +
      `require('node:fs').readFileSync(${JSON.stringify(file)}, 'utf8'))(require, process, {}, {});`,
  );
  expect(await run(evaluated, 'thread')).toBe('read 42\n');
  expect(await run(evaluated, 'worker')).toMatch(
    /^IwarpError ERR_ENGINE_FAILED a worker thread needs a file/,
  );
});

it('iwarp/engine is no module to import', async () => {
  const file = join(dirname(await bundle('esm', '.mjs', true)), 'iwarp-engine.mjs');
  expect(await run(file)).toMatch(/ERR_INVALID_STATE/);
});

it('no module of src/ has an expression that webpack takes for a file to bundle', () => {
  const asset = /new URL\([^()]*,\s*import\.meta\.url\)|^import .*\bcreateRequire\b|import\.meta\.resolve/m;
  const reachable = sourceFiles('src').filter((path) => !path.startsWith('src/tools/'));
  expect(reachable.filter((path) => asset.test(textOf(path)))).toEqual([]);
});
