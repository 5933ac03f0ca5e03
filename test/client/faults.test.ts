/**
 * A part of the fault matrix (`scripts/faults.ts`): two faults, or every kind, in both engines, and the same
 * program over ws, whose failures show that the account can fail.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { describe, expect, it } from 'vitest';
import { deadPath, isFine, table } from '../../scripts/faults.ts';
import { seededRandom } from '../../src/base/random.ts';
import { Path } from '../../scripts/faults/path.ts';
import { Program, run, SCENARIOS, type Outcome } from '../../scripts/faults/run.ts';
import { LIMIT, type App } from '../../scripts/faults/subjects.ts';
import { FULL } from '../support/depth.ts';
import { plain } from '../support/plain.ts';

/** One phase for each fault of a path, beside the faults of a server. */
const CHOSEN = [
  'cut, requests under way',
  'kill -9',
  ...(FULL ? ['stall, start-up', 'reset, first exchange', 'stall, idle', 'SIGSTOP'] : []),
];

/** A child namespace whose user may do there what root may. */
const mayUnshare = spawnSync('unshare', ['-rn', 'ip', 'link', 'add', 'v0', 'type', 'veth']).status === 0;

const sums = ({ late, lost, doubled, wrong, again }: Outcome): object => ({
  late,
  lost,
  doubled,
  wrong,
  back: again !== null,
});
const SERVER = plain('scripts/faults/server.ts');
const FINE = { late: 0, lost: 0, doubled: 0, wrong: 0, back: true };

describe.each(['iwarp, thread', 'iwarp, worker'] as const)('%s', (subject) => {
  it.each(CHOSEN)(
    'goes on after %s; each operation ends in time and once',
    async (scenario) => {
      expect(SCENARIOS).toHaveProperty([scenario]);
      const outcome = await run(subject, scenario, 11, SERVER);
      expect(sums(outcome)).toEqual(FINE);
      expect(outcome.succeeded).toBeGreaterThan(20);
    },
    60_000,
  );

  if (FULL)
    it.runIf(mayUnshare)(
      'goes on after a dead path',
      async () => {
        expect(sums(await deadPath(subject, 12))).toEqual(FINE);
      },
      60_000,
    );
});

if (FULL)
  it('the same program over ws does not come back when its path falls silent', async () => {
    const outcome = await run('ws', 'stall, requests under way', 13, SERVER);
    expect(isFine(outcome)).toBe(false);
    expect(outcome.again).toBeNull();
    const row = /^\| stall, requests under way \| – \| – \| never in 1 of 1 \| – \|$/m;
    expect(table([outcome])).toMatch(row);
  }, 60_000);

describe('the account itself', () => {
  /** A client whose calls take `ms`. */
  const appOf = (ms: number): App => ({
    call: async (body) => {
      await new Promise((resolve) => setTimeout(resolve, ms));
      return body;
    },
    others: {},
    close: async () => undefined,
  });

  it('counts an operation that ends after its limit as late, and one that never ends as lost', async () => {
    const [slow, endless] = [LIMIT + 700, 1e9].map((ms) => new Program(appOf(ms), seededRandom(1), 'late'));
    slow!.start();
    endless!.start();
    const unended = await Promise.all([slow!.stop(), endless!.stop()]);
    expect(slow!.late).toBe(slow!.calls);
    expect(unended).toEqual([0, endless!.calls]);
  }, 60_000);

  it('breaks the next connection when the one that it waited for has ended by itself', async () => {
    const server = net.createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const path = await new Path((server.address() as net.AddressInfo).port, '127.0.0.1').listen('127.0.0.1');
    const dial = async (): Promise<net.Socket> => {
      const socket = net.connect(path.port, '127.0.0.1').on('error', () => undefined);
      await once(socket, 'connect');
      return socket;
    };
    const broken = path.break({ fault: 'reset', from: 'client', after: 10 });
    const first = await dial();
    first.end('short');
    await once(first.resume(), 'close');
    (await dial()).write('more than ten bytes');
    await broken;
    path.close();
    server.close();
  });
});
