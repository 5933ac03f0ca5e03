/**
 * `npm run conformance:siw`: the conformance suite against the Linux siw driver, from nothing. Builds and
 * boots the guest, runs both roles with the driver's waivers, and exits with 1 on anything unexpected, a
 * complaint of the guest's kernel included. Cases that are known to bring the driver down (waivers of the
 * sections K) are left out, and run by `--fatal` on a fresh guest each.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import type { Case } from '../cases/define.ts';
import type { Role } from '../probe/connection.ts';
import { Captures } from '../report/captures.ts';
import { htmlReport } from '../report/html.ts';
import { makeReport } from '../report/model.ts';
import type { Report } from '../report/model.ts';
import { Progress } from '../report/progress.ts';
import { textReport } from '../report/text.ts';
import { runCases } from '../runner/runner.ts';
import type { Result, RunOptions } from '../runner/runner.ts';
import { selectCases } from '../runner/select.ts';
import type { Waivers } from '../runner/waivers.ts';
import { kernelFault } from './kernel-faults.ts';
import { kernelWords } from './kernel-words.ts';
import { kernelOf, runLab, waiversOf } from './kernels.ts';
import { SiwGuest } from './lab-guest.ts';
import { RpingPeer } from './rping-peer.ts';
import { merge, tables, updateReport, type FatalRun, type Part, type SuiteRun } from './suite-tables.ts';

const USAGE = `usage: npm run conformance:siw -- [case or prefix...] [options]
  --role initiator|responder   the probe's part (both, one after the other)
  --fatal          the cases that bring the driver down instead, each on a fresh guest
  --times N        each of these on N guests (1)
  --all            slow cases too
  --seed N         choose the octets (1)
  --slow N         stretch all time limits (1.5; more on a busy machine)
  --html FILE      the report as one page
  --captures DIR   a pcap file for every case that does not pass
  --tables FILE    renew the tables in this Markdown report
  --merge FILE     add the results to those in FILE (JSON), and make the tables from all: for runs in pieces
SIW_KERNEL=6.12 in the environment takes that kernel instead of 6.1, with its waivers.
`;

/**
 * The driver's Terminates are mirrored (D7), which would hide everything else; and it needs time between the
 * end of start-up and the first error (K2).
 */
const QUIRKS = new Set(['swapped-terminate'] as const);
const SETTLE_MS = 100;
/** A plain case that shows, after a fatal one, whether the peer still connects. */
const AFTERWARDS = 'mpa.fpdu.cut-behind-1';
/** The kernel writes its complaint a while after the connection has ended. */
const COMPLAINT_MS = 3000;

interface Settings {
  readonly waivers: Waivers;
  readonly seed: number;
  readonly slow: number;
  readonly captures: Captures;
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      role: { type: 'string' },
      fatal: { type: 'boolean', default: false },
      times: { type: 'string', default: '1' },
      all: { type: 'boolean', default: false },
      seed: { type: 'string', default: '1' },
      slow: { type: 'string', default: '1.5' },
      html: { type: 'string' },
      captures: { type: 'string' },
      tables: { type: 'string' },
      merge: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const roles: readonly Role[] =
    values.role === 'initiator' || values.role === 'responder' ? [values.role] : ['initiator', 'responder'];
  const waivers = waiversOf(kernelOf(process.env));
  const isFatal = (entry: Case, role: Role): boolean =>
    waivers.reasonFor(entry.id, role)?.startsWith('[K') === true;
  const chosen = selectCases(positionals, values.all);
  if (values.help || chosen.length === 0) {
    process[values.help ? 'stdout' : 'stderr'].write(
      values.help ? USAGE : `no case begins with ${positionals.join(' or ')}\n${USAGE}`,
    );
    return values.help ? 0 : 2;
  }
  const settings: Settings = {
    waivers,
    seed: Number(values.seed),
    slow: Number(values.slow),
    captures: new Captures(values.captures, Date.now() - performance.now()),
  };
  SiwGuest.build();
  let run: SuiteRun = { environment: [], parts: [], fatal: [] };
  let good = true;
  for (const role of roles) {
    const cases = chosen.filter(
      (entry) => entry.roles.includes(role) && isFatal(entry, role) === values.fatal,
    );
    if (cases.length === 0) continue;
    const outcome = values.fatal
      ? await runFatal(cases, role, Number(values.times), settings)
      : await runPart(cases, role, settings);
    good = outcome.good && good;
    run = merge(run, outcome.run);
    if (values.html !== undefined && outcome.report !== null)
      writeFileSync(values.html.replace(/(\.html)?$/, `.${role}$1`), htmlReport(outcome.report));
  }
  if (values.merge !== undefined) {
    if (existsSync(values.merge))
      run = merge(JSON.parse(readFileSync(values.merge, 'utf8')) as SuiteRun, run);
    writeFileSync(values.merge, JSON.stringify(run));
  }
  if (values.tables === undefined) process.stdout.write(`\n${tables(run)}\n`);
  else updateReport(values.tables, run);
  return good ? 0 : 1;
}

interface Outcome {
  readonly run: SuiteRun;
  readonly good: boolean;
  readonly report: Report | null;
}

