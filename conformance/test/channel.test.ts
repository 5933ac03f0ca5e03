/** Tests how the probe reports the end of a connection: the cases about how a peer ends rest on that. */
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { Channel, openChannel, type Capture } from '../probe/channel.ts';

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

/** A channel to a peer that does this with its end once the probe has said something. */
async function against(peer: (socket: Socket) => void): Promise<{ channel: Channel; capture: Capture }> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => peer(socket));
    cleanups.push(() => socket.destroy());
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  cleanups.push(() => void server.close());
  const socket = await openChannel('127.0.0.1', (server.address() as AddressInfo).port, 2000);
  const capture: Capture = [];
  const channel = new Channel(socket!, capture, 0, 'probe');
  cleanups.push(() => channel.destroy());
  return { channel, capture };
}

async function endOf(channel: Channel): Promise<{ octets: number; end: string | null }> {
  let octets = 0;
  for (let i = 0; i < 100; i++) {
    if (!(await channel.wait(2000))) break;
    for (let chunk = channel.take(); chunk !== null; chunk = channel.take()) octets += chunk.length;
    if (channel.end !== null) break;
  }
  return { octets, end: channel.end };
}

const LAST_WORDS = new Uint8Array(64).fill(7);

describe('the end of a connection, as the probe sees it', () => {
  it('a reset right after octets is a reset, though the octets are read first', async () => {
    for (let i = 0; i < 20; i++) {
      const { channel, capture } = await against((socket) => {
        socket.write(LAST_WORDS);
        socket.resetAndDestroy();
      });
      channel.write(LAST_WORDS);
      expect(await endOf(channel)).toEqual({ octets: 64, end: 'rst' });
      expect(capture.map(({ from, kind }) => `${from} ${kind}`)).toEqual([
        'probe open',
        'probe data',
        'peer data',
        'peer rst',
      ]);
    }
  });

  it('a FIN right after octets is a FIN', async () => {
    for (let i = 0; i < 20; i++) {
      const { channel, capture } = await against((socket) => void socket.end(LAST_WORDS));
      channel.write(LAST_WORDS);
      expect(await endOf(channel)).toEqual({ octets: 64, end: 'fin' });
      expect(capture.map(({ kind }) => kind)).toEqual(['open', 'data', 'data', 'fin']);
    }
  });

  it('a reset without octets is a reset', async () => {
    const { channel } = await against((socket) => void socket.resetAndDestroy());
    channel.write(LAST_WORDS);
    expect(await endOf(channel)).toEqual({ octets: 0, end: 'rst' });
  });

  it('a FIN of a peer that stopped reading is seen at once, whatever waits to be sent to it', async () => {
    const { channel } = await against((socket) => {
      socket.pause();
      socket.end(LAST_WORDS);
    });
    for (let i = 0; i < 64; i++) channel.write(new Uint8Array(1 << 18));
    await sleep(50);
    expect(await endOf(channel)).toEqual({ octets: 64, end: 'fin' });
  });

  it('a FIN after our own is a FIN', async () => {
    const { channel } = await against((socket) => void socket.end(LAST_WORDS));
    channel.write(LAST_WORDS);
    channel.finish();
    expect(await endOf(channel)).toEqual({ octets: 64, end: 'fin' });
  });
});
