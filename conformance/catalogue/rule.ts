// How the rows of the catalogue are written: `rule` for one requirement, `topic` for a chapter of them.

import type { Group, Requirement } from './types.ts';

type RequirementId = `${Group}-${number}`;

/**
 * The fields that a row gives by name; `expected` is `-` and `derived` false where the row leaves them out.
 */
type Words = Pick<Requirement, 'text' | 'observation'> & Partial<Pick<Requirement, 'expected' | 'derived'>>;

type Row = Omit<Requirement, 'topic'>;

export function rule(
  id: RequirementId,
  level: Requirement['level'],
  clause: string,
  kind: Requirement['kind'],
  role: string,
  { text, observation, expected = '-', derived = false }: Words,
): Row {
  const group = id.slice(0, id.indexOf('-')) as Group;
  return { id, group, level, derived, kind, role, clause, text, observation, expected };
}

export function topic(title: string, rows: readonly Row[]): Requirement[] {
  return rows.map((row) => ({ ...row, topic: title }));
}
