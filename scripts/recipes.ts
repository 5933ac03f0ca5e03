/**
 * Runs every program of docs/recipes.md, production.md, streams.md and upgrade.md as a reader would: in an
 * empty project, with the packed tarball, the npm packages that they import, and the real servers.
 *
 *   npm run recipes [-- --built] [NAMES]     with --built takes dist as it is; NAMES are files, without .mjs
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { buildUnless, inFolder, install, newProject, outcomeOf, pack, ROOT } from './fresh-project.ts';
import { NPM_PACKAGES } from './npm-packages.ts';
import { announced, programsOf, type Program } from './page-programs.ts';
import { makeCertificate, startPostgres, startRedis } from './real-servers.ts';

const PAGES = ['docs/recipes.md', 'docs/production.md', 'docs/streams.md', 'docs/upgrade.md'];
const ENGINES = ['thread', 'worker'];

async function main(args: readonly string[]): Promise<number> {
  const names = args.filter((arg) => !arg.startsWith('--'));
  const programs = PAGES.flatMap((page) => programsOf(readFileSync(join(ROOT, page), 'utf8')));
  const chosen = (program: Program): boolean =>
    announced(program.code).length > 0 &&
    (names.length === 0 || names.includes(program.file.replace(/\.mjs$/, '')));
  buildUnless(args);
  let passed = 0;
  let failed = 0;
  await inFolder('recipes', async (folder) => {
    const project = newProject(folder, 'project', 'module');
    install(project, pack(folder), ...NPM_PACKAGES);
    for (const { file, code } of programs) writeFileSync(join(project, file), code);
    makeCertificate(project);
    const redis = await startRedis(folder);
    const postgres = await startPostgres(folder);
    try {
      for (const program of programs.filter(chosen)) {
        for (const engine of ENGINES) {
          const env = {
            ...process.env,
            IWARP_ENGINE: engine,
            REDIS_PORT: String(redis.port),
            PGPORT: String(postgres.port),
          };
          const outcome = await outcomeOf(project, [process.execPath, program.file], env);
          const expected = { status: 0, lines: announced(program.code), complaints: '' };
          const isFine = isDeepStrictEqual(outcome, expected);
          const why = isFine ? '' : `\n${JSON.stringify({ outcome, expected }, null, 1)}`;
          process.stdout.write(`${isFine ? 'ok    ' : 'FAILED'} ${program.file}, engine ${engine}${why}\n`);
          if (isFine) passed++;
          else failed++;
        }
      }
    } finally {
      await Promise.all([redis.stop(), postgres.stop()]);
    }
  });
  process.stdout.write(`${passed} passed, ${failed} failed\n`);
  return failed === 0 && passed > 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
