// Runs every program of examples/ the way a reader would, and one that must fail.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT, runTs } from './support.ts';

/** What each program must say, in this order. */
const SAYS: Readonly<Record<string, readonly RegExp[]>> = {
  'kv.ts': [/get colour: blue/, /get size: large/, /get weight: \(nothing\)/, /all as expected/],
  'lock-and-counter.ts': [/fetchAdd counted to 100, lock and Read\/Write to 100/, /the lock was taken 100 times in \d+ tries/],
  'busy-main-thread.ts': [
    /main thread:/, /saw no Write/, /the Reads stalled/, /worker thread:/, /server computing: \d{3,} Reads/, /saw the Write in its memory \d+ [mu]s after/, /the Reads went on/,
  ],
  'chat.ts': [/a second ann was rejected: ann is here already/, /bob heard 200 lines of ann, in order/, /ann left, and bob was told/],
  'file-copy.ts': [/copied 8400953 octets; the receiver's SHA-256 agrees/, /equal, octet for octet/],
};

/** Ten seconds are for people. */
const ARGUMENTS: Readonly<Record<string, readonly string[]>> = { 'busy-main-thread.ts': ['1'] };

const programs = readdirSync(join(ROOT, 'examples')).filter((name) => name.endsWith('.ts'));

describe('examples/', () => {
  it('has nothing that is not run here, and nothing too long to read', () => {
    expect(programs.toSorted()).toEqual(Object.keys(SAYS).toSorted());
    for (const name of programs) {
      expect(readFileSync(join(ROOT, 'examples', name), 'utf8').split('\n').length - 1, name).toBeLessThanOrEqual(120);
    }
  });

  it.each(Object.entries(SAYS))('%s does what it says', async (name, expected) => {
    const { status, stdout, stderr } = await runTs(join('examples', name), ARGUMENTS[name]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    let from = 0;
    for (const pattern of expected) {
      const at = stdout.slice(from).search(pattern);
      expect(at, `${pattern} in:\n${stdout}`).toBeGreaterThanOrEqual(0);
      from += at;
    }
  });

  it('a client without a server ends with a status that is not 0', async () => {
    // Port 1 of the loopback address: nobody listens there.
    const { status, stderr } = await runTs(join('examples', 'kv.ts'), ['client', '127.0.0.1', '1']);
    expect(status).toBe(1);
    expect(stderr).toMatch(/ERR_CONNECT/);
  });
});
