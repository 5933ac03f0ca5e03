/** `iwarp nbd` as a user types it: every option, the progress line, counters, mistakes and exit statuses. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { run } from '../../cli/nbd.ts';
import { pattern } from '../nbd/support.ts';

const MIB = 1 << 20;
const folder = mkdtempSync(join(tmpdir(), 'iwarp-nbd-cli-'));
afterAll(() => rmSync(folder, { recursive: true }));
const path = (name: string): string => join(folder, name);

interface Said {
  readonly status: number;
  readonly out: string;
  readonly err: string;
}

async function command(...words: string[]): Promise<Said> {
  let [out, err] = ['', ''];
  const status = await run(words, { out: (text) => (out += text), err: (text) => (err += text) });
  return { status, out, err };
}

/** A command that serves until it is stopped; resolves when it has said `lines` lines. */
async function serving(
  lines: number,
  ...words: string[]
): Promise<{ said: string; stop: () => Promise<Said> }> {
  const abort = new AbortController();
  let [out, err] = ['', ''];
  const status = run(words, {
    out: (text) => (out += text),
    err: (text) => (err += text),
    signal: abort.signal,
  });
  const isUp = (): boolean => out.split('\n').length > lines;
  await Promise.race([expect.poll(isUp, { timeout: 50_000 }).toBe(true), status]);
  if (!isUp()) throw new Error(`the command has ended: ${out}${err}`);
  const stop = async (): Promise<Said> => {
    abort.abort();
    return { status: await status, out, err };
  };
  return { said: out, stop };
}

/** The URIs of `serving …` lines. */
const urisOf = (said: string): string[] => [...said.matchAll(/^serving (\S+)$/gm)].map((match) => match[1]!);

describe.each(['iwarp', 'qpip'])('wire %s', (wire) => {
  it.each(['thread', 'worker'])('serves several exports everywhere at once, engine %s', async (engine) => {
    writeFileSync(path('disk.img'), Buffer.alloc(MIB));
    const unix = path(`s-${wire}-${engine}`);
    const how = ['--wire', wire, '--engine', engine];
    const server = await serving(
      3,
      ...['serve', '--memory', '4M', '--export', `disk=${path('disk.img')}`, '--export', 'more=memory:64K'],
      ...['--nbd', '127.0.0.1:0', '--nbd-unix', unix, '--rdma', '127.0.0.1:0', ...how],
    );
    const [tcp = '', local = '', rdma = ''] = urisOf(server.said);
    expect([tcp, local, rdma]).toEqual([
      expect.stringMatching(/^nbd:\/\/127\.0\.0\.1:\d+$/),
      `nbd+unix:///?socket=${unix}`,
      expect.stringMatching(/^rdma:\/\/127\.0\.0\.1:\d+$/),
    ]);
    const shown = await command('info', tcp);
    expect(shown.out).toContain('export "": 4194304 bytes\n');
    expect(shown.out).toContain('can: read, write, flush, trim, zero, extents');
    expect(shown.out).toContain('exports here: "", "disk", "more"');
    expect((await command('info', `${rdma}/more`, ...how)).out).toContain('export "more": 65536 bytes\n');
    expect((await command('info', `nbd+unix:///disk?socket=${unix}`)).out).toContain('1048576 bytes');
    writeFileSync(path('source'), pattern(MIB));
    for (const mode of wire === 'iwarp' ? ['message', 'direct'] : ['direct'])
      expect((await command('copy', path('source'), `${rdma}/disk`, '--mode', mode, ...how)).status).toBe(0);
    const copied = await command('copy', `${rdma}/disk`, path('back'), ...how);
    expect(copied).toMatchObject({ status: 0, out: '' });
    expect(copied.err).toMatch(/\r100 % of 1048576 bytes, \d+ MB\/s {3}\n$/);
    expect(readFileSync(path('back')).equals(readFileSync(path('source')))).toBe(true);
    expect(readFileSync(path('disk.img')).equals(readFileSync(path('source')))).toBe(true);
    const { status, out } = await server.stop();
    expect(status).toBe(0);
    expect(out).toMatch(/\d+ connections, \d+ requests, 1048576 bytes read, \d{7} written, 0 errors\n$/);
  });

  it.each(['message', 'direct'])('attaches as a Unix socket and as a port, mode %s', async (mode) => {
    const how = ['--wire', wire];
    const server = await serving(1, 'serve', '--export', 'd=memory:1M', '--rdma', '127.0.0.1:0', ...how);
    const unix = path(`a-${wire}-${mode}`);
    const gateway = await serving(
      2,
      ...[
        'attach',
        `${urisOf(server.said)[0]}/d`,
        '--mode',
        mode,
        '--unix',
        unix,
        '--nbd',
        '127.0.0.1:0',
        ...how,
      ],
    );
    const [tcp = '', local = ''] = urisOf(gateway.said);
    expect(local).toBe(`nbd+unix:///?socket=${unix}`);
    writeFileSync(path('source'), pattern(MIB, 7));
    expect((await command('copy', path('source'), `nbd+unix:///d?socket=${unix}`, '--quiet')).err).toBe('');
    expect((await command('copy', `${tcp}/d`, path('back'), '--quiet')).status).toBe(0);
    expect(readFileSync(path('back')).equals(readFileSync(path('source')))).toBe(true);
    expect((await gateway.stop()).status).toBe(0);
    await server.stop();
  });
});

