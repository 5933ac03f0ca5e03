/** AbortSignals, as every call that waits takes them. */
import { checkOptions, IwarpError, show, type Names } from './errors.ts';

/** What every call that waits takes. */
export interface WaitOptions {
  /** Gives up waiting: the promise rejects with ERR_ABORTED. */
  readonly signal?: AbortSignal | undefined;
}

const WAIT_NAMES: Names<WaitOptions> = { signal: true };

/** Throws ERR_INVALID_ARGUMENT unless `options` is an object of known names whose `signal` is undefined or an AbortSignal; returns the signal. */
export function signalOf(options: WaitOptions, known: Names<WaitOptions> = WAIT_NAMES): AbortSignal | undefined {
  checkOptions('options', options, known);
  return checkSignal(options.signal);
}

/** Throws ERR_INVALID_ARGUMENT unless `signal` is undefined or an AbortSignal; returns it. */
export function checkSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal instanceof AbortSignal) return signal;
  throw new IwarpError('ERR_INVALID_ARGUMENT', `options.signal must be an AbortSignal, got ${show(signal)}`);
}

/** The rejection for an aborted wait. */
export function abortError(signal: AbortSignal): IwarpError {
  return new IwarpError('ERR_ABORTED', 'the operation was aborted', { cause: signal.reason });
}

/** What to do when a signal is aborted, in the order in which it was asked for, and the one listener that does it. */
interface Watch {
  readonly tasks: Set<() => void>;
  readonly listener: () => void;
}

const watches = new WeakMap<AbortSignal, Watch>();

/**
 * Run `task` when `signal`, which has not been, is aborted; returns what calls that off. All that wait on one signal share one listener: a program may give a
 * signal to a thousand operations, and Node warns of a leak where a signal has more than ten.
 */
export function whenAborted(signal: AbortSignal, task: () => void): () => void {
  const watch = watches.get(signal) ?? watchFor(signal);
  watch.tasks.add(task);
  return () => {
    watch.tasks.delete(task);
    if (watch.tasks.size > 0 || watches.get(signal) !== watch) return;
    watches.delete(signal);
    signal.removeEventListener('abort', watch.listener);
  };
}

function watchFor(signal: AbortSignal): Watch {
  const tasks = new Set<() => void>();
  const listener = (): void => {
    watches.delete(signal);
    for (const task of tasks) task();
  };
  const watch = { tasks, listener };
  watches.set(signal, watch);
  signal.addEventListener('abort', listener, { once: true });
  return watch;
}
