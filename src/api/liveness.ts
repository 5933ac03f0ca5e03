/**
 * Whether the peer lives. A Read of zero length has an answer, needs no memory and no receive at the peer,
 * and no part of its program: so it proves that the path and the peer's stack live, without credits.
 *
 * The answer may be late although the peer lives, where much is under way. So bytes of the peer count as a
 * sign of life, and so do bytes that leave us as long as the Read waits behind them.
 */
import { Alarm } from '../base/alarm.ts';
import type { Scheduler } from '../base/clock.ts';
import { checkInteger, checkOneOf, checkOptions, IwarpError, type Names } from '../base/errors.ts';
import { MAX_TIME_LIMIT } from '../base/abort.ts';
import { Waiters } from '../base/waiters.ts';
import type { CmConnection } from '../cm/connection.ts';
import type { Operations } from './operations.ts';

const FOREIGN = ['read', 'write', 'keep-alive'] as const;

/** Options of `heartbeat`: when to ask for a sign of life, and how long to wait for it. */
export interface HeartbeatOptions {
  /** Milliseconds of silence after which the peer is asked, 1 to 2^31 - 1. */
  readonly interval: number;
  /** Milliseconds that the answer may take, 1 to 2^31 - 1; then the connection is dropped. */
  readonly timeout: number;
  /**
   * How to ask a peer that is no endpoint of this package. `read` is an RDMA Read of zero length; a peer that
   * refuses it ends the connection. `write` is an RDMA Write of zero length, which no peer refuses and which
   * has no answer, so that `timeout` does not apply: TCP finds a dead path when it gets no acknowledgement,
   * on Linux after a quarter of an hour. `keep-alive` leaves it to the probes of TCP, which take ten seconds
   * after the interval. Where start-up has left no Reads (an ORD of 0), `read` means `keep-alive`. Default
   * `read`.
   */
  readonly foreign?: 'read' | 'write' | 'keep-alive' | undefined;
}

const NAMES: Names<HeartbeatOptions> = { interval: true, timeout: true, foreign: true };

/** @internal The options with their defaults. */
export type Heartbeat = Required<HeartbeatOptions> & { readonly foreign: 'read' | 'write' | 'keep-alive' };

/** @internal Null where there is to be no heartbeat. @throws ERR_INVALID_ARGUMENT */
export function checkHeartbeat(options: HeartbeatOptions | undefined): Heartbeat | null {
  if (options === undefined) return null;
  checkOptions('options.heartbeat', options, NAMES);
  const { interval, timeout, foreign = 'read' } = options;
  return {
    interval: checkInteger('options.heartbeat.interval', interval, 1, MAX_TIME_LIMIT),
    timeout: checkInteger('options.heartbeat.timeout', timeout, 1, MAX_TIME_LIMIT),
    foreign: checkOneOf('options.heartbeat.foreign', foreign, FOREIGN),
  };
}

/** @internal A number of milliseconds, or undefined. @throws ERR_INVALID_ARGUMENT */
export function checkTimeLimit(name: string, value: number | undefined): number | undefined {
  return value === undefined ? undefined : checkInteger(name, value, 1, MAX_TIME_LIMIT);
}

/** Bytes out that count as progress while the Read waits behind them: TCP alone takes less for long. */
const LEAST_PROGRESS = 65_536;

/** How the peer is asked. */
type Method = Heartbeat['foreign'] | 'none';

/** @internal The limits that a connection is watched for, and the functions called when one is passed. */
interface LivenessSettings {
  readonly heartbeat: Heartbeat | null;
  readonly idleTimeout: number | undefined;
  /** The peer is no endpoint of this package. */
  readonly foreign: boolean;
  /** Messages received so far. */
  readonly arrived: () => number;
  /** The peer has not answered for this number of milliseconds. */
  readonly dead: (ms: number) => void;
  /** Nothing has been used for the idle time. */
  readonly idle: () => void;
}

/** @internal The heartbeat, the round trips and the idle time of one connection. */
export class Liveness {
  readonly #cm: CmConnection;
  readonly #operations: Operations;
  readonly #settings: LivenessSettings;
  readonly #scheduler: Scheduler;
  readonly #pulse: Alarm;
  readonly #rest: Alarm;
  readonly #method: Method;
  readonly #waiting = new Waiters<number>();
  #askedAt = 0;
  #asking = false;
  /** Reads that have been answered. */
  #answers = 0;
  #ended: IwarpError | null = null;

