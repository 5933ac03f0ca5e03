/**
 * Parts that the probes share: a probe measures something other than a transfer between two processes and
 * reports it as a table.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { atExit } from '../leftovers.ts';
import { readTicks } from '../machine.ts';
import type { Method } from '../method.ts';
import { withoutFolders } from '../reason.ts';
import { spread } from '../stats.ts';
import type { Better, ProbeRatio, ProbeResult } from '../types.ts';

export type Progress = (text: string) => void;

/** A probe by name; `run` may throw, which costs nothing but its own results. */
export interface Probe {
  readonly id: string;
  readonly title: string;
  /** How long it takes on a machine that does nothing else. */
  readonly seconds: (method: Method) => number;
  readonly run: (method: Method, progress: Progress) => Promise<ProbeResult>;
}

/**
 * A ratio for the baseline, out of one figure a round; `slack` is what it may drift where it is a difference
 * about zero.
 */
export function ratioOf(id: string, better: Better, values: readonly number[], slack?: number): ProbeRatio {
  return { id, better, spread: spread(values, better === 'less'), ...(slack !== undefined && { slack }) };
}

/** A figure in a table: null where there is none. */
export function cell(value: number, digits = 2): number | null {
  return Number.isFinite(value) ? Number(value.toFixed(digits)) : null;
}

/** More stolen ticks in a second than this disturb a probe. */
const MAX_STEAL_A_SECOND = 5;

/** Whether the host took time since this was called. */
export function watchSteal(): () => boolean {
  const from = readTicks().steal;
  const began = performance.now();
  return () => (readTicks().steal - from) / ((performance.now() - began) / 1000) > MAX_STEAL_A_SECOND;
}

/**
 * Runs one of the programs of bench/micro in a separate process, so that nothing else has shaped its compiled
 * code, and returns its output.
 */
export async function runMicro(
  name: string,
  nodeArgs: readonly string[],
  args: readonly (string | number)[],
  timeoutMs = 60_000,
): Promise<string> {
  const ending = import.meta.url.slice(-3);
  const program = fileURLToPath(new URL(`../micro/${name}${ending}`, import.meta.url));
  const running = promisify(execFile)(
    process.execPath,
    [...process.execArgv, ...nodeArgs, program, ...args.map(String)],
    { timeout: timeoutMs, maxBuffer: 1 << 24 },
  );
  const end = atExit(() => running.child.kill('SIGKILL'));
  try {
    return (await running).stdout;
  } catch (error) {
    throw new Error(`bench/micro/${name}: ${whyEnded(error as Ended)}`, { cause: error });
  } finally {
    end();
  }
}

/** The part of execFile's error that says how the program ended. */
interface Ended {
  readonly stderr?: string;
  readonly code?: number | string;
  readonly signal?: string;
}

/**
 * The last words of a program that ended early, or how it ended. Node's own message has the command with its
 * folders in it, and reports are passed on.
 */
function whyEnded({ stderr = '', code, signal }: Ended): string {
  const said = /^\w*Error(?: \[\w+\])?: (.*)$/m.exec(stderr)?.[1];
  return said === undefined ? `ended with ${signal ?? `status ${code}`}` : withoutFolders(said);
}
