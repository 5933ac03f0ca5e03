/** Which Terminate code each protection fault becomes, by where it was found (protocol-notes 1.2). */
import { FAULT } from '../ddp/stag-table.ts';
import { TERM } from '../base/terminate-codes.ts';

/** On a tagged segment (RFC 5041 7.2). There is no code for missing rights: 1/1/02 (VERBS-174, protocol-notes 1.2). */
export const TAGGED_FAULT_CODES: Readonly<Record<number, number>> = {
  [FAULT.INVALID_STAG]: TERM.DDP_INVALID_STAG,
  [FAULT.NOT_ASSOCIATED]: TERM.DDP_NOT_ASSOCIATED,
  [FAULT.ACCESS]: TERM.DDP_NOT_ASSOCIATED,
  [FAULT.WRAP]: TERM.DDP_TO_WRAP,
  [FAULT.BOUNDS]: TERM.DDP_BOUNDS,
};

/** On the source of a Read Request or the target of an Atomic Request (RFC 5040 7.2 (4)). */
export const READ_FAULT_CODES: Readonly<Record<number, number>> = {
  [FAULT.INVALID_STAG]: TERM.RDMAP_INVALID_STAG,
  [FAULT.NOT_ASSOCIATED]: TERM.RDMAP_NOT_ASSOCIATED,
  [FAULT.ACCESS]: TERM.RDMAP_ACCESS,
  [FAULT.WRAP]: TERM.RDMAP_TO_WRAP,
  [FAULT.BOUNDS]: TERM.RDMAP_BOUNDS,
};
