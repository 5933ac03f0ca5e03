// `iwarp conformance`: list the cases, run them against a peer, show what they cover, print and check the golden vectors.
// What the commands mean and how to test a peer of your own: README.md in this folder.

import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { cases } from './cases/index.ts';
import type { Case } from './cases/define.ts';
import { Captures } from './report/captures.ts';
import { coverageText, listText } from './report/lists.ts';
import { htmlReport } from './report/html.ts';
import { jsonReport, junitReport, tapReport } from './report/machine.ts';
import { markdownReport } from './report/markdown.ts';
import { makeReport } from './report/model.ts';
import type { Report } from './report/model.ts';
import { Progress } from './report/progress.ts';
import { summaryLine, textReport } from './report/text.ts';
import { QUIRKS } from './probe/connection.ts';
import type { Quirk, Role } from './probe/connection.ts';
import { openCommand } from './profiles/command.ts';
import { openRping } from './profiles/rping.ts';
import { openSelf } from './profiles/self.ts';
import type { Address, Profile } from './profiles/types.ts';
import { runCases } from './runner/runner.ts';
import { selectCases } from './runner/select.ts';
import { Waivers, readWaivers } from './runner/waivers.ts';
import { checkVectors, printVectors } from './vectors-command.ts';

const USAGE = `Usage: iwarp conformance <command>
  list [--by case|requirement|section] [prefix...]
  run [prefix...] [options]
      --profile self|rping|command   what kind of peer (self: our own stack in this process, or --control)
      --target HOST:PORT             the peer listens there; the probe is the initiator
      --listen [HOST:]PORT           the peer connects to the probe, which is the responder
      --control HOST:PORT            the peer speaks the tester protocol there (profile self)
      --role initiator|responder|both   the probe's part; both with profile self
      --start COMMAND                run for each case; {host} and {port} are filled in (rping, command)
      --size N                       what rping was started with as -S (64)
      --all                          the slow cases too
      --strict                       only the first of several lawful outcomes
      --seed N  --repeat N           choose the octets; run everything again with the next seeds
      --slow N                       stretch all time limits, for peers on emulators
      --settle MS                    wait between a start-up frame and the first FPDU; drop no connection without the RTR it owes
      --gap MS                       wait between cases
      --exclude PREFIX               leave these cases out; may be repeated
      --retries N                    run a case with an unexpected result again, for peers on busy machines (0)
      --canary                       see after each case whether the peer still takes a lawful connection
      --revive COMMAND               run when it does not (implies --canary)
      --quirk NAME                   read over a departure that touches everything: swapped-terminate
      --waivers FILE                 known deviations with their reasons
      --report FORMAT[:FILE]         text, tap, junit, json, html or markdown; may be repeated
      --captures DIR                 a pcap file for every case that does not pass
      --bail                         stop at the first unexpected result
  coverage [--missing]
  vectors [--print|--check] [name...]
Exit status: 0 all as expected, 1 something unexpected, 2 wrong usage.
`;

const FORMATS: Readonly<Record<string, (report: Report) => string>> = {
  text: textReport, tap: tapReport, junit: junitReport, json: jsonReport, html: htmlReport, markdown: markdownReport,
};

class UsageError extends Error {}

/** Run the command line; settles with the exit status. */
export async function run(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args;
  try {
    switch (command) {
      case 'list': return list(rest);
      case 'run': return await runCommand(rest);
      case 'coverage': return coverage(rest);
      case 'vectors': return vectors(rest);
      default:
        process.stdout.write(USAGE);
        return command === undefined || command === 'help' || command === '--help' ? 0 : 2;
    }
  } catch (error) {
    if (!(error instanceof UsageError) && !(error instanceof TypeError && 'code' in error)) throw error;
    process.stderr.write(`${(error as Error).message}\n${USAGE}`);
    return 2;
  }
}

function list(args: readonly string[]): number {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: { by: { type: 'string', default: 'case' } } });
  const by = values.by;
  if (by !== 'case' && by !== 'requirement' && by !== 'section') throw new UsageError(`--by ${by}: case, requirement or section`);
  process.stdout.write(listText(select(positionals, true), by));
  return 0;
}

function coverage(args: readonly string[]): number {
  const { values } = parseArgs({ args: [...args], options: { missing: { type: 'boolean', default: false } } });
  const { text, complete } = coverageText(cases, values.missing);
  process.stdout.write(text);
  return complete ? 0 : 1;
}

function vectors(args: readonly string[]): number {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: { print: { type: 'boolean' }, check: { type: 'boolean' } } });
  if (values.print === true) process.stdout.write(printVectors(positionals));
  const { text, good } = checkVectors(positionals);
  if (values.check === true || values.print !== true) process.stdout.write(text);
  return good ? 0 : 1;
}

function select(words: readonly string[], slow: boolean): Case[] {
  const chosen = selectCases(words, slow);
  if (chosen.length === 0) throw new UsageError(`no case begins with ${words.join(' or ')}`);
  return chosen;
}

const RUN_OPTIONS = {
  profile: { type: 'string' }, target: { type: 'string' }, listen: { type: 'string' }, control: { type: 'string' }, role: { type: 'string' },
  start: { type: 'string' }, size: { type: 'string' }, all: { type: 'boolean', default: false }, strict: { type: 'boolean', default: false },
  seed: { type: 'string' }, repeat: { type: 'string' }, slow: { type: 'string' }, settle: { type: 'string' }, gap: { type: 'string' },
  waivers: { type: 'string' }, report: { type: 'string', multiple: true }, captures: { type: 'string' }, bail: { type: 'boolean', default: false },
  quirk: { type: 'string', multiple: true }, exclude: { type: 'string', multiple: true }, canary: { type: 'boolean', default: false }, revive: { type: 'string' }, retries: { type: 'string' },
} as const;

