/** How many buffers a connection holds: few at first, more as its peer sends, and few again. */
import { describe, expect, it } from 'vitest';
import { Credits, RESERVED_RECEIVES } from '../../src/api/credits.ts';
import { checkEndpoint, createResources, destroyResources } from '../../src/api/endpoint.ts';
import { engineOf } from '../../src/api/environment.ts';
import { InboundWindow } from '../../src/api/inbound-window.ts';
import { openRnic, RemoteBuffer, type Connection, type MemoryRegion } from '../../src/index.ts';
import { pair, pattern, WORLDS } from './support.ts';

const SIZE = 16_384;

/** Buffers that a connection has registered for its messages. */
function buffersOf({ pd }: Connection): number {
  const regions = [...pd.device.objects.mr].filter((mr: MemoryRegion) => mr.pd === pd);
  return regions.reduce((sum, { length }) => sum + length, 0) / SIZE;
}

/** A message of some octets more or less, the first of which are its number. */
function numbered(n: number): Buffer {
  const bytes = Buffer.alloc(4 + (n % 200), n);
  bytes.writeUInt32LE(n);
  return bytes;
}

describe.each(WORLDS)('buffers of an accepted connection over %s', (world) => {
  it('are 128 KiB while nothing comes, at the client too, but with a worker', async () => {
    const { rnic, client, server } = await pair(world, { receiveDepth: 128 }, { receiveDepth: 128 });
    expect([buffersOf(server), buffersOf(client)]).toEqual([8, engineOf(rnic) === 'thread' ? 8 : 132]);
    expect([server.flowControlled, client.flowControlled]).toEqual([true, true]);
  });

  it('become as many as the program has asked for, although it releases nothing', async () => {
    const DEPTH = 100;
    const { client, server } = await pair(world, {}, { receiveDepth: DEPTH });
    const sent = Array.from({ length: DEPTH + 1 }, (_, i) => client.send(pattern(100, i)));
    await Promise.all(sent.slice(0, DEPTH));
    const held = [];
    for (let i = 0; i < DEPTH; i++) held.push((await server.receive())!);
    expect(buffersOf(server)).toBe(DEPTH + RESERVED_RECEIVES);
    expect(client.pending).toBe(1); // it waits for the first release
    for (const [i, message] of held.entries()) {
      expect(Buffer.compare(message.data, pattern(100, i))).toBe(0);
      message.release();
    }
    await sent[DEPTH];
  });

  it.each([{ credits: false }, { extensions: false }])(
    'for a peer without credits come when it sends; a worker has all that were named: %o',
    async (options) => {
      const { rnic, client, server } = await pair(world, options, { receiveDepth: 128 });
      const isInThread = engineOf(rnic) === 'thread';
      expect([buffersOf(server), server.flowControlled]).toEqual([isInThread ? 8 : 132, false]);
      // All that the receives take, at once, while the program looks at none of it.
      await Promise.all(Array.from({ length: 128 }, (_, i) => client.send(pattern(100, i))));
      const held = [];
      for (let i = 0; i < 128; i++) held.push((await server.receive())!);
      expect(buffersOf(server)).toBe(132);
      for (const [i, message] of held.entries())
        expect(Buffer.compare(message.data, pattern(100, i))).toBe(0);
      for (const message of held) message.release();
      await client.send(pattern(10));
      expect((await server.receive())!.data).toHaveLength(10);
    },
  );
});

describe.each(WORLDS)('buffers of a client over %s', (world) => {
  it('grow while its server sends, whose messages all come, in order', async () => {
    const COUNT = 10_000;
    const { rnic, client, server } = await pair(world, { receiveDepth: 128 }, { receiveDepth: 128 });
    expect(buffersOf(client)).toBe(engineOf(rnic) === 'thread' ? 8 : 132);
    const sending = (async () => {
      for (let at = 0; at < COUNT; at += 100)
        await Promise.all(Array.from({ length: 100 }, (_, i) => server.send(numbered(at + i))));
    })();
    const wrong: number[] = [];
    let most = 0;
    for (let i = 0; i < COUNT; i++) {
      const message = (await client.receive())!;
      if (Buffer.compare(message.data, numbered(i)) !== 0) wrong.push(i);
      message.release();
      if (i % 100 === 0) most = Math.max(most, buffersOf(client));
    }
    await sending;
    expect([wrong, most]).toEqual([[], 132]);
  });
});

