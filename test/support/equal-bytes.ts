/**
 * Vitest compares typed arrays element by element, by their keys: a tenth of a second for 64 KiB. Equal bytes
 * are found out at once; where they differ, or something else does, Vitest's own comparison says so.
 */
import { expect } from 'vitest';

expect.addEqualityTesters([
  (a: unknown, b: unknown) =>
    a instanceof Uint8Array &&
    b instanceof Uint8Array &&
    a.constructor === b.constructor &&
    Buffer.compare(a, b) === 0
      ? true
      : undefined,
]);
