/**
 * The six perftest programs against each other: every kind of run, what they print, wrong flags, peers that
 * leave.
 */
// cspell:ignore dont
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { gidOf } from '../../cli/perftest/data.ts';
import { runAlone, runPair } from './pair.ts';
import { PROGRAMS, rows, run, type Name } from './perftest-pair.ts';

const BANDWIDTH: readonly Name[] = ['write_bw', 'read_bw', 'send_bw'];
const ALL: readonly Name[] = [...BANDWIDTH, 'write_lat', 'read_lat', 'send_lat'];

describe('perftest programs', () => {
  it.each(ALL)('%s runs', async (name) => {
    const { server, client, statuses } = await run(name, ['-R', '-n', '50']);
    expect(statuses).toEqual([0, 0]);
    expect(client.err + server.err.replace(/listening.*\n/, '')).toBe('');
    const [row] = rows(client.out);
    expect(row!.slice(0, 2)).toEqual([name.endsWith('bw') ? 65_536 : 2, 50]);
    expect(row!.every((value) => value >= 0)).toBe(true);
    expect(client.out).toContain('Transport type : IW');
    expect(client.out).toMatch(/ remote address: LID 0000 QPN 0x[0-9a-f]{4} PSN 0x[0-9a-f]{6}/);
  });

  it.each(BANDWIDTH)('%s runs with several queue pairs, both ways, by lists', async (name) => {
    for (const flags of [
      ['-q', '3', '-n', '40'],
      ['-b', '-n', '60', '-s', '2000'],
      ['-b', '-q', '2', '-n', '20'],
      ['-l', '5', '-n', '40', '-s', '512'],
    ]) {
      const { statuses, client } = await run(name, flags);
      expect([flags, statuses]).toEqual([flags, [0, 0]]);
      const qps = Number(flags[flags.indexOf('-q') + 1] ?? 1);
      const iterations = Number(flags[flags.indexOf('-n') + 1]);
      expect(rows(client.out)[0]![1]).toBe(iterations * (flags.includes('-q') ? qps : 1));
    }
  });

  it.each(ALL)('%s runs over all sizes', async (name) => {
    const { statuses, client } = await run(name, ['-a', '-n', '5', ...(name === 'write_bw' ? ['-b'] : [])]);
    expect(statuses).toEqual([0, 0]);
    expect(rows(client.out).map((row) => row[0])).toEqual(Array.from({ length: 23 }, (_, i) => 2 ** (i + 1)));
  });

  it.each(ALL)('%s runs by time', async (name) => {
    const { statuses, client } = await run(name, ['-D', '1', '-s', '256']);
    expect(statuses).toEqual([0, 0]);
    expect(rows(client.out)[0]![1]).toBeGreaterThan(10);
  });

  it.each([
    ['1', '3'],
    ['3', '1'],
  ])(
    'write_lat by time ends well where clocks end apart: %s s at the server, %s s at the client',
    async (serverTime, clientTime) => {
      const { statuses, server, client } = await runPair(
        PROGRAMS.write_lat,
        ['-D', serverTime],
        PROGRAMS.write_lat,
        (port) => ['-p', port, '-D', clientTime, '127.0.0.1'],
      );
      expect([statuses, server.err.replace(/listening.*\n/, ''), client.err]).toEqual([[0, 0], '', '']);
      for (const side of [server, client]) expect(rows(side.out)[0]![1]).toBeGreaterThan(10);
    },
  );

  it('the server of write_bw prints the client’s figures', async () => {
    const { server, client } = await run('write_bw', ['-n', '20']);
    expect(rows(server.out)).toEqual(rows(client.out));
  });

  it('both ends of a bidirectional test print the same sum', async () => {
    const { server, client } = await run('send_bw', ['-b', '-n', '100']);
    expect(rows(server.out)).toEqual(rows(client.out));
  });

  it('send_bw goes on far beyond its receive queue, by credits', async () => {
    const { statuses, client } = await run('send_bw', ['-r', '12', '-n', '1000', '-s', '64', '-q', '2']);
    expect(statuses).toEqual([0, 0]);
    expect(rows(client.out)[0]![1]).toBe(2000);
  });

  it('runs without the exchange of versions', async () => {
    expect((await run('write_lat', ['--dont_xchg_versions', '-n', '10'])).statuses).toEqual([0, 0]);
  });

  it('shows gigabits, one figure, all figures, and writes JSON', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'perftest-'));
    try {
      const file = join(folder, 'out.json');
      const gbits = await run('write_bw', ['-n', '20', '--report_gbits'], [`--out_json_file=${file}`]);
      expect(gbits.client.out).toContain('BW average[Gb/sec]');
      const json = JSON.parse(readFileSync(file, 'utf8')) as {
        test_info: Record<string, unknown>;
        results: Record<string, number>[];
      };
      expect(json.test_info).toMatchObject({
        test: 'RDMA_Write_BW_Test',
        Transport_type: 'IW',
        Number_of_qps: 1,
      });
      expect(Object.keys(json.results[0]!)).toEqual([
        'MsgSize',
        'n_iterations',
        'BW_peak',
        'BW_average',
        'MsgRate',
      ]);
      const one = await run('send_lat', ['-n', '20', '--output=latency']);
      expect(one.client.out).toMatch(/^\d+\.\d{6}\n$/);
      const every = await run('read_lat', ['-n', '20'], ['-U', '--out_json', `--out_json_file=${file}`]);
      expect(every.client.out.match(/^\d+, [\d.]+$/gm)).toHaveLength(19);
      expect(Object.keys((JSON.parse(readFileSync(file, 'utf8')) as typeof json).results[0]!)).toContain(
        'percentile_99.9',
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it.each([
    [['--report_gbits'], []],
    [[], ['--report_gbits']],
  ])('figures of a side with the other unit are converted: server %j, client %j', async (server, client) => {
    const both = ['-n', '200', '-s', '4096'];
    const pair = await runPair(
      PROGRAMS.write_bw,
      ['-b', '--report-both', ...both, ...server],
      PROGRAMS.write_bw,
      (port) => ['-p', port, '-b', '--report-both', ...both, ...client, '127.0.0.1'],
    );
    expect(pair.statuses).toEqual([0, 0]);
    for (const [side, flags] of [
      [pair.server, server],
      [pair.client, client],
    ] as const) {
      const octets = flags.length > 0 ? 125_000_000 : 1_048_576;
      const printed = rows(side.out);
      expect(printed.length).toBe(3);
      for (const [size, , peak, average, rate] of printed) {
        expect((average! * octets) / (rate! * 1e6 * size!)).toBeCloseTo(1, 1);
        expect(peak).toBeGreaterThanOrEqual(average! * 0.99);
      }
    }
    // A side that only waits for the other's figures prints them in the unit of its heading too.
    const waits = await runPair(PROGRAMS.write_bw, [...both, ...server], PROGRAMS.write_bw, (port) => [
      '-p',
      port,
      ...both,
      ...client,
      '127.0.0.1',
    ]);
    const [, , , average, rate] = rows(waits.server.out)[0]!;
    expect((average! * (server.length > 0 ? 125_000_000 : 1_048_576)) / (rate! * 1e6 * 4096)).toBeCloseTo(
      1,
      1,
    );
  });

  it('a limit that is not met gives status 1', async () => {
    const { statuses, client } = await run('write_bw', ['-n', '10'], ['-w', '1000000']);
    expect(statuses).toEqual([0, 1]);
    expect(client.err).toContain('BW result is below bw limit');
  });
});

describe('perftest output', () => {
  it('a GID is the address, whichever family it has', () => {
    expect([...gidOf('::1')]).toEqual([...Array<number>(15).fill(0), 1]);
    expect([...gidOf('fe80::2%eth0')].slice(0, 2)).toEqual([0xfe, 0x80]);
    expect([...gidOf('10.1.2.3')]).toEqual([...Array<number>(10).fill(0), 0xff, 0xff, 10, 1, 2, 3]);
    expect(gidOf('::ffff:10.1.2.3')).toEqual(gidOf('10.1.2.3'));
    expect([...gidOf('')]).toEqual(Array<number>(16).fill(0));
  });

  it('a file for JSON stays as it was when nothing is measured', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'perftest-'));
    expect(
      (await runAlone(PROGRAMS.write_bw, ['-p', '1', `--out_json_file=${join(folder, 'j')}`, '127.0.0.1']))
        .code,
    ).toBe(1);
    expect(existsSync(join(folder, 'j'))).toBe(false);
    rmSync(folder, { recursive: true });
  });
});

