/** The benchmark's command line: what is refused, and what a wish turns into. */
import { describe, expect, it } from 'vitest';
import { goals, sweeps } from '../../bench/experiments.ts';
import { parseBench } from '../../bench/options.ts';
import { SCENARIOS } from '../../bench/scenarios.ts';

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
});

describe('the experiments', () => {
  const all = [...goals(), ...sweeps()];

  it('give every case an id of its own, and name only bases of the same group', () => {
    const groups = all.flatMap((experiment) => experiment.groups);
    const ids = groups.flatMap((group) => group.cases.map(({ id }) => id));
    expect(new Set(ids).size).toBe(ids.length);
    for (const { cases } of groups) expect(cases.length).toBeGreaterThan(0);
  });

  it('are there for every scenario', () => {
    expect(SCENARIOS.filter(({ needs }) => !all.some(({ id }) => id === needs))).toEqual([]);
  });
});
