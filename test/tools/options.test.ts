/** Command lines are read as getopt_long reads them. */
import { describe, expect, it } from 'vitest';
import { run as rdmaClient } from '../../src/tools/rdma-client.ts';
import { run as rdmaServer } from '../../src/tools/rdma-server.ts';
import { run as riostream } from '../../src/tools/riostream.ts';
import { run as rping } from '../../src/tools/rping.ts';
import { run as rstream } from '../../src/tools/rstream.ts';
import { atoi, parseOptions, UsageError } from '../../src/tools/support/options.ts';
import { run as ucmatose } from '../../src/tools/ucmatose.ts';
import { runAlone } from './pair.ts';

const longs = { size: { short: 's', value: true }, all: { short: 'a' }, report_gbits: {}, 'report-both': {} } as const;
const parse = (...args: string[]): ReturnType<typeof parseOptions> => parseOptions(args, 's:ab', longs);
const flags = (...args: string[]): Record<string, string | true> => Object.fromEntries(parse(...args).flags);

describe('parseOptions', () => {
  it('takes clusters, glued and separate values', () => {
    expect(flags('-abs10')).toEqual({ a: true, b: true, s: '10' });
    expect(flags('-s', '10', '-a')).toEqual({ s: '10', a: true });
  });

  it('takes long options, with =, apart, and abbreviated', () => {
    expect(flags('--size=5', '--all')).toEqual({ s: '5', a: true });
    expect(flags('--siz', '7', '--report_g')).toEqual({ s: '7', report_gbits: true });
  });

  it('keeps words that are no options, and all after --', () => {
    expect(parse('one', '-a', '--', '-b', 'two').rest).toEqual(['one', '-b', 'two']);
    expect(parse('-').rest).toEqual(['-']);
  });

  it('takes policy options, negated too, without touching the flags', () => {
    const { policy, flags: found } = parse('--crc', 'off', '--no-peer-to-peer', '--relaxed');
    expect(policy).toEqual({ crc: 'off', 'peer-to-peer': false, relaxed: true });
    expect(found.size).toBe(0);
  });

  it.each([
    [['-z'], "invalid option -- 'z'"],
    [['-:'], "invalid option -- ':'"],
    [['-s'], "option requires an argument -- 's'"],
    [['--size'], "option '--size' requires an argument"],
    [['--all=1'], "option '--all' doesn't allow an argument"],
    [['--nope'], "unrecognized option '--nope'"],
    [['--report'], "option '--report' is ambiguous"],
  ])('%j is told as getopt does', (args, message) => {
    expect(() => parse(...args)).toThrow(UsageError);
    expect(() => parse(...args)).toThrow(message);
  });

  it('atoi reads leading digits', () => {
    expect([atoi('12'), atoi(' -3x'), atoi('x'), atoi('')]).toEqual([12, -3, 0, 0]);
  });
});

describe('an address that is empty, as that of a shell variable that is not set', () => {
  it.each([
    ['rping', ['-c', '-a', ''], rping, '-a', 22],
    ['rping', ['-s', '-a', ''], rping, '-a', 22],
    ['ucmatose', ['-s', ''], ucmatose, '-s', 1],
    ['ucmatose', ['-b', ''], ucmatose, '-b', 1],
    ['rdma_client', ['-s', ''], rdmaClient, '-s', 1],
    ['rdma_server', ['-s', ''], rdmaServer, '-s', 1],
    ['rstream', ['-s', ''], rstream, '-s', 1],
    ['riostream', ['-b', ''], riostream, '-b', 1],
  ] as const)('%s %j', async (name, args, run, flag, status) => {
    const side = await runAlone(run, [...args]);
    expect(side.code).toBe(status);
    expect(side.err).toBe(`${name}: ${flag} must be a host name or address, got ''\n`);
    expect(side.out).toContain(name);
  });
});
