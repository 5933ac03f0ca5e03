// The requirements catalogue as one typed list, with look-ups. Data: one file a group beside this one;
// reasons for rules that no test can decide: exceptions.ts. Read types.ts first.

import { ddp } from './ddp.ts';
import { enh } from './enh.ts';
import { ext } from './ext.ts';
import { mpa } from './mpa.ts';
import { rdmap } from './rdmap.ts';
import { sec } from './sec.ts';
import type { Group, Requirement } from './types.ts';
import { verbs } from './verbs.ts';

export type { Group, Requirement } from './types.ts';

/** Groups in the order of the stack, bottom first. */
export const GROUPS: readonly Group[] = ['MPA', 'DDP', 'RDMAP', 'ENH', 'EXT', 'SEC', 'VERBS'];

/** How many requirements each group holds; a change here is a change of the catalogue's contract. */
export const GROUP_SIZES: Readonly<Record<Group, number>> = {
  MPA: 114,
  DDP: 71,
  RDMAP: 100,
  ENH: 49,
  EXT: 52,
  SEC: 38,
  VERBS: 177,
};

/** All requirements, by group, then by id. */
export const requirements: readonly Requirement[] = [
  ...mpa,
  ...ddp,
  ...rdmap,
  ...enh,
  ...ext,
  ...sec,
  ...verbs,
];

const byId: ReadonlyMap<string, Requirement> = new Map(requirements.map((entry) => [entry.id, entry]));

/** The entry named `id`, or undefined when the catalogue has none. */
export function requirement(id: string): Requirement | undefined {
  return byId.get(id);
}

/** True for an id of the catalogue. */
export function isRequirement(id: string): boolean {
  return byId.has(id);
}

/** True for the two levels that allow no deviation. */
export function isMandatory(entry: Requirement): boolean {
  return entry.level === 'MUST' || entry.level === 'MUST NOT';
}
