// The socket runs over any ByteChannel: the same scripts over rsocket and over a channel in memory.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { connect, createServer, RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { openRnic } from '../../src/index.ts';
import { MemoryChannel } from './memory-channel.ts';

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0)) await each();
});

type Pair = readonly [RdmaSocket, RdmaSocket];

async function memoryPair(options: RdmaSocketOptions): Promise<Pair> {
  const channels: MemoryChannel[] = [];
  const make = (port: number): RdmaSocket =>
    new RdmaSocket(options).standOn((handler) => {
      const channel = new MemoryChannel(handler, port);
      channels.push(channel);
      return channel;
    });
  const pair = [make(1), make(2)] as const;
  MemoryChannel.join(channels[0]!, channels[1]!);
  await Promise.all(pair.map((socket) => once(socket, 'connect')));
  return pair;
}

const sdpPair = (options: RdmaSocketOptions): Promise<Pair> => rsocketPair({ ...options, protocol: 'sdp' });

const rnic = openRnic({ wire: 'shm' });
const threadPair = (options: RdmaSocketOptions): Promise<Pair> => rsocketPair({ ...options, rnic });
const sdpThreadPair = (options: RdmaSocketOptions): Promise<Pair> => sdpPair({ ...options, rnic });

async function rsocketPair(options: RdmaSocketOptions): Promise<Pair> {
  const server = createServer(options).listen(0, '127.0.0.1');
  cleanup.push(() => server[Symbol.asyncDispose]());
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[RdmaSocket]>;
  const socket = connect({
    ...options,
    host: '127.0.0.1',
    port: (server.address() as { port: number }).port,
  });
  await once(socket, 'connect');
  return [socket, (await accepted)[0]];
}

describe.each([
  ['memory', memoryPair],
  ['rsocket', rsocketPair],
  ['sdp', sdpPair],
  ['rsocket between threads', threadPair],
  ['sdp between threads', sdpThreadPair],
] as const)('a socket over %s', (_name, makePair) => {
  const pairOf = async (options: RdmaSocketOptions = {}): Promise<Pair> => {
    const pair = await makePair(options);
    cleanup.push(() => pair.forEach((socket) => socket.on('error', () => undefined).destroy()));
    return pair;
  };

  it('echoes 3 MB with back-pressure, and ends on both sides', async () => {
    const [a, b] = await pairOf({ allowHalfOpen: true });
    const data = randomBytes(3_000_000);
    const echoed = pipeline(b, b);
    const closed = [once(a, 'close'), once(b, 'close')];
    a.end(data);
    const seen: Buffer[] = [];
    for await (const piece of a) seen.push(piece as Buffer);
    expect(Buffer.concat(seen).equals(data)).toBe(true);
    await echoed;
    expect((await Promise.all(closed)).flat()).toEqual([false, false]);
    expect([a.bytesRead, a.bytesWritten, b.bytesRead, b.bytesWritten]).toEqual([3e6, 3e6, 3e6, 3e6]);
  });

  it('ends its direction when the peer has, unless it is half open', async () => {
    const [a, b] = await pairOf();
    b.resume();
    a.resume();
    a.end('last');
    await Promise.all([once(a, 'close'), once(b, 'close')]);
    expect(b.bytesRead).toBe(4);
  });

  it('has the states and addresses of a connection', async () => {
    const [a, b] = await pairOf();
    expect([a.connecting, a.pending, a.readyState]).toEqual([false, false, 'open']);
    expect([a.remotePort, b.remotePort]).toEqual([b.localPort, a.localPort]);
    expect(a.address()).toMatchObject({ address: '127.0.0.1', family: 'IPv4' });
    a.setKeepAlive(true, 1000).setKeepAlive(false);
    a.destroy();
    expect([a.pending, a.readyState]).toEqual([true, 'closed']);
  });

  it('settles writes that wait when it is destroyed, and notifies its peer', async () => {
    const [a, b] = await pairOf();
    b.pause();
    const failed = new Promise<Error>((resolve) =>
      a.write(Buffer.alloc(20_000_000), (error) => resolve(error!)),
    );
    await new Promise((resolve) => setImmediate(resolve));
    const ended = once(b.resume(), 'close');
    a.destroy();
    expect((await failed).message).toMatch('destroyed');
    await ended;
  });

  it('refuses mapped memory where the protocol has none', async () => {
    const [a] = await pairOf();
    expect(() => a.unmapMemory(new Uint8Array(4))).toThrow(
      expect.objectContaining({ code: 'ERR_INVALID_REGION' }),
    );
  });
});
