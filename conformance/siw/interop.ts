/**
 * `npm run interop`: our tools against stock ones over the Linux siw driver. Boots the guest once for each
 * setting of the driver, or uses a machine that has siw (`--peer HOST`). The cases run one after the other,
 * each once.
 */
import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Bench, caseTitle, DRIVERS, type DriverName, type InteropCase } from './bench.ts';
import { CASES } from './cases.ts';
import { crcTwiceIn } from './crc-twice.ts';
import type { OpenPeer } from './interop-types.ts';
import { kernelWords } from './kernel-words.ts';
import { kernelOf, runLab } from './kernels.ts';
import { ourSettings, type OurSettings } from './our-settings.ts';
import { openGuest, openRemote } from './peers.ts';
import { resultText, type InteropRecord } from './report.ts';
import { splitTrailerIn } from './split-trailer.ts';

const USAGE = `usage: npm run interop -- [--peer HOST] [--only TEXT] [--topic NAMES] [--shard I/N]
                        [--exact TITLE]... [--json FILE] [--repeat N] [--retries N]
  --peer HOST   a machine with siw that "ssh HOST" reaches, instead of the guest
  --only TEXT   cases whose topic or title contains TEXT
  --topic NAMES rping, set-up, connections, perftest, streams, block, killed, or some of them
  --exact TITLE this case, as in "stock: rping 64 octets, crc on: our client, stock server"; may stand often
  --shard I/N   the I-th of N parts of about equal length
  --json FILE   write the results to FILE
  --repeat N    run everything N times (1)
  --retries N   run a case that failed again, N times at most (0); the result says so, and how it failed
SIW_KERNEL=6.12 in the environment takes a guest with that kernel instead of 6.1.
`;

const ORDER = Object.keys(DRIVERS) as DriverName[];

interface Outcome {
  readonly testCase: InteropCase;
  readonly ok: boolean;
  readonly detail: string;
  readonly seconds: number;
  /** How it failed in tries before this one. */
  readonly before: readonly string[];
  /** Why one more try was allowed: a fault of the peer that the capture of the first proves. */
  readonly excused?: string;
}

// oxlint-disable-next-line max-lines-per-function -- one run from its options to its report
async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      peer: { type: 'string' },
      only: { type: 'string' },
      exact: { type: 'string', multiple: true },
      shard: { type: 'string' },
      json: { type: 'string' },
      repeat: { type: 'string' },
      retries: { type: 'string' },
      topic: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help === true) {
    process.stdout.write(USAGE);
    return 0;
  }
  kernelOf(process.env); // a kernel that there is not ends the run at once
  const topics = values.topic?.split(',');
  const titles = CASES.map((each) => `${each.driver}: ${caseTitle(each)}`);
  const absent = values.exact?.find((title) => !titles.includes(title));
  if (absent !== undefined) throw new Error(`no case has the title ${absent}`);
  const chosen = shard(
    CASES.filter(
      (each) =>
        (topics?.includes(each.topic) ?? true) &&
        (values.exact?.includes(`${each.driver}: ${caseTitle(each)}`) ?? true) &&
        `${each.topic}: ${caseTitle(each)}`.includes(values.only ?? ''),
    ),
    values.shard ?? '1/1',
  );
  const runnable =
    values.peer === undefined
      ? chosen
      : chosen.filter(({ driver, guestOnly }) => driver === 'stock' && guestOnly !== true);
  if (runnable.length < chosen.length)
    process.stdout.write(`left out: ${chosen.length - runnable.length} cases that need the guest\n`);
  const began = new Date();
  const ours = await ourSettings();
  process.stdout.write(
    `our side: engine ${ours.engine}, CRC32c ${ours.crc32c}, receive ${ours.receive}, polling ` +
      `${ours.busyPoll} us\n`,
  );
  const outcomes: Outcome[] = [];
  let peer = '';
  for (let round = 0; round < Number(values.repeat ?? 1); round++) {
    for (const driver of ORDER) {
      const cases = runnable.filter((testCase) => testCase.driver === driver);
      if (cases.length === 0) continue;
      const run = await runUnder(driver, cases, values.peer, Number(values.retries ?? 0));
      peer ||= run.peer;
      outcomes.push(...run.outcomes);
    }
  }
  if (values.json !== undefined)
    writeFileSync(values.json, `${JSON.stringify(record(began, peer, ours, outcomes), null, 1)}\n`);
  const failed = outcomes.filter(({ ok }) => !ok);
  for (const outcome of failed)
    process.stdout.write(
      `\nFAILED [${outcome.testCase.driver}] ${caseTitle(outcome.testCase)}\n  ${resultText(outcome)}\n`,
    );
  for (const outcome of outcomes.filter(({ ok, before }) => ok && before.length > 0)) {
    process.stdout.write(
      `\nin a second try only [${outcome.testCase.driver}] ${caseTitle(outcome.testCase)}: ` +
        `${resultText(outcome)}\n`,
    );
  }
  process.stdout.write(`\ninterop: ${outcomes.length - failed.length} passed, ${failed.length} failed\n`);
  return failed.length === 0 && outcomes.length > 0 ? 0 : 1;
}

