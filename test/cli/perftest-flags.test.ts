/**
 * The flags of linux-rdma/perftest 6.29 beyond the plain tests of perftest.test.ts, and the atomic programs:
 * what they print, what they put on the wire, and what they refuse.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { cpuTimes, cyclesPerMicrosecond, utilization } from '../../cli/perftest/cpu.ts';
import { callAt } from '../../cli/perftest/clock.ts';
import { fillWith, readPayload } from '../../cli/perftest/payload.ts';
import { RateLimiter } from '../../cli/perftest/rate.ts';
import { traceFrames } from '../../src/index.ts';
import { runAlone, runPair, type PairResult } from './pair.ts';
import { PROGRAMS, rows, run, type Name } from './perftest-pair.ts';

const ALL = Object.keys(PROGRAMS) as Name[];
const BANDWIDTH = ALL.filter((name) => name.endsWith('bw'));

/** What a pair has said, and the frames that either side has sent; those of workers are not seen. */
async function traced(name: Name, flags: string[]): Promise<PairResult & { readonly frames: string[] }> {
  vi.stubEnv('IWARP_ENGINE', 'thread');
  const frames: string[] = [];
  const stop = traceFrames(({ direction, text }) => {
    if (direction === 'out') frames.push(text);
  });
  try {
    return { ...(await run(name, flags)), frames };
  } finally {
    stop();
  }
}

const count = (frames: readonly string[], what: RegExp): number =>
  frames.filter((text) => what.test(text)).length;

const folder = mkdtempSync(join(tmpdir(), 'perftest-'));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => void vi.unstubAllEnvs());

describe('atomic_bw and atomic_lat', () => {
  describe.each(['thread', 'worker'] as const)('with the engine %s', (engine) => {
    it.each([
      ['atomic_bw', ['-n', '50']],
      ['atomic_bw', ['-n', '40', '-q', '3', '-b', '-A', 'CMP_AND_SWAP', '--mr_per_qp']],
      ['atomic_bw', ['-n', '40', '-l', '5', '-o', '3', '--perform_warm_up']],
      ['atomic_lat', ['-n', '50', '-A', 'CMP_AND_SWAP']],
      ...(engine === 'thread' ? [['atomic_lat', ['-D', '1']] as const] : []),
    ] as const)('%s %j', async (name, flags) => {
      vi.stubEnv('IWARP_ENGINE', engine);
      const { statuses, server, client } = await run(name, [...flags]);
      expect([statuses, client.err, server.err.replace(/listening.*\n/, '')]).toEqual([[0, 0], '', '']);
      const [row] = rows(client.out);
      expect(row![0]).toBe(8);
      expect(row!.every((value) => value >= 0)).toBe(true);
      if (!flags.includes('-D' as never))
        expect(row![1]).toBe(flags.includes('-q' as never) ? 120 : Number(flags[1]));
      const type = flags.includes('CMP_AND_SWAP' as never) ? 'CMP_AND_SWAP' : 'FETCH_AND_ADD';
      const ways = flags.includes('-b' as never) ? 'Bidirectional ' : '';
      const list = flags.includes('-l' as never) ? 'Post List ' : '';
      const title = name === 'atomic_lat' ? 'Latency' : `${ways}${list}BW`;
      for (const { out } of [server, client]) expect(out).toContain(`    Atomic ${type} ${title} Test\n`);
      expect(client.out).toContain(` Outstand reads  : ${flags.includes('-o' as never) ? 3 : 128}\n`);
      // As of a Send, memory of an atomic is not shown.
      expect(client.out).not.toContain('RKey');
    });
  });

  it.each([
    ['FETCH_AND_ADD', 'FetchAdd 0x1'],
    ['CMP_AND_SWAP', 'CmpSwap 0x0→0x0'],
  ])('%s is %s, a cache line further each time, the page over and over', async (type, operation) => {
    const { statuses, frames } = await traced('atomic_bw', ['-n', '70', '-A', type]);
    expect(statuses).toEqual([0, 0]);
    const requests = frames
      .map((text) => /AtomicReq .* (\S+ \S+) at \S+\+(0x\w+) /.exec(text))
      .filter((match) => match);
    expect(requests.map((match) => match![1])).toEqual(Array<string>(70).fill(operation));
    const first = Number(requests[0]![2]);
    expect(requests.map((match) => Number(match![2]) - first)).toEqual(
      Array.from({ length: 70 }, (_, i) => (i % 64) * 64),
    );
    const originals = frames.flatMap((text) => /AtomicResp .*original (0x\w+) /.exec(text)?.[1] ?? []);
    // The second time round the page finds what the first has added.
    const again = type === 'FETCH_AND_ADD' ? '0x1' : '0x0';
    expect(originals).toEqual([...Array<string>(64).fill('0x0'), ...Array<string>(6).fill(again)]);
  });
});

