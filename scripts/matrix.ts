/**
 * `npm run matrix`: the test suite, or the interop cases, in every configuration: each engine, each CRC32c,
 * each way of receiving. A probe first reports the settings of a process with the configuration's variables;
 * if they differ, the configuration has failed. The Node that runs this runs the tests: start it with another
 * one to have a row of that.
 */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import type { InteropRecord } from '../conformance/siw/report.ts';
import type { RnicSettings } from '../src/api/environment.ts';
import { runRuntimes } from './runtimes.ts';
import { CONFIGURATIONS, expectedSettings, VARIABLES, type Configuration } from './matrix-configurations.ts';
import {
  MATRIX_RECORD,
  writeMatrixPage,
  type MatrixRecord,
  type MatrixRun,
  type RunKind,
} from './docs-matrix.ts';

const USAGE = `usage: npm run matrix -- [--suite] [--interop] [--only NAMES] [--topic NAMES] [--json FILE]
                     [--docs] [paths]
  --suite        the test suite (default without --interop)
  --interop      the interop cases, alone or with --suite; needs the guest (conformance/siw/README.md) and
                 runs the compiled tools
  --only NAMES   ${CONFIGURATIONS.map(({ name }) => name).join(', ')}: the named ones, separated by commas
  --topic NAMES  interop cases of these topics only
  --runtimes     programs in Bun and Deno instead (scripts/runtimes.ts); takes dist as it is
  --guests N     interop cases in this many guests side by side (1); two suit two processors
  --json FILE    keep the results there, beside those of other configurations
  --docs         keep the results in docs/matrix.json, and write the table of docs/engines.md
  paths          test files or folders, instead of the whole suite
`;

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const VITEST = join(ROOT, 'node_modules/vitest/vitest.mjs');

interface Options {
  readonly kinds: readonly RunKind[];
  readonly topic: string | undefined;
  readonly guests: number;
  readonly paths: readonly string[];
}

/** The parent's environment without its own choice. */
function environmentOf({ environment }: Configuration): NodeJS.ProcessEnv {
  const base = { ...process.env };
  for (const name of VARIABLES) delete base[name];
  return { ...base, ...environment };
}

/** Run a program; its standard output if `capture`. */
function run(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  output: 'capture' | 'show',
): Promise<{ status: number | null; stdout: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      env,
      stdio: ['ignore', output === 'show' ? 'inherit' : 'pipe', 'inherit'],
    });
    let stdout = '';
    child.stdout?.on('data', (text: Buffer) => (stdout += text.toString()));
    child.on('error', reject);
    child.on('close', (status) => resolve({ status, stdout }));
  });
}

/**
 * The commit that is checked out, with a plus after it if files of it have been changed since; without git,
 * nothing.
 */
function commit(): string | undefined {
  try {
    return execFileSync('git', ['describe', '--always', '--abbrev=7', '--exclude=*', '--dirty=+'], {
      cwd: ROOT,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return undefined;
  }
}

/** The settings that a process in this configuration reports. */
async function probe(configuration: Configuration): Promise<RnicSettings> {
  const { status, stdout } = await run(
    ['--import', 'tsx', join(ROOT, 'scripts/matrix-probe.ts')],
    environmentOf(configuration),
    'capture',
  );
  if (status !== 0) throw new Error(`the probe of ${configuration.name} ended with status ${status}`);
  const found = JSON.parse(stdout) as RnicSettings;
  const expected = expectedSettings(configuration.environment);
  if (!isDeepStrictEqual(found, expected)) {
    throw new Error(
      `configuration ${configuration.name} works with ${JSON.stringify(found)}, not ` +
        `${JSON.stringify(expected)}`,
    );
  }
  return found;
}

/** The parts of vitest's JSON report that count. */
interface SuiteReport {
  readonly numPassedTests: number;
  readonly numPendingTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[] | null;
    }[];
  }[];
}

