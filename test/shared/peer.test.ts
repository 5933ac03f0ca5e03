// The shared region opposite a peer in another language, in both roles and with both engines.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic, type EngineKind } from '../../src/api/environment.ts';
import { connect, listen, type SharedSocket } from '../../src/shared/index.ts';

const PEER = fileURLToPath(new URL('peer.py', import.meta.url));
const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes.slice());

class PythonPeer {
  readonly child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  constructor(args: readonly string[]) {
    this.child = spawn('python3', [PEER, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface({ input: this.child.stdout! })[Symbol.asyncIterator]();
  }

  async line(): Promise<string> {
    return (await this.#lines.next()).value as string;
  }

  async ask(command: string): Promise<string> {
    this.child.stdin!.write(`${command}\n`);
    return await this.line();
  }

  async quit(): Promise<void> {
    this.child.stdin!.write('quit\n');
    if (this.child.exitCode === null) await once(this.child, 'exit');
  }
}

let peer: PythonPeer | undefined;
afterEach(() => void peer?.child.kill());

/** Both sides write and read, with lengths that take several FPDUs. */
async function exchange(socket: SharedSocket, region: Uint8Array, other: PythonPeer): Promise<void> {
  expect(await other.ask(`fill 9000 ${'p'.repeat(2500)}`)).toBe('filled');
  expect(await other.ask('write 2500 9000 100')).toBe('done');
  region.set(new TextEncoder().encode('ours'.repeat(2000)), 20_000);
  await socket.settled(socket.write(8000, 20_000, 500));
  await socket.settled(socket.read(2500, 40_000, 9000));
  expect(text(region.subarray(40_000, 42_500))).toBe('p'.repeat(2500));
  expect(text(region.subarray(100, 2600))).toBe('p'.repeat(2500));
  expect(await other.ask('show 500 8000')).toBe('ours'.repeat(2000));
  expect(await other.ask('read 8000 30000 20000')).toBe('done');
  expect(await other.ask('show 30000 8000')).toBe('ours'.repeat(2000));
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  it('the peer connects, with MPA revision 1', async () => {
    const rnic = openRnic({ engine });
    const listener = await listen({ host: '127.0.0.1', rnic, octets: 65_536 });
    peer = new PythonPeer(['connect', '127.0.0.1', String(listener.address.port), '65536']);
    const { socket, region } = await listener.accept();
    expect(await peer.line()).toBe('up');
    expect(socket.remoteLength).toBe(65_536);
    await exchange(socket, region, peer);
    await peer.quit();
    await socket.closed;
    await listener.close();
    rnic.device.close();
  });

  it('the peer listens, and answers revision 2', async () => {
    const rnic = openRnic({ engine });
    peer = new PythonPeer(['listen', '65536']);
    const port = Number(await peer.line());
    const { socket, region } = await connect({ host: '127.0.0.1', port }, { rnic, octets: 65_536 });
    expect(await peer.line()).toBe('up');
    await exchange(socket, region, peer);
    await peer.quit();
    await socket.closed;
    rnic.device.close();
  });
});
