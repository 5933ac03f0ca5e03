// Breaks a copy of the stack in many ways, one at a time, and runs the fast set against each: the suite is
// good for something if it notices every break that a peer can observe. Writes mutants.md beside this file.
//   npx tsx conformance/mutation/mutate.ts [id prefix...] [--jobs 2] [--merge FILE]
//   npx tsx conformance/mutation/mutate.ts --check      only: does each mutant's text still occur exactly
// once, and does the copy run while nothing is broken?
// `--merge` keeps verdicts in a file between runs over parts; the table is written when it has them all.
// The probe keeps the unbroken sources; only the target of profile `self` is built from the broken copy. Exit
// status 1 when a mutant that a peer can observe survives.

import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { mutants } from './mutants.ts';
import type { Mutant } from './mutants.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const TABLE = fileURLToPath(new URL('mutants.md', import.meta.url));
/** A mutant that hangs is caught as well: nothing else makes a run this slow. */
const LIMIT_MS = 180_000;

/** The entries of the library through which the target uses it, and their sources. */
const ENTRIES = { cm: 'cm/index.ts', testing: 'testing.ts', verbs: 'verbs/index.ts' } as const;
const PUBLIC_ENTRY = /'iwarp\/(cm|testing|verbs)'/g;

interface Verdict {
  readonly id: string;
  readonly outcome: 'caught' | 'survived' | 'stale';
  /** The first case that noticed, and what it saw. */
  readonly by: string;
}

/** Parts of conformance/ that a run of the suite does not load. */
const UNUSED = new Set(['mutation', 'siw', 'node_modules']);

/** A copy of the parts that a run needs; `broken/` is the sources that the target uses. */
function makeTree(): string {
  const tree = mkdtempSync(join(tmpdir(), 'iwarp-mutants-'));
  cpSync(join(ROOT, 'src'), join(tree, 'src'), { recursive: true });
  cpSync(join(ROOT, 'src'), join(tree, 'broken'), { recursive: true });
  cpSync(join(ROOT, 'cli'), join(tree, 'cli'), { recursive: true });
  cpSync(join(ROOT, 'conformance'), join(tree, 'conformance'), {
    recursive: true,
    filter: (source) => !UNUSED.has(basename(source)),
  });
  cpSync(join(ROOT, 'package.json'), join(tree, 'package.json'));
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  const target = join(tree, 'conformance/profiles/self-target.ts');
  writeFileSync(
    target,
    readFileSync(target, 'utf8').replace(
      PUBLIC_ENTRY,
      (_all, name) => `'../../broken/${ENTRIES[name as keyof typeof ENTRIES]}'`,
    ),
  );
  return tree;
}

/**
 * The places of a mutant's text, whatever white space and trailing commas a formatter has put there: the text
 * is a statement, not its layout.
 */
function placesOf({ find }: Mutant): RegExp {
  const marks = Array.from(find.replaceAll(/\s+/g, ''), (mark) =>
    mark.replace(/[\\^$.*+?()[\]{}|/]/, '\\$&'),
  );
  const text = marks.map((mark) => (/^\\?[)\]}]$/.test(mark) ? `,?\\s*${mark}` : mark)).join('\\s*');
  return new RegExp(text, 'g');
}

/** The sources have changed so that the mutant means nothing. */
function isStale(mutant: Mutant): boolean {
  const source = readFileSync(join(ROOT, 'src', mutant.file), 'utf8');
  return (source.match(placesOf(mutant)) ?? []).length !== 1;
}

/** Run the fast set in a tree with this mutant in place. */
async function judge(tree: string, mutant: Mutant): Promise<Verdict> {
  const path = join(tree, 'broken', mutant.file);
  if (isStale(mutant)) return { id: mutant.id, outcome: 'stale', by: 'its text does not occur exactly once' };
  const whole = readFileSync(join(ROOT, 'src', mutant.file), 'utf8');
  writeFileSync(
    path,
    whole.replace(placesOf(mutant), () => mutant.put),
  );
  try {
    const by = await runSuite(tree);
    return { id: mutant.id, outcome: by === '' ? 'survived' : 'caught', by };
  } finally {
    writeFileSync(path, whole);
  }
}

