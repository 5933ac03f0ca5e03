/**
 * A server that goes on after its client was killed holds nothing of that client: no queue pair, region,
 * completion queue or domain.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { observedDevices } from '../../src/observe/devices.ts';
import { run as rcopy } from '../../cli/rcopy.ts';
import { run as rping } from '../../cli/rping.ts';
import { Side, type ToolRun } from './pair.ts';

const folder = mkdtempSync(join(tmpdir(), 'survivor-'));
afterAll(() => rmSync(folder, { recursive: true }));
const file = join(folder, 'file');
writeFileSync(file, Buffer.alloc(50_000_000));

/** How many objects the device has that listens on `port`; connections too. */
function held(port: number): Record<string, number> {
  const found = observedDevices().find(({ cm }) =>
    [...cm.census.listeners].some(({ address }) => address.port === port),
  );
  const { qp, cq, mr, pd } = found!.device.objects;
  return {
    qp: [...qp].length,
    cq: [...cq].length,
    mr: [...mr].length,
    pd: [...pd].length,
    connections: [...found!.cm.connections].length,
  };
}

it.each([
  [
    'rping',
    rping,
    ['-s', '-P', '-v', '-p', '0'],
    rping,
    (port: string) => ['-c', '-a', '127.0.0.1', '-p', port],
    'rdma-ping-50:',
    'server DISCONNECT EVENT',
  ],
  [
    'rcopy',
    rcopy,
    ['-p', '0', '--dir', '/'],
    rcopy,
    (port: string) => [file, `127.0.0.1:${join(folder, 'copy')}`, '-p', port],
    'transferring',
    'rcopy: ',
  ],
] as const)('%s', async (_name, serve: ToolRun, args, call: ToolRun, clientArgs, underWay, told) => {
  const server = new Side(serve, [...args]);
  const port = await server.port;
  const before = held(port);
  for (let round = 1; round <= 3; round++) {
    const client = new Side(call, clientArgs(String(port)));
    await server.said(underWay);
    client.kill();
    await client.status;
    while (server.err.split(told).length - 1 < round) await new Promise((resolve) => setImmediate(resolve));
    while (held(port)['connections'] !== 0) await new Promise((resolve) => setImmediate(resolve));
    expect(held(port)).toEqual(before);
    server.out = '';
  }
  expect(before).toEqual({ qp: 0, cq: 0, mr: 0, pd: 0, connections: 0 });
  server.kill();
  await server.status;
});
