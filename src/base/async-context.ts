/**
 * The asynchronous context in which functions of the program run: the store of its AsyncLocalStorage, and
 * what `node:async_hooks` shows.
 *
 * One thread serves all connections of a program, and one tick or one message from an engine brings news of
 * many. So a function of the program would run in the context of another part of it. What calls functions of
 * the program therefore captures the context in which the program asked for that, and runs them there.
 *
 * The host is not asked from here, since this folder knows none: `transport/scheduler.ts` brings Node's.
 */

/** A context that has been captured. Node's AsyncResource is one. */
export interface AsyncContext {
  /** Call `task` in the context, with `self` as its `this`, and return what it returns. */
  runInAsyncScope<This, Args extends unknown[], Result>(
    task: (this: This, ...args: Args) => Result,
    self: This,
    ...args: Args
  ): Result;
}

/** The context of one call, which ends with it. */
interface CallContext extends AsyncContext {
  /** Nothing more runs in it. */
  emitDestroy(): unknown;
}

/** What a context is for; hooks of `node:async_hooks` see these names. docs/engines.md lists them. */
type ContextType =
  | 'IWARP_CONNECTION'
  | 'IWARP_LISTENER'
  | 'IWARP_CQ'
  | 'IWARP_CHANNEL'
  | 'IWARP_DEVICE'
  | 'IWARP_TIMEOUT'
  | 'IWARP_CALL';

/** Where contexts come from. */
interface ContextSource {
  /** The present context; hooks learn of its end when nothing refers to it. */
  capture(type: ContextType): AsyncContext;
  /** The present context, for one call. */
  begin(type: ContextType): CallContext;
}

/** The functions run where they are called. */
const HERE: CallContext = {
  runInAsyncScope: (task, self, ...args) => task.apply(self, args),
  emitDestroy: () => undefined,
};

let source: ContextSource = { capture: () => HERE, begin: () => HERE };

/** Take contexts from the host. */
export function takeContextsFrom(host: ContextSource): void {
  source = host;
}

/** The present context. */
export function captureContext(type: ContextType): AsyncContext {
  return source.capture(type);
}

/**
 * A function that calls `callback` once, in the present context. What a program hands to one call is called
 * back in the context of that call.
 */
export function inThisContext<Args extends unknown[]>(
  callback: (...args: Args) => void,
): (...args: Args) => void {
  const context = source.begin('IWARP_CALL');
  return (...args) => {
    try {
      context.runInAsyncScope(callback, undefined, ...args);
    } finally {
      context.emitDestroy();
    }
  };
}

/**
 * The arguments of a `write` or `end` of a stream, with the callback among them in the present context. A
 * chunk that waits behind others is written when they have been, in the context of their call.
 */
export function withCallbackHere<Args extends unknown[]>(args: Args): Args {
  return args.map((value) =>
    typeof value === 'function' ? inThisContext(value as (...values: unknown[]) => void) : value,
  ) as Args;
}
