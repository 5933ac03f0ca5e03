// Lists of the suite: cases by name, by requirement and by section, and how much of the catalogue they cover.

import { GROUPS, isMandatory, requirement, requirements } from '../catalogue/index.ts';
import { exceptions } from '../catalogue/exceptions.ts';
import type { Case } from '../cases/define.ts';
import { unobservable } from '../unobservable.ts';

/** The cases, one a line or under the requirement or section they belong to. */
export function listText(cases: readonly Case[], by: 'case' | 'requirement' | 'section'): string {
  if (by === 'case') return `${cases.map(caseLine).join('\n')}\n`;
  const lines: string[] = [];
  for (const [heading, mine] of by === 'requirement' ? byRequirement(cases) : bySection(cases)) {
    lines.push(heading, ...mine.map((entry) => `  ${entry.id}`), '');
  }
  return lines.join('\n');
}

function caseLine(entry: Case): string {
  const roles = entry.roles.map((role) => role[0]).join('');
  const notes = [...entry.needs, ...(entry.slow ? ['slow'] : [])].join(',');
  return (
    `${entry.id.padEnd(44)} ${roles.padEnd(2)} ${notes.padEnd(10)} ${entry.requirements.join(' ')}  ` +
    `${entry.title}`
  );
}

function byRequirement(cases: readonly Case[]): [string, Case[]][] {
  return requirements.flatMap((entry): [string, Case[]][] => {
    const mine = cases.filter((one) => one.requirements.includes(entry.id));
    return mine.length === 0 ? [] : [[`${entry.id} (${entry.clause}, ${entry.level}) ${entry.text}`, mine]];
  });
}

function bySection(cases: readonly Case[]): [string, Case[]][] {
  const sections = new Map<string, Set<Case>>();
  for (const one of cases) {
    for (const id of one.requirements) {
      const section = sectionOf(requirement(id)?.clause ?? '');
      sections.set(section, (sections.get(section) ?? new Set()).add(one));
    }
  }
  return [...sections]
    .map(([section, mine]): [string, Case[]] => [section, [...mine]])
    .toSorted(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }));
}

function sectionOf(clause: string): string {
  return /^(?:RFC \d+|verbs draft) [\d.A-Za-z]+/.exec(clause)?.[0] ?? clause;
}

/**
 * How much of the catalogue's wire rules the cases cover; complete when no MUST is left without a case or a
 * reason.
 */
export function coverageText(
  cases: readonly Case[],
  missingOnly: boolean,
): { text: string; complete: boolean } {
  const covered = new Set(cases.flatMap((entry) => entry.requirements));
  const lines: string[] = [];
  let open = 0;
  for (const group of GROUPS.filter((name) => name !== 'VERBS')) {
    const wire = requirements.filter((entry) => entry.group === group && entry.kind === 'wire');
    const musts = wire.filter(isMandatory);
    const hit = (list: typeof wire): number => list.filter((entry) => covered.has(entry.id)).length;
    lines.push(
      `${group.padEnd(6)} MUST ${hit(musts)} of ${musts.length}, SHOULD and MAY ` +
        `${hit(wire) - hit(musts)} of ${wire.length - musts.length}`,
    );
    for (const entry of wire.filter((one) => !covered.has(one.id))) {
      const reason = unobservable[entry.id] ?? exceptions[entry.id];
      if (reason === undefined) open += isMandatory(entry) ? 1 : 0;
      if (!missingOnly || reason === undefined)
        lines.push(`  ${entry.id} ${entry.level}: ${reason ?? 'neither a case nor a reason'}`);
    }
  }
  const runs = cases.reduce((sum, entry) => sum + entry.roles.length, 0);
  lines.push(`${cases.length} cases, ${runs} runs in both roles; ${open} MUST without a case or a reason`);
  return { text: `${lines.join('\n')}\n`, complete: open === 0 };
}
