/** A tiny benchmark from end to end: the shape of the result, not its speed. */
import { describe, expect, it } from 'vitest';
import { custom, isMeasured, spec, sweeps } from '../../bench/experiments.ts';
import { nativeWindows } from '../../bench/native.ts';
import { parseBench } from '../../bench/options.ts';
import { costTable, table } from '../../bench/report/table.ts';
import { latencySlice } from '../../bench/stats.ts';
import { summarize } from '../../bench/summary.ts';
import type { Slice } from '../../bench/runner.ts';
import * as grpc from '../../bench/peers/grpc.ts';
import * as promises from '../../bench/peers/promises.ts';
import * as streams from '../../bench/peers/streams.ts';
import * as verbs from '../../bench/peers/verbs.ts';
import * as ws from '../../bench/peers/ws.ts';
import { Tally } from '../../bench/peers/peer.ts';
import type { TestKind, Verb, Window } from '../../bench/types.ts';

function windowOf(some: Partial<Window>): Window {
  return {
    bytes: 1000,
    ns: 1000,
    steal: 0,
    foreign: 0,
    serverCpu: 1,
    clientCpu: 1,
    gc: 0,
    posts: 1,
    postMs: 0,
    clientActive: 1,
    ...some,
  };
}

async function until(done: () => boolean): Promise<void> {
  while (!done()) await new Promise((resolve) => setImmediate(resolve));
}

const PROGRAMS = { verbs, promises, 'stream-onread': streams, 'stream-data': streams };
const VERBS: readonly Verb[] = ['write', 'send', 'read'];
const TESTS: readonly TestKind[] = ['bw', 'lat'];

describe('the programs of each layer', () => {
  const all = (['verbs', 'promises'] as const)
    .flatMap((layer) => VERBS.flatMap((verb) => TESTS.map((test) => ({ layer, verb, test }))))
    .filter(({ layer, verb, test }) => isMeasured(layer, test, verb));
  it.each([
    ...all,
    ...(['stream-onread', 'stream-data'] as const).flatMap((layer) =>
      TESTS.map((test) => ({ layer, verb: 'send' as const, test })),
    ),
  ])('move octets or answer one message at a time: $layer, $verb, $test', async ({ layer, verb, test }) => {
    const { connect, serve } = PROGRAMS[layer];
    const what = {
      ...spec(layer, test, 512, { verb, connections: test === 'bw' ? 2 : 1 }),
      inFlight: test === 'bw' ? 16 : 1,
    };
    const here = new Tally();
    const there = new Tally();
    const { place, side: server } = await serve(what, there);
    const client = await connect(what, place, here);
    client.start();
    await until(() => (verb === 'read' ? here : there).bytes() >= 512 * 50);
    client.stop();
    if (test === 'lat') expect(client.takeLatency!().count).toBeGreaterThan(10);
    else expect(here.posts).toBeGreaterThanOrEqual(50);
    client.close();
    server.close();
  });
});

describe('the programs beside ours', () => {
  it.each([
    ['ws', ws],
    ['grpc', grpc],
  ] as const)(
    '%s has the connections asked for, with n messages under way, or until it is stopped',
    async (peer, { connect, serve }) => {
      for (const inFlight of peer === 'ws' ? [6] : [0, 6]) {
        const what = spec(peer, 'bw', 512, { connections: 3, inFlight });
        const there = new Tally();
        const here = new Tally();
        const { place, side: server } = await serve(what, there);
        const client = await connect(what, place, here);
        client.start();
        if (inFlight > 0) expect(here.posts).toBe(inFlight);
        await until(() => there.bytes() >= 512 * 50);
        client.stop();
        client.close();
        server.close();
      }
    },
  );
});

