/** AbortSignals, as every call that waits takes them. */
import { AbortController, clearTimeout as stopTimer, performance, setTimeout as startTimer } from './host.ts';
import { checkInteger, checkOptions, IwarpError, show, type Names } from './errors.ts';

/** Longest time limit in milliseconds: a timer takes no more. */
export const MAX_TIME_LIMIT = 0x7fff_ffff;

/** What every call that waits takes. */
export interface WaitOptions {
  /** Gives up waiting: the promise rejects with ERR_ABORTED. */
  readonly signal?: AbortSignal | undefined;
  /** Milliseconds that the call may take: then the promise rejects with ERR_TIMEOUT. Default: no limit. */
  readonly timeout?: number | undefined;
}

const WAIT_NAMES: Names<WaitOptions> = { signal: true, timeout: true };

/**
 * Throws ERR_INVALID_ARGUMENT unless `options` is an object of known names whose `signal` is undefined or an
 * AbortSignal; returns the signal, or with a `timeout` one that is aborted at the time limit too. `limit` is
 * the limit without a `timeout`.
 */
export function signalOf(
  options: WaitOptions,
  known: Names<WaitOptions> = WAIT_NAMES,
  limit?: number,
): AbortSignal | undefined {
  checkOptions('options', options, known);
  const signal = checkSignal(options.signal);
  const { timeout = limit } = options;
  if (timeout === undefined) return signal;
  const ms = timeout === limit ? timeout : checkInteger('options.timeout', timeout, 1, MAX_TIME_LIMIT);
  return withTimeLimit(signal, ms, 'the operation');
}

/** The signals of time limits. */
const limits = new WeakMap<AbortSignal, TimeLimit>();

/** The timer behind a signal. It runs while something waits for the signal, and keeps no process alive. */
class TimeLimit {
  readonly controller: AbortController = new AbortController();
  readonly #parent: AbortSignal | undefined;
  readonly #error: IwarpError;
  readonly #end: number;
  #timer: ReturnType<typeof startTimer> | null = null;
  #stop: (() => void) | null = null;

  constructor(parent: AbortSignal | undefined, ms: number, what: string) {
    this.#parent = parent;
    this.#error = new IwarpError('ERR_TIMEOUT', `${what} took longer than its limit of ${ms} ms`);
    this.#end = performance.now() + ms;
    this.run();
  }

  /** Nothing where it runs already, or is over. An abort follows later, also one that is due. */
  run(): void {
    const parent = this.#parent;
    if (this.#timer !== null || this.controller.signal.aborted) return;
    const gone = parent?.aborted === true;
    // The sum of a time and the longest limit is rounded: the rest may come out as a millisecond more.
    const left = gone ? 0 : Math.min(MAX_TIME_LIMIT, Math.max(0, Math.ceil(this.#end - performance.now())));
    const timer = startTimer(() => this.#abort(gone ? parent.reason : this.#error), left);
    (timer as { unref?: () => void }).unref?.();
    this.#timer = timer;
    if (parent !== undefined && !gone) this.#stop = whenAborted(parent, () => this.#abort(parent.reason));
  }

  #abort(reason: unknown): void {
    this.rest();
    this.controller.abort(reason);
  }

  /** Nothing waits for the signal at present. */
  rest(): void {
    if (this.#timer !== null) stopTimer(this.#timer);
    this.#timer = null;
    this.#stop?.();
    this.#stop = null;
  }
}

/**
 * A signal that is aborted with `signal`, or after `ms` milliseconds; `what` took too long, says its error.
 * While nothing waits for it ({@link whenAborted}) its timer rests.
 */
export function withTimeLimit(signal: AbortSignal | undefined, ms: number, what: string): AbortSignal {
  if (signal?.aborted === true) return signal;
  const limit = new TimeLimit(signal, ms, what);
  limits.set(limit.controller.signal, limit);
  return limit.controller.signal;
}

/**
 * Throws ERR_INVALID_ARGUMENT unless `signal` is undefined or works as an AbortSignal; returns it. A signal
 * may be of another class (a polyfill, jsdom, another realm): as in Node, what counts is `aborted` and the
 * event.
 */
export function checkSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || isSignal(signal)) return signal;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `options.signal must be an AbortSignal, got ${show(signal)}`);
}

function isSignal(value: unknown): value is AbortSignal {
  if (typeof value !== 'object' || value === null) return false;
  const { aborted, addEventListener, removeEventListener } = value as Partial<AbortSignal>;
  return (
    typeof aborted === 'boolean' &&
    typeof addEventListener === 'function' &&
    typeof removeEventListener === 'function'
  );
}

/** The rejection for an aborted wait; where a time limit has aborted it, ERR_TIMEOUT. */
export function abortError(signal: AbortSignal): IwarpError {
  const reason: unknown = signal.reason;
  if (reason instanceof IwarpError && limits.has(signal)) return new IwarpError(reason.code, reason.message);
  return new IwarpError('ERR_ABORTED', 'the operation was aborted', { cause: signal.reason });
}

/**
 * What to do when a signal is aborted, in the order in which it was asked for, and the one listener that does
 * it.
 */
interface Watch {
  readonly tasks: Set<() => void>;
  readonly listener: () => void;
}

const watches = new WeakMap<AbortSignal, Watch>();

/**
 * Run `task` when `signal`, which has not been, is aborted; returns what calls that off. All that wait on one
 * signal share one listener: a program may give a signal to a thousand operations, and Node warns of a leak
 * where a signal has more than ten.
 */
export function whenAborted(signal: AbortSignal, task: () => void): () => void {
  const watch = watches.get(signal) ?? watchFor(signal);
  watch.tasks.add(task);
  limits.get(signal)?.run();
  return () => {
    watch.tasks.delete(task);
    if (watch.tasks.size > 0 || watches.get(signal) !== watch) return;
    watches.delete(signal);
    signal.removeEventListener('abort', watch.listener);
    limits.get(signal)?.rest();
  };
}

function watchFor(signal: AbortSignal): Watch {
  const tasks = new Set<() => void>();
  const listener = (): void => {
    watches.delete(signal);
    signal.removeEventListener('abort', listener); // a signal of another class may not know `once`
    for (const task of tasks) task();
  };
  const watch = { tasks, listener };
  watches.set(signal, watch);
  signal.addEventListener('abort', listener, { once: true });
  return watch;
}
