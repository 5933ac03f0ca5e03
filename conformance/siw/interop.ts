/**
 * `npm run interop`: our tools against stock ones over the Linux siw driver, as a table. Boots the guest once for each setting of the
 * driver, or uses a machine that has siw (`--peer HOST`).
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Bench, DRIVERS, type DriverName, type InteropCase } from './bench.ts';
import { RPING_CASES } from './rping-cases.ts';
import { REVISION_CASES } from './revision-cases.ts';
import { TOOLS_CASES } from './tools-cases.ts';
import { openGuest, openRemote } from './peers.ts';

const USAGE = `usage: npm run interop -- [--peer HOST] [--only TEXT] [--markdown FILE] [--repeat N] [--tools]
  --peer HOST      a machine with siw that "ssh HOST" reaches, instead of the guest
  --only TEXT      cases whose group or name contains TEXT
  --markdown FILE  write the table there too
  --repeat N       run everything N times (1)
  --tools          the cases of perftest, rsockets and killed peers as well
`;

/** The cases that every run has, in the order of the table. */
export const CASES: readonly InteropCase[] = [...RPING_CASES, ...REVISION_CASES];
/** With `--tools` these too: perftest, rsockets and peers that are killed take long under emulation. */
export const ALL_CASES: readonly InteropCase[] = [...CASES, ...TOOLS_CASES];

interface Outcome {
  readonly testCase: InteropCase;
  readonly ok: boolean;
  readonly detail: string;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      peer: { type: 'string' }, only: { type: 'string' }, markdown: { type: 'string' }, repeat: { type: 'string' }, tools: { type: 'boolean' }, help: { type: 'boolean' },
    },
  });
  if (values.help === true) {
    process.stdout.write(USAGE);
    return 0;
  }
  const chosen = (values.tools === true ? ALL_CASES : CASES).filter(({ group, name }) => `${group}: ${name}`.includes(values.only ?? ''));
  const outcomes: Outcome[] = [];
  for (let round = 0; round < Number(values.repeat ?? 1); round++) {
    for (const driver of Object.keys(DRIVERS) as DriverName[]) {
      const cases = chosen.filter((testCase) => testCase.driver === driver);
      if (cases.length === 0) continue;
      if (values.peer !== undefined && driver !== 'stock') {
        process.stdout.write(`\nleft out: ${cases.length} cases that need the driver setting "${driver}", which only the guest has\n`);
        continue;
      }
      outcomes.push(...(await runUnder(driver, cases, values.peer)));
    }
  }
  const failed = outcomes.filter(({ ok }) => !ok);
  if (values.markdown !== undefined) writeFileSync(values.markdown, markdown(outcomes));
  for (const { testCase, detail } of failed) process.stdout.write(`\nFAILED [${testCase.driver}] ${testCase.group}: ${testCase.name}\n  ${detail}\n`);
  process.stdout.write(`\ninterop: ${outcomes.length - failed.length} passed, ${failed.length} failed\n`);
  return failed.length === 0 && outcomes.length > 0 ? 0 : 1;
}

async function runUnder(driver: DriverName, cases: readonly InteropCase[], remote: string | undefined): Promise<Outcome[]> {
  process.stdout.write(`\n== siw, driver setting "${driver}" (${cases.length} cases)\n`);
  const peer = remote === undefined ? await openGuest(DRIVERS[driver]) : await openRemote(remote);
  try {
    process.stdout.write(`${peer.description}\n`);
    const bench = new Bench(peer);
    const outcomes: Outcome[] = [];
    for (const testCase of cases) outcomes.push(await runCase(bench, testCase));
    const crash = await peer.crash();
    if (crash !== null) outcomes.push({ testCase: { ...cases[0]!, name: 'the peer\'s kernel stays well' }, ok: false, detail: crash });
    return outcomes;
  } finally {
    await peer.close();
  }
}

async function runCase(bench: Bench, testCase: InteropCase): Promise<Outcome> {
  const began = performance.now();
  bench.begin(`${testCase.driver}-${testCase.group}-${testCase.name}`);
  let outcome: Outcome;
  try {
    outcome = { testCase, ok: true, detail: await testCase.run(bench) };
  } catch (error) {
    outcome = { testCase, ok: false, detail: `${(error as Error).message}\n  capture: ${bench.capture}` };
  }
  await bench.finish(!outcome.ok);
  process.stdout.write(`${outcome.ok ? 'ok  ' : 'FAIL'} ${testCase.group}: ${testCase.name} (${((performance.now() - began) / 1000).toFixed(1)} s): ${outcome.detail.split('\n')[0]}\n`);
  return outcome;
}

function markdown(outcomes: readonly Outcome[]): string {
  const lines = ['| driver | what | case | result |', '|---|---|---|---|'];
  for (const { testCase, ok, detail } of outcomes) {
    lines.push(`| ${testCase.driver} | ${testCase.group} | ${testCase.name} | ${ok ? detail : 'FAILED'} |`);
  }
  return `${lines.join('\n')}\n`;
}

process.exitCode = await main();
