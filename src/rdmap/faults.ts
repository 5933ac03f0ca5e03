/** The Terminate code of each protection fault that RDMAP finds (protocol-notes 1.2). */
import { FAULT } from '../ddp/stag-table.ts';
import { TERM } from '../base/terminate-codes.ts';

/** On the source of a Read Request or the target of an Atomic Request (RFC 5040 7.2 (4)). */
export const READ_FAULT_CODES: Readonly<Record<number, number>> = {
  [FAULT.INVALID_STAG]: TERM.RDMAP_INVALID_STAG,
  [FAULT.NOT_ASSOCIATED]: TERM.RDMAP_NOT_ASSOCIATED,
  [FAULT.ACCESS]: TERM.RDMAP_ACCESS,
  [FAULT.WRAP]: TERM.RDMAP_TO_WRAP,
  [FAULT.BOUNDS]: TERM.RDMAP_BOUNDS,
};
