// Selects the cases that a command line means.

import { cases } from '../cases/index.ts';
import type { Case } from '../cases/define.ts';

/**
 * Cases named by these words, in the order of the suite; all of them if there is no word. A word that is a
 * case's whole id means that case alone (so that a replay runs one case), any other all whose ids begin with
 * it. Slow cases need `slow`, or to be named in full.
 */
export function selectCases(words: readonly string[], slow: boolean): Case[] {
  const ids = new Set(cases.map((entry) => entry.id));
  const prefixes = words.filter((word) => !ids.has(word));
  return cases.filter((entry) => {
    if (words.includes(entry.id)) return true;
    return (
      (slow || !entry.slow) && (words.length === 0 || prefixes.some((prefix) => entry.id.startsWith(prefix)))
    );
  });
}
