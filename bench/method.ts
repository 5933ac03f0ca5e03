/** How long is measured, and how often. */

export interface Method {
  readonly rounds: number;
  readonly windows: number;
  readonly windowMs: number;
  readonly latencyMs: number;
  /**
   * A native add-on to compare the checksum with: a module with `calculate(bytes)`, which this repository
   * does not have.
   */
  readonly nativeCrc?: string;
}

/** Octets at which our checksum is compared with that of an add-on. */
export const NATIVE_OCTETS = 65_536;

/** The time to come up to speed before a window. */
export const SETTLE_MS = 40;