describe('Writes with Immediate Data', () => {
  it.each([
    ['write_bw', ['-n', '40']],
    ['write_bw', ['-n', '40', '-b', '-q', '2']],
    ['write_bw', ['-a', '-n', '5']],
    ['write_bw', ['-n', '40', '--recv_post_list', '8', '-r', '9']],
    ['write_lat', ['-n', '40']],
    ['write_lat', ['-a', '-n', '5']],
    ['write_lat', ['-D', '1']],
  ] as const)('%s %j', async (name, flags) => {
    const { statuses, server, client } = await run(name, ['--write_with_imm', ...flags]);
    expect([statuses, client.err, server.err.replace(/listening.*\n/, '')]).toEqual([[0, 0], '', '']);
    expect(client.out).toContain('    RDMA_Write_imm ');
    for (const { out } of [server, client]) expect(rows(out)).toHaveLength(flags[0] === '-a' ? 23 : 1);
  });

  it('each is followed by its Immediate Data, and many small ones find their receives', async () => {
    const { statuses, frames } = await traced('write_bw', [
      '--write_with_imm',
      '-n',
      '3000',
      '-s',
      '2',
      '-N',
    ]);
    expect(statuses).toEqual([0, 0]);
    expect(count(frames, / Imm /)).toBe(3000);
  });
});