/** One role's cases, one guest. */
async function runPart(cases: readonly Case[], role: Role, settings: Settings): Promise<Outcome> {
  const peer = await RpingPeer.open(role);
  try {
    const environment = await environmentOf(peer.guest);
    const began = new Date();
    const at = performance.now();
    const progress = new Progress();
    const results = await runCases(cases, {
      ...optionsFor(peer, role, settings),
      revive: () => peer.revive(),
      onResult: (result, done, all) => {
        settings.captures.keep(result);
        progress.show(result, done, all);
      },
    });
    progress.end();
    const report = reportOf(results, peer, settings, began, (performance.now() - at) / 1000);
    const crash = peer.guest.crash();
    process.stdout.write(
      `${textReport(report)}probe is ${role}: ${peer.programsLost} times rping restarted, ` +
        `${peer.guestsLost} guests lost, the guest is ${crash === null ? 'alive and well' : 'broken'}\n`,
    );
    for (const text of [...peer.complaints, ...(crash === null ? [] : [crash])])
      process.stdout.write(
        `the guest's kernel, ${kernelFault(text) ?? 'no known fault'}: ${kernelWords(text) || text}\n`,
      );
    const part: Part = {
      role,
      seconds: report.seconds,
      guestsLost: peer.guestsLost,
      programsLost: peer.programsLost,
      results: report.results.map(slim),
    };
    return {
      run: { environment, parts: [part], fatal: [] },
      // A guest that was lost to a known fault is counted; its cases ran on the next one.
      good:
        report.totals.unexpected === 0 &&
        peer.complaints.every((text) => kernelFault(text) !== null) &&
        crash === null,
      report,
    };
  } finally {
    await peer.close();
  }
}

/** Each case alone on fresh guests. */
async function runFatal(
  cases: readonly Case[],
  role: Role,
  times: number,
  settings: Settings,
): Promise<Outcome> {
  const runs: FatalRun[] = [];
  let environment: readonly string[] = [];
  let good = true;
  for (const entry of cases) {
    const last = { guests: 0, kernels: 0, dead: 0, words: '' };
    let fatal: FatalRun | null = null;
    for (let i = 0; i < times; i++) {
      const peer = await RpingPeer.open(role);
      try {
        environment = await environmentOf(peer.guest);
        const { report, complaint } = await killOne(entry, role, peer, settings);
        const result = report.results[0]!;
        good &&= !result.unexpected;
        last.guests++;
        if (complaint !== null) last.kernels++;
        else if (result.verdict === 'fail') last.dead++;
        if (last.words === '' && complaint !== null) last.words = kernelWords(complaint);
        fatal = { role, result: slim(result), ...last };
        process.stdout.write(
          `${result.unexpected ? 'UNEXPECTED' : result.verdict.padEnd(10)} ${entry.id} [${role}] guest ` +
            `${i + 1}: ${result.actual || 'as expected'}; ` +
            `${complaint === null ? 'no word from the kernel' : 'the kernel:'}\n`,
        );
        if (complaint !== null)
          process.stdout.write(`    ${kernelWords(complaint).replaceAll('\n', '\n    ')}\n`);
      } finally {
        await peer.close();
      }
    }
    if (fatal !== null) runs.push(fatal);
  }
  return { run: { environment, parts: [], fatal: runs }, good, report: null };
}

async function killOne(
  entry: Case,
  role: Role,
  peer: RpingPeer,
  settings: Settings,
): Promise<{ readonly report: Report; readonly complaint: string | null }> {
  const began = new Date();
  const at = performance.now();
  // As initiator the runner's own look at the peer will do; a peer that connects shows by the next case that
  // it still does.
  const followers = role === 'responder' ? selectCases([AFTERWARDS], true) : [];
  const [first] = await runCases([entry, ...followers], {
    ...optionsFor(peer, role, settings),
    revive: async () => undefined,
    onResult: (result) => settings.captures.keep(result),
  });
  await peer.stop();
  const until = performance.now() + COMPLAINT_MS;
  while (peer.guest.crash() === null && performance.now() < until)
    await new Promise((resolve) => setTimeout(resolve, 200));
  return {
    report: reportOf([first!], peer, settings, began, (performance.now() - at) / 1000),
    complaint: peer.guest.crash(),
  };
}

function optionsFor(peer: RpingPeer, role: Role, { waivers, seed, slow }: Settings): RunOptions {
  return {
    profile: peer.profile,
    roles: [role],
    waivers,
    seed,
    slow,
    quirks: QUIRKS,
    settle: SETTLE_MS,
    strict: false,
    repeat: 1,
    bail: false,
    gap: 0,
    retries: 1,
    canary: role === 'initiator',
    revive: null,
  };
}

function reportOf(
  results: readonly Result[],
  peer: RpingPeer,
  { seed, captures }: Settings,
  began: Date,
  seconds: number,
): Report {
  return makeReport(results, {
    profile: peer.profile.name,
    peer: `${peer.profile.description}, siw of Linux ${kernelOf(process.env).line} in the guest`,
    strict: false,
    quirks: [...QUIRKS],
    seed,
    began: began.toISOString(),
    seconds,
    replayCommand: 'npm run conformance:siw --',
    replayOptions: '',
    pcapOf: (result) => captures.pathOf(result),
  });
}

/** Without what happened octet for octet: the tables do not need it. */
function slim<T extends { readonly events: readonly unknown[] }>(result: T): T {
  return { ...result, events: [] };
}

async function environmentOf(guest: SiwGuest): Promise<string[]> {
  const { output } = await guest.run(
    'uname -srvm; rdma link show siw0/1; grep MemTotal /proc/meminfo; nproc; ls ' +
      '/sys/module/siw/parameters 2>/dev/null | wc -l',
  );
  const [kernel = '', link = '', memory = '', processors = '', parameters = '0'] = output.trim().split('\n');
  return [
    `kernel: ${kernel.trim()}`,
    `device: ${link.trim()}`,
    `driver: ${parameters.trim() === '0' ? 'as Debian builds it' : 'with settable constants'}; CRC, ` +
      'markers and peer-to-peer mode at their defaults',
    `guest: ${processors.trim()} processors (${guest.accelerator}), ${memory.replace(/\s+/g, ' ').trim()}`,
  ];
}

process.exitCode = await runLab(main);
