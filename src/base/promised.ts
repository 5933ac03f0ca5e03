/** Calls that return promises, also for their mistakes. */
import { endsConnection } from './errors.ts';

/**
 * The result of `call`; where it throws, a promise that rejects. An async function around it would do the
 * same and cost one more promise and two more turns of the microtask queue: of a Write of 64 bytes that was
 * a sixth (`write 64, 64 under way` of bench/micro/layers.ts).
 */
export function promised<T>(call: () => Promise<T>): Promise<T> {
  try {
    return call();
  } catch (error) {
    const promise = Promise.reject<T>(error as Error);
    return endsConnection(error) ? handled(promise) : promise;
  }
}

const ignore = (): void => undefined;

/**
 * Mark a promise as handled and return it. A caller that awaits it still gets the rejection; a caller that
 * does not await it causes no `unhandledRejection`, which would end the process.
 */
export function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(ignore);
  return promise;
}
