// Runs cases against a profile, one connection after another, and says how each ended. Waivers turn known
// failures into expected ones; a waived case that passes is unexpected, so that waivers do not outlive their
// reason.

import { performance } from 'node:perf_hooks';
import type { Case } from '../cases/define.ts';
import { Listener } from '../probe/channel.ts';
import type { Capture } from '../probe/channel.ts';
import type { Limits, Log, Quirk, Role } from '../probe/connection.ts';
import { Deviation, Inapplicable, NotConnected, Unsuited } from '../probe/deviation.ts';
import { createRandom } from '../probe/random.ts';
import { Trial } from '../probe/trial.ts';
import type { Violation } from '../probe/watch.ts';
import { TesterLost } from '../profiles/tester.ts';
import type { Profile, Session } from '../profiles/types.ts';
import type { Waivers } from './waivers.ts';

export type Verdict = 'pass' | 'fail' | 'skip' | 'error';

export interface Result {
  readonly case: Case;
  readonly role: Role;
  /** Repetition, from 0. */
  readonly round: number;
  readonly verdict: Verdict;
  /** Why the case was left out or could not be run; empty otherwise. */
  readonly reason: string;
  /** False where the case found no connection at all. */
  readonly connected: boolean;
  readonly expected: string;
  readonly actual: string;
  /** Requirements named by what went wrong, beyond those of the case. */
  readonly blamed: readonly string[];
  readonly violations: readonly Violation[];
  /** The waiver that covers the case, if any. */
  readonly waiver: string | null;
  /** Counts for the exit status: a failure without waiver, a pass with one, or an error. */
  readonly unexpected: boolean;
  readonly ms: number;
  readonly seed: number;
  /** How often the case was run to get here: more than once with `retries`. */
  readonly tries: number;
  readonly log: Log;
  readonly capture: Capture;
}

export interface RunOptions {
  readonly profile: Profile;
  readonly roles: readonly Role[];
  readonly strict: boolean;
  readonly quirks: ReadonlySet<Quirk>;
  readonly seed: number;
  readonly repeat: number;
  /** Factor on all time limits. */
  readonly slow: number;
  readonly waivers: Waivers;
  /** Parts of the probe in which the peer takes part in start-ups of revision 1 only. */
  readonly plain?: ReadonlySet<Role>;
  /** Stop at the first unexpected result. */
  readonly bail: boolean;
  /**
   * Milliseconds between a start-up frame and the first FPDU, for peers that miss an FPDU that comes at once.
   */
  readonly settle: number;
  /** After each case as initiator: a plain start-up must still succeed, else the case has killed the peer. */
  readonly canary: boolean;
  /** Brings a peer back that a case has killed; null when nobody can. */
  readonly revive: (() => Promise<void>) | null;
  /**
   * Limit of repeated runs of a case with an unexpected result: for peers on machines too busy to be
   * steady.
   */
  readonly retries?: number;
  /** Pause between cases, for peers that need to come back. */
  readonly gap: number;
  /** Where peers connect, already open; without it the run opens one if it needs it. */
  readonly listener?: Listener | null;
  /** Stop after this number of runs in a row that found no connection; never when absent. */
  readonly giveUpAfter?: number;
  /** Stop after the case that runs when this is aborted. */
  readonly signal?: AbortSignal;
  /** Called with the reason if the run ends before its last case. */
  readonly onStopped?: (why: string) => void;
  readonly onResult?: (result: Result, done: number, all: number) => void;
}

/** For an answer that must come; long, because it costs time only where something is wrong. */
const REACTION_MS = 5000;
/** Silence that counts: several scheduling slices, and far above a loopback round trip. */
const QUIET_MS = 60;
/** Above the start-up time-outs of known peers (10 s, protocol-notes 3.4). */
const PATIENCE_MS = 12_000;

const CANARY_TRIES = 3;
const CANARY_MS = 1000;

export function limitsFor(slow: number, settle: number): Limits {
  return { reaction: REACTION_MS * slow, quiet: QUIET_MS * slow, patience: PATIENCE_MS * slow, settle };
}

/** Run every case in every role it fits, in order. */
export async function runCases(cases: readonly Case[], options: RunOptions): Promise<Result[]> {
  const plan = planOf(cases, options);
  const results: Result[] = [];
  const listener =
    options.listener ??
    (options.roles.includes('responder')
      ? await Listener.open(options.profile.listen.host, options.profile.listen.port)
      : null);
  let unreached = 0;
  try {
    for (const { entry, role, round } of plan) {
      const result = await runUntilSteady(
        () => attempt(entry, role, round, listener, results, options),
        options,
      );
      results.push(result);
      options.onResult?.(result, results.length, plan.length);
      if (result.verdict !== 'skip') unreached = result.connected ? 0 : unreached + 1;
      const why = whyStop(unreached, options);
      if (why !== null && results.length < plan.length)
        options.onStopped?.(`${why}: ${results.length} of ${plan.length} runs made`);
      if (why !== null || (options.bail && result.unexpected)) break;
      if (options.gap > 0 && result.verdict !== 'skip')
        await new Promise((resolve) => setTimeout(resolve, options.gap));
    }
  } finally {
    if (options.listener === undefined) listener?.close();
  }
  return results;
}

