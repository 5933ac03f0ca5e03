// A small seeded generator (mulberry32): the same seed and case name give the same octets on every machine,
// which is what makes a failing case repeatable.

export interface Random {
  /** An unsigned 32-bit number. */
  u32(): number;
  /** An integer from 0 to `below` - 1. */
  below(below: number): number;
  /** `length` arbitrary octets. */
  octets(length: number): Uint8Array;
}

/** A generator for one run of one case. */
export function createRandom(seed: number, name: string): Random {
  let state = seed >>> 0;
  for (let i = 0; i < name.length; i++)
    state = (Math.imul(state ^ name.charCodeAt(i), 0x01000193) + 0x9e3779b9) >>> 0;
  const u32 = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  return {
    u32,
    below: (below) => u32() % below,
    octets: (length) => Uint8Array.from({ length }, () => u32() >>> 24),
  };
}
