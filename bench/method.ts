/** How long is measured, and how often. */

export interface Method {
  readonly rounds: number;
  readonly windows: number;
  readonly windowMs: number;
  readonly latencyMs: number;
}

/** What comes up to speed before a window. */
export const SETTLE_MS = 40;