describe('what flags change', () => {
  it.each([
    ['send_bw', ['-q', '3', '-n', '40']],
    ['send_bw', ['-b', '-q', '2', '-n', '60', '-r', '16', '--recv_post_list', '4']],
    ['send_lat', ['-n', '40']],
    ['send_bw', ['-a', '-n', '5']],
  ] as const)('%s --use-srq %j', async (name, flags) => {
    const { statuses, server, client } = await run(name, ['--use-srq', ...flags]);
    expect([statuses, client.err]).toEqual([[0, 0], '']);
    for (const { out } of [server, client]) expect(out).toContain('\t\tUsing SRQ      : ON\n');
  });

  it.each([
    ['5', '7'],
    ['40', '512'],
    ['10', '4'],
  ])('send_bw receives by lists of %s with a queue of %s', async (list, depth) => {
    for (const flags of [[], ['-b']]) {
      const { statuses, server } = await run('send_bw', [
        '-n',
        '600',
        '-s',
        '64',
        '-r',
        depth,
        '--recv_post_list',
        list,
        ...flags,
      ]);
      expect(statuses).toEqual([0, 0]);
      expect(server.out).toContain(` Recv Post List  : ${list}\n`);
    }
  });

  it.each(BANDWIDTH)('%s --mr_per_qp', async (name) => {
    const { statuses, server } = await run(name, ['-q', '3', '-n', '20', '--mr_per_qp']);
    expect(statuses).toEqual([0, 0]);
    const keys = [...server.out.matchAll(/local address.* RKey (\S+)/g)].map((match) => match[1]);
    expect(new Set(keys).size).toBe(name === 'write_bw' || name === 'read_bw' ? 3 : 0);
  });

  it('--perform_warm_up does what the queue takes before it measures', async () => {
    const requests = async (...flags: string[]): Promise<number> => {
      const { statuses, frames, client } = await traced('read_bw', [
        '-n',
        '40',
        '-s',
        '64',
        '-t',
        '16',
        ...flags,
      ]);
      expect([statuses, rows(client.out)[0]![1]]).toEqual([[0, 0], 40]);
      return count(frames, /ReadReq /);
    };
    expect((await requests('--perform_warm_up')) - (await requests())).toBe(16);
  });

  it.each(ALL)('%s --reversed: the server works, the client waits', async (name) => {
    const { statuses, server, client } = await run(name, ['-n', '20', '--reversed']);
    expect([statuses, client.err]).toEqual([[0, 0], '']);
    const [works, waits] = [server.out, client.out];
    expect(works).toContain(' TX depth ');
    expect(waits).not.toContain(' TX depth ');
    expect(rows(works)[0]![1]).toBe(20);
    if (name.endsWith('bw') && name !== 'send_bw') expect(rows(waits)).toEqual(rows(works));
  });

  it('--latency_gap comes before each operation', async () => {
    const { statuses, client } = await run('read_lat', ['-n', '6', '--latency_gap', '2000']);
    expect(statuses).toEqual([0, 0]);
    expect(rows(client.out)[0]![2]).toBeGreaterThanOrEqual(2000);
    for (const name of ['write_lat', 'send_lat'] as const)
      expect((await run(name, ['-n', '6', '--latency_gap', '20000'])).statuses).toEqual([0, 0]);
  });

  it('--rate_limit holds over the test', async () => {
    const flags = ['-n', '100', '-s', '8', '--rate_limit_type', 'SW', '--rate_units', 'p'];
    const { statuses, client } = await run('write_bw', [
      ...flags,
      '--rate_limit',
      '1000',
      '--burst_size',
      '10',
    ]);
    expect(statuses).toEqual([0, 0]);
    // Ten bursts, with 10 ms from one to the next.
    const [, , , , rate] = rows(client.out)[0]!;
    expect(rate).toBeLessThanOrEqual(100 / 0.09 / 1e6);
    const whole = await run('send_bw', [...flags, '--rate_limit', '1e6']);
    expect([whole.statuses, whole.client.out]).toEqual([
      [0, 0],
      expect.stringContaining(' Setting burst size to tx depth = 100\n') as string,
    ]);
  });

  it('--cpu_util is the last column, and a value of the JSON', async () => {
    const file = join(folder, 'cpu.json');
    for (const name of ['write_bw', 'read_lat'] as const) {
      const { statuses, client } = await run(
        name,
        ['-D', '1', '-s', '256', '--cpu_util'],
        [`--out_json_file=${file}`],
      );
      expect(statuses).toEqual([0, 0]);
      expect(client.out).toMatch(/ {4}CPU_Util\[%\]\n .*\t {4}\d+\.\d\d\n/);
      const { results } = JSON.parse(readFileSync(file, 'utf8')) as { results: Record<string, number>[] };
      const printed = rows(client.out)[0]!.at(-1)!;
      expect(results[0]!['CPU_util']).toBeCloseTo(printed, 1);
      expect(printed).toBeLessThanOrEqual(100);
    }
    const without = await run('write_bw', ['-n', '10', '--cpu_util']);
    expect(without.client.out).toContain(' CPU Utilization works only with Duration mode.\n');
    expect(without.client.out).not.toContain('CPU_Util');
  });

  it('--wait_destroy waits before the connections end', async () => {
    const began = performance.now();
    const { statuses, client, server } = await run('write_bw', ['-n', '10', '--wait_destroy', '1']);
    expect(performance.now() - began).toBeGreaterThanOrEqual(1000);
    for (const { out } of [client, server])
      expect(out).toMatch(/-\n Waiting 1 seconds before releasing resources\.\.\.\n$/);
    expect(statuses).toEqual([0, 0]);
  });

  it('-e, -X and -T are said in the report', async () => {
    const { client } = await run('send_bw', ['-n', '10', '-e', '-X', '3', '-T', '40', '-d', 'dev']);
    expect(client.out).toContain('    Send BW Test\n Test with events. Using dev_comp3\n Dual-port ');
    expect(client.out).toContain(' Data ex. method : rdma_cm \tTOS    : 40\n');
    expect(client.out).toContain('TOS changes nothing');
  });

  it('-H and -U list the results in order, and as they came', async () => {
    const { client } = await run('read_lat', ['-n', '20'], ['-H', '-U']);
    const lists = client.out.split('#, usec\n').slice(1);
    const values = lists.map((text) =>
      [...text.matchAll(/^\d+, ([\d.]+)$/gm)].map((match) => Number(match[1])),
    );
    expect(values.map((list) => list.length)).toEqual([19, 19]);
    expect(values[1]).toEqual([...values[0]!].sort((a, b) => a - b));
  });

  it('-C reports cycles, where the system says how many there are', async () => {
    const processor = { speed: 2400, times: { user: 30, idle: 70 } };
    expect(cyclesPerMicrosecond([processor])).toBe(2400);
    for (const unknown of [[], [{ ...processor, speed: 0 }]])
      expect(() => cyclesPerMicrosecond(unknown)).toThrow("Can't produce a report in cycles");
    let speed = 0;
    try {
      speed = cyclesPerMicrosecond();
    } catch {
      expect((await runAlone(PROGRAMS.read_lat, ['-C'])).err).toContain("Can't produce a report in cycles");
    }
    if (speed > 0) {
      const { client } = await run('read_lat', ['-n', '20'], ['-C', '-U']);
      const [first] = [...client.out.split('#, cycles\n')[1]!.matchAll(/^\d+, ([\d.]+)$/gm)];
      expect(Number(first![1])).toBeGreaterThan(speed); // No Read takes less than a microsecond.
    }
  });

  it.each(ALL)('%s has its flags in its help', async (name) => {
    const { out } = await runAlone(PROGRAMS[name], ['--help']);
    const shown = (flag: string): boolean => out.includes(flag);
    const [verb, kind] = name.split('_');
    expect([
      shown('--atomic_type'),
      shown('--latency_gap'),
      shown('--use-srq'),
      shown('--write_with_imm'),
      shown('--rate_limit='),
      shown('--mr_per_qp'),
      shown('--outs'),
    ]).toEqual([
      verb === 'atomic',
      kind === 'lat',
      verb === 'send',
      verb === 'write',
      kind === 'bw' && verb !== 'atomic',
      true,
      verb === 'read' || verb === 'atomic',
    ]);
  });
});