/** The part of the cases that "2/5" names. */
function shard(cases: readonly InteropCase[], which: string): readonly InteropCase[] {
  const [index, count] = which.split('/').map(Number) as [number, number];
  if (!(index >= 1 && index <= count)) throw new Error(`--shard must be like 2/5, got ${which}`);
  return cases.slice(
    Math.round(((index - 1) * cases.length) / count),
    Math.round((index * cases.length) / count),
  );
}

async function runUnder(
  driver: DriverName,
  cases: readonly InteropCase[],
  remote: string | undefined,
  retries: number,
): Promise<{ peer: string; outcomes: Outcome[] }> {
  process.stdout.write(`\n== siw, driver setting "${driver}" (${cases.length} cases)\n`);
  const peer = remote === undefined ? await openGuest(DRIVERS[driver]) : await openRemote(remote);
  try {
    process.stdout.write(`${peer.description}\n`);
    const bench = new Bench(peer);
    const outcomes: Outcome[] = [];
    for (const testCase of cases) outcomes.push(await runWithRetries(bench, peer, testCase, retries));
    const crash = await peer.crash();
    if (crash !== null)
      outcomes.push({
        testCase: { ...cases[0]!, name: "leaves the peer's kernel well" },
        ok: false,
        detail: kernelWords(crash) || crash,
        seconds: 0,
        before: [],
      });
    return { peer: peer.description, outcomes };
  } finally {
    await peer.close();
  }
}

/** Length of a failure in a table: enough for the last words of both sides. */
const MAX_TOLD = 400;

/**
 * A busy machine misses limits, and siw 6.1 has faults that come and go; ours stay. Earlier failures are
 * reported with the result. Two faults of siw allow one more try without being asked for, if the capture
 * proves that it was one of them.
 */
async function runWithRetries(
  bench: Bench,
  peer: OpenPeer,
  testCase: InteropCase,
  retries: number,
): Promise<Outcome> {
  const before: string[] = [];
  let excused: string | undefined;
  for (;;) {
    const outcome = await runCase(bench, testCase);
    const fault = outcome.ok || excused !== undefined ? null : await provedFault(bench, peer, testCase);
    excused ??= fault ?? undefined;
    if (outcome.ok || (fault === null && before.length - (excused === undefined ? 0 : 1) >= retries)) {
      return { ...outcome, before, ...(excused === undefined ? {} : { excused }) };
    }
    // to be looked at
    if (existsSync(bench.capture)) renameSync(bench.capture, bench.capture.replace('.pcap', '.before.pcap'));
    before.push(
      outcome.detail
        .replace(/\n {2}capture: .*$/, '')
        .replaceAll(/\s+/g, ' ')
        .slice(0, MAX_TOLD),
    );
  }
}

/** Words on the fault of siw that has ended the case; null if the capture proves none. */
async function provedFault(
  { capture }: Bench,
  peer: OpenPeer,
  { ours }: InteropCase,
): Promise<string | null> {
  return crcTwiceIn(capture, ours) ?? splitTrailerIn(capture, ours, await peer.kernelLog());
}

async function runCase(bench: Bench, testCase: InteropCase): Promise<Omit<Outcome, 'before'>> {
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
  process.stdout.write(
    `${ok ? 'ok  ' : 'FAIL'} ${caseTitle(testCase)} (${seconds} s): ${detail.split('\n')[0]}\n`,
  );
  return { testCase, ok, detail, seconds };
}

function record(began: Date, peer: string, ours: OurSettings, outcomes: readonly Outcome[]): InteropRecord {
  const seconds = Math.round((Date.now() - began.getTime()) / 1000);
  return {
    began: began.toISOString(),
    seconds,
    peer,
    ours,
    cases: outcomes.map((outcome) => {
      const {
        testCase: { driver, topic, tool, name, ours: side },
        ok,
        detail,
        before,
        excused,
        seconds: each,
      } = outcome;
      return {
        driver,
        topic,
        tool,
        name,
        ours: side,
        ok,
        detail,
        ...(before.length === 0 ? {} : { before }),
        ...(excused === undefined ? {} : { excused }),
        seconds: each,
      };
    }),
  };
}

process.exitCode = await runLab(main);
