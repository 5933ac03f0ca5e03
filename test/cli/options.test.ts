/** Command lines are read as getopt_long reads them. */
// cspell:ignore histogrm rpign siez xyzzy disect
import { describe, expect, it, vi } from 'vitest';
import { main } from '../../cli/main.ts';
import { nearest } from '../../cli/support/nearest.ts';
import { printable, printableJson, quoted } from '../../cli/support/printable.ts';
import { run as rdmaClient } from '../../cli/rdma-client.ts';
import { run as rdmaServer } from '../../cli/rdma-server.ts';
import { run as riostream } from '../../cli/riostream.ts';
import { run as rping } from '../../cli/rping.ts';
import { run as rstream } from '../../cli/rstream.ts';
import { atoi, parseOptions, strtol, UsageError } from '../../cli/support/options.ts';
import { run as ucmatose } from '../../cli/ucmatose.ts';
import { runAlone } from './pair.ts';

const longs = {
  size: { short: 's', value: true },
  all: { short: 'a' },
  report_gbits: {},
  'report-both': {},
} as const;
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

describe('strtol', () => {
  it.each([
    ['0x1000', 4096],
    ['010', 8],
    ['4096', 4096],
    ['-0x10K', -16],
    ['0', 0],
    ['x', 0],
  ])('reads %s as %i', (text, value) => expect(strtol(text)).toBe(value));
});

describe('a mistyped word', () => {
  it('is answered with the nearest one, if one is near', () => {
    expect(nearest('disect', ['dissect', 'demo'])).toBe('dissect');
    expect(nearest('rpign', ['rping', 'rcopy'])).toBe('rping');
    expect(nearest('xyzzy', ['rping', 'rcopy'])).toBeUndefined();
    expect(() => parse('--siez', '1')).toThrow("unrecognized option '--siez'; did you mean '--size'?");
    expect(() => parse('--toString')).toThrow("unrecognized option '--toString'");
  });

  it('two spellings of one option are no ambiguity', () => {
    const both = { 'report-histogram': { short: 'H' }, 'report-histogrm': { short: 'H' } };
    for (const word of ['--report-hist', '--report-histogrm', '--report-histogram'])
      expect(parseOptions([word], 'H', both).flags.has('H')).toBe(true);
  });
});

describe('iwarp', () => {
  const said = async (...args: string[]): Promise<{ status: number; out: string; err: string }> => {
    const written = { out: '', err: '' };
    const spies = (['stdout', 'stderr'] as const).map((name) =>
      vi.spyOn(process[name], 'write').mockImplementation((text) => {
        written[name === 'stdout' ? 'out' : 'err'] += String(text);
        return true;
      }),
    );
    try {
      return { status: await main(args), ...written };
    } finally {
      for (const spy of spies) spy.mockRestore();
    }
  };

  it.each([
    ...['rping', 'ucmatose', 'rdma_client', 'rdma_server', 'cmtime', 'rcopy', 'rstream', 'riostream'],
    ...['write_bw', 'write_lat', 'read_bw', 'read_lat', 'send_bw', 'send_lat', 'atomic_bw', 'atomic_lat'],
    ...['nbd', 'dissect', 'proxy', 'stat', 'devinfo', 'demo', 'bench'],
  ])('help %s and %s --help end with 0 on standard output', async (name) => {
    const help = await said('help', name);
    expect(help.status).toBe(0);
    expect(help.out).toMatch(/usage|rping -s/i);
    expect(await said(name, '--help')).toEqual(help);
    expect(help.err).toBe('');
  });

  it.each(['rping', 'ucmatose', 'rdma_server', 'rcopy', 'rstream', 'riostream', 'send_bw'])(
    'the help of %s has our options apart from those of the stock tool',
    async (name) => {
      const { out } = await said('help', name);
      const [stock, ours] = out.split('\noptions that the stock tool does not have:\n');
      expect(stock).toMatch(/-p/);
      for (const option of ['--pcap', '--timeout', '--crc', '--markers']) {
        expect(stock).not.toContain(option);
        expect(ours).toContain(option);
      }
    },
  );

  it('an unknown command is answered with the nearest', async () => {
    const { status, err } = await said('disect');
    expect([status, err.split('\n')[0]]).toEqual([
      2,
      'iwarp: unknown command "disect"; did you mean dissect?',
    ]);
  });
});

describe("a peer's text", () => {
  it('holds no control and no directional character when printed', () => {
    expect(printable('a\u001b[2J\u009b\u202eé…')).toBe('a\\x1b[2J\\x9b\\u{202e}é…');
    expect(quoted('a"b\\c\n')).toBe('"a\\"b\\\\c\\x0a"');
    const text = 'x\u0085\u202e\u{e0001}y';
    expect(printableJson(JSON.stringify(text))).toMatch(/^[\x20-\x7e]+$/);
    expect(JSON.parse(printableJson(JSON.stringify(text)))).toBe(text);
  });
});
