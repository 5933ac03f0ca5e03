// Lists of outcomes that several cases share: the code to send first, then those that the catalogue allows or
// other stacks are known to send (`expected` of the catalogue; protocol-notes 1.3 and 2.2).

import { TERM } from '../probe/terminate-codes.ts';
import { terms } from '../probe/trial.ts';
import type { Outcome } from '../probe/trial.ts';

/** Errors without a better code (RFC 5040 4.8), and what irdma says of a bad key (protocol-notes 2.2). */
const UNSPECIFIED = [0x01ff, 0x02ff, 0x0200] as const;

export const WRITE_STAG: readonly Outcome[] = terms(TERM.DDP_INVALID_STAG, TERM.RDMAP_INVALID_STAG, 0x0200);
export const WRITE_ASSOCIATION: readonly Outcome[] = terms(
  TERM.DDP_NOT_ASSOCIATED,
  TERM.RDMAP_NOT_ASSOCIATED,
);
export const WRITE_ACCESS: readonly Outcome[] = terms(
  TERM.DDP_NOT_ASSOCIATED,
  TERM.DDP_INVALID_STAG,
  TERM.RDMAP_ACCESS,
);
export const WRITE_BOUNDS: readonly Outcome[] = terms(TERM.DDP_BOUNDS, TERM.RDMAP_BOUNDS);
export const WRITE_WRAP: readonly Outcome[] = terms(TERM.DDP_TO_WRAP, TERM.DDP_BOUNDS, TERM.RDMAP_TO_WRAP);
export const READ_STAG: readonly Outcome[] = terms(TERM.RDMAP_INVALID_STAG, ...UNSPECIFIED);
export const READ_ASSOCIATION: readonly Outcome[] = terms(TERM.RDMAP_NOT_ASSOCIATED);
export const READ_ACCESS: readonly Outcome[] = terms(TERM.RDMAP_ACCESS);
export const READ_BOUNDS: readonly Outcome[] = terms(TERM.RDMAP_BOUNDS, TERM.DDP_BOUNDS);
export const READ_WRAP: readonly Outcome[] = terms(TERM.RDMAP_TO_WRAP, TERM.RDMAP_BOUNDS);
export const MSN: readonly Outcome[] = terms(TERM.DDP_MSN_RANGE, TERM.DDP_NO_BUFFER);
export const QN_ERROR: readonly Outcome[] = terms(TERM.DDP_INVALID_QN);
export const MO: readonly Outcome[] = terms(TERM.DDP_INVALID_MO, TERM.DDP_TOO_LONG);
export const TOO_LONG: readonly Outcome[] = terms(TERM.DDP_TOO_LONG, TERM.DDP_NO_BUFFER, 0x0000);
export const NO_BUFFER: readonly Outcome[] = terms(TERM.DDP_NO_BUFFER);
export const OPCODE_ERROR: readonly Outcome[] = terms(
  TERM.RDMAP_UNEXPECTED_OPCODE,
  TERM.RDMAP_OPERATION_UNSPECIFIED,
);
export const VERSION: readonly Outcome[] = terms(TERM.RDMAP_VERSION);
export const INVALIDATE_UNKNOWN: readonly Outcome[] = terms(
  TERM.RDMAP_INVALID_STAG,
  TERM.RDMAP_CANNOT_INVALIDATE,
  TERM.RDMAP_OPERATION_CANNOT_INVALIDATE,
);
export const INVALIDATE_FOREIGN: readonly Outcome[] = terms(
  TERM.RDMAP_CANNOT_INVALIDATE,
  TERM.RDMAP_OPERATION_CANNOT_INVALIDATE,
  TERM.RDMAP_NOT_ASSOCIATED,
);
export const MALFORMED_REQUEST: readonly Outcome[] = terms(
  TERM.RDMAP_STREAM_CATASTROPHIC,
  TERM.DDP_INVALID_MO,
  TERM.DDP_TOO_LONG,
  TERM.DDP_LOCAL_CATASTROPHIC,
  TERM.MPA_MARKER,
);
export const TOO_MANY_READS: readonly Outcome[] = terms(
  TERM.DDP_MSN_RANGE,
  TERM.DDP_NO_BUFFER,
  TERM.RDMAP_STREAM_CATASTROPHIC,
);
