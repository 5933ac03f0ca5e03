/**
 * The verdict word: the return value of every check on an incoming segment. Zero, FINE, lets it pass.
 * Otherwise its lower bits are a packed Terminate code (`terminate-codes.ts`), and flags above them say how
 * the stream has to end. The first error wins (RDMAP-075).
 */

/** The packed Terminate code, with the bit that distinguishes 0/0/00 from FINE. */
const CODE_MASK = 0x1_ffff;

/** Flags of a verdict. */
export const VERDICT = {
  /**
   * The error is on a delivered message, so a Read Request's own header belongs into the Terminate
   * (RDMAP-074).
   */
  DELIVERED: 0x2_0000,
  /** The Terminate takes the place of the faulty response, after those still owed (VERBS-069). */
  IN_TURN: 0x4_0000,
  /** The stream ends without an answer: a malformed Terminate is never answered (RDMAP-081). */
  SILENT: 0x8_0000,
  /** No error: a Terminate has been delivered, and reception stops here. */
  STOP: 0x10_0000,
  /** The error is that of a segment, which DDP or RDMAP has found; without it the lower layer's own. */
  SEGMENT: 0x20_0000,
} as const;

/** The Terminate code of a verdict. */
export const codeOf = (verdict: number): number => verdict & CODE_MASK;
export const isDelivered = (verdict: number): boolean => (verdict & VERDICT.DELIVERED) !== 0;
export const isInTurn = (verdict: number): boolean => (verdict & VERDICT.IN_TURN) !== 0;
export const isSilent = (verdict: number): boolean => (verdict & VERDICT.SILENT) !== 0;
export const isOfSegment = (verdict: number): boolean => (verdict & VERDICT.SEGMENT) !== 0;