describe('results', () => {
  it('hold every case, its ratio inside a round, and a row in the table', () => {
    const experiment = custom(parseBench(['--test', 'bw', '--size', '64']).wish!);
    const [group] = experiment.groups;
    const slice = (bytes: number): Slice => ({
      windows: [windowOf({ bytes })],
      latency: null,
      steal: 0,
      server: null,
      client: null,
      apart: [],
    });
    const slices = new Map(
      group!.cases.map((one, i) => [one, [slice(1000 * (i + 1)), slice(2000 * (i + 1))]]),
    );
    const cases = summarize(group!, slices);
    expect(cases).toHaveLength(2);
    expect(cases[1]!.ratios[group!.bases[0]!]).toMatchObject({ median: 2, rounds: 2 });
    const text = table({ ...experiment, cases, missing: [] });
    expect(text).toContain('BW average[MB/sec]');
    expect(text).toContain('Write');
  });

  it('use disturbed rounds only where there is nothing else, and say so', () => {
    const experiment = custom(parseBench(['--test', 'lat', '--against', 'c']).wish!);
    const [group] = experiment.groups;
    const slice: Slice = {
      windows: [],
      latency: latencySlice(Float64Array.from([8, 10])),
      steal: 9,
      server: null,
      client: null,
      apart: [],
    };
    const [first] = summarize(group!, new Map(group!.cases.map((one) => [one, [slice, slice, slice]])));
    expect(first).toMatchObject({ disturbed: true, value: { median: 4 } });
    expect(table({ ...experiment, cases: [first!], missing: [] })).toMatch(
      /C program \(disturbed\)\n disturbed: other programs or the host took part of the machine/,
    );
  });

  it('have the ratio to each that they are compared with, for latency too', () => {
    const experiment = custom(
      parseBench(['--test', 'lat', '--verb', 'send', '--size', '64,128', '--against', 'tcp-onread,ws']).wish!,
    );
    const slice = (us: number): Slice => ({
      windows: [],
      latency: latencySlice(Float64Array.of(us)),
      steal: 0,
      server: null,
      client: null,
      apart: [],
    });
    const cases = experiment.groups.flatMap((group) =>
      summarize(group, new Map(group.cases.map((one, i) => [one, [slice([20, 40, 10][i]!)]]))),
    );
    const rows = table({ ...experiment, cases, missing: [] }).split('\n');
    expect(rows.find((row) => row.includes('t_typical[usec]'))).toMatch(/of TCP +of ws +what$/);
    expect(rows.filter((row) => row.endsWith('Send')).map((row) => row.trim().split(/ +/).slice(-3))).toEqual(
      [
        ['0.50', '0.25', 'Send'],
        ['0.50', '0.25', 'Send'],
      ],
    );
    expect(rows.filter((row) => row.endsWith('  ws')).map((row) => row.trim().split(/ +/).slice(-3))).toEqual(
      [
        ['2.00', '-', 'ws'],
        ['2.00', '-', 'ws'],
      ],
    );
  });

  it('do not call a line’s ratio to its own first place one to TCP', () => {
    const experiment = sweeps().find(({ id }) => id === 'connections')!;
    const slice = (bytes: number): Slice => ({
      windows: [windowOf({ bytes })],
      latency: null,
      steal: 0,
      server: null,
      client: null,
      apart: [],
    });
    const cases = experiment.groups.flatMap((group) =>
      summarize(group, new Map(group.cases.map((one) => [one, [slice(1000 / one.x)]]))),
    );
    const rows = table({ ...experiment, cases, missing: [] }).split('\n');
    expect(rows.find((row) => row.includes('MsgRate'))).toMatch(/of itself at 1 +what$/);
    expect(rows.find((row) => row.endsWith('TCP, onread, 64 connections'))).toMatch(
      / 0\.02 +TCP, onread, 64 connections$/,
    );
  });

  it('show the cost of each line: processor, call, main thread, garbage, event loop, memory', () => {
    const experiment = custom(parseBench(['--test', 'bw', '--size', '64']).wish!);
    const health = { rss: 50, loopP99: 1.5 };
    const slice: Slice = {
      windows: [
        windowOf({ serverCpu: 2, clientCpu: 3, gc: 0.0001, posts: 10, postMs: 0.02, clientActive: 0.1 }),
      ],
      latency: null,
      steal: 0,
      server: health,
      client: health,
      apart: [],
    };
    const cases = summarize(
      experiment.groups[0]!,
      new Map(experiment.groups[0]!.cases.map((one) => [one, [slice]])),
    );
    const text = costTable({ ...experiment, cases, missing: [] });
    expect(text).toContain('(1) CPU ns/octet, client');
    expect(text).toMatch(/^ 64 +3\.00 +2\.00 +2\.00 +6\.40 +5\.0 +1\.5 +1\.5 +50 +50 +Write$/m);
  });

  it('share garbage collection among all processes', () => {
    const [group] = sweeps().find(({ id }) => id === 'hotspot')!.groups;
    const slice: Slice = {
      windows: [windowOf({ ns: 1e6, gc: 0.5 })],
      latency: null,
      steal: 0,
      server: null,
      client: null,
      apart: [],
    };
    const cases = summarize(group!, new Map(group!.cases.map((one) => [one, [slice]])));
    expect(cases.map(({ spec: { clients }, cost }) => [clients, cost.gcShare])).toEqual(
      [1, 4, 16, 64].map((clients) => [clients, 0.5 / (clients + 1)]),
    );
  });
});

describe('the C program', () => {
  it('works before its first window as it does in them, and is no foreign program', () => {
    // 150 ms of two processors busy, of which two windows of 60 ms are reported.
    const windows = nativeWindows(
      '1000 60000000 60000 60000\n1000 60000000 60000 60000\n',
      { steal: 0, busy: 0 },
      { steal: 0, busy: 30 },
      150e6,
    );
    expect(windows.map(({ foreign }) => foreign)).toEqual([0, 0]);
    const [window] = nativeWindows(
      '1000 60000000 60000 60000\n',
      { steal: 0, busy: 0 },
      { steal: 2, busy: 45 },
      150e6,
    );
    expect(window).toMatchObject({ bytes: 1000, ns: 6e7, steal: 2, foreign: 1 });
    expect(window!.gc).toBeNaN();
  });
});
