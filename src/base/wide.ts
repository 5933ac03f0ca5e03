/**
 * Numbers that outgrow 31 bits. V8 keeps a field as a small integer until the first number that is none. Then all that has been compiled
 * for such objects is thrown away: a connection at full speed stumbles in its first second, when its octets pass 2^31.
 */

/**
 * Zero for a field that will count octets: minus zero is no small integer, so the field holds doubles from the start. Whoever shows such a
 * field adds 0 to it first, which makes zero of minus zero and changes nothing else.
 */
export const WIDE_ZERO = -0;

/**
 * Places of a ring for so many entries, a power of two: `counter & (places - 1)` finds the place of a counter that runs freely. A
 * remainder costs little until the counter outgrows 31 bits, and then a fifth of the message rate.
 */
export function ringPlaces(entries: number): number {
  return entries <= 1 ? 1 : 1 << (32 - Math.clz32(entries - 1));
}
