// Runs cases against a profile, one connection after another, and says how each ended. Waivers turn known failures into expected
// ones; a waived case that passes is unexpected, so that waivers do not outlive their reason.

import { performance } from 'node:perf_hooks';
import type { Case } from '../cases/define.ts';
import { Listener } from '../probe/channel.ts';
import type { Capture } from '../probe/channel.ts';
import type { Limits, Log, Quirk, Role } from '../probe/connection.ts';
import { Deviation, Inapplicable } from '../probe/deviation.ts';
import { createRandom } from '../probe/random.ts';
import { NOT_CONNECTED, Trial } from '../probe/trial.ts';
import type { Violation } from '../probe/watch.ts';
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
  /** Stop at the first unexpected result. */
  readonly bail: boolean;
  /** Milliseconds between a start-up frame and the first FPDU, for peers that miss what comes at once. */
  readonly settle: number;
  /** After each case as initiator: a plain start-up must still succeed, else the case has killed the peer. */
  readonly canary: boolean;
  /** Brings a peer back that a case has killed; null when nobody can. */
  readonly revive: (() => Promise<void>) | null;
  /** Run a case with an unexpected result again, up to so many times: for peers on machines too busy to be steady. */
  readonly retries?: number;
  /** Pause between cases, for peers that need to come back. */
  readonly gap: number;
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

function limitsFor(slow: number, settle: number): Limits {
  return { reaction: REACTION_MS * slow, quiet: QUIET_MS * slow, patience: PATIENCE_MS * slow, settle };
}

/** Run every case in every role it fits, in order. */
export async function runCases(cases: readonly Case[], options: RunOptions): Promise<Result[]> {
  const plan = planOf(cases, options);
  const results: Result[] = [];
  const listener = options.roles.includes('responder') ? await Listener.open(options.profile.listen.host, options.profile.listen.port) : null;
  try {
    for (const { entry, role, round } of plan) {
      const attempt = async (): Promise<Result> => {
        let first = await runOne(entry, role, round, listener, options);
        // A busy peer may only be late.
        if (first.reason === NOT_CONNECTED && (options.retries ?? 0) > 0) first = await runOne(entry, role, round, listener, options);
        if (role === 'responder' && first.reason === NOT_CONNECTED && options.revive !== null) {
          blameLast(results, options);
          await options.revive();
          first = await runOne(entry, role, round, listener, options);
        }
        return options.canary && role === 'initiator' && first.verdict !== 'skip' ? await withCanary(first, options) : first;
      };
      let result = await attempt();
      for (let tries = 2; result.unexpected && tries <= 1 + (options.retries ?? 0); tries++) result = { ...(await attempt()), tries };
      results.push(result);
      options.onResult?.(result, results.length, plan.length);
      if (options.bail && result.unexpected) break;
      if (options.gap > 0 && result.verdict !== 'skip') await new Promise((resolve) => setTimeout(resolve, options.gap));
    }
  } finally {
    listener?.close();
  }
  return results;
}

/** A peer that connects no more was killed by the case before. */
function blameLast(results: Result[], { onResult }: RunOptions): void {
  const at = results.findLastIndex((result) => result.verdict !== 'skip');
  const last = results[at];
  if (last === undefined) return;
  const actual = `${last.verdict === 'pass' ? 'as expected' : last.actual || last.reason}; then the peer connects no more`;
  results[at] = { ...last, verdict: 'fail', actual, unexpected: isUnexpected('fail', last.waiver) };
  onResult?.(results[at], results.length, results.length);
}

function planOf(cases: readonly Case[], { roles, repeat }: RunOptions): { entry: Case; role: Role; round: number }[] {
  const plan = [];
  for (let round = 0; round < repeat; round++) {
    for (const role of roles) for (const entry of cases) if (entry.roles.includes(role)) plan.push({ entry, role, round });
  }
  return plan;
}

interface Ending {
  readonly verdict: Verdict;
  readonly reason: string;
  readonly actual: string;
  readonly expected: string;
  readonly blamed: readonly string[];
}