describe('perftest flags', () => {
  it.each([
    ['write_lat', ['-q', '2'], 'Multiple QPs only available on bw tests'],
    ['write_bw', ['-n', '4'], 'Iteration num should be between 5 and 100000000'],
    ['read_bw', ['-I', '10'], 'Inline feature not available on READ/Atomic verbs'],
    ['write_bw', ['-o', '1'], 'Setting Outstanding reads only available on READ verb'],
    ['write_lat', ['-b'], 'Bidirectional is only available in BW test'],
    ['write_bw', ['-e'], 'Events feature not available on WRITE verb'],
    ['write_bw', ['-r', '2'], 'On RDMA verbs rx depth can be only 1'],
    ['write_bw', ['-a', '-D', '4'], "Duration mode currently doesn't support running on all sizes."],
    ['write_bw', ['-D', '4', '-f', '2'], 'please check that DURATION > 2*MARGIN'],
    ['write_bw', ['-s', '0'], 'Message Size should be between 1 and'],
    ['write_bw', ['-l', '3', '-n', '10'], 'Number of iterations must be a multiple of post list size'],
    ['send_bw', ['-l', '16', '-n', '16'], 'Rx depth 16 is too small for a post list of 16'],
    ['send_bw', ['-l', '16', '-r', '22', '-n', '1600'], 'Rx depth 22 is too small for a post list of 16'],
    ['send_bw', ['-a', '-r', '1'], 'Rx depth 1 is too small for a post list of 1'],
    ['send_bw', ['-m', '1000'], 'Invalid MTU'],
    ['send_bw', ['-c', 'UD'], 'Invalid Connection type'],
    ['send_lat', ['--output=bandwidth'], 'Output verbosity level for LAT can be: latency'],
    ['write_bw', ['a', 'b'], 'Invalid Command line'],
    ['write_bw', [''], 'The host must not be empty'],
    ['read_lat', ['-p', '0', '127.0.0.1'], 'Port should be between 1 and 65535'],
    ['read_lat', ['-p', '65536'], 'Port should be between 0 and 65535'],
    ['write_bw', ['-w', 'abc'], 'Invalid Minimum BW Limit'],
    ['write_bw', ['-y', '-1'], 'Invalid Minimum msgRate Limit'],
    ['write_bw', ['-s', '10foo'], 'Invalid Message Size value'],
    ['write_bw', ['--out_json_file=/nonexist/j'], '/nonexist/j: no such file or directory'],
    ['send_lat', ['--pcap', '/nonexist/x'], '/nonexist/x: no such file or directory'],
    ['send_lat', ['--timeout', '1m'], '--timeout must be a whole number'],
  ] as const)('%s %j is refused in the stock words', async (name, args, words) => {
    const side = await runAlone(PROGRAMS[name], [...args]);
    expect(side.code).toBe(1);
    expect(side.err).toContain(words);
    expect(side.err).toContain('Parser function exited with Error');
  });

  it('an unknown flag shows the usage', async () => {
    const side = await runAlone(PROGRAMS.write_bw, ['-k']);
    expect(side.code).toBe(1);
    expect(side.err).toBe(
      "write_bw: invalid option -- 'k'\n Invalid Command or flag.\n Please check command line and run " +
        'again.\n\n Parser function exited with Error\n',
    );
    expect(side.out).toContain('Usage:\n  write_bw            start a server and wait for connection\n');
  });

  it('-V and -h print on standard output and end with 0', async () => {
    expect(await runAlone(PROGRAMS.send_lat, ['-V'])).toMatchObject({ out: 'Version: 6.06\n', code: 0 });
    const help = (await runAlone(PROGRAMS.send_lat, ['-h'])).out;
    expect(help).toContain('--rx-depth');
    expect(help).toContain('Print one figure: latency\n');
    expect((await runAlone(PROGRAMS.send_bw, ['-h'])).out).toContain(
      'Print one figure: bandwidth, message_rate\n',
    );
  });
});

