// Runs every program of examples/ the way a reader would, and one that must fail.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT, runTs } from './support.ts';
import { FULL } from '../support/depth.ts';

const ENGINES = ['thread', 'worker'] as const;

/** What each program must say, in this order. */
const SAYS: Readonly<Record<string, readonly RegExp[]>> = {
  'kv.ts': [/get colour: blue/, /get size: large/, /get weight: \(nothing\)/, /all as expected/],
  'owned-buffers.ts': [
    /while it is away: 0 bytes/,
    /back again: 1048576 bytes, the peer has true/,
    /still readable: 1/,
    /the peer has what was lent: true/,
  ],
  'kv-scoreboard.ts': [
    /ann: \d+\nbob: \d+\ncem: \d+\nall: \d+/,
    /last headline of 12: /,
    /no point was lost/,
  ],
  'lock-and-counter.ts': [
    /fetchAdd counted to 100, lock and Read\/Write to 100/,
    /the lock was taken 100 times in \d+ tries/,
  ],
  'busy-main-thread.ts': [
    /main thread:/,
    /saw no Write/,
    /the Reads stalled/,
    /worker thread:/,
    /server computing: \d{3,} Reads/,
    /saw the Write in its memory \d+ [mu]s after/,
    /the Reads went on/,
  ],
  'chat.ts': [
    /a second ann was rejected: ann is here already/,
    /bob heard 200 lines of ann, in order/,
    /ann left, and bob was notified/,
  ],
  'file-resume.ts': [
    /the sender was killed, and another goes on/,
    /the receiver was killed, and comes back/,
    /sent \d+ bytes/,
    /1000 files are equal/,
  ],
  'job-queue.ts': [/300 jobs are done, although a worker was lost/, /a job that fails says so/],
  'qp-redis.ts': [
    /PING: PONG/,
    /SET wire qpip: OK/,
    /GET wire: qpip/,
    /GET nothing of the kind: \(nil\)/,
    /ended graceful/,
  ],
  'http-upgrade.ts': [
    /without the token: the server refused the upgrade to iwarp: 403 Forbidden/,
    /with it: 16777216 bytes are 7/,
    /and the port still serves a page/,
  ],
  'extended-socket.ts': [
    /server, plain: RDMA, please/,
    /server, RDMA: all is written/,
    /server: 16777216 bytes are 7/,
    /client: true, the server's change has been read/,
    /client: 17 posts have completed, the first is number 100/,
  ],
  'udp-holes.ts': [
    /10 % of all datagrams are lost/,
    /placing\n/,
    / ms {2}#[#.]*\.+#/,
    /the Send has arrived after \d+ ms/,
    /placing: up to [1-9]\d* segments in their place above a hole/,
    /ordered\n/,
    / ms {2}#+\.+\n/,
    /ordered: up to 0 segments in their place above a hole/,
  ],
  'udp-reads.ts': [
    /ordered: Reads in the order of their completion, with milliseconds\n1 \(\d+\) 2 \(\d+\) 3 /,
    /ordered: [\d.]+ ms on average/,
    /placed: Reads in the order of their completion, with milliseconds\n/,
    /placed: [\d.]+ ms on average/,
  ],
  'tls.ts': [/hello alice, by TLSv1.3/, /a client with another certificate was refused/],
  'shared-whiteboard.ts': [/\.\| one whiteboard \|\./, /all see the same board/],
  'shared-barrier.ts': [/20 rounds, nobody was ever a round ahead/],
  'file-copy.ts': [/copied 8400953 octets; the receiver's SHA-256 agrees/, /equal, octet for octet/],
};

/** Ten seconds are for people. */
const ARGUMENTS: Readonly<Record<string, readonly string[]>> = { 'busy-main-thread.ts': ['1'] };

const programs = readdirSync(join(ROOT, 'examples')).filter((name) => name.endsWith('.ts'));

describe('examples/', () => {
  it('has nothing that is not run here, and nothing too long to read', () => {
    expect(programs.toSorted()).toEqual(Object.keys(SAYS).toSorted());
    for (const name of programs) {
      expect(
        readFileSync(join(ROOT, 'examples', name), 'utf8').split('\n').length - 1,
        name,
      ).toBeLessThanOrEqual(145);
    }
  });

  const runs = Object.entries(SAYS).flatMap(([name, expected]) =>
    // Once in each engine in the full run, and in one of the two otherwise; what shows times, there only.
    ENGINES.filter((_, i) => FULL || (i === name.length % 2 && ARGUMENTS[name] === undefined)).map(
      (engine) => [name, engine, expected] as const,
    ),
  );
  it.each(runs)('%s does what it says, engine %s', async (name, engine, expected) => {
    const env = { IWARP_ENGINE: engine };
    const { status, stdout, stderr } = await runTs(join('examples', name), ARGUMENTS[name], env);
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
