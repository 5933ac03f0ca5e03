/** The timers of a socket: how long nothing has happened, and when to send a sign of life. */
import { captureContext, type AsyncContext } from '../base/async-context.ts';
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';

/**
 * Calls a function when there have been no bytes for a time. It uses one timer for all activity: when that
 * fires, the timer looks how long ago the last bytes were.
 */
export class IdleTimer {
  readonly #alarm: Alarm;
  readonly #idle: () => void;
  #ms = 0;
  /** The time that the program has asked for last; undefined before that. */
  given: number | undefined = undefined;
  #lastActive = 0;
  /** That of the call that has set the time. */
  #context: AsyncContext | null = null;
  #ended = false;

  constructor(scheduler: Scheduler, idle: () => void) {
    this.#alarm = new Alarm(scheduler);
    this.#idle = idle;
  }

  /** The idle time in milliseconds; 0 for never. */
  get ms(): number {
    return this.#ms;
  }

  /** Begin again, with this time. */
  set(ms: number): void {
    this.#ms = ms;
    this.given = ms;
    this.#context = ms === 0 ? null : captureContext('IWARP_TIMEOUT');
    this.#alarm.stop();
    this.active();
  }

  /** Bytes have come, or have gone. */
  active(): void {
    if (this.#ms === 0 || this.#ended) return;
    this.#lastActive = this.#alarm.now();
    if (!this.#alarm.isSet) this.#from(this.#lastActive);
  }

  /** Stops the timer for good: the function is not called again. */
  end(): void {
    this.#ended = true;
    this.#alarm.stop();
  }

  #from(start: number): void {
    this.#alarm.setAt(start + this.#ms, () => {
      if (this.#lastActive > start) this.#from(this.#lastActive);
      else this.#context?.runInAsyncScope(this.#idle, undefined);
    });
  }
}

/** As the usual setting of TCP: two hours. */
const DEFAULT_KEEP_ALIVE_MS = 7_200_000;

/** Calls `send` again and again. */
export class KeepAliveTimer {
  readonly #alarm: Alarm;
  readonly #send: () => void;

  constructor(scheduler: Scheduler, send: () => void) {
    this.#alarm = new Alarm(scheduler);
    this.#send = send;
  }

  /** Every `ms`, from now on; 0 for the default. */
  start(ms: number): void {
    this.#next(ms === 0 ? DEFAULT_KEEP_ALIVE_MS : ms);
  }

  stop(): void {
    this.#alarm.stop();
  }

  #next(ms: number): void {
    this.#alarm.set(ms, () => {
      this.#send();
      this.#next(ms);
    });
  }
}
