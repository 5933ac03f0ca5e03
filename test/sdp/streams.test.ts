// Streams with `protocol: 'sdp'` between our own ends: every mode, both engines, and the ends of a stream.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { pipeline } from 'node:stream/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { openRnic } from '../../src/api/environment.ts';
import { MemoryTransport, VirtualTime } from '../../src/testing.ts';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';

const cleanup: (() => unknown)[] = [];
afterEach(async () => {
  for (const each of cleanup.splice(0).reverse()) await each();
});

async function pairOf(a: RdmaSocketOptions, b: RdmaSocketOptions = a): Promise<[RdmaSocket, RdmaSocket]> {
  const server = createServer({ protocol: 'sdp', ...a }).listen(0, '127.0.0.1');
  cleanup.push(() => server[Symbol.asyncDispose]());
  await once(server, 'listening');
  const accepted = once(server, 'connection') as Promise<[RdmaSocket]>;
  const socket = connect({
    protocol: 'sdp',
    ...b,
    host: '127.0.0.1',
    port: (server.address() as { port: number }).port,
  });
  cleanup.push(() => socket.on('error', () => undefined).destroy());
  await once(socket, 'connect');
  return [socket, (await accepted)[0]];
}

async function all(socket: RdmaSocket): Promise<Buffer> {
  const seen: Buffer[] = [];
  for await (const piece of socket) seen.push(piece as Buffer);
  return Buffer.concat(seen);
}

const MODES = ['buffered', 'source', 'sink', 'auto'] as const;

describe.each(['thread', 'worker'] as const)('SDP with the engine in a %s', (engine) => {
  const options = async (): Promise<RdmaSocketOptions> => {
    const rnic = openRnic({ engine });
    return { rnic, allowHalfOpen: true };
  };

  it.each(MODES)('echoes 3 MB in mode %s, and ends on both sides', async (mode) => {
    const [a, b] = await pairOf({ ...(await options()), mode });
    const data = randomBytes(3_000_000);
    const echoed = pipeline(b, b);
    const closed = [once(a, 'close'), once(b, 'close')];
    a.end(data);
    expect((await all(a)).equals(data)).toBe(true);
    await echoed;
    expect((await Promise.all(closed)).flat()).toEqual([false, false]);
  });

  it.each([1, 2, 16])('moves many large writes with %i advertisements', async (maxAdverts) => {
    const [a, b] = await pairOf({ ...(await options()), mode: 'source', maxAdverts });
    const pieces = Array.from({ length: 20 }, () => randomBytes(100_000));
    for (const piece of pieces) a.write(piece);
    a.end('end');
    expect((await all(b)).equals(Buffer.concat([...pieces, Buffer.from('end')]))).toBe(true);
    b.end();
  });

  it('takes no offence at a peer that is gone once it has ended', async () => {
    const [a, b] = await pairOf(await options());
    const closed = once(b, 'close');
    a.end('all');
    b.resume();
    await once(b, 'end');
    a.resetAndDestroy();
    await once(a, 'close');
    b.end();
    expect([await closed, b.errored]).toEqual([[false], null]);
  });

  it('gives buffers away and gets them back', async () => {
    const [a, b] = await pairOf({ ...(await options()), mode: 'source' });
    const got = all(b);
    const sent: Buffer[] = [];
    const back = Array.from({ length: 20 }, async (_, at) => {
      const buffer = new ArrayBuffer(80_000);
      new Uint8Array(buffer).fill(at + 1);
      sent.push(Buffer.from(buffer.slice(0)));
      const moved = a.writeOwned(buffer);
      expect(buffer.byteLength).toBe(0);
      return moved;
    });
    expect((await Promise.all(back)).map(({ byteLength }) => byteLength)).toEqual(back.map(() => 80_000));
    a.end();
    expect((await got).equals(Buffer.concat(sent))).toBe(true);
    b.end();
  });

  it('receives into posted places in mode auto', async () => {
    const [a, b] = await pairOf({ ...(await options()), mode: 'auto' });
    const data = randomBytes(5 * 200_000);
    const places = Array.from({ length: 4 }, () => new Uint8Array(200_000));
    const seen: Buffer[] = [];
    const reading = (async () => {
      const waiting = places.map((place) => ({ place, count: b.receiveInto(place) }));
      for (;;) {
        const { place, count } = waiting.shift()!;
        const octets = await count;
        if (octets === 0) return;
        seen.push(Buffer.from(place.subarray(0, octets)));
        waiting.push({ place, count: b.receiveInto(place) });
      }
    })();
    for (let at = 0; at < data.length; at += 100_000) {
      if (!a.write(data.subarray(at, at + 100_000))) await once(a, 'drain');
    }
    a.end();
    await reading;
    expect(Buffer.concat(seen).equals(data)).toBe(true);
    b.end();
  });
});

it('has as many advertisements under way as there are buffers for, not two for each round trip', async () => {
  const time = new VirtualTime();
  const transport = new MemoryTransport(time, { latency: 10, buffer: 4 << 20 });
  const options = {
    rnic: openRnic({ engine: 'thread', transport, scheduler: time }),
    policy: { crc: 'off' },
  };
  const common = { ...options, protocol: 'sdp', mode: 'source' } as const;
  const server = createServer(common as never, (socket) => socket.resume());
  server.listen(7471, '10.0.0.2');
  const socket = connect({ ...common, host: '10.0.0.2', port: 7471 } as never);
  const step = async (): Promise<void> => {
    time.advance(1);
    await new Promise((resolve) => void setImmediate(resolve));
  };
  while (socket.connecting) await step();
  const began = time.now();
  let left = 130;
  for (let i = left; i > 0; i--) void socket.lend(new Uint8Array(65_536)).done.then(() => left--);
  while (left > 0 && time.now() - began < 5000) await step();
  // An advertisement takes its message, a Read there and back, and the message that it was Read.
  const roundTrips = (time.now() - began) / 20;
  expect(roundTrips).toBeLessThan(45);
  socket.destroy();
  server.close();
  for (let i = 0; i < 100; i++) await step();
});