async function suite(configuration: Configuration, { paths }: Options, folder: string): Promise<Counts> {
  const file = join(folder, 'suite.json');
  rmSync(file, { force: true });
  const { status } = await run(
    [
      VITEST,
      'run',
      '--reporter=json',
      `--outputFile=${file}`,
      ...(paths.length === 0 ? ['--project=*'] : paths),
    ],
    environmentOf(configuration),
    'capture',
  );
  if (!existsSync(file)) throw new Error(`the suite ended with status ${status} and without a report`);
  const report = JSON.parse(readFileSync(file, 'utf8')) as SuiteReport;
  const red = report.testResults.flatMap(({ name, assertionResults }) => {
    const at = name.replace(ROOT, '');
    return assertionResults
      .filter((each) => each.status === 'failed')
      .map((each) => `${at}: ${each.fullName}: ${each.failureMessages?.[0]?.split('\n')[0] ?? ''}`);
  });
  // A file that could not be loaded has no tests to be red, and so has an error outside of them.
  const files = report.testResults
    .filter((each) => each.status === 'failed' && each.assertionResults.length === 0)
    .map(({ name }) => `${name.replace(ROOT, '')}: not run`);
  const failed = [...red, ...files];
  if (status !== 0 && failed.length === 0) failed.push(`the run ended with status ${status}`);
  return { passed: report.numPassedTests, skipped: report.numPendingTests, failed };
}

async function interop(
  configuration: Configuration,
  { topic, guests }: Options,
  folder: string,
): Promise<Counts> {
  const parts = Array.from({ length: guests }, async (_, i) => {
    const file = join(folder, `interop-${i}.json`);
    rmSync(file, { force: true });
    const args = [
      '--import',
      'tsx',
      join(ROOT, 'conformance/siw/interop.ts'),
      '--retries',
      '1',
      '--shard',
      `${i + 1}/${guests}`,
      '--json',
      file,
    ];
    const { status } = await run(
      [...args, ...(topic === undefined ? [] : ['--topic', topic])],
      environmentOf(configuration),
      'show',
    );
    if (!existsSync(file))
      throw new Error(`the interop run ended with status ${status} and without a report`);
    return (JSON.parse(readFileSync(file, 'utf8')) as InteropRecord).cases;
  });
  const cases = (await Promise.all(parts)).flat();
  if (cases.length === 0) throw new Error('no interop case was run');
  const failed = cases
    .filter(({ ok }) => !ok)
    .map(({ tool, name, detail }) => `${tool}: ${name}: ${detail.split('\n')[0]}`);
  const again = cases.filter(({ ok, before }) => ok && before !== undefined).length;
  return {
    passed: cases.length - failed.length,
    skipped: 0,
    failed,
    ...(topic === undefined ? {} : { topic }),
    ...(again === 0 ? {} : { again }),
  };
}

type Counts = Pick<MatrixRun, 'passed' | 'skipped' | 'failed' | 'topic' | 'again'>;