describe('programs of two verbs', () => {
  it('a server of Reads lets Writes in, and both sides print figures', async () => {
    const { statuses, server, client } = await runPair(
      PROGRAMS.read_bw,
      ['-n', '20'],
      PROGRAMS.write_bw,
      (port) => ['-p', port, '-n', '20', '127.0.0.1'],
    );
    expect(statuses).toEqual([0, 0]);
    expect(rows(server.out)).toEqual(rows(client.out));
    expect(rows(client.out)[0]![1]).toBe(20);
  });

  it.each([
    ['write_bw', 'read_bw'],
    ['write_bw', 'atomic_bw'],
    ['read_bw', 'atomic_bw'],
    ['atomic_bw', 'write_bw'],
    ['atomic_bw', 'read_bw'],
  ] as const)('the memory of %s is closed to %s', async (server, client) => {
    const pair = await runPair(PROGRAMS[server], ['-n', '20'], PROGRAMS[client], (port) => [
      '-p',
      port,
      '-n',
      '20',
      '127.0.0.1',
    ]);
    expect(pair.statuses).toEqual([1, 1]);
    for (const { err } of [pair.server, pair.client])
      expect(err).toContain('Failed to exchange data between server and clients');
  });
});

describe('flags that are refused in the stock words', () => {
  it.each([
    ['atomic_bw', ['-A', 'FETCH'], 'Invalid Atomic type! please choose from {CMP_AND_SWAP,FETCH_AND_ADD}'],
    ['write_bw', ['-A', 'FETCH_AND_ADD'], 'You are not running the atomic_lat/bw test!'],
    ['atomic_bw', ['-s', '16'], 'Message size cannot be changed for Atomic tests'],
    ['atomic_lat', ['-a'], 'Message size cannot be changed for Atomic tests'],
    ['atomic_bw', ['-I', '8'], 'Inline feature not available on READ/Atomic verbs'],
    ['atomic_bw', ['-r', '2'], 'On RDMA verbs rx depth can be only 1'],
    ['write_bw', ['--use-srq'], 'Using SRQ only available in SEND / SEND_IMM tests.'],
    ['send_bw', ['--use-srq', '-q', '9', '-r', '8'], 'Using SRQ depth should be greater than number of QPs.'],
    ['send_bw', ['--use-srq', '-q', '400', '-r', '400', '-n', '5000'], 'too few for 400 QPs'],
    ['send_bw', ['--recv_post_list', '3', '-n', '10'], 'must be a multiple of receive post list size'],
    ['send_lat', ['--recv_post_list', '2'], 'Receive post list is supported in BW tests only'],
    ['send_bw', ['--latency_gap', '1'], 'Latency gap feature is only for latency tests'],
    ['send_lat', ['--latency_gap', '-1'], 'Latency gap time should be between 0 and'],
    ['send_bw', ['-T', '256'], 'TOS should be between 0 and 255'],
    ['send_bw', ['-L', '1'], 'Hop limit only valid for RawEth QP'],
    ['send_bw', ['-S', '16'], 'Only 15 Service levels'],
    ['send_bw', ['-x', '65'], 'Gid index should be between 0 and 64'],
    ['send_bw', ['-z'], 'Regular QPs cannot be connected over iWARP: use -R'],
    ['send_bw', ['-g'], "Perftest still doesn't support Multicast with rdma_cm"],
    ['read_bw', ['-g'], 'MultiCast feature only available on SEND verb'],
    ['read_bw', ['-O'], "Perftest still doesn't support Dual Port with rdma_cm"],
    ['read_lat', ['-O'], 'Dual-port mode only supports BW tests.'],
    [
      'read_bw',
      ['--report-per-port', '-D', '1'],
      'report per port feature work only with Duration and Dualport',
    ],
    ['send_bw', ['--connectionless'], 'Using Connectionless server only available'],
    ['send_bw', ['-X', '1'], 'Events must be enabled to select a completion vector'],
    ['write_lat', ['-X', '1', '-e'], 'Events feature not available on WRITE verb'],
    ['send_bw', ['--run_infinitely', '-e'], 'run_infinitely does not support events feature yet.'],
    ['send_lat', ['--run_infinitely'], 'run_infinitely exists only in BW tests for now.'],
    ['send_bw', ['--run_infinitely', '-b'], 'run_infinitely mode is not supported in SEND'],
    ['read_bw', ['--rate_limit', '1'], "HW rate limit isn't supported yet with rdma_cm scenarios"],
    [
      'read_bw',
      ['--rate_limit', '1', '--rate_limit_type=PP'],
      'Packet Pacing is only supported for Raw Ethernet.',
    ],
    ['read_bw', ['--rate_limit', '0'], 'Rate limit must be non-negative floating point number'],
    ['read_bw', ['--rate_limit_type=SW'], 'A rate limiter needs --rate_limit'],
    ['read_bw', ['--rate_limit_type=X'], 'Invalid rate limit type flag. Please use HW, SW or PP.'],
    ['read_bw', ['--rate_limit', '1', '--rate_units', 'k'], 'Invalid rate limit units. Please use M,g or p'],
    ['read_bw', ['--burst_size', '1'], "Can't enable burst mode when rate limiter is off"],
    ['read_bw', ['--typical_pkt_size', '1'], 'Typical packet size only supports PP rate limiter'],
    [
      'read_lat',
      ['--rate_limit', '1', '--rate_limit_type=SW'],
      "SW Rate limiter can't be executed on non-BW",
    ],
    ['send_bw', ['-b', '--rate_limit', '1', '--rate_limit_type=SW'], "SW Rate limiter can't be executed"],
    [
      'read_bw',
      ['--run_infinitely', '--rate_limit', '1'],
      'run_infinitely does not support rate limit feature yet',
    ],
    ['read_bw', ['--write_with_imm'], 'Write_with_imm can only be used with write_lat and write_bw tests'],
    ['read_bw', ['--send_with_imm'], 'Send_with_imm can only be used with send_lat and send_bw tests'],
    ['send_bw', ['--send_with_imm'], 'iWARP has no Send with immediate data'],
    ['read_bw', ['--use_cuda=0'], 'Unsupported memory type'],
    ['read_bw', ['--pin_cores=0'], 'taskset'],
    ['read_bw', ['--data_validation'], '--data_validation is not supported'],
    ['read_bw', ['--force-link=X'], 'Invalid link layer value should be IB or ETHERNET.'],
    ['read_bw', ['--force-link=IB'], 'The link of iWARP is Ethernet'],
    ['read_bw', ['--wait_destroy=-1'], 'wait_destroy should be between 0 and'],
    [
      'send_bw',
      ['--payload_file_path=/nonexist/p'],
      "Failed to open '/nonexist/p': no such file or directory",
    ],
    ['send_bw', ['--bind_source_ip=x', '127.0.0.1'], "--bind_source_ip must be an IP address, got 'x'"],
  ] as const)('%s %j', async (name, args, words) => {
    const side = await runAlone(PROGRAMS[name], [...args]);
    expect(side.code).toBe(1);
    expect(side.err).toContain(words);
    expect(side.err).toContain('Parser function exited with Error');
  });

  it('flags that change nothing over iWARP are taken', async () => {
    const flags = [
      '-i',
      '1',
      '-u',
      '14',
      '-S',
      '3',
      '-x',
      '0',
      '-z',
      '-R',
      '--retry_count',
      '3',
      '--no_lock',
    ];
    const more = [
      '--cqe_poll',
      '8',
      '--disable_dynamic_polling',
      '--tclass',
      '1',
      '--ipv6',
      '--force-link=Ethernet',
    ];
    expect((await run('send_bw', ['-n', '10', ...flags, ...more])).statuses).toEqual([0, 0]);
  });
});