  constructor(cm: CmConnection, operations: Operations, scheduler: Scheduler, settings: LivenessSettings) {
    this.#cm = cm;
    this.#operations = operations;
    this.#settings = settings;
    this.#scheduler = scheduler;
    this.#pulse = new Alarm(scheduler);
    this.#rest = new Alarm(scheduler);
    this.#method = this.#choose();
    const { heartbeat } = settings;
    if (this.#method === 'keep-alive') cm.setKeepAlive(true, heartbeat!.interval);
    else if (heartbeat !== null) this.#await(cm.counters().octetsIn);
    this.#watchUse();
  }

  #choose(): Method {
    const { heartbeat, foreign } = this.#settings;
    if (heartbeat === null) return 'none';
    const wanted = foreign ? heartbeat.foreign : 'read';
    return wanted === 'read' && !this.canRead ? 'keep-alive' : wanted;
  }

  /** Start-up has left us Reads. */
  get canRead(): boolean {
    return this.#cm.negotiated!.ord > 0;
  }

  /** Milliseconds to the peer's stack and back. */
  roundTrip(signal: AbortSignal | undefined): Promise<number> {
    if (this.#ended !== null) return Promise.reject(this.#ended);
    const measured = this.#waiting.wait(signal);
    if (!this.#asking && !this.#ask()) this.#retry();
    return measured;
  }

  /** The queue is full: there is room when the peer has taken something. */
  #retry(): void {
    this.#scheduler.at(this.#scheduler.now() + 1, () => {
      if (this.#ended !== null || this.#waiting.size === 0 || this.#asking) return;
      if (!this.#ask()) this.#retry();
    });
  }

  #ask(): boolean {
    if (!this.#operations.postHeartbeat(() => this.#answered())) return false;
    this.#asking = true;
    this.#askedAt = this.#scheduler.now();
    return true;
  }

  #answered(): void {
    this.#asking = false;
    this.#answers++;
    const took = this.#scheduler.now() - this.#askedAt;
    while (this.#waiting.next(took));
  }

  /** After an interval in which the peer sent nothing, ask. */
  #await(heard: number): void {
    const { interval } = this.#settings.heartbeat!;
    this.#pulse.set(interval, () => {
      const { octetsIn } = this.#cm.counters();
      if (octetsIn !== heard) this.#await(octetsIn);
      else this.#probe();
    });
  }

  #probe(): void {
    if (this.#method === 'write') {
      this.#operations.postSign();
      this.#await(this.#cm.counters().octetsIn);
      return;
    }
    if (!this.#asking) this.#ask();
    this.#expect(this.#operations.readsPosted);
  }

  /** Wait for an answer; `reads` is the number of our Reads up to the one that asks. */
  #expect(reads: number): void {
    const { timeout } = this.#settings.heartbeat!;
    const { octetsIn, octetsOut, messagesOut } = this.#cm.counters();
    const leaving = messagesOut.reads < reads;
    const answers = this.#answers;
    this.#pulse.setForSilence(timeout, () => {
      const now = this.#cm.counters();
      // An engine in a worker may have counted the answer's bytes before we asked it for its counters.
      if (now.octetsIn !== octetsIn || this.#answers !== answers) this.#await(now.octetsIn);
      else if (leaving && now.octetsOut - octetsOut >= LEAST_PROGRESS) this.#expect(reads);
      else this.#settings.dead(timeout);
    });
  }

  #watchUse(): void {
    const { idleTimeout } = this.#settings;
    if (idleTimeout === undefined) return;
    const before = this.#use;
    this.#rest.set(idleTimeout, () => {
      if (this.#operations.size === 0 && this.#use === before) this.#settings.idle();
      else this.#watchUse();
    });
  }

  get #use(): number {
    return this.#operations.started + this.#settings.arrived();
  }

  /** The connection is gone. */
  end(error: IwarpError): void {
    this.#ended = error;
    this.#pulse.stop();
    this.#rest.stop();
    this.#waiting.rejectAll(error);
  }
}
