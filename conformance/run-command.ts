// `iwarp conformance run`: everything that can be wrong is found before the first case, then the gate, the
// cases, the reports.

import { spawn } from 'node:child_process';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { cases } from './cases/index.ts';
import type { Case } from './cases/define.ts';
import { decimal, orRefuse, orRefuseLater, Refusal, UsageError, whole } from './command-line.ts';
import { Listener } from './probe/channel.ts';
import { QUIRKS } from './probe/connection.ts';
import type { Quirk, Role } from './probe/connection.ts';
import { openCommand } from './profiles/command.ts';
import { openRping, RPING_SIZES } from './profiles/rping.ts';
import { CONTROL_MS, openSelf } from './profiles/self.ts';
import type { Address, Profile } from './profiles/types.ts';
import { Captures } from './report/captures.ts';
import { htmlReport } from './report/html.ts';
import { jsonReport, junitReport, tapReport } from './report/machine.ts';
import { markdownReport } from './report/markdown.ts';
import { makeReport } from './report/model.ts';
import type { Report } from './report/model.ts';
import { Progress } from './report/progress.ts';
import { summaryLine, textReport } from './report/text.ts';
import { OutputFile } from './support/output-file.ts';
import { reach } from './runner/reach.ts';
import type { Reached } from './runner/reach.ts';
import { planOf, reasonToSkip, runCases } from './runner/runner.ts';
import type { Result, RunOptions } from './runner/runner.ts';
import { selectCases } from './runner/select.ts';
import { Waivers, readWaivers } from './runner/waivers.ts';

const FORMATS: Readonly<Record<string, (report: Report) => string>> = {
  text: textReport,
  tap: tapReport,
  junit: junitReport,
  json: jsonReport,
  html: htmlReport,
  markdown: markdownReport,
};

/** Several time limits in a row without a connection: no peer will come. */
const GIVE_UP_AFTER = 5;
/** Time for the user to start a peer that connects, on another machine. */
const FIRST_PATIENCE_MS = 60_000;
/** The status that a shell gives a program that these signals have ended. */
const SIGNAL_STATUS = { SIGINT: 130, SIGTERM: 143 } as const;

const RUN_OPTIONS = {
  profile: { type: 'string' },
  target: { type: 'string' },
  listen: { type: 'string' },
  control: { type: 'string' },
  role: { type: 'string' },
  peer: { type: 'string' },
  start: { type: 'string' },
  size: { type: 'string' },
  all: { type: 'boolean', default: false },
  strict: { type: 'boolean', default: false },
  seed: { type: 'string' },
  repeat: { type: 'string' },
  slow: { type: 'string' },
  settle: { type: 'string' },
  gap: { type: 'string' },
  waivers: { type: 'string' },
  report: { type: 'string', multiple: true },
  captures: { type: 'string' },
  bail: { type: 'boolean', default: false },
  quirk: { type: 'string', multiple: true },
  exclude: { type: 'string', multiple: true },
  canary: { type: 'boolean', default: false },
  revive: { type: 'string' },
  retries: { type: 'string' },
  anyway: { type: 'boolean', default: false },
} as const;

const PROFILES = ['self', 'rping', 'command'] as const;
type ProfileName = (typeof PROFILES)[number];

type Values = ReturnType<typeof parse>['values'];

const parse = (args: readonly string[]) =>
  parseArgs({ args: [...args], allowPositionals: true, options: RUN_OPTIONS });

/** Settles with the exit status. @throws UsageError, Refusal */
// oxlint-disable-next-line max-lines-per-function -- one run from its options to its reports
export async function runCommand(args: readonly string[]): Promise<number> {
  const { values, positionals } = parse(args);
  const name = profileName(values);
  const settings = readSettings(values);
  const chosen = chooseCases(positionals, values.all, values.exclude ?? []);
  const formats = (values.report ?? ['text']).map(readReport);
  const began = new Date();
  const at = performance.now();
  const captures = orRefuse(
    `--captures ${values.captures}`,
    () => new Captures(values.captures, began.getTime() - at),
  );
  const outputs = openReports(formats);
  const interrupt = watchSignals();
  let profile: Profile | null = null;
  let reported = false;
  try {
    profile = await openProfile(name, values, settings);
    const options = await ready(chosen, profile, values, settings, interrupt);
    const progress = new Progress();
    let stopped: string | null = null;
    let results: Result[];
    try {
      results = await runCases(chosen, {
        ...options,
        signal: interrupt.signal,
        onStopped: (why) => (stopped = why),
        onResult: (result, done, all) => {
          captures.keep(result);
          progress.show(result, done, all);
        },
      });
    } finally {
      progress.end();
      options.listener?.close();
    }
    const quirks = [...settings.quirks];
    const report = makeReport(results, {
      profile: profile.name,
      peer: values.peer === undefined ? profile.description : `${values.peer} (${profile.description})`,
      strict: values.strict,
      seed: settings.seed,
      began: began.toISOString(),
      stopped,
      seconds: (performance.now() - at) / 1000,
      replayOptions: replayOptions(values),
      quirks,
      pcapOf: (result) => captures.pathOf(result),
    });
    reported = true;
    writeReports(report, outputs);
    for (const idle of settings.waivers.idle(cases.map((entry) => entry.id)))
      warn(`waiver ${idle.pattern} names no case`);
    // A signal that came after the last case has ended nothing.
    return (stopped === null ? null : interrupt.status()) ?? (report.totals.unexpected > 0 ? 1 : 0);
  } finally {
    interrupt.dispose();
    if (!reported) for (const { file } of outputs) file?.discard();
    await profile?.close();
  }
}

