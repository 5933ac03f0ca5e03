// What the suite's own tests share: one run of some cases against our own stack in this process.

import { cases } from '../cases/index.ts';
import type { Case } from '../cases/define.ts';
import type { Role } from '../probe/connection.ts';
import { openSelf } from '../profiles/self.ts';
import type { Profile } from '../profiles/types.ts';
import { runCases } from '../runner/runner.ts';
import type { Result, RunOptions } from '../runner/runner.ts';
import { Waivers } from '../runner/waivers.ts';

export const fastCases: readonly Case[] = cases.filter((entry) => !entry.slow);

/** Run cases against a profile, our own stack unless another is given. */
export async function runAgainstSelf(chosen: readonly Case[], roles: readonly Role[], options: Partial<RunOptions> = {}, given?: Profile): Promise<Result[]> {
  const profile = given ?? (await openSelf());
  try {
    return await runCases(chosen, {
      profile, roles, strict: true, quirks: new Set(), seed: 1, repeat: 1, slow: 1, settle: 0, gap: 0, bail: false, canary: false, revive: null, waivers: new Waivers(), ...options,
    });
  } finally {
    if (given === undefined) await profile.close();
  }
}

/** One line for each result that did not pass. */
export function faults(results: readonly Result[]): string[] {
  return results.filter((r) => r.verdict !== 'pass').map((r) => `${r.verdict} ${r.case.id} [${r.role}] expected ${r.expected}; got ${r.actual}${r.reason}`);
}

export function caseNamed(id: string): Case {
  const found = cases.find((entry) => entry.id === id);
  if (found === undefined) throw new Error(`no case ${id}`);
  return found;
}
