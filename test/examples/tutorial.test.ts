// Runs every TypeScript program of docs/tutorial.md against the sources. What a program prints must be what
// its comments say.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageSources } from '../../scripts/package-sources.ts';
import { plain } from '../support/plain.ts';
import { ROOT, runTs } from './support.ts';

const SOURCES = packageSources();

/** The source behind an import of the package. */
function sourceOf(specifier: string): string {
  const source = SOURCES[specifier];
  if (source === undefined) throw new Error(`package.json does not export ${specifier}`);
  return plain(source);
}

const text = readFileSync(join(ROOT, 'docs', 'tutorial.md'), 'utf8');
const programs = [...text.matchAll(/^## (.+)\n[^]*?^```ts\n([^]*?)^```$/gm)].map((match) => ({
  title: match[1]!,
  code: match[2]!,
}));

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

  const runs = programs.flatMap(({ title, code }) =>
    (['thread', 'worker'] as const).map((engine) => [title, engine, code] as const),
  );
  it.each(runs)('%s, engine %s', async (title, engine, code) => {
    const expected = announced(code);
    expect(expected.length, 'a program that shows nothing proves nothing').toBeGreaterThan(0);
    const file = join(folder, `${title.replace(/\W+/g, '-')}-${engine}.ts`);
    writeFileSync(
      file,
      code.replace(/from '(iwarp[^']*)'/g, (_, specifier: string) => `from '${sourceOf(specifier)}'`),
    );
    const { status, stdout, stderr } = await runTs(file, [], { IWARP_ENGINE: engine });
    expect({ status, stderr, lines: stdout.trimEnd().split('\n') }).toEqual({
      status: 0,
      stderr: '',
      lines: expected,
    });
  });
});
