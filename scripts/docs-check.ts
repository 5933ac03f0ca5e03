/**
 * The committed reference, docs/api, is what typedoc makes of the docstrings: `npm run docs:check` names the
 * pages that are not, and ends with 1. typedoc.config.js makes typedoc's warnings errors: an exported symbol
 * without a docstring, and a link to nowhere, fail here too.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGES = join(ROOT, 'docs/api');

/** The entries of the package, and the list of them. */
const EXPECTED = [
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
];

function pages(folder: string): Map<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .toSorted();
  return new Map(names.map((name) => [name.replaceAll('\\', '/'), readFileSync(join(folder, name), 'utf8')]));
}

const folder = mkdtempSync(join(tmpdir(), 'iwarp-docs-'));
try {
  const typedoc = join(ROOT, 'node_modules/typedoc/bin/typedoc');
  execFileSync(process.execPath, [typedoc, '--logLevel', 'Warn', '--out', folder], {
    cwd: ROOT,
    stdio: 'inherit',
  });
  const [made, kept] = [pages(folder), pages(PAGES)];
  const names = new Set([...EXPECTED, ...made.keys(), ...kept.keys()]);
  const old = [...names].filter((name) => made.get(name) !== kept.get(name) || !EXPECTED.includes(name));
  for (const name of old) console.error(`docs/api/${name} is not what the docstrings say: npm run docs`);
  console.log(`${names.size - old.length} pages of the reference as they should be, ${old.length} not`);
  process.exitCode = old.length > 0 ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true });
}
