/** Receive buffers pass from one connection to the next: what a program still holds of the first does not change. */
import { describe, expect, it } from 'vitest';
import { checkEndpoint, createResources, destroyResources } from '../../src/api/endpoint.ts';
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

  it('are lost in the first piece only where few messages have not been released', async () => {
    const setting = await setUp();
    const { spare } = (await setting.open()).pd.device;
    const used = new Set<ArrayBufferLike>();
    const give = spare.give.bind(spare);
    const given: number[] = [];
    spare.give = (bytes) => (given.push(bytes.length), give(bytes));
    for (const seed of [1, 2, 3]) used.add((await receive(setting, seed)).data.buffer);
    expect(used.size).toBe(3);
    // Two ends each: all of the one that has received nothing, and all but the first piece of the other.
    expect(given.filter((octets) => octets === 4 * 16_384)).toHaveLength(3);
    expect(given.filter((octets) => octets === 16 * 16_384)).toHaveLength(6);
    expect(given.filter((octets) => octets > 16 * 16_384)).toHaveLength(6);
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
    const rnic = openRnic({ engine: 'thread' });
    const { spare } = rnic.device;
    const asked: number[] = [];
    const take = spare.take.bind(spare);
    spare.take = (octets) => (asked.push(octets), take(octets));
    const resources = createResources(checkEndpoint({ rnic }));
    destroyResources(resources);
    destroyResources(resources);
    // 128 receives and 4 that are held in reserve, of 16 KiB each.
    expect(asked.map((octets) => octets / 16_384)).toEqual([4, 16, 112]);
    expect(asked.splice(0).map((octets) => [take(octets)?.length, take(octets)])).toEqual([4, 16, 112].map((count) => [count * 16_384, undefined]));
  });
});

describe('the pieces in which the buffers of a connection lie', () => {
  const pieces = (receives: number, maxMessage: number): number[] => {
    const rnic = openRnic({ engine: 'thread' });
    const resources = createResources(checkEndpoint({ rnic, receives, maxMessage }));
    const octets = [...rnic.device.objects.mr].filter(({ pd }) => pd === resources.pd).map((mr) => mr.length);
    destroyResources(resources);
    return octets;
  };

  it('are never less than what is worth keeping, and together all that was asked for', () => {
    expect(pieces(1, 0)).toEqual([0]);
    expect(pieces(1, 16_384)).toEqual([5 * 16_384]);
    expect(pieces(12, 16_384)).toEqual([16 * 16_384]);
    expect(pieces(13, 16_384)).toEqual([4, 13].map((count) => count * 16_384));
    expect(pieces(1000, 64)).toEqual([1004 * 64]);
    expect(pieces(8000, 64)).toEqual([1024, 6980].map((count) => count * 64));
    expect(pieces(60, 1 << 20)).toEqual([4, 60].map((count) => count << 20));
  });

  it('leave nothing behind where a limit is in the way of one of them', () => {
    const rnic = openRnic({ engine: 'thread', limits: { maxMr: 2 } });
    expect(() => createResources(checkEndpoint({ rnic }))).toThrow(expect.objectContaining({ code: 'ERR_LIMIT' }));
    expect(rnic.device.query().inUse).toEqual({ pd: 0, cq: 0, qp: 0, srq: 0, mr: 0, mw: 0 });
  });
});
