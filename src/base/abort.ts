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
