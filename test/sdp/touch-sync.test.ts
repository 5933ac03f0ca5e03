// touchSync: the thread waits for a peer in another process, with the engine in a worker.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { connect, createServer, type RdmaSocket } from '../../src/sockets/index.ts';
import { plain } from '../support/plain.ts';

const CHILD = plain('test/sdp/touch-sync.child.ts');
const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

const rnic = openRnic({ engine: 'worker' });

interface Reader {
  readonly child: ChildProcess;
  readonly lines: Interface;
  readonly socket: RdmaSocket;
}

async function readerOf(...args: string[]): Promise<Reader> {
  const child = spawn(process.execPath, [CHILD, ...args], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  cleanup.push(() => child.kill('SIGKILL'));
  const lines = createInterface(child.stdout);
  const [port] = (await once(lines, 'line')) as [string];
  const socket = connect({ protocol: 'sdp', mode: 'source', rnic, host: '127.0.0.1', port: Number(port) });
  cleanup.push(() => socket.on('error', () => undefined).destroy());
  await once(socket, 'connect');
  return { child, lines, socket };
}

const shared = (octets: number, value: number): Uint8Array =>
  new Uint8Array(new SharedArrayBuffer(octets)).fill(value);

describe('touchSync', () => {
  it('waits until the peer has the memory, and no listener runs meanwhile', async () => {
    const { socket, lines } = await readerOf('--now');
    let inside = false;
    const seen: boolean[] = [];
    for (const event of ['data', 'drain'] as const) socket.on(event, () => seen.push(inside));
    const memory = shared(3_000_000, 1);
    const lease = socket.lend(memory, { guard: true });
    inside = true;
    expect(lease.touchSync('block')).toBe('done');
    inside = false;
    memory.fill(2);
    expect(await lease.done).toBe(3_000_000);
    socket.end(Buffer.from('x'));
    const [runs] = (await once(lines, 'line')) as [string];
    expect(JSON.parse(runs)).toEqual([
      [1, 3_000_000],
      ['x'.charCodeAt(0), 1],
    ]);
    expect(seen.length).toBeGreaterThan(0);
    expect(seen).not.toContain(true);
  });

  it('copies memory that the peer does not read', async () => {
    const { socket, lines, child } = await readerOf();
    const filler = socket.lend(shared((1 << 20) + 1, 9));
    const memories = [1, 2, 3].map((value) => shared(200_000, value));
    const leases = memories.map((memory) => socket.lend(memory, { guard: true, touch: 'copy' }));
    await filler.done;
    await expect.poll(() => leases[0]!.state).toBe('advertised');
    expect(leases.map((lease) => lease.touchSync())).toEqual(['copied', 'copied', 'copied']);
    for (const memory of memories) memory.fill(7);
    socket.end();
    child.stdin!.write('read\n');
    const [runs] = (await once(lines, 'line')) as [string];
    expect(JSON.parse(runs)).toEqual([
      [9, (1 << 20) + 1],
      [1, 200_000],
      [2, 200_000],
      [3, 200_000],
    ]);
    await Promise.all(leases.map(({ done }) => done));
  });

  it('gives up after its time, and the memory stays lent', async () => {
    const { socket, child, lines } = await readerOf();
    const memory = shared(3_000_000, 1);
    const lease = socket.lend(memory);
    expect(() => lease.touchSync('block', 100)).toThrow(
      expect.objectContaining({ code: 'ERR_TIMEOUT' }) as Error,
    );
    child.stdin!.write('read\n');
    expect(await lease.touch()).toBe('done');
    socket.end();
    const [runs] = (await once(lines, 'line')) as [string];
    expect(JSON.parse(runs)).toEqual([[1, 3_000_000]]);
  });

  it('copies memory that waits in the queue of the stream', async () => {
    const { socket, child, lines } = await readerOf();
    const [first, second] = [shared(100_000, 1), shared(100_000, 2)];
    const leases = [first, second].map((memory) => socket.lend(memory));
    expect(leases[1]!.touchSync('block')).toBe('copied');
    second.fill(9);
    socket.end();
    child.stdin!.write('read\n');
    const [runs] = (await once(lines, 'line')) as [string];
    expect(JSON.parse(runs)).toEqual([
      [1, 100_000],
      [2, 100_000],
    ]);
  });

  it('ends when the peer is killed', async () => {
    const { socket, child } = await readerOf();
    socket.on('error', () => undefined);
    const lease = socket.lend(shared(3_000_000, 1));
    spawn('sh', ['-c', `sleep 0.3; kill -9 ${child.pid}`]);
    expect(() => lease.touchSync('block', 20_000)).toThrow(
      expect.objectContaining({ code: 'ERR_CONNECTION_CLOSED' }) as Error,
    );
    await expect(lease.done).rejects.toMatchObject({ code: 'ERR_CONNECTION_CLOSED' });
  });

  it('is refused with the engine in this thread, and with wrong arguments', async () => {
    const thread = openRnic({ engine: 'thread' });
    const server = createServer({ protocol: 'sdp', rnic: thread }).listen(0, '127.0.0.1');
    cleanup.push(() => server[Symbol.asyncDispose]());
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const socket = connect({ protocol: 'sdp', mode: 'source', rnic: thread, host: '127.0.0.1', port });
    cleanup.push(() => socket.on('error', () => undefined).destroy());
    const [peer] = (await once(server, 'connection')) as [RdmaSocket];
    cleanup.push(() => peer.on('error', () => undefined).destroy());
    if (socket.connecting) await once(socket, 'connect');
    const lease = socket.lend(new Uint8Array(3_000_000));
    expect(() => lease.touchSync()).toThrow("engine: 'worker'");
    expect(() => lease.touchSync('block', 0)).toThrow('ms');
    expect(() => lease.touchSync('wait' as 'block')).toThrow('mode');
    await expect(lease.touch('wait' as 'block')).rejects.toThrow('mode');
    expect(() => socket.lend(new Uint8Array(1), { touch: 'wait' as 'block' })).toThrow('options.touch');
    expect(() => socket.lend(new Uint8Array(1), { guard: 1 as never })).toThrow('options.guard');
  });
});
