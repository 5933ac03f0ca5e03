/**
 * The software rate limiter: bursts of operations at even distances, as perftest's `--rate_limit_type=SW`
 * has them. A burst that comes late is followed by the next in its turn, so that the rate holds over time.
 */
import { textOption, UsageError, type ParsedOptions } from '../support/options.ts';
import { MAX_INT, ranged } from './flags.ts';
import type { Program } from './program.ts';

/** Operations of one burst, and milliseconds from the beginning of one to that of the next. */
export interface Rate {
  readonly burst: number;
  readonly gap: number;
}

/** Settings of the test that the limiter depends on. */
interface Facts {
  readonly program: Program;
  readonly size: number;
  readonly txDepth: number;
  readonly bidirectional: boolean;
  readonly infinitely: boolean;
}

/** Operations a second in each of the units of `--rate_units`. */
const UNITS: Readonly<Record<string, (rate: number, size: number) => number>> = {
  M: (rate, size) => (rate * 1_048_576) / size,
  g: (rate, size) => (rate * 125_000_000) / size,
  p: (rate) => rate,
};

/** The rate of the flags; null without a limit. @throws UsageError in the stock programs' words */
export function readRate(options: ParsedOptions, facts: Facts, notes: string[]): Rate | null {
  const { flags } = options;
  const limit = textOption(options, 'rate_limit');
  const type = textOption(options, 'rate_limit_type') ?? (limit === undefined ? null : 'HW');
  const units = textOption(options, 'rate_units') ?? 'g';
  const asked = ranged(options, 'burst_size', 'Burst size', 0, 0, MAX_INT);
  const value = limit === undefined ? 0 : readNumber(limit);
  if (!Object.hasOwn(UNITS, units)) throw new UsageError('Invalid rate limit units. Please use M,g or p');
  if (type !== null && !['SW', 'HW', 'PP'].includes(type))
    throw new UsageError('Invalid rate limit type flag. Please use HW, SW or PP.');
  ranged(options, 'typical_pkt_size', 'Typical pkt size', 0, 0, 0xffff);
  if (facts.infinitely && type !== null)
    throw new UsageError('run_infinitely does not support rate limit feature yet');
  if (asked > 0 && type === null) throw new UsageError("Can't enable burst mode when rate limiter is off");
  if (flags.has('typical_pkt_size') && type !== 'PP')
    throw new UsageError('Typical packet size only supports PP rate limiter');
  if (type === null) return null;
  if (type === 'HW') throw new UsageError("HW rate limit isn't supported yet with rdma_cm scenarios");
  if (type === 'PP') throw new UsageError('Packet Pacing is only supported for Raw Ethernet.');
  const { verb, kind } = facts.program;
  if (kind !== 'bw' || verb === 'atomic' || (verb === 'send' && facts.bidirectional)) {
    throw new UsageError(
      "SW Rate limiter can't be executed on non-BW, ATOMIC or bidirectional SEND / SEND_IMM tests",
    );
  }
  if (value === 0) throw new UsageError('A rate limiter needs --rate_limit');
  if (asked === 0) notes.push(` Setting burst size to tx depth = ${facts.txDepth}`);
  const burst = asked === 0 ? facts.txDepth : asked;
  return { burst, gap: (1000 * burst) / UNITS[units]!(value, facts.size) };
}

function readNumber(text: string): number {
  const value = /^\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? Number(text) : 0;
  if (value > 0 && value < Number.POSITIVE_INFINITY) return value;
  throw new UsageError('Rate limit must be non-negative floating point number');
}

/** Says when operations may be posted; times are in milliseconds. */
export class RateLimiter {
  readonly #rate: Rate;
  #next: number;
  #left = 0;

  constructor(rate: Rate, now: number) {
    this.#rate = rate;
    this.#next = now;
  }

  /** Milliseconds until the next operation may be posted: 0 within a burst, and where one is due. */
  wait(now: number): number {
    return this.#left > 0 ? 0 : Math.max(0, this.#next - now);
  }

  /** Operations have been posted, at a time at which `wait` was 0. */
  take(operations: number): void {
    if (this.#left <= 0) {
      this.#left = this.#rate.burst;
      this.#next += this.#rate.gap;
    }
    this.#left -= operations;
  }
}
