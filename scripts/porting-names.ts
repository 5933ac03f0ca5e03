/**
 * The names of rdma-core that docs/porting.md has to cover: `npx tsx scripts/porting-names.ts` reads the
 * headers of Debian's libibverbs-dev and librdmacm-dev and writes test/docs/porting-names.json. It keeps
 * names only: the headers themselves are not part of the project.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const HEADERS = ['infiniband/verbs.h', 'rdma/rdma_cma.h', 'rdma/rdma_verbs.h', 'rdma/rsocket.h'];
const OUT = fileURLToPath(new URL('../test/docs/porting-names.json', import.meta.url));

function withoutComments(text: string): string {
  return text.replaceAll(/\/\*[^]*?\*\/|\/\/[^\n]*/g, '');
}

/** Functions that a header declares or defines, and the members of its enumerations. */
function namesOf(header: string): string[] {
  const text = withoutComments(readFileSync(`/usr/include/${header}`, 'utf8'));
  const functions = [...text.matchAll(/\b((?:ibv_|rdma_)\w+|\w+_ibv_rate|r[a-z]+)\s*\((?!\*)/g)].map(
    ([, name]) => name!,
  );
  const own = functions.filter((name) => name.includes('_') || header === 'rdma/rsocket.h');
  const members = [...text.matchAll(/\benum\s*\w*\s*\{([^}]*)\}/g)].flatMap(([, body]) =>
    body!.split(',').map((member) => member.split('=')[0]!.trim()),
  );
  return [...own, ...members.filter((name) => /^[A-Z]\w+$/.test(name))];
}

const names = [...new Set(HEADERS.flatMap(namesOf))].toSorted();
const version = execFileSync('dpkg-query', ['-W', '-f', '${Version}', 'librdmacm-dev'], { encoding: 'utf8' });
writeFileSync(OUT, `${JSON.stringify({ version, names }, null, 1)}\n`);
process.stdout.write(`${names.length} names of rdma-core ${version}\n`);
