/**
 * Kill -9 of either side in mid-transfer, 3 or 20 times each (`depth.ts`). Needs the compiled command
 * (`npm run build`). A client ends with a typed error or goes on after the reconnection; a file written
 * through it is never silently wrong.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it } from 'vitest';
import { IwarpError } from '../../src/index.ts';
import { connect } from '../../src/nbd/index.ts';
import { pattern } from './support.ts';
import { depth } from '../support/depth.ts';
import { freePort } from '../../scripts/ports.ts';

const COMMAND = fileURLToPath(new URL('../../bin/iwarp.js', import.meta.url));
const SIZE = 8 * 1024 * 1024;
const PIECE = 65_536;
const folder = await mkdtemp(join(tmpdir(), 'iwarp-nbd-kill-'));
const alive = new Set<ChildProcess>();
afterAll(async () => {
  for (const child of alive) child.kill('SIGKILL');
  await rm(folder, { recursive: true });
});

function start(...args: string[]): ChildProcess {
  const child = spawn(process.execPath, [COMMAND, 'nbd', ...args], { stdio: ['ignore', 'pipe', 'ignore'] });
  alive.add(child);
  child.once('exit', () => alive.delete(child));
  return child;
}

async function serving(file: string, ports: readonly number[]): Promise<ChildProcess> {
  const [nbd, rdma] = ports.map((port) => `127.0.0.1:${port}`) as [string, string];
  const child = start('serve', '--file', file, '--nbd', nbd, '--rdma', rdma);
  let said = '';
  await new Promise<void>((resolve, reject) => {
    child.stdout!.on('data', (data: Buffer) => {
      said += data.toString();
      if (said.includes('rdma://')) resolve();
    });
    child.once('exit', () => reject(new Error(`the server has ended: ${said}`)));
  });
  return child;
}

function kill(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.once('exit', () => resolve());
    child.kill('SIGKILL');
  });
}

const later = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

const rounds = Array.from({ length: depth(3, 20) }, (_, round) => ({
  round,
  scheme: round % 3 === 0 ? 'nbd' : 'rdma',
  mode: round % 3 === 1 ? ('message' as const) : ('direct' as const),
  requests: round % 2 === 0 ? ('repeat' as const) : ('fail' as const),
}));

it('the compiled command is there', () =>
  expect(existsSync(fileURLToPath(new URL('../../dist', import.meta.url)))).toBe(true));

it.each(rounds)(
  'server killed, round $round: $scheme, $mode, requests $requests',
  async ({ round, scheme, mode, requests }) => {
    const file = join(folder, `disk-${round}`);
    await writeFile(file, Buffer.alloc(SIZE));
    const ports = [await freePort(), await freePort()];
    let server = await serving(file, ports);
    const port = scheme === 'nbd' ? ports[0] : ports[1];
    const uri = `${scheme}://127.0.0.1:${port}/`;
    const disk = await connect({ uri, mode, reconnect: { delay: 20, attempts: 500, requests } });
    const data = pattern(SIZE, round + 1);
    const results: Promise<'written' | 'failed'>[] = [];
    const write = async (): Promise<void> => {
      for (let at = 0; at < SIZE; at += PIECE) {
        results.push(
          disk.write(data.subarray(at, at + PIECE), BigInt(at)).then(
            () => 'written',
            (error: unknown) => {
              expect(error).toBeInstanceOf(IwarpError);
              return 'failed';
            },
          ),
        );
        await later(0);
      }
    };
    const writing = write();
    await later(round * 3);
    await kill(server);
    server = await serving(file, ports);
    await writing;
    const outcomes = await Promise.all(results);
    await disk.flush!();
    await disk.close();
    await kill(server);
    if (requests === 'repeat') expect(outcomes).not.toContain('failed');
    const stored = await readFile(file);
    outcomes.forEach((outcome, i) => {
      if (outcome === 'failed') return;
      const piece = stored.subarray(i * PIECE, (i + 1) * PIECE);
      expect(Buffer.compare(piece, data.subarray(i * PIECE, (i + 1) * PIECE))).toBe(0);
    });
  },
);

it.each(rounds)(
  'client killed, round $round: $scheme, $mode; the server goes on, and the next copy is whole',
  async ({ round, scheme, mode }) => {
    const [source, file] = [join(folder, 'source'), join(folder, `target-${round}`)];
    await writeFile(source, pattern(SIZE, 99));
    await writeFile(file, Buffer.alloc(SIZE));
    const ports = [await freePort(), await freePort()];
    const server = await serving(file, ports);
    const uri = `${scheme}://127.0.0.1:${scheme === 'nbd' ? ports[0] : ports[1]}/`;
    const how = ['--mode', mode, '--quiet'];
    const client = start('copy', source, uri, '--request', '4096', '--depth', '4', ...how);
    // The copy is under way once the file has changed.
    await expect
      .poll(async () => (await readFile(file)).some((byte) => byte !== 0), { interval: 5, timeout: 50_000 })
      .toBe(true);
    await kill(client);
    const again = start('copy', source, uri, ...how);
    expect(await new Promise((resolve) => again.once('exit', resolve))).toBe(0);
    await kill(server);
    expect((await readFile(file)).equals(await readFile(source))).toBe(true);
  },
);
