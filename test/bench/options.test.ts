/** The benchmark's command line: refusals, and the experiment that a wish becomes. */
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
    [['--test', 'bw,lat'], /--test takes one of bw, lat/],
    [['--test', 'bw', '--size', '64,1048576', '--cq-mod', '100'], /--cq-mod .*1048576 octets, 16 under way/],
    [
      ['--test', 'bw', '--size', '64', '--connections', '64', '--cq-mod', '64'],
      /--cq-mod .*512 under way on 64 connections/,
    ],
    [
      ['--test', 'bw', '--connections', '4', '--in-flight', '3'],
      /--in-flight counts all connections together/,
    ],
    [['--test', 'bw', '--connections', '2', '--against', 'tcp-onread,c'], /C program has one/],
    [['--test', 'bw', '--engines', '2'], /--engine worker/],
    [['--test', 'lat', '--engine', 'worker'], /--verb send or read/],
    [['--test', 'bw', '--json', 'run.json', '--continue'], /--test is none of them/],
    [['--from', 'run.json', '--full'], /--full has no place beside it/],
    [['--from', 'run.json', '--rounds', '3'], /--rounds has no place beside it/],
    [['--baseline', 'own.json'], /--compare or --save-baseline/],
    [['--wire', 'udp'], /none of trp/],
    [['--wire', 'trp', '--full'], /exclude/],
    [['--wire', 'trp', '--json', 'run.json'], /--json has no place beside it/],
  ])('refuses %j', (args, reason) => {
    expect(() => parseBench(args)).toThrow(reason);
  });

  it("takes a wish of one's own", () => {
    const { mode, wish } = parseBench([
      '--test',
      'bw',
      '--verb',
      'write,send',
      '--size',
      '64,4096',
      '--crc',
      'off',
      '--markers',
      '--fpdu',
      '1448',
    ]);
    expect(mode).toBe('custom');
    expect(wish).toMatchObject({
      test: 'bw',
      verbs: ['write', 'send'],
      sizes: [64, 4096],
      more: { crc: 'off', markers: true, fpdu: 1448 },
    });
  });

  it('is short by default', () => {
    expect(parseBench([]).mode).toBe('quick');
  });

  it('takes parts of the full run, by their names or by the scenarios that need them', () => {
    expect(parseBench(['--full', '--only', 'hostile,bulk'])).toMatchObject({
      mode: 'only',
      parts: ['hostile', 'bulk'],
    });
    expect(parseBench(['--scenario', 'perftest,gather'])).toMatchObject({
      mode: 'scenario',
      parts: ['bandwidth', 'latency-size', 'gather'],
    });
    expect(parseBench(['--scenario', 'all']).parts).toContain('hostile');
  });

  it('measures each verb with each engine that is wished for', () => {
    const { wish } = parseBench([
      '--test',
      'bw',
      '--verb',
      'write,read',
      '--engine',
      'thread,worker',
      '--size',
      '64',
    ]);
    const series = custom(wish!).groups[0]!.cases.map((one) => [one.series, one.spec.engine]);
    expect(series).toEqual([
      ['TCP, onread', 'thread'],
      ['Write', 'thread'],
      ['Read', 'thread'],
      ['Write, worker', 'worker'],
      ['Read, worker', 'worker'],
    ]);
  });

  it('measures each verb by each layer that is wished for; a byte stream has no verbs', () => {
    const { wish } = parseBench([
      '--test',
      'bw',
      '--verb',
      'write,read',
      '--layer',
      'verbs,promises,stream-onread',
      '--against',
      'ws',
      '--size',
      '64',
    ]);
    const series = custom(wish!).groups[0]!.cases.map((one) => [one.series, one.spec.peer]);
    expect(series).toEqual([
      ['ws', 'ws'],
      ['Write', 'verbs'],
      ['Read', 'verbs'],
      ['Promises, Write', 'promises'],
      ['Promises, Read', 'promises'],
      ['Byte stream, onread', 'stream-onread'],
    ]);
  });
});

describe("an experiment of one's own", () => {
  const wished = (...args: string[]): ReturnType<typeof custom> =>
    custom(parseBench(['--test', 'bw', ...args]).wish!);

  it('has as many connections, and as much under way, with those that it is compared with', () => {
    const { groups } = wished(
      '--connections',
      '16',
      '--in-flight',
      '32',
      '--size',
      '64',
      '--against',
      'tcp-onread,tcp-data,ws,grpc',
    );
    expect(
      groups[0]!.cases.map(({ spec: { peer, connections, inFlight } }) => [peer, connections, inFlight]),
    ).toEqual(['tcp-onread', 'tcp-data', 'ws', 'grpc', 'verbs'].map((peer) => [peer, 16, 32]));
  });

  it('lets bare TCP write until it is asked to pause, by default', () => {
    expect(wished('--size', '64').groups[0]!.cases.map(({ spec: { inFlight } }) => inFlight)).toEqual([
      0, 512,
    ]);
  });

  it('has something under way on each connection', () => {
    expect(
      wished('--size', '1048576', '--connections', '64', '--against', '').groups[0]!.cases[0]!.spec,
    ).toMatchObject({ connections: 64, inFlight: 64 });
  });

  it('measures nothing twice', () => {
    const { groups } = wished(
      '--size',
      '64,64',
      '--verb',
      'write,write',
      '--engine',
      'thread,thread',
      '--against',
      'ws,ws',
    );
    expect(groups.map(({ cases }) => cases.map(({ series }) => series))).toEqual([['ws', 'Write']]);
  });

  it('names the settings asked for', () => {
    expect(
      wished(
        '--crc',
        'js',
        '--markers',
        '--fpdu',
        '1448',
        '--connections',
        '4',
        '--in-flight',
        '8',
        '--cq-mod',
        '2',
        '--busy-poll',
        '0',
      ).about,
    ).toBe(
      'As asked for on the command line: CRC32c by js, markers, FPDUs that fit 1448 octets of TCP ' +
        'payload, 4 connections, 8 messages under way in all, ' +
        'a completion for 2 requests, the stack awake for 0 us after octets have come.',
    );
    expect(wished('--crc', 'off').about).toContain(
      'no CRC, no markers, one connection, as many messages under way as usual for their size',
    );
    expect(custom(parseBench(['--test', 'lat', '--verb', 'send']).wish!).about).toBe(
      'As asked for on the command line: CRC32c, no markers.',
    );
  });
});

describe('the experiments', () => {
  const { experiments: all, probes } = everything();

  it('give every case a separate id, and name only bases of the same group', () => {
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
