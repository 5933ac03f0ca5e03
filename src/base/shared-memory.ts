/**
 * Memory shared between threads that nobody uses any longer. V8 counts the bytes of buffers to know when to
 * look for garbage, but not those of shared ones, each of which several threads may hold. A thread that
 * does little else would never look, and gigabytes of large messages stay.
 */

/** Bytes of shared memory after which a thread looks for garbage; V8 takes as much of other buffers. */
const MUCH = 64 << 20;
/** Memory whose pages nobody touches, so that the system gives none; V8 counts it all the same. */
const PRESSURE = 2 * MUCH;

let octets = 0;

/** This thread has taken, or let go, as many bytes of shared memory. */
export function countShared(length: number): void {
  octets += length;
  if (octets < MUCH) return;
  octets = 0;
  try {
    void new ArrayBuffer(PRESSURE);
  } catch {
    // The process has no address space left: V8 looks for garbage before it says so.
  }
}
