/**
 * The deadlines of a stream in one table, by name: when each is due, which is next, which has come. A stream
 * has a table only while a deadline is armed, so an idle connection has none.
 */

/** Deadlines of a stream. When several have come, they are handled in this order. */
export const TIMERS = [
  /** The peer's start-up frame, and later the end of the close. */
  'deadline',
  /** A relaxed responder may send, also without an FPDU of the peer. */
  'open',
  /** A peer that has stayed silent gets an empty RDMA Write. */
  'nudge',
] as const;

/** One of {@link TIMERS}. */
export type Timer = (typeof TIMERS)[number];

const NEVER = Number.POSITIVE_INFINITY;

/** When each deadline is due; Infinity when unarmed. */
export class TimerTable {
  readonly #due: Record<Timer, number> = { deadline: NEVER, open: NEVER, nudge: NEVER };

  arm(timer: Timer, at: number): void {
    this.#due[timer] = at;
  }

  /** Returns true if nothing is armed any longer. */
  disarm(timer: Timer): boolean {
    this.#due[timer] = NEVER;
    return this.next === NEVER;
  }

  /** When the next deadline is due; Infinity for never. */
  get next(): number {
    const { deadline, open, nudge } = this.#due;
    return Math.min(deadline, open, nudge);
  }

  /** The first deadline that has come, which is then disarmed; null if there is none. */
  expire(now: number): Timer | null {
    const timer = TIMERS.find((one) => now >= this.#due[one]);
    if (timer === undefined) return null;
    this.#due[timer] = NEVER;
    return timer;
  }
}
