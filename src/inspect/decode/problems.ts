/**
 * The report of a broken rule: the id of the requirement, the clause it comes from, and a sentence with the
 * figures. Clauses name the leading document first; the ids are those of the requirements catalogue, but for
 * TCP-OVERLAP, which is about the capture's TCP and not about MPA.
 */

/** Every requirement the decoder judges, with its clause. */
export const CLAUSES = {
  'TCP-OVERLAP': 'RFC 9293 3.4',
  'MPA-002': 'RFC 5044 7.1.1',
  'MPA-003': 'RFC 5044 7.1.1',
  'MPA-006': 'RFC 5044 7.1.2 (8)',
  'MPA-010': 'RFC 5044 7.1.1',
  'MPA-012': 'RFC 5044 7.1.1',
  'MPA-014': 'RFC 5044 7.1.1',
  'MPA-018': 'RFC 5044 7.1.1',
  'MPA-021': 'RFC 5044 7.1.2 (9)',
  'MPA-025': 'RFC 5044 7.1.2 (3)',
  'MPA-028': 'RFC 5044 7.1.2 (4)',
  'MPA-067': 'RFC 5044 4.1',
  'MPA-069': 'RFC 5044 4.4',
  'MPA-076': 'RFC 5044 3',
  'MPA-087': 'RFC 5044 6',
  'MPA-090': 'RFC 5041 4.4',
  'MPA-096': 'RFC 5044 4.3',
  'MPA-097': 'RFC 5044 4.3',
  'MPA-100': 'RFC 5044 4.2',
  'DDP-002': 'RFC 5041 4.1',
  'DDP-004': 'RFC 5041 4.1',
  'DDP-006': 'RFC 5041 4.1',
  'DDP-009': 'RFC 5041 4.2, 4.3',
  'DDP-012': 'RFC 5041 4.2',
  'DDP-015': 'RFC 5041 4.3',
  'DDP-017': 'RFC 5041 4.3, 5.2',
  'DDP-018': 'RFC 5041 5.2',
  'DDP-020': 'RFC 5041 4.4',
  'DDP-025': 'RFC 5041 5.2',
  'DDP-036': 'RFC 5041 5.3',
  'DDP-039': 'RFC 5041 7.1',
  'RDMAP-001': 'RFC 5040 4.1',
  'RDMAP-002': 'RFC 5040 4.1',
  'RDMAP-005': 'RFC 5040 4.1, 7.2 (2)',
  'RDMAP-006': 'RFC 5040 4.1',
  'RDMAP-008': 'RFC 5040 4.1',
  'RDMAP-010': 'RFC 5040 4.1',
  'RDMAP-015': 'RFC 5040 4.4',
  'RDMAP-030': 'RFC 5040 4.4',
  'RDMAP-031': 'RFC 5040 4.4, 5.2.2',
  'RDMAP-049': 'RFC 5040 5.2',
  'RDMAP-051': 'RFC 5040 6.1',
  'RDMAP-076': 'RFC 5040 5.4',
  'RDMAP-077': 'RFC 5040 5.4',
  'RDMAP-081': 'RFC 5040 5.4',
  'RDMAP-082': 'RFC 5040 4.8',
  'RDMAP-084': 'RFC 5040 4.8',
  'RDMAP-085': 'RFC 5040 4.8',
  'ENH-001': 'RFC 6581 6',
  'ENH-005': 'RFC 6581 6, 9',
  'ENH-010': 'RFC 6581 10',
  'ENH-016': 'RFC 6581 9.1',
  'ENH-024': 'RFC 6581 9.1',
  'ENH-025': 'RFC 6581 9.1',
  'ENH-030': 'RFC 6581 9.2',
  'ENH-032': 'RFC 6581 9.2',
  'ENH-033': 'RFC 6581 9.2',
  'ENH-038': 'RFC 6581 9.2',
  'EXT-003': 'RFC 7306 4.1',
  'EXT-008': 'RFC 7306 6.3',
  'EXT-009': 'RFC 7306 6.3',
  'EXT-021': 'RFC 7306 5.2.1',
  'EXT-022': 'RFC 7306 5.2.2',
  'EXT-023': 'RFC 7306 5.2.1',
  'EXT-024': 'RFC 7306 5.2.1',
  'EXT-030': 'RFC 7306 5.2.2',
  'EXT-032': 'RFC 7306 5.2.1',
  'EXT-034': 'RFC 7306 5.2.1',
  'EXT-041': 'RFC 7306 5.2.2',
  'EXT-048': 'RFC 7306 5.2',
  'EXT-049': 'RFC 7306 5.2.2',
} as const;

/** Id of a requirement that the decoder judges. */
export type ProblemId = keyof typeof CLAUSES;

/** One broken rule. */
export interface Problem {
  /** Id in the requirements catalogue. */
  readonly id: ProblemId;
  /** The clause that the requirement comes from. */
  readonly clause: string;
  /** The words for the breach, with the figures. */
  readonly message: string;
}

/** A problem with its clause looked up. */
export function problem(id: ProblemId, message: string): Problem {
  return { id, clause: CLAUSES[id], message };
}

/** A u32 as `0x` and eight digits: how STags and identifiers are written everywhere in this room. */
export function hex32(value: number): string {
  return `0x${(value >>> 0).toString(16).padStart(8, '0')}`;
}

/** A u64 as `0x` and its digits without leading zeros. */
export function hex64(value: bigint): string {
  return `0x${value.toString(16)}`;
}

/** A byte as `0x` and two digits. */
export function hex8(value: number): string {
  return `0x${value.toString(16).padStart(2, '0')}`;
}
