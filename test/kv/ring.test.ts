// The ring: order, fullness, every length, the end of either side; both engines.
import { describe, expect, it } from 'vitest';
import { connect } from '../../src/api/connect.ts';
import type { Connection } from '../../src/api/connection.ts';
import { openRnic, type EngineKind } from '../../src/api/environment.ts';
import { createServer } from '../../src/api/server.ts';
import { RingReader, RingWriter } from '../../src/kv/index.ts';

async function pair(engine: EngineKind): Promise<{ a: Connection; b: Connection; end: () => Promise<void> }> {
  const rnic = openRnic({ engine });
  const server = await createServer({ rnic }).listen({ port: 0, host: '127.0.0.1' });
  const accepted = server[Symbol.asyncIterator]().next();
  const a = await connect({ port: server.address()!.port, host: '127.0.0.1', rnic });
  const b = (await accepted).value as Connection;
  return {
    a,
    b,
    end: async () => {
      await Promise.all([a.close(), b.close()]);
      await server.close();
      rnic.device.close();
    },
  };
}

describe.each<EngineKind>(['thread', 'worker'])('engine %s', (engine) => {
  it('gives every message once, in order, through a ring much smaller than their number', async () => {
    const { a, b, end } = await pair(engine);
    const reader = new RingReader(b, { places: 4, size: 100 });
    const writer = new RingWriter(a, reader.ticket);
    const messages = Array.from({ length: 300 }, (_, i) => `${i} ${'x'.repeat(i % 97)}`);
    const seen: string[] = [];
    const reading = (async () => {
      for await (const message of reader) {
        seen.push(Buffer.from(message).toString());
        if (seen.length === messages.length) return;
      }
    })();
    await Promise.all(messages.map((message) => writer.write(message)));
    await reading;
    expect(seen).toEqual(messages);
    expect(reader.poll()).toBeNull();
    expect(() => writer.write(new Uint8Array(101))).toThrow(
      expect.objectContaining({ code: 'ERR_TOO_LARGE' }),
    );
    await writer.write(new Uint8Array(0));
    const limit = performance.now() + 10_000;
    while (seen.length === 300 && performance.now() < limit) {
      const empty = reader.poll();
      if (empty !== null) seen.push(`empty ${empty.length}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(seen.at(-1)).toBe('empty 0');
    reader.close();
    expect(() => reader.poll()).toThrow(expect.objectContaining({ code: 'ERR_DESTROYED' }));
    await end();
  });

  it('ends with its connection, and what was written before is read', async () => {
    const { a, b, end } = await pair(engine);
    const reader = new RingReader(b);
    const writer = new RingWriter(a, reader.ticket);
    for (let i = 0; i < 20; i++) await writer.write(String(i));
    await a.close();
    await b.close();
    const seen: string[] = [];
    for await (const message of reader) seen.push(Buffer.from(message).toString());
    expect(seen).toEqual(Array.from({ length: 20 }, (_, i) => String(i)));
    await expect(writer.write('late')).rejects.toMatchObject({ code: expect.stringMatching(/^ERR_/) });
    reader.close();
    await end();
  });
});

it('a ticket whose sizes do not fit is refused', async () => {
  const { a, b, end } = await pair('thread');
  const { ticket } = new RingReader(b, { places: 4, size: 100 });
  for (const [at, value] of [
    [16, 1],
    [16, 0xffff_ffff],
    [20, 0],
    [20, 0xffff_ffff],
  ] as const) {
    const wrong = ticket.slice();
    new DataView(wrong.buffer).setUint32(at, value);
    expect(() => new RingWriter(a, wrong)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_ARGUMENT' }));
  }
  expect(() => new RingWriter(a, ticket.subarray(1))).toThrow(/24 bytes/);
  expect(() => new RingReader(b, { places: 1 })).toThrow(/options\.places/);
  await end();
});
