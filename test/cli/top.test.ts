/** `iwarp top` against this process, over the control socket. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { run } from '../../cli/top.ts';
import { serveControl, type ControlServer } from '../../src/index.ts';
import { pairOf, type Ends } from '../api/support.ts';

let runtime: string;
let control: ControlServer | null = null;
let ends: Ends | null = null;

beforeEach(() => {
  runtime = mkdtempSync(join(tmpdir(), 'iwarp-top-'));
  vi.stubEnv('XDG_RUNTIME_DIR', runtime);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await ends?.close();
  await control?.close();
  [control, ends] = [null, null];
  rmSync(runtime, { recursive: true, force: true });
});

async function top(signal: AbortSignal | undefined, ...args: string[]) {
  let [out, err] = ['', ''];
  const io = {
    out: (text: string) => void (out += text),
    err: (text: string) => void (err += text),
    ...(signal !== undefined && { signal }),
  };
  const status = await run(args, io);
  return { status, out, err };
}

/** Requests until the returned function is called. */
function traffic({ client, server }: Ends): () => Promise<void> {
  let running = true;
  void server.serve((request) => request.data).catch(() => undefined);
  const loop = (async () => {
    while (running) {
      await client.request(Buffer.alloc(1000));
      await pause(1);
    }
  })();
  return async () => {
    running = false;
    await loop;
  };
}

it('shows what each device does in a second, and each connection with its path', async () => {
  control = await serveControl();
  ends = await pairOf('memory');
  const stop = traffic(ends);
  const devices = await top(undefined, '-n', '2', '-i', '0.2', '--pid', String(process.pid));
  const connections = await top(undefined, '-c', '-n', '1', '-i', '0.2');
  const json = await top(undefined, '-j', '-n', '1', '-i', '0.2');
  await stop();
  expect([devices.status, devices.err]).toEqual([0, '']);
  expect(devices.out.match(/^iwarp top, \d\d:\d\d:\d\d, 1 process$/gm)).toHaveLength(2);
  expect(devices.out).toMatch(/^ +PID COMMAND +DEVICE +CONNS MSG\/S IN +OUT BYTES\/S IN +OUT FAILED CRC$/m);
  expect(devices.out).toMatch(new RegExp(`^ *${process.pid} \\S+ +iwarp\\d+ +2 +[1-9]\\S* +[1-9]`, 'm'));
  expect(connections.out).toMatch(/ CONNECTION$/m);
  expect(connections.out.match(/ \S+:\d+ [<>] \S+:\d+$/gm)).toHaveLength(2);
  const { rows } = JSON.parse(json.out) as { rows: Record<string, number>[] };
  expect(rows[0]).toMatchObject({ pid: process.pid, connections: 2, failed: 0, crcErrors: 0 });
  expect(rows[0]!['octetsIn']).toBeGreaterThan(1000);
  expect(rows[0]!['messagesOut']).toBeGreaterThan(1);
});

it('ends when it is interrupted, and where there is nothing to show', async () => {
  expect(await top(undefined, '-n', '1')).toMatchObject({
    status: 1,
    err: expect.stringContaining('IWARP_CONTROL=1') as string,
  });
  control = await serveControl();
  ends = await pairOf('memory');
  const began = performance.now();
  expect(await top(AbortSignal.timeout(100), '-i', '60')).toMatchObject({ status: 0, out: '' });
  expect(performance.now() - began).toBeLessThan(30_000);
});

it('wrong usage is refused', async () => {
  for (const args of [['-i', '0'], ['-n', 'x'], ['--pid', '0'], ['what'], ['-i', 'soon']])
    expect(await top(undefined, ...args)).toMatchObject({
      status: 2,
      err: expect.stringContaining('usage: iwarp top') as string,
    });
});
