/** A byte stream of this thread as a port in an engine's: order, pauses, ends, and losses. */
import { describe, expect, it } from 'vitest';
import { RelayedPort, relay } from '../../src/engine/channel/relay.ts';
import type { Port, PortHandler, WriteDone } from '../../src/transport/port.ts';

/** A port that notes the calls of its user. */
class NotedPort implements Port {
  readonly localAddress = { address: '127.0.0.1', port: 1, family: 'IPv4' } as const;
  readonly remoteAddress = { address: '127.0.0.1', port: 2, family: 'IPv4' } as const;
  readonly mtu = 1500;
  readonly calls: string[] = [];
  readonly written: Uint8Array[] = [];
  readonly dones: WriteDone[] = [];
  handler!: PortHandler;

  attach(handler: PortHandler): void {
    this.handler = handler;
  }
  write(chunks: readonly Uint8Array[], count: number, done: WriteDone): boolean {
    for (const chunk of chunks.slice(0, count)) this.written.push(chunk.slice());
    this.dones.push(done);
    return false;
  }
  end(): void {
    this.calls.push('end');
  }
  reset(): void {
    this.calls.push('reset');
  }
  pause(): void {
    this.calls.push('pause');
  }
  resume(): void {
    this.calls.push('resume');
  }
  setKeepAlive(on: boolean, delay: number): boolean {
    this.calls.push(`keep-alive ${on} ${delay}`);
    return true;
  }
}

class NotedHandler implements PortHandler {
  octets = 0;
  readonly events: string[] = [];
  onData(_bytes: Uint8Array, start: number, end: number): void {
    this.octets += end - start;
  }
  onEnd(): void {
    this.events.push(`end at ${this.octets}`);
  }
  onClose(error?: Error): void {
    this.events.push(`close ${(error as { code?: string } | undefined)?.code ?? 'in order'}`);
  }
}

function make(): { below: NotedPort; above: RelayedPort; handler: NotedHandler } {
  const below = new NotedPort();
  const above = new RelayedPort(relay(below));
  const handler = new NotedHandler();
  above.attach(handler);
  return { below, above, handler };
}

describe('a relayed port', () => {
  it('has the addresses of the stream, and hands bytes on both ways in order', async () => {
    const { below, above, handler } = make();
    expect([above.localAddress, above.remoteAddress, above.mtu]).toEqual([
      below.localAddress,
      below.remoteAddress,
      1500,
    ]);
    below.handler.onData(Buffer.from('[hello]'), 1, 6);
    const done: boolean[] = [];
    const chunk = Buffer.from('two');
    expect(above.write([Buffer.from('one '), chunk], 2, (ok) => done.push(ok))).toBe(true);
    chunk.fill(0); // it was copied
    await expect.poll(() => Buffer.concat(below.written).toString()).toBe('one two');
    expect(done).toEqual([]);
    below.dones[0]!(true);
    await expect.poll(() => done).toEqual([true]);
    await expect.poll(() => handler.octets).toBe(5);
    above.setKeepAlive(true, 5);
    above.end();
    expect(() => above.write([Buffer.from('x')], 1, () => undefined)).toThrow(/write after end/);
    await expect.poll(() => below.calls).toEqual(['keep-alive true 5', 'end']);
    below.handler.onEnd();
    below.handler.onClose();
    await expect.poll(() => handler.events).toEqual(['end at 5', 'close in order']);
  });

  it('pauses the stream when the engine leaves bytes unread, and goes on later', async () => {
    const { below, above, handler } = make();
    above.pause();
    const piece = new Uint8Array(65_536);
    let pieces = 0;
    while (!below.calls.includes('pause')) {
      below.handler.onData(piece, 0, piece.length);
      pieces++;
    }
    below.handler.onEnd();
    below.handler.onClose();
    expect(pieces).toBe(17);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect([handler.octets, handler.events]).toEqual([0, []]);
    above.resume();
    await expect.poll(() => handler.events).toEqual([`end at ${17 * 65_536}`, 'close in order']);
  });

  it('goes on reading at half of the bound', async () => {
    const { below, handler } = make();
    const piece = new Uint8Array(2 << 20);
    below.handler.onData(piece, 0, piece.length);
    expect(below.calls).toEqual(['pause']);
    await expect.poll(() => below.calls).toEqual(['pause', 'resume']);
    expect(handler.octets).toBe(piece.length);
  });

  it('a reset of the stream overtakes what waits; writes under way fail', async () => {
    const { below, above, handler } = make();
    const done: boolean[] = [];
    above.pause();
    above.write([Buffer.from('x')], 1, (ok) => done.push(ok));
    below.handler.onData(Buffer.from('late'), 0, 4);
    below.handler.onClose(Object.assign(new Error('gone'), { code: 'ECONNRESET' }));
    await expect.poll(() => handler.events).toEqual(['close ECONNRESET']);
    expect([done, handler.octets]).toEqual([[false], 0]);
    above.write([Buffer.from('y')], 1, (ok) => done.push(ok));
    await expect.poll(() => done).toEqual([false, false]);
  });

  it('resets the stream on request, and when the engine is gone', async () => {
    const first = make();
    first.above.reset();
    await expect.poll(() => first.below.calls).toEqual(['reset']);
    const below = new NotedPort();
    relay(below).channel.close();
    await expect.poll(() => below.calls).toEqual(['reset']);
  });
});
