/** The benchmark's command line: what is refused, and what a wish turns into. */
import { describe, expect, it } from 'vitest';
import { custom } from '../../bench/experiments.ts';
import { parseBench, partNames } from '../../bench/options.ts';
import { answers, everything, SCENARIOS } from '../../bench/scenarios.ts';

describe('the options of iwarp bench', () => {
  it.each([
    [['--nonsense'], /nonsense/],
    [['--quick', '--full'], /exclude/],
    [['--size', '64'], /needs --test/],
    [['--test', 'speed'], /bw, lat/],
    [['--test', 'bw', '--size', '1'], /--size/],
    [['--test', 'bw', '--size', '8388609'], /--size/],
    [['--test', 'bw', '--in-flight', '513'], /--in-flight/],
    [['--test', 'bw', '--connections', '65'], /--connections/],
    [['--test', 'bw', '--crc', 'md5'], /--crc/],
    [['--test', 'bw', '--verb', 'write,push'], /push/],
    [['--test', 'bw', '--in-flight', '4', '--cq-mod', '5'], /--cq-mod/],
    [['--test', 'lat', '--in-flight', '2'], /latency/],
    [['--scenario', 'unheard-of'], /unheard-of/],
    [['--only', 'bulk,nothing'], /nothing/],
    [['--only', 'bulk', '--quick'], /exclude/],
    [['--full', '--continue'], /--json/],
    [['--test', 'bw', '--engine', 'process'], /process/],
    [['--engine', 'worker'], /needs --test/],
    [['--test', 'bw', '--layer', 'tcp'], /verbs, promises, stream-onread, stream-data/],
    [['--test', 'lat', '--layer', 'promises', '--verb', 'write'], /promises write/],
    [['--rounds', '0'], /--rounds/],
  ])('refuses %j', (args, reason) => {
    expect(() => parseBench(args)).toThrow(reason);
  });

  it('takes a wish of one\'s own', () => {
    const { mode, wish } = parseBench(['--test', 'bw', '--verb', 'write,send', '--size', '64,4096', '--crc', 'off', '--markers', '--fpdu', '1448']);
    expect(mode).toBe('custom');
    expect(wish).toMatchObject({ test: 'bw', verbs: ['write', 'send'], sizes: [64, 4096], more: { crc: 'off', markers: true, fpdu: 1448 } });
  });

  it('is short by default', () => {
    expect(parseBench([]).mode).toBe('quick');
  });

  it('takes parts of the full run, by their names or by the scenarios that need them', () => {
    expect(parseBench(['--full', '--only', 'hostile,bulk'])).toMatchObject({ mode: 'only', parts: ['hostile', 'bulk'] });
    expect(parseBench(['--scenario', 'perftest,gather'])).toMatchObject({ mode: 'scenario', parts: ['bandwidth', 'latency-size', 'gather'] });
    expect(parseBench(['--scenario', 'all']).parts).toContain('hostile');
  });

  it('measures each verb with each engine that is wished for', () => {
    const { wish } = parseBench(['--test', 'bw', '--verb', 'write,read', '--engine', 'thread,worker', '--size', '64']);
    const series = custom(wish!).groups[0]!.cases.map((one) => [one.series, one.spec.engine]);
    expect(series).toEqual([['TCP, onread', 'thread'], ['Write', 'thread'], ['Read', 'thread'], ['Write, worker', 'worker'], ['Read, worker', 'worker']]);
  });

  it('measures each verb by each layer that is wished for; a byte stream has no verbs', () => {
    const { wish } = parseBench(['--test', 'bw', '--verb', 'write,read', '--layer', 'verbs,promises,stream-onread', '--against', 'ws', '--size', '64']);
    const series = custom(wish!).groups[0]!.cases.map((one) => [one.series, one.spec.peer]);
    expect(series).toEqual([
      ['ws', 'ws'], ['Write', 'verbs'], ['Read', 'verbs'], ['Promises, Write', 'promises'], ['Promises, Read', 'promises'], ['Byte stream, onread', 'stream-onread'],
    ]);
  });
});

describe('the experiments', () => {
  const { experiments: all, probes } = everything();

  it('give every case an id of its own, and name only bases of the same group', () => {
    const groups = all.flatMap((experiment) => experiment.groups);
    const ids = groups.flatMap((group) => group.cases.map(({ id }) => id));
    expect(new Set(ids).size).toBe(ids.length);
    for (const { cases } of groups) expect(cases.length).toBeGreaterThan(0);
  });

  it('are there for every scenario', () => {
    const names = new Set([...all, ...probes].map(({ id }) => id));
    expect(names.size).toBe(all.length + probes.length);
    expect(SCENARIOS.flatMap(({ needs }) => needs).filter((name) => !names.has(name))).toEqual([]);
    expect(partNames()).toEqual([...names]);
  });

  it('say of a scenario without figures that nothing was measured', () => {
    const empty = all.map((experiment) => ({ ...experiment, cases: [], missing: [] }));
    const said = answers(empty, []);
    expect(said.length).toBeGreaterThan(8);
    for (const { here } of said) expect(here).toContain('not measured');
  });
});
