/** A tiny benchmark from end to end: the shape of what comes out, not how fast. */
import { describe, expect, it } from 'vitest';
import { custom } from '../../bench/experiments.ts';
import { parseBench } from '../../bench/options.ts';
import { table } from '../../bench/report/table.ts';
import { latencySlice } from '../../bench/stats.ts';
import { summarize } from '../../bench/summary.ts';
import type { Slice } from '../../bench/runner.ts';
import * as promises from '../../bench/peers/promises.ts';
import * as streams from '../../bench/peers/streams.ts';
import * as verbs from '../../bench/peers/verbs.ts';
import { Tally } from '../../bench/peers/peer.ts';
import { isMeasured, spec } from '../../bench/experiments.ts';
import type { TestKind, Verb } from '../../bench/types.ts';

async function until(done: () => boolean): Promise<void> {
  while (!done()) await new Promise((resolve) => setImmediate(resolve));
}

const PROGRAMS = { verbs, promises, 'stream-onread': streams, 'stream-data': streams };
const VERBS: readonly Verb[] = ['write', 'send', 'read'];
const TESTS: readonly TestKind[] = ['bw', 'lat'];

describe('the programs of each layer', () => {
  const all = (['verbs', 'promises'] as const).flatMap((layer) => VERBS.flatMap((verb) => TESTS.map((test) => ({ layer, verb, test }))))
    .filter(({ layer, verb, test }) => isMeasured(layer, test, verb));
  it.each([...all, ...(['stream-onread', 'stream-data'] as const).flatMap((layer) => TESTS.map((test) => ({ layer, verb: 'send' as const, test })))])(
    'move octets or answer one message at a time: $layer, $verb, $test', async ({ layer, verb, test }) => {
      const { connect, serve } = PROGRAMS[layer];
      const what = { ...spec(layer, test, 512, { verb, connections: test === 'bw' ? 2 : 1 }), inFlight: test === 'bw' ? 16 : 1 };
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

describe('results', () => {
  it('hold every case, its ratio inside a round, and a row in the table', () => {
    const experiment = custom(parseBench(['--test', 'bw', '--size', '64']).wish!);
    const [group] = experiment.groups;
    const slice = (bytes: number): Slice => ({
      windows: [{ bytes, ns: 1000, steal: 0, foreign: 0, serverCpu: 1, clientCpu: 1, gc: 0, posts: 1, postMs: 0, clientActive: 1 }],
      latency: null, steal: 0, server: null, client: null,
    });
    const slices = new Map(group!.cases.map((one, i) => [one, [slice(1000 * (i + 1)), slice(2000 * (i + 1))]]));
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
    const slice: Slice = { windows: [], latency: latencySlice(Float64Array.from([8, 10])), steal: 9, server: null, client: null };
    const [first] = summarize(group!, new Map(group!.cases.map((one) => [one, [slice, slice, slice]])));
    expect(first).toMatchObject({ disturbed: true, value: { median: 4 } });
  });
});