async function runOne(entry: Case, role: Role, round: number, listener: Listener | null, options: RunOptions): Promise<Result> {
  const { profile, strict, slow, waivers } = options;
  const seed = (options.seed + round) >>> 0;
  const limits = limitsFor(slow, options.settle);
  const waiver = waivers.reasonFor(entry.id, role);
  const began = performance.now();
  const common = { case: entry, role, round, waiver, seed, tries: 1 };
  const missing = entry.needs.filter((need) => !profile.capabilities.has(need));
  if (missing.length > 0) {
    const reason = `profile ${profile.name} has no ${missing.join(', no ')}`;
    return { ...common, verdict: 'skip', reason, expected: entry.expected, actual: '', blamed: [], violations: [], unexpected: false, ms: 0, log: [], capture: [] };
  }
  let session: Session | null = null;
  let trial: Trial | null = null;
  let ending: Ending;
  try {
    session = await profile.begin({ role, setup: entry.setup, limits, seed });
    trial = new Trial({ role, session, listener, limits, strict, quirks: options.quirks, random: createRandom(seed, `${entry.id}@${role}`) });
    await entry.run(trial);
    ending = { verdict: 'pass', reason: '', expected: entry.expected, actual: '', blamed: [] };
  } catch (error) {
    ending = endingOf(entry, error);
  }
  if (options.settle > 0) await trial?.tidy();
  for (const connection of trial?.connections ?? []) connection.channel.destroy();
  await session?.close().catch(() => undefined);
  const violations = trial?.connections.flatMap((connection) => connection.watch.violations) ?? [];
  if (ending.verdict === 'pass' && violations.length > 0) ending = endingOfViolations(violations);
  const unexpected = isUnexpected(ending.verdict, waiver) && !(ending.verdict === 'pass' && waivers.mayPass(entry.id, role));
  return { ...common, ...ending, violations, unexpected, ms: performance.now() - began, log: trial?.log ?? [], capture: trial?.capture ?? [] };
}

/** The result, turned into a failure if the peer no longer takes a lawful connection; then the peer is brought back. */
async function withCanary(result: Result, options: RunOptions): Promise<Result> {
  let dead: string | null = 'not tried';
  // A peer that is slow to tidy up, or drops one connection in a hundred, is not dead.
  for (let i = 0; i < CANARY_TRIES && dead !== null; i++) dead = await canary(options);
  if (dead === null) return result;
  await options.revive?.();
  const actual = `${result.verdict === 'pass' ? 'as expected' : result.actual || result.reason}; then the peer takes no lawful connection any more (${dead})`;
  return { ...result, verdict: 'fail', actual, unexpected: isUnexpected('fail', result.waiver) };
}

/** Null if a lawful start-up works, else what came instead. */
async function canary({ profile, slow, settle, seed, quirks }: RunOptions): Promise<string | null> {
  const limits = { ...limitsFor(slow, settle), reaction: CANARY_MS * slow };
  const session = await profile.begin({ role: 'initiator', setup: {}, limits, seed });
  const trial = new Trial({ role: 'initiator', session, listener: null, limits, strict: false, quirks, random: createRandom(seed, 'canary') });
  try {
    const connection = await trial.establish();
    connection.channel.finish();
    await connection.reaction();
    return null;
  } catch (error) {
    return error instanceof Deviation ? error.actual : error instanceof Error ? error.message : String(error);
  } finally {
    for (const connection of trial.connections) connection.channel.destroy();
    await session.close();
  }
}

function endingOf(entry: Case, error: unknown): Ending {
  if (error instanceof Deviation) {
    return { verdict: 'fail', reason: '', expected: error.expected, actual: error.actual, blamed: error.requirements };
  }
  const text = error instanceof Error ? error.message : String(error);
  if (error instanceof Inapplicable) return { verdict: 'error', reason: text, expected: entry.expected, actual: '', blamed: [] };
  return { verdict: 'error', reason: error instanceof Error ? (error.stack ?? text) : text, expected: entry.expected, actual: '', blamed: [] };
}

function endingOfViolations(violations: readonly Violation[]): Ending {
  return {
    verdict: 'fail', reason: '', expected: 'FPDUs that keep the rules', actual: violations.map((violation) => violation.text).join('; '),
    blamed: [...new Set(violations.flatMap((violation) => violation.requirements))],
  };
}

function isUnexpected(verdict: Verdict, waiver: string | null): boolean {
  if (verdict === 'error') return true;
  if (verdict === 'fail') return waiver === null;
  return verdict === 'pass' && waiver !== null;
}