describe('the file of a payload', () => {
  const payload = (text: string, size = 100): Uint8Array => {
    const file = join(folder, 'payload');
    writeFileSync(file, text);
    return readPayload(file, size);
  };

  it('is words in little-endian order, as many as the size takes', () => {
    expect(Buffer.from(payload('0x00112233,0xAABBCCDD\n')).toString('hex')).toBe('33221100ddccbbaa');
    expect(Buffer.from(payload('0x00112233,0xaabbccdd', 6)).toString('hex')).toBe('33221100ddcc');
    expect(payload('0x00112233,nonsense', 4)).toHaveLength(4);
    const bytes = new Uint8Array(7);
    fillWith(bytes, Uint8Array.of(1, 2, 3));
    expect([...bytes]).toEqual([1, 2, 3, 1, 2, 3, 1]);
  });

  it.each([
    ['', 'Payload size should be greater than 0'],
    ['0x00112233,0x1', 'Failed to parse DWORD number: 1'],
    ['0x0011223g', 'Invalid hex char in DWORD number: 0'],
  ])('%j is refused', (text, words) => {
    expect(() => payload(text)).toThrow(words);
  });
});

describe('the rate limiter', () => {
  it('lets a burst go at each turn, and makes up for a late one', () => {
    const limiter = new RateLimiter({ burst: 4, gap: 10 }, 1000);
    expect(limiter.wait(1000)).toBe(0);
    for (let n = 0; n < 2; n++) {
      expect(limiter.wait(1000)).toBe(0);
      limiter.take(2);
    }
    expect([limiter.wait(1000), limiter.wait(1007), limiter.wait(1010)]).toEqual([10, 3, 0]);
    // A list that is longer than the rest of the burst goes as a whole.
    limiter.take(3);
    limiter.take(3);
    expect(limiter.wait(1012)).toBe(8);
    // Late by a turn: the next one is due at once.
    limiter.take(4);
    expect(limiter.wait(1035)).toBe(0);
    limiter.take(4);
    expect(limiter.wait(1035)).toBe(5);
  });
});

it('a call at a time comes then, or never', async () => {
  const at = performance.now() + 20;
  let stopped = 0;
  callAt(at - 10, () => stopped++)();
  await new Promise<void>((resolve) => callAt(at, resolve));
  expect(performance.now()).toBeGreaterThanOrEqual(at);
  expect(stopped).toBe(0);
});

it('the use of processors is user time of user and idle time', () => {
  const processor = (
    user: number,
    idle: number,
  ): { speed: number; times: { user: number; idle: number } } => ({
    speed: 1,
    times: { user, idle },
  });
  const before = cpuTimes([processor(10, 90), processor(20, 80)]);
  expect(utilization(before, cpuTimes([processor(30, 100), processor(30, 140)]))).toBe(30);
  expect(utilization(before, before)).toBe(0);
});
