/** A message's memory in a transfer list: it is copied or refused, and no other message changes. */
import { MessageChannel } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { connect, createServer, openRnic } from '../../src/index.ts';

const COUNT = 60;
const OCTETS = 1000;

it.each([
  ['thread', 'postMessage'],
  ['thread', 'structuredClone'],
  ['worker', 'postMessage'],
  ['worker', 'structuredClone'],
] as const)('engine %s: %s takes no neighbour away', async (engine, how) => {
  const rnic = openRnic({ engine });
  const server = await createServer({ rnic }, async (connection) => {
    for (let i = 0; i < COUNT; i++) await connection.send(Buffer.alloc(OCTETS, i + 1));
    await connection.closed;
  }).listen({ port: 0, host: '127.0.0.1' });
  const { port1, port2 } = new MessageChannel();
  const client = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
  for (let i = 0; i < COUNT; i++) {
    const message = (await client.receive())!;
    expect(Buffer.compare(message.data, Buffer.alloc(OCTETS, i + 1))).toBe(0);
    const list = [message.data.buffer as ArrayBuffer];
    try {
      if (how === 'postMessage') port1.postMessage(message.data, list);
      else structuredClone(message.data, { transfer: list });
    } catch (error) {
      // Shared memory cannot be transferred at all.
      expect(['DataCloneError', 'TypeError']).toContain((error as Error).name);
    }
    expect(message.data).toHaveLength(OCTETS);
    message.release();
  }
  port1.close();
  port2.close();
  await client.close();
  await server.close();
});

it('a byte stream of the Web that takes a block ends the connection with a typed error', async () => {
  const rnic = openRnic({ engine: 'thread' });
  const server = await createServer({ rnic }, async (connection) => {
    for (let i = 0; i < COUNT; i++) await connection.send(Buffer.alloc(OCTETS, i + 1)).catch(() => undefined);
    await connection.closed;
  }).listen({ port: 0, host: '127.0.0.1' });
  const client = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
  const first = (await client.receive())!;
  let isTaken = false;
  const stream = new ReadableStream({
    type: 'bytes',
    start(controller) {
      try {
        controller.enqueue(first.data);
        isTaken = first.data.length === 0;
      } catch {
        // A newer Node refuses it.
      }
    },
  });
  const lost = { code: 'ERR_INVALID_REGION', message: expect.stringContaining('message.buffer()') };
  if (isTaken) {
    expect(() => first.text()).toThrow(expect.objectContaining(lost));
    first.release();
    await expect(client.receive()).rejects.toMatchObject(lost);
    expect(await client.closed).toMatchObject({ error: lost });
    // The device and its other connections go on.
    const other = await connect({ rnic, host: '127.0.0.1', port: server.address().port });
    for (let i = 0; i < COUNT; i++) {
      const message = (await other.receive())!;
      expect(Buffer.compare(message.data, Buffer.alloc(OCTETS, i + 1))).toBe(0);
      message.release();
    }
    await other.close();
  } else {
    expect(first.data).toHaveLength(OCTETS);
    first.release();
    await client.close();
  }
  await stream.cancel();
  await server.close();
});
