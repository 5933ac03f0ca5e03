/**
 * Time and deferral as an interface, so that every part above the sockets runs on a real clock or on virtual
 * time alike.
 */

/** Cancels a timer. Calling it after the timer has fired does nothing. */
export type CancelTimer = () => void;

/** The time as a driver needs it. Times are milliseconds on a monotonic clock. */
export interface Scheduler {
  /** Milliseconds, from any origin. */
  now(): number;
  /** Run `task` once, at or after `time`. */
  at(time: number, task: () => void): CancelTimer;
  /**
   * Run `task` soon, after the present call stack has unwound. Several posts of one turn become one flush
   * this way.
   */
  defer(task: () => void): void;
}
