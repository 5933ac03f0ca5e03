/**
 * Programs in one file with the sources, as bundlers make them: what a process of Node runs without a loader,
 * in whatever mode.
 */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Format } from 'esbuild';
import { afterAll } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What package.json says that `iwarp/engine` is, as a source. */
const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  readonly exports: Readonly<Record<string, { readonly default: string }>>;
};
const ENGINE = exports['./engine']!.default.replace(/^\.\/dist\/(.*)\.js$/, 'src/$1.ts');

interface Bundling {
  readonly format: Format;
  /** What the names of the files end with. */
  readonly extension: string;
  /** The worker's file beside the bundle. */
  readonly withEngine: boolean;
}

const ESM: Bundling = { format: 'esm', extension: '.mjs', withEngine: true };

/**
 * Bundles `program`, which imports from `./src/`, in a new folder until the last test of the file;
 * gives the bundle's path.
 */
export async function bundle(
  program: string,
  { format, extension, withEngine }: Bundling = ESM,
): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp bündel '));
  folders.push(folder);
  const common = {
    bundle: true,
    platform: 'node',
    format,
    outdir: folder,
    outExtension: { '.js': extension },
    logLevel: 'silent',
  } as const;
  await build({ ...common, stdin: { contents: program, resolveDir: ROOT, sourcefile: 'program.js' } });
  if (withEngine) await build({ ...common, entryPoints: { 'iwarp-engine': join(ROOT, ENGINE) } });
  // The nearest package.json says what a .js file is.
  writeFileSync(
    join(folder, 'package.json'),
    JSON.stringify({ type: format === 'esm' ? 'module' : 'commonjs' }),
  );
  return join(folder, `stdin${extension}`);
}

const folders: string[] = [];
afterAll(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

/** Runs this Node with these words; gives what it prints. */
export function runNode(words: readonly string[]): Promise<string> {
  return new Promise((resolve) => {
    execFile(process.execPath, words, { timeout: 30_000 }, (_, stdout, stderr) => resolve(stdout + stderr));
  });
}
