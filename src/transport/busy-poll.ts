/**
 * Staying awake for the next arrival. A thread that sleeps has to be woken by the sending thread: on a
 * virtual machine that takes 20 to 60 us of the receiver's time and several of the sender's, ten times what
 * handling a small message takes (`latency` of bench/micro/datapath.ts, never polling). So when something has
 * come, the event loop goes round without sleeping for some microseconds more, as RDMA programs poll their
 * completion queues, and Linux its network cards (SO_BUSY_POLL) and its idle processors (haltpoll).
 *
 * Polling has to pay: an arrival within the window is a hit, a window in which nothing comes is a miss and
 * costs its length in processor time. After two misses in a row, or one in four, polling rests for a number
 * of arrivals, twice as many each time, until a trial hits again. Many bytes count as many arrivals: a stream
 * of large messages moves twice as much while its receiver is awake, and should not wait long for a trial.
 *
 * Bytes take the peer's time too: what answers a large message comes later than what answers a small one,
 * for it has to be read, checked and placed first, and the answer to be written. So bytes of either
 * direction lengthen the window, by what moving them takes at an ordinary rate. Without that a round trip of
 * 64 KiB, in which either side has more than the window to do, goes to sleep twice and takes twice as long.
 *
 * The sender may wait for the very processor on which this thread is looking out for it: two threads that
 * wake each other in turn are kept on one processor, and nothing can come within the window. So after longer
 * rests a trial lasts for milliseconds, in which the system finds that two want to run, and moves one of
 * them.
 */
import { environmentVariable } from '../base/environment.ts';
import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';
// Imported, not global: a test that replaces the global timers must not leave a ring without its reader, or
// a connection without its next turn.
import { setImmediate } from 'node:timers';
import { checkInteger } from '../base/errors.ts';

/**
 * Long enough for a peer that reads, answers and is awake itself; three quarters of the cost of a wake-up
 * where it is dear.
 */
const DEFAULT_US = 50;
const MAX_US = 10_000;
/** How much longer the window is for bytes that came or went: a gigabyte a second. */
const MS_PER_OCTET = 1e-6;
/** Windows at most: bytes beyond this many are handled while others still arrive. */
const MOST_WINDOWS = 5;
/**
 * A hit earns one, up to a limit, a miss takes several: a hit saves the wake-up, half a window, while a miss
 * costs a window, and where several threads want one processor another thread's time too. With none left
 * polling rests.
 */
const CREDIT = 8;
const MISS = 4;
/** Arrivals to let pass: the first time, and at most. */
const FIRST_REST = 8;
const LONGEST_REST = 16_384;
/** Each KiB of bytes counts as one more. */
const ARRIVAL_BITS = 10;
/**
 * After a rest of at least this number of arrivals a trial lasts this number of milliseconds, in which the
 * system's scheduler looks around.
 */
const LONG_TRIAL_FROM = 64;
const LONG_TRIAL_MS = 2;

/** The loop's turns and the clock, in milliseconds; replaced in tests. */
interface BusyPollClock {
  readonly now: () => number;
  readonly soon: (task: () => void) => void;
}

const REAL: BusyPollClock = { now: () => performance.now(), soon: (task) => void setImmediate(task) };

/**
 * A source that cannot wake the event loop without being asked to. It is polled in each turn while the loop
 * is kept awake.
 */
export interface PolledSource {
  /** Take the input that is ready; true if there was some. */
  look(): boolean;
  /** The loop stops looking: ask to be woken. */
  rest(): void;
}

/** One for an event loop. */
export class BusyPoll {
  /** How long nothing may come, in microseconds; 0: never poll. */
  readonly microseconds: number;
  readonly #clock: BusyPollClock;
  readonly #sources = new Set<PolledSource>();
  #awake = false;
  /** Something has come in this turn. */
  #seen = false;
  /** Bytes of both directions since the last turn in which something had come. */
  #octets = 0;
  /**
   * Milliseconds that the peer may have to do with them; they pass while this end waits, not while it works.
   */
  #grace = 0;
  #lastTurn = 0;
  #until = 0;
  #credit = CREDIT;
  /** Arrivals to let pass without polling. */
  #skip = 0;
  /** This is a trial after a long rest, and nothing has come yet. */
  #longTrial = false;
  #nextRest = FIRST_REST;

