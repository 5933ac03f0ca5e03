/** `iwarp qpip` as a user types it. Needs `npm run build`. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { run } from '../../cli/qpip.ts';
import { pattern } from '../nbd/support.ts';

const COMMAND = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
const BIG = Buffer.from(pattern(3_000_017));

const start = (...words: string[]): ChildProcess =>
  spawn(process.execPath, [COMMAND, 'qpip', ...words], { stdio: ['pipe', 'pipe', 'pipe'] });

async function echo(...words: string[]): Promise<{ child: ChildProcess; ports: number[] }> {
  const child = start('echo', ...words);
  let said = '';
  const lines = words.filter((word) => word === '--tcp' || word === '--udp').length;
  while (said.split('\n').length <= lines) said += String((await once(child.stdout!, 'data'))[0]);
  return { child, ports: [...said.matchAll(/:(\d+)$/gm)].map((match) => Number(match[1])) };
}

async function send(
  input: Uint8Array,
  ...words: string[]
): Promise<{ status: number; out: Buffer; err: string }> {
  const child = start('send', ...words);
  const out: Buffer[] = [];
  let err = '';
  child.stdout!.on('data', (data: Buffer) => out.push(data));
  child.stderr!.on('data', (data: Buffer) => (err += data.toString()));
  child.stdin!.on('error', () => undefined).end(input);
  const [status] = (await once(child, 'close')) as [number];
  return { status, out: Buffer.concat(out), err };
}

async function stop(child: ChildProcess): Promise<number> {
  child.kill('SIGTERM');
  return ((await once(child, 'exit')) as [number])[0];
}

describe.each(['none', 'length', 'segment'])('framing %s', (framing) => {
  it.each([
    ['thread', '127.0.0.1'],
    ['worker', '::1'],
  ])('3 MB come back, engine %s, %s', async (engine, host) => {
    const how = ['--framing', framing, '--engine', engine];
    const { child, ports } = await echo('--tcp', '0', '--host', host, ...how);
    const { status, out, err } = await send(BIG, host, String(ports[0]), '--tcp', ...how);
    expect([status, err, out.equals(BIG)]).toEqual([0, '', true]);
    expect(await stop(child)).toBe(0);
  });
});

it.each(['127.0.0.1', '::1'])('datagrams come back over %s, beside TCP', async (host) => {
  const { child, ports } = await echo('--tcp', '0', '--udp', '0', '--host', host);
  expect(ports).toHaveLength(2);
  const sent = await send(Buffer.from('hello'), host, String(ports[1]), '--udp', '--wait', '500');
  expect([sent.status, String(sent.out)]).toEqual([0, 'hello']);
  expect(await stop(child)).toBe(0);
});

it('a port where nothing listens is status 1 with a message', async () => {
  const { status, err } = await send(Buffer.from('x'), '127.0.0.1', '9', '--tcp');
  expect(status).toBe(1);
  expect(err).toMatch(/^qpip: .+\n$/);
});

it.each([
  [[], 'give echo or send'],
  [['echo'], 'echo needs --tcp, --udp or both'],
  [['echo', '--tcp', '65536'], '--tcp'],
  [['echo', '--tcp', '7', '--framing', 'json'], '--framing'],
  [['echo', '--tcp', '7', '--engine', 'gpu'], 'engine'],
  [['echo', '--port', '7'], '--port'],
  [['send', '127.0.0.1', '7'], '--tcp or --udp'],
  [['send', '127.0.0.1', '7', '--tcp', '--udp'], '--tcp or --udp'],
  [['send', '127.0.0.1', '--tcp'], 'HOST and PORT'],
  [['send', '127.0.0.1', '0', '--tcp'], 'PORT'],
])('iwarp qpip %j is wrong usage, and says why', async (words, why) => {
  let err = '';
  const status = await run(words, { out: () => undefined, err: (text) => (err += text) });
  expect(status).toBe(2);
  expect(err).toContain(why);
  expect(err).toContain('usage: iwarp qpip echo');
});
