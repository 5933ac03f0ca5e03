/**
 * Compiles the packages. The library lies in `dist/` and its command in `dist/cli/`, as users see them, while
 * their sources are `src/` and `cli/`: the compiler keeps the folders of the sources, so this program moves
 * `dist/src/*` up and takes `src/` out of the imports of what lies beside it. The benchmark goes to
 * `dist/bench/`, which is not published.
 *
 *   npm run build
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'dist');
const COMPILER = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
/** The import of a source of the library, by a compiled file or a declaration beside the library. */
const OF_LIBRARY = /(['"])((?:\.\.\/)+)src\//g;

function compile(project: string): void {
  const { status } = spawnSync(process.execPath, [COMPILER, '-p', project], { cwd: ROOT, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

function moveUp(): void {
  const compiled = join(DIST, 'src');
  const beside = readdirSync(DIST).filter((name) => name !== 'src');
  for (const name of readdirSync(compiled)) {
    if (beside.includes(name)) throw new Error(`src/${name} and ${name}/ would both be dist/${name}`);
    renameSync(join(compiled, name), join(DIST, name));
  }
  rmdirSync(compiled);
  for (const folder of beside) {
    const files = readdirSync(join(DIST, folder), { recursive: true, withFileTypes: true });
    for (const file of files.filter((entry) => entry.isFile())) {
      const path = join(file.parentPath, file.name);
      const text = readFileSync(path, 'utf8');
      writeFileSync(path, text.replace(OF_LIBRARY, '$1$2'));
    }
  }
}

const SUITE = join(ROOT, 'conformance');
for (const folder of [DIST, join(SUITE, 'dist')]) rmSync(folder, { recursive: true, force: true });
compile('tsconfig.build.json');
moveUp();
// The suite is a separate package, which sees the library as its users do.
compile(join(SUITE, 'tsconfig.build.json'));
