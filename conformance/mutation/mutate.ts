// Breaks a copy of the stack in many ways, one at a time, and runs the fast set against each: the suite is good for something if it
// notices every break that a peer can observe. Writes mutants.md beside this file.
//   npx tsx conformance/mutation/mutate.ts [id prefix...] [--jobs 2]
// The probe keeps the unbroken sources; only the target of profile `self` is built from the broken copy. Exit status 1 when a mutant
// that a peer can observe survives.

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { mutants } from './mutants.ts';
import type { Mutant } from './mutants.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const TABLE = fileURLToPath(new URL('mutants.md', import.meta.url));
/** A mutant that hangs is caught as well: nothing else makes a run this slow. */
const LIMIT_MS = 180_000;

interface Verdict {
  readonly mutant: Mutant;
  readonly outcome: 'caught' | 'survived' | 'stale';
  /** The first case that noticed, and what it saw. */
  readonly by: string;
}

/** A copy of the parts that a run needs; `broken/` is the sources that the target uses. */
function makeTree(): string {
  const tree = mkdtempSync(join(tmpdir(), 'iwarp-mutants-'));
  cpSync(join(ROOT, 'src'), join(tree, 'src'), { recursive: true });
  cpSync(join(ROOT, 'src'), join(tree, 'broken'), { recursive: true });
  for (const part of ['cases', 'catalogue', 'probe', 'profiles', 'report', 'runner', 'vectors']) {
    cpSync(join(ROOT, 'conformance', part), join(tree, 'conformance', part), { recursive: true });
  }
  for (const file of ['cli.ts', 'unobservable.ts', 'vectors-command.ts']) cpSync(join(ROOT, 'conformance', file), join(tree, 'conformance', file));
  cpSync(join(ROOT, 'package.json'), join(tree, 'package.json'));
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'));
  const target = join(tree, 'conformance/profiles/self-target.ts');
  writeFileSync(target, readFileSync(target, 'utf8').replaceAll('../../src/', '../../broken/'));
  return tree;
}

/** Run the fast set in a tree with this mutant in place. */
async function judge(tree: string, mutant: Mutant): Promise<Verdict> {
  const path = join(tree, 'broken', mutant.file);
  const whole = readFileSync(join(ROOT, 'src', mutant.file), 'utf8');
  if (whole.split(mutant.find).length !== 2) return { mutant, outcome: 'stale', by: 'its text does not occur exactly once' };
  writeFileSync(path, whole.replace(mutant.find, () => mutant.put));
  try {
    return await runSuite(tree, mutant);
  } finally {
    writeFileSync(path, whole);
  }
}

function runSuite(tree: string, mutant: Mutant): Promise<Verdict> {
  const args = ['--import', 'tsx', 'conformance/cli.ts', 'run', '--bail', '--slow', '0.3', '--report', 'json:result.json'];
  return new Promise((resolve) => {
    rmSync(join(tree, 'result.json'), { force: true });
    execFile(process.execPath, args, { cwd: tree, timeout: LIMIT_MS, maxBuffer: 1 << 26 }, (error) => {
      let by = error === null ? '' : 'the run itself failed';
      try {
        const report = JSON.parse(readFileSync(join(tree, 'result.json'), 'utf8')) as { results: { id: string; role: string; unexpected: boolean; actual: string; reason: string }[] };
        const first = report.results.find((result) => result.unexpected);
        if (first !== undefined) by = `${first.id} [${first.role}]: ${(first.actual || first.reason).split('\n')[0] ?? ''}`;
      } catch {
        by = 'the run broke off or took too long';
      }
      resolve({ mutant, outcome: by === '' ? 'survived' : 'caught', by });
    });
  });
}

function tableOf(verdicts: readonly Verdict[]): string {
  const cell = (text: string): string => text.replaceAll('|', '\\|').slice(0, 160);
  const caught = verdicts.filter((v) => v.outcome === 'caught').length;
  const unseen = verdicts.filter((v) => v.outcome === 'survived' && v.mutant.unseen !== undefined).length;
  const lines = [
    '# Mutation check', '',
    `The stack broken in ${verdicts.length} ways, one at a time (mutants.ts), and the fast set run against each by mutate.ts.`,
    `${caught} caught, ${verdicts.length - caught - unseen} survived, ${unseen} that a peer may not hold against us.`, '',
    '| break | file | outcome | first case that noticed, or why none does |', '|---|---|---|---|',
  ];
  for (const { mutant, outcome, by } of verdicts) lines.push(`| ${mutant.id} | ${mutant.file} | ${outcome} | ${cell(outcome === 'survived' ? (mutant.unseen ?? '') : by)} |`);
  return `${lines.join('\n')}\n`;
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { jobs: { type: 'string', default: '2' } } });
  const chosen = mutants.filter((mutant) => positionals.length === 0 || positionals.some((prefix) => mutant.id.startsWith(prefix)));
  const verdicts = new Map<Mutant, Verdict>();
  const queue = [...chosen];
  const worker = async (): Promise<void> => {
    const tree = makeTree();
    mkdirSync(tree, { recursive: true });
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      const verdict = await judge(tree, mutant);
      verdicts.set(mutant, verdict);
      process.stdout.write(`${verdict.outcome.padEnd(8)} ${mutant.id}  ${verdict.by}\n`);
    }
    rmSync(tree, { recursive: true });
  };
  await Promise.all(Array.from({ length: Math.max(1, Number(values.jobs)) }, worker));
  const inOrder = chosen.map((mutant) => verdicts.get(mutant)!);
  if (positionals.length === 0) writeFileSync(TABLE, tableOf(inOrder));
  const bad = inOrder.filter((v) => v.outcome === 'stale' || (v.outcome === 'survived' && v.mutant.unseen === undefined));
  process.stdout.write(`${chosen.length} mutants, ${bad.length} not caught\n`);
  if (bad.length > 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
