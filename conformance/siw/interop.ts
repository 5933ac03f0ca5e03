/**
 * `npm run interop`: our tools against stock ones over the Linux siw driver. Boots the guest once for each
 * setting of the driver, or uses a machine that has siw (`--peer HOST`). The cases run one after the other,
 * each once.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { caseTitle, DRIVERS, TOPICS, type DriverName, type InteropCase } from './bench.ts';
import { CASES } from './cases.ts';
import { kernelWords } from './kernel-words.ts';
import { kernelOf, runLab } from './kernels.ts';
import { LabRun, type LostGuest, type Outcome } from './lab-run.ts';
import { ourSettings, type OurSettings } from './our-settings.ts';
import { openGuest, openRemote } from './peers.ts';
import { resultText, type InteropRecord } from './report.ts';

const USAGE = `usage: npm run interop -- [--peer HOST] [--only TEXT] [--topic NAMES] [--shard I/N]
                        [--exact TITLE]... [--json FILE] [--repeat N] [--retries N]
  --peer HOST   a machine with siw that "ssh HOST" reaches, instead of the guest
  --only TEXT   cases whose topic or title contains TEXT
  --topic NAMES some of ${Object.keys(TOPICS).join(', ')}
  --exact TITLE this case, as in "stock: rping 64 octets, crc on: our client, stock server"; may stand often
  --shard I/N   the I-th of N parts of about equal length
  --json FILE   write the results to FILE
  --repeat N    run everything N times (1)
  --retries N   run a case that failed again, N times at most (0); the result says so, and how it failed
SIW_KERNEL=6.12 in the environment takes a guest with that kernel instead of 6.1.
`;

const ORDER = Object.keys(DRIVERS) as DriverName[];

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
  const lost: LostGuest[] = [];
  let peer = '';
  for (let round = 0; round < Number(values.repeat ?? 1); round++) {
    for (const driver of ORDER) {
      const cases = runnable.filter((testCase) => testCase.driver === driver);
      if (cases.length === 0) continue;
      const run = await runUnder(driver, cases, values.peer, Number(values.retries ?? 0));
      peer ||= run.peer;
      outcomes.push(...run.outcomes);
      lost.push(...run.lost);
    }
  }
  if (values.json !== undefined)
    writeFileSync(values.json, `${JSON.stringify(record(began, peer, ours, outcomes, lost), null, 1)}\n`);
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
  for (const { title, fault, words } of lost)
    process.stdout.write(
      `\nguest lost, of ${fault ?? 'no known fault'}: ${title}\n  ${words.replaceAll('\n', '\n  ')}\n`,
    );
  if (lost.length > 0) process.stdout.write(`\nguests lost and restarted: ${lost.length}\n`);
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
): Promise<{ peer: string; outcomes: Outcome[]; lost: readonly LostGuest[] }> {
  process.stdout.write(`\n== siw, driver setting "${driver}" (${cases.length} cases)\n`);
  const run = await LabRun.begin(() =>
    remote === undefined ? openGuest(DRIVERS[driver]) : openRemote(remote),
  );
  try {
    const peer = run.peer.description;
    process.stdout.write(`${peer}\n`);
    const outcomes: Outcome[] = [];
    for (const testCase of cases) outcomes.push(await run.run(testCase, retries));
    const crash = await run.peer.crash();
    const complaints = [
      // A guest that died of a known fault has its case run again, and is counted.
      ...run.lost.filter(({ fault }) => fault === null).map(({ words }) => words || 'the guest is gone'),
      ...(crash === null ? [] : [kernelWords(crash) || crash]),
    ];
    for (const detail of complaints)
      outcomes.push({
        testCase: { ...cases[0]!, name: "leaves the peer's kernel well" },
        ok: false,
        detail,
        seconds: 0,
        before: [],
      });
    return { peer, outcomes, lost: run.lost };
  } finally {
    await run.close();
  }
}

function record(
  began: Date,
  peer: string,
  ours: OurSettings,
  outcomes: readonly Outcome[],
  lost: readonly LostGuest[],
): InteropRecord {
  const seconds = Math.round((Date.now() - began.getTime()) / 1000);
  return {
    began: began.toISOString(),
    seconds,
    peer,
    ours,
    ...(lost.length === 0 ? {} : { lost }),
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
