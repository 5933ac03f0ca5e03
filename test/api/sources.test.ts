// Where the octets of a Send or Write come from: any view, a region or part of one, and what becomes of
// memory that is taken away meanwhile.
import { describe, expect, it } from 'vitest';
import type { Connection, LocalMemory } from '../../src/index.ts';
import { pair, pattern, registered, WORLDS, type World } from './support.ts';

/** In the queue entry, in one segment, lent to the socket where CRC is off, in several segments. */
const SIZES = [1, 64, 65, 4096, 6144, 100_000];

/** A view in the middle of more memory, as a program hands over a slice of a buffer. */
function inside(octets: Uint8Array, shared = false): Uint8Array {
  const memory = shared ? new SharedArrayBuffer(octets.length + 24) : new ArrayBuffer(octets.length + 24);
  const bytes = new Uint8Array(memory, 8, octets.length);
  bytes.set(octets);
  return bytes;
}

const KINDS: readonly (readonly [string, (connection: Connection, octets: Uint8Array) => LocalMemory])[] = [
  ['an array of its own', (_connection, octets) => octets.slice()],
  ['a view into more memory', (_connection, octets) => inside(octets)],
  ['a DataView', (_connection, octets) => new DataView(inside(octets).buffer, 8, octets.length)],
  ['a view of shared memory', (_connection, octets) => inside(octets, true)],
  ['a region', (connection, octets) => registered(connection, octets)],
  [
    'part of a region',
    (connection, octets) => ({
      mr: registered(connection, Uint8Array.of(...[0, 0], ...octets)),
      offset: 2,
      length: octets.length,
    }),
  ],
];

function transfer(bytes: Uint8Array): void {
  structuredClone(bytes.buffer, { transfer: [bytes.buffer as ArrayBuffer] });
}

describe.each(WORLDS)('over %s', (world: World) => {
  for (const crc of ['required', 'off'] as const) {
    it.each(KINDS)(`CRC ${crc}: Writes and Sends of %s`, async (_name, make) => {
      const options = { policy: { crc }, maxMessage: 100_000, receives: 8 };
      const { client, server } = await pair(world, options, options);
      const target = server.allocate(100_000);
      const remote = server.share(target);
      for (const size of SIZES) {
        const octets = pattern(size, size);
        const memory = make(client, octets);
        target.bytes.fill(0);
        await client.write(memory, remote);
        await client.send(memory);
        const message = (await server.receive())!;
        expect(Buffer.compare(message.data, octets), `${size} sent`).toBe(0);
        expect(Buffer.compare(target.bytes.subarray(0, size), octets), `${size} written`).toBe(0);
        expect(target.bytes[size] ?? 0).toBe(0);
        message.release();
      }
    });
  }

  it('a view is registered for no operation, and nothing of it is left behind', async () => {
    const { client, server } = await pair(world);
    const remote = server.share(server.allocate(65_536));
    // after this a worker's device keeps pieces of shared memory
    await client.write(pattern(65_536), remote);
    const before = client.pd.device.query().inUse.mr;
    for (let i = 0; i < 20; i++) await client.write(pattern(65_536), remote);
    expect(client.pd.device.query().inUse.mr).toBe(before);
  });

  /** Sends wait for the one receive of the peer; the memory of the one in the middle goes meanwhile. */
  async function transferInLine(octets: number): Promise<{ outcome: string; got: string[] }> {
    const { client, server } = await pair(world, {}, { receives: 1 });
    const bytes = new Uint8Array(octets).fill(0x61);
    await client.send('first');
    const middle = client.send(bytes).then(
      () => 'sent',
      (error: { code: string }) => error.code,
    );
    const last = client.send('last');
    transfer(bytes);
    const got: string[] = [];
    while (got.at(-1) !== 'last') {
      const message = (await server.receive())!;
      got.push(Buffer.from(message.data).toString());
      message.release();
    }
    await last;
    return { outcome: await middle, got };
  }

  it('short memory that is transferred away while its Send waits in line fails that Send alone', async () => {
    expect(await transferInLine(40)).toEqual({ outcome: 'ERR_INVALID_REGION', got: ['first', 'last'] });
  });

  it(
    world === 'worker' ? 'long memory is copied for a worker when the call is made' : 'so does long memory',
    async () => {
      const expected =
        world === 'worker'
          ? { outcome: 'sent', got: ['first', 'a'.repeat(4096), 'last'] }
          : { outcome: 'ERR_INVALID_REGION', got: ['first', 'last'] };
      expect(await transferInLine(4096)).toEqual(expected);
    },
  );

  it('long memory transferred away once posted ends the connection, unless it was copied', async () => {
    const { client, server } = await pair(world);
    const remote = server.share(server.allocate(65_536));
    const bytes = pattern(65_536);
    const outcome = client.write(bytes, remote).then(
      () => 'written',
      (error: { code: string }) => error.code,
    );
    transfer(bytes);
    expect(await outcome).toBe(world === 'worker' ? 'written' : 'ERR_WORK_COMPLETION');
  });
});