// ------------------------------------------------------------------------------------------ the command line

interface Settings
  extends Pick<RunOptions, 'waivers' | 'seed' | 'repeat' | 'slow' | 'settle' | 'gap' | 'quirks'> {
  readonly waivers: Waivers;
  readonly retries: number;
  readonly size: number;
}

/** Options that say where the peer is and how it is run, and the profiles that use them. */
const PEER_OPTIONS = [
  ['target', ['rping', 'command']],
  ['start', ['rping', 'command']],
  ['size', ['rping']],
  ['control', ['self']],
] as const satisfies readonly (readonly [keyof Values, readonly ProfileName[]])[];

/**
 * @throws UsageError also for a peer that the profile would never speak to: its result would be another
 * peer's
 */
function profileName(values: Values): ProfileName {
  const foreign =
    values.control === undefined && (values.target !== undefined || values.listen !== undefined);
  const name = values.profile ?? (foreign ? 'command' : 'self');
  const known = PROFILES.find((one) => one === name);
  if (known === undefined) throw new UsageError(`--profile ${name}: ${PROFILES.join(', ')}`);
  if (known !== 'self' && values.target === undefined && values.listen === undefined)
    throw new UsageError(`profile ${name} needs --target or --listen`);
  for (const [option, users] of PEER_OPTIONS) {
    if (values[option] !== undefined && !users.some((user) => user === known))
      throw new UsageError(`--${option} is for the profile ${users.join(' or ')}, not for ${known}`);
  }
  if (known === 'self' && values.listen !== undefined && values.control === undefined)
    throw new UsageError('--listen needs --control with the profile self, whose peer is in this process');
  return known;
}

function readSettings(values: Values): Settings {
  return {
    seed: whole('--seed', values.seed, 1, 0, 0xffff_ffff),
    repeat: whole('--repeat', values.repeat, 1, 1, 10_000),
    retries: whole('--retries', values.retries, 0, 0, 100),
    slow: decimal('--slow', values.slow, 1, 0.01, 1000),
    settle: whole('--settle', values.settle, 0, 0, 60_000),
    gap: whole('--gap', values.gap, 0, 0, 600_000),
    size: whole('--size', values.size, RPING_SIZES.usual, RPING_SIZES.min, RPING_SIZES.max),
    quirks: quirksOf(values.quirk ?? []),
    waivers:
      values.waivers === undefined
        ? new Waivers()
        : orRefuse(values.waivers, () => readWaivers(values.waivers!)),
  };
}

function quirksOf(names: readonly string[]): ReadonlySet<Quirk> {
  const strange = names.find((name) => !QUIRKS.some((quirk) => quirk === name));
  if (strange !== undefined) throw new UsageError(`--quirk ${strange}: ${QUIRKS.join(', ')}`);
  return new Set(names as readonly Quirk[]);
}

/** The cases that words and exclusions leave. */
function chooseCases(words: readonly string[], slow: boolean, exclude: readonly string[]): Case[] {
  for (const word of words) {
    if (selectCases([word], true).length === 0) throw new UsageError(`no case begins with ${word}`);
  }
  const chosen = selectCases(words, slow);
  if (chosen.length === 0) throw new Refusal(`only slow cases begin with ${words.join(' or ')}: add --all`);
  const without = (entry: Case, prefix: string): boolean => entry.id.startsWith(prefix);
  for (const prefix of exclude)
    if (!chosen.some((entry) => without(entry, prefix))) warn(`--exclude ${prefix} leaves nothing out`);
  const left = chosen.filter((entry) => !exclude.some((prefix) => without(entry, prefix)));
  if (left.length === 0) throw new Refusal(`nothing to run: --exclude leaves out all ${chosen.length} cases`);
  return left;
}