/** The first thing that went wrong when the fast set ran in `tree`; empty if nothing did. */
function runSuite(tree: string): Promise<string> {
  const args = [
    '--import',
    'tsx',
    'conformance/cli.ts',
    'run',
    '--anyway',
    '--bail',
    '--slow',
    '0.3',
    '--report',
    'json:result.json',
  ];
  return new Promise((resolve) => {
    rmSync(join(tree, 'result.json'), { force: true });
    execFile(process.execPath, args, { cwd: tree, timeout: LIMIT_MS, maxBuffer: 1 << 26 }, (error) => {
      let by = error === null ? '' : 'the run itself failed';
      try {
        const report = JSON.parse(readFileSync(join(tree, 'result.json'), 'utf8')) as {
          results: { id: string; role: string; unexpected: boolean; actual: string; reason: string }[];
        };
        const first = report.results.find((result) => result.unexpected);
        if (first !== undefined)
          by = `${first.id} [${first.role}]: ${(first.actual || first.reason).split('\n')[0] ?? ''}`;
      } catch {
        by = 'the run broke off or took too long';
      }
      resolve(by);
    });
  });
}

function tableOf(verdicts: ReadonlyMap<string, Verdict>): string {
  const cell = (text: string): string => text.replaceAll('|', '\\|').slice(0, 160);
  const count = (test: (mutant: Mutant, verdict: Verdict) => boolean): number =>
    mutants.filter((mutant) => test(mutant, verdicts.get(mutant.id)!)).length;
  const caught = count((_, verdict) => verdict.outcome === 'caught');
  const unseen = count((mutant, verdict) => verdict.outcome === 'survived' && mutant.unseen !== undefined);
  const lines = [
    '# Mutation check',
    '',
    `The stack broken in ${mutants.length} ways, one at a time (mutants.ts), and the fast set run ` +
      'against each by mutate.ts.',
    `${caught} caught, ${mutants.length - caught - unseen} not caught, ${unseen} that no peer can see ` +
      'or hold against us.',
    '',
    '| break | file | outcome | first case that noticed, or why none does |',
    '|---|---|---|---|',
  ];
  for (const { id, file, unseen: why } of mutants) {
    const { outcome, by } = verdicts.get(id)!;
    lines.push(`| ${id} | ${file} | ${outcome} | ${cell(outcome === 'survived' ? (why ?? '') : by)} |`);
  }
  return `${lines.join('\n')}\n`;
}

/** A copy that does not even run would catch every mutant. */
async function demandSound(tree: string): Promise<void> {
  const by = await runSuite(tree);
  if (by !== '') throw new Error(`the suite fails on the unbroken copy in ${tree}: ${by}`);
}

/** Judge these one after another, several at a time. */
async function judgeAll(chosen: readonly Mutant[], jobs: number): Promise<Verdict[]> {
  const verdicts: Verdict[] = [];
  const queue = [...chosen];
  const worker = async (): Promise<void> => {
    const tree = makeTree();
    await demandSound(tree);
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      const verdict = await judge(tree, mutant);
      verdicts.push(verdict);
      process.stdout.write(`${verdict.outcome.padEnd(8)} ${mutant.id}  ${verdict.by}\n`);
    }
    rmSync(tree, { recursive: true });
  };
  await Promise.all(Array.from({ length: Math.max(1, jobs) }, worker));
  return verdicts;
}

async function check(): Promise<void> {
  const tree = makeTree();
  await demandSound(tree);
  rmSync(tree, { recursive: true });
  const stale = mutants.filter(isStale);
  for (const { id, file, find } of stale)
    process.stdout.write(`stale ${id}: src/${file} does not hold exactly once: ${JSON.stringify(find)}\n`);
  process.stdout.write(`${mutants.length} mutants, ${stale.length} stale\n`);
  if (stale.length > 0) process.exitCode = 1;
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      jobs: { type: 'string', default: '2' },
      merge: { type: 'string' },
      check: { type: 'boolean', default: false },
    },
  });
  if (values.check) return check();
  const chosen = mutants.filter(
    (mutant) => positionals.length === 0 || positionals.some((prefix) => mutant.id.startsWith(prefix)),
  );
  const known =
    values.merge !== undefined && existsSync(values.merge)
      ? (JSON.parse(readFileSync(values.merge, 'utf8')) as Verdict[])
      : [];
  const fresh = await judgeAll(chosen, Number(values.jobs));
  const verdicts = new Map([...known, ...fresh].map((verdict) => [verdict.id, verdict]));
  if (values.merge !== undefined) writeFileSync(values.merge, JSON.stringify([...verdicts.values()]));
  if (mutants.every(({ id }) => verdicts.has(id))) writeFileSync(TABLE, tableOf(verdicts));
  const unseen = new Set(mutants.filter((mutant) => mutant.unseen !== undefined).map(({ id }) => id));
  const bad = fresh.filter(
    ({ id, outcome }) => outcome === 'stale' || (outcome === 'survived' && !unseen.has(id)),
  );
  process.stdout.write(`${chosen.length} mutants, ${bad.length} not caught\n`);
  if (bad.length > 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
