/** The stock tools over UDP, each against itself. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { perftest } from '../../cli/perftest.ts';
import type { Kind, Verb } from '../../cli/perftest/program.ts';
import { run as rping } from '../../cli/rping.ts';
import { run as ucmatose } from '../../cli/ucmatose.ts';
import { runAlone, runPair } from '../cli/pair.ts';

const WIRE = ['--wire', 'trp'];

it('rping pings, and the capture has its datagrams as UDP', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarp-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'trp.pcap');
  const { statuses, client } = await runPair(rping, ['-s', '-a', '127.0.0.1', ...WIRE], rping, (port) => [
    '-c',
    '-a',
    '127.0.0.1',
    '-p',
    port,
    '-C',
    '3',
    '-S',
    '5000',
    '-V',
    '--pcap',
    file,
    ...WIRE,
  ]);
  expect(statuses).toEqual([0, 0]);
  expect(client.err).toContain('client DISCONNECT EVENT');
  const bytes = readFileSync(file);
  // File header, record header, the first packet: IPv4, protocol UDP, a request of sixteen octets.
  expect(bytes[40]).toBe(0x45);
  expect(bytes[49]).toBe(17);
  expect(bytes.readUInt16BE(40 + 20 + 4)).toBe(8 + 16);
  expect(bytes.readUInt16BE(40 + 20 + 8 + 8)).toBe(0x1000);
});

it('ucmatose makes its connections and moves its messages', async () => {
  const { statuses } = await runPair(ucmatose, ['-b', '127.0.0.1', '-c', '3', ...WIRE], ucmatose, (port) => [
    '-s',
    '127.0.0.1',
    '-p',
    port,
    '-c',
    '3',
    ...WIRE,
  ]);
  expect(statuses).toEqual([0, 0]);
});

it.each(['write_lat', 'read_lat', 'send_lat', 'write_bw', 'read_bw', 'send_bw'] as const)(
  '%s measures',
  async (name) => {
    const [verb, kind] = name.split('_') as [Verb, Kind];
    const program = perftest(verb, kind);
    const { statuses, client } = await runPair(
      program,
      [...WIRE, '-n', '40', '-s', '4000'],
      program,
      (port) => ['127.0.0.1', '-p', port, '-n', '40', '-s', '4000', ...WIRE],
    );
    expect(statuses).toEqual([0, 0]);
    const row = client.out.split('\n').find((line) => /^ \d/.test(line))!;
    expect(row.trim().split(/\s+/).slice(0, 2)).toEqual(['4000', '40']);
  },
);

it('the demo shows its exchange and some seconds of rate', async () => {
  const command = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
  const demo = await promisify(execFile)(process.execPath, [
    command,
    'demo',
    '--wire',
    'trp',
    '--seconds',
    '1',
  ]);
  expect(demo.stderr).toBe('');
  expect(demo.stdout).toContain('Every byte was verified on both sides.');
}, 60_000);

it('another wire is refused by name', async () => {
  const { code, err } = await runAlone(rping, ['-s', '--wire', 'ether']);
  expect(code).not.toBe(0);
  expect(err).toContain('--wire must be one of');
});
