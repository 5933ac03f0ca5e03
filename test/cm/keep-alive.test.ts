// TCP's keep-alive below the connection manager: both sides, and in a namespace a path that dies.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { PassingPort, wrapTransport } from '../../src/transport/middleware.ts';
import { ConnectionManager, InlineEngine, type KeepAliveOptions } from '../../src/cm/index.ts';
import { MemoryTransport, VirtualTime } from '../../src/simnet/memory.ts';
import { Device } from '../../src/verbs/index.ts';
import { FULL } from '../support/depth.ts';
import { plain } from '../support/plain.ts';

/** A port that notes the probes it is asked for. */
class NotingPort extends PassingPort {
  asked: string[] = [];

  override setKeepAlive(on: boolean, delay: number): boolean {
    this.asked.push(`${on} ${delay}`);
    return true;
  }
}

async function probed(active: KeepAliveOptions, passive: KeepAliveOptions): Promise<string[][]> {
  const time = new VirtualTime();
  const ports: NotingPort[] = [];
  const transport = wrapTransport(new MemoryTransport(time), (port) => {
    const noting = new NotingPort(port);
    ports.push(noting);
    return noting;
  });
  const device = new Device({ defer: (task) => time.defer(task) });
  const cm = new ConnectionManager(device, new InlineEngine(transport, time, device));
  const pd = device.allocatePd();
  const cq = device.createCq(64);
  const qp = (): ReturnType<typeof pd.createQp> => pd.createQp({ sendCq: cq, recvCq: cq });
  const listening = cm.listen({ host: '10.0.0.2', port: 1, ...passive }, (request) => request.accept(qp()));
  time.run();
  await listening;
  const connection = cm.connect(qp(), { host: '10.0.0.2', port: 1, ...active });
  time.run();
  expect(connection.negotiated).toBeDefined();
  connection.setKeepAlive(false, 0);
  connection.disconnect();
  time.run();
  return ports.map(({ asked }) => asked);
}

describe('keepAlive', () => {
  it('is set on the ports of both sides when they are there, and can be changed', async () => {
    const on = { keepAlive: true, keepAliveInitialDelay: 3000 };
    expect((await probed(on, {})).toSorted()).toEqual([[], ['true 3000', 'false 0']]);
    expect((await probed({}, { keepAlive: true })).toSorted()).toEqual([['false 0'], ['true 0']]);
    expect((await probed({ keepAlive: false, keepAliveInitialDelay: 1 }, {})).toSorted()).toEqual([
      [],
      ['false 0'],
    ]);
  });

  it.each([
    ['keepAlive', { keepAlive: 1 }],
    ['keepAliveInitialDelay', { keepAlive: true, keepAliveInitialDelay: -1 }],
    ['keepAliveInitialDelay', { keepAliveInitialDelay: '1' }],
  ])('wrong %s is refused', async (name, options) => {
    await expect(probed(options as KeepAliveOptions, {})).rejects.toMatchObject({
      code: 'ERR_INVALID_ARGUMENT',
      message: expect.stringContaining(name),
    });
  });
});

/** Whether this user may make a network namespace. */
function mayUnshare(): boolean {
  const tried = spawnSync('unshare', [
    '-rn',
    'ip',
    'link',
    'add',
    'v0',
    'type',
    'veth',
    'peer',
    'name',
    'v1',
  ]);
  return tried.status === 0;
}

/** It lasts as long as TCP's own probes, and compares times. */
if (FULL)
  describe.runIf(mayUnshare())('a link that goes down', () => {
    it('ends idle connections of every layer when it ends those of node:net', async () => {
      const child = plain('test/cm/dead-path.child.ts');
      const run = spawn('unshare', ['-rn', process.execPath, child, 'client'], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let text = '';
      run.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
      const limit = setTimeout(() => run.kill(), 150_000);
      await new Promise((resolve) => run.once('close', resolve));
      clearTimeout(limit);
      const ended = JSON.parse(text) as Record<string, { ms: number; code: string }>;
      const { net, ...ours } = ended;
      expect(Object.keys(ours)).toEqual(['cm', 'cm worker', 'promises', 'sockets']);
      expect(net!.code).toBe('ETIMEDOUT');
      for (const [layer, { ms, code }] of Object.entries(ours)) {
        expect([layer, Math.abs(ms - net!.ms) < 3000]).toEqual([layer, true]);
        expect([layer, code]).toEqual([layer, 'ETIMEDOUT']);
      }
      // The namespaces go with their processes.
      expect(execFileSync('ip', ['-o', 'link'], { encoding: 'utf8' })).not.toContain('iwarp-a');
    }, 180_000); // several processes start, and the machine may be busy
  });