describe('buffers for a peer without credits, engine worker, where the program has named no depth', () => {
  it('are 1 MiB until the first message, and then all', async () => {
    const rnic = openRnic({ engine: 'worker' });
    const { client, server } = await pair('memory', { rnic, credits: false }, { rnic });
    expect(buffersOf(server)).toBe(64);
    // As many as there are, before this thread has seen one of them.
    const first = Promise.all(Array.from({ length: 64 }, (_, i) => client.send(pattern(100, i))));
    const held = [];
    for (let i = 0; i < 64; i++) held.push((await server.receive())!);
    await first;
    expect(buffersOf(server)).toBe(256 + RESERVED_RECEIVES);
    for (let i = 0; i < 192; i++) await client.send(pattern(100, 64 + i));
    for (let i = 0; i < 192; i++) held.push((await server.receive())!);
    for (const [i, message] of held.entries()) expect(Buffer.compare(message.data, pattern(100, i))).toBe(0);
  });

  it.each([{ receiveDepth: 256 }, { receives: 256 }])('are all there with %o', async (options) => {
    const rnic = openRnic({ engine: 'worker' });
    const { server } = await pair('memory', { rnic, credits: false }, { rnic, ...options });
    expect(buffersOf(server)).toBe(256 + RESERVED_RECEIVES);
  });
});

describe.each(['thread', 'worker'] as const)('buffers of an accepted connection, engine %s', (engine) => {
  it('stay few where a limit of the device is in the way of more, and all messages come', async () => {
    // One for the server, and for the client one, five with a worker.
    const rnic = openRnic({ engine, limits: { maxMr: engine === 'thread' ? 2 : 6 } });
    const { client, server } = await pair('memory', { rnic, receiveDepth: 128 }, { rnic, receiveDepth: 128 });
    const sending = Promise.all(Array.from({ length: 60 }, (_, i) => client.send(pattern(64, i))));
    for (let i = 0; i < 60; i++) {
      const message = (await server.receive())!;
      expect(Buffer.compare(message.data, pattern(64, i))).toBe(0);
      message.release();
    }
    await sending;
    expect(buffersOf(server)).toBe(8);
  });
});

describe('a window over virtual time', () => {
  /** A queue pair in no connection takes receives too; its state is what the window asks for. */
  function make(depth: number): {
    window: InboundWindow;
    credits: Credits;
    buffers: () => number;
    /** One message that the program releases at once. */
    message: (at: number) => void;
    end: () => void;
  } {
    const rnic = openRnic({ engine: 'thread' });
    const resources = createResources(checkEndpoint({ rnic, receiveDepth: depth }), 'by-credits');
    const { qp } = resources;
    const posted: number[] = Array.from({ length: resources.buffers.count }, (_, i) => i);
    const post = qp.postRecv.bind(qp);
    let inConnection = false;
    qp.postRecv = ((request: { wrId: number }) => {
      if (inConnection) posted.push(request.wrId);
      else post(request as never);
    }) as typeof qp.postRecv;
    Object.defineProperty(qp, 'state', { get: () => 'rts' });
    inConnection = true;
    let now = 0;
    const scheduler = { ...rnic.scheduler, now: () => now };
    const credits = new Credits(1, resources.buffers.count - RESERVED_RECEIVES);
    const window = new InboundWindow(credits, resources.buffers, qp, scheduler);
    return {
      window,
      credits,
      buffers: () => resources.buffers.count,
      message: (at) => {
        now = at;
        window.received();
        if (window.released(posted.shift()!)) credits.announce();
      },
      end: () => destroyResources(resources),
    };
  }

  it('grows for a fast peer, and gives all but the first piece back where messages are few', () => {
    const { buffers, message, end } = make(128);
    expect(buffers()).toBe(8);
    for (let i = 0; i < 400; i++) message(i);
    expect(buffers()).toBe(132);
    for (let i = 0; i < 600; i++) message(1000 * (i + 1));
    expect(buffers()).toBe(8);
    for (let i = 0; i < 400; i++) message(700_000 + i);
    expect(buffers()).toBe(132);
    end();
  });

  it('stays for a peer that sends now and then', () => {
    const { buffers, message, end } = make(128);
    for (let i = 0; i < 400; i++) message(500 * i);
    expect(buffers()).toBe(8);
    end();
  });
});

it('a ticket in a message stays usable when the window has grown', async () => {
  const { client, server } = await pair('memory');
  const region = client.allocate(64);
  await client.send(client.share(region).toBytes());
  const message = (await server.receive())!;
  await server.write(pattern(64), RemoteBuffer.fromBytes(message.data));
  message.release();
  await expect.poll(() => Buffer.compare(region.bytes, pattern(64))).toBe(0);
});
