// The committed API reference is what the docstrings say. typedoc.config.js makes its warnings errors: an
// exported symbol without a docstring and a link to nowhere fail here too.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

function pages(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .toSorted();
  return Object.fromEntries(
    names.map((name) => [name.replaceAll('\\', '/'), readFileSync(join(folder, name), 'utf8')]),
  );
}

it('docs/api is what typedoc makes of the docstrings; if not, run npm run docs', () => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-docs-'));
  try {
    execFileSync(
      process.execPath,
      ['node_modules/typedoc/bin/typedoc', '--logLevel', 'Warn', '--out', folder],
      { cwd: ROOT, encoding: 'utf8', timeout: 600_000 },
    );
    const made = pages(folder);
    expect(Object.keys(made)).toEqual([
      'README.md',
      'iwarp.md',
      'iwarp/cm.md',
      'iwarp/http.md',
      'iwarp/inspect.md',
      'iwarp/kv.md',
      'iwarp/nbd.md',
      'iwarp/shared.md',
      'iwarp/sockets.md',
      'iwarp/testing.md',
      'iwarp/verbs.md',
      'iwarp/wire.md',
    ]);
    expect(pages(join(ROOT, 'docs/api'))).toEqual(made);
  } finally {
    rmSync(folder, { recursive: true });
  }
}, 630_000);
