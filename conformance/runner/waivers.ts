// Waivers: what a target is known to do differently, each with its reason. A file has one waiver a line:
//   [~]<case id, or prefix*>[@initiator|@responder]  <reason>
// A tilde marks a deviation that comes and goes: such a case may pass. Empty lines and lines that begin with
// # are left out. A waived case that passes is reported as unexpected. A file of differences is laid over
// another: its lines come first, and one that begins with a minus takes a waiver of the other back.

import { readFileSync } from 'node:fs';
import type { Role } from '../probe/connection.ts';

interface Waiver {
  /** A case id, or a prefix of ids when it ends with `*`. */
  readonly pattern: string;
  readonly role: Role | null;
  readonly reason: string;
  /** The deviation does not show every time. */
  readonly unsteady: boolean;
  /** The target keeps this rule, although the file below says that it does not. */
  readonly takenBack: boolean;
}

export class Waivers {
  readonly entries: readonly Waiver[];

  constructor(entries: readonly Waiver[] = []) {
    this.entries = entries;
  }

  /** Why this case may fail in this role, or null. */
  reasonFor(id: string, role: Role): string | null {
    return this.#find(id, role)?.reason ?? null;
  }

  /** True where a pass in spite of the waiver says nothing. */
  mayPass(id: string, role: Role): boolean {
    return this.#find(id, role)?.unsteady === true;
  }

  #find(id: string, role: Role): Waiver | undefined {
    const found = this.entries.find((waiver) => matches(waiver, id, role));
    return found?.takenBack === true ? undefined : found;
  }

  /** Waivers that name no case at all. */
  idle(ids: readonly string[]): Waiver[] {
    return this.entries.filter(
      (waiver) => !ids.some((id) => matches({ ...waiver, role: null }, id, 'initiator')),
    );
  }
}

function matches({ pattern, role }: Waiver, id: string, in_: Role): boolean {
  if (role !== null && role !== in_) return false;
  return pattern.endsWith('*') ? id.startsWith(pattern.slice(0, -1)) : id === pattern;
}

/** Read a waiver file, laid over the waivers `below`; a line that is no waiver throws. */
export function parseWaivers(text: string, below: Waivers = new Waivers()): Waivers {
  const entries: Waiver[] = [];
  text.split('\n').forEach((line, i) => {
    if (/^\s*(#|$)/.test(line)) return;
    const found = /^([~-]?)(\S+?)(?:@(initiator|responder))?\s+(\S.*)$/.exec(line.trim());
    if (found === null) throw new Error(`line ${i + 1} is no waiver: a case id and its reason are needed`);
    entries.push({
      pattern: found[2]!,
      role: (found[3] as Role | undefined) ?? null,
      reason: found[4]!,
      unsteady: found[1] === '~',
      takenBack: found[1] === '-',
    });
  });
  return new Waivers([...entries, ...below.entries]);
}

export function readWaivers(path: string, below?: Waivers): Waivers {
  return parseWaivers(readFileSync(path, 'utf8'), below);
}