async function runConfiguration(configuration: Configuration, options: Options): Promise<MatrixRun[]> {
  const { name } = configuration;
  const settings = await probe(configuration);
  const at = commit();
  process.stdout.write(
    `${name}: engine ${settings.engine}, CRC32c ${settings.crc32c}, receive ${settings.receive}, ` +
      `polling ${settings.busyPoll} us\n`,
  );
  const runs: MatrixRun[] = [];
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-matrix-'));
  try {
    for (const kind of options.kinds) {
      const began = new Date();
      const counts = await (kind === 'suite' ? suite : interop)(configuration, options, folder);
      const seconds = Math.round((Date.now() - began.getTime()) / 1000);
      process.stdout.write(
        `${name}: ${kind}: ${counts.passed} passed, ${counts.failed.length} failed, ${counts.skipped} ` +
          `skipped, ${seconds} s\n`,
      );
      for (const line of counts.failed) process.stdout.write(`  FAILED ${line}\n`);
      runs.push({
        name,
        kind,
        node: process.versions.node,
        environment: configuration.environment,
        settings,
        began: began.toISOString(),
        ...(at === undefined ? {} : { commit: at }),
        seconds,
        ...counts,
      });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return runs;
}

const nodeLine = ({ node }: MatrixRun): number => Number.parseInt(node, 10);

/** Put the runs in the place of older ones of the same configuration and the same line of Node. */
function keep(file: string, runs: readonly MatrixRun[]): MatrixRecord {
  const old = existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as MatrixRecord) : { runs: [] };
  const before = old.runs;
  const key = (one: MatrixRun): string => `${one.kind} ${one.name} ${nodeLine(one)}`;
  const merged = new Map([...before, ...runs].map((each) => [key(each), each]));
  const place = ({ name, kind }: MatrixRun): number =>
    2 * CONFIGURATIONS.findIndex((each) => each.name === name) + (kind === 'suite' ? 0 : 1);
  const record = {
    ...old,
    runs: [...merged.values()].toSorted((a, b) => nodeLine(a) - nodeLine(b) || place(a) - place(b)),
  };
  writeFileSync(file, `${JSON.stringify(record, null, 1)}\n`);
  return record;
}

/** The programs in other runtimes, kept in the place of their older results. */
async function otherRuntimes(isKept: boolean): Promise<number> {
  const runs = await runRuntimes(['--built']);
  const at = commit();
  if (isKept) {
    const old = JSON.parse(readFileSync(MATRIX_RECORD, 'utf8')) as MatrixRecord;
    const runtimes = runs.map((run) => ({ ...run, ...(at === undefined ? {} : { commit: at }) }));
    const record = { ...old, runtimes };
    writeFileSync(MATRIX_RECORD, `${JSON.stringify(record, null, 1)}\n`);
    writeMatrixPage(record);
  }
  return runs.every(({ failed }) => failed.length === 0) ? 0 : 1;
}

function table(runs: readonly MatrixRun[]): string {
  const rows = runs.map(({ name, kind, node, settings, passed, failed, seconds }) =>
    [
      name,
      node,
      settings.engine,
      settings.crc32c,
      settings.receive,
      settings.busyPoll,
      kind,
      passed,
      failed.length,
      seconds,
    ].map(String),
  );
  const all = [
    [
      'configuration',
      'Node',
      'engine',
      'CRC32c',
      'receive',
      'polling, us',
      'run',
      'passed',
      'failed',
      'seconds',
    ],
    ...rows,
  ];
  const widths = all[0]!.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  return all
    .map((row) =>
      row
        .map((cell, column) => (column < 7 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
        .join('  '),
    )
    .join('\n');
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      suite: { type: 'boolean' },
      interop: { type: 'boolean' },
      only: { type: 'string' },
      topic: { type: 'string' },
      guests: { type: 'string' },
      runtimes: { type: 'boolean' },
      json: { type: 'string' },
      docs: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  if (values.help === true) {
    process.stdout.write(USAGE);
    return 0;
  }
  if (values.runtimes === true) return await otherRuntimes(values.docs === true);
  const names = values.only?.split(',') ?? CONFIGURATIONS.map(({ name }) => name);
  const unknown = names.filter((name) => CONFIGURATIONS.every((each) => each.name !== name));
  if (unknown.length > 0 || (positionals.length > 0 && (values.docs === true || values.json !== undefined))) {
    process.stderr.write(
      unknown.length > 0
        ? `no configuration is called ${unknown.join(', ')}\n${USAGE}`
        : `the results of a part of the suite are not kept\n${USAGE}`,
    );
    return 2;
  }
  const guests = Number(values.guests ?? 1);
  if (!Number.isInteger(guests) || guests < 1 || guests > 16) {
    process.stderr.write(`--guests must be from 1 to 16, got ${values.guests}\n${USAGE}`);
    return 2;
  }
  const kinds: RunKind[] =
    values.interop === true ? [...(values.suite === true ? ['suite' as const] : []), 'interop'] : ['suite'];
  const runs: MatrixRun[] = [];
  for (const configuration of CONFIGURATIONS.filter(({ name }) => names.includes(name))) {
    const done = await runConfiguration(configuration, {
      kinds,
      topic: values.topic,
      guests,
      paths: positionals,
    });
    runs.push(...done);
    if (values.json !== undefined) keep(values.json, done);
    if (values.docs === true) writeMatrixPage(keep(MATRIX_RECORD, done));
  }
  process.stdout.write(`\n${table(runs)}\n`);
  return runs.every(({ failed }) => failed.length === 0) ? 0 : 1;
}

process.exitCode = await main();
