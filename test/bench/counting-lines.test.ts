/**
 * The lines that the probe `counters` takes out are where it looks for them: without this nothing but a full
 * run of the benchmark would tell.
 */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { COUNTING_FILES, withoutCounting } from '../../bench/micro/counting-lines.ts';

it.each(COUNTING_FILES)('%s.ts counts where it is said to, and nowhere else', (file) => {
  const text = readFileSync(new URL(`../../src/${file}.ts`, import.meta.url), 'utf8');
  const bare = withoutCounting(file, text);
  expect(bare.length).toBeLessThan(text.length);
  expect(bare).not.toMatch(
    /^\s+.*(fpdus|payloadOctets|segments|octetsIn|octetsOut|messages\[.*\]) ?(\+\+|\+=)/m,
  );
  expect(bare).not.toMatch(/^\s+(if \(.*\) )?((this|out)\.count|countReceived)\(.*\);$/m);
});

it('a file without its lines is an error that names it', () => {
  expect(() => withoutCounting('rdmap/sender', '')).toThrow(/^rdmap\/sender: 0 lines match/);
});
