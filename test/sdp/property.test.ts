// The bytes of a stream are its bytes, whatever the modes, sizes, cuts, buffers and advertisements of each
// side are. Over real sockets, with seeds that a failure prints.
import fc from 'fast-check';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { connect, createServer, type RdmaSocket, type RdmaSocketOptions } from '../../src/sockets/index.ts';
import { depth } from '../support/depth.ts';

const MODES = ['buffered', 'source', 'sink', 'auto'] as const;

const side = fc.record({
  mode: fc.constantFrom(...MODES),
  maxAdverts: fc.constantFrom(1, 2, 3, 16),
  zeroCopyFrom: fc.constantFrom(2, 100, 4096, 65_536),
  privateBuffers: fc.record({
    count: fc.constantFrom(4, 5, 16),
    size: fc.constantFrom(128, 1000, 16_384, 65_552),
  }),
});
/** Lengths of writes, each by `write`, `writeOwned` or `lend`. */
const writes = fc.array(
  fc.record({
    octets: fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 200_000 })),
    how: fc.constantFrom('write', 'owned', 'lend'),
  }),
  { maxLength: 12 },
);

function send(socket: RdmaSocket, list: readonly { octets: number; how: string }[], seed: number): Buffer {
  const sent: Buffer[] = [];
  for (const [at, { octets, how }] of list.entries()) {
    const bytes = new Uint8Array(octets).map((_, i) => (i * 31 + at * 7 + seed) & 0xff);
    sent.push(Buffer.from(bytes));
    if (how === 'write') socket.write(bytes);
    else if (how === 'owned') void socket.writeOwned(bytes);
    else socket.lend(bytes, { guard: true });
  }
  socket.end();
  return Buffer.concat(sent);
}

async function readAll(socket: RdmaSocket, placeOctets: number): Promise<Buffer> {
  const seen: Buffer[] = [];
  if (placeOctets === 0) {
    for await (const piece of socket.iterator({ destroyOnReturn: false })) seen.push(piece as Buffer);
    return Buffer.concat(seen);
  }
  const waiting: { place: Uint8Array; count: Promise<number> }[] = [];
  const post = (): void => {
    const place = new Uint8Array(placeOctets);
    waiting.push({ place, count: socket.receiveInto(place) });
  };
  for (let i = 0; i < 3; i++) post();
  for (;;) {
    const { place, count } = waiting.shift()!;
    const octets = await count;
    if (octets === 0) return Buffer.concat(seen);
    seen.push(Buffer.from(place.subarray(0, octets)));
    post();
  }
}

it('the bytes of both directions arrive, in order and whole', async () => {
  await fc.assert(
    fc.asyncProperty(
      side,
      side,
      writes,
      writes,
      fc.constantFrom(0, 50, 70_000, 300_000),
      async (a, b, up, down, place) => {
        const options = { protocol: 'sdp', allowHalfOpen: true } as const;
        const server = createServer({ ...options, ...a } as RdmaSocketOptions).listen(0, '127.0.0.1');
        await once(server, 'listening');
        const client = connect({
          ...options,
          ...b,
          host: '127.0.0.1',
          port: (server.address() as { port: number }).port,
        });
        const [peer] = (await once(server, 'connection')) as [RdmaSocket];
        if (client.connecting) await once(client, 'connect');
        try {
          const reading = [readAll(peer, place), readAll(client, 0)] as const;
          const [sentUp, sentDown] = [send(client, up, 1), send(peer, down, 2)];
          const [gotUp, gotDown] = await Promise.all(reading);
          expect(gotUp.equals(sentUp)).toBe(true);
          expect(gotDown.equals(sentDown)).toBe(true);
        } finally {
          client.destroy();
          peer.destroy();
          await server[Symbol.asyncDispose]();
        }
      },
    ),
    { numRuns: depth(30, 60), endOnFailure: true },
  );
}, 120_000);
