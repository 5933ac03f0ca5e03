/** Writes `.cache/plain/` before the tests, and again before tests that a change has called for. */
import { build, transform } from 'esbuild';
import { mkdirSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';
import { packageSources } from '../../scripts/package-sources.ts';
import { sourceFiles, textOf } from './modules.ts';
import { PLAIN, plain } from './plain.ts';

const FOLDERS = ['bench', 'cli', 'conformance', 'examples', 'scripts', 'src', 'test'];
/** Hundreds of tests begin a thread with it: one file, since to read 150 is half of what the start costs. */
const BUNDLED = 'src/engine/worker/iwarp-engine.ts';
/** A path to another file of the project, as imports and `new URL` name it. */
const RELATIVE = /(["'`])(\.{1,2}\/[^"'`\n]*)\.ts\1/g;

/** Whole or not at all: other runs may read it. */
function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.${process.pid}`, text);
  renameSync(`${path}.${process.pid}`, path);
}

const changed = (path: string): number => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;

async function writePlain(): Promise<void> {
  const { name, version } = JSON.parse(textOf('package.json')) as { name: string; version: string };
  // Examples import the package by its name.
  const exports = Object.fromEntries(
    Object.entries(packageSources()).map(([entry, path]) => [
      `.${entry.slice(name.length)}`,
      `./${path.replace(/\.ts$/, '.js')}`,
    ]),
  );
  write(join(PLAIN, 'package.json'), JSON.stringify({ name, version, type: 'module', exports }));
  const rule = changed(fileURLToPath(import.meta.url));
  const paths = FOLDERS.flatMap(sourceFiles).filter((path) => !path.endsWith('.test.ts') && path !== BUNDLED);
  await Promise.all(
    paths.map(async (path) => {
      const to = plain(path);
      if (changed(to) > Math.max(changed(path), rule)) return;
      const { code } = await transform(textOf(path), { loader: 'ts', target: 'node20', sourcefile: path });
      write(to, code.replace(RELATIVE, '$1$2.js$1'));
    }),
  );
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`../../${BUNDLED}`, import.meta.url))],
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    write: false,
    logLevel: 'warning',
  });
  write(plain(BUNDLED), outputFiles[0]!.text);
}

export default async function setup(project: TestProject): Promise<void> {
  await writePlain();
  project.onTestsRerun(writePlain);
}
