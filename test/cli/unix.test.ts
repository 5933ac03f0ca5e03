/** The tools over a Unix socket: `--unix PATH` at both ends. */
import { fork } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { perftest } from '../../cli/perftest.ts';
import { run as rping } from '../../cli/rping.ts';
import { run as rstream } from '../../cli/rstream.ts';
import { run as stream } from '../../cli/stream.ts';
import { run as ucmatose } from '../../cli/ucmatose.ts';
import { CaptureFile } from '../../src/inspect/capture/capture-file.ts';
import { readCaptureFile } from '../../src/inspect/read-file.ts';
import { runAlone, runPair, Side, type ToolRun } from './pair.ts';

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'iwarp-tools-'));
  path = join(folder, 'socket');
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

describe.each(['thread', 'worker'])('over a Unix socket, engine %s', (engine) => {
  beforeEach(() => void vi.stubEnv('IWARP_ENGINE', engine));

  it.each<[string, ToolRun, string[], string[]]>([
    ['rping', rping, ['-s'], ['-c', '-C', '3', '-V']],
    ['ucmatose', ucmatose, ['-c', '2'], ['-s', 'ignored', '-c', '2']],
    ['write_bw', perftest('write', 'bw'), ['-n', '50'], ['-n', '50', 'ignored']],
    ['read_lat', perftest('read', 'lat'), ['-n', '50'], ['-n', '50', 'ignored']],
    ['rstream', rstream, ['-S', '64', '-C', '10'], ['-s', 'ignored', '-S', '64', '-C', '10']],
  ])('%s', async (_name, tool, server, client) => {
    const unix = ['--unix', path];
    const pair = await runPair(tool, [...server, ...unix], tool, () => [...client, ...unix]);
    expect([pair.statuses, pair.server.err]).toEqual([[0, 0], expect.not.stringContaining('port')]);
    await expect.poll(() => existsSync(path)).toBe(false); // a worker removes it a little later
  });
});

it('captures show both directions of a connection that has no addresses', async () => {
  const file = join(folder, 'run.pcap');
  const pair = await runPair(rping, ['-s', '--unix', path], rping, () => [
    ...['-c', '-C', '1', '--unix', path, '--pcap', file],
  ]);
  expect(pair.statuses).toEqual([0, 0]);
  const ends = new Set<string>();
  const capture = new CaptureFile({
    packet: ({ bytes, start }) => ends.add(bytes.subarray(start + 12, start + 20).join('.')),
    remark: (_offset, message) => expect.unreachable(message),
  });
  readCaptureFile(file, capture);
  expect(ends).toEqual(new Set(['127.0.0.1.127.0.0.1']));
});

it('stream echoes, and says where it listens', async () => {
  const server = new Side(stream, ['listen', '--echo', '--unix', path]);
  await server.said(`listening on ${path}\n`);
  server.kill();
  expect(await server.status).toBe(0);
  for (const words of [
    ['listen', '0', '--unix', path],
    ['connect', '--unix', ''],
    ['connect', 'here'],
  ])
    expect((await runAlone(stream, words)).code).toBe(2);
});

it('a path that is a folder is said to be in use', async () => {
  const { code, err } = await runAlone(rping, ['-s', '--unix', folder]);
  expect([code, err]).toEqual([1, `rping: cannot listen on ${folder} (EADDRINUSE)\n`]);
});

it('demo', async () => {
  const program = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
  const child = fork(program, ['demo', '--seconds', '1', '--unix', path], { execArgv: [], stdio: 'pipe' });
  let out = '';
  child.stdout!.on('data', (text: Buffer) => (out += text.toString()));
  const status = await new Promise((resolve) => child.once('close', resolve));
  expect([status, out]).toEqual([0, expect.stringContaining(`listening on ${path}.`)]);
  expect(out).toContain('Every byte was verified on both sides.');
});