/** Why no further case can or may be run. */
function whyStop(unreached: number, { profile, signal, giveUpAfter }: RunOptions): string | null {
  if (signal?.aborted) return String(signal.reason);
  const lost = profile.lost?.() ?? null;
  if (lost !== null) return lost;
  return unreached === giveUpAfter ? `${unreached} runs in a row found no connection` : null;
}

/** Repeats cases with unexpected results, as often as the options say. */
async function runUntilSteady(
  run: () => Promise<Result>,
  { retries = 0, signal }: RunOptions,
): Promise<Result> {
  let result = await run();
  for (let tries = 2; result.unexpected && tries <= 1 + retries && signal?.aborted !== true; tries++)
    result = { ...(await run()), tries };
  return result;
}

/** One case, with what the options do about a peer that is late or gone. */
async function attempt(
  entry: Case,
  role: Role,
  round: number,
  listener: Listener | null,
  results: Result[],
  options: RunOptions,
): Promise<Result> {
  const again = (): Promise<Result> => runOne(entry, role, round, listener, options);
  let first = await again();
  // A busy peer may only be late.
  if (role === 'responder' && !first.connected && (options.retries ?? 0) > 0) first = await again();
  if (role === 'responder' && !first.connected && options.revive !== null) {
    await options.revive();
    if ((options.retries ?? 0) > 0) {
      // A peer may be lost for other reasons. So the case before runs again, and is guilty if the peer
      // is lost again.
      const at = lastRun(results);
      const second =
        at < 0 ? null : await runOne(results[at]!.case, role, results[at]!.round, listener, options);
      first = await again();
      if (first.connected) {
        if (second !== null) revise(results, at, { ...second, tries: results[at]!.tries + 1 }, options);
        return first;
      }
      await options.revive();
    }
    blameLast(results, options);
    first = await again();
  }
  return options.canary && role === 'initiator' && first.verdict !== 'skip'
    ? await withCanary(first, options)
    : first;
}

/** A peer that no longer connects was killed by the case before. */
function blameLast(results: Result[], options: RunOptions): void {
  const at = lastRun(results);
  const last = results[at];
  if (last === undefined) return;
  const actual =
    `${last.verdict === 'pass' ? 'as expected' : last.actual || last.reason}; then the peer no longer ` +
    'connects';
  revise(
    results,
    at,
    { ...last, verdict: 'fail', actual, unexpected: isUnexpected('fail', last.waiver) },
    options,
  );
}

/** Where the case that ran last stands; -1 if none has run. */
function lastRun(results: readonly Result[]): number {
  return results.findLastIndex((result) => result.verdict !== 'skip');
}

/** Put another result in the place of an earlier one, and say so. */
function revise(results: Result[], at: number, result: Result, { onResult }: RunOptions): void {
  results[at] = result;
  onResult?.(result, results.length, results.length);
}

/** One run of one case. */
interface Planned {
  readonly entry: Case;
  readonly role: Role;
  readonly round: number;
}

/** The trials that a run will do, in order. */
export function planOf(
  cases: readonly Case[],
  { roles, repeat }: Pick<RunOptions, 'roles' | 'repeat'>,
): Planned[] {
  const plan: Planned[] = [];
  for (let round = 0; round < repeat; round++) {
    for (const role of roles)
      for (const entry of cases) if (entry.roles.includes(role)) plan.push({ entry, role, round });
  }
  return plan;
}

/** Why a case cannot be run with this kind of peer, or null. `plain`: it knows revision 1 only. */
export function reasonToSkip(entry: Case, profile: Profile, plain = false): string | null {
  if (entry.enhanced && plain) return 'the peer knows start-ups of revision 1 only';
  const missing = entry.needs.filter((need) => !profile.capabilities.has(need));
  return missing.length === 0 ? null : `profile ${profile.name} has no ${missing.join(', no ')}`;
}

interface Ending {
  readonly verdict: Verdict;
  readonly connected: boolean;
  readonly reason: string;
  readonly actual: string;
  readonly expected: string;
  readonly blamed: readonly string[];
}