it('--read-only refuses what would change an export', async () => {
  const server = await serving(1, 'serve', '--memory', '1M', '--read-only', '--nbd', '127.0.0.1:0');
  const [uri = ''] = urisOf(server.said);
  expect((await command('info', uri)).out).toContain('1048576 bytes, read-only\n');
  writeFileSync(path('source'), pattern(MIB));
  expect(await command('copy', path('source'), uri, '--quiet')).toMatchObject({ status: 1 });
  await server.stop();
});

it('an attached export ends with the server, and says why', async () => {
  const server = await serving(1, 'serve', '--memory', '1M', '--rdma', '127.0.0.1:0');
  const abort = new AbortController();
  let err = '';
  const io = { out: () => undefined, err: (text: string) => (err += text), signal: abort.signal };
  const gateway = run(['attach', urisOf(server.said)[0]!, '--nbd', '127.0.0.1:0'], io);
  await new Promise((resolve) => setTimeout(resolve, 300));
  await server.stop();
  expect(await gateway).toBe(1);
  expect(err).toMatch(/^nbd: .+\n$/);
});

it.each([
  [[], 'give serve, attach, copy or info'],
  [['stop'], 'give serve, attach, copy or info'],
  [['serve'], 'serve needs --nbd, --nbd-unix or --rdma'],
  [['serve', '--nbd', '127.0.0.1:0'], 'serve needs --memory, --file or --export'],
  [['serve', '--memory', '1M', '--file', 'x', '--nbd', '127.0.0.1:0'], 'give --memory or --file'],
  [
    ['serve', '--memory', '1X', '--nbd', '127.0.0.1:0'],
    "--memory must be a size such as 65536 or 64M, got '1X'",
  ],
  [['serve', '--memory', '1M', '--nbd', 'x:y'], "--nbd must be HOST:PORT, got 'x:y'"],
  [['serve', '--memory', '1M', '--nbd', '127.0.0.1:65536'], '--nbd must be HOST:PORT'],
  [['serve', '--memory', '1M', '--export', 'x', '--nbd', '127.0.0.1:0'], '--export must be NAME=SOURCE'],
  [
    ['serve', '--export', 'a=memory:1M', '--export', 'a=memory:1M', '--nbd', '127.0.0.1:0'],
    "two exports named 'a'",
  ],
  [['serve', '--memory', '1M', '--rdma', '127.0.0.1:0', '--wire', 'ib'], '--wire'],
  [['serve', '--memory', '1M', '--rdma', '127.0.0.1:0', '--engine', 'gpu'], 'engine'],
  [['serve', '--memory', '1M', '--nbd', '127.0.0.1:0', 'x'], "'x' is no option of serve"],
  [['serve', '--mode', 'direct'], '--mode is not an option of serve'],
  [['attach'], 'attach takes one URI'],
  [['attach', 'rdma://127.0.0.1:1'], 'attach needs --unix or --nbd'],
  [['attach', 'http://127.0.0.1', '--unix', 'x'], 'is no URI of an export'],
  [['attach', 'rdma://127.0.0.1:1', '--unix', 'x', '--mode', 'both'], '--mode'],
  [['copy', 'a'], 'copy takes a source and a target'],
  [['copy', 'a', 'b', 'c'], 'copy takes a source and a target'],
  [['info'], 'info takes one URI'],
  [['info', '--other', 'x'], '--other'],
])('iwarp nbd %j is wrong usage, and says why', async (words, why) => {
  const { status, out, err } = await command(...words);
  expect([status, out]).toEqual([2, '']);
  expect(err).toContain(why);
  expect(err).toContain('usage: iwarp nbd serve');
});

it.each([
  [['info', 'nbd://127.0.0.1:9'], /cannot connect/],
  [['info', 'rdma://127.0.0.1:9'], /cannot connect/],
  [['info', 'nbd+unix:///?socket=/nowhere'], /cannot connect/],
  [['copy', '/nowhere/a', 'b'], /\/nowhere\/a/],
  [['attach', 'rdma://127.0.0.1:9', '--unix', '/nowhere/s'], /cannot connect/],
  [['serve', '--file', '/nowhere/a', '--nbd', '127.0.0.1:0'], /\/nowhere\/a/],
  [['serve', '--memory', '1M', '--nbd-unix', '/nowhere/s'], /cannot listen/],
])('iwarp nbd %j fails with status 1 and a message', async (words, why) => {
  const { status, err } = await command(...words);
  expect(status).toBe(1);
  expect(err).toMatch(why);
  expect(err).not.toContain('usage');
});
