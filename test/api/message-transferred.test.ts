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