  constructor(microseconds: number, clock: BusyPollClock = REAL) {
    this.microseconds = microseconds;
    this.#clock = clock;
  }

  /** The event loop goes round without sleeping, and every source will be looked at again. */
  get awake(): boolean {
    return this.#awake;
  }

  /**
   * Input has come from outside, `octets` bytes or a message of no size. True if the event loop is
   * {@link awake} now.
   */
  arrived(octets = 0): boolean {
    this.#seen = true;
    if (this.#awake) {
      this.#octets += octets;
      return true;
    }
    if (this.microseconds === 0) return false;
    if (this.#skip > 0) {
      this.#skip = Math.max(0, this.#skip - 1 - (octets >>> ARRIVAL_BITS));
      return false;
    }
    this.#awake = true;
    this.#octets = octets;
    this.#grace = 0;
    // the window begins with the first turn: the work that this arrival causes may take its time
    this.#until = Number.POSITIVE_INFINITY;
    this.#clock.soon(this.#turn);
    return true;
  }

  /** Bytes go out, which the peer has to read before it answers. */
  sent(octets: number): void {
    if (this.#awake) this.#octets += octets;
  }

  /** Look at this source too while awake. */
  watch(source: PolledSource): void {
    this.#sources.add(source);
  }

  unwatch(source: PolledSource): void {
    this.#sources.delete(source);
  }

  /**
   * An error that a source throws in a turn costs only that turn: the next turn is still scheduled, since
   * nothing rings while this claims to be awake.
   */
  readonly #turn = (): void => {
    let goOn = true;
    try {
      goOn = this.#goRound();
    } finally {
      if (goOn) this.#clock.soon(this.#turn);
    }
  };

  /** One turn; false if it was the last one. */
  #goRound(): boolean {
    for (const source of this.#sources) if (source.look()) this.#seen = true;
    const now = this.#clock.now();
    if (this.#seen) {
      this.#seen = false;
      if (this.#until !== Number.POSITIVE_INFINITY) this.#hit();
      const window = this.microseconds / 1000;
      this.#grace = Math.min(this.#grace + this.#octets * MS_PER_OCTET, MOST_WINDOWS * window);
      this.#octets = 0;
      this.#until = now + Math.max(window + this.#grace, this.#longTrial ? LONG_TRIAL_MS : 0);
    } else if (now >= this.#until) {
      this.#awake = false;
      this.#miss();
      for (const source of this.#sources) source.rest();
      return false;
    } else {
      this.#grace = Math.max(0, this.#grace - (now - this.#lastTurn));
    }
    this.#lastTurn = now;
    return true;
  }

  #hit(): void {
    this.#longTrial = false;
    if (this.#credit < CREDIT) this.#credit++;
    else this.#nextRest = FIRST_REST;
  }

  #miss(): void {
    this.#credit = Math.max(0, this.#credit - MISS);
    if (this.#credit > 0) return;
    this.#skip = this.#nextRest;
    this.#longTrial = this.#skip >= LONG_TRIAL_FROM;
    this.#nextRest = Math.min(2 * this.#nextRest, LONGEST_REST);
  }
}

/**
 * How long to poll if this is asked for, in microseconds: IWARP_BUSY_POLL decides where nothing is. With one
 * processor never by default: the sender would need it.
 *
 * @throws ERR_INVALID_ARGUMENT for anything but an integer from 0 to 10,000
 */
export function resolveBusyPoll(asked?: number): number {
  if (asked !== undefined) return checkInteger('options.busyPoll', asked, 0, MAX_US);
  const word = environmentVariable('IWARP_BUSY_POLL');
  if (word !== undefined && word !== '')
    return checkInteger('IWARP_BUSY_POLL', /^\d{1,9}$/.test(word) ? Number(word) : word, 0, MAX_US);
  return availableParallelism() > 1 ? DEFAULT_US : 0;
}