async function runCommand(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options: RUN_OPTIONS });
  const chosen = select(positionals, values.all).filter((entry) => !(values.exclude ?? []).some((prefix) => entry.id.startsWith(prefix)));
  const reports = (values.report ?? ['text']).map(reportOption);
  const waivers = values.waivers === undefined ? new Waivers() : readWaivers(values.waivers);
  const seed = number('--seed', values.seed, 1);
  const quirks = quirksOf(values.quirk ?? []);
  const profile = await openProfile(values);
  const roles = rolesOf(values, profile);
  const began = new Date();
  const at = performance.now();
  const progress = new Progress();
  const captures = new Captures(values.captures, began.getTime() - at);
  const results = await runCases(chosen, {
    profile, roles, waivers, seed, strict: values.strict, quirks, bail: values.bail, repeat: number('--repeat', values.repeat, 1),
    slow: number('--slow', values.slow, 1), settle: number('--settle', values.settle, 0), gap: number('--gap', values.gap, 0),
    retries: number('--retries', values.retries, 0), canary: values.canary || values.revive !== undefined, revive: reviver(values.revive),
    onResult: (result, done, all) => {
      captures.keep(result);
      progress.show(result, done, all);
    },
  });
  progress.end();
  await profile.close();
  const report = makeReport(results, {
    profile: profile.name, peer: profile.description, strict: values.strict, seed, began: began.toISOString(), seconds: (performance.now() - at) / 1000,
    replayOptions: [replayOptions(values), ...[...quirks].map((quirk) => `--quirk ${quirk}`)].filter(Boolean).join(' '), quirks: [...quirks], pcapOf: (result) => captures.pathOf(result),
  });
  writeReports(report, reports);
  for (const idle of waivers.idle(cases.map((entry) => entry.id))) process.stderr.write(`waiver ${idle.pattern} names no case\n`);
  return report.totals.unexpected > 0 ? 1 : 0;
}

type RunValues = { readonly [K in 'profile' | 'target' | 'listen' | 'control' | 'role' | 'start' | 'size' | 'slow' | 'settle']?: string | undefined };

async function openProfile(values: RunValues): Promise<Profile> {
  const target = values.target === undefined ? undefined : address('--target', values.target);
  const listen = values.listen === undefined ? { host: '127.0.0.1', port: 0 } : address('--listen', values.listen);
  const name = values.profile ?? (target === undefined && values.listen === undefined ? 'self' : 'command');
  if (name !== 'self' && target === undefined && values.listen === undefined) throw new UsageError(`profile ${name} needs --target or --listen`);
  switch (name) {
    case 'self': return openSelf({ control: values.control === undefined ? undefined : address('--control', values.control), host: listen.host, port: listen.port });
    case 'rping': return openRping({ target, listen, size: number('--size', values.size, 64), start: values.start });
    case 'command': return openCommand({ target, listen, start: values.start });
    default: throw new UsageError(`--profile ${name}: self, rping or command`);
  }
}

function rolesOf(values: RunValues, profile: Profile): Role[] {
  const { role } = values;
  if (role === 'initiator' || role === 'responder') return [role];
  if (role !== undefined && role !== 'both') throw new UsageError(`--role ${role}: initiator, responder or both`);
  if (role === 'both' || profile.name === 'self') return [...profile.roles];
  return [...(values.target === undefined ? [] : ['initiator' as const]), ...(values.listen === undefined ? [] : ['responder' as const])];
}

function replayOptions(values: RunValues): string {
  const names = ['profile', 'target', 'listen', 'control', 'start', 'size', 'slow', 'settle'] as const;
  return names.flatMap((name) => (values[name] === undefined ? [] : [`--${name} ${shell(values[name])}`])).join(' ');
}

function shell(text: string): string {
  return /^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Runs the command to its end. */
function reviver(command: string | undefined): (() => Promise<void>) | null {
  if (command === undefined) return null;
  return () => new Promise((resolve) => {
    const child = spawn('sh', ['-c', command], { stdio: 'ignore' });
    child.once('error', () => resolve());
    child.once('exit', () => resolve());
  });
}

function quirksOf(names: readonly string[]): ReadonlySet<Quirk> {
  const strange = names.find((name) => !QUIRKS.some((quirk) => quirk === name));
  if (strange !== undefined) throw new UsageError(`--quirk ${strange}: ${QUIRKS.join(', ')}`);
  return new Set(names as readonly Quirk[]);
}

/** `host:port`, `[v6]:port` or a port alone. */
function address(option: string, text: string): Address {
  const found = /^(?:(?:\[([^\]]+)\]|([^:]+)):)?(\d{1,5})$/.exec(text);
  if (found === null || Number(found[3]) > 65_535) throw new UsageError(`${option} ${text}: HOST:PORT is needed`);
  return { host: found[1] ?? found[2] ?? '127.0.0.1', port: Number(found[3]) };
}

function number(option: string, text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (!Number.isFinite(value) || value < 0) throw new UsageError(`${option} ${text}: a number is needed`);
  return value;
}

function reportOption(text: string): { format: (report: Report) => string; file: string | null } {
  const [name = '', ...file] = text.split(':');
  const format = FORMATS[name];
  if (format === undefined) throw new UsageError(`--report ${text}: ${Object.keys(FORMATS).join(', ')}`);
  return { format, file: file.length === 0 ? null : file.join(':') };
}

function writeReports(report: Report, reports: readonly { format: (report: Report) => string; file: string | null }[]): void {
  for (const { format, file } of reports) {
    if (file === null) process.stdout.write(format(report));
    else writeFileSync(file, format(report));
  }
  if (reports.every(({ file }) => file !== null)) process.stdout.write(`${summaryLine(report)}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = await run(process.argv.slice(2));