/** `host:port`, `[v6]:port` or a port alone. */
function address(option: string, text: string): Address {
  const found = /^(?:(?:\[([^\]]+)\]|([^:]+)):)?(\d{1,5})$/.exec(text);
  if (found === null || Number(found[3]) > 65_535)
    throw new UsageError(`${option} ${text}: HOST:PORT is needed`);
  return { host: found[1] ?? found[2] ?? '127.0.0.1', port: Number(found[3]) };
}

async function openProfile(name: ProfileName, values: Values, { size, slow }: Settings): Promise<Profile> {
  const target = values.target === undefined ? undefined : address('--target', values.target);
  const listen =
    values.listen === undefined ? { host: '127.0.0.1', port: 0 } : address('--listen', values.listen);
  if (name === 'rping') return openRping({ target, listen, size, start: values.start });
  if (name === 'command') return openCommand({ target, listen, start: values.start });
  if (values.control === undefined)
    return await orRefuseLater('profile self', () => openSelf({ host: listen.host, port: listen.port }));
  const control = address('--control', values.control);
  return await orRefuseLater(`tester at ${control.host}:${control.port}`, () =>
    openSelf({ control, host: listen.host, port: listen.port, limit: CONTROL_MS * Math.max(1, slow) }),
  );
}

function rolesOf({ role, target, listen, start }: Values, profile: Profile): Role[] {
  if (role !== undefined && role !== 'initiator' && role !== 'responder' && role !== 'both')
    throw new UsageError(`--role ${role}: initiator, responder or both`);
  if (profile.name === 'self')
    return role === 'initiator' || role === 'responder' ? [role] : [...profile.roles];
  const roles: Role[] =
    role === 'both'
      ? [...profile.roles]
      : role !== undefined
        ? [role]
        : [
            ...(target === undefined ? [] : ['initiator' as const]),
            ...(listen === undefined ? [] : ['responder' as const]),
          ];
  if (roles.includes('initiator') && target === undefined)
    throw new UsageError('as initiator the probe needs --target');
  if (roles.includes('responder') && listen === undefined && start === undefined)
    throw new UsageError('as responder the probe needs --listen');
  return roles;
}

function replayOptions(values: Values): string {
  const names = ['profile', 'target', 'listen', 'control', 'start', 'size', 'slow', 'settle'] as const;
  return [
    ...names.flatMap((name) => (values[name] === undefined ? [] : [`--${name} ${shell(values[name])}`])),
    ...(values.anyway ? ['--anyway'] : []),
    ...(values.quirk ?? []).map((quirk) => `--quirk ${quirk}`),
  ].join(' ');
}