describe('a peer that leaves', () => {
  it.each(ALL)('%s: the server reports that the client has left', async (name) => {
    const { server, statuses } = await runPair(
      PROGRAMS[name],
      ['-D', '60'],
      PROGRAMS[name],
      (port) => ['-p', port, '-D', '60', '127.0.0.1'],
      async (s, c) => {
        await Promise.all([s.said('remote address'), c.said('#iterations')]);
        c.kill();
      },
    );
    expect(statuses).toEqual([1, 1]);
    expect(server.err).toContain('Failed to exchange data between server and clients');
  });

  it.each(ALL)('%s: the client reports that the server has left', async (name) => {
    const { client, statuses } = await runPair(
      PROGRAMS[name],
      ['-D', '60'],
      PROGRAMS[name],
      (port) => ['-p', port, '-D', '60', '127.0.0.1'],
      async (s, c) => {
        await Promise.all([s.said('remote address'), c.said('#iterations')]);
        s.kill();
      },
    );
    expect(statuses).toEqual([1, 1]);
    expect(client.err).toContain('Failed to exchange data between server and clients');
  });

  it('no server: the client says so', async () => {
    const side = await runAlone(PROGRAMS.write_bw, ['-p', '1', '127.0.0.1']);
    expect(side.code).toBe(1);
    expect(side.err).toContain('Unable to init the socket connection');
  });
});
