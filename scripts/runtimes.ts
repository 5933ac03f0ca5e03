/**
 * The package in Bun and in Deno, which come as npm packages: the programs of the tutorial, an exchange with
 * each engine, byte streams, and the demo, in an empty project with the packed tarball.
 *
 *   npm run runtimes [-- --built] [bun] [deno]   a line for each program, and the sums
 *   npm run matrix -- --runtimes --docs          the same, kept in the table of docs/engines.md
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { EXCHANGE } from './exchange-program.ts';
import { buildUnless, inFolder, install, newProject, outcomeOf, pack, ROOT, run } from './fresh-project.ts';
import { announced, programsOf } from './page-programs.ts';
import { makeCertificate } from './real-servers.ts';

/** A runtime, and how it runs a program. */
interface Runtime {
  readonly name: string;
  readonly version: string;
  /** Words before the program's name. */
  readonly command: readonly string[];
  /** The same with every permission, for what starts processes and sends signals. */
  readonly trusted: readonly string[];
}

/** The runtimes that the package is tried in. Deno gets no `--allow-env`: settings have their defaults. */
export const RUNTIMES: readonly Runtime[] = [
  { name: 'Bun', version: '1.4.5', command: ['bun', 'run'], trusted: ['bun', 'run'] },
  {
    name: 'Deno',
    version: '2.9.6',
    command: ['deno', 'run', '--allow-net', '--allow-read'],
    trusted: ['deno', 'run', '--allow-all'],
  },
];

/** The result of one runtime. */
export interface RuntimeRun {
  readonly name: string;
  readonly version: string;
  readonly command: string;
  /** ISO 8601. */
  readonly began: string;
  readonly seconds: number;
  readonly passed: number;
  readonly failed: readonly string[];
  readonly commit?: string;
}

/** A program, and the lines that it has to print; null where only its status counts. */
interface Trial {
  readonly title: string;
  readonly file: string;
  readonly lines: readonly string[] | null;
  readonly trusted?: boolean;
  /** Runtimes in which it does not work, with the reason in docs/engines.md. */
  readonly except?: readonly string[];
}

/** Bun's TLS over a stream loses bytes written before the handshake is over. */
const EXCEPT: Readonly<Record<string, readonly string[]>> = { 'tls.mjs': ['Bun'] };
/** Recipes that need neither npm packages nor servers, nor what only Node has. */
const RECIPES = ['http.mjs', 'tls.mjs', 'shutdown.mjs', 'heartbeat.mjs', 'reconnect.mjs'];

