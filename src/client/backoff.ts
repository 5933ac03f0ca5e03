/** How long to wait before the next attempt. */
import { MAX_TIME_LIMIT } from '../base/abort.ts';
import { checkInteger, checkOptions, type Names } from '../base/errors.ts';

/** Options of `reconnect`. */
export interface ReconnectOptions {
  /** Milliseconds before the second attempt. Default 50. */
  readonly first?: number | undefined;
  /**
   * Milliseconds up to which each failure doubles the wait; chance then makes it half to one and a half times
   * as long. Default 30,000.
   */
  readonly most?: number | undefined;
  /** Attempts in a row that may fail; then the client ends. Default: no limit. */
  readonly attempts?: number | undefined;
}

const NAMES: Names<ReconnectOptions> = { first: true, most: true, attempts: true };

/** The options with their defaults. */
export interface Backoff {
  readonly first: number;
  readonly most: number;
  readonly attempts: number;
}

/** @throws ERR_INVALID_ARGUMENT */
export function checkBackoff(options: ReconnectOptions = {}): Backoff {
  checkOptions('options.reconnect', options, NAMES);
  const { first = 50, most = 30_000, attempts = Number.MAX_SAFE_INTEGER } = options;
  return {
    first: checkInteger('options.reconnect.first', first, 1, MAX_TIME_LIMIT),
    most: checkInteger('options.reconnect.most', most, 1, MAX_TIME_LIMIT),
    attempts: checkInteger('options.reconnect.attempts', attempts, 1, Number.MAX_SAFE_INTEGER),
  };
}

/**
 * Milliseconds after `failures` failed attempts in a row: doubled with each, and with chance between a half
 * and one and a half, so that a thousand clients of a server that restarts do not come in the same instant.
 */
export function waitAfter({ first, most }: Backoff, failures: number, chance: number): number {
  return Math.min(first * 2 ** Math.min(failures - 1, 40), most) * (0.5 + chance);
}