// oxlint-disable-next-line max-lines-per-function -- one case from its set-up to its verdict
async function runOne(
  entry: Case,
  role: Role,
  round: number,
  listener: Listener | null,
  options: RunOptions,
): Promise<Result> {
  const { profile, strict, slow, waivers } = options;
  const seed = (options.seed + round) >>> 0;
  const limits = limitsFor(slow, options.settle);
  const waiver = waivers.reasonFor(entry.id, role);
  const began = performance.now();
  const common = { case: entry, role, round, waiver, seed, tries: 1 };
  const plain = options.plain?.has(role) === true;
  const reason = reasonToSkip(entry, profile, plain);
  if (reason !== null) {
    return {
      ...common,
      verdict: 'skip',
      connected: true,
      reason,
      expected: entry.expected,
      actual: '',
      blamed: [],
      violations: [],
      unexpected: false,
      ms: 0,
      log: [],
      capture: [],
    };
  }
  let session: Session | null = null;
  let trial: Trial | null = null;
  let ending: Ending;
  try {
    session = await profile.begin({ role, setup: entry.setup, limits, seed });
    trial = new Trial({
      role,
      session,
      listener,
      limits,
      strict,
      plain,
      quirks: options.quirks,
      firstMsn: entry.setup.firstMsn,
      random: createRandom(seed, `${entry.id}@${role}`),
    });
    await entry.run(trial);
    ending = {
      verdict: 'pass',
      connected: true,
      reason: '',
      expected: entry.expected,
      actual: '',
      blamed: [],
    };
  } catch (error) {
    ending = endingOf(entry, error);
  }
  if (options.settle > 0) await trial?.tidy();
  for (const connection of trial?.connections ?? []) connection.channel.destroy();
  await session?.close().catch(() => undefined);
  const violations = trial?.connections.flatMap((connection) => connection.watch.violations) ?? [];
  if ((ending.verdict === 'pass' || ending.verdict === 'skip') && violations.length > 0)
    ending = endingOfViolations(violations);
  const unexpected =
    isUnexpected(ending.verdict, waiver) && !(ending.verdict === 'pass' && waivers.mayPass(entry.id, role));
  return {
    ...common,
    ...ending,
    violations,
    unexpected,
    ms: performance.now() - began,
    log: trial?.log ?? [],
    capture: trial?.capture ?? [],
  };
}

/**
 * The result, turned into a failure if the peer no longer takes a lawful connection; then the peer is brought
 * back.
 */
async function withCanary(result: Result, options: RunOptions): Promise<Result> {
  let dead: string | null = 'not tried';
  // A peer that is slow to tidy up, or drops one connection in a hundred, is not dead.
  for (let i = 0; i < CANARY_TRIES && dead !== null; i++) dead = await canary(options);
  if (dead === null) return result;
  await options.revive?.();
  const actual =
    `${result.verdict === 'pass' ? 'as expected' : result.actual || result.reason}; then the peer no ` +
    `longer takes a lawful connection (${dead})`;
  return { ...result, verdict: 'fail', actual, unexpected: isUnexpected('fail', result.waiver) };
}

/** Null if a lawful start-up works, else the event instead of it. */
async function canary({ profile, slow, settle, seed, quirks, plain }: RunOptions): Promise<string | null> {
  const limits = { ...limitsFor(slow, settle), reaction: CANARY_MS * slow };
  let session: Session | null = null;
  let trial: Trial | null = null;
  try {
    session = await profile.begin({ role: 'initiator', setup: {}, limits, seed });
    trial = new Trial({
      role: 'initiator',
      session,
      listener: null,
      limits,
      strict: false,
      plain: plain?.has('initiator') === true,
      quirks,
      random: createRandom(seed, 'canary'),
    });
    const connection = await trial.establish();
    connection.channel.finish();
    await connection.reaction();
    return null;
  } catch (error) {
    return error instanceof Deviation ? error.actual : error instanceof Error ? error.message : String(error);
  } finally {
    for (const connection of trial?.connections ?? []) connection.channel.destroy();
    await session?.close();
  }
}

function endingOf(entry: Case, error: unknown): Ending {
  if (error instanceof Deviation) {
    return {
      verdict: 'fail',
      connected: true,
      reason: '',
      expected: error.expected,
      actual: error.actual,
      blamed: error.requirements,
    };
  }
  if (error instanceof Unsuited)
    return {
      verdict: 'skip',
      connected: true,
      reason: error.message,
      expected: entry.expected,
      actual: '',
      blamed: [],
    };
  const text = error instanceof Error ? error.message : String(error);
  const known = error instanceof Inapplicable || error instanceof TesterLost;
  const reason = known || !(error instanceof Error) ? text : (error.stack ?? text);
  return {
    verdict: 'error',
    connected: !(error instanceof NotConnected),
    reason,
    expected: entry.expected,
    actual: '',
    blamed: [],
  };
}

function endingOfViolations(violations: readonly Violation[]): Ending {
  return {
    verdict: 'fail',
    connected: true,
    reason: '',
    expected: 'FPDUs that keep the rules',
    actual: violations.map((violation) => violation.text).join('; '),
    blamed: [...new Set(violations.flatMap((violation) => violation.requirements))],
  };
}

function isUnexpected(verdict: Verdict, waiver: string | null): boolean {
  if (verdict === 'error') return true;
  if (verdict === 'fail') return waiver === null;
  return verdict === 'pass' && waiver !== null;
}
