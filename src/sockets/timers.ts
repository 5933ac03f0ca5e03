/** The timers of a socket: how long nothing has happened, and when to send a sign of life. */
import type { CancelTimer, Scheduler } from '../base/clock.ts';

/** Tells when there have been no octets for a time. One timer for all that happens: when it fires it looks how long ago the last of that was. */
export class IdleTimer {
  readonly #scheduler: Scheduler;
  readonly #idle: () => void;
  #ms = 0;
  #cancel: CancelTimer | null = null;
  #lastActive = 0;
  #ended = false;

  constructor(scheduler: Scheduler, idle: () => void) {
    this.#scheduler = scheduler;
    this.#idle = idle;
  }

  /** How long; 0 for never. */
  get ms(): number {
    return this.#ms;
  }

  /** Begin again, with this time. */
  set(ms: number): void {
    this.#ms = ms;
    this.#stop();
    this.active();
  }

  /** Octets have come, or have gone. */
  active(): void {
    if (this.#ms === 0 || this.#ended) return;
    this.#lastActive = this.#scheduler.now();
    if (this.#cancel === null) this.#from(this.#lastActive);
  }

  /** Nothing is told any more. */
  end(): void {
    this.#ended = true;
    this.#stop();
  }

  #from(start: number): void {
    this.#cancel = this.#scheduler.at(start + this.#ms, () => {
      this.#cancel = null;
      if (this.#lastActive > start) this.#from(this.#lastActive);
      else this.#idle();
    });
  }

  #stop(): void {
    this.#cancel?.();
    this.#cancel = null;
  }
}

/** As the usual setting of TCP: two hours. */
const DEFAULT_KEEP_ALIVE_MS = 7_200_000;

/** Calls `send` again and again. */
export class KeepAliveTimer {
  readonly #scheduler: Scheduler;
  readonly #send: () => void;
  #cancel: CancelTimer | null = null;

  constructor(scheduler: Scheduler, send: () => void) {
    this.#scheduler = scheduler;
    this.#send = send;
  }

  /** Every `ms`, from now on; 0 for the default. */
  start(ms: number): void {
    this.stop();
    this.#next(ms === 0 ? DEFAULT_KEEP_ALIVE_MS : ms);
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = null;
  }

  #next(ms: number): void {
    this.#cancel = this.#scheduler.at(this.#scheduler.now() + ms, () => {
      this.#send();
      this.#next(ms);
    });
  }
}
