/** Finds the word that a mistyped one was meant to be. */

/** Longer words are no typing mistakes. */
const MAX_LENGTH = 40;

/** The word of `words` that the fewest changes make of `typed`, if it is near enough to be meant. */
export function nearest(typed: string, words: readonly string[]): string | undefined {
  if (typed.length > MAX_LENGTH) return undefined;
  const allowed = Math.max(1, Math.floor(typed.length / 3));
  const ranked = words
    .map((word) => ({ word, changes: changesBetween(typed, word) }))
    .sort((a, b) => a.changes - b.changes);
  return ranked[0] !== undefined && ranked[0].changes <= allowed ? ranked[0].word : undefined;
}

/** Letters to insert, remove, replace or exchange with their neighbour. */
function changesBetween(one: string, other: string): number {
  const rows: number[][] = [Array.from({ length: other.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= one.length; i++) {
    const row = [i];
    for (let j = 1; j <= other.length; j++) {
      const same = one[i - 1] === other[j - 1] ? 0 : 1;
      let least = Math.min(rows[i - 1]![j]! + 1, row[j - 1]! + 1, rows[i - 1]![j - 1]! + same);
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1])
        least = Math.min(least, rows[i - 2]![j - 2]! + 1);
      row.push(least);
    }
    rows.push(row);
  }
  return rows[one.length]![other.length]!;
}
