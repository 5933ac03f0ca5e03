/**
 * The address of the repository, in one place. Fill it in, then `npx tsx scripts/repository.ts` writes it
 * into the manifests of both packages; test/docs/repository.test.ts compares them. CONTRIBUTING.md, "A
 * release", has the rest that a first release needs.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** As a browser opens it, without a slash at the end. Empty: not known yet, and the packages name none. */
export const REPOSITORY: string = '';

/** The manifests that name the repository, each with the folder of its package below the root. */
export const MANIFESTS: readonly { readonly path: string; readonly directory?: string }[] = [
  { path: 'package.json' },
  { path: 'conformance/package.json', directory: 'conformance' },
];

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** The text of a manifest with this address behind its description, or with none. */
export function withRepository(manifest: string, address: string, directory?: string): string {
  const { repository: _r, homepage: _h, bugs: _b, ...rest } = JSON.parse(manifest) as Record<string, unknown>;
  const fields = {
    repository: { type: 'git', url: `git+${address}.git`, directory },
    homepage: `${address}#readme`,
    bugs: `${address}/issues`,
  };
  const entries = Object.entries(rest).flatMap((entry) =>
    entry[0] === 'description' && address !== '' ? [entry, ...Object.entries(fields)] : [entry],
  );
  return `${JSON.stringify(Object.fromEntries(entries), null, 2)}\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  for (const { path, directory } of MANIFESTS) {
    const file = join(ROOT, path);
    writeFileSync(file, withRepository(readFileSync(file, 'utf8'), REPOSITORY, directory));
  }