/** Write the programs into the project. */
function prepare(project: string): Trial[] {
  const trials: Trial[] = [];
  const add = (
    title: string,
    file: string,
    code: string,
    lines: readonly string[],
    trusted = false,
  ): void => {
    writeFileSync(join(project, file), code);
    trials.push({ title, file, lines, trusted });
  };
  const page = (name: string): string => readFileSync(join(ROOT, 'docs', name), 'utf8');
  for (const [, title, code] of page('tutorial.md').matchAll(/^## (.+)\n[^]*?^```ts\n([^]*?)^```$/gm))
    add(`tutorial: ${title!}`, `${title!.replaceAll(/\W+/g, '-')}.ts`, code!, announced(code!));
  for (const engine of ['thread', 'worker']) {
    const use = `import * as iwarp from 'iwarp';\nconsole.log(await exchange(iwarp, '${engine}'));\n`;
    const code = EXCHANGE + use;
    add(`a Read with engine ${engine}`, `exchange-${engine}.mjs`, code, ['42']);
  }
  const recipes = [...programsOf(page('recipes.md')), ...programsOf(page('production.md'))];
  for (const { file, code } of recipes.filter((recipe) => RECIPES.includes(recipe.file))) {
    writeFileSync(join(project, file), code);
    const except = EXCEPT[file] ?? [];
    trials.push({ title: `recipe ${file}`, file, lines: announced(code), trusted: true, except });
  }
  const command = join('node_modules', 'iwarp', 'bin', 'iwarp.js');
  trials.push({ title: 'the demo', file: command, lines: null, trusted: true });
  return trials;
}

async function tryRuntime(runtime: Runtime, project: string, all: readonly Trial[]): Promise<RuntimeRun> {
  const trials = all.filter(({ except = [] }) => !except.includes(runtime.name));
  const began = new Date();
  const failed: string[] = [];
  // Colours are no part of the trial, and the programs choose their engines themselves.
  const env = { ...process.env, NO_COLOR: '1', IWARP_ENGINE: '' };
  for (const { title, file, lines, trusted } of trials) {
    const [program, ...words] = trusted === true ? runtime.trusted : runtime.command;
    const path = join(project, 'node_modules', '.bin', program!);
    const more = lines === null ? ['demo'] : [];
    const outcome = await outcomeOf(project, [path, ...words, file, ...more], env);
    const isFine =
      outcome.status === 0 &&
      (lines === null
        ? outcome.lines.at(-1) === 'Every byte was verified on both sides.'
        : isDeepStrictEqual(outcome.lines, lines));
    const why = isFine ? '' : `\n${JSON.stringify(outcome, null, 1)}`;
    process.stdout.write(`${isFine ? 'ok    ' : 'FAILED'} ${runtime.name}: ${title}${why}\n`);
    if (!isFine) failed.push(title);
  }
  return {
    name: runtime.name,
    version: runtime.version,
    command: runtime.command.join(' '),
    began: began.toISOString(),
    seconds: Math.round((Date.now() - began.getTime()) / 1000),
    passed: trials.length - failed.length,
    failed,
  };
}

/** The package as Deno's registry would get it: `deno publish` with nothing sent, remarks on its comments. */
async function checkPublishing(project: string): Promise<string[]> {
  const deno = join(project, 'node_modules', '.bin', 'deno');
  const env = { ...process.env, NO_COLOR: '1' };
  const dry = await outcomeOf(ROOT, [deno, 'publish', '--dry-run', '--allow-dirty'], env);
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'deno.json'), 'utf8')) as {
    exports: Record<string, string>;
  };
  const lint = await outcomeOf(ROOT, [deno, 'doc', '--lint', ...Object.values(exports)], env);
  const problems = [
    ...(dry.status === 0 ? [] : [`deno publish --dry-run: ${dry.complaints.slice(-1500)}`]),
    ...(lint.status === 0 ? [] : [`deno doc --lint: ${lint.complaints.slice(-1500)}`]),
  ];
  for (const problem of problems) process.stdout.write(`FAILED ${problem}\n`);
  if (problems.length === 0)
    process.stdout.write('ok     Deno: publish --dry-run, and doc --lint without a remark\n');
  return problems;
}

/** Try each runtime, or those that the arguments name. */
export async function runRuntimes(args: readonly string[]): Promise<RuntimeRun[]> {
  buildUnless(args);
  const names = args.filter((arg) => !arg.startsWith('--'));
  const chosen = RUNTIMES.filter(({ name }) => names.length === 0 || names.includes(name.toLowerCase()));
  return await inFolder('runtimes', async (folder) => {
    const project = newProject(folder, 'project', 'module');
    const runtimes = chosen.map(({ name, version }) => `${name.toLowerCase()}@${version}`);
    install(project, pack(folder), ...runtimes);
    // The only install script of the project, which puts Bun's program into its place.
    if (chosen.some(({ name }) => name === 'Bun'))
      run(join(project, 'node_modules', 'bun'), process.execPath, 'install.js');
    makeCertificate(project);
    const trials = prepare(project);
    const runs: RuntimeRun[] = [];
    for (const runtime of chosen) runs.push(await tryRuntime(runtime, project, trials));
    if (!chosen.some(({ name }) => name === 'Deno')) return runs;
    const problems = await checkPublishing(project);
    const last = runs.pop()!;
    const passed = last.passed + (problems.length === 0 ? 1 : 0);
    return [...runs, { ...last, passed, failed: [...last.failed, ...problems] }];
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const runs = await runRuntimes(process.argv.slice(2));
  const passed = runs.reduce((sum, run) => sum + run.passed, 0);
  const failed = runs.reduce((sum, run) => sum + run.failed.length, 0);
  process.stdout.write(`${passed} passed, ${failed} failed\n`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
}
