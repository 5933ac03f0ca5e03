// `iwarp shared`, run as a user runs it: two processes' worth of tools in one, over loopback.
// cspell:ignore onetwo
import { describe, expect, it } from 'vitest';
import { run } from '../../cli/shared.ts';

interface Said {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

async function tool(args: string[], listening?: (port: number) => void, signal?: AbortSignal): Promise<Said> {
  let [out, err] = ['', ''];
  const status = await run(args, {
    out: (words) => (out += words),
    err: (words) => (err += words),
    ...(listening && { listening }),
    ...(signal && { signal }),
  });
  return { status, out, err };
}

describe('iwarp shared', () => {
  it('writes and reads in the order of its options; the listener shows its region at the end', async () => {
    const port = await new Promise<{ port: number; ended: Promise<Said> }>((resolve) => {
      const ended: Promise<Said> = tool(
        ['listen', '0', '--size', '4K', '--once', '--show', '0:5', '--show', '100:20'],
        (at) => setImmediate(() => resolve({ port: at, ended })),
      );
    });
    const client = await tool([
      ...['connect', '127.0.0.1', String(port.port), '--size', '64'],
      ...[
        '--write',
        '0=hello',
        '--read',
        '0:5',
        '--write',
        '100=a=b\u001b[31m',
        '--read',
        '100:8',
        '--write',
        '0=later',
      ],
    ]);
    expect(client).toEqual({ status: 0, out: 'hello\na=b\\x1b[31m\n', err: '' });
    const { status, out, err } = await port.ended;
    expect({ status, err }).toEqual({ status: 0, err: '' });
    expect(out.replaceAll(/127\.0\.0\.1:\d+/g, 'ADDRESS')).toBe(
      'listening at ADDRESS, 4096 bytes\n' +
        'ADDRESS has connected, 64 bytes\n' +
        'ADDRESS has left\n' +
        'later\na=b\\x1b[31m\n',
    );
  });

  it('several clients share one region, until the listener is asked to end', async () => {
    const stop = new AbortController();
    const { port, ended } = await new Promise<{ port: number; ended: Promise<Said> }>((resolve) => {
      const end: Promise<Said> = tool(
        ['listen', '0', '--size', '1M'],
        (at) => setImmediate(() => resolve({ port: at, ended: end })),
        stop.signal,
      );
    });
    const at = ['127.0.0.1', String(port)];
    expect((await tool(['connect', ...at, '--write', '7=one'])).status).toBe(0);
    expect((await tool(['connect', ...at, '--write', '10=two', '--read', '7:6'])).out).toBe('onetwo\n');
    expect((await tool(['connect', ...at, '--hex', '--read', '6:3'])).out).toBe('006f6e\n');
    const outside = await tool(['connect', ...at, '--write', '1048576=x']);
    expect(outside.status).toBe(1);
    expect(outside.err).toMatch(/does not lie inside the region of the peer, which has 1048576 bytes/);
    stop.abort();
    expect((await ended).status).toBe(0);
  });

  it.each([
    [[], /give listen or connect/],
    [['listen'], /takes a port/],
    [['listen', '70000'], /port/],
    [['listen', '0', '--write', '0=x'], /--write is not an option of listen/],
    [['listen', '0', '--size', '8', '--show', '4:5'], /--show 4:5 lies outside/],
    [['listen', '0', '--size', 'many'], /--size must be a size/],
    [['connect', 'a'], /port/],
    [['connect', '127.0.0.1', '1', '--write', 'hello'], /OFFSET=TEXT/],
    [['connect', '127.0.0.1', '1', '--read', '4'], /OFFSET:LENGTH/],
    [['connect', '127.0.0.1', '1', '--engine', 'fast'], /--engine/],
  ])('%j is a usage error', async (args, message) => {
    const { status, out, err } = await tool(args);
    expect({ status, out }).toEqual({ status: 2, out: '' });
    expect(err).toMatch(message);
    expect(err).toMatch(/usage: iwarp shared/);
  });

  it('--help ends with 0; a port without a listener ends with 1', async () => {
    expect(await tool(['--help'])).toMatchObject({ status: 0, err: '' });
    const { status, err } = await tool(['connect', '127.0.0.1', '1']);
    expect(status).toBe(1);
    expect(err).toMatch(/cannot connect/);
  });
});
