/**
 * npm packages over byte streams of `iwarp/sockets`, each with the real server where Debian has one: `npm run
 * programs`. Like the recipes they run in an empty project with the packed tarball, with both engines. Prints
 * a line for each check, and the sums.
 *
 *   npm run programs [-- --built] [NAMES]    with --built takes dist as it is
 *
 * The names are web, grpc, redis, pg and preload.
 */
import { spawn } from 'node:child_process';
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildUnless, inFolder, install, newProject, pack, ROOT } from './fresh-project.ts';
import { NPM_PACKAGES } from './npm-packages.ts';
import { programsOf } from './page-programs.ts';
import { startPostgres, startRedis } from './real-servers.ts';

const PROGRAMS = join(ROOT, 'scripts/programs');
/** Modules that programs use. */
const PARTS = ['kit.mjs', 'plain.mjs'];
const ENGINES = ['thread', 'worker'];
const LIMIT_MS = 180_000;

/** Run a program, show its lines, and add up its sums; one that has none has failed once. */
function runProgram(project: string, file: string, env: NodeJS.ProcessEnv): Promise<[number, number]> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [file], {
      cwd: project,
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const late = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
    let out = '';
    child.stdout.on('data', (data: Buffer) => (out += data.toString()));
    child.once('error', reject);
    child.once('close', (status) => {
      clearTimeout(late);
      const sums = /^(\d+) passed, (\d+) failed\n$/m.exec(out);
      process.stdout.write(out.slice(0, sums?.index));
      const [passed, failed] = [Number(sums?.[1] ?? 0), Number(sums?.[2] ?? 0)];
      const isFine = sums !== null && (status === 0 || failed > 0);
      if (!isFine) process.stdout.write(`FAILED ${file} has ended with ${status} and without its sums\n`);
      resolve([passed, failed + (isFine ? 0 : 1)]);
    });
  });
}

async function main(args: readonly string[]): Promise<number> {
  const names = args.filter((arg) => !arg.startsWith('--'));
  const files = readdirSync(PROGRAMS);
  buildUnless(args);
  let [passed, failed] = [0, 0];
  await inFolder('programs', async (folder) => {
    const project = newProject(folder, 'project', 'module');
    install(project, pack(folder), ...NPM_PACKAGES);
    for (const file of files) copyFileSync(join(PROGRAMS, file), join(project, file));
    const recipes = programsOf(readFileSync(join(ROOT, 'docs/recipes.md'), 'utf8'));
    writeFileSync(join(project, 'gateway.mjs'), recipes.find(({ file }) => file === 'gateway.mjs')!.code);
    const redis = await startRedis(folder);
    const postgres = await startPostgres(folder);
    const env = { ...process.env, REDIS_PORT: String(redis.port), PGPORT: String(postgres.port) };
    try {
      for (const file of files.filter((name) => !PARTS.includes(name))) {
        if (names.length > 0 && !names.includes(file.replace(/\.mjs$/, ''))) continue;
        for (const engine of ENGINES) {
          process.stdout.write(`${file}, engine ${engine}\n`);
          const sums = await runProgram(project, file, { ...env, IWARP_ENGINE: engine });
          passed += sums[0];
          failed += sums[1];
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
