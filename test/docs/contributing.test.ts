// CONTRIBUTING.md: each place that "Finding your way" names is there, with the name that stands behind it.
import { readFileSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../examples/support.ts';

const text = readFileSync(join(ROOT, 'CONTRIBUTING.md'), 'utf8');
const section = text.split('## Finding your way')[1]!.split('\n## ')[0]!;
const rows = [...section.matchAll(/^\| (?!Where|---)(.+?) \| (.+) \|$/gm)].map(([, question, place]) => ({
  question: question!,
  place: place!,
}));

describe('"Finding your way"', () => {
  it('answers twenty questions and more', () => {
    expect(rows.length).toBeGreaterThanOrEqual(20);
    expect(new Set(rows.map(({ question }) => question)).size).toBe(rows.length);
  });

  it.each(rows)('$question', ({ place }) => {
    const links = [...place.matchAll(/\]\(([^)#]+)\)(?:: `(\w+)`)?/g)];
    expect(links.length).toBeGreaterThan(0);
    for (const [, file, name] of links) {
      const path = join(ROOT, file!);
      expect(existsSync(path), file).toBe(true);
      if (name === undefined) continue;
      const declared = new RegExp(`(?:class|interface|function|const|type)\\s+${name}\\b`);
      expect(readFileSync(path, 'utf8'), file).toMatch(declared);
    }
    // A name before its file: `VirtualTime` in [src/…](src/…).
    for (const [, name, file] of place.matchAll(/`(\w+)` in \[[^\]]+\]\(([^)]+)\)/g))
      expect(readFileSync(join(ROOT, file!), 'utf8'), file).toMatch(new RegExp(`\\b${name}\\b`));
  });
});
