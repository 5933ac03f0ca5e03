/**
 * What the stack uses of its host, taken once when it is loaded: a program, or its tests, may replace a
 * global later (a fake clock, another `crypto`), and connections go on all the same. Modules that may import
 * Node's take from those what they have; this is for the others, and for what no module of Node exports.
 *
 * A global may be missing, in a browser or by an option of Node: `crypto` is then Node's own.
 */

/** A module of the runtime, without an import of it, which a bundle for a browser could not have. */
function builtin<T>(name: string): T | undefined {
  try {
    const { process } = globalThis as { process?: { getBuiltinModule?: (name: string) => unknown } };
    return process?.getBuiltinModule?.(name) as T | undefined;
  } catch {
    return undefined; // no such module, or no permission
  }
}

export const AbortController: typeof globalThis.AbortController = globalThis.AbortController;
export type AbortController = InstanceType<typeof globalThis.AbortController>;
/** Undefined in a browser: it is for layers that need Node anyway. */
export const Buffer: typeof globalThis.Buffer = globalThis.Buffer;
export type Buffer = globalThis.Buffer;
export const clearTimeout: typeof globalThis.clearTimeout = globalThis.clearTimeout;
export const performance: Pick<typeof globalThis.performance, 'now'> = globalThis.performance;
export const queueMicrotask: typeof globalThis.queueMicrotask = globalThis.queueMicrotask;
export const setTimeout: typeof globalThis.setTimeout = globalThis.setTimeout;
export const structuredClone: typeof globalThis.structuredClone = globalThis.structuredClone;
export const TextEncoder: typeof globalThis.TextEncoder = globalThis.TextEncoder;

/** The part of Web Crypto that the stack needs. */
type RandomSource = Pick<typeof globalThis.crypto, 'getRandomValues'>;

/** The operating system's random numbers; undefined where the host has none. */
export const crypto: RandomSource | undefined =
  builtin<{ readonly webcrypto: RandomSource }>('node:crypto')?.webcrypto ??
  (globalThis as { crypto?: RandomSource }).crypto;