function shell(text: string): string {
  return /^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Runs the command to its end. */
function reviver(command: string | undefined): (() => Promise<void>) | null {
  if (command === undefined) return null;
  return () =>
    new Promise((resolve) => {
      const child = spawn('sh', ['-c', command], { stdio: 'ignore' });
      child.once('error', () => resolve());
      child.once('exit', () => resolve());
    });
}

// ------------------------------------------------------------------------------------- before the first case

/**
 * Options of a run that can begin: something is to be run, the address is ours, the peer answers. @throws
 * UsageError, Refusal
 */
async function ready(
  chosen: readonly Case[],
  profile: Profile,
  values: Values,
  settings: Settings,
  interrupt: Interrupt,
): Promise<RunOptions> {
  const wanted = rolesOf(values, profile);
  const plan = planOf(chosen, { roles: wanted, repeat: 1 });
  if (plan.length === 0)
    throw new Refusal(`nothing to run: no such case is for the probe as ${wanted.join(' or ')}`);
  const possible = plan.filter(({ entry }) => reasonToSkip(entry, profile) === null);
  if (possible.length === 0)
    throw new Refusal(
      `nothing to run: ${[...new Set(plan.map(({ entry }) => reasonToSkip(entry, profile)))].join('; ')}`,
    );
  const listens = wanted.includes('responder');
  const { host, port } = profile.listen;
  const listener = listens ? await orRefuseLater(`${host}:${port}`, () => Listener.open(host, port)) : null;
  const options: RunOptions = {
    ...settings,
    profile,
    roles: wanted,
    listener,
    strict: values.strict,
    bail: values.bail,
    canary: values.canary || values.revive !== undefined,
    revive: reviver(values.revive),
    ...(values.anyway ? {} : { giveUpAfter: GIVE_UP_AFTER }),
  };
  try {
    if (values.anyway) return options;
    const plain = new Set<Role>();
    for (const role of wanted.filter((one) => possible.some((run) => run.role === one)))
      if ((await gate(role, options, values, interrupt)) === 'plain') plain.add(role);
    if (plain.size > 0)
      warn(
        `start-ups of the peer are of revision 1, with the probe as ${[...plain].join(' and ')}: cases ` +
          'about those of RFC 6581 are left out',
      );
    if (!possible.some(({ entry, role }) => reasonToSkip(entry, profile, plain.has(role)) === null))
      throw new Refusal('nothing to run: the peer knows start-ups of revision 1 only');
    return { ...options, plain };
  } catch (error) {
    listener?.close();
    throw error;
  }
}

/** Nothing is run against a peer with which not even a lawful start-up works. Says which kind does. */
async function gate(
  role: Role,
  options: RunOptions,
  values: Values,
  interrupt: Interrupt,
): Promise<'enhanced' | 'plain'> {
  const { profile, slow, revive } = options;
  const listener = options.listener ?? null;
  const somebodyElse = role === 'responder' && profile.name !== 'self' && values.start === undefined;
  if (somebodyElse && listener !== null)
    warn(`waiting for a peer to connect to ${listener.address.host}:${listener.address.port}`);
  const once = (): Promise<Reached> =>
    reach({ ...options, role, listener, ...(somebodyElse ? { patience: FIRST_PATIENCE_MS * slow } : {}) });
  const tried = async (): Promise<Reached> => {
    const first = await once();
    if (first.kind !== 'not' || revive === null) return first;
    await revive();
    return await once();
  };
  const reached = await Promise.race([tried(), interrupt.happened]);
  if (interrupt.signal.aborted || reached === null)
    throw new Refusal(String(interrupt.signal.reason), interrupt.status() ?? 1);
  if (reached.kind === 'not')
    throw new Refusal(
      `no lawful start-up with the peer, so nothing was run: ${reached.words} (--anyway runs the cases ` +
        'all the same)',
    );
  return reached.kind;
}

interface Interrupt {
  readonly signal: AbortSignal;
  readonly happened: Promise<null>;
  status(): number | null;
  dispose(): void;
}

/** The first signal ends the run after the case that runs; the second one the process, as ever. */
function watchSignals(): Interrupt {
  const controller = new AbortController();
  let status: number | null = null;
  const handlers = (['SIGINT', 'SIGTERM'] as const).map(
    (name) =>
      [
        name,
        (): void => {
          status = SIGNAL_STATUS[name];
          warn('ending after the case that runs; once more ends at once');
          controller.abort(`interrupted by ${name}`);
        },
      ] as const,
  );
  for (const [name, handler] of handlers) process.once(name, handler);
  return {
    signal: controller.signal,
    happened: new Promise((resolve) =>
      controller.signal.addEventListener('abort', () => resolve(null), { once: true }),
    ),
    status: () => status,
    dispose: () => {
      for (const [name, handler] of handlers) process.off(name, handler);
    },
  };
}

// --------------------------------------------------------------------------------------------------- reports

interface Format {
  readonly name: string;
  readonly render: (report: Report) => string;
  readonly path: string | null;
}

interface Output extends Format {
  readonly file: OutputFile | null;
}

function readReport(text: string): Format {
  const [name = '', ...rest] = text.split(':');
  const render = Object.hasOwn(FORMATS, name) ? FORMATS[name] : undefined;
  if (render === undefined) throw new UsageError(`--report ${text}: ${Object.keys(FORMATS).join(', ')}`);
  const path = rest.length === 0 ? null : rest.join(':');
  if (path === '') throw new UsageError(`--report ${text} names no file`);
  return { name, render, path };
}

function openReports(formats: readonly Format[]): Output[] {
  const outputs: Output[] = [];
  try {
    for (const format of formats) {
      const { path } = format;
      outputs.push({
        ...format,
        file: path === null ? null : orRefuse(`--report ${format.name}:${path}`, () => new OutputFile(path)),
      });
    }
    return outputs;
  } catch (error) {
    for (const { file } of outputs) file?.discard();
    throw error;
  }
}

function writeReports(report: Report, outputs: readonly Output[]): void {
  for (const { render, file, path } of outputs) {
    const text = render(report);
    if (file === null) process.stdout.write(text);
    else orRefuse(path!, () => file.write(text));
  }
  if (outputs.every(({ file }) => file !== null))
    process.stdout.write(`${report.peer}: ${summaryLine(report)}\n`);
}

function warn(text: string): void {
  process.stderr.write(`conformance: ${text}\n`);
}
