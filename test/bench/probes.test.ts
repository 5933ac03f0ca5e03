/** The hostile peers break no rule, and the report of a run holds all its parts. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { custom, spec } from '../../bench/experiments.ts';
import { judgeGoals } from '../../bench/goals.ts';
import { guardRatios, type GuardResult } from '../../bench/micro/guard.ts';
import { parseBench } from '../../bench/options.ts';
import { attack, ATTACKS } from '../../bench/peers/hostile.ts';
import { serve } from '../../bench/peers/verbs.ts';
import { filling, keepUnderWay, Tally } from '../../bench/peers/peer.ts';
import { ratioOf, runMicro } from '../../bench/probes/probe.ts';
import { reasonOf } from '../../bench/reason.ts';
import { report } from '../../bench/report/html.ts';
import { probeTable, table } from '../../bench/report/table.ts';
import { answers } from '../../bench/scenarios.ts';
import { summarize } from '../../bench/summary.ts';
import type { Slice } from '../../bench/runner.ts';
import type { ExperimentResult, ProbeResult, RunResult } from '../../bench/types.ts';
import { plain } from '../support/plain.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a hostile peer', () => {
  // What it sends without end goes on arriving: the server has found nothing to terminate it for.
  it.each(ATTACKS.filter((kind) => !['unread', 'half', 'begun'].includes(kind)))(
    '%s keeps to the rules',
    async (kind) => {
      const verb = kind === 'empty-sends' ? 'send' : 'write';
      const { place, side: server } = await serve(
        { ...spec('verbs', 'bw', 1 << 20, { verb }), inFlight: 16 },
        new Tally(),
      );
      const sent = new Tally();
      const side = await attack(kind, 1, place, sent);
      side.start();
      const enough = kind === 'one-octet' ? 70_000 : 300_000;
      while (sent.bytes() < enough) await turn();
      side.stop();
      side.close();
      server.close();
    },
    20_000,
  );

  it.each(['half', 'begun', 'unread'] as const)('%s is sent once on each connection', async (kind) => {
    const { place, side: server } = await serve(
      { ...spec('verbs', 'bw', 1 << 20, { verb: 'write' }), inFlight: 16 },
      new Tally(),
    );
    const sent = new Tally();
    const side = await attack(kind, 3, place, sent);
    side.start();
    const once = sent.bytes();
    side.start();
    expect(once).toBeGreaterThanOrEqual(9);
    expect(once % 3).toBe(0);
    expect(sent.bytes()).toBe(once);
    side.close();
    server.close();
  });
});

describe('a sender of small messages', () => {
  it('lets the event loop turn after some hundred writes, and goes on', async () => {
    let writes = 0;
    const tally = new Tally();
    const sender = filling(tally, () => {
      writes++;
      return 1;
    });
    sender.start();
    for (let i = 0; i < 5000; i++) sender.more();
    const first = writes;
    expect(first).toBeLessThan(1000);
    await turn();
    await turn();
    expect(writes).toBeGreaterThan(first);
    expect(tally.posts).toBe(writes);
  });

  it('keeps the given number under way, until it is stopped', async () => {
    const dones: (() => void)[] = [];
    const tally = new Tally();
    const sender = keepUnderWay(3, tally, (done) => dones.push(done));
    expect(dones).toHaveLength(0);
    await turn(); // what the senders of this process may write in a turn counts anew
    sender.start();
    expect(dones).toHaveLength(3);
    dones.shift()!();
    expect(dones).toHaveLength(3);
    sender.stop();
    dones.shift()!();
    expect(dones).toHaveLength(2);
    sender.start();
    expect([dones.length, tally.posts, tally.postMs]).toEqual([3, 5, 0]);
  });
});

describe('the inner loops', () => {
  it('are compared with their base round by round, as speed or as cost', () => {
    const base: GuardResult = { id: 'b', label: '', unit: 'ns', base: null, as: 'cost', costs: [10, 20] };
    const of = (as: GuardResult['as']): GuardResult => ({ ...base, id: as, base: 'b', as, costs: [5, 40] });
    expect(guardRatios(of('speed'), [base])).toEqual([2, 0.5]);
    expect(guardRatios(of('cost'), [base])).toEqual([0.5, 2]);
    expect(guardRatios(base, [base])).toEqual([]);
  });
});

describe('the report', () => {
  const APART =
    'One processor sees what the other has written after 101 ns (quartiles 98 to 123); 3 of 22 turns ' +
    'saw another distance and were left out';
  const wished = custom(parseBench(['--test', 'bw', '--size', '64,4096']).wish!);
  const slice: Slice = {
    windows: [
      {
        bytes: 6400,
        ns: 1000,
        steal: 0,
        foreign: 0,
        serverCpu: 1,
        clientCpu: 1,
        gc: 0,
        posts: 1,
        postMs: 0,
        clientActive: 0.1,
      },
    ],
    latency: null,
    steal: 0,
    server: null,
    client: null,
    apart: [],
  };
  const experiment: ExperimentResult = {
    ...wished,
    cases: wished.groups.flatMap((group) =>
      summarize(group, new Map(group.cases.map((one) => [one, [slice, slice, slice]]))),
    ),
    missing: [{ id: 'custom/64/lost', reason: '<gone>' }],
    apart: { ns: { median: 101.4, low: 98, high: 123.4, best: 57, rounds: 44 }, turns: 22, away: 3 },
  };
  const probe: ProbeResult = {
    id: 'hostile',
    title: 'A hostile peer',
    about: 'about',
    columns: ['one', 'two'],
    rows: [{ label: 'tiny', cells: [1.25, null] }],
    charts: [
      {
        caption: 'bars of it',
        see: 'what to see',
        unit: 'times',
        log: false,
        bars: [{ label: 'tiny', value: 1.25, ours: true }],
      },
    ],
    ratios: [ratioOf('hostile/tiny : alone', 'more', [1, 2, 3])],
    missing: [],
    disturbed: true,
  };
  const run: RunResult = {
    schema: 'iwarp-bench/2',
    mode: 'custom',
    started: '2026-01-01T00:00:00Z',
    seconds: 1,
    machine: { CPU: 'one' },
    durations: {},
    method: { rounds: 3, windows: 1, windowMs: 1, latencyMs: 1 },
    experiments: [experiment],
    probes: [probe],
    scenarios: answers([], [probe]),
    goals: judgeGoals({ experiments: [experiment], probes: [probe] }),
  };

  it('is one file with pictures, tables, the missing parts, and nothing from elsewhere', () => {
    const html = report(run);
    for (const part of [
      '<svg',
      'bars of it',
      'A hostile peer *',
      'Not measured: custom/64/lost (&lt;gone&gt;)',
      'Seen here:',
      '1.25',
      APART,
    ])
      expect(html).toContain(part);
    expect(html).not.toMatch(/<script|<link|src=|url\((?!#)|https?:\/\/(?!www\.w3\.org)/);
    expect(html).not.toMatch(/NaN|undefined/);
  });

  it('has its pictures before its words, and suits dark mode and narrow screens', () => {
    const html = report(run);
    expect(html.indexOf('<figure')).toBeLessThan(html.indexOf('What was measured, and how</h2>'));
    expect(html.indexOf('RDMA lets one program')).toBeGreaterThan(html.lastIndexOf('<figure'));
    expect(html).toContain('@media(prefers-color-scheme:dark){figure svg{filter:invert(');
    expect(html).toContain('figure{margin:1.6em 0 2em;overflow-x:auto}');
  });

  it('is the same from a file, in which NaN has become null', () => {
    const unnumbered = (html: string): string => html.replaceAll(/zr\d+/g, 'zr');
    expect(unnumbered(report(JSON.parse(JSON.stringify(run)) as RunResult))).toBe(unnumbered(report(run)));
  });

  it('has its table on the terminal too', () => {
    expect(probeTable(probe)).toMatch(/tiny +1\.25 +-/);
    expect(table(experiment)).toContain(APART);
    expect(table({ ...experiment, apart: null })).not.toContain('One processor');
  });
});

it('a program that fails gives its own reason, and no folder of the machine it ran on', async () => {
  const failure = await runMicro('no-such-program', [], []).catch((error: unknown) => error as Error);
  expect(failure).toBeInstanceOf(Error);
  expect((failure as Error).message).toMatch(/^bench\/micro\/no-such-program: Cannot find module/);
  expect((failure as Error).message).not.toContain(process.cwd());
});

describe('the reason why something is missing', () => {
  it('names the missing package, and not the importing file', () => {
    expect(
      reasonOf(new Error(`Cannot find package 'ws' imported from ${process.cwd()}/bench/peers/ws.ts`)),
    ).toBe("Cannot find package 'ws'");
    expect(reasonOf(new Error('first line\nsecond line'))).toBe('first line');
    expect(reasonOf('no error at all')).toBe('no error at all');
  });

  it('names an add-on that computes something else; the other inner loops are measured', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'iwarp-native-'));
    writeFileSync(join(folder, 'index.js'), 'exports.calculate = () => 0;');
    try {
      const program = plain('bench/micro/guard.ts');
      const { stdout, stderr } = await promisify(execFile)(process.execPath, [program, '1', folder]);
      expect(stdout).toContain(`not measured: native 65536: ${basename(folder)} does not compute CRC32c\n`);
      expect(stdout).toContain('CRC32c by js, 65536 octets');
      expect(stderr).toBe('');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
