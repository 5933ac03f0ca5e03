/**
 * `npm run interop`: our tools against stock ones over the Linux siw driver. Boots the guest once for each setting of the driver, or uses a
 * machine that has siw (`--peer HOST`). The cases run one after the other, each once.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Bench, caseTitle, DRIVERS, type DriverName, type InteropCase } from './bench.ts';
import { CASES } from './cases.ts';
import { openGuest, openRemote } from './peers.ts';
import type { InteropRecord } from './report.ts';

const USAGE = `usage: npm run interop -- [--peer HOST] [--only TEXT] [--shard I/N] [--json FILE] [--repeat N]
  --peer HOST   a machine with siw that "ssh HOST" reaches, instead of the guest
  --only TEXT   cases whose topic or title contains TEXT
  --shard I/N   the I-th of N about equal parts of them
  --json FILE   write what was seen there
  --repeat N    run everything N times (1)
`;

const ORDER = Object.keys(DRIVERS) as DriverName[];

interface Outcome {
  readonly testCase: InteropCase;
  readonly ok: boolean;
  readonly detail: string;
  readonly seconds: number;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      peer: { type: 'string' }, only: { type: 'string' }, shard: { type: 'string' }, json: { type: 'string' }, repeat: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help === true) {
    process.stdout.write(USAGE);
    return 0;
  }
  const chosen = shard(CASES.filter((each) => `${each.topic}: ${caseTitle(each)}`.includes(values.only ?? '')), values.shard ?? '1/1');
  const runnable = values.peer === undefined ? chosen : chosen.filter(({ driver, guestOnly }) => driver === 'stock' && guestOnly !== true);
  if (runnable.length < chosen.length) process.stdout.write(`left out: ${chosen.length - runnable.length} cases that need the guest\n`);
  const began = new Date();
  const outcomes: Outcome[] = [];
  let peer = '';
  for (let round = 0; round < Number(values.repeat ?? 1); round++) {
    for (const driver of ORDER) {
      const cases = runnable.filter((testCase) => testCase.driver === driver);
      if (cases.length === 0) continue;
      const run = await runUnder(driver, cases, values.peer);
      peer ||= run.peer;
      outcomes.push(...run.outcomes);
    }
  }
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(record(began, peer, outcomes), null, 1)}\n`);
  const failed = outcomes.filter(({ ok }) => !ok);
  for (const { testCase, detail } of failed) process.stdout.write(`\nFAILED [${testCase.driver}] ${caseTitle(testCase)}\n  ${detail}\n`);
  process.stdout.write(`\ninterop: ${outcomes.length - failed.length} passed, ${failed.length} failed\n`);
  return failed.length === 0 && outcomes.length > 0 ? 0 : 1;
}

/** The part of the cases that "2/5" names. */
function shard(cases: readonly InteropCase[], which: string): readonly InteropCase[] {
  const [index, count] = which.split('/').map(Number) as [number, number];
  if (!(index >= 1 && index <= count)) throw new Error(`--shard must be like 2/5, got ${which}`);
  return cases.slice(Math.round(((index - 1) * cases.length) / count), Math.round((index * cases.length) / count));
}

async function runUnder(driver: DriverName, cases: readonly InteropCase[], remote: string | undefined): Promise<{ peer: string; outcomes: Outcome[] }> {
  process.stdout.write(`\n== siw, driver setting "${driver}" (${cases.length} cases)\n`);
  const peer = remote === undefined ? await openGuest(DRIVERS[driver]) : await openRemote(remote);
  try {
    process.stdout.write(`${peer.description}\n`);
    const bench = new Bench(peer);
    const outcomes: Outcome[] = [];
    for (const testCase of cases) outcomes.push(await runCase(bench, testCase));
    const crash = await peer.crash();
    if (crash !== null) outcomes.push({ testCase: { ...cases[0]!, name: 'leaves the peer\'s kernel well' }, ok: false, detail: crash, seconds: 0 });
    return { peer: peer.description, outcomes };
  } finally {
    await peer.close();
  }
}

async function runCase(bench: Bench, testCase: InteropCase): Promise<Outcome> {
  bench.begin(`${testCase.driver}-${caseTitle(testCase)}`);
  const began = performance.now();
  let ok = true;
  let detail: string;
  try {
    detail = await testCase.run(bench);
  } catch (error) {
    ok = false;
    detail = `${(error as Error).message}\n  capture: ${bench.capture}`;
  }
  await bench.finish(!ok);
  const seconds = Math.round((performance.now() - began) / 100) / 10;
  process.stdout.write(`${ok ? 'ok  ' : 'FAIL'} ${caseTitle(testCase)} (${seconds} s): ${detail.split('\n')[0]}\n`);
  return { testCase, ok, detail, seconds };
}

function record(began: Date, peer: string, outcomes: readonly Outcome[]): InteropRecord {
  const seconds = Math.round((Date.now() - began.getTime()) / 1000);
  return {
    began: began.toISOString(), seconds, peer,
    cases: outcomes.map(({ testCase: { driver, topic, tool, name, ours }, ok, detail, seconds: each }) => ({ driver, topic, tool, name, ours, ok, detail, seconds: each })),
  };
}

process.exitCode = await main();
