// Runs every TypeScript program of docs/tutorial.md against the sources. What a program prints must be what its comments say.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT, runTs } from './support.ts';

interface Manifest {
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
}

const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Manifest;

/** The source behind an import of the package: dist/src/x.js was src/x.ts. */
function sourceOf(specifier: string): string {
  const entry = exports[specifier.replace(/^iwarp/, '.')];
  if (entry === undefined || typeof entry === 'string') throw new Error(`package.json does not export ${specifier}`);
  return pathToFileURL(join(ROOT, entry.default.replace('dist/', '').replace(/\.js$/, '.ts'))).href;
}

const text = readFileSync(join(ROOT, 'docs', 'tutorial.md'), 'utf8');
const programs = [...text.matchAll(/^## (.+)\n[^]*?^```ts\n([^]*?)^```$/gm)].map((match) => ({ title: match[1]!, code: match[2]! }));

/** What the comments after console.log announce, one line each. */
function announced(code: string): string[] {
  return [...code.matchAll(/^.*console\.log\(.*\); \/\/ (.+)$/gm)].map((match) => match[1]!);
}

describe('docs/tutorial.md', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'iwarp-tutorial-'));
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }');
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it('has no program that is not run here', () => {
    expect(programs.length).toBeGreaterThanOrEqual(6);
    expect(programs).toHaveLength(text.match(/^```ts$/gm)!.length);
  });

  it.each(programs.map(({ title, code }) => [title, code] as const))('%s', async (title, code) => {
    const expected = announced(code);
    expect(expected.length, 'a program that shows nothing proves nothing').toBeGreaterThan(0);
    const file = join(folder, `${title.replace(/\W+/g, '-')}.ts`);
    writeFileSync(file, code.replace(/from '(iwarp[^']*)'/g, (_, specifier: string) => `from '${sourceOf(specifier)}'`));
    // The tutorial registers ordinary memory, whatever the other tests run on.
    const { status, stdout, stderr } = await runTs(file, [], { IWARP_ENGINE: 'thread' });
    expect({ status, stderr, lines: stdout.trimEnd().split('\n') }).toEqual({ status: 0, stderr: '', lines: expected });
  });
});
