/** Receive buffers pass from one connection to the next: what a program still holds of the first does not change. */
import { describe, expect, it } from 'vitest';
import { checkEndpoint, createResources, discardResources } from '../../src/api/endpoint.ts';
import { connect, createServer, openRnic, type Connection, type Message } from '../../src/index.ts';
import { pattern, rnicOf, WORLDS } from './support.ts';

const OCTETS = 5000;

describe.each(WORLDS)('buffers of a connection that is over: %s', (world) => {
  async function setUp(): Promise<{ open: () => Promise<Connection>; arrived: Connection[]; end: () => Promise<void> }> {
    const rnic = rnicOf(world);
    const arrived: Connection[] = [];
    const server = await createServer({ rnic }, (connection) => void arrived.push(connection)).listen({ host: '127.0.0.1', port: 0 });
    return { open: () => connect({ rnic, host: '127.0.0.1', port: server.address.port }), arrived, end: () => server.close() };
  }

  /** One more connection that has received such a message. */
  async function receive(setting: Awaited<ReturnType<typeof setUp>>, seed: number): Promise<Message> {
    const client = await setting.open();
    await expect.poll(() => setting.arrived.length).toBeGreaterThan(0);
    const there = setting.arrived.pop()!;
    await client.send(pattern(OCTETS, seed));
    const message = (await there.receive())!;
    expect(Buffer.compare(message.data, pattern(OCTETS, seed))).toBe(0);
    await client.close();
    await there.closed;
    return message;
  }

  it('serve the next ones when all messages have been released', async () => {
    const setting = await setUp();
    const used = new Set<ArrayBufferLike>();
    for (const seed of [1, 2, 3, 4, 5]) {
      const message = await receive(setting, seed);
      used.add(message.data.buffer);
      message.release();
      message.release();
    }
    expect(used.size).toBeLessThanOrEqual(2); // those of the two ends of the first connection
    await setting.end();
  });

  it('stay with a message that has not been released', async () => {
    const setting = await setUp();
    const kept = await receive(setting, 1);
    for (const seed of [2, 3, 4]) {
      const message = await receive(setting, seed);
      expect(message.data.buffer).not.toBe(kept.data.buffer);
      message.release();
    }
    expect(Buffer.compare(kept.data, pattern(OCTETS, 1))).toBe(0);
    kept.release();
    await setting.end();
  });

  it('stay with messages that nobody has asked for, to be received after the end', async () => {
    const setting = await setUp();
    const client = await setting.open();
    await expect.poll(() => setting.arrived.length).toBe(1);
    const there = setting.arrived.pop()!;
    await Promise.all([1, 2].map((seed) => client.send(pattern(OCTETS, seed))));
    await client.close();
    await there.closed;
    (await receive(setting, 3)).release();
    for (const seed of [1, 2]) {
      const message = (await there.receive())!;
      expect(Buffer.compare(message.data, pattern(OCTETS, seed))).toBe(0);
      message.release();
    }
    expect(await there.receive()).toBeNull();
    await setting.end();
  });
});

describe('buffers of a connection that has not come about', () => {
  it('serve the next one, and are given back once however often its end is told', () => {
    const rnic = openRnic();
    const { spare } = rnic.device;
    const resources = createResources(checkEndpoint({ rnic }));
    const { bytes } = resources.buffers;
    discardResources(resources);
    discardResources(resources);
    expect([spare.take(bytes.length) === bytes, spare.take(bytes.length)]).toEqual([true, undefined]);
  });
});
