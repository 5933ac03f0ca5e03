/**
 * Code of the program that watches the stack, as traces do: it is called in the middle of protocol work, and
 * what it calls may not drive that work.
 */

/** Watchers that are being called now. */
let watching = 0;

/** Call a watcher. */
export function observed(watch: () => void): void {
  watching++;
  try {
    watch();
  } finally {
    watching--;
  }
}

/** Whether this call comes from a watcher. */
export function isObserving(): boolean {
  return watching > 0;
}
