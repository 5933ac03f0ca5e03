// Profile `rping` against our own rping: what it learns of the peer's memory, and what it says of a peer that
// asks for something else.

import { afterEach, describe, expect, it } from 'vitest';
import { run as rping } from '../../cli/rping.ts';
import { openRping } from '../profiles/rping.ts';
import { SelfTarget } from '../profiles/self-target.ts';
import { caseNamed, faults, fastCases, runAgainstSelf } from './support.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

/** Our `rping -s -P`, until the test ends. */
async function serve(...flags: string[]): Promise<number> {
  const abort = new AbortController();
  return new Promise((resolve) => {
    const ended = rping(['-s', '-P', '-a', '127.0.0.1', '-p', '0', ...flags], {
      out: () => undefined,
      err: () => undefined,
      listening: resolve,
      signal: abort.signal,
    });
    cleanups.push(async () => {
      abort.abort();
      await ended;
    });
  });
}

const profileFor = (port: number, size: number): ReturnType<typeof openRping> =>
  openRping({ target: { host: '127.0.0.1', port }, listen: { host: '127.0.0.1', port: 0 }, size });

describe('profile rping', () => {
  it.each([
    [['-S', '4096'], 4096],
    [['-S', '65535'], 65_535],
    [[], 4096],
    [[], 23],
  ])(
    'our rping -s -P %j with --size %i passes all that it can be asked',
    async (flags, size) => {
      const chosen = fastCases.filter(
        (entry) => entry.needs.includes('region') || entry.needs.includes('send'),
      );
      const results = await runAgainstSelf(
        chosen,
        ['initiator'],
        { strict: false },
        profileFor(await serve(...flags), size),
      );
      expect(faults(results.filter((result) => result.verdict !== 'skip'))).toEqual([]);
      expect(results.length).toBeGreaterThan(40);
    },
    60_000,
  );

  it('names the size of a Read Request that does not fit the advertisement', async () => {
    const target = new SelfTarget();
    cleanups.push(() => target.close());
    const { endpoint, port } = await target.call('listen', { host: '127.0.0.1', options: {} });
    const running = runAgainstSelf([caseNamed('ddp.write.at-end')], ['initiator'], {}, profileFor(port, 64));
    await target.call('completions', { endpoint, min: 1, ms: 5000 });
    await target.call('post', { endpoint, kind: 'read', length: 65, stag: 1, to: '0' });
    const [result] = await running;
    expect(result).toMatchObject({
      verdict: 'fail',
      expected: 'a Read Request for the 64 octets advertised',
      actual: 'a Read Request for 65 octets',
    });
  });
});
